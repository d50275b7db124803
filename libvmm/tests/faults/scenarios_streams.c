/* The operations in the order of streams. Two streams besides the home stream, which is the legacy one; work of 0.2 ms is
 * queued where something is to be waited for. */
#include <string.h>

#include "faults.h"

enum { WORK_NS = 200000 }; /* of world_queue */

/* ---- what stands before ---- */

/* Both streams have used the pool, and the first has freed a granule whose work is not done. */
static void prepare_busy(world *w) {
  u64 address;

  world_give(w, world_take(w, 256, w->second), w->second);
  address = world_take(w, w->granule, w->stream);
  world_queue(w, w->stream, address, w->granule);
  world_give(w, address, w->stream);
}

/* ... and it is done. */
static void prepare_done(world *w) {
  prepare_busy(w);
  vmm_driver_wait(w->base, 10 * WORK_NS);
}

/* What the second has sealed too, and has freed since. */
static void prepare_several(world *w) {
  u64 blocks[3];
  int i;

  prepare_busy(w);
  for (i = 0; i < 3; i++) blocks[i] = world_take(w, w->granule, i == 1 ? w->second : w->stream);
  for (i = 0; i < 3 && !w->failed; i++) world_queue(w, i == 1 ? w->second : w->stream, blocks[i], w->granule);
  world_give(w, blocks[0], w->stream);
  world_give(w, world_take(w, w->granule, w->second), w->second); /* looks at the first's */
  world_give(w, blocks[1], w->second);
  world_give(w, blocks[2], w->stream);
}

/* The block that is freed is the last one; its own work is queued on both streams. */
static void prepare_free(world *w) {
  world_give(w, world_take(w, 256, w->second), w->second);
  if (w->failed || vmm_pool_alloc_async(w->pool, 256, w->stream, &w->address, NULL) != VMM_OK) {
    w->failed = true;
    return;
  }
  world_give(w, w->address, w->stream);
  w->address = 0;
  world_queue(w, w->stream, w->blocks[w->block_count - 1].address, 256);
  world_enter(w, w->context);
  if (!world_fill(w, w->base, &w->blocks[w->block_count - 1])) w->failed = true;
  world_leave(w);
}

static void prepare_destroy(world *w) {
  prepare_several(w);
  while (!w->failed && w->block_count != 0) world_drop(w, 0, false);
}

/* ---- the calls ---- */

static vmm_status alloc(world *w, u64 size, void *stream, unsigned flags, vmm_error *error) {
  vmm_request request;

  w->size = size;
  if (flags == 0) return vmm_pool_alloc_async(w->pool, size, stream, &w->address, error);
  (void)vmm_request_init(&request, sizeof request);
  request.size = size;
  request.flags = flags | VMM_REQUEST_ON_STREAM;
  request.stream = stream;
  return vmm_pool_alloc_with(w->pool, &request, &w->address, error);
}

static vmm_status call_alloc_fits(world *w, vmm_error *error) { return alloc(w, 1024, w->stream, 0, error); }
static vmm_status call_alloc_granule(world *w, vmm_error *error) { return alloc(w, w->granule, w->second, 0, error); }
static vmm_status call_alloc_scrub(world *w, vmm_error *error) {
  return alloc(w, w->granule + 256, w->second, VMM_REQUEST_SCRUB, error);
}

static vmm_status freed(world *w, vmm_status status) {
  if (status == VMM_OK) w->block_count--;
  return status;
}

static vmm_status call_free(world *w, vmm_error *error) {
  return freed(w, vmm_pool_free_async(w->pool, w->blocks[w->block_count - 1].address, w->stream, error));
}

static vmm_status call_free_multi(world *w, vmm_error *error) {
  void *streams[2] = {w->stream, w->second};

  return freed(w, vmm_pool_free_multi(w->pool, w->blocks[w->block_count - 1].address, streams, 2, error));
}

static vmm_status call_forget(world *w, vmm_error *error) {
  return vmm_device_forget_stream(w->device, w->stream, error);
}

static vmm_status call_destroy(world *w, vmm_error *error) {
  vmm_status status = vmm_pool_destroy(w->pool, VMM_DESTROY_IDLE, error);

  if (status == VMM_OK || status == VMM_ERROR_PARTIAL) w->pool = NULL;
  return status;
}

static vmm_status call_trim(world *w, vmm_error *error) { return vmm_pool_trim(w->pool, 0, 0, NULL, error); }

#define STREAMS .stands = POOL, .streams = true

const scenario stream_scenarios[] = {
    {.name = "async", .what = ALLOC, .call = call_alloc_fits, .events = 1, STREAMS},
    {.name = "async-eager", .what = ALLOC, .call = call_alloc_fits, .eager = true, .events = 1, STREAMS},
    {.name = "async-gather",
     .what = ALLOC,
     .call = call_alloc_granule,
     .prepare = prepare_done,
     .full = true,
     .events = 3,
     STREAMS},
    {.name = "async-gather-eager",
     .what = ALLOC,
     .call = call_alloc_granule,
     .prepare = prepare_done,
     .full = true,
     .eager = true,
     .events = 3,
     STREAMS},
    {.name = "async-wait",
     .what = ALLOC,
     .call = call_alloc_granule,
     .prepare = prepare_busy,
     .full = true,
     .wait = true,
     .events = 3,
     STREAMS},
    {.name = "async-wait-eager",
     .what = ALLOC,
     .call = call_alloc_granule,
     .prepare = prepare_busy,
     .full = true,
     .wait = true,
     .eager = true,
     .events = 3,
     STREAMS},
    {.name = "async-limit",
     .what = ALLOC,
     .call = call_alloc_granule,
     .prepare = prepare_busy,
     .full = true,
     .limit = 2,
     .events = 3,
     STREAMS},
    {.name = "async-scrub",
     .what = ALLOC,
     .call = call_alloc_scrub,
     .prepare = prepare_busy,
     .full = true,
     .scrub = 1,
     .events = 3,
     STREAMS},
    {.name = "free-async", .what = FREE, .call = call_free, .prepare = prepare_free, .events = 3, STREAMS},
    {.name = "free-async-eager",
     .what = FREE,
     .call = call_free,
     .prepare = prepare_free,
     .eager = true,
     .events = 3,
     STREAMS},
    {.name = "free-async-stranger", .what = FREE, .call = call_free, .events = 3, STREAMS},
    {.name = "free-async-stranger-eager", .what = FREE, .call = call_free, .eager = true, .events = 3, STREAMS},
    {.name = "free-multi", .what = FREE, .call = call_free_multi, .prepare = prepare_free, .events = 3, STREAMS},
    {.name = "forget-pending", .what = STREAM, .call = call_forget, .prepare = prepare_several, .events = 3, STREAMS},
    {.name = "trim-several", .what = TRIM, .call = call_trim, .prepare = prepare_several, .events = 3, STREAMS},
    {.name = "destroy-several",
     .what = DESTROY,
     .call = call_destroy,
     .prepare = prepare_destroy,
     .events = 3,
     STREAMS},
    {.name = "destroy-several-eager",
     .what = DESTROY,
     .call = call_destroy,
     .prepare = prepare_destroy,
     .eager = true,
     .events = 3,
     STREAMS},
};

const size_t stream_scenario_count = sizeof stream_scenarios / sizeof stream_scenarios[0];
