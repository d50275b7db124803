/* The plan of a growth: the lowest gap of the reservation that serves, with the free tail before it. */
#include "pool/plan.h"

#include <string.h>

#include "pool/ready.h"
#include "region/plain.h"

/* What a gap that starts at `gap` needs for the request: place of the first mapping, bytes, and the tail relied on. False
 * on overflow. */
static bool fit_gap(vmm_pool *pool, const vmm__pool_request *request, vmm__u64 gap, vmm__plan *plan) {
  vmm__u64 granularity = pool->region.granularity;
  bool one_mapping = (request->flags & VMM_REQUEST_ONE_MAPPING) != 0;
  vmm__u64 tail = one_mapping ? 0 : vmm__space_free_before(&pool->space, gap, request->stream->open, VMM__ARENA_IDLE);
  vmm__u64 start, end, rest;

  if (!vmm__round_up(gap - tail, request->alignment, &start)) return false;
  if (!vmm__add(start, request->size, &end)) return false;
  if (start < gap) {
    plan->address = gap;
    plan->tail = gap - start;
  } else { /* nothing before the gap helps: begin at the granule the block begins in */
    plan->address = gap + vmm__round_down(start - gap, granularity);
    plan->tail = 0;
  }
  rest = vmm__saturating_sub(end, plan->address);
  return vmm__round_up(vmm__max(rest, 1), granularity, &plan->need);
}

/* What of the free memory would have served in one piece: not what others' work may still touch. */
static vmm__u64 free_for(const vmm_pool *pool, const vmm__pool_request *request) {
  unsigned own = request->stream->open;

  return vmm__space_arena_bytes(&pool->space, VMM__ARENA_IDLE) +
         (own != VMM__ARENA_IDLE ? vmm__space_arena_bytes(&pool->space, own) : 0);
}

/* What this miss tells of how free memory lies. */
static void reckon_free(const vmm_pool *pool, const vmm__pool_request *request, vmm__growth *growth, vmm__plan *plan) {
  const vmm__space *space = &pool->space;
  vmm__u64 committed = pool->region.live_bytes, bytes;

  plan->scatter = pool->scatter;
  if (request != NULL && (request->flags & VMM_REQUEST_ONE_MAPPING) == 0) {
    bytes = free_for(pool, request);
    plan->scatter = vmm__growth_scatter(plan->scatter, committed, bytes);
    growth->in_shreds = vmm__growth_is_in_shreds(request->size, committed, bytes);
  }
  if (vmm__growth_is_scattered(plan->scatter))
    growth->scattered = vmm__max(space->block_bytes / vmm__max(space->block_count, 1), 1);
}

/* Sizes and parts of the plan within the gap's room. What is moved counts against no limit. While the policy would have
 * the pool grow anyway nothing is moved: that costs an unmap, and soon another growth. */
static vmm__growth_answer size_plan(vmm_pool *pool, const vmm__pool_request *request, vmm__u64 room, bool move,
                                    vmm__plan *plan) {
  vmm__u64 committed = pool->region.live_bytes + pool->region.quarantined_bytes;
  vmm__u64 left = pool->limit == 0 ? UINT64_MAX : vmm__saturating_sub(pool->limit, committed);
  bool one = request != NULL && (request->flags & VMM_REQUEST_ONE_MAPPING) != 0;
  vmm__growth growth = pool->growth;
  vmm__growth_answer answer;
  vmm__u64 anyway; /* what the policy would have created */

  plan->moved = 0;
  vmm__plan_handles(pool, request, vmm__min(room, left), plan);
  growth.committed = vmm__saturating_add(pool->region.live_bytes, plan->parts.bytes);
  growth.live = vmm__saturating_add(pool->space.block_bytes, request != NULL ? request->size : 0);
  growth.request = plan->need;
  growth.room = room;
  growth.at_hand = plan->parts.bytes;
  reckon_free(pool, request, &growth, plan);
  anyway = vmm__min(vmm__growth_allowance(&growth), left - growth.at_hand);
  if (move && !one && vmm__saturating_add(growth.at_hand, anyway) < plan->need)
    vmm__plan_idle_mappings(pool, room, plan);
  growth.at_hand = plan->parts.bytes;
  growth.limit_left = vmm__saturating_add(left, plan->moved);
  answer = vmm__growth_size(&growth, &plan->size);
  plan->least = vmm__max(plan->need, plan->parts.bytes);
  plan->piece = vmm__max(vmm__saturating_sub(plan->size, plan->parts.bytes), 1); /* even if nothing is created */
  if (!one && answer == VMM__GROWTH_OK) plan->piece = vmm__growth_piece(&growth, plan->piece);
  return answer;
}

static vmm_status refuse(vmm__work *work, vmm__growth_answer answer, vmm__u64 size) {
  work->size = size;
  if (answer == VMM__GROWTH_LIMIT) return vmm__work_fail(work, VMM_ERROR_LIMIT, "the pool's limit is reached");
  if (answer == VMM__GROWTH_OVERFLOW)
    return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the size is too large to round up");
  return vmm__work_fail(work, VMM_ERROR_OUT_OF_ADDRESS_SPACE, "no gap of the pool's reservation is large enough");
}

/* The next unmapped range at or above *at. */
static bool next_gap(vmm_pool *pool, vmm__u64 *at, vmm__u64 *room) {
  const vmm__region *region = &pool->region;
  vmm__u64 end = region->base + region->size;

  *at = vmm__mappings_first_unmapped(&region->mappings, *at);
  *room = vmm__mappings_gap_after(&region->mappings, *at, end);
  return *room != 0;
}

/* A plan for growth ahead of need: the lowest gap that holds it, in one mapping, since cost goes by the call, or as the
 * caller bounds them. */
static vmm__growth_answer plan_ahead(vmm_pool *pool, vmm__u64 ahead, vmm__plan *plan) {
  bool ready = ahead == 0;
  const vmm__region *region = &pool->region;
  vmm__growth_answer answer;
  vmm__u64 end = region->base + region->size;

  plan->tail = 0;
  if (ahead == 0) ahead = pool->ready_bytes;
  if (!vmm__round_up(ahead, region->granularity, &plan->need)) return VMM__GROWTH_OVERFLOW;
  plan->address = region->base;
  answer = size_plan(pool, NULL, plan->need, false, plan);
  if (answer != VMM__GROWTH_OK) return answer;
  if (ready) plan->need = plan->parts.bytes; /* there may be more than a growth can be made of */
  plan->size = plan->least = plan->need;
  plan->piece = pool->bounded ? pool->mapping_max : vmm__max(plan->need, 1);
  plan->address = vmm__mappings_lowest_gap(&region->mappings, region->base, end, plan->need, region->granularity);
  return plan->address == 0 ? VMM__GROWTH_ROOM : VMM__GROWTH_OK;
}

/* Without a reservation: an allocation of its own that holds all of it, or one that was put aside. */
static vmm__growth_answer plan_plain(vmm_pool *pool, const vmm__pool_request *request, vmm__u64 ahead,
                                     vmm__plan *plan) {
  vmm__u64 committed = pool->region.live_bytes + pool->region.quarantined_bytes, ready = 0;
  vmm__growth growth = pool->growth;
  vmm__growth_answer answer;

  memset(plan, 0, sizeof *plan);
  if (request != NULL && !vmm__add(request->size, request->alignment - VMM__BLOCK_UNIT, &ahead))
    return VMM__GROWTH_OVERFLOW;
  if (!vmm__plain_round(pool->device, vmm__max(ahead, 1), &plan->least)) return VMM__GROWTH_OVERFLOW;
  plan->need = plan->size = plan->least;
  (void)vmm__ready_sizes(pool, vmm__saturating_add(ahead, VMM__PLAIN_GUARD), &ready, 1);
  if (ready != 0) {
    plan->size = plan->least = ready - VMM__PLAIN_GUARD;
    plan->parts = (vmm__parts){1, plan->size, {{VMM__PART_READY, plan->size, 0, NULL}}};
  } else if (request != NULL) {
    growth.committed = committed;
    growth.live = vmm__saturating_add(pool->space.block_bytes, request->size);
    growth.request = vmm__saturating_add(plan->need, VMM__PLAIN_GUARD);
    growth.limit_left = growth.room = UINT64_MAX;
    answer = vmm__growth_size(&growth, &plan->size);
    if (answer != VMM__GROWTH_OK) return answer;
    plan->size -= VMM__PLAIN_GUARD;
  }
  plan->piece = plan->size;
  if (pool->limit == 0 || plan->size <= vmm__saturating_sub(pool->limit, committed)) return VMM__GROWTH_OK;
  plan->size = plan->piece = plan->least; /* no head-room, then */
  return plan->least <= vmm__saturating_sub(pool->limit, committed) ? VMM__GROWTH_OK : VMM__GROWTH_LIMIT;
}

vmm_status vmm__plan_make(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 ahead, bool move,
                          vmm__plan *plan) {
  vmm__u64 gap = pool->region.base, room = 0;
  vmm__growth_answer answer = VMM__GROWTH_ROOM;

  if (pool->region.plain) {
    answer = plan_plain(pool, request, ahead, plan);
    return answer == VMM__GROWTH_OK ? VMM_OK : refuse(work, answer, plan->need);
  }
  if (request == NULL) {
    answer = plan_ahead(pool, ahead, plan);
    return answer == VMM__GROWTH_OK ? VMM_OK : refuse(work, answer, ahead);
  }
  for (; next_gap(pool, &gap, &room); gap += room) {
    vmm__u64 skipped;

    if (!fit_gap(pool, request, gap, plan)) return refuse(work, VMM__GROWTH_OVERFLOW, request->size);
    skipped = plan->address - gap;
    if (skipped >= room || plan->need > room - skipped) continue;
    answer = size_plan(pool, request, room - skipped, move, plan);
    if (answer != VMM__GROWTH_ROOM) break;
  }
  return answer == VMM__GROWTH_OK ? VMM_OK : refuse(work, answer, request->size);
}
