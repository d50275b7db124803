/* A pool: blocks in one growing region. Its lock guards the index, the mapping table and the counters, and is never held
 * across a driver call, a host allocation or a callback. */
#ifndef VMM_POOL_POOL_H
#define VMM_POOL_POOL_H

#include "base/thread.h"
#include "device/reclaim.h"
#include "device/streams.h"
#include "index/growth.h"
#include "index/space.h"
#include "pool/lease.h"
#include "pool/streams.h"
#include "region/region.h"

enum { VMM__BLOCK_UNIT = 256 };

typedef struct vmm__pool_counters {
  vmm__u64 committed_peak, block_count_peak, block_bytes_peak;
  vmm__u64 alloc_count, alloc_bytes, alloc_failures, free_count;
  vmm__u64 growth_count, growth_bytes, growth_failures;
  vmm__u64 trim_count, trim_bytes, move_count, moved_bytes, revived_bytes;
  vmm__u64 quarantined_bytes; /* live mappings that a failed trim or move took away */
  vmm__u64 seal_count, wait_count, limbo_count, fence_failures;
  vmm__u64 retry_count, not_ready_count, quiesce_count, oom_rounds, background_failures;
} vmm__pool_counters;

struct vmm_pool {
  vmm__lock lock;

  /* constant, but for closing: what lies between the lock, which others look at, and what its owner writes */
  vmm_device *device;
  vmm__client client;
  void *home_stream;
  vmm__u64 mapping_min, mapping_max;
  vmm__growth growth; /* what of it does not change */
  void *fence;        /* event for pending mappings: recorded and asked under the structure lock */
  bool scrub, eager, prefer_wait;
  bool bounded;    /* the caller gave mapping_max */
  bool background; /* a thread sees to what a poll sees to */
  vmm__u64 headroom, trim_threshold, trim_keep;
  vmm__thread thread;
  bool closing; /* a destroy is under way: nothing is allocated */

  vmm__pool_counters counters;
  vmm__u64 limit;
  vmm__handle *ready; /* handles put aside, see ready.h */
  vmm__u64 ready_bytes;
  uint32_t scatter;    /* how scattered free memory is, see growth.h */
  vmm__u64 held_bytes; /* free bytes that a growth in progress took out of the index */
  vmm__u64 promised;   /* records set aside for adds that growths and trims in progress may have to make */
  vmm__u64 ordered_frees, fenced_frees;  /* frees by stream order and scrubs, and how many a fence was seen to cover */
  vmm__u64 fence_frees;                  /* ... and how many the fence recorded last covers; 0: none is outstanding */
  vmm__u64 scrubbed;                     /* ... and how many there were with the latest scrub */
  vmm__u64 pending_bytes, pending_count; /* mappings on their way out, see pending.h */
  vmm__pool_stream home, limbo;
  vmm__pool_stream *streams; /* list of all: the home stream, the others, limbo */
  vmm__pool_stream *alone;   /* the one that has the pool alone, or NULL */
  bool others;               /* work of others may be queued on what was freed all the same: limbo, or a capture */
  vmm__u64 stream_count;     /* others than the home stream */
  vmm__u64 serials;          /* entries ever made */
  vmm__lock gather;
  vmm__pool_lease *leases;
  unsigned shut;        /* arena of what several streams have used, some of them captured: see vmm__pool_shut */
  vmm__u64 lease_count; /* without spares */
  vmm__space space;
  vmm__region region; /* its table under the lock, see region.h */
};

/* A request as all paths see it: rounded and checked. */
struct vmm__pool_request {
  vmm__u64 size, requested, alignment, tag, deadline_ns;
  unsigned flags;           /* vmm_request_flags */
  void *handle;             /* of the stream it is ordered on */
  vmm__pool_stream *stream; /* its entry; NULL while it has none */
};

/* Refuses a forked child, and a NULL pool or output. */
vmm_status vmm__pool_refuse(const vmm_pool *pool, const void *output, const char *function, vmm_error *error);

/* The index's answer, counted; 0 if nothing fits or records are short. Under the pool lock. */
vmm__u64 vmm__pool_place(vmm_pool *pool, const vmm__pool_request *request);

/* The same, and if nothing fits, where the stream's own memory and what is idle lie side by side: what is idle of it is the
 * stream's own from then on. For a miss. Under the pool lock. */
vmm__u64 vmm__pool_place_joined(vmm_pool *pool, const vmm__pool_request *request);

/* Takes pending mappings back if they make the request fit; 0 if not. Takes the pool lock. */
vmm__u64 vmm__pool_revive(vmm_pool *pool, const vmm__pool_request *request);

/* A request whose stream entry is known (alloc.c), or to be found by its handle (async.c). */
vmm_status vmm__pool_alloc(vmm_pool *pool, vmm__pool_request *request, unsigned long long *address,
                           const char *function, vmm_error *error);
vmm_status vmm__pool_alloc_on(vmm_pool *pool, vmm__pool_request *request, unsigned long long *address,
                              const char *function, vmm_error *error);

/* Frees a block into an arena, or to the lease of the capture that the stream takes part in. VMM__ARENA_MIXED: nowhere, it
 * stays until the pool ends, since a graph that nobody told of may use it. False if no block starts there. Under the pool
 * lock. */
bool vmm__pool_give(vmm_pool *pool, vmm__u64 address, const void *stream, unsigned arena, bool ordered);

/* Where memory goes that a caller vouches for: for their own work, not for a scrub of it, which may be queued on any stream.
 * Under the pool lock. */
static inline unsigned vmm__pool_vouched_arena(const vmm_pool *pool) {
  return pool->alone == NULL && pool->scrubbed > pool->fenced_frees ? pool->limbo.open : VMM__ARENA_IDLE;
}

/* UNKNOWN_ADDRESS, for a free. */
vmm_status vmm__pool_not_a_block(vmm__u64 address, const char *function, vmm_error *error);

/* The live mappings that hold no block, each once, in no order: start from a zeroed walk; NULL at the end. Linear in free
 * ranges and idle mappings, however many there are of either. Under the pool lock. */
typedef struct vmm__idle_walk {
  vmm__space_walk ranges;
  vmm__u64 end; /* of the range under way */
  size_t i;     /* the next mapping in it */
} vmm__idle_walk;
vmm__mapping *vmm__idle_next(vmm_pool *pool, vmm__idle_walk *walk);

/* Whether nothing that is queued may still use an idle mapping, as far as is known. Under the pool lock. */
bool vmm__idle_is_proven(vmm_pool *pool, const vmm__mapping *mapping);

/* Whether a stream is known by its handle, so that its entry can be found without the driver. */
static inline bool vmm__pool_knows_by_handle(const vmm_pool *pool, const void *stream) {
  return (!pool->eager && !vmm__stream_is_per_thread(stream)) || vmm__stream_is_same(stream, pool->home_stream);
}

/* Sees to it that so many operations on the index can run beside what is promised, and so many arenas be opened, and returns
 * with the pool lock held so that nobody else uses them up; on failure, OUT_OF_HOST_MEMORY, without it. */
vmm_status vmm__pool_reserve(vmm_pool *pool, vmm__work *work, vmm__u64 operations, unsigned arenas);

/* Sets records aside for `adds` ranges that may have to be added to the index, so that giving back what was taken out of
 * it cannot fail. No pool lock held (the structure lock may be). OUT_OF_HOST_MEMORY: nothing was set aside. Fulfil takes
 * the promise away, under the pool lock. */
vmm_status vmm__pool_promise(vmm_pool *pool, vmm__work *work, vmm__u64 adds);
static inline void vmm__pool_fulfil(vmm_pool *pool, vmm__u64 adds) { pool->promised -= adds; }

/* Place may have found memory but no records. Those need host memory, not growth: once more with them. 0 if there is no
 * host memory (then the work says so), or if nothing fits. No lock held. */
vmm__u64 vmm__pool_place_with_records(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request);

/* The miss: grows until the request is placed, with the memory ladder. *address is 0 on failure. */
vmm_status vmm__pool_grow_for(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 *address);

/* Commits `size` bytes more, in pieces of at most mapping_max. With the memory ladder. */
vmm_status vmm__pool_grow_ahead(vmm_pool *pool, vmm__work *work, vmm__u64 size, vmm__u64 *grown);

/* Gives back idle mappings, highest first, while at least `keep` bytes stay committed and until `want` bytes are back.
 * With `wait` it waits for queued work until the deadline; else what work may still use is left pending. No lock held. The
 * failure, if any, is the work's. Returns the bytes given back. */
vmm__u64 vmm__pool_trim(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want, bool wait);

/* Adds a finished work's counts to the pool's. */
void vmm__pool_count_work(vmm_pool *pool, const vmm__work *work);
/* An allocation that failed. No pool lock held. */
void vmm__pool_count_failure(vmm_pool *pool);

/* Ends a pool that was never handed out. If that fails too, the device's close tries again. Returns the work's status. */
vmm_status vmm__pool_abandon(vmm_pool *pool, vmm__work *work);

/* Frees the struct; nothing of the driver's is left in it. */
void vmm__pool_release(vmm_pool *pool);

/* From an ordinal to the driver's device number; refuses the owner, and what is no device. */
vmm_status vmm__pool_find_peer(vmm__work *work, int ordinal, int *raw);

/* Fills a block with zero bytes on a stream. */
vmm_status vmm__pool_scrub(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 address, vmm__u64 size);

#endif
