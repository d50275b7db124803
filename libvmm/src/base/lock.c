/* Ranked locks over pthread mutexes; every step is told to the hook. */
#include "base/lock.h"

#include <time.h>

#include "base/clock.h"
#include "base/hook.h"

bool vmm__lock_init(vmm__lock *lock, vmm__rank rank) {
  lock->rank = rank;
  return pthread_mutex_init(&lock->mutex, NULL) == 0;
}

void vmm__lock_destroy(vmm__lock *lock) { (void)pthread_mutex_destroy(&lock->mutex); }

void vmm__lock_acquire(vmm__lock *lock) {
  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  (void)pthread_mutex_lock(&lock->mutex);
  (void)vmm__hook_at(VMM__POINT_ACQUIRED, lock, (vmm__u64)lock->rank, NULL);
}

bool vmm__lock_try(vmm__lock *lock) {
  if (pthread_mutex_trylock(&lock->mutex) != 0) return false;
  (void)vmm__hook_at(VMM__POINT_ACQUIRED, lock, (vmm__u64)lock->rank, NULL);
  return true;
}

/* The mutex clock is the wall clock where pthread_mutex_clocklock is missing; polling keeps to the monotonic one
 * everywhere, and 50 us steps are far below what a growth takes under contention. */
bool vmm__lock_acquire_within(vmm__lock *lock, vmm__u64 ns) {
  vmm__u64 start = vmm__clock_now();

  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  while (!vmm__lock_try(lock)) {
    if (vmm__clock_now() - start >= ns) return false;
    vmm__clock_wait(50000);
  }
  return true;
}

void vmm__lock_release(vmm__lock *lock) {
  (void)pthread_mutex_unlock(&lock->mutex);
  (void)vmm__hook_at(VMM__POINT_RELEASED, lock, (vmm__u64)lock->rank, NULL);
}
