/* Alloc and free in the order of a stream. Which stream it is costs a look at a short list; the rest is as for the home
 * stream. */
#include "base/fork.h"
#include "base/status.h"
#include "pool/pool.h"

/* A stream that the pool meets for the first time, or one that is known by its number. */
static vmm_status find_entry(vmm_pool *pool, vmm__work *work, void *stream, vmm__pool_stream **entry) {
  vmm__u64 id;

  if (vmm__pool_stream_id(pool, work, stream, &id) != VMM_OK) return work->status;
  if (id == 0) {
    if (vmm__work_lock(work) == VMM_OK) (void)vmm__stream_register(work, stream);
    vmm__work_unlock(work);
  }
  return work->status == VMM_OK ? vmm__pool_stream_admit(pool, work, stream, id, entry) : work->status;
}

/* What fits on a stream that has an entry is had under one hold of the lock. Else the entry, if there is one, is held from
 * here on: another thread may forget the stream meanwhile. */
static vmm__u64 place_first(vmm_pool *pool, vmm__pool_request *request) {
  bool scrub = pool->scrub || (request->flags & VMM_REQUEST_SCRUB) != 0;
  bool whole = !scrub && !vmm__device_lost(pool->device) && !vmm__captures_possible(pool->device);
  vmm__u64 placed = 0;

  vmm__lock_acquire(&pool->lock);
  request->stream = vmm__pool_stream_find(pool, request->handle, 0);
  if (request->stream != NULL && whole) placed = vmm__pool_place(pool, request);
  if (request->stream != NULL && placed == 0) request->stream->users++;
  vmm__lock_release(&pool->lock);
  return placed;
}

vmm_status vmm__pool_alloc_on(vmm_pool *pool, vmm__pool_request *request, unsigned long long *address,
                              const char *function, vmm_error *error) {
  vmm__pool_stream *entry;
  vmm_status status;
  vmm__work work;

  request->stream = NULL;
  if (vmm__pool_knows_by_handle(pool, request->handle)) {
    vmm__u64 placed = place_first(pool, request);

    if (placed != 0) {
      *address = placed;
      return VMM_OK;
    }
  }
  if (request->stream == NULL) {
    vmm__work_start(&work, pool->device, function, request->deadline_ns);
    if (vmm__device_lost(pool->device)) (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
    else (void)find_entry(pool, &work, request->handle, &request->stream);
    vmm__pool_count_work(pool, &work);
    if (vmm__work_finish(&work, error) != VMM_OK) {
      vmm__pool_count_failure(pool);
      return work.status;
    }
  }
  entry = request->stream;
  status = vmm__pool_alloc(pool, request, address, function, error);
  vmm__pool_stream_let_go(pool, entry);
  return status;
}

vmm_status vmm_pool_alloc_async(vmm_pool *pool, unsigned long long size, void *stream, unsigned long long *address,
                                vmm_error *error) {
  vmm__pool_request request = {0, size, VMM__BLOCK_UNIT, 0, 0, 0, stream, NULL};
  vmm_status status;

  if (address != NULL) *address = 0;
  status = vmm__pool_refuse(pool, address, "vmm_pool_alloc_async", error);
  if (status != VMM_OK) return status;
  if (!vmm__round_up(vmm__max(size, 1), VMM__BLOCK_UNIT, &request.size))
    return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_alloc_async", "the size is too large to round up");
  return vmm__pool_alloc_on(pool, &request, address, "vmm_pool_alloc_async", error);
}

static void count_limbo(vmm_pool *pool) {
  pool->counters.limbo_count++;
  pool->others = true;
}

/* Into the arena of an entry, or limbo. Pool lock. */
static bool give(vmm_pool *pool, vmm__u64 address, const void *stream, const vmm__pool_stream *entry) {
  const vmm__pool_stream *to = entry != NULL ? entry : &pool->limbo;

  if (!vmm__pool_give(pool, address, stream, to->open, true)) return false;
  if (entry == NULL) count_limbo(pool);
  return true;
}

/* Into limbo whatever is captured: no one stream's order is enough, so no capture may be given it. Pool lock. */
static bool give_behind_all(vmm_pool *pool, vmm__u64 address) {
  if (!vmm__pool_give(pool, address, NULL, pool->limbo.open, false)) return false;
  pool->ordered_frees++;
  count_limbo(pool);
  return true;
}

static bool free_lazily(vmm_pool *pool, vmm__u64 address, void *stream) {
  bool found;

  vmm__lock_acquire(&pool->lock);
  found = give(pool, address, stream, vmm__pool_stream_find(pool, stream, 0));
  vmm__lock_release(&pool->lock);
  return found;
}

/* On a stream whose capture nobody announced, if streams are asked: its graph uses the block from here on, and nobody will say
 * until when. An announced capture takes it all the same. */
static bool keep(vmm_pool *pool, vmm__u64 address, const void *stream) {
  bool found;

  vmm__lock_acquire(&pool->lock);
  found = vmm__pool_give(pool, address, stream, VMM__ARENA_MIXED, true);
  vmm__lock_release(&pool->lock);
  return found;
}

/* An event that joins a capture is no fence, and to ask for it ends the capture. */
static bool is_captured(const vmm_pool *pool, void *stream) {
  int status = 0;

  return vmm__cu_stream_is_capturing(pool->device, stream, &status) != VMM_CODE_SUCCESS || status != 0;
}

/* Records the event behind the work that uses the block, then frees it into the arena that the event will seal. Another
 * thread may seal meanwhile: then the event is another one. NULL: no event could be recorded. */
static vmm__pool_stream *record_for(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 id, bool *held) {
  vmm__pool_stream *used = NULL; /* it is not let go while its event is recorded */
  void *recorded = NULL;

  *held = false;
  for (;;) {
    vmm__pool_stream *entry;
    void *event;
    bool is_fence = false;

    vmm__lock_acquire(&pool->lock);
    if (used != NULL) used->users--;
    entry = vmm__pool_stream_find(pool, stream, id);
    event = entry == NULL ? NULL : entry->next_event;
    if (event != NULL && event == recorded) {
      entry->recorded = true;
      *held = true; /* the pool lock is kept: the free belongs to this event */
      return entry;
    }
    used = entry;
    if (used != NULL) used->users++;
    vmm__lock_release(&pool->lock);
    if (used == NULL) return NULL;
    if (event != NULL && vmm__stream_use(work, stream) == VMM_OK) {
      if (is_captured(pool, stream) || vmm__stream_record(work, event, stream, &is_fence) != VMM_OK) is_fence = false;
      vmm__stream_unuse(pool->device);
    }
    if (!is_fence) {
      vmm__pool_stream_let_go(pool, used);
      return NULL;
    }
    recorded = event;
  }
}

static bool free_eagerly(vmm_pool *pool, vmm__u64 address, void *stream, const char *function) {
  vmm__pool_stream *entry = NULL;
  vmm__work work;
  vmm__u64 id = 0;
  bool found, held = false;

  vmm__work_start(&work, pool->device, function, 0);
  work.attempts_left = 0;
  if (!vmm__device_lost(pool->device) && vmm__pool_stream_id(pool, &work, stream, &id) == VMM_OK && id != 0 &&
      vmm__work_enter(&work) == VMM_OK)
    entry = record_for(pool, &work, stream, id, &held);
  if (!held) vmm__lock_acquire(&pool->lock);
  found = give(pool, address, stream, entry);
  if (found && entry == NULL) pool->counters.fence_failures++;
  vmm__lock_release(&pool->lock);
  (void)vmm__work_finish(&work, NULL);
  return found;
}

/* Into the lease of an announced capture: no event is needed. False: the stream takes part in none. */
static bool free_to_lease(vmm_pool *pool, vmm__u64 address, const void *stream, bool *found) {
  bool leased;

  if (!vmm__captures_announced(pool->device)) return false;
  vmm__lock_acquire(&pool->lock);
  leased = vmm__stream_lease(pool->device, stream) != 0;
  if (leased) *found = vmm__pool_give(pool, address, stream, VMM__ARENA_MIXED, true);
  vmm__lock_release(&pool->lock);
  return leased;
}

static vmm_status free_on(vmm_pool *pool, vmm__u64 address, void *stream, const char *function, vmm_error *error) {
  bool found = false;

  if (free_to_lease(pool, address, stream, &found))
    return found ? VMM_OK : vmm__pool_not_a_block(address, function, error);
  if (vmm__captured_unannounced(pool->device, stream)) found = keep(pool, address, stream);
  else if (vmm__pool_knows_by_handle(pool, stream)) found = free_lazily(pool, address, stream);
  else found = free_eagerly(pool, address, stream, function);
  return found ? VMM_OK : vmm__pool_not_a_block(address, function, error);
}

vmm_status vmm_pool_free_async(vmm_pool *pool, unsigned long long address, void *stream, vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, pool, "vmm_pool_free_async", error);

  return status == VMM_OK ? free_on(pool, address, stream, "vmm_pool_free_async", error) : status;
}

/* Whether the stream takes part in a capture that nobody announced. */
static bool is_kept(const vmm_pool *pool, void *stream) {
  return vmm__captured_unannounced(pool->device, stream) && vmm__stream_lease(pool->device, stream) == 0;
}

vmm_status vmm_pool_free_multi(vmm_pool *pool, unsigned long long address, void *const *streams, size_t count,
                               vmm_error *error) {
  const char *function = "vmm_pool_free_multi";
  vmm_status status = vmm__pool_refuse(pool, pool, function, error);
  bool found;
  size_t i;

  if (status != VMM_OK) return status;
  if (streams == NULL && count != 0)
    return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function, "streams is NULL, but count is not 0");
  for (i = 1; i < count && vmm__stream_is_same(streams[i], streams[0]); i++) {
  }
  if (i == count) return free_on(pool, address, streams[0], function, error);
  for (i = 0; i < count && !is_kept(pool, streams[i]); i++) {
  }
  if (i < count) {
    found = keep(pool, address, streams[i]);
  } else {
    vmm__lock_acquire(&pool->lock);
    if (count == 0 || !vmm__captures_announced(pool->device) || !vmm__pool_shut(pool, address, streams, count, &found))
      found = give_behind_all(pool, address);
    vmm__lock_release(&pool->lock);
  }
  return found ? VMM_OK : vmm__pool_not_a_block(address, function, error);
}
