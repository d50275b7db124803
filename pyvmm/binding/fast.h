/* What the two files of pyvmm._fast share: the objects, and how either goes through the gate or gives up. */
#ifndef PYVMM_FAST_H
#define PYVMM_FAST_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "gate.h"
#include "vmm/vmm.h"

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080 /* headers of the first 3.10 hide it */
#endif

typedef unsigned long long u64;

typedef struct {
  PyObject ob_base;
  vmm_py_gate *cell;    /* NULL until the pool is open */
  PyObject *gate;       /* the Gate that owns it */
  PyObject *block_type; /* Block */
  PyObject *dropped;    /* what destructors could not free */
  u64 home;             /* the home stream */
  u64 epoch;            /* counts forced closes that dropped the blocks and then failed */
} quick_pool;

typedef struct {
  PyObject ob_base;
  quick_pool *pool;
  PyObject *stream; /* what it was allocated on; NULL: the home stream, as none was named */
  u64 on;           /* the same as a number */
  u64 address, size, tag, epoch;
  int live; /* whoever takes it owns the right to free: exactly one thread can */
} quick_block;

/* An int in range and of no derived type. No exception is set. */
static inline int plain_integer(PyObject *object, u64 *number) {
  if (!PyLong_CheckExact(object)) return 0;
  *number = PyLong_AsUnsignedLongLong(object);
  if (*number != (u64)-1 || PyErr_Occurred() == NULL) return 1;
  PyErr_Clear();
  return 0;
}

/* What was dropped is freed before anything else: then the way over Python is taken. */
static inline int is_quick(const quick_pool *pool) {
  return pool != NULL && pool->cell != NULL && PyObject_Size(pool->dropped) == 0;
}

static inline int try_free(const quick_pool *self, u64 address, u64 stream) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(self->cell);
  vmm_status status;

  if (pool == NULL) return 0;
  status = vmm_pool_try_free(pool, address, (void *)(uintptr_t)stream);
  vmm_py_leave(self->cell);
  return status == VMM_OK;
}

static inline PyObject *none(void) {
  Py_INCREF(Py_None);
  return Py_None;
}

/* The last step of a destructor. */
static inline void let_go(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);

  PyObject_GC_Del(self);
  Py_DECREF(type);
}

/* self.<name>(*given, **names) */
PyObject *pyvmm__in_python(PyObject *self, const char *name, PyObject *const *given, Py_ssize_t count, PyObject *names);

extern PyType_Spec pyvmm__block_spec;

/* ISO C knows no way from a function to void *, POSIX and Python do. */
#define FUNCTION(function) __extension__(void *)(function)
#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

enum { PYVMM__FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC };

#endif
