/* What must hold once the fault is gone: the same call succeeds, and at the end nothing is left. A lost device says so,
 * leaves others alone and can be closed. */
#include <string.h>

#include "faults.h"

static bool is_lost(const run *r) { return code_given(r, VMM_CODE_ILLEGAL_ADDRESS); }
static bool is_sticky(const run *r) { return r->fault[0].sticky || r->fault[1].sticky; }

static void check_intact(world *w, run *r, const char *when) {
  vmm_error error;
  size_t i;

  if (w->pool == NULL) return;
  if (vmm_pool_check(w->pool, &error) != VMM_OK) broken(r, "pool check %s: %s", when, error.message);
  world_enter(w, w->context);
  for (i = 0; i < w->block_count; i++)
    if (!world_intact(w, &w->blocks[i])) broken(r, "block %zu has lost its bytes %s", i, when);
  world_leave(w);
}

/* ---- the same call again ---- */

static void check_lost(world *w, run *r) {
  vmm_error error;
  u64 address = 0;
  vmm_status status;

  if (w->pool != NULL) {
    status = vmm_pool_alloc(w->pool, 8 * w->granule, &address, &error);
    if (status != VMM_ERROR_DEVICE_LOST || error.status != VMM_ERROR_DEVICE_LOST || address != 0)
      broken(r, "a lost device answers alloc with %s", vmm_status_name((int)status));
  }
  if (w->other == NULL || is_sticky(r)) return;
  status = vmm_pool_alloc(w->other_pool, w->granule, &address, &error);
  if (status != VMM_OK) broken(r, "the other device is affected: %s", error.message);
  else (void)vmm_pool_free(w->other_pool, address, NULL);
  world_enter(w, w->guest);
  if (!world_intact(w, &w->other_block)) broken(r, "a block on the other device has lost its bytes");
  world_leave(w);
}

static void check_again_thread(world *w, run *r) {
  state now;

  world_state(w, &now);
  if (now.current != w->guest || now.mode != 1) broken(r, "the second call left another context or capture mode");
}

/* A pool whose destroy failed is a pool. */
static void check_stands(world *w, run *r) {
  vmm_error error;
  u64 address = 0;
  vmm_status status = vmm_pool_alloc(w->pool, w->granule, &address, &error);

  /* Its range may be another's already. */
  if (faulted(r, VMM_OP_mem_address_free) && status == VMM_ERROR_BUSY) return;
  if (status != VMM_OK) broken(r, "the pool whose destroy failed does not allocate: %s", error.message);
  else if (vmm_pool_free_idle(w->pool, address, NULL) != VMM_OK) broken(r, "... nor free");
}

/* A release that answers INVALID_VALUE twice was done, or is refused twice: nobody can tell, so the device goes on telling,
 * until it is closed. */
static bool release_in_doubt(const run *r) {
  return r->s->what == DEVICE_TRIM && faulted_as(r, VMM_OP_mem_release, VMM_FAULT_AFTER) &&
         code_given(r, VMM_CODE_INVALID_VALUE);
}

void promises_again(world *w, run *r) {
  vmm_error error;
  vmm_status status;
  bool gone = (r->s->what == DESTROY && w->pool == NULL) || (r->s->what == CLOSE && w->device == NULL);

  if (is_lost(r)) {
    check_lost(w, r);
    return;
  }
  if (r->status == VMM_OK || gone || deceived(r)) return;
  if (r->s->what == DESTROY) check_stands(w, r);
  /* What a failed creation left behind for nobody may be the very memory that is short. */
  if (w->s->prepare != NULL && w->s->full && !w->s->idle) (void)vmm_fault_release_orphans(w->driver);
  memset(&error, 0, sizeof error);
  status = w->s->call(w, &error);
  if (status != VMM_OK && release_in_doubt(r)) apart(r);
  else if (status != VMM_OK) broken(r, "the same call fails without the fault: %s", error.message);
  if (status == VMM_OK && r->s->what == ALLOC) {
    block fresh = {w->address, w->size / 4 * 4, 60};

    world_enter(w, w->context);
    touch_in_order(w, r, &fresh);
    if (!world_fill(w, w->base, &fresh) || !world_intact(w, &fresh))
      broken(r, "the block of the second call is not there");
    world_leave(w);
    w->blocks[w->block_count++] = fresh;
  }
  check_again_thread(w, r);
  check_intact(w, r, "after the second call");
  if (!global.cuda) check_peers(w, r, true);
}

/* ---- the end ---- */

static void end_capture(world *w, run *r) {
  if (w->announced && !world_end_capture(w, VMM_CAPTURE_ABORTED)) broken(r, "promise 6: the capture is not valid");
  if (w->announced) broken(r, "the capture's end is refused");
  if (w->lease != NULL && vmm_lease_release(w->lease, NULL) != VMM_OK) broken(r, "the lease's end is refused");
  w->lease = NULL;
  if (w->executable != NULL) (void)vmm_raw_graph_exec_destroy(w->base, w->executable);
}

static void close_all(world *w, run *r) {
  vmm_error error;
  vmm_status status;

  memset(&error, 0, sizeof error);
  while (w->pool != NULL && w->block_count > 0) {
    w->block_count--;
    if (vmm_pool_free(w->pool, w->blocks[w->block_count].address, &error) != VMM_OK)
      broken(r, "promise 4: a free fails: %s", error.message);
  }
  status = w->pool != NULL ? vmm_pool_destroy(w->pool, VMM_DESTROY_IDLE, &error) : VMM_OK;
  if (status != VMM_OK) broken(r, "destroy fails at the end: %s", error.message);
  w->pool = NULL;
  if (status != VMM_OK && status != VMM_ERROR_PARTIAL) return;
  if (w->device != NULL && vmm_device_close(w->device, &error) != VMM_OK)
    broken(r, "close fails at the end: %s", error.message);
  w->device = NULL;
}

static void close_other(world *w, run *r) {
  vmm_error error;

  if (w->other == NULL) return;
  if (vmm_pool_free(w->other_pool, w->other_block.address, &error) != VMM_OK ||
      vmm_pool_destroy(w->other_pool, VMM_DESTROY_IDLE, &error) != VMM_OK ||
      vmm_device_close(w->other, &error) != VMM_OK)
    broken(r, "the other device cannot be closed: %s", error.message);
}

static void end_own(world *w) {
  world_enter(w, w->context);
  if (w->stream != NULL) (void)vmm_raw_stream_destroy(w->base, w->stream);
  if (w->second != NULL) (void)vmm_raw_stream_destroy(w->base, w->second);
  if (w->captured != NULL) (void)vmm_raw_stream_destroy(w->base, w->captured);
  world_leave(w);
}

/* How many things a call of `op` was last asked to give back, and refused: what was tried again and done counts no more. */
static u64 refused(const vmm_record_entry *entries, size_t count, int op) {
  u64 left = 0;
  size_t i, k;

  for (i = 0; i < count; i++) {
    if (entries[i].op != op || entries[i].code == 0) continue;
    for (k = i + 1; k < count; k++)
      if (entries[k].op == op && entries[k].object == entries[i].object && entries[k].address == entries[i].address)
        break;
    if (k == count || op == VMM_OP_primary_release) left++;
  }
  return left;
}

static void leftover(run *r, const char *what, u64 now, u64 then, u64 allowed) {
  if (now < then || now > then + allowed)
    broken(r, "at the end %llu %s are left, %llu may be", now - then, what, allowed);
}

static void compare(run *r, const state *then, const state *now, const vmm_record_entry *calls, size_t count) {
  u64 handles = now->orphans[VMM_OP_mem_create], ranges = now->orphans[VMM_OP_mem_reserve], mappings = 0;

  if (is_lost(r)) {
    mappings = refused(calls, count, VMM_OP_mem_unmap);
    handles += refused(calls, count, VMM_OP_mem_release) + mappings;
    ranges += refused(calls, count, VMM_OP_mem_address_free);
  }
  leftover(r, "handles", now->ledger.handles, then->ledger.handles, handles);
  leftover(r, "references", now->ledger.references, then->ledger.references, handles);
  leftover(r, "plain allocations", now->ledger.plain_allocations, then->ledger.plain_allocations,
           now->orphans[VMM_OP_mem_alloc] + (is_lost(r) ? refused(calls, count, VMM_OP_mem_free) : 0));
  leftover(r, "mappings", now->ledger.mappings, then->ledger.mappings, mappings);
  leftover(r, "reservations", now->ledger.reservations, then->ledger.reservations, ranges);
  leftover(r, "events", now->ledger.events, then->ledger.events,
           now->orphans[VMM_OP_event_create] + refused(calls, count, VMM_OP_event_destroy));
  leftover(r, "streams", now->ledger.streams, then->ledger.streams,
           now->orphans[VMM_OP_stream_create] + refused(calls, count, VMM_OP_stream_destroy));
  leftover(r, "context references", now->ledger.primary_references, then->ledger.primary_references,
           now->orphans[VMM_OP_primary_retain] + refused(calls, count, VMM_OP_primary_release));
  leftover(r, "bytes of pinned host memory", now->ledger.host_bytes, then->ledger.host_bytes,
           65536 * (now->orphans[VMM_OP_mem_host_alloc] + refused(calls, count, VMM_OP_mem_host_free)));
}

static void check_memory(world *w, run *r) {
  if (w->host.live != 0) broken(r, "%llu allocations of host memory are left", w->host.live);
  if (w->host.wrong_size) broken(r, "host memory was given back with another size");
}

/* Over CUDA: what a lost device was made to refuse is given back by hand, and the memory must be what it was. */
static void give_back_refused(world *w, const vmm_record_entry *calls, size_t count) {
  static const int order[] = {VMM_OP_mem_unmap,      VMM_OP_mem_release,    VMM_OP_mem_address_free,
                              VMM_OP_event_destroy,  VMM_OP_stream_destroy, VMM_OP_mem_host_free,
                              VMM_OP_primary_release};
  size_t k, i, j;

  world_enter(w, w->context);
  for (k = 0; k < sizeof order / sizeof order[0]; k++)
    for (i = 0; i < count; i++) {
      const vmm_record_entry *at = &calls[i];
      void *object = (void *)(size_t)at->object;

      if (at->op != order[k] || at->code == 0) continue;
      for (j = i + 1; j < count; j++)
        if (calls[j].op == at->op && calls[j].object == at->object && calls[j].address == at->address) break;
      if (j < count) continue;
      if (at->op == VMM_OP_mem_unmap) (void)vmm_raw_mem_unmap(w->base, at->address, at->size);
      if (at->op == VMM_OP_mem_release) (void)vmm_raw_mem_release(w->base, at->object);
      if (at->op == VMM_OP_mem_address_free) (void)vmm_raw_mem_address_free(w->base, at->address, at->size);
      if (at->op == VMM_OP_event_destroy) (void)vmm_raw_event_destroy(w->base, object);
      if (at->op == VMM_OP_stream_destroy) (void)vmm_raw_stream_destroy(w->base, object);
      if (at->op == VMM_OP_mem_host_free) (void)vmm_raw_mem_host_free(w->base, object);
      if (at->op == VMM_OP_primary_release) (void)vmm_raw_primary_release(w->base, (int)at->object);
    }
  world_leave(w);
}

static void check_device_memory(world *w, run *r, const vmm_record_entry *calls, size_t count) {
  static u64 start;
  u64 now;

  give_back_refused(w, calls, count);
  now = world_free_bytes(w);
  if (r->clean == NULL) start = now; /* the driver keeps a little for itself, which a clean run shows */
  else if (now + w->granule <= start) broken(r, "%llu bytes of device memory are missing", start - now);
}

void promises_end(world *w, run *r) {
  static vmm_record_entry calls[MAX_CALLS];
  size_t count = 0;
  state now;

  if (deceived(r)) return; /* what it does not know of may keep the pool from being ended */
  if (is_sticky(r) && r->s->what == OPEN) (void)vmm_fault_clear(w->driver);
  end_capture(w, r);
  close_all(w, r);
  (void)vmm_fault_clear(w->driver);
  close_other(w, r);
  end_own(w);
  world_state(w, &now);
  if (now.current != w->guest || now.mode != 1) broken(r, "the end left another context or capture mode");
  check_memory(w, r);
  (void)vmm_record_get(w->driver, 0, calls, MAX_CALLS, &count);
  if (global.cuda) {
    check_device_memory(w, r, calls, count);
    return;
  }
  compare(r, &w->start, &now, calls, count);
  check_misuse(w, r, r->after.ledger.misuse + r->after.ledger.double_releases);
  if (vmm_fault_release_orphans(w->driver) != VMM_OK) broken(r, "the orphans cannot be given back");
  memset(now.orphans, 0, sizeof now.orphans);
  {
    state last;

    world_state(w, &last);
    compare(r, &w->start, &last, calls, count);
  }
}
