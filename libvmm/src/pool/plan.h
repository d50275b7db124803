/* Where a growth goes, how large it is and what it is made of: reads, changes nothing. */
#ifndef VMM_POOL_PLAN_H
#define VMM_POOL_PLAN_H

#include "pool/pool.h"

typedef struct vmm__plan {
  vmm__u64 address; /* of the new mapping(s) */
  vmm__u64 size;    /* to commit */
  vmm__u64 need;    /* the least that serves the request */
  vmm__u64 least;   /* the smallest size that still holds the parts */
  vmm__u64 piece;   /* largest single mapping that is created */
  vmm__u64 tail;    /* free bytes right before `address` that the plan relies on */
  unsigned arena;   /* where they were, once they are held */
  vmm__u64 frees;   /* of the stream, if it had the pool alone then: what they may wait for if it has no more */
  vmm__u64 moved;   /* of the parts: bytes of idle mappings */
  uint32_t scatter; /* the pool's, with this miss */
  vmm__parts parts; /* idle handles, and idle mappings elsewhere in the pool, that come first */
} vmm__plan;

/* For a request, or for `ahead` bytes if it is NULL; 0: of what is put aside, as much as parts can be. `move`: idle mappings may be taken down for it. INVALID_ARGUMENT
 * (cannot be rounded), LIMIT, OUT_OF_ADDRESS_SPACE. Under the pool lock and the structure lock. */
vmm_status vmm__plan_make(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 ahead, bool move,
                          vmm__plan *plan);

/* Chooses the parts of a growth that needs plan->need bytes: handles put aside, then idle ones, of at most `most` bytes
 * together. parts.c */
void vmm__plan_handles(vmm_pool *pool, const vmm__pool_request *request, vmm__u64 most, vmm__plan *plan);
/* ... and idle mappings outside the tail, for what is missing still; together the parts have at most `room` bytes. */
void vmm__plan_idle_mappings(vmm_pool *pool, vmm__u64 room, vmm__plan *plan);

/* ---- moving idle backing, move.c ---- */

/* If nothing but unfenced frees keeps idle mappings from being moved: asks the GPU once, without waiting, whether the work
 * before them is done. Needs the structure lock and the context. Failures are not the work's. */
void vmm__pool_prove_idle(vmm_pool *pool, vmm__work *work);

/* Takes the mappings among the parts out of the index, and the handles from those put aside. Under the pool lock; the records are promised (put_back). */
void vmm__parts_detach(vmm_pool *pool, vmm__parts *parts);

/* Unmaps them; their handles are the parts'. False if a step failed: the growth must do without parts, and the work has
 * the error only if the device is lost. */
bool vmm__parts_take_down(vmm_pool *pool, vmm__work *work, vmm__parts *parts);

/* What was detached but not taken down goes back into the index, and handles to those put aside, under the pool lock. */
void vmm__parts_put_back(vmm_pool *pool, vmm__parts *parts);

/* Gives the handles away that no commit took over; what goes back to the driver is added to the work's gave_back. */
void vmm__parts_give(vmm__work *work, vmm__parts *parts);

#endif
