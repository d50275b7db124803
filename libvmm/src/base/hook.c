/* The hook that tests put under locks, waits and the clock. */
#include "base/hook.h"

#include <stdatomic.h>

static _Atomic(const vmm__hook *) current;

void vmm__hook_install(const vmm__hook *hook) { atomic_store_explicit(&current, hook, memory_order_release); }

bool vmm__hook_at(vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result) {
  const vmm__hook *hook = atomic_load_explicit(&current, memory_order_acquire);

  return hook != NULL && hook->at(hook->data, point, object, value, result);
}
