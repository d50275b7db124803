/* Announced captures and the leases on what was allocated and freed in them. Ends make no driver call themselves, so a call
 * comes with them that wants the memory: it must get it, and not before the work that is queued on it is done. */
#include "faults.h"

/* ---- what stands before ---- */

/* The pool and the device know the stream that will be captured. */
static void prepare_known(world *w) { world_give(w, world_take(w, w->granule, w->captured), w->captured); }

/* Memory that others have freed, some of it behind a context-wide fence: an announcement looks what is idle. */
static void prepare_begin(world *w) {
  u64 blocks[2];

  blocks[0] = world_take(w, w->granule, w->stream);
  blocks[1] = world_take(w, w->granule, w->second);
  if (w->failed) return;
  world_queue(w, w->stream, blocks[0], w->granule);
  world_give(w, blocks[0], w->stream);
  world_give(w, blocks[1], w->captured); /* which the pool has not met */
}

/* A block whose work was queued before the capture, and one of the capture's own, are freed in it. */
static void capture_two(world *w, int how) {
  u64 before = world_take(w, w->granule, w->captured), inside;

  if (!w->failed) world_queue(w, w->captured, before, w->granule);
  if (w->failed || world_capture(w, NULL) != VMM_OK) {
    w->failed = true;
    return;
  }
  inside = world_take(w, w->granule, w->captured);
  if (!w->failed) world_queue(w, w->captured, inside, w->granule);
  world_give(w, before, w->captured);
  world_give(w, inside, w->captured);
  if (how == VMM_CAPTURE_COMMITTED && !world_end_capture(w, how)) w->failed = true;
}

static void prepare_abort(world *w) { capture_two(w, VMM_CAPTURE_ABORTED); }

/* The graph is launched, and its work is not done. */
static void prepare_release(world *w) {
  capture_two(w, VMM_CAPTURE_COMMITTED);
  if (w->failed) return;
  world_enter(w, w->context);
  if (vmm_raw_graph_launch(w->base, w->executable, w->captured) != 0) w->failed = true;
  world_leave(w);
}

/* ---- the calls ---- */

static vmm_status alloc(world *w, u64 size, void *stream, vmm_error *error) {
  w->size = size;
  return vmm_pool_alloc_async(w->pool, size, stream, &w->address, error);
}

static vmm_status call_alloc(world *w, vmm_error *error) { return alloc(w, w->granule * 5 / 4, w->captured, error); }
static vmm_status call_alloc_fits(world *w, vmm_error *error) { return alloc(w, 1024, w->captured, error); }
static vmm_status call_alloc_home(world *w, vmm_error *error) {
  w->size = 2 * w->granule;
  return vmm_pool_alloc(w->pool, w->size, &w->address, error);
}

static vmm_status call_free(world *w, vmm_error *error) {
  vmm_status status = vmm_pool_free_async(w->pool, w->blocks[w->block_count - 1].address, w->captured, error);

  if (status == VMM_OK) w->block_count--;
  return status;
}

/* What ends a capture or a lease is done once, and has no reason to fail. */
static vmm_status abort_capture(world *w) {
  if (w->announced && !world_end_capture(w, VMM_CAPTURE_ABORTED)) w->failed = true;
  return w->announced ? VMM_ERROR_BROKEN : VMM_OK;
}

static vmm_status release(world *w, vmm_error *error) {
  vmm_status status = w->lease == NULL ? VMM_OK : vmm_lease_release(w->lease, error);

  if (status == VMM_OK) w->lease = NULL;
  return status;
}

static vmm_status trim(world *w, vmm_error *error) { return vmm_pool_trim(w->pool, 0, 0, NULL, error); }

static vmm_status call_abort_trim(world *w, vmm_error *error) {
  vmm_status status = abort_capture(w);

  return status == VMM_OK ? trim(w, error) : status;
}

static vmm_status call_release_alloc(world *w, vmm_error *error) {
  vmm_status status = release(w, error);

  return status == VMM_OK ? alloc(w, 2 * w->granule, w->second, error) : status;
}

#define CAPTURED .stands = POOL, .streams = true, .capture = true

const scenario capture_scenarios[] = {
    {.name = "capture-begin",
     .what = CAPTURE,
     .call = world_capture,
     .prepare = prepare_begin,
     .later = true,
     .events = 3,
     CAPTURED},
    {.name = "capture-begin-eager",
     .what = CAPTURE,
     .call = world_capture,
     .prepare = prepare_begin,
     .later = true,
     .eager = true,
     .events = 3,
     CAPTURED},
    {.name = "alloc-leased",
     .what = ALLOC,
     .call = call_alloc,
     .prepare = prepare_known,
     .policy = VMM_SYNC_DEVICE,
     .events = 2,
     CAPTURED},
    {.name = "alloc-leased-fits",
     .what = ALLOC,
     .call = call_alloc_fits,
     .prepare = prepare_known,
     .events = 2,
     CAPTURED},
    {.name = "alloc-leased-busy",
     .what = ALLOC,
     .call = call_alloc,
     .prepare = prepare_begin,
     .full = true,
     .events = 3,
     CAPTURED},
    {.name = "alloc-beside-capture",
     .what = ALLOC,
     .call = call_alloc_home,
     .prepare = prepare_begin,
     .events = 3,
     CAPTURED},
    {.name = "free-leased", .what = FREE, .call = call_free, .prepare = prepare_known, .events = 2, CAPTURED},
    {.name = "abort-trim",
     .what = TRIM,
     .call = call_abort_trim,
     .prepare = prepare_abort,
     .later = true,
     .events = 3,
     CAPTURED},
    {.name = "release-alloc",
     .what = ALLOC,
     .call = call_release_alloc,
     .prepare = prepare_release,
     .later = true,
     .full = true,
     .limit = 4,
     .events = 3,
     CAPTURED},
};

const size_t capture_scenario_count = sizeof capture_scenarios / sizeof capture_scenarios[0];
