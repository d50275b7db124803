/* Growth: find again, plan, commit, publish, carve; and the rounds of the memory ladder around it. */
#include "base/fork.h"
#include "base/status.h"
#include "pool/plan.h"
#include "pool/ready.h"

enum {
  ADDS = 3 + 2 * VMM__PARTS_MOST /* of one growth: the tail back, or what the block takes, with the tail, and the rest;
                                    and the parts */
};

void vmm__pool_count_work(vmm_pool *pool, const vmm__work *work) {
  vmm__lock_acquire(&pool->lock);
  pool->counters.retry_count += work->retries;
  pool->counters.not_ready_count += work->not_ready;
  pool->counters.quiesce_count += work->quiesces;
  pool->counters.oom_rounds += work->rounds;
  vmm__lock_release(&pool->lock);
}

/* What the plan relies on leaves the index until the end, so that nobody else is given it. If any of the tail is the
 * stream's own, all of it is from then on. */
static void hold(vmm_pool *pool, vmm__plan *plan, const vmm__pool_request *request) {
  unsigned arena = VMM__ARENA_IDLE;

  vmm__parts_detach(pool, &plan->parts);
  plan->arena = VMM__ARENA_IDLE;
  plan->frees = 0;
  if (plan->tail == 0) return;
  (void)vmm__space_take(&pool->space, plan->address - plan->tail, plan->tail, &arena);
  if (arena != VMM__ARENA_IDLE) plan->arena = request->stream->open;
  else if (pool->alone != NULL) plan->frees = pool->ordered_frees;
  request->stream->held = true;
  pool->held_bytes += plan->tail;
}

/* The end of that: which arena the tail goes back to. If the stream had the pool alone and another came meanwhile, what was
 * idle to it alone is its own now. Pool lock. */
static unsigned end_hold(vmm_pool *pool, const vmm__plan *plan, const vmm__pool_request *request) {
  pool->held_bytes -= plan->tail;
  if (plan->tail == 0) return VMM__ARENA_IDLE;
  request->stream->held = false;
  return pool->alone == NULL && plan->frees > pool->fenced_frees ? request->stream->open : plan->arena;
}

/* New memory is idle, but for what has to be one with a tail that is not: the block. */
static void add_grown(vmm_pool *pool, const vmm__plan *plan, unsigned arena) {
  vmm__u64 start = plan->address - plan->tail, own = arena == VMM__ARENA_IDLE ? 0 : plan->tail + plan->need;

  if (own != 0) vmm__space_add(&pool->space, arena, start, own);
  if (own != plan->tail + plan->size)
    vmm__space_add(&pool->space, VMM__ARENA_IDLE, start + own, plan->tail + plan->size - own);
}

/* The last moment that counts: nothing in here can fail. */
static vmm__u64 publish(vmm_pool *pool, const vmm__plan *plan, vmm__commit *commit, const vmm__pool_request *request) {
  vmm__pool_counters *counters = &pool->counters;
  vmm__u64 placed = 0;

  vmm__lock_acquire(&pool->lock);
  vmm__region_publish(&pool->region, commit);
  add_grown(pool, plan, end_hold(pool, plan, request));
  if (plan->size > plan->moved) counters->growth_count++;
  else counters->move_count++;
  counters->growth_bytes += plan->size;
  pool->scatter = plan->scatter;
  if (pool->region.live_bytes > counters->committed_peak) counters->committed_peak = pool->region.live_bytes;
  vmm__pool_fulfil(pool, ADDS);
  if (request != NULL) placed = vmm__pool_place(pool, request);
  vmm__lock_release(&pool->lock);
  return placed;
}

static void let_go(vmm_pool *pool, vmm__work *work, vmm__plan *plan, const vmm__pool_request *request) {
  unsigned arena;

  vmm__lock_acquire(&pool->lock);
  vmm__parts_put_back(pool, &plan->parts);
  arena = end_hold(pool, plan, request);
  if (plan->tail != 0) vmm__space_add(&pool->space, arena, plan->address - plan->tail, plan->tail);
  vmm__pool_fulfil(pool, ADDS);
  pool->counters.growth_failures++;
  vmm__lock_release(&pool->lock);
  vmm__parts_give(work, &plan->parts);
}

/* One size of the plan: all of it, or nothing changed, but that parts may have been taken down. *moved is false if one
 * could not be. */
static vmm_status attempt(vmm_pool *pool, vmm__work *work, vmm__plan *plan, const vmm__pool_request *request,
                          bool *moved, vmm__u64 *placed) {
  vmm__u64 start = vmm__device_now(pool->device);
  vmm__u64 taken;
  vmm__commit commit;

  if (vmm__commit_prepare(&pool->region, work, &commit, plan->address, plan->size, plan->piece, &plan->parts) != VMM_OK)
    return work->status;
  *moved = vmm__parts_take_down(pool, work, &plan->parts);
  if (*moved && vmm__region_commit(&pool->region, work, &commit) == VMM_OK) {
    plan->address = commit.address; /* the driver may have chosen it */
    *placed = publish(pool, plan, &commit, request);
    taken = vmm__device_now(pool->device) - start;
    vmm__device_event(pool->device, VMM_EVENT_GROWTH, -1, 0, 0, plan->address, plan->size, taken);
  } else {
    vmm__device_event(pool->device, VMM_EVENT_GROWTH_FAILED, -1, work->code, 0, plan->address, plan->size, 0);
  }
  vmm__commit_release(&pool->region, &commit);
  return work->status;
}

/* Once more from the index; else the plan, and what it relies on is held. */
static bool prepare(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 ahead, bool move,
                    vmm__plan *plan, vmm__u64 *placed) {
  bool planned;

  if (vmm__pool_promise(pool, work, ADDS) != VMM_OK) return false;
  vmm__lock_acquire(&pool->lock);
  *placed = request != NULL ? vmm__pool_place(pool, request) : 0;
  planned = *placed == 0 && vmm__plan_make(pool, work, request, ahead, move, plan) == VMM_OK;
  if (planned) hold(pool, plan, request);
  else vmm__pool_fulfil(pool, ADDS);
  vmm__lock_release(&pool->lock);
  return planned;
}

/* With smaller sizes down to what is needed. *moved as in attempt. */
static vmm_status carry_out(vmm_pool *pool, vmm__work *work, vmm__plan *plan, const vmm__pool_request *request,
                            bool *moved, vmm__u64 *placed) {
  if (work->rounds != 0 && request != NULL) plan->size = plan->least; /* memory is short: no head-room */
  while (attempt(pool, work, plan, request, moved, placed) != VMM_OK) {
    /* LIMIT is the device's: the plan saw to the pool's. Where an undo step failed the range is quarantined: another place
     * must be planned. */
    bool tight = work->status == VMM_ERROR_OUT_OF_DEVICE_MEMORY || work->status == VMM_ERROR_LIMIT;
    bool again = tight && work->undo_failures == 0 && request != NULL;
    vmm__u64 smaller = again ? vmm__growth_smaller(plan->size, plan->least, pool->region.granularity) : 0;

    if (smaller == 0) break;
    plan->size = smaller;
    work->status = VMM_OK;
  }
  if (!*moved || work->status != VMM_OK) let_go(pool, work, plan, request);
  return work->status;
}

/* With the structure lock: once more from the index, then by growing; without moving anything if that failed. */
static vmm_status grow_once(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 ahead,
                            vmm__u64 *placed, vmm__u64 *grown) {
  bool move = request != NULL, moved = false;
  vmm__plan plan;

  if (move && !pool->region.plain) vmm__pool_prove_idle(pool, work);
  if (vmm__device_lost(pool->device)) return vmm__work_fail(work, VMM_ERROR_DEVICE_LOST, NULL);
  for (; !moved; move = false) {
    if (!prepare(pool, work, request, ahead, move, &plan, placed)) return work->status;
    if (carry_out(pool, work, &plan, request, &moved, placed) != VMM_OK) return work->status;
  }
  *grown = plan.size;
  return VMM_OK;
}

static bool is_closing(vmm_pool *pool) {
  bool closing;

  vmm__lock_acquire(&pool->lock);
  closing = pool->closing;
  vmm__lock_release(&pool->lock);
  return closing;
}

vmm__u64 vmm__pool_publish_ready(vmm_pool *pool, vmm__work *work) {
  vmm__u64 placed = 0, grown = 0;

  if (vmm__work_lock(work) == VMM_OK && !is_closing(pool)) (void)grow_once(pool, work, NULL, 0, &placed, &grown);
  if (work->status == VMM_ERROR_LIMIT || work->status == VMM_ERROR_OUT_OF_ADDRESS_SPACE) {
    (void)vmm__ready_give(pool, work, UINT64_MAX); /* the limit is a lower one by now */
    vmm__work_forget(work);
  }
  vmm__work_unlock(work);
  return work->status == VMM_OK ? grown : 0;
}

static vmm__u64 trim_own(void *owner, vmm__work *work, vmm__u64 need) {
  vmm_pool *pool = owner;
  vmm__work trim;
  vmm__u64 done;

  vmm__work_start(&trim, pool->device, work->function, 0);
  trim.deadline = work->deadline;
  trim.round_left = 2;
  done = vmm__pool_trim(pool, &trim, 0, need, true);
  vmm__pool_count_work(pool, &trim);
  work->gave_back += trim.gave_back;
  (void)vmm__work_finish(&trim, NULL);
  return done;
}

/* What earlier trims left: taken back if it serves, else unmapped as far as nothing uses it any more. Its failures are not
 * the growth's. */
static vmm__u64 settle_pending(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  vmm__work own = *work;
  vmm__u64 placed = 0;

  if (vmm__pending_bytes(pool) == 0) return 0;
  if (vmm__pending_look(pool, &own) == VMM_OK && request != NULL) placed = vmm__pool_revive(pool, request);
  if (placed == 0) work->gave_back += vmm__pending_finish(pool, &own, UINT64_MAX);
  work->attempts_left = own.attempts_left;
  work->round_left = own.round_left;
  work->retries = own.retries;
  work->not_ready = own.not_ready;
  work->quiesces = own.quiesces;
  return placed;
}

/* Where streams are asked for captures, what waits for the whole context is sealed only with the structure lock. */
static vmm__u64 gather_limbo(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  bool any;

  if (request == NULL || !pool->device->detect_captures) return 0;
  vmm__lock_acquire(&pool->lock);
  any = vmm__space_arena_bytes(&pool->space, pool->limbo.open) != 0;
  vmm__lock_release(&pool->lock);
  return any ? vmm__pool_gather(pool, work, request) : 0;
}

/* Growth failed for want of memory: rather than that, the stream waits for others. */
static bool wait_instead(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 *placed) {
  if (request == NULL || !vmm__memory_is_short(work->status)) return false;
  *placed = vmm__pool_wait_for_streams(pool, work, request);
  if (*placed == 0) return false;
  work->status = VMM_OK;
  return true;
}

/* What no growth can ever serve is refused before anything idle is given back for it. */
static vmm_status refuse_hopeless(vmm_pool *pool, vmm__work *work, vmm__u64 bytes) {
  vmm__u64 limit, device_limit, end;

  work->size = bytes;
  if (!vmm__round_up(bytes, pool->region.granularity, &bytes) || !vmm__add(pool->region.base, bytes, &end))
    return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the size is too large to round up");
  if (bytes > pool->region.size)
    return vmm__work_fail(work, VMM_ERROR_OUT_OF_ADDRESS_SPACE,
                          "the size, in whole granules, exceeds the pool's reservation");
  vmm__lock_acquire(&pool->lock);
  limit = pool->limit;
  vmm__lock_release(&pool->lock);
  vmm__lock_acquire(&pool->device->lock);
  device_limit = pool->device->limit;
  vmm__lock_release(&pool->device->lock);
  if (limit != 0 && bytes > limit)
    return vmm__work_fail(work, VMM_ERROR_LIMIT, "the size, in whole granules, exceeds the pool's limit");
  if (device_limit != 0 && bytes > device_limit)
    return vmm__work_fail(work, VMM_ERROR_LIMIT, "the size, in whole granules, exceeds the device's limit");
  work->size = 0;
  return VMM_OK;
}

/* The rounds. `request` NULL: growth ahead of need, of `ahead` bytes. */
static vmm_status grow(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 ahead,
                       vmm__u64 *placed, vmm__u64 *grown) {
  vmm__ladder ladder = {0};
  vmm__u64 need = request != NULL ? request->size : ahead;

  if (vmm__in_pressure()) return vmm__work_fail(work, VMM_ERROR_BUSY, "inside a pressure callback nothing may grow");
  if (refuse_hopeless(pool, work, need) != VMM_OK) return work->status;
  for (;;) {
    if (vmm__device_lost(pool->device)) return vmm__work_fail(work, VMM_ERROR_DEVICE_LOST, NULL);
    if (vmm__work_lock(work) == VMM_OK) {
      *placed = settle_pending(pool, work, request);
      if (*placed == 0) *placed = gather_limbo(pool, work, request);
      if (is_closing(pool)) (void)vmm__work_fail(work, VMM_ERROR_BUSY, "the pool is being destroyed");
      else if (*placed == 0) (void)grow_once(pool, work, request, ahead, placed, grown);
    }
    vmm__work_unlock(work);
    /* Grown, but other threads used up the records meanwhile: once more from the index. */
    if (work->status == VMM_OK && request != NULL && *placed == 0) continue;
    if (work->status == VMM_OK || wait_instead(pool, work, request, placed)) return VMM_OK;
    if (!vmm__reclaim(work, &ladder, need, trim_own, pool)) return work->status;
    vmm__work_next_round(work, vmm__ladder_ended(&ladder));
  }
}

vmm_status vmm__pool_grow_for(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request, vmm__u64 *address) {
  vmm__u64 grown = 0;

  *address = 0;
  return grow(pool, work, request, 0, address, &grown);
}

vmm_status vmm__pool_grow_ahead(vmm_pool *pool, vmm__work *work, vmm__u64 size, vmm__u64 *grown) {
  vmm__u64 placed = 0;

  *grown = 0;
  return grow(pool, work, NULL, size, &placed, grown);
}

vmm_status vmm_pool_grow(vmm_pool *pool, unsigned long long size, unsigned long long *grown, vmm_error *error) {
  vmm__work work;
  vmm__u64 bytes = 0;
  vmm_status status;

  if (grown != NULL) *grown = 0;
  status = vmm__pool_refuse(pool, pool, "vmm_pool_grow", error);
  if (status != VMM_OK) return status;
  if (size == 0) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_grow: size is 0");
  vmm__work_start(&work, pool->device, "vmm_pool_grow", 0);
  if (vmm__pool_grow_ahead(pool, &work, size, &bytes) == VMM_OK && grown != NULL) *grown = bytes;
  vmm__pool_count_work(pool, &work);
  return vmm__work_finish(&work, error);
}
