/* What to do when memory runs out: the rungs of the ladder. */
#ifndef VMM_DEVICE_RECLAIM_H
#define VMM_DEVICE_RECLAIM_H

#include "device/work.h"

/* Gives back the asking owner's idle mappings; returns the bytes. Called with no lock held. */
typedef vmm__u64 (*vmm__give_back)(void *owner, vmm__work *work, vmm__u64 need);

typedef struct vmm__ladder {
  int rung; /* the next one to climb; starts at 0 */
} vmm__ladder;

/* After an attempt that failed with the work's status and was fully undone, with no lock held: climbs until something may
 * have changed and returns true (try again), or false: the status stands (or is CALLBACK). At most four rounds in all. */
bool vmm__reclaim(vmm__work *work, vmm__ladder *ladder, vmm__u64 need, vmm__give_back own_idle, void *owner);

/* Whether the round that comes is the last one. */
bool vmm__ladder_ended(const vmm__ladder *ladder);

/* Whether the calling thread is inside a pressure callback: then nothing may grow. */
bool vmm__in_pressure(void);

/* Whether a growth that ended so may succeed once something is given back. */
bool vmm__memory_is_short(vmm_status status);

#endif
