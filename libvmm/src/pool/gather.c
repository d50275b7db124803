/* Proving that what streams have freed is idle, or making one stream wait for another: the driver's part of stream order.
 * One thread does it at a time, under the gather lock, which no alloc or free that fits needs. */
#include "pool/pool.h"
#include "pool/streams.h"

/* The list changes under the pool lock; entries go under both locks. NULL: the first. */
static vmm__pool_stream *next_of(vmm_pool *pool, const vmm__pool_stream *entry) {
  vmm__pool_stream *next;

  vmm__lock_acquire(&pool->lock);
  next = entry == NULL ? pool->streams : entry->next;
  vmm__lock_release(&pool->lock);
  return next;
}

static vmm__u64 place(vmm_pool *pool, const vmm__pool_request *request) {
  vmm__u64 address;

  vmm__lock_acquire(&pool->lock);
  address = vmm__pool_place_joined(pool, request);
  vmm__lock_release(&pool->lock);
  return address;
}

/* What lies behind the seal becomes free in another arena. Pool lock. */
static void unseal(vmm_pool *pool, vmm__pool_stream *entry, unsigned into) {
  vmm__space_arena_merge(&pool->space, entry->sealed, into);
  entry->pending = false;
  entry->waiter = 0;
}

/* A fence that could not be had: the memory waits for the whole context. Pool lock. */
static void into_limbo(vmm_pool *pool, vmm__pool_stream *entry) {
  unseal(pool, entry, pool->limbo.open);
  pool->counters.fence_failures++;
}

/* Asks once whether the seal has passed. A query that fails leaves things as they are: the device is lost, or it is asked
 * again; but an event that a capture nobody announced has swallowed is no fence. */
static void look(vmm_pool *pool, vmm__pool_stream *entry) {
  int code;

  if (!entry->pending) return;
  code = vmm__cu_event_query(pool->device, entry->event);
  if (code != VMM_CODE_SUCCESS && code != VMM_CODE_CAPTURED_EVENT) return;
  vmm__lock_acquire(&pool->lock);
  if (code == VMM_CODE_SUCCESS) unseal(pool, entry, VMM__ARENA_IDLE);
  else into_limbo(pool, entry);
  vmm__lock_release(&pool->lock);
}

static bool make_event(vmm_pool *pool, vmm__pool_stream *entry) {
  return entry->event != NULL ||
         vmm__cu_event_create(pool->device, &entry->event, VMM__EVENT_NO_TIMING) == VMM_CODE_SUCCESS;
}

static int record(vmm_pool *pool, const vmm__pool_stream *entry) {
  vmm_device *device = pool->device;

  if (!entry->whole) return vmm__cu_event_record(device, entry->event, entry->stream);
  if (!device->info.context_fence) return VMM_CODE_NOT_SUPPORTED;
  return vmm__cu_ctx_record_event(device, device->context, entry->event);
}

static void swap_events(vmm__pool_stream *entry) {
  void *event = entry->event;

  entry->event = entry->next_event;
  entry->next_event = event;
}

/* Exchanges the arenas, so that what is freed from here on waits for the next seal. Not while a growth relies on the open
 * one: what it puts back has to meet the same fence. Pool lock. */
static bool exchange(vmm_pool *pool, vmm__pool_stream *entry) {
  unsigned open = entry->open;

  if (entry->held) return false;
  entry->open = entry->sealed;
  entry->sealed = open;
  entry->pending = true;
  if (entry->eager) swap_events(entry); /* recorded behind the last free of the open arena */
  entry->recorded = false;
  pool->counters.seal_count++;
  return true;
}

/* Whether there is nothing to seal. */
static bool is_empty(vmm_pool *pool, const vmm__pool_stream *entry) {
  bool empty;

  vmm__lock_acquire(&pool->lock);
  empty = entry == pool->alone || vmm__space_arena_bytes(&pool->space, entry->open) == 0;
  vmm__lock_release(&pool->lock);
  return empty;
}

/* A context-wide event ends every capture. Those that nobody announced are found by asking each stream, under the structure
 * lock. */
static bool may_record(vmm_pool *pool, vmm__work *work, const vmm__pool_stream *entry) {
  return !entry->whole || !pool->device->detect_captures || (work->locked && !vmm__context_is_captured(work));
}

/* Seals what was freed on the stream. Not while it takes part in a capture: its work is then not to be waited for. */
static void seal(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry) {
  vmm__work use = *work;
  int code = VMM_CODE_SUCCESS;
  bool exchanged;

  if (entry->pending || entry->forgotten || is_empty(pool, entry)) return;
  if (!may_record(pool, work, entry) || !make_event(pool, entry)) return;
  if (!entry->eager && vmm__stream_use(&use, entry->whole ? NULL : entry->stream) != VMM_OK) return;
  vmm__lock_acquire(&pool->lock);
  exchanged = exchange(pool, entry);
  vmm__lock_release(&pool->lock);
  if (!entry->eager) {
    if (exchanged) code = record(pool, entry);
    vmm__stream_unuse(pool->device);
  }
  if (code == VMM_CODE_SUCCESS) return;
  vmm__lock_acquire(&pool->lock);
  into_limbo(pool, entry);
  vmm__lock_release(&pool->lock);
}

/* Whether what a stream freed can help a request: neighbours of it may be anybody's. */
static bool worth(vmm_pool *pool, const vmm__pool_stream *entry, unsigned arena, const vmm__pool_request *request) {
  bool can;

  vmm__lock_acquire(&pool->lock);
  can = entry != pool->alone && vmm__space_arena_bytes(&pool->space, arena) != 0 &&
        vmm__space_free_bytes(&pool->space) >= request->size;
  vmm__lock_release(&pool->lock);
  return can;
}

/* The stream's own order is enough for what it sealed itself. */
static vmm__u64 take_own_back(vmm_pool *pool, const vmm__pool_request *request) {
  vmm__pool_stream *own = request->stream;
  vmm__u64 address = 0;

  if (own == NULL || !own->pending || own->forgotten) return 0;
  vmm__lock_acquire(&pool->lock);
  unseal(pool, own, own->open);
  if (own->eager && !own->recorded) { /* nothing was freed since: the seal's event is the latest */
    swap_events(own);
    own->recorded = true;
  }
  address = vmm__pool_place_joined(pool, request);
  vmm__lock_release(&pool->lock);
  return address;
}

/* What the stream freed and what is idle may lie side by side within one mapping: proven idle it is one. Else it is the
 * stream's again. */
static vmm__u64 join_own(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  vmm__pool_stream *own = request->stream;

  if (own->leased || (request->flags & VMM_REQUEST_ONE_MAPPING) == 0 || !worth(pool, own, own->open, request)) return 0;
  seal(pool, work, own);
  look(pool, own);
  return own->pending ? take_own_back(pool, request) : place(pool, request);
}

static vmm__u64 gather(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  vmm__u64 address = take_own_back(pool, request);
  vmm__pool_stream *entry;

  if (address != 0) return address;
  for (entry = next_of(pool, NULL); entry != NULL; entry = next_of(pool, entry)) look(pool, entry);
  vmm__pool_streams_sweep(pool);
  address = place(pool, request);
  if (address != 0 || (pool->prefer_wait && !request->stream->leased)) return address;
  for (entry = next_of(pool, NULL); entry != NULL && address == 0; entry = next_of(pool, entry)) {
    if (entry == request->stream || entry->pending || !worth(pool, entry, entry->open, request)) continue;
    seal(pool, work, entry);
    look(pool, entry);
    address = place(pool, request);
  }
  return address != 0 ? address : join_own(pool, work, request);
}

/* Nothing is asked for: what has passed is merged, and what is not sealed is, or of that only what costs no call. */
static vmm__u64 tidy(vmm_pool *pool, vmm__work *work, bool all) {
  vmm__pool_stream *entry;

  for (entry = next_of(pool, NULL); entry != NULL; entry = next_of(pool, entry)) {
    look(pool, entry);
    if (all || entry->eager || entry->whole) seal(pool, work, entry);
    look(pool, entry);
  }
  vmm__pool_streams_sweep(pool);
  return 0;
}

/* Those with eager events that nobody uses wait for the whole context from here on, and go. */
static vmm__u64 give_up_eager(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  vmm__pool_stream *entry;

  (void)work;
  (void)request;
  vmm__lock_acquire(&pool->lock);
  for (entry = pool->streams; entry != NULL; entry = entry->next) {
    if (!entry->eager || entry->users != 0 || entry == pool->alone) continue;
    if (entry->pending) into_limbo(pool, entry);
    vmm__space_arena_merge(&pool->space, entry->open, pool->limbo.open);
  }
  vmm__lock_release(&pool->lock);
  vmm__pool_streams_sweep(pool);
  return 0;
}

static vmm__u64 tidy_all(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  (void)request;
  return tidy(pool, work, true);
}

static vmm__u64 tidy_some(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  (void)request;
  return tidy(pool, work, false);
}

/* With one stream alone there is nothing to prove, unless something was freed on another, or on one that nobody knows. */
static bool begin(vmm_pool *pool, vmm__work *work) {
  bool needed;

  if (vmm__device_lost(pool->device)) return false;
  vmm__lock_acquire(&pool->lock);
  needed = pool->alone == NULL ||
           vmm__space_free_bytes(&pool->space) != vmm__space_arena_bytes(&pool->space, VMM__ARENA_IDLE);
  vmm__lock_release(&pool->lock);
  return needed && vmm__lock_acquire_within(&pool->gather, vmm__work_time_left(work) / 2); /* growth needs the rest */
}

/* Runs a step inside the context, with an error of its own: none of it is the request's. */
static vmm__u64 run(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request,
                    vmm__u64 (*step)(vmm_pool *, vmm__work *, const vmm__pool_request *)) {
  bool entered = work->entered;
  vmm__work own = *work;
  vmm__u64 address = 0;

  own.status = VMM_OK;
  if (!begin(pool, &own)) return 0;
  if (entered || vmm__work_enter(&own) == VMM_OK) {
    address = step(pool, &own, request);
    if (!entered) vmm__work_leave(&own);
  }
  vmm__lock_release(&pool->gather);
  return address;
}

void vmm__pool_tidy(vmm_pool *pool, vmm__work *work, bool all) {
  (void)run(pool, work, NULL, all ? tidy_all : tidy_some);
}

void vmm__pool_give_up_eager(vmm_pool *pool, vmm__work *work) { (void)run(pool, work, NULL, give_up_eager); }

vmm__u64 vmm__pool_gather(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  return run(pool, work, request, gather);
}

/* ---- one stream waits for another ---- */

/* A block of what lies behind the seal of an entry, for a stream that waits for its event. The rest stays where it is: the
 * stream that freed it may need it again. Pool lock. */
static vmm__u64 place_sealed(vmm_pool *pool, const vmm__pool_stream *entry, const vmm__pool_request *request) {
  vmm__pool_stream sealed = {.open = entry->sealed};
  vmm__pool_request there = *request;

  if (pool->alone != NULL) return 0; /* what is idle is one stream's own */
  there.stream = &sealed;
  return vmm__pool_place(pool, &there);
}

vmm__u64 vmm__pool_place_awaited(vmm_pool *pool, const vmm__pool_request *request) {
  const vmm__pool_stream *entry;
  vmm__u64 address = 0;

  if (request->stream == NULL || request->stream->leased) return 0;
  vmm__lock_acquire(&pool->lock);
  for (entry = pool->streams; entry != NULL && address == 0; entry = entry->next)
    if (entry->pending && entry->waiter == request->stream->serial) address = place_sealed(pool, entry, request);
  vmm__lock_release(&pool->lock);
  return address;
}

/* The stream waits for the seal of an entry. */
static bool wait_for(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry, const vmm__pool_request *request) {
  vmm__work use = *work;
  int code;

  if (entry->waiter == request->stream->serial) return true;
  if (vmm__stream_use(&use, request->handle) != VMM_OK) return false;
  code = vmm__cu_stream_wait_event(pool->device, request->handle, entry->event, 0);
  vmm__stream_unuse(pool->device);
  if (code != VMM_CODE_SUCCESS) return false;
  vmm__lock_acquire(&pool->lock);
  entry->waiter = request->stream->serial;
  pool->counters.wait_count++;
  vmm__lock_release(&pool->lock);
  return true;
}

/* All that the entry had sealed is the stream's from here on, for the block needs neighbours of it. The order it is in is
 * the stream's from the wait on, so an event that was recorded before is behind none of it. */
static bool take_over(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry, const vmm__pool_request *request) {
  vmm__pool_stream *own = request->stream;
  vmm__work use = *work;
  int code = VMM_CODE_SUCCESS;

  if (own->eager) {
    if (vmm__stream_use(&use, request->handle) != VMM_OK) return false;
    code = vmm__cu_event_record(pool->device, own->next_event, request->handle);
    vmm__stream_unuse(pool->device);
  }
  if (code != VMM_CODE_SUCCESS) return false;
  vmm__lock_acquire(&pool->lock);
  own->recorded = true;
  unseal(pool, entry, own->open);
  vmm__lock_release(&pool->lock);
  return true;
}

/* What was behind a seal may all have been taken by those that waited for it: then another one can be made. */
static void drop_empty_seal(vmm_pool *pool, vmm__pool_stream *entry) {
  vmm__lock_acquire(&pool->lock);
  if (entry->pending && vmm__space_arena_bytes(&pool->space, entry->sealed) == 0) unseal(pool, entry, entry->open);
  vmm__lock_release(&pool->lock);
}

/* First what an earlier seal is before, then what was freed since. */
static vmm__u64 wait_for_both(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry,
                              const vmm__pool_request *request) {
  vmm__u64 address = 0;
  int i;

  for (i = 0; i < 2 && address == 0; i++) {
    drop_empty_seal(pool, entry);
    if (!entry->pending && worth(pool, entry, entry->open, request)) seal(pool, work, entry);
    if (!entry->pending || !worth(pool, entry, entry->sealed, request)) break;
    if (!wait_for(pool, work, entry, request)) break;
    vmm__lock_acquire(&pool->lock);
    address = place_sealed(pool, entry, request);
    vmm__lock_release(&pool->lock);
    if (address == 0 && take_over(pool, work, entry, request)) address = place(pool, request);
  }
  return address;
}

static vmm__u64 wait(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  vmm__pool_stream *entry;
  vmm__u64 address = 0;

  for (entry = next_of(pool, NULL); entry != NULL && address == 0; entry = next_of(pool, entry))
    if (entry != request->stream) address = wait_for_both(pool, work, entry, request);
  return address;
}

vmm__u64 vmm__pool_wait_for_streams(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  if (request->stream->leased) return 0;
  return run(pool, work, request, wait);
}

/* ---- the end of a stream ---- */

/* Its last fence is recorded now. A seal that has not passed yet is renewed: what it covered waits for the later one. */
static void seal_last(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry) {
  vmm__lock_acquire(&pool->lock);
  if (entry == pool->alone) vmm__pool_share(pool);
  if (entry->pending) unseal(pool, entry, entry->open);
  vmm__lock_release(&pool->lock);
  if (!vmm__device_lost(pool->device)) seal(pool, work, entry);
  vmm__lock_acquire(&pool->lock);
  entry->forgotten = true;
  entry->stream = NULL;
  if (vmm__space_arena_bytes(&pool->space, entry->open) != 0) {
    vmm__space_arena_merge(&pool->space, entry->open, pool->limbo.open);
    pool->counters.fence_failures++;
  }
  vmm__lock_release(&pool->lock);
}

vmm_status vmm__pool_forget_stream(vmm_pool *pool, vmm__work *work, const void *stream) {
  vmm__pool_stream *entry;

  if (!vmm__lock_acquire_within(&pool->gather, vmm__work_time_left(work)))
    return vmm__work_fail(work, VMM_ERROR_TIMEOUT, "what another thread asks the driver lasted beyond the deadline");
  vmm__lock_acquire(&pool->lock);
  entry = vmm__pool_stream_find(pool, stream, 0);
  vmm__lock_release(&pool->lock);
  if (entry != NULL && entry != &pool->home) seal_last(pool, work, entry); /* the home stream outlives the pool */
  vmm__lock_release(&pool->gather);
  return VMM_OK;
}
