/* The operations under test, each with what stands before it. A call that fails is made once more when the fault is gone,
 * so each can be repeated as it stands. */
#include <string.h>

#include "faults.h"

/* ---- open, create ---- */

static vmm_status call_open(world *w, vmm_error *error) {
  vmm_device_options options;

  world_device_options(w, &options);
  return vmm_device_open(&w->device, 0, &options, error);
}

static vmm_status call_create(world *w, vmm_error *error) {
  vmm_pool_options options;

  world_pool_options(w, &options);
  return vmm_pool_create(&w->pool, w->device, &options, error);
}

/* By the ladder: no reservation is named. */
static vmm_status call_create_default(world *w, vmm_error *error) {
  vmm_pool_options options;

  world_pool_options(w, &options);
  options.reservation = 0;
  return vmm_pool_create(&w->pool, w->device, &options, error);
}

/* ---- alloc, grow ---- */

static vmm_status alloc(world *w, u64 size, unsigned flags, vmm_error *error) {
  vmm_request request;

  w->size = size;
  if (flags == 0) return vmm_pool_alloc(w->pool, size, &w->address, error);
  (void)vmm_request_init(&request, sizeof request);
  request.size = size;
  request.flags = flags;
  return vmm_pool_alloc_with(w->pool, &request, &w->address, error);
}

/* More than the free tail: one mapping, on top of the tail where there is one. */
static vmm_status call_alloc(world *w, vmm_error *error) { return alloc(w, w->granule + w->granule / 4, 0, error); }
static vmm_status call_alloc_one(world *w, vmm_error *error) {
  return alloc(w, w->granule, VMM_REQUEST_ONE_MAPPING, error);
}
static vmm_status call_alloc_fits(world *w, vmm_error *error) { return alloc(w, 1024, 0, error); }
static vmm_status call_alloc_beyond(world *w, vmm_error *error) { return alloc(w, 5 * w->granule, 0, error); }
static vmm_status call_alloc_two(world *w, vmm_error *error) { return alloc(w, 2 * w->granule, 0, error); }

static vmm_status call_alloc_four(world *w, vmm_error *error) { return alloc(w, 4 * w->granule, 0, error); }

static vmm_status call_grow(world *w, vmm_error *error) {
  return vmm_pool_grow(w->pool, 5 * w->granule, NULL, error); /* three pieces */
}

/* Handles of one and two granules lie idle. */
static void prepare_idle(world *w) {
  size_t first = w->block_count;

  (void)world_block(w, w->granule);
  (void)world_block(w, 2 * w->granule);
  while (!w->failed && w->block_count > first) world_drop(w, first, true);
  if (!w->failed && vmm_pool_trim(w->pool, 0, 0, NULL, NULL) != VMM_OK) w->failed = true;
}

static vmm_status call_grow_async(world *w, vmm_error *error) {
  return vmm_pool_grow_async(w->pool, 5 * w->granule, error); /* three pieces */
}

static vmm_status call_poll(world *w, vmm_error *error);

static void prepare_ready(world *w) {
  if (vmm_pool_grow_async(w->pool, 4 * w->granule, NULL) != VMM_OK) w->failed = true;
}

/* Three idle mappings in holes, which the GPU is done with; nobody asked it yet. */
static void prepare_move(world *w) {
  size_t first = w->block_count, i;

  for (i = 0; i < 6; i++) (void)world_block(w, w->granule);
  for (i = 0; i < 3 && !w->failed; i++) world_drop(w, first + i, i == 0);
}

/* Memory is short: an idle mapping in a hole has to be given back before there is enough. */
static void prepare_short(world *w) {
  vmm_sim_ledger ledger;

  (void)world_block(w, w->granule);
  (void)world_block(w, w->granule);
  if (w->failed) return;
  world_drop(w, w->block_count - 2, false);
  ledger.struct_size = sizeof ledger;
  if (vmm_sim_get_ledger(w->base, 0, &ledger) != VMM_OK ||
      vmm_sim_set_used_by_others(w->base, 0, ledger.free_bytes - w->granule) != VMM_OK)
    w->failed = true;
}

static vmm_status call_would_fit(world *w, vmm_error *error) {
  u64 sizes[3] = {w->granule, 256, 3 * w->granule}, grow = 0;

  return vmm_pool_would_fit(w->pool, sizes, 3, &grow, error);
}

/* ---- free, trim ---- */

static vmm_status call_free(world *w, vmm_error *error) {
  u64 address = w->blocks[w->block_count - 1].address;
  vmm_status status = vmm_pool_free(w->pool, address, error);

  if (status == VMM_OK) w->block_count--;
  return status;
}

/* Three mappings become idle, and work is queued on them still. */
static void prepare_trim(world *w) {
  size_t first = w->block_count, i;

  for (i = 0; i < 3; i++) (void)world_block(w, w->granule);
  if (w->failed) return;
  world_enter(w, w->context);
  if (vmm_raw_kernel_spin(w->base, w->stream, 200000) != 0 ||
      vmm_raw_kernel_fill(w->base, w->stream, w->blocks[first].address, w->granule, 7) != 0)
    w->failed = true;
  world_leave(w);
  while (w->block_count > first) world_drop(w, first, false);
}

static void prepare_trim_idle(world *w) {
  size_t first = w->block_count, i;

  for (i = 0; i < 2; i++) (void)world_block(w, w->granule);
  while (!w->failed && w->block_count > first) world_drop(w, first, true);
}

static vmm_status call_trim(world *w, vmm_error *error) { return vmm_pool_trim(w->pool, 0, 0, NULL, error); }
static vmm_status call_trim_async(world *w, vmm_error *error) {
  return vmm_pool_trim_async(w->pool, 0, NULL, NULL, error);
}
static vmm_status call_poll(world *w, vmm_error *error) { return vmm_pool_poll(w->pool, NULL, NULL, error); }

/* What a trim left behind, and nothing uses any more. */
static void prepare_pending(world *w) {
  prepare_trim(w);
  if (w->failed) return;
  if (vmm_pool_trim_async(w->pool, 0, NULL, NULL, NULL) != VMM_OK) w->failed = true;
  vmm_driver_wait(w->base, 1000000);
}

static vmm_status call_device_trim(world *w, vmm_error *error) {
  return vmm_device_trim(w->device, w->granule, NULL, error);
}

/* ---- peers ---- */

/* Mappings with a gap between them: two grants. */
static void prepare_peer(world *w) {
  (void)world_block(w, w->granule);
  (void)world_block(w, w->granule);
  if (w->failed) return;
  world_drop(w, w->block_count - 2, true);
  if (vmm_pool_trim(w->pool, 0, 0, NULL, NULL) != VMM_OK) w->failed = true;
}

static vmm_status call_add_peer(world *w, vmm_error *error) { return vmm_pool_add_peer(w->pool, 1, error); }

/* ---- ends ---- */

static void prepare_destroy(world *w) {
  prepare_trim(w);
  while (!w->failed && w->block_count != 0) world_drop(w, 0, false);
}

static void prepare_destroy_ready(world *w) {
  prepare_ready(w);
  while (!w->failed && w->block_count != 0) world_drop(w, 0, false);
}

/* Work on live blocks is queued where the library cannot know. */
static void prepare_forced(world *w) {
  (void)world_block(w, w->granule);
  if (w->failed) return;
  world_enter(w, w->context);
  if (vmm_raw_kernel_spin(w->base, w->stream, 200000) != 0 || !world_fill(w, w->base, &w->blocks[2])) w->failed = true;
  world_leave(w);
}

static vmm_status destroy(world *w, int mode, vmm_error *error) {
  vmm_status status = vmm_pool_destroy(w->pool, mode, error);

  if (status == VMM_OK || status == VMM_ERROR_PARTIAL) {
    w->pool = NULL;
    w->block_count = 0;
  }
  return status;
}

static vmm_status call_destroy(world *w, vmm_error *error) { return destroy(w, VMM_DESTROY_IDLE, error); }
static vmm_status call_destroy_forced(world *w, vmm_error *error) { return destroy(w, VMM_DESTROY_FORCED, error); }

/* Idle handles, a registered stream, and the buffer of verify=data. */
static void prepare_close(world *w) {
  world_enter(w, w->context);
  if (vmm_raw_stream_create(w->base, &w->stream, 1) != 0) w->failed = true;
  world_leave(w);
  if (vmm_device_register_stream(w->device, w->stream, NULL) != VMM_OK) w->failed = true;
  prepare_idle(w);
  while (!w->failed && w->block_count != 0) world_drop(w, 0, true);
  if (!w->failed && destroy(w, VMM_DESTROY_IDLE, NULL) != VMM_OK) w->failed = true;
}

static vmm_status call_close(world *w, vmm_error *error) {
  vmm_status status = vmm_device_close(w->device, error);

  if (status == VMM_OK || status == VMM_ERROR_PARTIAL) w->device = NULL;
  return status;
}

/* ---- streams ---- */

static void prepare_stream(world *w) {
  if (w->stream == NULL) w->failed = true;
}

static void prepare_registered(world *w) {
  if (vmm_device_register_stream(w->device, w->stream, NULL) != VMM_OK) w->failed = true;
}

static vmm_status call_register(world *w, vmm_error *error) {
  return vmm_device_register_stream(w->device, w->stream, error);
}

static vmm_status call_forget(world *w, vmm_error *error) {
  return vmm_device_forget_stream(w->device, w->stream, error);
}

/* ---- without virtual memory management: allocations are of whole 2 MiB ---- */

static vmm_status call_alloc_plain(world *w, vmm_error *error) { return alloc(w, 3 << 20, 0, error); }

static void prepare_ready_plain(world *w) {
  if (vmm_pool_grow_async(w->pool, 3 << 20, NULL) != VMM_OK) w->failed = true;
}

static void prepare_trim_plain(world *w) {
  size_t first = w->block_count, i;

  for (i = 0; i < 2; i++) (void)world_block(w, 3 << 20);
  while (!w->failed && w->block_count > first) world_drop(w, first, false);
}

static void prepare_destroy_plain(world *w) {
  prepare_trim_plain(w);
  while (!w->failed && w->block_count != 0) world_drop(w, 0, false);
}

const scenario scenarios[] = {
    {.name = "open", .what = OPEN, .stands = NOTHING, .call = call_open, .gpu = true},
    {.name = "open-context", .what = OPEN, .stands = NOTHING, .call = call_open, .given_context = true},
    {.name = "create", .what = CREATE, .stands = DEVICE, .call = call_create, .gpu = true},
    {.name = "create-default", .what = CREATE, .stands = DEVICE, .call = call_create_default},
    {.name = "create-initial", .what = CREATE, .stands = DEVICE, .call = call_create, .initial = 3, .gpu = true},
    {.name = "create-data",
     .what = CREATE,
     .stands = DEVICE,
     .call = call_create,
     .initial = 1,
     .verify = 1,
     .gpu = true},
    {.name = "create-peer", .what = CREATE, .stands = DEVICE, .call = call_create, .initial = 1, .peer = true},
    {.name = "alloc", .what = ALLOC, .stands = POOL, .call = call_alloc, .full = true, .gpu = true},
    {.name = "alloc-tail", .what = ALLOC, .stands = POOL, .call = call_alloc, .gpu = true},
    {.name = "alloc-one", .what = ALLOC, .stands = POOL, .call = call_alloc_one, .gpu = true},
    {.name = "alloc-scrub", .what = ALLOC, .stands = POOL, .call = call_alloc, .scrub = 1, .gpu = true},
    {.name = "alloc-scrub-fits", .what = ALLOC, .stands = POOL, .call = call_alloc_fits, .scrub = 1, .gpu = true},
    {.name = "alloc-idle",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_two,
     .full = true,
     .idle = true,
     .prepare = prepare_idle,
     .gpu = true},
    {.name = "alloc-parts",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_four,
     .full = true,
     .idle = true,
     .exact = true,
     .prepare = prepare_idle},
    {.name = "alloc-move",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_four,
     .full = true,
     .exact = true,
     .prepare = prepare_move},
    {.name = "alloc-move-idle",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_four,
     .full = true,
     .idle = true,
     .exact = true,
     .prepare = prepare_move},
    {.name = "alloc-ready",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_four,
     .full = true,
     .exact = true,
     .prepare = prepare_ready},
    {.name = "alloc-device", .what = ALLOC, .stands = POOL, .call = call_alloc, .policy = VMM_SYNC_DEVICE, .gpu = true},
    {.name = "alloc-streams",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc,
     .policy = VMM_SYNC_STREAMS,
     .home = true,
     .prepare = prepare_registered,
     .gpu = true},
    {.name = "alloc-old",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc,
     .policy = VMM_SYNC_DEVICE,
     .driver_version = 12000},
    {.name = "alloc-capture",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc,
     .policy = VMM_SYNC_DEVICE,
     .capture = true,
     .prepare = prepare_registered},
    {.name = "alloc-short",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_two,
     .full = true,
     .prepare = prepare_short},
    {.name = "grow", .what = GROW, .stands = POOL, .call = call_grow, .gpu = true},
    {.name = "grow-data", .what = GROW, .stands = POOL, .call = call_grow, .verify = 1, .gpu = true},
    {.name = "grow-peer", .what = GROW, .stands = POOL, .call = call_grow, .peer = true},
    {.name = "open-plain", .what = OPEN, .stands = NOTHING, .call = call_open, .plain = true},
    {.name = "create-plain", .what = CREATE, .stands = DEVICE, .call = call_create, .initial = 3, .plain = true},
    {.name = "alloc-plain", .what = ALLOC, .stands = POOL, .call = call_alloc_plain, .plain = true},
    {.name = "alloc-plain-data", .what = ALLOC, .stands = POOL, .call = call_alloc_plain, .verify = 1, .plain = true},
    {.name = "alloc-plain-ready",
     .what = ALLOC,
     .stands = POOL,
     .call = call_alloc_plain,
     .prepare = prepare_ready_plain,
     .plain = true},
    {.name = "trim-plain",
     .what = TRIM,
     .stands = POOL,
     .call = call_trim,
     .prepare = prepare_trim_plain,
     .plain = true},
    {.name = "destroy-plain",
     .what = DESTROY,
     .stands = POOL,
     .call = call_destroy,
     .prepare = prepare_destroy_plain,
     .plain = true},
    {.name = "grow-async", .what = READY, .stands = POOL, .call = call_grow_async, .gpu = true},
    {.name = "poll-ready", .what = READY, .stands = POOL, .call = call_poll, .prepare = prepare_ready, .gpu = true},
    {.name = "destroy-ready", .what = DESTROY, .stands = POOL, .call = call_destroy, .prepare = prepare_destroy_ready},
    {.name = "would-fit", .what = FIT, .stands = POOL, .call = call_would_fit, .gpu = true},
    {.name = "free", .what = FREE, .stands = POOL, .call = call_free, .gpu = true},
    {.name = "trim", .what = TRIM, .stands = POOL, .call = call_trim, .prepare = prepare_trim, .gpu = true},
    {.name = "trim-idle", .what = TRIM, .stands = POOL, .call = call_trim, .idle = true, .prepare = prepare_trim_idle},
    {.name = "trim-async", .what = TRIM, .stands = POOL, .call = call_trim_async, .prepare = prepare_trim, .gpu = true},
    {.name = "poll", .what = TRIM, .stands = POOL, .call = call_poll, .prepare = prepare_pending, .gpu = true},
    {.name = "alloc-pending", .what = ALLOC, .stands = POOL, .call = call_alloc_beyond, .prepare = prepare_pending},
    {.name = "alloc-revived", .what = ALLOC, .stands = POOL, .call = call_alloc_two, .prepare = prepare_pending},
    {.name = "trim-capture",
     .what = TRIM,
     .stands = POOL,
     .call = call_trim,
     .capture = true,
     .home = true,
     .prepare = prepare_trim},
    {.name = "add-peer", .what = PEER, .stands = POOL, .call = call_add_peer, .prepare = prepare_peer},
    {.name = "destroy", .what = DESTROY, .stands = POOL, .call = call_destroy, .prepare = prepare_destroy, .gpu = true},
    {.name = "destroy-forced",
     .what = DESTROY,
     .stands = POOL,
     .call = call_destroy_forced,
     .prepare = prepare_forced,
     .gpu = true},
    {.name = "device-trim",
     .what = DEVICE_TRIM,
     .stands = POOL,
     .call = call_device_trim,
     .idle = true,
     .prepare = prepare_idle,
     .gpu = true},
    {.name = "close",
     .what = CLOSE,
     .stands = POOL,
     .call = call_close,
     .idle = true,
     .verify = 1,
     .prepare = prepare_close,
     .gpu = true},
    {.name = "register-stream",
     .what = STREAM,
     .stands = DEVICE,
     .call = call_register,
     .home = true,
     .prepare = prepare_stream},
    {.name = "forget-stream",
     .what = STREAM,
     .stands = DEVICE,
     .call = call_forget,
     .home = true,
     .prepare = prepare_registered},
};

const size_t scenario_count = sizeof scenarios / sizeof scenarios[0];
