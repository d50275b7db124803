/* Making a pool. */
#include <string.h>

#include "base/fork.h"
#include "base/memory.h"
#include "base/status.h"
#include "pool/ready.h"

static const vmm__u64 default_mapping_min = 2ull << 20, default_mapping_max = 64ull << 20, default_step = 64ull << 20;

enum { MOST_PEERS = 1024 }; /* far more than there are; nothing is allocated for a number that makes no sense */

vmm_status vmm_pool_options_init(vmm_pool_options *options, size_t size) {
  return vmm__options_init(options, size, sizeof(vmm_pool_options));
}

/* ---- create ---- */

static vmm__u64 mapping_max(const vmm_pool_options *options) {
  return options->mapping_max != 0 ? options->mapping_max : vmm__max(default_mapping_max, options->mapping_min);
}

static vmm_status check_options(vmm_pool_options *options, vmm_error *error) {
  if (options->mapping_min == 0) options->mapping_min = default_mapping_min;
  if (options->growth_ahead == 0) options->growth_ahead = options->mapping_max != 0 ? options->mapping_max : UINT64_MAX;
  if (options->growth_step == 0) options->growth_step = default_step;
  if (mapping_max(options) < options->mapping_min)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.mapping_max is below mapping_min");
  if (mapping_max(options) > (vmm__u64)1 << 62)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.mapping_min or mapping_max is too large");
  if (options->growth_policy < VMM_GROWTH_PROPORTIONAL || options->growth_policy > VMM_GROWTH_FIXED)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.growth_policy is unknown");
  if (options->background != 0 && options->background != 1)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.background is neither 0 nor 1");
  if (options->trim_threshold == 0 && options->trim_keep != 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.trim_keep is given without trim_threshold");
  if (options->trim_threshold != 0 && options->trim_keep == 0)
    options->trim_keep = vmm__max(options->trim_threshold / 2, vmm__min(options->headroom, options->trim_threshold));
  if (options->trim_keep > options->trim_threshold ||
      (options->trim_threshold != 0 && options->headroom > options->trim_keep))
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_pool_options: headroom, trim_keep and trim_threshold must not fall in this order");
  if (options->verify != VMM_VERIFY_ACCESS && options->verify != VMM_VERIFY_DATA)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.verify is unknown");
  if (options->scrub != 0 && options->scrub != 1)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.scrub is neither 0 nor 1");
  if (options->events != VMM_EVENTS_LAZY && options->events != VMM_EVENTS_EAGER)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.events is unknown");
  if (options->prefer_wait != 0 && options->prefer_wait != 1)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.prefer_wait is neither 0 nor 1");
  if (vmm__stream_is_per_thread(options->home_stream))
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_pool_options.home_stream is the per-thread default stream: another stream in every thread, "
                     "which orders nothing between them");
  if (options->peer_count != 0 && options->peers == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.peers is NULL");
  if (options->peer_count > MOST_PEERS)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_pool_options.peer_count is more than a machine has devices");
  if (options->reservation != 0 && options->initial > options->reservation)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.initial is larger than the reservation");
  if (options->limit != 0 && options->initial > options->limit)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_options.initial is larger than the limit");
  return VMM_OK;
}

vmm_status vmm__pool_find_peer(vmm__work *work, int ordinal, int *raw) {
  vmm_device *device = work->device;
  int count = 0;

  CU_CHECK(work, 0, 0, device_count, (device, &count));
  if (ordinal < 0 || ordinal >= count)
    return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "a peer is not the ordinal of a device");
  if (ordinal == device->ordinal)
    return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the device that owns the memory is named as its own peer");
  CU_CHECK(work, 0, 0, device_get, (device, raw, ordinal));
undo:
  return work->status;
}

static vmm_status find_peers(vmm__work *work, const vmm_pool_options *options, int *raw) {
  size_t i, k;

  for (i = 0; i < options->peer_count; i++) {
    if (vmm__pool_find_peer(work, options->peers[i], &raw[i]) != VMM_OK) return work->status;
    for (k = 0; k < i; k++)
      if (raw[k] == raw[i]) return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "a peer is named twice");
  }
  return VMM_OK;
}

/* The driver objects of a pool: its fence and its region. */
static vmm_status open_region(vmm_pool *pool, vmm__work *work, const vmm_pool_options *options, int *raw_peers) {
  vmm_device *device = pool->device;
  vmm__region_request request = {options->reservation, options->initial, options->verify, raw_peers,
                                 options->peer_count};

  if (vmm__work_lock(work) != VMM_OK) return work->status;
  if (find_peers(work, options, raw_peers) != VMM_OK) return work->status;
  CU_CHECK(work, 0, 0, event_create, (device, &pool->fence, VMM__EVENT_NO_TIMING));
  if (vmm__region_open(&pool->region, work, &pool->lock, &request) == VMM_OK) return VMM_OK;
  vmm__work_probe(work);
  (void)CU_UNDO(work, event_destroy, (device, pool->fence));
undo:
  return work->status;
}

void vmm__pool_release(vmm_pool *pool) {
  vmm_device *device = pool->device;

  vmm__space_destroy(&pool->space);
  vmm__lock_destroy(&pool->gather);
  vmm__lock_destroy(&pool->lock);
  vmm__memory_release(&device->memory, pool, 1, sizeof *pool);
}

static vmm_pool *new_pool(vmm_device *device, const vmm_pool_options *options) {
  vmm_pool *pool = vmm__memory_allocate(&device->memory, 1, sizeof *pool);

  if (pool == NULL) return NULL;
  pool->device = device;
  pool->limit = options->limit;
  pool->home_stream = options->home_stream;
  pool->scrub = options->scrub != 0;
  pool->eager = options->events == VMM_EVENTS_EAGER;
  pool->prefer_wait = options->prefer_wait != 0;
  pool->background = options->background != 0;
  pool->headroom = options->headroom;
  pool->trim_threshold = options->trim_threshold;
  pool->trim_keep = options->trim_keep;
  pool->mapping_min = options->mapping_min;
  pool->mapping_max = mapping_max(options);
  pool->bounded = options->mapping_max != 0;
  vmm__space_init(&pool->space, &device->memory, 0);
  if (vmm__lock_init(&pool->lock, VMM__RANK_POOL) && vmm__lock_init(&pool->gather, VMM__RANK_GATHER)) return pool;
  vmm__memory_release(&device->memory, pool, 1, sizeof *pool);
  return NULL;
}

static vmm_status forget_stream(vmm__client *client, vmm__work *work, const void *stream) {
  return vmm__pool_forget_stream(client->owner, work, stream);
}

static vmm_status prepare_lease(vmm__client *client, vmm__work *work) {
  vmm__pool_tidy(client->owner, work, false);
  return vmm__pool_prepare_lease(client->owner, work);
}

static void end_lease(vmm__client *client, vmm__u64 lease, bool idle) {
  vmm__pool_end_lease(client->owner, lease, idle);
}

static vmm_status create(vmm_pool **out, vmm__work *work, const vmm_pool_options *options, int *raw_peers) {
  vmm_device *device = work->device;
  vmm_pool *pool = new_pool(device, options);
  vmm__u64 grown;

  if (pool == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  if (open_region(pool, work, options, raw_peers) != VMM_OK) {
    vmm__work_unlock(work);
    vmm__pool_release(pool);
    return work->status;
  }
  vmm__work_unlock(work);
  (void)vmm__round_up(pool->mapping_min, pool->region.granularity, &pool->mapping_min); /* far below overflow */
  (void)vmm__round_up(pool->mapping_max, pool->region.granularity, &pool->mapping_max);
  pool->growth = (vmm__growth){.policy = options->growth_policy,
                               .step = options->growth_step,
                               .mapping_min = pool->mapping_min,
                               .mapping_max = pool->mapping_max,
                               .ahead_max = vmm__max(options->growth_ahead, pool->mapping_min),
                               .small = vmm__growth_small(device->info.total_bytes),
                               .granularity = pool->region.plain ? device->info.granularity : pool->region.granularity};
  vmm__space_destroy(&pool->space);
  vmm__space_init(&pool->space, &device->memory, pool->region.base);
  pool->client.base = pool->region.base;
  pool->client.size = pool->region.size;
  pool->client.owner = pool;
  pool->client.forget_stream = forget_stream;
  pool->client.prepare_lease = prepare_lease;
  pool->client.end_lease = end_lease;
  vmm__device_add_client(device, &pool->client);
  if (vmm__pool_streams_open(pool, work) == VMM_OK &&
      (!vmm__captures_announced(device) || vmm__pool_prepare_lease(pool, work) == VMM_OK) &&
      (options->initial == 0 || vmm__pool_grow_ahead(pool, work, options->initial, &grown) == VMM_OK) &&
      vmm__ready_start(pool, work) == VMM_OK) {
    vmm__pool_count_work(pool, work);
    *out = pool;
    return VMM_OK;
  }
  return work->status == VMM_OK ? VMM_OK : vmm__pool_abandon(pool, work);
}

vmm_status vmm_pool_create(vmm_pool **pool, vmm_device *device, const vmm_pool_options *options, vmm_error *error) {
  vmm_pool_options known;
  vmm__work work;
  int *raw_peers = NULL;
  vmm_status status;

  if (pool != NULL) *pool = NULL;
  if (vmm__forked()) return vmm__fail_forked(error, "vmm_pool_create");
  if (pool == NULL || device == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_create: pool or device is NULL");
  status = vmm__options_read(&known, sizeof known, sizeof known, options, "vmm_pool_options", error);
  if (status == VMM_OK) status = check_options(&known, error);
  if (status != VMM_OK) return status;
  vmm__work_start(&work, device, "vmm_pool_create", 0);
  if (vmm__device_lost(device)) {
    (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
  } else {
    raw_peers = vmm__memory_allocate(&device->memory, known.peer_count, sizeof *raw_peers);
    if (raw_peers == NULL) (void)vmm__work_fail(&work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    else (void)create(pool, &work, &known, raw_peers);
  }
  vmm__memory_release(&device->memory, raw_peers, known.peer_count, sizeof *raw_peers);
  return vmm__work_finish(&work, error);
}
