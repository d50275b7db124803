/* Alloc and free that are done at once or not at all: what fits is served as by the other functions, and everything else is
 * BUSY and changes nothing. */
#include "base/lock.h"
#include "pool/pool.h"
#include "support/fixture.h"

static bool same(const vmm_pool_stats *a, const vmm_pool_stats *b) { return memcmp(a, b, sizeof *a) == 0; }

/* BUSY, and not even a counter has moved. */
static void busy_alloc(fixture *f, u64 size, void *stream) {
  vmm_pool_stats before = fixture_stats(f->pool), after;
  u64 address = 1;

  CHECK_STATUS(vmm_pool_try_alloc(f->pool, size, stream, &address), VMM_ERROR_BUSY);
  CHECK_EQ(address, 0);
  after = fixture_stats(f->pool);
  CHECK(same(&before, &after));
}

static void busy_free(fixture *f, u64 address, void *stream) {
  vmm_pool_stats before = fixture_stats(f->pool), after;

  CHECK_STATUS(vmm_pool_try_free(f->pool, address, stream), VMM_ERROR_BUSY);
  after = fixture_stats(f->pool);
  CHECK(same(&before, &after));
}

TEST(what_fits_is_served_and_counted_and_nothing_else_is_called) {
  static const u64 sizes[] = {0, 1, 256, 257, 4096, 100 * KIB, MIB, 3 * MIB};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  u64 addresses[COUNT], again;
  vmm_pool_stats stats;
  vmm_block_info info;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_pool_grow(f.pool, 16 * MIB, NULL, NULL));
  CHECK_OK(vmm_record_clear(f.driver));
  atomic_store(&f.memory.calls, 0);
  for (i = 0; i < COUNT; i++) {
    CHECK_OK(vmm_pool_try_alloc(f.pool, sizes[i], NULL, &addresses[i]));
    CHECK_OK(vmm_pool_find(f.pool, addresses[i], &info, NULL));
    CHECK_EQ(info.address, addresses[i]);
    CHECK_EQ(info.requested, sizes[i]);
  }
  for (i = 0; i < COUNT; i++) {
    CHECK_OK(vmm_pool_try_free(f.pool, addresses[i], NULL));
    CHECK_CALL(busy_free(&f, addresses[i], NULL)); /* twice */
    CHECK_OK(vmm_pool_try_alloc(f.pool, sizes[i], NULL, &again));
    CHECK_OK(vmm_pool_free(f.pool, again, NULL));
  }
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.alloc_count, 2 * COUNT);
  CHECK_EQ(stats.free_count, 2 * COUNT);
  CHECK_EQ(stats.block_count + stats.alloc_failures, 0);
  CHECK_EQ(vmm_record_count(f.driver, VMM_OP_ANY), 0);
  CHECK_EQ(atomic_load(&f.memory.calls), 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(what_does_not_fit_is_busy_and_changes_nothing) {
  u64 block, address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(busy_alloc(&f, 1, NULL)); /* nothing is committed yet */
  CHECK_CALL(block = fixture_alloc(&f, MIB));
  CHECK_CALL(busy_alloc(&f, 200 * MIB, NULL));
  CHECK_CALL(busy_alloc(&f, 1ull << 60, NULL));
  CHECK_CALL(busy_free(&f, block + 1, NULL));
  CHECK_CALL(busy_free(&f, 0, NULL));
  CHECK_CALL(busy_free(&f, UINT64_MAX, NULL));
  CHECK_STATUS(vmm_pool_try_alloc(f.pool, UINT64_MAX, NULL, &address), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(address, 0);
  address = 1;
  CHECK_STATUS(vmm_pool_try_alloc(NULL, 1, NULL, &address), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(address, 0);
  CHECK_STATUS(vmm_pool_try_alloc(f.pool, 1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_try_free(NULL, block, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_lock_that_is_held_is_not_waited_for) {
  u64 block, address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(block = fixture_alloc(&f, 4096));
  vmm__lock_acquire(&f.pool->lock);
  CHECK_STATUS(vmm_pool_try_alloc(f.pool, 256, NULL, &address), VMM_ERROR_BUSY);
  CHECK_STATUS(vmm_pool_try_free(f.pool, block, NULL), VMM_ERROR_BUSY);
  vmm__lock_release(&f.pool->lock);
  CHECK_EQ(address, 0);
  CHECK_OK(vmm_pool_try_free(f.pool, block, NULL));
  CHECK_CALL(fixture_close(&f));
}

TEST(streams_are_served_by_their_handle_once_they_are_known) {
  u64 block, address;
  void *stream;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  OK(vmm_raw_stream_create(f.sim, &stream, 1));
  CHECK_CALL(block = fixture_alloc(&f, 4096));
  CHECK_CALL(busy_alloc(&f, 4096, stream));
  CHECK_CALL(busy_free(&f, block, stream));
  CHECK_CALL(busy_alloc(&f, 4096, (void *)(size_t)2)); /* another stream in every thread */
  CHECK_OK(vmm_pool_alloc_async(f.pool, 4096, stream, &address, NULL));
  OK(vmm_raw_kernel_spin(f.sim, stream, 20 * MS));
  CHECK_OK(vmm_pool_try_free(f.pool, address, stream));
  CHECK_EQ(fixture_stats(f.pool).ordered_bytes, 4096);
  CHECK_OK(vmm_pool_try_alloc(f.pool, 4096, NULL, &address)); /* the home stream gets other memory ... */
  CHECK_EQ(fixture_stats(f.pool).ordered_bytes, 4096);
  CHECK_OK(vmm_pool_try_free(f.pool, address, (void *)(size_t)1));
  CHECK_OK(vmm_pool_try_alloc(f.pool, 4096, stream, &address)); /* ... and the stream its own */
  CHECK_EQ(fixture_stats(f.pool).ordered_bytes, 4096);          /* now what the home stream freed */
  CHECK_OK(vmm_pool_try_free(f.pool, address, stream));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_OK(vmm_device_forget_stream(f.device, stream, NULL));
  CHECK_CALL(busy_alloc(&f, 4096, stream));
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

/* Whatever may need the driver. */
TEST(captures_eager_events_scrubs_and_lost_devices_go_the_other_way) {
  fixture_options options;
  void *stream;
  u64 block;
  fixture f;
  int how;

  for (how = 0; how < 4; how++) {
    fixture_defaults(&options);
    options.pool.events = how == 1 ? VMM_EVENTS_EAGER : VMM_EVENTS_LAZY;
    options.pool.scrub = how == 2;
    CHECK_CALL(fixture_open(&f, &options));
    OK(vmm_raw_stream_create(f.sim, &stream, 1));
    CHECK_OK_ERROR(vmm_pool_alloc_async(f.pool, 4096, stream, &block, &f.error), &f.error);
    if (how == 0) {
      CHECK_OK(vmm_device_capture_begin(f.device, stream, NULL));
      CHECK_CALL(busy_free(&f, block, stream));
      CHECK_CALL(busy_alloc(&f, 256, stream));
      CHECK_CALL(busy_alloc(&f, 256, NULL));
      CHECK_OK(vmm_device_capture_end(f.device, stream, VMM_CAPTURE_ABORTED, NULL, NULL));
    } else if (how == 1) {
      CHECK_CALL(busy_free(&f, block, stream));
      CHECK_CALL(busy_alloc(&f, 256, stream));
    } else if (how == 2) {
      CHECK_CALL(busy_alloc(&f, 256, NULL));
    } else {
      atomic_store(&f.device->lost, 700);
      CHECK_CALL(busy_alloc(&f, 256, NULL));
      atomic_store(&f.device->lost, 0);
    }
    CHECK_OK(vmm_pool_free_async(f.pool, block, stream, NULL));
    vmm_driver_wait(f.driver, MS);
    if (how != 1) CHECK_OK(vmm_device_forget_stream(f.device, stream, NULL));
    OK(vmm_raw_stream_destroy(f.sim, stream));
    CHECK_CALL(fixture_close(&f));
  }
}

RUN_TESTS()
