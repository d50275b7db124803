/* Locks with a rank. A thread takes locks only by rising rank; a test hook sees every acquire and release and can check
 * that. `stats` and `free` never wait for a lock that is held across a driver call: only STRUCTURE is. */
#ifndef VMM_BASE_LOCK_H
#define VMM_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/checked.h"

typedef enum vmm__rank {
  VMM__RANK_REGISTRY = 1,  /* the list of open devices; held across the driver calls of open and close */
  VMM__RANK_STRUCTURE = 2, /* one per device: whoever edits address ranges; held across driver calls, with a deadline */
  VMM__RANK_POOL = 3,   /* one per pool: index, mapping table, counters; never across a driver call, malloc, callback */
  VMM__RANK_DEVICE = 4, /* one per device: streams, captures, handle counters, list of pools; as POOL */
  VMM__RANK_EVENTS = 5, /* one per device: the event ring */
  VMM__RANK_DRIVER = 6  /* inside drivers: simulator, fault rules, recorder */
} vmm__rank;

typedef struct vmm__lock {
  pthread_mutex_t mutex;
  vmm__rank rank;
  atomic_bool next_in_line; /* somebody waits with a deadline and has the next turn */
} vmm__lock;

bool vmm__lock_init(vmm__lock *lock, vmm__rank rank); /* false: the system has no room for one */
void vmm__lock_destroy(vmm__lock *lock);
void vmm__lock_acquire(vmm__lock *lock);
/* Waits at most `ns` of real time; false if the lock was not had by then. Whoever lets the lock go and asks again at once
 * does not get it before one who waits already. */
bool vmm__lock_acquire_within(vmm__lock *lock, vmm__u64 ns);
void vmm__lock_release(vmm__lock *lock);

#endif
