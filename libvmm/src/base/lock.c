/* Ranked locks over pthread mutexes; every step is told to the hook. */
#include "base/lock.h"

#include <time.h>

#include "base/clock.h"
#include "base/hook.h"

bool vmm__lock_init(vmm__lock *lock, vmm__rank rank) {
  lock->rank = rank;
  atomic_init(&lock->next_in_line, false);
  return pthread_mutex_init(&lock->mutex, NULL) == 0;
}

void vmm__lock_destroy(vmm__lock *lock) { (void)pthread_mutex_destroy(&lock->mutex); }

void vmm__lock_acquire(vmm__lock *lock) {
  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  (void)pthread_mutex_lock(&lock->mutex);
  (void)vmm__hook_at(VMM__POINT_ACQUIRED, lock, (vmm__u64)lock->rank, NULL);
}

/* The mutex clock is the wall clock where pthread_mutex_clocklock is missing; polling keeps to the monotonic one
 * everywhere, and 50 us steps are far below what a growth takes under contention. A mutex alone would starve those who
 * poll: one thread that grows in a loop lets it go for a microsecond at a time. So the next turn is taken first. */
bool vmm__lock_acquire_within(vmm__lock *lock, vmm__u64 ns) {
  vmm__u64 start = vmm__clock_now();
  bool next = false;

  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  for (;;) {
    if (!next) next = !atomic_exchange(&lock->next_in_line, true);
    if (next && pthread_mutex_trylock(&lock->mutex) == 0) break;
    if (vmm__clock_now() - start >= ns) {
      if (next) atomic_store(&lock->next_in_line, false);
      return false;
    }
    vmm__clock_wait(50000);
  }
  atomic_store(&lock->next_in_line, false);
  (void)vmm__hook_at(VMM__POINT_ACQUIRED, lock, (vmm__u64)lock->rank, NULL);
  return true;
}

void vmm__lock_release(vmm__lock *lock) {
  (void)pthread_mutex_unlock(&lock->mutex);
  (void)vmm__hook_at(VMM__POINT_RELEASED, lock, (vmm__u64)lock->rank, NULL);
}
