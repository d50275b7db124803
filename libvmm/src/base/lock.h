/* Locks with a rank. A thread takes locks only by rising rank; a test hook sees every acquire and release and can check
 * that. `stats` and `free` never wait for a lock that is held across a driver call: only STRUCTURE is. */
#ifndef VMM_BASE_LOCK_H
#define VMM_BASE_LOCK_H

#include <stdatomic.h>

#include "base/hook.h"

typedef enum vmm__rank {
  VMM__RANK_REGISTRY = 1,  /* the list of open devices; held across the driver calls of open and close */
  VMM__RANK_STRUCTURE = 2, /* one per device: whoever edits address ranges; held across driver calls, with a deadline */
  VMM__RANK_GATHER = 3,    /* one per pool: whoever proves freed memory idle; across event calls, with a deadline */
  VMM__RANK_POOL = 4,   /* one per pool: index, mapping table, counters; never across a driver call, malloc, callback */
  VMM__RANK_DEVICE = 5, /* one per device: streams, captures, handle counters, list of pools; as POOL */
  VMM__RANK_EVENTS = 6, /* one per device: the event ring */
  VMM__RANK_DRIVER = 7  /* inside drivers: simulator, fault rules, recorder */
} vmm__rank;

/* One word, taken with an atomic exchange and let go with a plain store. Who finds it taken spins for a few hundred ns,
 * then sleeps for a moment that doubles from try to try. Nobody is woken and there is no queue, on purpose: threads that
 * hand a lock over call by call also hand over the cache lines it guards, which costs more than the work under it. So a
 * lock that others take all the time stays for some milliseconds with the thread that got it; one that is met now and then
 * is had at once. Who has waited for long in spite of it takes it at the first chance. All zero but the rank is a lock
 * that is free. */
typedef struct vmm__lock {
  atomic_uint held;
  atomic_bool next_in_line; /* somebody waits with a deadline and has the next turn */
  atomic_uint turns;        /* how often it was let go: whoever waits sees how busy it is */
  _Atomic vmm__u64 handed;  /* when a thread that had to wait got it last, in ns of the monotonic clock */
  vmm__rank rank;
} vmm__lock;

bool vmm__lock_init(vmm__lock *lock, vmm__rank rank); /* false: the system has no room for one */
void vmm__lock_destroy(vmm__lock *lock);
/* Waits at most `ns` of real time; false if the lock was not had by then. Whoever lets the lock go and asks again at once
 * does not get it before one who waits already. */
bool vmm__lock_acquire_within(vmm__lock *lock, vmm__u64 ns);

/* The other parts of those below: waiting, and telling the hook. */
void vmm__lock_wait(vmm__lock *lock);
void vmm__lock_tell_released(vmm__lock *lock);

/* At once, or not at all; never while there is a hook. For a few instructions that cannot end otherwise: nothing need be
 * kept over a call, which makes them fewer. Whoever fails asks again with acquire. */
static inline bool vmm__lock_try(vmm__lock *lock) {
  return !vmm__hooked() && __builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) == 0, 1);
}
/* Lets go of a lock that try took. */
static inline void vmm__lock_untry(vmm__lock *lock) {
  unsigned turns = atomic_load_explicit(&lock->turns, memory_order_relaxed);

  atomic_store_explicit(&lock->turns, turns + 1, memory_order_relaxed);
  atomic_store_explicit(&lock->held, 0, memory_order_release);
}

static inline void vmm__lock_acquire(vmm__lock *lock) {
  if (vmm__hooked() || __builtin_expect(atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0, 0))
    vmm__lock_wait(lock);
}

static inline void vmm__lock_release(vmm__lock *lock) {
  vmm__lock_untry(lock);
  if (vmm__hooked()) vmm__lock_tell_released(lock);
}

#endif
