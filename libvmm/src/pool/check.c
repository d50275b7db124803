/* The oracle: every invariant of index, mapping table and counters, against each other. */
#include "base/status.h"
#include "pool/pool.h"
#include "region/plain.h"

typedef struct sums {
  vmm__u64 live, detached, quarantined, blocks, pending;
} sums;

static const char *check_entry(vmm_pool *pool, const vmm__mapping *mapping, sums *sum) {
  const vmm__region *region = &pool->region;
  const vmm__handle *handle = mapping->handle;
  const vmm__u64 guard = region->plain ? VMM__PLAIN_GUARD : 0;
  vmm__u64 blocks = vmm__space_bytes_in(&pool->space, mapping->address, mapping->size);

  if (mapping->address < region->base || mapping->address - region->base > region->size - mapping->size)
    return "a mapping lies outside the reservation";
  if ((mapping->address - region->base) % region->granularity != 0 || mapping->size % region->granularity != 0)
    return "a mapping is not aligned to the granularity";
  if (handle == NULL || handle->raw == 0 || handle->size != mapping->size + guard)
    return "a mapping has no handle of its size";
  switch (mapping->state) {
    case VMM_MAPPING_LIVE:
      sum->live += mapping->size;
      break;
    case VMM__MAPPING_DETACHED:
    case VMM__MAPPING_LEAVING:
      sum->detached += mapping->size;
      sum->pending++;
      break;
    case VMM_MAPPING_QUARANTINED:
      sum->quarantined += mapping->size;
      break;
    default:
      return "a mapping has no known state";
  }
  if (blocks != 0 && mapping->state != VMM_MAPPING_LIVE) return "a block lies on a mapping that is not live";
  sum->blocks += blocks;
  return NULL;
}

static vmm__u64 ready_bytes(const vmm_pool *pool) {
  const vmm__handle *handle;
  vmm__u64 bytes = 0;

  for (handle = pool->ready; handle != NULL; handle = handle->next) bytes += handle->size;
  return bytes;
}

static const char *check_counters(const vmm_pool *pool, const sums *sum) {
  const vmm__pool_counters *counters = &pool->counters;
  const vmm__region *region = &pool->region;
  const vmm__space *space = &pool->space;

  if (sum->live + sum->detached != region->live_bytes) return "committed bytes are not the sum of the live mappings";
  if (sum->detached != pool->pending_bytes || sum->pending != pool->pending_count)
    return "pending bytes are not the sum of the pending mappings";
  if (sum->quarantined != region->quarantined_bytes) return "quarantined bytes are not the sum of those mappings";
  if (sum->blocks != space->block_bytes) return "a block lies outside the mappings";
  if (space->total_bytes + pool->held_bytes + sum->detached != region->live_bytes)
    return "the index does not cover the live mappings";
  if (counters->alloc_count - counters->free_count != space->block_count)
    return "allocs less frees are not the live blocks";
  if (counters->growth_bytes !=
      region->live_bytes + counters->trim_bytes + counters->moved_bytes + counters->quarantined_bytes)
    return "bytes grown are not those committed, trimmed, moved and quarantined";
  if (counters->committed_peak < region->live_bytes) return "committed bytes exceed their peak";
  if (counters->block_bytes_peak < space->block_bytes) return "block bytes exceed their peak";
  if (counters->block_count_peak < space->block_count) return "live blocks exceed their peak";
  if (space->requested_bytes > space->block_bytes) return "more bytes are asked for than blocks hold";
  if (ready_bytes(pool) != pool->ready_bytes) return "bytes put aside are not the sum of those handles";
  if (pool->fenced_frees > pool->ordered_frees) return "more frees are fenced than were made";
  if (pool->fence_frees > pool->ordered_frees) return "the fence covers more frees than were made";
  return NULL;
}

/* Under the structure lock and the pool lock. NULL if all is well. */
static const char *check(vmm_pool *pool) {
  sums sum = {0, 0, 0, 0, 0};
  const char *what = NULL;
  size_t i;

  if (!vmm__space_check(&pool->space, &what) || !vmm__mappings_check(&pool->region.mappings, &what)) return what;
  what = NULL;
  for (i = 0; i < pool->region.mappings.count && what == NULL; i++)
    what = check_entry(pool, vmm__mappings_at(&pool->region.mappings, i), &sum);
  return what != NULL ? what : check_counters(pool, &sum);
}

static const char *check_device(vmm_pool *pool) {
  vmm_device *device = pool->device;
  const char *what = NULL;

  vmm__lock_acquire(&device->lock);
  if (device->counters.handle_bytes < device->counters.idle_bytes) what = "more bytes are idle than held";
  if (device->counters.handle_bytes - device->counters.idle_bytes < pool->region.live_bytes + pool->ready_bytes)
    what = "the pool has more committed than the device holds";
  vmm__lock_release(&device->lock);
  return what;
}

vmm_status vmm_pool_check(vmm_pool *pool, vmm_error *error) {
  vmm__work work;
  vmm_status status = vmm__pool_refuse(pool, pool, "vmm_pool_check", error);
  const char *what;

  if (status != VMM_OK) return status;
  vmm__work_start(&work, pool->device, "vmm_pool_check", 0);
  if (!vmm__lock_acquire_within(&pool->device->structure, vmm__work_time_left(&work))) {
    (void)vmm__work_fail(&work, VMM_ERROR_TIMEOUT, "a growth or trim lasted beyond the deadline");
    return vmm__work_finish(&work, error);
  }
  vmm__lock_acquire(&pool->lock);
  what = check(pool);
  if (what == NULL) what = vmm__pool_streams_check(pool);
  if (what == NULL) what = check_device(pool);
  vmm__lock_release(&pool->lock);
  vmm__lock_release(&pool->device->structure);
  if (what != NULL) (void)vmm__work_fail(&work, VMM_ERROR_BROKEN, what);
  return vmm__work_finish(&work, error);
}
