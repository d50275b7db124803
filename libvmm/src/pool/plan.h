/* Where a growth goes and how large it is: reads, changes nothing. */
#ifndef VMM_POOL_PLAN_H
#define VMM_POOL_PLAN_H

#include "pool/pool.h"

typedef struct vmm__plan {
  vmm__u64 address; /* of the new mapping(s) */
  vmm__u64 size;    /* to commit */
  vmm__u64 need;    /* the least that serves the request */
  vmm__u64 piece;   /* largest single mapping */
  vmm__u64 tail;    /* free bytes right before `address` that the plan relies on */
  unsigned arena;   /* where they were, once they are held */
} vmm__plan;

/* For a request, or for `ahead` bytes if it is NULL. INVALID_ARGUMENT (cannot be rounded), LIMIT, OUT_OF_ADDRESS_SPACE.
 * Under the pool lock and the structure lock. */
vmm_status vmm__plan_make(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 ahead,
                          vmm__plan *plan);

#endif
