/* Streams as one pool knows them: whose queued work may still touch what was freed.
 *
 * What is freed on a stream goes into an arena of the stream's, and the stream itself takes it from there at once: its own
 * order is enough. For everyone else it must be proven idle first. That is done in batches, when somebody misses: the arena
 * is *sealed*, an event is recorded behind all that was queued on the stream, and once it has passed the arena is merged
 * into the idle one. Or another stream is made to wait for the event, and the arena becomes that stream's.
 *
 * While one stream alone has used the pool, its arena is the idle one itself: there is nobody to prove anything to. */
#ifndef VMM_POOL_STREAMS_H
#define VMM_POOL_STREAMS_H

#include "device/streams.h"
#include "index/space.h"

enum { VMM__MANY_STREAMS = 32 }; /* beyond, entries that nobody uses go */

typedef struct vmm__pool_stream {
  struct vmm__pool_stream *next;
  void *stream;     /* the handle; not touched once it is forgotten, and NULL for an eager one */
  vmm__u64 id;      /* eager: the driver's number of the stream, which tells it from a later one of the same handle */
  bool eager;       /* the event is recorded by each free, and the handle is never touched after it */
  bool whole;       /* limbo: what any stream may use; its fence is context-wide */
  bool forgotten;   /* takes no more frees; gone once its seal has passed */
  bool leased;      /* not a stream, but an announced capture: see lease.h */
  unsigned users;   /* calls under way that hold the entry: it is not ended meanwhile */
  bool pending;     /* the seal's event is recorded and was not seen done */
  vmm__u64 serial;  /* the pool's number of the entry */
  vmm__u64 waiter;  /* who waits for the seal's event already, and may have of what it is before; 0: nobody */
  bool recorded;    /* eager: next_event is recorded behind all that is in the open arena */
  bool held;        /* a growth in progress relies on its memory: no seal may part the two */
  unsigned open;    /* arena of what was freed since the seal; the idle one while the stream is alone */
  unsigned sealed;  /* arena behind the seal; empty unless pending */
  unsigned own;     /* while it is alone: the arena it will have */
  void *event;      /* the seal's; NULL before the first */
  void *next_event; /* eager: recorded by frees, and the event of the next seal */
} vmm__pool_stream;

typedef struct vmm__pool_request vmm__pool_request;

/* ---- streams.c: who there is ---- */

vmm_status vmm__pool_streams_open(vmm_pool *pool, vmm__work *work); /* host memory only; nothing is held on failure */
void vmm__pool_streams_close(vmm_pool *pool, vmm__work *work);      /* gives the events back and the entries free */

/* The entry of a stream, NULL if it has none. `id`: 0, or the number of an eager one. Under the pool lock. */
vmm__pool_stream *vmm__pool_stream_find(vmm_pool *pool, const void *stream, vmm__u64 id);

/* Finds or makes the entry, which stays until it is let go. An eager one gets its event too. Needs no lock; may call the
 * driver. */
vmm_status vmm__pool_stream_admit(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 id, vmm__pool_stream **out);

void vmm__pool_stream_let_go(vmm_pool *pool, vmm__pool_stream *entry);

/* The number of a stream that is known by one: what `id` is elsewhere. 0 for one that is known by its handle. */
vmm_status vmm__pool_stream_id(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 *id);

/* Ends the time of the stream that had the pool alone: what it freed is its own from here on, unless nothing is queued.
 * Under the pool lock. */
void vmm__pool_share(vmm_pool *pool);

/* The stream is about to end: its last fence is recorded, and its handle never touched again. TIMEOUT: it is not forgotten.
 * Needs the structure lock. */
vmm_status vmm__pool_forget_stream(vmm_pool *pool, vmm__work *work, const void *stream);

/* Ends entries that nothing is behind any more. Needs the gather lock and the context. */
void vmm__pool_streams_sweep(vmm_pool *pool);

/* NULL, or what is wrong. Under the pool lock. */
const char *vmm__pool_streams_check(vmm_pool *pool);

/* ---- gather.c: proving ---- */

/* Looks whether what other streams freed is idle by now, sealing what is not sealed, and places the request if that
 * helps. 0: it did not, or the driver could not be asked (never an error: there are other ways to serve a request). */
vmm__u64 vmm__pool_gather(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request);

/* Merges what is proven idle by now, and seals: all, or what only a context-wide fence covers, which cannot be had during
 * captures. Entries that nothing is behind any more go; nobody says when a stream with eager events ends, so of those, if
 * they are many, the unused ones go. */
void vmm__pool_tidy(vmm_pool *pool, vmm__work *work, bool all);

/* For when no arenas are left: streams with eager events that no call uses are given up, whatever they still do. What they
 * freed waits for the whole context. */
void vmm__pool_give_up_eager(vmm_pool *pool, vmm__work *work);

/* Places the request in what the stream waits for already. 0: it does not fit there. */
vmm__u64 vmm__pool_place_awaited(vmm_pool *pool, const vmm__pool_request *request);

/* Makes the request's stream wait for others until the request is placed; 0 if that does not help either. A stream that
 * takes part in a capture is never made to wait. */
vmm__u64 vmm__pool_wait_for_streams(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request);

#endif
