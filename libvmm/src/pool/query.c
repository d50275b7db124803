/* What can be asked of a pool: blocks by address, listings, statistics. Nothing here waits for a growth. */
#include <string.h>

#include "base/fork.h"
#include "base/status.h"
#include "pool/pool.h"

static vmm_block_info block_info(const vmm__block *block) {
  vmm_block_info info = {block->address, block->size, block->requested, block->tag};

  return info;
}

static vmm_status unknown(vmm__u64 address, const char *function, vmm_error *error) {
  vmm_status status = vmm__fail_in(error, VMM_ERROR_UNKNOWN_ADDRESS, function, "no live block holds the address");

  if (error != NULL) error->address = address;
  return status;
}

static vmm_status find(vmm_pool *pool, vmm__u64 address, vmm_block_info *block, const char *function,
                       vmm_error *error) {
  vmm__block found;
  bool is;

  vmm__lock_acquire(&pool->lock);
  is = vmm__space_find(&pool->space, address, &found);
  vmm__lock_release(&pool->lock);
  if (!is) return unknown(address, function, error);
  if (block != NULL) *block = block_info(&found);
  return VMM_OK;
}

vmm_status vmm_pool_find(vmm_pool *pool, unsigned long long address, vmm_block_info *block, vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, block, "vmm_pool_find", error);

  return status == VMM_OK ? find(pool, address, block, "vmm_pool_find", error) : status;
}

/* Plain allocations lie anywhere: no range tells whose an address is. */
static vmm_status find_in_all(vmm_device *device, vmm__u64 address, vmm_pool **pool, vmm_block_info *block,
                              vmm_error *error) {
  vmm__client *client = NULL;

  while ((client = vmm__device_next_client(device, client)) != NULL) {
    if (find(client->owner, address, block, "vmm_device_find", NULL) != VMM_OK) continue;
    *pool = client->owner;
    vmm__device_unpin_client(device, client);
    return VMM_OK;
  }
  return unknown(address, "vmm_device_find", error);
}

vmm_status vmm_device_find(vmm_device *device, unsigned long long address, vmm_pool **pool, vmm_block_info *block,
                           vmm_error *error) {
  vmm__client *client;
  vmm_status status;

  if (pool != NULL) *pool = NULL;
  if (vmm__forked()) return vmm__fail_forked(error, "vmm_device_find");
  if (device == NULL || pool == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_find: device or pool is NULL");
  if (device->info.fallback != 0) return find_in_all(device, address, pool, block, error);
  client = vmm__device_pin_client(device, address);
  if (client == NULL) return unknown(address, "vmm_device_find", error);
  status = find(client->owner, address, block, "vmm_device_find", error);
  if (status == VMM_OK) *pool = client->owner;
  vmm__device_unpin_client(device, client);
  return status;
}

static vmm_status refuse_listing(const vmm_pool *pool, const void *array, size_t capacity, const size_t *count,
                                 const char *function, vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, count, function, error);

  if (status == VMM_OK && array == NULL && capacity != 0)
    return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function, "the array is NULL, but its capacity is not 0");
  return status;
}

vmm_status vmm_pool_get_blocks(vmm_pool *pool, vmm_block_info *array, size_t capacity, size_t *count,
                               vmm_error *error) {
  vmm_status status = refuse_listing(pool, array, capacity, count, "vmm_pool_get_blocks", error);
  vmm__u64 from;
  vmm__block block;
  size_t i = 0;

  if (status != VMM_OK) return status;
  vmm__lock_acquire(&pool->lock);
  for (from = pool->region.base; i < capacity && vmm__space_next_block(&pool->space, from, &block); i++) {
    array[i] = block_info(&block);
    from = block.address + block.size;
  }
  *count = (size_t)pool->space.block_count;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

vmm_status vmm_pool_get_mappings(vmm_pool *pool, vmm_mapping_info *array, size_t capacity, size_t *count,
                                 vmm_error *error) {
  vmm_status status = refuse_listing(pool, array, capacity, count, "vmm_pool_get_mappings", error);
  const vmm__mappings *table;
  size_t i;

  if (status != VMM_OK) return status;
  vmm__lock_acquire(&pool->lock);
  table = &pool->region.mappings;
  for (i = 0; i < table->count && i < capacity; i++) {
    const vmm__mapping *mapping = vmm__mappings_at(table, i);
    bool quarantined = mapping->state == VMM_MAPPING_QUARANTINED;

    memset(&array[i], 0, sizeof array[i]);
    array[i].address = mapping->address;
    array[i].size = mapping->size;
    array[i].handle = ((const vmm__handle *)mapping->handle)->raw;
    array[i].generation = mapping->generation;
    array[i].block_bytes = quarantined ? 0 : vmm__space_bytes_in(&pool->space, mapping->address, mapping->size);
    array[i].state = mapping->state == VMM__MAPPING_LEAVING ? VMM_MAPPING_PENDING : mapping->state;
  }
  *count = table->count;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

static vmm__u64 trimmable(vmm_pool *pool) {
  vmm__idle_walk walk = {{0, 0, 0, 0}, 0, 0};
  const vmm__mapping *mapping;
  vmm__u64 bytes = pool->pending_bytes;

  while ((mapping = vmm__idle_next(pool, &walk)) != NULL) bytes += mapping->size;
  return bytes;
}

static vmm__u64 leased(const vmm_pool *pool) {
  const vmm__pool_lease *lease;
  vmm__u64 bytes = vmm__space_arena_bytes(&pool->space, pool->shut);

  for (lease = pool->leases; lease != NULL; lease = lease->next)
    bytes += vmm__space_arena_bytes(&pool->space, lease->entry.open);
  return bytes;
}

/* The highest generation in a range; false if part of it is not mapped. Pool lock. */
static bool generation_of(const vmm_pool *pool, vmm__u64 address, vmm__u64 size, unsigned long long *generation) {
  const vmm__mappings *table = &pool->region.mappings;
  vmm__u64 end;
  size_t i = vmm__mappings_lower_bound(table, address);

  *generation = 0;
  if (!vmm__add(address, size, &end)) return false;
  for (; address < end; i++) {
    const vmm__mapping *mapping = i < table->count ? vmm__mappings_at(table, i) : NULL;

    if (mapping == NULL || mapping->address > address || mapping->state == VMM_MAPPING_QUARANTINED) return false;
    if (mapping->generation > *generation) *generation = mapping->generation;
    address = mapping->address + mapping->size;
  }
  return true;
}

vmm_status vmm_pool_get_generation(vmm_pool *pool, unsigned long long address, unsigned long long size,
                                   unsigned long long *generation, vmm_error *error) {
  const char *function = "vmm_pool_get_generation";
  vmm_status status = vmm__pool_refuse(pool, generation, function, error);
  bool mapped;

  if (status != VMM_OK) return status;
  if (size == 0) return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function, "size is 0");
  vmm__lock_acquire(&pool->lock);
  mapped = generation_of(pool, address, size, generation);
  vmm__lock_release(&pool->lock);
  if (mapped) return VMM_OK;
  *generation = 0;
  status = vmm__fail_in(error, VMM_ERROR_UNKNOWN_ADDRESS, function, "part of the range is not mapped");
  if (error != NULL) error->address = address;
  return status;
}

static void copy_counters(vmm_pool_stats *stats, const vmm__pool_counters *counters) {
  stats->committed_peak = counters->committed_peak;
  stats->block_count_peak = counters->block_count_peak;
  stats->block_bytes_peak = counters->block_bytes_peak;
  stats->alloc_count = counters->alloc_count;
  stats->alloc_bytes = counters->alloc_bytes;
  stats->alloc_failures = counters->alloc_failures;
  stats->free_count = counters->free_count;
  stats->growth_count = counters->growth_count;
  stats->growth_bytes = counters->growth_bytes;
  stats->growth_failures = counters->growth_failures;
  stats->trim_count = counters->trim_count;
  stats->trim_bytes = counters->trim_bytes;
  stats->seal_count = counters->seal_count;
  stats->wait_count = counters->wait_count;
  stats->limbo_count = counters->limbo_count;
  stats->fence_failures = counters->fence_failures;
  stats->move_count = counters->move_count;
  stats->moved_bytes = counters->moved_bytes;
  stats->revived_bytes = counters->revived_bytes;
  stats->retry_count = counters->retry_count;
  stats->not_ready_count = counters->not_ready_count;
  stats->quiesce_count = counters->quiesce_count;
  stats->oom_rounds = counters->oom_rounds;
  stats->background_failures = counters->background_failures;
}

vmm_status vmm_pool_get_stats(vmm_pool *pool, vmm_pool_stats *stats, vmm_error *error) {
  vmm_pool_stats copy;
  vmm_status status = vmm__pool_refuse(pool, stats, "vmm_pool_get_stats", error);

  if (status != VMM_OK) return status;
  memset(&copy, 0, sizeof copy);
  vmm__lock_acquire(&pool->lock);
  copy_counters(&copy, &pool->counters);
  copy.address = pool->region.plain ? 0 : pool->region.base;
  copy.reserved_bytes = pool->region.plain ? 0 : pool->region.size;
  copy.committed_bytes = pool->region.live_bytes;
  copy.block_count = pool->space.block_count;
  copy.block_bytes = pool->space.block_bytes;
  copy.requested_bytes = pool->space.requested_bytes;
  copy.idle_bytes = pool->region.live_bytes - pool->space.block_bytes;
  copy.largest_idle = vmm__space_largest(&pool->space);
  copy.trimmable_bytes = trimmable(pool);
  copy.lease_count = pool->lease_count;
  copy.lease_bytes = leased(pool);
  copy.stream_count = pool->stream_count;
  copy.ordered_bytes = vmm__space_free_bytes(&pool->space) - vmm__space_arena_bytes(&pool->space, VMM__ARENA_IDLE);
  copy.pending_bytes = pool->pending_bytes;
  copy.mapping_count = pool->region.mappings.count;
  copy.quarantined_bytes = pool->region.quarantined_bytes;
  copy.ready_bytes = pool->ready_bytes;
  copy.limit = pool->limit;
  copy.peer_count = pool->region.peer_count;
  vmm__lock_release(&pool->lock);
  return vmm__output_write(stats, &copy, sizeof copy, "vmm_pool_stats", error);
}
