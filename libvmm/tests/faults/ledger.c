/* The three accounts against each other: what the simulator counted, what the device says, what the pool says. */
#include "faults.h"

static void within(run *r, const char *what, u64 value, u64 low, u64 high) {
  if (value < low || value > high) broken(r, "the ledger says %llu %s, not %llu to %llu", value, what, low, high);
}

static u64 refused_now(const run *r, int op) {
  u64 count = 0;
  size_t i;

  for (i = 0; i < r->call_count; i++)
    if (r->calls[i].op == op && r->calls[i].code != 0) count++;
  return count;
}

#define OBJECT(name) offsetof(vmm_sim_ledger, name)

/* Pools whose making failed and could not be undone: they stand until the device is closed. */
static u64 abandoned(const run *r) {
  return r->s->what == CREATE && r->status != VMM_OK ? r->after.device.pool_count - r->before.device.pool_count : 0;
}

static void check_object(run *r, const char *what, size_t field, int gives_back, u64 more) {
  bool done =
      r->status == VMM_OK || r->before.has_pool != r->after.has_pool || r->before.has_device != r->after.has_device;
  u64 now = *(const u64 *)(const void *)((const char *)&r->after.ledger + field);
  u64 then = *(const u64 *)(const void *)((const char *)&r->before.ledger + field);
  u64 pools = field == OBJECT(events) || field == OBJECT(reservations) ? abandoned(r) : 0, refused, gone;
  bool ends;

  if (done && r->clean == NULL) return;
  if (done) /* as the clean run changed it */
    then += *(const u64 *)(const void *)((const char *)&r->clean[1].ledger + field) -
            *(const u64 *)(const void *)((const char *)&r->clean[0].ledger + field);
  refused = refused_now(r, gives_back);
  ends = r->s->what == DESTROY || r->s->what == CLOSE;
  then += more;
  gone = ends && !done && faulted_as(r, gives_back, VMM_FAULT_AFTER) ? refused : 0;
  if (r->s->what == STREAM && faulted(r, VMM_OP_event_record)) gone = 1; /* no last fence: its event goes at once */
  if (field == OBJECT(events)) { /* of seals, and of streams met: kept, or not needed */
    gone += r->s->events;
    pools += r->s->events;
  }
  within(r, what, now, then > gone ? then - gone : 0, then + refused + pools);
}

/* Things made once and not tried again: as before the call if it failed, as after a clean one if it did not. */
static void check_objects(run *r) {
  const u64 *orphans = r->after.orphans;

  check_object(r, "events", OBJECT(events), VMM_OP_event_destroy, orphans[VMM_OP_event_create]);
  check_object(r, "streams", OBJECT(streams), VMM_OP_stream_destroy, orphans[VMM_OP_stream_create]);
  check_object(r, "context references", OBJECT(primary_references), VMM_OP_primary_release,
               orphans[VMM_OP_primary_retain]);
  check_object(r, "reservations", OBJECT(reservations), VMM_OP_mem_address_free, orphans[VMM_OP_mem_reserve]);
}

/* Where one call's untruth is the only answer there is to another's failure, the library believes it, and memory is left
 * that it does not know of: whether anything is mapped is asked of get-access (twice), and whether a release that failed
 * was done after all is told by INVALID_VALUE to the next. */
bool deceived(const run *r) {
  int i;

  for (i = 0; i < 2; i++) {
    const fault *f = &r->fault[i], *other = &r->fault[1 - i];

    if (f->code != VMM_CODE_INVALID_VALUE || f->phase != VMM_FAULT_BEFORE || other->op == NO_FAULT) continue;
    if (f->op == VMM_OP_mem_get_access && f->times == VMM_FAULT_FOR_EVER &&
        (other->op == VMM_OP_mem_map || other->op == VMM_OP_mem_unmap))
      return true;
    if (other->op == f->op &&
        (f->op == VMM_OP_mem_release || f->op == VMM_OP_mem_address_free || f->op == VMM_OP_mem_free))
      return true;
  }
  return false;
}

void check_ledger(run *r) {
  const vmm_sim_ledger *ledger = &r->after.ledger;
  const vmm_device_stats *device = &r->after.device;
  const vmm_pool_stats *pool = &r->after.pool;
  bool doubtful = faulted_as(r, VMM_OP_mem_release, VMM_FAULT_AFTER);
  u64 handles = ledger->references - r->after.orphans[VMM_OP_mem_create];

  check_objects(r);
  if (abandoned(r) != 0 && r->error.undo_failures == 0) broken(r, "nothing tells that the pool could not be undone");
  if (!r->after.has_device) return;
  if (device->created_bytes - device->released_bytes != device->handle_bytes + device->quarantined_bytes ||
      device->created_count - device->released_count != device->handle_count + device->quarantined_count)
    broken(r, "handles created and released are not those held and quarantined");
  if (r->s->plain) {
    within(r, "plain allocations", ledger->plain_allocations - r->after.orphans[VMM_OP_mem_alloc],
           device->handle_count + (faulted_as(r, VMM_OP_mem_free, VMM_FAULT_AFTER) ? 0 : device->quarantined_count),
           device->handle_count + device->quarantined_count);
    return;
  }
  within(r, "handles", handles, device->handle_count + (doubtful ? 0 : device->quarantined_count),
         device->handle_count + device->quarantined_count);
  if (!r->after.has_pool) return;
  doubtful = faulted(r, VMM_OP_mem_get_access) || faulted_as(r, VMM_OP_mem_unmap, VMM_FAULT_AFTER) ||
             faulted_as(r, VMM_OP_mem_map, VMM_FAULT_LIE) || faulted_as(r, VMM_OP_mem_unmap, VMM_FAULT_PARTIAL);
  within(r, "mapped bytes", ledger->mapped_bytes, pool->committed_bytes + (doubtful ? 0 : pool->quarantined_bytes),
         pool->committed_bytes + pool->quarantined_bytes);
  within(r, "bytes with access (promise 1)", ledger->accessible_bytes, pool->committed_bytes,
         pool->committed_bytes + pool->quarantined_bytes);
}

/* ---- peers ---- */

/* All mappings are open to the peer, or none is: what could not be revoked is told as an undo failure. */
void check_peers(world *w, run *r, bool undone) {
  vmm_mapping_info mappings[64];
  vmm_raw_location location = {1, 1};
  vmm_pool_stats stats;
  size_t count = 0, i;

  stats.struct_size = sizeof stats;
  if (r->s->plain) return; /* no peer can be had */
  if (w->pool == NULL || vmm_pool_get_stats(w->pool, &stats, NULL) != VMM_OK) return;
  (void)vmm_pool_get_mappings(w->pool, mappings, 64, &count, NULL);
  for (i = 0; i < count && i < 64; i++) {
    u64 flags = ~0ull;

    if (mappings[i].state != VMM_MAPPING_LIVE) continue;
    (void)vmm_raw_mem_get_access(w->base, &flags, &location, mappings[i].address);
    if (stats.peer_count == 1 && flags != 3) broken(r, "promise 1: mapping %zu is closed to the peer", i);
    if (stats.peer_count == 0 && flags != 0 && undone) broken(r, "promise 2: mapping %zu is open to a stranger", i);
  }
}
