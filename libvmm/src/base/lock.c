/* Ranked locks: waiting for one, with and without a deadline, and telling the hook. */
#include "base/lock.h"

#include <time.h>

#include "base/clock.h"

enum {
  SPINS = 7,       /* looks before a sleep, each after twice the pauses of the one before */
  WATCH_NS = 1000, /* so long a lock is watched that has just been handed over; ... */
  BUSY_TURNS = 10, /* if it is had more often meanwhile a thread does nothing else, for no two take turns as fast */
  MOST_LOSSES = 8, /* so often in a row a thread waits for longer than it worked before it leaves the lock to others */
  SLEEP_NS = 4000, /* the first one; the system adds about 50 us to it */
  LONGEST_SLEEP_NS = 4000000,
  TENURE_NS = 2000000,   /* for so long a busy lock stays with the thread that got it */
  PATIENCE_NS = 20000000 /* who has waited for longer leaves it to nobody any more */
};

bool vmm__lock_init(vmm__lock *lock, vmm__rank rank) {
  atomic_init(&lock->held, 0);
  atomic_init(&lock->next_in_line, false);
  atomic_init(&lock->turns, 0);
  atomic_init(&lock->handed, 0);
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

static bool looks_free(const vmm__lock *lock) { return atomic_load_explicit(&lock->held, memory_order_relaxed) == 0; }

static void pause_times(int count) {
  while (count-- > 0) pause_once();
}

/* Until the lock looks free, for a while. */
static bool spin(const vmm__lock *lock) {
  for (int i = 0; i < SPINS; i++) {
    if (looks_free(lock)) return true;
    pause_times(1 << i);
  }
  return false;
}

static vmm__u64 now(void) {
  struct timespec time;

  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (vmm__u64)time.tv_sec * 1000000000u + (vmm__u64)time.tv_nsec;
}

/* Whether the lock was just handed to a thread that does nothing but take it. */
static bool is_anothers(const vmm__lock *lock) {
  vmm__u64 start = now();
  unsigned turns;

  if (start - atomic_load_explicit(&lock->handed, memory_order_relaxed) >= TENURE_NS) return false;
  turns = atomic_load_explicit(&lock->turns, memory_order_relaxed);
  while (now() - start < WATCH_NS) pause_times(4);
  return atomic_load_explicit(&lock->turns, memory_order_relaxed) - turns > BUSY_TURNS;
}

static bool try_once(vmm__lock *lock) { return atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0; }

/* When the calling thread last got a lock that it had to wait for, and how often in a row that took it longer than what it
 * did before. */
static _Thread_local vmm__u64 last_got;
static _Thread_local int losses;

/* Until the lock is had, or patience has come to an end: then false. *slept: whether it took a sleep. */
static bool wait_patiently(vmm__lock *lock, vmm__u64 start, bool *slept) {
  vmm__u64 pause = SLEEP_NS;
  bool lost = losses >= MOST_LOSSES;

  for (; now() - start < PATIENCE_NS; lost = false) {
    if (!lost && !is_anothers(lock) && spin(lock)) {
      if (try_once(lock)) return true;
      continue;
    }
    vmm__clock_sleep(pause);
    if (pause < LONGEST_SLEEP_NS) pause *= 2;
    *slept = true;
  }
  return false;
}

/* At the first moment that it is free, whoever takes it all the time. */
static void wait_no_longer(vmm__lock *lock) {
  while (!try_once(lock)) {
    if (!spin(lock)) vmm__clock_sleep(SLEEP_NS);
  }
}

/* Locks are held for some ten nanoseconds, so one that is met now and then is worth a look or two. But where threads do
 * nothing else, each change of hands takes the lines of what the lock protects along, which costs as much as thousands of
 * calls: then it is best to let one thread work on for a while. So who finds that a thread just got the lock and does
 * nothing but take it sleeps, and so does who does little but wait. The sleeps get longer from one to the next, so that a
 * burst is waited for about as long as it lasts. By that alone one of many could wait for seconds, since each change of
 * hands begins a new tenure: so patience has an end. It sleeps by itself, not by the clock's wait: a scheduler in the hook
 * lets a thread come here only when the lock is free. */
void vmm__lock_wait(vmm__lock *lock) {
  vmm__u64 start = now(), got;
  bool slept = false;

  (void)vmm__hook_at(VMM__POINT_ACQUIRE, lock, (vmm__u64)lock->rank, NULL);
  if (!wait_patiently(lock, start, &slept)) wait_no_longer(lock);
  got = now();
  losses = !slept && got - start > start - last_got ? losses + 1 : 0;
  last_got = got;
  atomic_store_explicit(&lock->handed, got, memory_order_relaxed);
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
