/* The module pyvmm._fast: the part of Pool and Block that a program runs all the time, an alloc or a free that simply
 * fits. Over cffi, with the Python that takes, it costs several times as much; everything else stays there.
 *
 * Each method here tries, and leaves what it cannot do, arguments of other types and all errors to the Python method of the
 * same name with an underscore. The interpreter's lock is kept meanwhile, since nothing here waits, calls the driver or a
 * callback: vmm_pool_try_alloc and vmm_pool_try_free see to that. Whatever might takes the way over cffi, which lets go of
 * the lock.
 */
#include "fast.h"

/* self.<name>(*given, **names) */
PyObject *pyvmm__in_python(PyObject *self, const char *name, PyObject *const *given, Py_ssize_t count,
                           PyObject *names) {
  PyObject *method = PyObject_GetAttrString(self, name), *arguments = PyTuple_New(count);
  PyObject *keywords = names != NULL ? PyDict_New() : NULL, *result = NULL;
  Py_ssize_t i, named = names != NULL ? PyTuple_Size(names) : 0;

  if (method == NULL || arguments == NULL || (names != NULL && keywords == NULL)) goto done;
  for (i = 0; i < count; i++) {
    Py_INCREF(given[i]);
    if (PyTuple_SetItem(arguments, i, given[i]) != 0) goto done;
  }
  for (i = 0; i < named; i++)
    if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), given[count + i]) != 0) goto done;
  result = PyObject_Call(method, arguments, keywords);
done:
  Py_XDECREF(keywords);
  Py_XDECREF(arguments);
  Py_XDECREF(method);
  return result;
}

/* What a call gives that is simple: a number and, by name or in the place `at`, a stream. */
typedef struct {
  u64 number, stream;
  PyObject *named; /* the stream; NULL: none, and `stream` is the home stream */
} simple;

static int is_simple(const quick_pool *pool, PyObject *const *given, Py_ssize_t count, PyObject *names, Py_ssize_t at,
                     simple *call) {
  call->stream = pool->home;
  call->named = NULL;
  if (names != NULL) {
    if (PyTuple_Size(names) != 1 || PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "stream") != 0)
      return 0;
    if (count != 1) return 0;
    call->named = given[1];
  } else if (count == 2 && at == 1) {
    call->named = given[1];
  } else if (count != 1) {
    return 0;
  }
  if (call->named == Py_None) call->named = NULL;
  if (call->named != NULL && !plain_integer(call->named, &call->stream)) return 0;
  return plain_integer(given[0], &call->number);
}

/* 0: nothing happened. */
static u64 try_alloc(const quick_pool *self, u64 size, u64 stream) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(self->cell);
  u64 address = 0;

  if (pool == NULL) return 0;
  (void)vmm_pool_try_alloc(pool, size, (void *)(uintptr_t)stream, &address);
  vmm_py_leave(self->cell);
  return address;
}

static int pool_traverse(PyObject *object, visitproc visit, void *arg) {
  quick_pool *self = (quick_pool *)object;

  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->gate);
  Py_VISIT(self->block_type);
  Py_VISIT(self->dropped);
  return 0;
}

static int pool_clear(PyObject *object) {
  quick_pool *self = (quick_pool *)object;

  self->cell = NULL;
  Py_CLEAR(self->gate);
  Py_CLEAR(self->block_type);
  Py_CLEAR(self->dropped);
  return 0;
}

static void pool_dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  (void)pool_clear(object);
  let_go(object);
}

/* _open(gate, address of its cell, home stream, Block, queue) */
static PyObject *pool_open(PyObject *object, PyObject *arguments) {
  quick_pool *self = (quick_pool *)object;
  PyObject *gate, *type, *dropped;
  u64 cell, home;

  if (!PyArg_ParseTuple(arguments, "OKKOO", &gate, &cell, &home, &type, &dropped)) return NULL;
  if (self->cell != NULL || !PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "_open: once, and with a type");
    return NULL;
  }
  Py_INCREF(self->gate = gate);
  Py_INCREF(self->block_type = type);
  Py_INCREF(self->dropped = dropped);
  self->home = home;
  self->cell = (vmm_py_gate *)(uintptr_t)cell;
  return none();
}

/* A block without memory. `stream` NULL: ordered on the home stream. */
static quick_block *new_block(quick_pool *self, PyObject *stream, u64 on) {
  quick_block *block = (quick_block *)PyType_GenericAlloc((PyTypeObject *)self->block_type, 0);

  if (block == NULL) return NULL;
  Py_INCREF((PyObject *)self);
  block->pool = self;
  Py_XINCREF(stream);
  block->stream = stream;
  block->on = on;
  block->epoch = __atomic_load_n(&self->epoch, __ATOMIC_SEQ_CST);
  return block;
}

static PyObject *pool_alloc(PyObject *object, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  quick_pool *self = (quick_pool *)object;
  quick_block *block;
  simple call;

  if (!is_quick(self) || !is_simple(self, given, count, names, 0, &call))
    return pyvmm__in_python(object, "_alloc", given, count, names);
  block = new_block(self, call.named, call.stream); /* first: it may run the garbage collector, and that anything */
  if (block == NULL) return NULL;
  block->address = try_alloc(self, call.number, call.stream);
  block->size = call.number;
  block->live = block->address != 0;
  if (block->live) return (PyObject *)block;
  Py_DECREF((PyObject *)block);
  return pyvmm__in_python(object, "_alloc", given, count, names);
}

static PyObject *pool_alloc_address(PyObject *object, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  quick_pool *self = (quick_pool *)object;
  u64 address = 0;
  simple call;

  if (is_quick(self) && is_simple(self, given, count, names, 1, &call))
    address = try_alloc(self, call.number, call.stream);
  if (address != 0) return PyLong_FromUnsignedLongLong(address);
  return pyvmm__in_python(object, "_alloc_address", given, count, names);
}

static PyObject *pool_free_address(PyObject *object, PyObject *const *given, Py_ssize_t count, PyObject *names) {
  quick_pool *self = (quick_pool *)object;
  simple call;

  if (is_quick(self) && is_simple(self, given, count, names, 0, &call) && try_free(self, call.number, call.stream))
    return none();
  return pyvmm__in_python(object, "_free_address", given, count, names);
}

/* _block(address, nbytes, tag, stream): the owner of memory that was allocated otherwise. */
static PyObject *pool_block(PyObject *object, PyObject *arguments) {
  quick_pool *self = (quick_pool *)object;
  PyObject *stream = NULL;
  u64 address, size, tag, on;
  quick_block *block;

  if (!PyArg_ParseTuple(arguments, "KKKO", &address, &size, &tag, &stream)) return NULL;
  if (self->cell == NULL) {
    PyErr_SetString(PyExc_TypeError, "_block: the pool is not open");
    return NULL;
  }
  on = self->home;
  if (stream == Py_None) stream = NULL;
  if (stream != NULL && !plain_integer(stream, &on)) {
    PyErr_SetString(PyExc_TypeError, "_block: the stream is no address");
    return NULL;
  }
  block = new_block(self, stream, on);
  if (block == NULL) return NULL;
  block->address = address;
  block->size = size;
  block->tag = tag;
  block->live = 1;
  return (PyObject *)block;
}

static PyObject *pool_outlive(PyObject *object, PyObject *unused) {
  (void)unused;
  __atomic_add_fetch(&((quick_pool *)object)->epoch, 1, __ATOMIC_SEQ_CST);
  return none();
}

static PyMethodDef pool_methods[] = {
    {"alloc", FAST(pool_alloc),
     "A block of so many bytes, ordered on a stream: the home stream if none is named. Pool._alloc says what else can\n"
     "be asked for."},
    {"alloc_address", FAST(pool_alloc_address), "The same as a bare address: nothing but free_address gives it back."},
    {"free_address", FAST(pool_free_address),
     "Frees a block by its address, ordered on the home stream, on the one named, or on all of several. idle: the\n"
     "caller vouches that no work uses it."},
    {"_open", pool_open, METH_VARARGS, NULL},
    {"_block", pool_block, METH_VARARGS, NULL},
    {"_outlive", pool_outlive, METH_NOARGS, "Its blocks are gone, but the pool still stands."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot pool_slots[] = {{Py_tp_methods, pool_methods},
                                   {Py_tp_traverse, FUNCTION(pool_traverse)},
                                   {Py_tp_clear, FUNCTION(pool_clear)},
                                   {Py_tp_dealloc, FUNCTION(pool_dealloc)},
                                   {0, NULL}};

static PyType_Spec pool_spec = {"pyvmm._fast.QuickPool", (int)sizeof(quick_pool), 0, PYVMM__FLAGS, pool_slots};

static int add_type(PyObject *module, PyType_Spec *spec) {
  PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
  int result = type != NULL ? PyModule_AddType(module, (PyTypeObject *)type) : -1;

  Py_XDECREF(type);
  return result;
}

static int fill_module(PyObject *module) {
  return add_type(module, &pyvmm__block_spec) != 0 || add_type(module, &pool_spec) != 0 ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, FUNCTION(fill_module)}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_fast", "Allocs and frees that simply fit.", 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast(void);

PyMODINIT_FUNC PyInit__fast(void) { return PyModuleDef_Init(&module); }
