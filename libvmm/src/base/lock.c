/* Ranked locks: waiting for one, with and without a deadline, and telling the hook. */
#include "base/lock.h"

#include <time.h>

#include "base/clock.h"

enum {
  SPINS = 7,         /* looks before a sleep, each after twice the pauses of the one before */
  CROWDED_SPINS = 1, /* ... where the thread has just waited */
  SLEEP_NS = 4000,   /* the first one; the system adds about 50 us to it */
  CROWDED_SLEEP_NS = 200000,
  LONGEST_SLEEP_NS = 1000000,
  CROWDED_NS = 500000 /* since it last waited */
};

/* When the thread last got a lock that it had to wait for. */
static _Thread_local vmm__u64 waited;

bool vmm__lock_init(vmm__lock *lock, vmm__rank rank) {
  atomic_init(&lock->held, 0);
  atomic_init(&lock->next_in_line, false);
  lock->rank = rank;
  return true;
}

void vmm__lock_destroy(vmm__lock *lock) { (void)lock; }

static void pause_once(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory"); /* `yield` does nothing on most of them */
#else
  atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Until the lock looks free, for a while. */
static bool spin(vmm__lock *lock, int looks) {
  for (int i = 0; i < looks; i++) {
    if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0) return true;
    for (int k = 0; k < 1 << i; k++) pause_once();
  }
  return false;
}

static bool try_once(vmm__lock *lock) { return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0; }

static vmm__u64 now(void) {
  struct timespec time;

  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (vmm__u64)time.tv_sec * 1000000000u + (vmm__u64)time.tv_nsec;
}

/* Locks are held for some ten nanoseconds, so one that is met now and then is worth a look or two. But where threads do
 * nothing else, each look takes the lock's cache line from the one that works, and each change of hands takes the lines of
 * what it protects along: then it is best to let one thread work on for a while (measured with 16 threads: three times the
 * pairs in all). It sleeps by itself, not by the clock's wait: a scheduler in the hook lets a thread come here only when the
 * lock is free. */
void vmm__lock_wait(vmm__lock *lock) {
  bool crowded = now() - waited < CROWDED_NS;
  struct timespec time = {0, crowded ? CROWDED_SLEEP_NS : SLEEP_NS};

  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  while (!spin(lock, crowded ? CROWDED_SPINS : SPINS) || !try_once(lock)) {
    if (atomic_load_explicit(&lock->held, memory_order_relaxed) == 0) continue;
    (void)nanosleep(&time, NULL);
    if (time.tv_nsec < LONGEST_SLEEP_NS) time.tv_nsec *= 2;
  }
  waited = now();
  (void)vmm__hook_at(VMM__POINT_ACQUIRED, lock, (vmm__u64)lock->rank, NULL);
}

/* Polls by the monotonic clock; 50 us steps are far below what a growth takes under contention. That alone would starve
 * those who poll: one thread that grows in a loop lets it go for a microsecond at a time. So the next turn is taken
 * first. */
bool vmm__lock_acquire_within(vmm__lock *lock, vmm__u64 ns) {
  vmm__u64 start = vmm__clock_now();
  bool next = false;

  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  for (;;) {
    if (!next) next = !atomic_exchange(&lock->next_in_line, true);
    if (next && try_once(lock)) break;
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

void vmm__lock_tell_released(vmm__lock *lock) {
  (void)vmm__hook_at(VMM__POINT_RELEASED, lock, (vmm__u64)lock->rank, NULL);
}
