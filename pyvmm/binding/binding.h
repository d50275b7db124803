/* What the cffi module holds besides the library's own functions: gates, and the two calls of the hot path.
 *
 * A gate stands between Python threads and an object of the library's that one of them may close: a call enters, works
 * on the object and leaves; closing takes the object out, waits until nobody is inside, and puts it back if the library
 * refuses. So a handle of a destroyed object never reaches the library.
 *
 * Preprocessed with VMM_CDEF this is the declarations of the module; compiled as it is, their definitions too.
 */
#ifndef PYVMM_BINDING_H
#define PYVMM_BINDING_H

#include "vmm/driver.h"

typedef struct vmm_py_gate {
  void *object; /* NULL: closed, or being closed */
  long users;   /* threads between enter and leave */
} vmm_py_gate;

#ifdef VMM_CDEF

void *vmm_py_enter(vmm_py_gate *gate);
void vmm_py_leave(vmm_py_gate *gate);
void *vmm_py_take(vmm_py_gate *gate);
void vmm_py_put(vmm_py_gate *gate, void *object);
long vmm_py_users(vmm_py_gate *gate);
unsigned long long vmm_py_alloc(vmm_py_gate *gate, unsigned long long size);
int vmm_py_free(vmm_py_gate *gate, unsigned long long address);
unsigned long long vmm_py_alloc_on(vmm_py_gate *gate, unsigned long long size, unsigned long long stream);
int vmm_py_free_on(vmm_py_gate *gate, unsigned long long address, unsigned long long stream);
int vmm_py_free_behind_all(vmm_py_gate *gate, unsigned long long address);
vmm_error *vmm_py_last_error(void);
int vmm_py_pool_destroy(vmm_py_gate *gate, void *pool, int mode, vmm_error *error);
int vmm_py_device_close(vmm_py_gate *gate, void *device, vmm_error *error);

#else

/* Gives the object, with one user more, or NULL if the gate is closed. */
static void *vmm_py_enter(vmm_py_gate *gate) {
  __atomic_add_fetch(&gate->users, 1, __ATOMIC_SEQ_CST);
  void *object = __atomic_load_n(&gate->object, __ATOMIC_SEQ_CST);
  if (object == NULL) __atomic_sub_fetch(&gate->users, 1, __ATOMIC_SEQ_CST);
  return object;
}

static void vmm_py_leave(vmm_py_gate *gate) { __atomic_sub_fetch(&gate->users, 1, __ATOMIC_SEQ_CST); }

static void *vmm_py_take(vmm_py_gate *gate) { return __atomic_exchange_n(&gate->object, (void *)0, __ATOMIC_SEQ_CST); }

static void vmm_py_put(vmm_py_gate *gate, void *object) { __atomic_store_n(&gate->object, object, __ATOMIC_SEQ_CST); }

static long vmm_py_users(vmm_py_gate *gate) { return __atomic_load_n(&gate->users, __ATOMIC_SEQ_CST); }

/* The error of this thread's last vmm_py_alloc that failed: the hot path then needs no struct of its own per call. */
static _Thread_local vmm_error vmm_py_error;

static vmm_error *vmm_py_last_error(void) { return &vmm_py_error; }

/* The address, or 0: then the thread's error says why, with status VMM_OK if the gate is closed. */
static unsigned long long vmm_py_alloc(vmm_py_gate *gate, unsigned long long size) {
  unsigned long long address = 0;
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) {
    vmm_py_error.status = VMM_OK;
    return 0;
  }
  if (vmm_pool_alloc(pool, size, &address, &vmm_py_error) != VMM_OK) address = 0;
  vmm_py_leave(gate);
  return address;
}

/* A vmm_status, or -1 if the gate is closed. */
static int vmm_py_free(vmm_py_gate *gate, unsigned long long address) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) return -1;
  int status = (int)vmm_pool_free(pool, address, NULL);
  vmm_py_leave(gate);
  return status;
}

/* The same, ordered on a stream. */
static unsigned long long vmm_py_alloc_on(vmm_py_gate *gate, unsigned long long size, unsigned long long stream) {
  unsigned long long address = 0;
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) {
    vmm_py_error.status = VMM_OK;
    return 0;
  }
  if (vmm_pool_alloc_async(pool, size, (void *)(size_t)stream, &address, &vmm_py_error) != VMM_OK) address = 0;
  vmm_py_leave(gate);
  return address;
}

static int vmm_py_free_on(vmm_py_gate *gate, unsigned long long address, unsigned long long stream) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) return -1;
  int status = (int)vmm_pool_free_async(pool, address, (void *)(size_t)stream, NULL);
  vmm_py_leave(gate);
  return status;
}

/* For a block whose stream may be gone: behind all work of the context, and no stream is touched. */
static int vmm_py_free_behind_all(vmm_py_gate *gate, unsigned long long address) {
  void *const streams[2] = {NULL, NULL};
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) return -1;
  int status = (int)vmm_pool_free_multi(pool, address, streams, 2, NULL);
  vmm_py_leave(gate);
  return status;
}

/* Ends what was taken out of the gate, or puts it back if it still stands. One step, so that no interrupt of Python's can
 * come between. After PARTIAL the object is gone too. */
static int vmm_py_ended(vmm_py_gate *gate, void *object, vmm_status status) {
  if (status != VMM_OK && status != VMM_ERROR_PARTIAL) vmm_py_put(gate, object);
  return (int)status;
}

static int vmm_py_pool_destroy(vmm_py_gate *gate, void *pool, int mode, vmm_error *error) {
  return vmm_py_ended(gate, pool, vmm_pool_destroy((vmm_pool *)pool, mode, error));
}

static int vmm_py_device_close(vmm_py_gate *gate, void *device, vmm_error *error) {
  return vmm_py_ended(gate, device, vmm_device_close((vmm_device *)device, error));
}

#endif

#endif
