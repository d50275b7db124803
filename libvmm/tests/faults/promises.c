/* What must hold right after a call that a fault fell on. */
#include <stdio.h>
#include <string.h>

#include "faults.h"

enum { MOST_RETRIES = 9, BUDGETS = 3 /* the call's, the memory ladder's, the undo's */, LATE_NS = 10000000 };

/* ---- promise 3: a status, and an error that says what failed ---- */

static bool is_text(const char *text, size_t capacity) {
  size_t i;

  for (i = 0; i < capacity && text[i] != 0; i++)
    if (text[i] < 32 || text[i] > 126) return false;
  return i < capacity;
}

static bool was_answered(const run *r, int op, int code) {
  size_t i;

  for (i = 0; i < r->call_count; i++)
    if (r->calls[i].op == op && r->calls[i].code == code) return true;
  return false;
}

static bool was_refused(const run *r, int op) {
  size_t i;

  for (i = 0; i < r->call_count; i++)
    if (r->calls[i].op == op && r->calls[i].code != 0) return true;
  return false;
}

static void check_error(run *r) {
  const vmm_error *e = &r->error;
  const unsigned char *bytes = (const unsigned char *)e;
  size_t i;

  if (r->status == VMM_OK) {
    for (i = 0; i < sizeof *e; i++)
      if (bytes[i] != 0xEE) {
        broken(r, "success wrote the error struct");
        return;
      }
    return;
  }
  if (e->status != (int)r->status) broken(r, "error.status is %d", e->status);
  if (!is_text(e->message, sizeof e->message) || e->message[0] == 0) broken(r, "error.message is no text");
  if (!is_text(e->call, sizeof e->call) || !is_text(e->code_name, sizeof e->code_name))
    broken(r, "error.call is no text");
  if (e->device != 0 && !(e->device == -1 && r->status == VMM_ERROR_OUT_OF_HOST_MEMORY))
    broken(r, "error.device is %d", e->device);
  if (e->undo_failures < 0 || (e->undo_failures == 0) != (e->undo_code == 0))
    broken(r, "error: %d undo failures, first code %d", e->undo_failures, e->undo_code);
  for (i = 0; i < 4; i++)
    if (e->reserved[i] != 0) broken(r, "error.reserved is not zero");
  if (e->call[0] == 0) {
    if (e->code != 0 || e->code_name[0] != 0 || e->attempt != 0) broken(r, "error: a code without a call");
    if (r->status == VMM_ERROR_DRIVER) broken(r, "error: a driver's answer without the call");
    return;
  }
  if (vmm_op_from_name(e->call) < 0 || !was_answered(r, vmm_op_from_name(e->call), e->code))
    broken(r, "error: %s did not answer %d", e->call, e->code);
  if (strcmp(e->code_name, vmm_code_name(e->code)) != 0) broken(r, "error.code_name is %s", e->code_name);
  if (e->attempt < 1 || e->attempt > MOST_RETRIES + 1) broken(r, "error.attempt is %d", e->attempt);
}

/* The first error wins: with one fault it is that one's. */
static void check_first_error(run *r) {
  const fault *f = &r->fault[0];

  if (r->status == VMM_OK || r->fault[1].op != NO_FAULT || f->op < 0 || !r->fired[0]) return;
  if (r->error.call[0] == 0 || f->phase == VMM_FAULT_LIE || f->sticky || r->s->prepare != NULL) return;
  if (r->error.code != f->code || strcmp(r->error.call, vmm_op_symbol(f->op)) != 0)
    broken(r, "the error is about %s and %d", r->error.call, r->error.code);
}

static bool is_sensible(const run *r) {
  switch (r->status) {
    case VMM_OK:
      return true;
    case VMM_ERROR_OUT_OF_HOST_MEMORY:
      return faulted(r, HOST_MEMORY);
    case VMM_ERROR_DEVICE_LOST:
      return code_given(r, VMM_CODE_ILLEGAL_ADDRESS);
    case VMM_ERROR_NOT_READY:
      return code_given(r, VMM_CODE_NOT_READY);
    case VMM_ERROR_TIMEOUT:
      return code_given(r, VMM_CODE_NOT_READY) || faulted(r, VMM_OP_event_query);
    case VMM_ERROR_NOT_CONFIRMED:
      return faulted(r, VMM_OP_mem_set_access) || faulted(r, VMM_OP_mem_get_access) ||
             faulted_as(r, VMM_OP_mem_unmap, VMM_FAULT_LIE) || r->s->verify == VMM_VERIFY_DATA;
    case VMM_ERROR_OUT_OF_DEVICE_MEMORY:
    case VMM_ERROR_OUT_OF_ADDRESS_SPACE:
    case VMM_ERROR_MAPPING_LIMIT:
      return code_given(r, VMM_CODE_OUT_OF_MEMORY) || r->s->call == NULL || strcmp(r->s->name, "alloc-short") == 0;
    case VMM_ERROR_UNSUPPORTED:
      return code_given(r, VMM_CODE_NOT_SUPPORTED) ||
             (faulted(r, VMM_OP_device_attribute) && code_given(r, VMM_CODE_INVALID_VALUE));
    case VMM_ERROR_DRIVER:
      return code_given(r, VMM_CODE_INVALID_VALUE) || code_given(r, VMM_CODE_UNKNOWN) || code_given(r, 4242) ||
             faulted_as(r, VMM_OP_mem_map, VMM_FAULT_LIE);
    case VMM_ERROR_PARTIAL:
      return r->s->what == TRIM || r->s->what == DESTROY || r->s->what == CLOSE || r->s->what == DEVICE_TRIM;
    case VMM_ERROR_LIMIT:
      return r->s->limit != 0;
    case VMM_ERROR_BUSY:
      return r->s->what == DESTROY;
    default:
      return false;
  }
}

/* Out of memory is told with what there is. */
static void check_told(run *r) {
  if (r->status != VMM_ERROR_OUT_OF_DEVICE_MEMORY && r->status != VMM_ERROR_NOT_READY) return;
  if ((r->s->what != ALLOC && r->s->what != GROW) || faulted(r, VMM_OP_mem_get_info)) return;
  if (r->error.call[0] == 0 || strncmp(r->error.call, "cuMem", 5) != 0) return;
  if (strncmp(r->error.call, "cuMemset", 8) == 0) return;
  if (r->error.total_bytes == 0 || r->error.size == 0) broken(r, "the error lacks size, or free and total memory");
}

/* ---- promise 9 ---- */

static void check_time(run *r) {
  if (!global.cuda && r->elapsed > DEADLINE_NS + LATE_NS) broken(r, "promise 9: it took %llu ns", r->elapsed);
}

static bool is_retried(int op) {
  return op == VMM_OP_mem_create || op == VMM_OP_mem_map || op == VMM_OP_mem_set_access || op == VMM_OP_mem_unmap ||
         op == VMM_OP_mem_release || op == VMM_OP_mem_alloc || op == VMM_OP_mem_free;
}

static void check_retries(run *r) {
  const fault *f = &r->fault[0];
  u64 seen = 0, retries, counted;
  size_t i;

  if (!r->before.has_device || !r->after.has_device || r->call_count == MAX_CALLS) return;
  for (i = 0; i < r->call_count; i++)
    if (r->calls[i].code == VMM_CODE_NOT_READY && r->calls[i].op != VMM_OP_event_query) seen++;
  counted = r->after.device.not_ready_count - r->before.device.not_ready_count;
  if (counted != seen) broken(r, "%llu NOT_READYs counted, %llu answered", counted, seen);
  retries = r->after.device.retry_count - r->before.device.retry_count;
  if (retries > BUDGETS * MOST_RETRIES) broken(r, "%llu retries", retries);
  if (r->before.has_pool && r->after.has_pool && r->s->what != DEVICE_TRIM &&
      r->after.pool.retry_count - r->before.pool.retry_count > retries)
    broken(r, "the pool counts more retries than the device");
  if (r->fault[1].op != NO_FAULT || f->code != VMM_CODE_NOT_READY || f->phase != VMM_FAULT_BEFORE ||
      !is_retried(f->op) || !r->fired[0])
    return;
  if (r->s->what == READY && r->s->prepare != NULL) return; /* a poll waits for nothing: the next one tries again */
  if (r->s->what == ALLOC && r->s->prepare != NULL && f->times > 1) return; /* rounds of the ladder share the budget */
  if (f->times <= 2 && r->status != VMM_OK) broken(r, "%llu NOT_READYs are not survived", f->times);
  if (f->times <= 2 && retries != f->times) broken(r, "%llu NOT_READYs, %llu retries", f->times, retries);
}

/* ---- promise 2: accounting ---- */

static void same(run *r, const char *what, u64 now, u64 then) {
  if (now != then) broken(r, "promise 2: %s is %llu, was %llu", what, now, then);
}

static void check_accounts(world *w, run *r) {
  const vmm_pool_stats *now = &r->after.pool, *then = &r->before.pool;
  u64 held, missing, most;

  if (r->status == VMM_OK || !r->before.has_pool || !r->after.has_pool) return;
  if (r->s->what == DESTROY && now->block_count == 0) w->block_count = 0; /* forced: the blocks are gone */
  else {
    same(r, "block_count", now->block_count, then->block_count);
    same(r, "block_bytes", now->block_bytes, then->block_bytes);
    same(r, "requested_bytes", now->requested_bytes, then->requested_bytes);
    same(r, "free_count", now->free_count, then->free_count);
  }
  same(r, "alloc_count", now->alloc_count, then->alloc_count);
  same(r, "alloc_bytes", now->alloc_bytes, then->alloc_bytes);
  same(r, "alloc_failures", now->alloc_failures, then->alloc_failures + (r->s->what == ALLOC ? 1 : 0));
  same(r, "address", now->address, then->address);
  same(r, "reserved_bytes", now->reserved_bytes, then->reserved_bytes);
  same(r, "peer_count", now->peer_count, then->peer_count);
  if (r->s->what != ALLOC && r->s->what != GROW) return;
  if (r->s->scrub && now->growth_count != then->growth_count) return; /* the growth stays, the scrub failed */
  same(r, "growth_bytes", now->growth_bytes, then->growth_bytes);
  held = r->after.device.handle_bytes;
  missing = r->error.gave_back + r->after.device.quarantined_bytes - r->before.device.quarantined_bytes;
  if (r->after.lost) return; /* a lost device keeps no idle handles */
  most = r->before.device.handle_bytes + now->quarantined_bytes - then->quarantined_bytes;
  if (r->s->plain) most += 256 * (now->mapping_count - then->mapping_count); /* left unused of each allocation */
  if (held + missing < r->before.device.handle_bytes || held > most)
    broken(r, "promise 2: %llu bytes are held, %llu were, %llu given back", held, r->before.device.handle_bytes,
           r->error.gave_back);
}

/* ---- blocks, thread, captures ---- */

static void check_blocks(world *w, run *r) {
  vmm_block_info info;
  size_t i;

  world_enter(w, w->context);
  for (i = 0; i < w->block_count && w->pool != NULL; i++) {
    if (vmm_pool_find(w->pool, w->blocks[i].address, &info, NULL) != VMM_OK || info.address != w->blocks[i].address ||
        info.requested != w->blocks[i].size)
      broken(r, "promise 2: block %zu is not listed", i);
    if (!world_intact(w, &w->blocks[i])) broken(r, "promise 2: block %zu has lost its bytes", i);
  }
  world_leave(w);
}

/* A block in the order of the second stream: other work has to come after, or the simulator tells. Then all is done. */
void touch_in_order(world *w, const run *r, const block *fresh) {
  void *event = NULL;

  if (w->second == NULL) return;
  (void)vmm_sim_new_owner(w->base, fresh->address, fresh->size);
  if (!r->s->scrub) (void)vmm_raw_kernel_fill(w->base, w->second, fresh->address, fresh->size, 0);
  (void)vmm_raw_event_create(w->base, &event, 2);
  if (w->announced) (void)vmm_raw_event_record(w->base, event, w->second); /* a capture gets what is idle to everyone */
  else (void)vmm_raw_ctx_record_event(w->base, w->context, event);
  (void)vmm_sim_drain(w->base);
  (void)vmm_raw_event_query(w->base, event);
  (void)vmm_raw_event_destroy(w->base, event);
}

/* A block the call made: within the pool, really there, clean if that was asked for; then one of the old ones. */
static void check_new_block(world *w, run *r) {
  block fresh = {w->address, w->size / 4 * 4, w->block_count + 50};

  if (r->s->what != ALLOC) return;
  if (r->status != VMM_OK) {
    if (w->address != 0) broken(r, "promise 1: an address was given with an error");
    return;
  }
  if (!r->s->plain && (fresh.address < r->after.pool.address ||
                       fresh.address + w->size > r->after.pool.address + r->after.pool.reserved_bytes))
    broken(r, "promise 1: the address lies outside the pool");
  world_enter(w, w->context);
  touch_in_order(w, r, &fresh);
  if (r->s->scrub && !world_is_zero(w, fresh.address, w->size)) broken(r, "promise 7: the block was not scrubbed");
  if (!world_fill(w, w->base, &fresh) || !world_intact(w, &fresh)) broken(r, "promise 1: the block is not there");
  world_leave(w);
  w->blocks[w->block_count] = fresh;
  w->blocks[w->block_count++].size = w->size;
  w->blocks[w->block_count - 1].seed = fresh.seed;
  w->address = 0;
}

/* Some attempts are made; a driver that refuses for ever cannot be made to give the thread its own back. */
static bool restore_refused(const run *r, int op) {
  int i;

  for (i = 0; i < 2; i++)
    if (r->fault[i].op == op && r->fault[i].phase == VMM_FAULT_BEFORE && r->fault[i].times == VMM_FAULT_FOR_EVER)
      return true;
  return false;
}

static void check_thread(world *w, run *r) {
  int mode = 1;

  if (r->after.current != r->before.current) {
    if (restore_refused(r, VMM_OP_ctx_set_current)) apart(r);
    else broken(r, "promise 2: another context is current");
    (void)vmm_raw_ctx_set_current(w->base, w->guest);
  }
  if (r->after.mode != r->before.mode) {
    if (restore_refused(r, VMM_OP_capture_mode)) apart(r);
    else broken(r, "promise 2: the capture mode is %d", r->after.mode);
    (void)vmm_raw_capture_mode(w->base, &mode);
  }
}

/* An unmap of what is not mapped does no harm on a real driver (UNM-9); where the driver lied about the map, or the question
 * whether anything is mapped failed too, the library unmaps rather than forgets. */
static bool unmap_in_doubt(const run *r) {
  return code_given(r, VMM_CODE_ILLEGAL_ADDRESS) || faulted_as(r, VMM_OP_mem_map, VMM_FAULT_LIE) ||
         (faulted(r, VMM_OP_mem_get_access) && (faulted(r, VMM_OP_mem_map) || faulted(r, VMM_OP_mem_unmap)));
}

/* A lost device's work counts as done, as it is on a real one; here it may run on, for the loss is only told. */
void check_misuse(world *w, run *r, u64 known) {
  bool lost = code_given(r, VMM_CODE_ILLEGAL_ADDRESS);
  vmm_sim_misuse found[16];
  vmm_sim_ledger now;
  size_t count = 0, i;

  now.struct_size = sizeof now;
  (void)vmm_sim_get_ledger(w->base, 0, &now);
  if (now.captures_invalidated != 0 && !lost) broken(r, "promise 6: a capture was invalidated");
  if (now.double_releases != 0 && !faulted_as(r, VMM_OP_mem_release, VMM_FAULT_AFTER) &&
      !faulted_as(r, VMM_OP_mem_free, VMM_FAULT_AFTER) && !faulted_as(r, VMM_OP_mem_address_free, VMM_FAULT_AFTER) &&
      !r->fault[0].sticky)
    broken(r, "something was given back twice");
  (void)vmm_sim_get_misuse(w->base, found, 16, &count);
  for (i = 0; i < count && i < 16; i++) {
    if (found[i].kind == VMM_SIM_MISUSE_DOUBLE_RELEASE || (lost && found[i].kind == VMM_SIM_MISUSE_RACE) ||
        (lost && found[i].kind == VMM_SIM_MISUSE_TOUCH))
      continue;
    /* A mapping that a lost device refused to unmap goes with the process; its range is tried all the same. */
    if (lost && found[i].kind == VMM_SIM_MISUSE_FREE_MAPPED && faulted(r, VMM_OP_mem_unmap)) continue;
    if (found[i].kind == VMM_SIM_MISUSE_UNMAP_HOLE && unmap_in_doubt(r)) continue;
    if (i >= known) broken(r, "misuse by %s: %s", vmm_op_symbol(found[i].op), found[i].text);
  }
}

void promises_after(world *w, run *r) {
  bool lost = code_given(r, VMM_CODE_ILLEGAL_ADDRESS);
  vmm_error error;

  check_error(r);
  check_first_error(r);
  check_told(r);
  if (!is_sensible(r)) broken(r, "the status makes no sense");
  if (r->s->what == FREE && r->status != VMM_OK) broken(r, "promise 4: a free failed");
  check_time(r);
  check_retries(r);
  check_thread(w, r);
  check_accounts(w, r);
  if (w->pool != NULL && vmm_pool_check(w->pool, &error) != VMM_OK) broken(r, "pool check: %s", error.message);
  if (r->after.has_device && r->after.lost != lost) broken(r, "lost is %d", r->after.lost);
  if (!lost && r->status == VMM_OK && (r->s->what == DESTROY || r->s->what == CLOSE) &&
      was_refused(r, VMM_OP_event_destroy))
    broken(r, "nothing tells of the event that the driver kept");
  if (r->status != VMM_OK && r->s->stands == NOTHING && w->device != NULL) broken(r, "a failed open gave a device");
  if (r->status != VMM_OK && r->s->what == CREATE && w->pool != NULL) broken(r, "a failed create gave a pool");
  check_blocks(w, r);
  if (deceived(r)) {
    apart(r);
    return;
  }
  if (!lost || r->status != VMM_OK) check_new_block(w, r);
  if (global.cuda) return;
  check_misuse(w, r, 0);
  if (lost) return;
  check_ledger(r);
  check_peers(w, r, r->status == VMM_OK || r->error.undo_failures == 0);
}
