/* Mappings on their way out: taken out of the index, they wait for the work that may use them and are then unmapped, by
 * whoever comes by: trim, poll, a growth, destroy. Nobody needs to wait for them, and one that is wanted again before it
 * is unmapped goes back into the index without a driver call.
 *
 * A pool has one fence for all of them. Each carries the number of ordered frees that had been made when it left; the
 * fence covers those made before it was recorded. So a later mapping never delays an earlier one by more than a fence. */
#ifndef VMM_POOL_PENDING_H
#define VMM_POOL_PENDING_H

#include "pool/pool.h"

/* Takes idle mappings out of the index, highest first, while at least `keep` bytes stay and until `want` bytes left it;
 * at most a batch of them. While a capture forbids the fence that some would wait for, those stay with their streams:
 * *left is set. Returns the bytes. No pool lock held; the structure lock is. */
vmm__u64 vmm__pending_detach(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want, bool *left);

/* Sees to it that a fence is on its way for every mapping that needs one. CAPTURE where none can be had now. A driver
 * without context-wide events leaves the blocking call for a pool that others than the home stream use: made only with
 * `wait`. Needs the structure lock. */
vmm_status vmm__pending_fence(vmm_pool *pool, vmm__work *work, bool wait);

/* Records the fence behind the first `frees` ordered frees. None may be on its way. CAPTURE where none can be had now. Needs
 * the structure lock and the context. */
vmm_status vmm__pending_record(vmm_pool *pool, vmm__work *work, vmm__u64 frees);

/* CAPTURE, with the reason. */
vmm_status vmm__pending_refuse(vmm__work *work);

/* Asks once whether the fence has passed. Needs the structure lock. */
vmm_status vmm__pending_look(vmm_pool *pool, vmm__work *work);

/* Unmaps those whose work is done, highest first, until `want` bytes are back or a step fails. Returns the bytes given
 * back. Needs the structure lock. */
vmm__u64 vmm__pending_finish(vmm_pool *pool, vmm__work *work, vmm__u64 want);

/* Bytes on their way out. Takes the pool lock. */
vmm__u64 vmm__pending_bytes(vmm_pool *pool);

/* Lets others have the structure lock until the fence passes or the deadline does. */
vmm_status vmm__pending_wait(vmm_pool *pool, vmm__work *work);

/* Puts mappings back if that makes room for the request. Under the pool lock. */
bool vmm__pending_revive(vmm_pool *pool, const vmm__pool_request *request);

#endif
