/* One hook that sees every lock, wait and clock reading of the library, so that a test can schedule threads, or check
 * which locks are held. There is none in normal use: one relaxed load per point. */
#ifndef VMM_BASE_HOOK_H
#define VMM_BASE_HOOK_H

#include <stdatomic.h>

#include "base/checked.h"

typedef enum vmm__point {
  VMM__POINT_ACQUIRE = 1,     /* object: the lock; a scheduler returns when the lock is free by its own books */
  VMM__POINT_ACQUIRED = 2,    /* object: the lock; value: its rank */
  VMM__POINT_RELEASED = 3,    /* object: the lock; value: its rank */
  VMM__POINT_WAIT = 4,        /* value: ns; return true if the hook let the time pass itself */
  VMM__POINT_NOW = 5,         /* *result may be set; return true if it was */
  VMM__POINT_DRIVER = 6,      /* a driver call is about to be made; value: the operation */
  VMM__POINT_HOST_MEMORY = 7, /* the host allocator is about to be called */
  VMM__POINT_THREAD = 8       /* a thread is about to be started; return true if it cannot be had */
} vmm__point;

typedef struct vmm__hook {
  bool (*at)(void *data, vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result);
  void *data;
} vmm__hook;

/* Installs a hook, or removes it with NULL. The hook must stay valid until no thread can be inside it. Tests only. */
void vmm__hook_install(const vmm__hook *hook);

/* Read by the function below alone. Hidden, so that the shared library reads it without a detour. */
extern __attribute__((visibility("hidden"))) _Atomic(const vmm__hook *) vmm__hook_current;

/* Whether there is a hook to tell: what a lock asks before it does anything else. */
static inline bool vmm__hooked(void) {
  return __builtin_expect(atomic_load_explicit(&vmm__hook_current, memory_order_relaxed) != NULL, 0);
}

/* Tells the hook, if there is one. Returns what it returned, false without one. */
bool vmm__hook_at(vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result);

#endif
