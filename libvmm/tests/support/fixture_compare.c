/* The simulator's ledger against what the library says of itself. */
#include "support/fixture.h"

enum { LISTED = 8192 };

vmm_pool_stats fixture_stats(vmm_pool *pool) {
  vmm_pool_stats stats;

  memset(&stats, 0xEE, sizeof stats);
  stats.struct_size = sizeof stats;
  CHECK_OK_RETURN(vmm_pool_get_stats(pool, &stats, NULL), stats);
  return stats;
}

vmm_device_stats fixture_device_stats(vmm_device *device) {
  vmm_device_stats stats;

  memset(&stats, 0xEE, sizeof stats);
  stats.struct_size = sizeof stats;
  CHECK_OK_RETURN(vmm_device_get_stats(device, &stats, NULL), stats);
  return stats;
}

vmm_sim_ledger fixture_ledger(fixture *f, int device) {
  vmm_sim_ledger ledger;

  memset(&ledger, 0xEE, sizeof ledger);
  ledger.struct_size = sizeof ledger;
  CHECK_OK_RETURN(vmm_sim_get_ledger(f->sim, device, &ledger), ledger);
  return ledger;
}

static void compare_blocks(vmm_pool *pool, const vmm_pool_stats *stats) {
  static vmm_block_info blocks[LISTED];
  u64 bytes = 0, requested = 0, end = 0;
  size_t count = 0, i;

  CHECK_OK(vmm_pool_get_blocks(pool, blocks, LISTED, &count, NULL));
  CHECK_EQ(count, stats->block_count);
  CHECK(count <= LISTED);
  for (i = 0; i < count; i++) {
    CHECK(blocks[i].address >= end);
    end = blocks[i].address + blocks[i].size;
    bytes += blocks[i].size;
    requested += blocks[i].requested;
  }
  CHECK_EQ(bytes, stats->block_bytes);
  CHECK_EQ(requested, stats->requested_bytes);
}

static void compare_mappings(vmm_pool *pool, const vmm_pool_stats *stats) {
  static vmm_mapping_info mappings[LISTED];
  u64 live = 0, quarantined = 0, blocks = 0, trimmable = 0, end = 0;
  size_t count = 0, i;

  CHECK_OK(vmm_pool_get_mappings(pool, mappings, LISTED, &count, NULL));
  CHECK_EQ(count, stats->mapping_count);
  CHECK(count <= LISTED);
  for (i = 0; i < count; i++) {
    const vmm_mapping_info *mapping = &mappings[i];

    CHECK(mapping->address >= end && mapping->size != 0 && mapping->handle != 0);
    end = mapping->address + mapping->size;
    if (mapping->state == VMM_MAPPING_QUARANTINED) {
      quarantined += mapping->size;
      CHECK_EQ(mapping->block_bytes, 0);
      continue;
    }
    CHECK(mapping->state == VMM_MAPPING_LIVE || mapping->state == VMM_MAPPING_PENDING);
    live += mapping->size;
    blocks += mapping->block_bytes;
    if (mapping->block_bytes == 0) trimmable += mapping->size;
  }
  CHECK_EQ(live, stats->committed_bytes);
  CHECK_EQ(quarantined, stats->quarantined_bytes);
  CHECK_EQ(blocks, stats->block_bytes);
  if (stats->lease_count == 0) CHECK_EQ(trimmable, stats->trimmable_bytes);
  else CHECK(trimmable >= stats->trimmable_bytes); /* leased memory is not */
}

static void compare_pool(vmm_pool *pool, const vmm_pool_stats *stats) {
  CHECK_EQ(stats->idle_bytes, stats->committed_bytes - stats->block_bytes);
  CHECK(stats->largest_idle <= stats->idle_bytes);
  CHECK(stats->trimmable_bytes <= stats->idle_bytes);
  CHECK(stats->committed_peak >= stats->committed_bytes);
  CHECK(stats->block_bytes_peak >= stats->block_bytes);
  CHECK(stats->block_count_peak >= stats->block_count);
  CHECK_EQ(stats->alloc_count - stats->free_count, stats->block_count);
  CHECK_CALL(compare_blocks(pool, stats));
  CHECK_CALL(compare_mappings(pool, stats));
}

void fixture_compare(fixture *f) {
  vmm_sim_ledger ledger = fixture_ledger(f, 0);
  vmm_device_stats device = fixture_device_stats(f->device);
  u64 mappings = 0, committed = 0, quarantined = 0, reserved = 0, ready = 0;
  int i;

  for (i = 0; i < FIXTURE_POOLS; i++) {
    vmm_pool_stats stats;

    if (f->pools[i] == NULL) continue;
    stats = fixture_stats(f->pools[i]);
    CHECK_CALL(compare_pool(f->pools[i], &stats));
    mappings += stats.mapping_count;
    committed += stats.committed_bytes;
    quarantined += stats.quarantined_bytes;
    reserved += stats.reserved_bytes;
    ready += stats.ready_bytes;
  }
  CHECK_EQ(ledger.mappings, mappings);
  CHECK_EQ(ledger.mapped_bytes, committed + quarantined);
  if (quarantined == 0) CHECK_EQ(ledger.accessible_bytes, committed);
  CHECK_EQ(ledger.reserved_bytes, reserved);
  CHECK_EQ(device.reserved_bytes, reserved);
  CHECK_EQ(ledger.handles, device.handle_count + device.quarantined_count);
  CHECK_EQ(ledger.handle_bytes, device.handle_bytes + device.quarantined_bytes);
  CHECK_EQ(ledger.references, ledger.handles);
  CHECK_EQ(device.handle_bytes - device.idle_bytes, committed + quarantined + ready);
  CHECK_EQ(device.created_bytes - device.released_bytes, device.handle_bytes + device.quarantined_bytes);
  CHECK_EQ(device.created_count - device.released_count, device.handle_count + device.quarantined_count);
  CHECK(device.handle_bytes_peak >= device.handle_bytes);
}

void fixture_check(fixture *f) {
  int i;

  for (i = 0; i < FIXTURE_POOLS; i++)
    if (f->pools[i] != NULL) CHECK_OK_ERROR(vmm_pool_check(f->pools[i], &f->error), &f->error);
}
