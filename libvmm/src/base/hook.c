/* The hook that tests put under locks, waits and the clock. */
#include "base/hook.h"

_Atomic(const vmm__hook *) vmm__hook_current;

void vmm__hook_install(const vmm__hook *hook) { atomic_store_explicit(&vmm__hook_current, hook, memory_order_release); }

bool vmm__hook_at(vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result) {
  const vmm__hook *hook = atomic_load_explicit(&vmm__hook_current, memory_order_acquire);

  return hook != NULL && hook->at(hook->data, point, object, value, result);
}
