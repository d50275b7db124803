/* Memory that captured graphs use. What is allocated or freed on a stream while it is captured goes to the capture's lease:
 * an arena that blocks stick to. A graph that is replayed uses the addresses again, whatever was freed in between, so none of
 * it is reused elsewhere, trimmed or moved before the lease ends. */
#ifndef VMM_POOL_LEASE_H
#define VMM_POOL_LEASE_H

#include "pool/streams.h"

typedef struct vmm__pool_lease {
  struct vmm__pool_lease *next;
  vmm__u64 id;            /* the device's number of the lease; 0: a spare, for the next capture that uses the pool */
  vmm__pool_stream entry; /* what stands for the stream in requests; its users are those under way */
  bool ended;             /* it goes with the last of them */
  bool idle;              /* ... and the caller vouches that nothing queued uses its memory */
  bool shuts;             /* the shut arena is not to be used before it ends */
} vmm__pool_lease;

/* Keeps a spare, so that nothing is allocated in a free. No lock. */
vmm_status vmm__pool_prepare_lease(vmm_pool *pool, vmm__work *work);

/* The lease of a capture: its own, or the spare; NULL if there is neither. Under the pool lock. */
vmm__pool_lease *vmm__pool_lease_find(vmm_pool *pool, vmm__u64 id);

/* If the request's stream is being captured, it is the capture's from here on. */
vmm_status vmm__pool_join_capture(vmm_pool *pool, vmm__pool_request *request, const char *function, vmm_error *error);

/* The request is served, or not. */
void vmm__pool_leave_capture(vmm_pool *pool, const vmm__pool_request *request);

/* Where a free on a stream goes: the lease of its capture, else `arena`. VMM__ARENA_MIXED: nowhere, the block must stay; it
 * takes more captures side by side than there are arenas. Under the pool lock. */
unsigned vmm__pool_captured_arena(vmm_pool *pool, const void *stream, unsigned arena);

/* Frees a block that several streams have used. If none of them is captured nothing is done, and the answer is false. Else
 * nobody is given it, not even one of the captures, before all leases that it concerns have ended: a graph would not wait for
 * the other streams, nor one branch of it for another. *found: whether a block starts there. Under the pool lock. */
bool vmm__pool_shut(vmm_pool *pool, vmm__u64 address, void *const *streams, size_t count, bool *found);

/* The same for a block of another capture's lease, freed on a captured stream: both graphs use it. False: it is no such
 * block, and nothing is done. */
bool vmm__pool_shut_anothers(vmm_pool *pool, vmm__u64 address, const void *stream);

/* What the lease holds waits for the context, and is then idle; or is so at once, for the caller vouches for that. No driver
 * call. */
void vmm__pool_end_lease(vmm_pool *pool, vmm__u64 id, bool idle);

/* The same for all of them, and the spare; for destroy. */
void vmm__pool_end_leases(vmm_pool *pool);

#endif
