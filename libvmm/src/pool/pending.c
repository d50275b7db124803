/* Deferred unmaps: out of the index, behind a fence, and from there to the driver or back. */
#include "pool/pending.h"

#include "device/streams.h"

enum { BATCH = 16, ADDS_PER_MAPPING = 2 };

typedef struct batch {
  size_t count;
  vmm__u64 address[BATCH], size[BATCH];
} batch;

/* Enters an idle mapping among the highest so far, which are kept by falling address. */
static void choose(batch *chosen, const vmm__mapping *mapping) {
  size_t i = chosen->count;

  if (i == BATCH && mapping->address < chosen->address[BATCH - 1]) return;
  if (i == BATCH) i--;
  else chosen->count++;
  for (; i > 0 && chosen->address[i - 1] < mapping->address; i--) {
    chosen->address[i] = chosen->address[i - 1];
    chosen->size[i] = chosen->size[i - 1];
  }
  chosen->address[i] = mapping->address;
  chosen->size[i] = mapping->size;
}

/* Whether a fence on the home stream is behind all that was freed: nobody else has used the pool. */
static bool is_home_alone(vmm_pool *pool) {
  bool alone;

  vmm__lock_acquire(&pool->lock);
  alone = pool->alone == &pool->home && !pool->others;
  vmm__lock_release(&pool->lock);
  return alone;
}

/* Takes wholly idle mappings out of the index, highest first: low addresses are where new blocks go. Each keeps what it
 * needs to come back. Pool lock. */
static vmm__u64 detach(vmm_pool *pool, vmm__u64 keep, vmm__u64 want, bool fenceable, bool *left) {
  vmm__u64 committed = pool->space.total_bytes + pool->held_bytes; /* what is pending is as good as gone */
  vmm__u64 spare = vmm__saturating_sub(committed, keep), bytes = 0;
  vmm__idle_walk walk = {{0, 0, 0, 0}, 0, 0};
  const vmm__mapping *idle;
  batch chosen;
  size_t i;

  chosen.count = 0;
  while ((idle = vmm__idle_next(pool, &walk)) != NULL) {
    if (idle->size > spare) continue;
    if (fenceable || vmm__idle_is_proven(pool, idle)) choose(&chosen, idle);
    else *left = true;
  }
  for (i = 0; i < chosen.count && bytes < want; i++) {
    vmm__mapping *mapping;
    unsigned arena;

    if (chosen.size[i] > spare || !vmm__space_take(&pool->space, chosen.address[i], chosen.size[i], &arena)) continue;
    mapping = vmm__mappings_find(&pool->region.mappings, chosen.address[i]);
    mapping->state = VMM__MAPPING_DETACHED;
    mapping->frees = arena == VMM__ARENA_IDLE && pool->alone == NULL ? 0 : pool->ordered_frees;
    mapping->arena = arena;
    pool->pending_bytes += mapping->size;
    pool->pending_count++;
    pool->promised += ADDS_PER_MAPPING;
    spare -= mapping->size;
    bytes += mapping->size;
  }
  return bytes;
}

vmm__u64 vmm__pending_detach(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want, bool *left) {
  const vmm__u64 adds = (vmm__u64)BATCH * ADDS_PER_MAPPING;
  bool fenceable = is_home_alone(pool) || !vmm__context_is_captured(work);
  vmm__u64 bytes;

  if (vmm__pool_promise(pool, work, adds) != VMM_OK) return 0;
  vmm__lock_acquire(&pool->lock);
  vmm__pool_fulfil(pool, adds);
  bytes = detach(pool, keep, want, fenceable, left);
  vmm__lock_release(&pool->lock);
  return bytes;
}

vmm__u64 vmm__pending_bytes(vmm_pool *pool) {
  vmm__u64 bytes;

  vmm__lock_acquire(&pool->lock);
  bytes = pool->pending_bytes;
  vmm__lock_release(&pool->lock);
  return bytes;
}

/* A mapping is no longer pending: unmapped, quarantined or back. Pool lock. */
static void leave(vmm_pool *pool, vmm__u64 size) {
  pool->pending_bytes -= size;
  pool->pending_count--;
  vmm__pool_fulfil(pool, ADDS_PER_MAPPING);
}

/* Whether no queued work uses a pending mapping any more. Pool lock. */
static bool is_done(const vmm_pool *pool, const vmm__mapping *mapping) { return mapping->frees <= pool->fenced_frees; }

/* Whether a stream may have it back as it is: its own work alone may still use it. Pool lock. */
static bool is_own(const vmm_pool *pool, const vmm__mapping *mapping) {
  return pool->alone != NULL && mapping->arena == VMM__ARENA_IDLE;
}

/* Back into the index. Pool lock. */
static void attach(vmm_pool *pool, vmm__mapping *mapping) {
  unsigned arena = is_done(pool, mapping) || is_own(pool, mapping) ? VMM__ARENA_IDLE : pool->limbo.open;

  mapping->state = VMM_MAPPING_LIVE;
  leave(pool, mapping->size);
  vmm__space_add(&pool->space, arena, mapping->address, mapping->size);
}

/* ---- the fence ---- */

/* The ordered frees that pending mappings wait for, 0 for none. Pool lock. */
static vmm__u64 awaited(vmm_pool *pool) {
  vmm__u64 most = 0;
  size_t i;

  for (i = 0; i < pool->region.mappings.count && pool->pending_count != 0; i++) {
    const vmm__mapping *mapping = vmm__mappings_at(&pool->region.mappings, i);

    if (mapping->state == VMM__MAPPING_DETACHED) most = vmm__max(most, mapping->frees);
  }
  return most > pool->fenced_frees ? most : 0;
}

vmm_status vmm__pending_refuse(vmm__work *work) {
  return vmm__work_fail(
      work, VMM_ERROR_CAPTURE,
      "a context-wide fence cannot be had while a capture is announced, and others than the home stream use the pool");
}

vmm_status vmm__pending_record(vmm_pool *pool, vmm__work *work, vmm__u64 frees) {
  bool home_alone = is_home_alone(pool);

  if (!home_alone && vmm__context_is_captured(work)) return vmm__pending_refuse(work);
  if (!home_alone && !pool->device->info.context_fence) return VMM_OK;
  if (vmm__fence_record(work, pool->fence, pool->home_stream) != VMM_OK) return work->status;
  vmm__lock_acquire(&pool->lock);
  pool->fence_frees = frees;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

/* What is left where the driver has no context-wide event. */
static vmm_status wait_for_all(vmm_pool *pool, vmm__work *work, vmm__u64 frees) {
  if (vmm__wait_context(work) != VMM_OK) return work->status;
  vmm__lock_acquire(&pool->lock);
  pool->fenced_frees = vmm__max(pool->fenced_frees, frees);
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

vmm_status vmm__pending_fence(vmm_pool *pool, vmm__work *work, bool wait) {
  vmm__u64 frees;
  bool needed;

  if (work->teardown) return VMM_OK;
  vmm__lock_acquire(&pool->lock);
  needed = pool->fence_frees == 0 && awaited(pool) != 0;
  frees = pool->ordered_frees;
  vmm__lock_release(&pool->lock);
  if (!needed) return VMM_OK;
  if (wait && !pool->device->info.context_fence && !is_home_alone(pool)) return wait_for_all(pool, work, frees);
  return vmm__pending_record(pool, work, frees);
}

vmm_status vmm__pending_look(vmm_pool *pool, vmm__work *work) {
  bool outstanding;
  int code;

  vmm__lock_acquire(&pool->lock);
  outstanding = pool->fence_frees != 0;
  vmm__lock_release(&pool->lock);
  if (!outstanding || work->teardown) return VMM_OK;
  code = vmm__cu_event_query(pool->device, pool->fence);
  if (code == VMM_CODE_NOT_READY) return VMM_OK;
  if (code != VMM_CODE_SUCCESS) return vmm__work_call_failed(work, VMM_OP_event_query, code, 0, 0);
  vmm__lock_acquire(&pool->lock);
  pool->fenced_frees = vmm__max(pool->fenced_frees, pool->fence_frees);
  pool->fence_frees = 0;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

vmm_status vmm__pending_wait(vmm_pool *pool, vmm__work *work) {
  vmm__u64 left;

  if (work->teardown) return VMM_OK;
  vmm__lock_acquire(&pool->lock);
  left = pool->fence_frees;
  vmm__lock_release(&pool->lock);
  if (left == 0) return VMM_OK;
  vmm__work_let_others(work);
  if (vmm__fence_wait(work, pool->fence) != VMM_OK) return work->status;
  return vmm__work_lock(work);
}

/* ---- to the driver ---- */

/* The highest mapping below number *i that nothing uses any more; from here on it cannot come back by itself. */
static bool next_done(vmm_pool *pool, const vmm__work *work, size_t *i, vmm__mapping *out) {
  bool found = false;

  vmm__lock_acquire(&pool->lock);
  while (!found && (*i)-- > 0) {
    vmm__mapping *mapping = vmm__mappings_at(&pool->region.mappings, *i);

    if (mapping->state != VMM__MAPPING_DETACHED) continue;
    if (!is_done(pool, mapping) && !work->teardown) continue;
    mapping->state = VMM__MAPPING_LEAVING;
    *out = *mapping;
    found = true;
  }
  vmm__lock_release(&pool->lock);
  return found;
}

static void settle(vmm_pool *pool, const vmm__mapping *mapping, vmm__decommit_result result) {
  vmm__lock_acquire(&pool->lock);
  if (result == VMM__DECOMMIT_KEPT) attach(pool, vmm__mappings_find(&pool->region.mappings, mapping->address));
  else leave(pool, mapping->size);
  if (result == VMM__DECOMMIT_GONE) pool->counters.trim_bytes += mapping->size;
  if (result == VMM__DECOMMIT_QUARANTINED) pool->counters.quarantined_bytes += mapping->size;
  vmm__lock_release(&pool->lock);
}

vmm__u64 vmm__pending_finish(vmm_pool *pool, vmm__work *work, vmm__u64 want) {
  size_t i = pool->region.mappings.count;
  vmm__u64 done = 0;
  vmm__mapping mapping;

  if (vmm__pending_look(pool, work) != VMM_OK) return 0;
  while (done < want && next_done(pool, work, &i, &mapping)) {
    vmm__decommit_result result = vmm__region_decommit(&pool->region, work, mapping.address);

    settle(pool, &mapping, result);
    if (result != VMM__DECOMMIT_GONE) break;
    done += mapping.size;
  }
  return done;
}

/* ---- and back ---- */

static bool can_revive(const vmm_pool *pool, const vmm__mapping *mapping) {
  return mapping->state == VMM__MAPPING_DETACHED && (is_done(pool, mapping) || is_own(pool, mapping));
}

/* The pending mappings from number `first` on that lie side by side and can be had: their end, and the number behind the
 * last. */
static vmm__u64 run_end(const vmm_pool *pool, size_t first, size_t *behind) {
  const vmm__mappings *table = &pool->region.mappings;
  vmm__u64 end = vmm__mappings_at(table, first)->address;
  size_t i;

  for (i = first; i < table->count; i++) {
    const vmm__mapping *mapping = vmm__mappings_at(table, i);

    if (mapping->address != end || !can_revive(pool, mapping)) break;
    end += mapping->size;
  }
  *behind = i;
  return end;
}

static bool fits(vmm__u64 start, vmm__u64 end, const vmm__pool_request *request) {
  return vmm__round_up(start, request->alignment, &start) && start < end && end - start >= request->size;
}

/* No more of a run than the request takes, from its low end. */
static void revive(vmm_pool *pool, size_t i, size_t behind, vmm__u64 start, const vmm__pool_request *request) {
  for (; i < behind; i++) {
    vmm__mapping *mapping = vmm__mappings_at(&pool->region.mappings, i);

    if (fits(start, mapping->address, request)) return;
    pool->counters.revived_bytes += mapping->size;
    attach(pool, mapping);
  }
}

bool vmm__pending_revive(vmm_pool *pool, const vmm__pool_request *request) {
  const vmm__mappings *table = &pool->region.mappings;
  bool one_mapping = (request->flags & VMM_REQUEST_ONE_MAPPING) != 0;
  size_t i = 0, behind;

  if (pool->pending_count == 0 || pool->closing || request->stream == NULL) return false;
  if (pool->alone != NULL && pool->alone != request->stream) vmm__pool_share(pool);
  while (i < table->count) {
    vmm__mapping *mapping = vmm__mappings_at(table, i);
    vmm__u64 end, start = mapping->address;

    if (!can_revive(pool, mapping)) {
      i++;
      continue;
    }
    end = run_end(pool, i, &behind);
    if (one_mapping) {
      behind = i + 1;
      end = start + mapping->size;
    } else {
      start -= vmm__space_free_before(&pool->space, start, VMM__ARENA_IDLE, VMM__ARENA_IDLE);
    }
    if (fits(start, end, request)) {
      revive(pool, i, behind, start, request);
      return true;
    }
    i = behind;
  }
  return false;
}
