/* libvmm: a pool of device memory that grows in place, its blocks, and what it tells. Conventions: vmm/vmm.h. */
#ifndef VMM_POOL_H
#define VMM_POOL_H

#include "vmm/device.h"

#ifndef VMM_CDEF
#ifdef __cplusplus
extern "C" {
#endif
#endif

typedef enum vmm_verify {
  VMM_VERIFY_ACCESS = 0, /* one get-access per mapping and device before it is published */
  VMM_VERIFY_DATA = 1    /* that, and a word per granule written and read back on the library's own stream */
} vmm_verify;

/* When the event is recorded that tells when what a stream has freed is idle. */
typedef enum vmm_events {
  VMM_EVENTS_LAZY = 0, /* when somebody else wants the memory. A stream that was named to a pool must stay alive until
                          vmm_device_forget_stream */
  VMM_EVENTS_EAGER =
      1 /* in every free. The stream's handle is not touched after the call, and a later stream of the same
                          handle value is told apart; each alloc and free then makes driver calls */
} vmm_events;

/* How much a pool commits when a request does not fit. Whatever the policy says, a request larger than that is served,
 * and idle backing that lies in holes elsewhere in the pool is moved (unmapped, and mapped again where it is needed)
 * before the driver is asked for more than the policy would have committed anyway. */
typedef enum vmm_growth_policy {
  VMM_GROWTH_PROPORTIONAL = 0, /* up to the next power of two of live bytes while those are below a 32nd of the device's
                                  memory (at most 4 GiB), half-way there first where a fifth is free and would do in one
                                  piece, and four times as much up to a 1024th; then a tenth above them, an eleventh
                                  where free memory lies scattered */
  VMM_GROWTH_EXACT = 1,        /* what the request needs */
  VMM_GROWTH_FIXED = 2         /* growth_step at a time */
} vmm_growth_policy;

typedef struct vmm_pool_options {
  size_t struct_size;
  unsigned long long reservation; /* address space; 0: 4 x device memory, halved when refused down to
                                       max(initial, 1 GiB). A number given here is taken as it is or refused */
  unsigned long long initial;     /* bytes to commit at once; 0: none */
  unsigned long long limit;       /* bytes this pool may commit; 0: none */
  unsigned long long mapping_min; /* smallest mapping a growth makes; 0: 2 MiB (rounded up to the granularity) */
  unsigned long long
      mapping_max;   /* largest one made ahead of need; 0: 64 MiB. What vmm_pool_grow is asked for, and a request
                                     larger than the pool, get one mapping, others are made of eight or so, and of more
                                     where free memory lies scattered */
  int growth_policy; /* vmm_growth_policy */
  unsigned long long growth_step; /* of VMM_GROWTH_FIXED; 0: 64 MiB */
  /* Bytes one growth may commit ahead of need; 0: mapping_max if that is given, else no bound but the policy's. */
  unsigned long long growth_ahead;
  /* What vmm_pool_poll and the pool's thread see to; failures are counted (background_failures) and tried again later. */
  unsigned long long headroom;       /* idle bytes to be kept ready; 0: none */
  unsigned long long trim_threshold; /* when more bytes than this are idle some are given back; 0: never ... */
  unsigned long long trim_keep;      /* ... and so many are left; 0: half of the threshold. At least headroom */
  int background;    /* 1: a thread does it, about every millisecond. It takes no lock that an allocation
                                        that fits needs across a driver call or a wait, and never waits for the GPU */
  void *home_stream; /* what alloc and free are ordered on; 0: the legacy default stream. It must outlive the
                                       pool; not 2, the per-thread one */
  int verify;        /* vmm_verify */
  int scrub;         /* 1: every block is filled with zero bytes on the home stream before it is given; CAPTURE while a
                        capture is announced in which that stream takes part, or any if it is the legacy stream */
  const int *peers;  /* ordinals of devices that get read/write access, besides the owner */
  size_t peer_count;
  int events;      /* vmm_events */
  int prefer_wait; /* 1: a stream is made to wait for what others have freed rather than the pool grows */
} vmm_pool_options;

/* As vmm_device_options_init. */
VMM_API vmm_status vmm_pool_options_init(vmm_pool_options *options, size_t size);

/* Makes a pool: reserves address space, and commits options->initial bytes. The device is counted by the pool.
 * Status: INVALID_ARGUMENT (sizes, unknown or duplicate peer, home stream), VERSION, OUT_OF_HOST_MEMORY,
 * OUT_OF_ADDRESS_SPACE, UNSUPPORTED (a peer that cannot reach the device), NOT_READY, TIMEOUT, DEVICE_LOST, DRIVER, FORKED,
 * and for `initial` all of vmm_pool_alloc's.
 * After failure *pool is NULL and nothing is held. May call the driver. */
VMM_API vmm_status vmm_pool_create(vmm_pool **pool, vmm_device *device, const vmm_pool_options *options,
                                   vmm_error *error);

typedef enum vmm_destroy_mode {
  VMM_DESTROY_IDLE = 0,  /* refuse with BUSY while blocks live */
  VMM_DESTROY_FORCED = 1 /* live blocks are dropped after a wait for all work of the device's context; BUSY if that does
                            not end in time. Work that peers have queued in theirs is the caller's to end first */
} vmm_destroy_mode;

/* Gives everything back and ends the pool, and with it the leases on its memory: graphs that use it are not launched any
 * more. Status: INVALID_ARGUMENT, BUSY (vmm_error.size is the count of live blocks), TIMEOUT, CAPTURE, OUT_OF_HOST_MEMORY,
 * FORKED, or what a driver call answered: the pool then still stands and destroy can be called again. If queued work was not
 * done, or could not be waited for, it stands with its blocks and leases; else without what was given back, without leases
 * and, after a forced one, without its blocks. Once the driver has refused to free its address range, allocations are
 * answered BUSY. PARTIAL: the pool is gone, but the driver kept its event. On a lost device it always succeeds, live blocks
 * or not. May call the driver. */
VMM_API vmm_status vmm_pool_destroy(vmm_pool *pool, int mode, vmm_error *error);

/* A block of `size` bytes, aligned to 256, ordered on the home stream: work queued there may use it, and may still be
 * using what stood there before. Size 0 gives a block of the smallest size, 256 bytes. Contents are undefined unless the
 * pool scrubs. What fits makes no driver call and no host allocation; otherwise the pool grows.
 * Status: INVALID_ARGUMENT (size too large to round), OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, OUT_OF_HOST_MEMORY,
 * MAPPING_LIMIT, LIMIT, NOT_READY, NOT_CONFIRMED, CAPTURE, BUSY (growth inside a pressure callback), TIMEOUT, CALLBACK,
 * DEVICE_LOST, DRIVER, FORKED. After failure *address is 0 and the pool is as before. */
VMM_API vmm_status vmm_pool_alloc(vmm_pool *pool, unsigned long long size, unsigned long long *address,
                                  vmm_error *error);

typedef enum vmm_request_flags {
  VMM_REQUEST_ONE_MAPPING = 1, /* the block lies within one mapping (for libraries that register one handle) */
  VMM_REQUEST_SCRUB = 2,       /* filled with zero bytes on the home stream before it is given */
  VMM_REQUEST_NO_GROWTH = 4,   /* answered OUT_OF_DEVICE_MEMORY rather than growing the pool */
  VMM_REQUEST_ON_STREAM = 8    /* ordered on `stream`, as vmm_pool_alloc_async; a scrub is queued there too */
} vmm_request_flags;

typedef struct vmm_request {
  size_t struct_size;
  unsigned long long size;
  unsigned long long alignment;   /* a power of two; 0: 256 */
  unsigned long long tag;         /* the caller's number, shown in listings */
  unsigned long long deadline_ns; /* for this call; 0: the device's */
  unsigned int flags;             /* vmm_request_flags */
  unsigned int reserved;          /* zero */
  void *stream;                   /* with VMM_REQUEST_ON_STREAM */
} vmm_request;

/* As vmm_device_options_init. */
VMM_API vmm_status vmm_request_init(vmm_request *request, size_t size);

/* vmm_pool_alloc with alignment, one-mapping blocks, scrub and tag. Status as there, and VERSION, INVALID_ARGUMENT for
 * an alignment that is no power of two or larger than the reservation, or an unknown flag. */
VMM_API vmm_status vmm_pool_alloc_with(vmm_pool *pool, const vmm_request *request, unsigned long long *address,
                                       vmm_error *error);

/* Frees a block, ordered on the home stream: it is reused by later allocations of that order at once. Makes no driver
 * call, allocates nothing, never fails for a live block. Status: INVALID_ARGUMENT (NULL pool), UNKNOWN_ADDRESS (not the
 * start of a live block: freed before, an inner address, another pool's), FORKED. */
VMM_API vmm_status vmm_pool_free(vmm_pool *pool, unsigned long long address, vmm_error *error);

/* The same, and the caller vouches that the work which used the block is done. A block that no work has used yet is freed in
 * order instead: what its stream had queued before it was allocated may still use the memory. */
VMM_API vmm_status vmm_pool_free_idle(vmm_pool *pool, unsigned long long address, vmm_error *error);

/* vmm_pool_alloc, ordered on `stream` (of the device's context; 0 or 1: the legacy stream, 2: the per-thread one): work
 * queued there afterwards may use the block. What the stream itself freed is used first, then what is idle, then what others
 * freed and the driver says is done, then what a trim has not unmapped yet; then the pool grows, and only then is the
 * stream made to wait for others (options->prefer_wait: before it grows). What fits makes no driver call with lazy events.
 * The first allocation on a stream registers it (vmm_device_register_stream), if events are lazy.
 * Status as vmm_pool_alloc, and UNSUPPORTED (lazy events, and the pool cannot tell more streams apart: about five hundred, fewer
 * by one for every two leases; forget those that ended). May call the driver. */
VMM_API vmm_status vmm_pool_alloc_async(vmm_pool *pool, unsigned long long size, void *stream,
                                        unsigned long long *address, vmm_error *error);

/* Frees a block when the work queued on `stream` so far is done: allocations on that stream may have it at once. The block
 * may come from any stream or order; all its other work must be done, or the stream be made to wait for it. Allocates
 * nothing and never fails for a live block: where no event can be recorded, or the stream was never named to the pool by
 * an allocation, the block waits for all work of the context (counted: stats.limbo_count, fence_failures).
 * Status: INVALID_ARGUMENT (NULL pool), UNKNOWN_ADDRESS, FORKED. No driver call with lazy events. */
VMM_API vmm_status vmm_pool_free_async(vmm_pool *pool, unsigned long long address, void *stream, vmm_error *error);

/* The same for a block that several streams use: it is free when the work queued on all of them is done; with count 0, where
 * nobody can say which, when all work of the context is. If captures are
 * announced on some of them, and that is not one stream alone, not even the captures are given it again: a graph would not
 * wait for the others. It is free once all their leases have ended. Status besides: INVALID_ARGUMENT (streams is NULL, but
 * count is not 0). */
VMM_API vmm_status vmm_pool_free_multi(vmm_pool *pool, unsigned long long address, void *const *streams, size_t count,
                                       vmm_error *error);

/* vmm_pool_alloc_async for callers who must not be kept waiting, because they hold a lock of an interpreter's, say: gives a
 * block only if that takes no wait for a lock, no driver call, no host allocation and no callback. With the home stream of
 * the pool it is vmm_pool_alloc. Status: BUSY (nothing happened; the other function does it or says what is wrong),
 * INVALID_ARGUMENT (NULL, size too large to round), FORKED. After failure *address is 0. */
VMM_API vmm_status vmm_pool_try_alloc(vmm_pool *pool, unsigned long long size, void *stream,
                                      unsigned long long *address);

/* vmm_pool_free_async likewise. Status: BUSY (nothing happened), INVALID_ARGUMENT (NULL pool), FORKED. */
VMM_API vmm_status vmm_pool_try_free(vmm_pool *pool, unsigned long long address, void *stream);

/* Commits at least `size` bytes more, contiguous, ahead of need. *grown: bytes committed (may be NULL). Status as
 * vmm_pool_alloc. All or nothing. May call the driver. */
VMM_API vmm_status vmm_pool_grow(vmm_pool *pool, unsigned long long size, unsigned long long *grown, vmm_error *error);

/* Creates physical memory for `size` bytes more and puts it aside, without holding up anybody else's growth. It is mapped
 * and becomes allocatable with the next poll, through the pool's thread, or with the next request that does not fit: that
 * takes what was put aside before it asks the driver. Trim, and a pool that runs out of memory, give it back. Where the sync
 * policy has a wait before growth only a request publishes it. All or nothing. Status: INVALID_ARGUMENT (0, too large),
 * LIMIT, OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, OUT_OF_HOST_MEMORY, NOT_READY, BUSY (inside a pressure callback, pool
 * being destroyed), DEVICE_LOST, DRIVER, FORKED. May call the driver. */
VMM_API vmm_status vmm_pool_grow_async(vmm_pool *pool, unsigned long long size, vmm_error *error);

/* Whether `count` requests of these sizes, made in this order on the home stream, fit as things are. *grow: bytes that the
 * pool would have to commit for them at least, after moving what lies idle in mappings of its own; 0: they fit without
 * growth. What other streams have freed counts once it is known to be idle: nobody is asked for that here. VMM_OK also if
 * growth is needed, as far as the limits and the memory that the driver calls free allow it; else LIMIT,
 * OUT_OF_DEVICE_MEMORY or OUT_OF_ADDRESS_SPACE (*grow is then what is placed of them until there). Changes nothing that a
 * caller sees; but of several places for a request another may be taken when it is made, so where room is tight in pieces
 * the answer can be off, and what other threads do meanwhile may change it. Holds the pool's lock for about as long as the
 * allocations would. Status besides: INVALID_ARGUMENT (NULL, a size above the reservation), OUT_OF_HOST_MEMORY, DEVICE_LOST,
 * DRIVER, FORKED. Asks the driver for its free memory if growth is needed. */
VMM_API vmm_status vmm_pool_would_fit(vmm_pool *pool, const unsigned long long *sizes, size_t count,
                                      unsigned long long *grow, vmm_error *error);

/* Gives idle mappings back, highest address first, as long as at least `keep` bytes stay committed. Waits for work
 * that may use them, at most `deadline_ns` (0: the device's deadline); what is not done by then stays pending, as after
 * vmm_pool_trim_async. Atomic per mapping. *done: bytes given back (may be NULL), also when it fails. Status: OK (also when
 * live blocks pin the rest), PARTIAL (a step failed or the deadline passed after some were given back), TIMEOUT (the
 * deadline passed, none given back), CAPTURE (a fence cannot be had before the announced captures end), DEVICE_LOST,
 * DRIVER, NOT_READY, OUT_OF_HOST_MEMORY, INVALID_ARGUMENT, FORKED. A mapping whose unmap failed stays in the pool, or is
 * quarantined if it lost its access. May call the driver. */
VMM_API vmm_status vmm_pool_trim(vmm_pool *pool, unsigned long long keep, unsigned long long deadline_ns,
                                 unsigned long long *done, vmm_error *error);

/* The same without waiting: what queued work may still use is left *pending* behind a fence, and is unmapped by a later
 * vmm_pool_poll, trim, growth or destroy. An allocation that would have to grow takes pending memory back first, without a
 * driver call. *done: bytes given back; *pending: bytes on their way in all (either may be NULL). Status as vmm_pool_trim,
 * but never TIMEOUT for the work's sake, nor CAPTURE. May call the driver. */
VMM_API vmm_status vmm_pool_trim_async(vmm_pool *pool, unsigned long long keep, unsigned long long *done,
                                       unsigned long long *pending, vmm_error *error);

/* Unmaps what earlier trims left pending and queued work no longer uses, publishes what vmm_pool_grow_async put aside, and
 * sees to head-room and the trim threshold; waits for nothing. Outputs and status as vmm_pool_trim_async; what fails of the
 * rest is counted instead. No driver call if there is nothing to do. */
VMM_API vmm_status vmm_pool_poll(vmm_pool *pool, unsigned long long *done, unsigned long long *pending,
                                 vmm_error *error);

/* Grants device `ordinal` read/write access to all of the pool's mappings, now and later. All or none: on failure the
 * grants are revoked. Status: INVALID_ARGUMENT (unknown, the owner, already a peer), UNSUPPORTED (cannot reach the
 * device, or needs a larger granularity), OUT_OF_HOST_MEMORY, NOT_READY, NOT_CONFIRMED, DEVICE_LOST, DRIVER, TIMEOUT,
 * FORKED. May call the driver. */
VMM_API vmm_status vmm_pool_add_peer(vmm_pool *pool, int ordinal, vmm_error *error);

/* Sets the bytes the pool may commit; 0: no limit. Below what is committed it only stops growth. Status:
 * INVALID_ARGUMENT, FORKED. No driver call. */
VMM_API vmm_status vmm_pool_set_limit(vmm_pool *pool, unsigned long long limit, vmm_error *error);

typedef struct vmm_block_info {
  unsigned long long address;   /* start of the block */
  unsigned long long size;      /* bytes it holds: up to 1/10 more than asked for, above 4 MiB 1/32 */
  unsigned long long requested; /* bytes asked for */
  unsigned long long tag;
} vmm_block_info;

/* The live block that holds `address` (its start or any byte in it). Status: INVALID_ARGUMENT, UNKNOWN_ADDRESS, FORKED.
 * No driver call. */
VMM_API vmm_status vmm_pool_find(vmm_pool *pool, unsigned long long address, vmm_block_info *block, vmm_error *error);

/* Which pool of the device owns the live block that holds `address`. `block` may be NULL. Status as vmm_pool_find. */
VMM_API vmm_status vmm_device_find(vmm_device *device, unsigned long long address, vmm_pool **pool,
                                   vmm_block_info *block, vmm_error *error);

/* Copies the live blocks, by rising address. *count: how many there are (may exceed `capacity`). array may be NULL with
 * capacity 0. Status: INVALID_ARGUMENT, FORKED. No driver call. */
VMM_API vmm_status vmm_pool_get_blocks(vmm_pool *pool, vmm_block_info *array, size_t capacity, size_t *count,
                                       vmm_error *error);

typedef enum vmm_mapping_state {
  VMM_MAPPING_LIVE = 1,        /* committed: blocks may lie on it */
  VMM_MAPPING_QUARANTINED = 2, /* an undo step failed: never handed out, its undo is tried again */
  VMM_MAPPING_PENDING = 3      /* given up by a trim, and waits for work that may use it; or is wanted again before */
} vmm_mapping_state;

typedef struct vmm_mapping_info {
  unsigned long long address;
  unsigned long long size;
  unsigned long long handle;      /* raw handle of the driver's */
  unsigned long long generation;  /* rises each time backing at this place changes */
  unsigned long long block_bytes; /* bytes of live blocks on it: what pins it; 0: trim can give it back */
  int state;                      /* vmm_mapping_state */
  int reserved;
} vmm_mapping_info;

/* Copies the mappings, by rising address. As vmm_pool_get_blocks. */
VMM_API vmm_status vmm_pool_get_mappings(vmm_pool *pool, vmm_mapping_info *array, size_t capacity, size_t *count,
                                         vmm_error *error);

/* Tells whether backing changed: the highest generation of the mappings that hold [address, address + size). It is the same as
 * before as long as none of them was unmapped or made anew, so whoever keeps something by address (a captured graph, a
 * registration for RDMA or NCCL) compares it. Status: INVALID_ARGUMENT (NULL, size 0), UNKNOWN_ADDRESS (part of the range is
 * not mapped), FORKED. No driver call. */
VMM_API vmm_status vmm_pool_get_generation(vmm_pool *pool, unsigned long long address, unsigned long long size,
                                           unsigned long long *generation, vmm_error *error);

typedef struct vmm_pool_stats {
  size_t struct_size;
  unsigned long long address;         /* start of the reservation */
  unsigned long long reserved_bytes;  /* address space */
  unsigned long long committed_bytes; /* physical memory mapped and published */
  unsigned long long committed_peak;
  unsigned long long block_count; /* live blocks */
  unsigned long long block_count_peak;
  unsigned long long block_bytes; /* bytes in live blocks, rounded */
  unsigned long long block_bytes_peak;
  unsigned long long requested_bytes; /* bytes asked for by live blocks; block_bytes - this = waste by rounding */
  unsigned long long idle_bytes;      /* committed_bytes - block_bytes */
  unsigned long long largest_idle;    /* longest contiguous idle range */
  unsigned long long trimmable_bytes; /* in mappings that hold no block: what trim(0) would give back */
  unsigned long long mapping_count;
  unsigned long long quarantined_bytes; /* address ranges never handed out until their undo succeeds */
  unsigned long long alloc_count;       /* totals since creation */
  unsigned long long alloc_bytes;
  unsigned long long alloc_failures;
  unsigned long long free_count;
  unsigned long long growth_count;
  unsigned long long growth_bytes;
  unsigned long long growth_failures;
  unsigned long long trim_count;
  unsigned long long trim_bytes;
  unsigned long long move_count;  /* requests that moving idle backing alone served: no growth */
  unsigned long long moved_bytes; /* idle backing taken out of holes for requests */
  unsigned long long retry_count;
  unsigned long long not_ready_count;
  unsigned long long quiesce_count;
  unsigned long long oom_rounds; /* times the out-of-memory ladder was climbed */
  unsigned long long limit;
  unsigned long long peer_count;
  unsigned long long
      pending_bytes; /* given up by trims, not yet unmapped; part of the committed, idle and trimmable ones */
  unsigned long long revived_bytes; /* total of those that were wanted again before that: no driver call was needed */
  unsigned long long stream_count;  /* streams that have used the pool, other than the home stream */
  unsigned long long
      ordered_bytes;             /* free, but still behind the work of streams; 0 while one stream has the pool alone */
  unsigned long long seal_count; /* total of events recorded behind what a stream had freed */
  unsigned long long wait_count; /* total of times a stream was made to wait for another */
  unsigned long long
      limbo_count; /* total of blocks freed behind a context-wide fence: used by several streams, or on one
                                        that the pool does not know */
  unsigned long long fence_failures; /* total of seals that could not be recorded: a context-wide fence stands in */
  unsigned long long lease_count;    /* captures whose memory is leased */
  unsigned long long lease_bytes;    /* free, but for their graphs alone */
  unsigned long long ready_bytes;    /* put aside: created, not yet mapped; not part of the committed ones */
  unsigned long long background_failures; /* total of failures of head-room and the like */
} vmm_pool_stats;

/* Fills *stats up to stats->struct_size. Status: INVALID_ARGUMENT, VERSION, FORKED. No driver call; does not wait for a
 * growth in progress. */
VMM_API vmm_status vmm_pool_get_stats(vmm_pool *pool, vmm_pool_stats *stats, vmm_error *error);

/* Checks every invariant of the pool's index, mapping table and counters against each other. VMM_OK, or
 * VMM_ERROR_BROKEN with a message that names the broken invariant; TIMEOUT if a growth does not end in time. Meant for
 * tests and for debugging: takes time in proportion to blocks and mappings. No driver call. */
VMM_API vmm_status vmm_pool_check(vmm_pool *pool, vmm_error *error);

#ifndef VMM_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
