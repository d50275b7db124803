/* What the cffi module holds besides the library's own functions: gates, and what goes through them in one step.
 *
 * Preprocessed with VMM_CDEF this is the declarations of the module; compiled as it is, their definitions too.
 */
#ifndef PYVMM_BINDING_H
#define PYVMM_BINDING_H

#include "gate.h"
#include "vmm/driver.h"

#ifdef VMM_CDEF

void *vmm_py_enter(vmm_py_gate *gate);
void vmm_py_leave(vmm_py_gate *gate);
void *vmm_py_take(vmm_py_gate *gate);
void vmm_py_put(vmm_py_gate *gate, void *object);
long vmm_py_users(vmm_py_gate *gate);
int vmm_py_free(vmm_py_gate *gate, unsigned long long address);
int vmm_py_free_on(vmm_py_gate *gate, unsigned long long address, unsigned long long stream);
int vmm_py_free_behind_all(vmm_py_gate *gate, unsigned long long address);
int vmm_py_pool_destroy(vmm_py_gate *gate, void *pool, int mode, vmm_error *error);
int vmm_py_device_close(vmm_py_gate *gate, void *device, vmm_error *error);

#else

static void *vmm_py_take(vmm_py_gate *gate) { return __atomic_exchange_n(&gate->object, (void *)0, __ATOMIC_SEQ_CST); }

static void vmm_py_put(vmm_py_gate *gate, void *object) { __atomic_store_n(&gate->object, object, __ATOMIC_SEQ_CST); }

static long vmm_py_users(vmm_py_gate *gate) { return __atomic_load_n(&gate->users, __ATOMIC_SEQ_CST); }

/* A vmm_status, or -1 if the gate is closed. */
static int vmm_py_free(vmm_py_gate *gate, unsigned long long address) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) return -1;
  int status = (int)vmm_pool_free(pool, address, NULL);
  vmm_py_leave(gate);
  return status;
}

/* The same, ordered on a stream. */
static int vmm_py_free_on(vmm_py_gate *gate, unsigned long long address, unsigned long long stream) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) return -1;
  int status = (int)vmm_pool_free_async(pool, address, (void *)(size_t)stream, NULL);
  vmm_py_leave(gate);
  return status;
}

/* For a block whose stream may be gone: behind all work of the context, and no stream is touched. */
static int vmm_py_free_behind_all(vmm_py_gate *gate, unsigned long long address) {
  vmm_pool *pool = (vmm_pool *)vmm_py_enter(gate);
  if (pool == NULL) return -1;
  int status = (int)vmm_pool_free_multi(pool, address, NULL, 0, NULL);
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
