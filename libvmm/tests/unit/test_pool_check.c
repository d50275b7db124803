/* The oracle itself: each invariant that vmm_pool_check knows is broken by hand, named by the check, and mended again. A
 * checker that cannot fail proves nothing. */
#include <string.h>

#include "pool/pool.h"
#include "support/fixture.h"

/* One number inside the pool, set to something wrong for the length of a check. */
static void expect_broken(fixture *f, void *field, size_t size, u64 wrong, const char *words) {
  unsigned char kept[8];

  memcpy(kept, field, size);
  memcpy(field, &wrong, size); /* little-endian, as every supported machine */
  CHECK_EQ(vmm_pool_check(f->pool, &f->error), VMM_ERROR_BROKEN);
  CHECK_EQ(f->error.status, VMM_ERROR_BROKEN);
  if (strstr(f->error.message, words) == NULL) CHECK_STR(f->error.message, words);
  memcpy(field, kept, size);
  CHECK_OK_ERROR(vmm_pool_check(f->pool, &f->error), &f->error);
}

#define BROKEN(field, wrong, words) CHECK_CALL(expect_broken(&f, &(field), sizeof(field), (u64)(wrong), words))

/* Two mappings: the first with a block and idle room, the second idle. */
static void open_two(fixture *f) {
  u64 grown;

  CHECK_CALL(fixture_open(f, NULL));
  CHECK_OK(vmm_pool_grow(f->pool, 2 * MIB, &grown, NULL));
  CHECK_OK(vmm_pool_grow(f->pool, 2 * MIB, &grown, NULL));
  (void)fixture_alloc(f, 100);
}

static void close_two(fixture *f) {
  vmm_block_info block;
  size_t count;

  CHECK_OK(vmm_pool_get_blocks(f->pool, &block, 1, &count, NULL));
  CHECK_EQ(count, 1);
  fixture_free(f, block.address);
  fixture_close(f);
}

TEST(counters_are_held_against_the_tables) {
  fixture f;

  CHECK_CALL(open_two(&f));
  BROKEN(f.pool->region.live_bytes, 3 * MIB, "committed bytes are not the sum");
  BROKEN(f.pool->region.quarantined_bytes, MIB, "quarantined bytes are not the sum");
  BROKEN(f.pool->held_bytes, 256, "the index does not cover");
  BROKEN(f.pool->counters.alloc_count, 7, "allocs less frees");
  BROKEN(f.pool->counters.free_count, 7, "allocs less frees");
  BROKEN(f.pool->counters.growth_bytes, MIB, "bytes grown are not");
  BROKEN(f.pool->counters.trim_bytes, MIB, "bytes grown are not");
  BROKEN(f.pool->counters.committed_peak, 0, "committed bytes exceed their peak");
  BROKEN(f.pool->counters.block_bytes_peak, 0, "block bytes exceed their peak");
  BROKEN(f.pool->counters.block_count_peak, 0, "live blocks exceed their peak");
  BROKEN(f.pool->fenced_frees, 5, "more frees are fenced");
  close_two(&f);
}

TEST(mappings_are_held_against_the_reservation_and_their_handles) {
  fixture f;
  vmm__mapping *mapping;
  vmm__handle *handle;
  void *kept;

  CHECK_CALL(open_two(&f));
  mapping = vmm__mappings_at(&f.pool->region.mappings, 1);
  handle = mapping->handle;
  BROKEN(handle->raw, 0, "no handle of its size");
  BROKEN(handle->size, 64 * KIB, "no handle of its size");
  BROKEN(mapping->state, 9, "no known state");
  BROKEN(mapping->state, VMM_MAPPING_QUARANTINED, "are not the sum");
  BROKEN(mapping->address, f.pool->region.base + f.pool->region.size, "");
  BROKEN(mapping->address, mapping->address + 256, "");
  BROKEN(mapping->size, 2 * MIB + 256, "");
  BROKEN(f.pool->region.size, 2 * MIB, "outside the reservation");
  BROKEN(f.pool->region.base, f.pool->region.base + 64 * KIB, "outside the reservation");
  BROKEN(f.pool->region.granularity, 192 * KIB, "granularity");
  kept = mapping->handle;
  mapping->handle = NULL;
  CHECK_EQ(vmm_pool_check(f.pool, &f.error), VMM_ERROR_BROKEN);
  mapping->handle = kept;
  mapping = vmm__mappings_at(&f.pool->region.mappings, 0);
  BROKEN(mapping->state, VMM__MAPPING_DETACHED, "not live");
  close_two(&f);
}

TEST(index_and_device_are_looked_at_too) {
  fixture f;

  CHECK_CALL(open_two(&f));
  BROKEN(f.pool->space.block_bytes, 0, "");
  BROKEN(f.pool->space.requested_bytes, ~(u64)0, "");
  BROKEN(f.pool->region.mappings.bytes, 1, "");
  BROKEN(f.device->counters.handle_bytes, 0, "more committed than the device holds");
  BROKEN(f.device->counters.idle_bytes, ~(u64)0 >> 1, "more bytes are idle than held");
  close_two(&f);
}

RUN_TESTS()
