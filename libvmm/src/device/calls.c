/* The driver calls, counted and timed. */
#include "device/calls.h"

static void raise_to(_Atomic(vmm__u64) *maximum, vmm__u64 value) {
  vmm__u64 seen = atomic_load_explicit(maximum, memory_order_relaxed);

  while (seen < value &&
         !atomic_compare_exchange_weak_explicit(maximum, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    /* `seen` was read anew */
  }
}

static vmm__u64 call_start(vmm_device *gpu, int op) {
  (void)vmm__hook_at(VMM__POINT_DRIVER, gpu, (vmm__u64)op, NULL);
  return vmm__device_now(gpu);
}

static int call_end(vmm_device *gpu, int op, vmm__u64 start, int code, vmm__u64 address, vmm__u64 size) {
  vmm__call_counter *counter = &gpu->calls[op];
  vmm__u64 taken = vmm__saturating_sub(vmm__device_now(gpu), start);

  (void)atomic_fetch_add_explicit(&counter->count, 1, memory_order_relaxed);
  (void)atomic_fetch_add_explicit(&counter->total_ns, taken, memory_order_relaxed);
  raise_to(&counter->max_ns, taken);
  /* A poll that says "not yet" is no failure. */
  if (code == VMM_CODE_SUCCESS || (code == VMM_CODE_NOT_READY && op == VMM_OP_event_query)) return code;
  (void)atomic_fetch_add_explicit(&counter->failures, 1, memory_order_relaxed);
  vmm__device_event(gpu, VMM_EVENT_CALL_FAILED, op, code, 0, address, size, 0);
  if (vmm__code_is_sticky(code)) vmm__device_set_lost(gpu, op, code);
  if (code == VMM_CODE_NOT_READY) {
    vmm__lock_acquire(&gpu->lock);
    gpu->counters.not_ready_count++;
    vmm__lock_release(&gpu->lock);
  }
  return code;
}

#define VMM_SELF_PARAMETER vmm_device *gpu
#define VMM_SELF gpu->driver->self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  int vmm__cu_##name parameters {                                                       \
    vmm__u64 start = call_start(gpu, VMM_OP_##name);                                    \
    int code = gpu->driver->table->name arguments;                                      \
    return call_end(gpu, VMM_OP_##name, start, code, address, size);                    \
  }
#include "vmm/ops.def"
