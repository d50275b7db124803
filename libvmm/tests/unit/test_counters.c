/* Every number that is published, at a value that only right counting gives: one story for a pool, one for a device. */
#include "support/fixture.h"

#define SAME(stats, name, value) CHECK_EQ((stats).name, (value))

static long long press(void *data, vmm_device *device, unsigned long long size) {
  (void)data;
  (void)device;
  (void)size;
  return 0;
}

/* Grown by 256 KiB at first, then 64 KiB at a time; the memory of the device is what the test says is left. */
static void open_story(fixture *f, u64 idle_limit) {
  fixture_options options;

  fixture_defaults(&options);
  options.sim.device_count = 2;
  options.device.idle_limit = idle_limit;
  options.device.pressure = press;
  options.device.limit = 200 * MIB;
  options.pool.reservation = 16 * MIB;
  options.pool.mapping_min = 64 * KIB;
  options.pool.mapping_max = 64 * KIB;
  options.pool.limit = 8 * MIB;
  CHECK_CALL(fixture_open(f, &options));
}

TEST(every_number_of_a_pool_is_counted) {
  vmm_pool_stats s;
  u64 a, b, c, d;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  a = fixture_alloc(&f, 100);
  b = fixture_alloc(&f, 64 * KIB);
  c = fixture_alloc(&f, 1000);
  d = fixture_alloc(&f, 128 * KIB);
  CHECK(a != 0 && b != 0 && c != 0 && d != 0);
  CHECK_OK(vmm_pool_add_peer(f.pool, 1, NULL));
  fixture_free(&f, d);
  s = fixture_stats(f.pool);
  SAME(s, address, a);
  SAME(s, reserved_bytes, 16 * MIB);
  SAME(s, committed_bytes, 256 * KIB);
  SAME(s, committed_peak, 256 * KIB);
  SAME(s, block_count, 3);
  SAME(s, block_count_peak, 4);
  SAME(s, block_bytes, 64 * KIB + 256 + 1024);
  SAME(s, block_bytes_peak, 192 * KIB + 256 + 1024);
  SAME(s, requested_bytes, 64 * KIB + 1100);
  SAME(s, idle_bytes, 192 * KIB - 256 - 1024);
  SAME(s, largest_idle, 192 * KIB - 256 - 1024);
  SAME(s, trimmable_bytes, 128 * KIB);
  SAME(s, mapping_count, 3);
  SAME(s, alloc_count, 4);
  SAME(s, alloc_bytes, 192 * KIB + 256 + 1024);
  SAME(s, free_count, 1);
  SAME(s, growth_count, 3);
  SAME(s, growth_bytes, 256 * KIB);
  SAME(s, limit, 8 * MIB);
  SAME(s, peer_count, 1);
  CHECK_EQ(s.alloc_failures + s.growth_failures + s.trim_count + s.trim_bytes, 0);
  CHECK_EQ(s.retry_count + s.not_ready_count + s.quiesce_count + s.oom_rounds + s.quarantined_bytes, 0);

  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  s = fixture_stats(f.pool);
  SAME(s, trim_count, 1);
  SAME(s, trim_bytes, 128 * KIB);
  SAME(s, committed_bytes, 128 * KIB);
  SAME(s, committed_peak, 256 * KIB);
  SAME(s, mapping_count, 2);
  fixture_free(&f, a);
  fixture_free(&f, b);
  fixture_free(&f, c);
  CHECK_CALL(fixture_close(&f));
}

TEST(what_is_moved_is_counted) {
  vmm_pool_stats s;
  u64 a, b, c, d;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  a = fixture_alloc(&f, 64 * KIB);
  b = fixture_alloc(&f, 64 * KIB);
  c = fixture_alloc(&f, 64 * KIB);
  CHECK_OK(vmm_pool_free_idle(f.pool, a, NULL));
  CHECK_OK(vmm_pool_set_limit(f.pool, 256 * KIB, NULL));
  d = fixture_alloc(&f, 128 * KIB); /* 64 KiB from the hole, 64 KiB new */
  s = fixture_stats(f.pool);
  SAME(s, moved_bytes, 64 * KIB);
  SAME(s, move_count, 0);
  SAME(s, growth_count, 4);
  SAME(s, growth_bytes, 320 * KIB);
  SAME(s, committed_bytes, 256 * KIB);
  CHECK_OK(vmm_pool_free_idle(f.pool, b, NULL));
  CHECK_OK(vmm_pool_free_idle(f.pool, d, NULL));
  d = fixture_alloc(&f, 192 * KIB);
  s = fixture_stats(f.pool);
  SAME(s, moved_bytes, 128 * KIB);
  SAME(s, move_count, 1);
  SAME(s, growth_count, 4);
  fixture_free(&f, c);
  fixture_free(&f, d);
  CHECK_CALL(fixture_close(&f));
}

TEST(what_streams_and_captures_do_is_counted) {
  void *streams[2] = {NULL, NULL}, *graph = NULL;
  vmm_lease *lease = NULL;
  vmm_pool_stats s;
  u64 a = 0, b = 0;
  fixture f;
  int i;

  CHECK_CALL(open_story(&f, 0));
  for (i = 0; i < 2; i++) OK(vmm_raw_stream_create(f.sim, &streams[i], 1));
  CHECK_OK(vmm_pool_alloc_async(f.pool, 64 * KIB, streams[0], &a, NULL));
  CHECK_OK(vmm_pool_alloc_async(f.pool, 128 * KIB, streams[1], &b, NULL));
  OK(vmm_raw_kernel_spin(f.sim, streams[0], MS));
  CHECK_OK(vmm_pool_free_async(f.pool, a, streams[0], NULL));
  CHECK_OK(vmm_pool_free_multi(f.pool, b, streams, 2, NULL));
  s = fixture_stats(f.pool);
  SAME(s, stream_count, 2);
  SAME(s, ordered_bytes, 192 * KIB);
  SAME(s, seal_count, 0);
  SAME(s, wait_count, 0);
  SAME(s, limbo_count, 1);
  SAME(s, fence_failures, 0);
  CHECK_OK(vmm_pool_set_limit(f.pool, 192 * KIB, NULL));
  CHECK_OK(vmm_pool_alloc_async(f.pool, 64 * KIB, streams[1], &a, NULL)); /* made to wait */
  s = fixture_stats(f.pool);
  SAME(s, stream_count, 2);
  SAME(s, ordered_bytes, 128 * KIB);
  SAME(s, seal_count, 2);
  SAME(s, wait_count, 1);
  SAME(s, limbo_count, 1);
  SAME(s, fence_failures, 0);
  CHECK_CALL(fixture_begin_capture(&f, streams[1], 0));
  CHECK_OK(vmm_pool_free_async(f.pool, a, streams[1], NULL));
  OK(vmm_raw_stream_end_capture(f.sim, streams[1], &graph));
  OK(vmm_raw_graph_destroy(f.sim, graph));
  CHECK_OK(vmm_device_capture_end(f.device, streams[1], VMM_CAPTURE_COMMITTED, &lease, NULL));
  s = fixture_stats(f.pool);
  SAME(s, lease_count, 1);
  SAME(s, lease_bytes, 64 * KIB);
  CHECK_OK(vmm_lease_release(lease, NULL));
  s = fixture_stats(f.pool);
  SAME(s, lease_count, 0);
  SAME(s, lease_bytes, 0);
  SAME(s, stream_count, 2);
  SAME(s, ordered_bytes, 192 * KIB);
  SAME(s, seal_count, 2);
  SAME(s, wait_count, 1);
  SAME(s, limbo_count, 1);
  SAME(s, fence_failures, 0);
  for (i = 0; i < 2; i++) CHECK_CALL(fixture_end_stream(&f, streams[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(what_is_left_pending_is_counted) {
  vmm_pool_stats s;
  u64 a, b;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  a = fixture_alloc(&f, 64 * KIB);
  b = fixture_alloc(&f, 128 * KIB);
  OK(vmm_raw_kernel_spin(f.sim, NULL, 5 * MS));
  fixture_free(&f, a);
  fixture_free(&f, b);
  CHECK_OK(vmm_pool_trim_async(f.pool, 0, NULL, NULL, NULL));
  s = fixture_stats(f.pool);
  SAME(s, pending_bytes, 192 * KIB);
  SAME(s, revived_bytes, 0);
  CHECK_EQ(a, fixture_alloc(&f, 64 * KIB));
  s = fixture_stats(f.pool);
  SAME(s, pending_bytes, 128 * KIB);
  SAME(s, revived_bytes, 64 * KIB);
  fixture_free(&f, a);
  CHECK_CALL(fixture_close(&f));
}

TEST(what_is_put_aside_and_what_fails_unseen_is_counted) {
  vmm_pool_stats s;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  CHECK_OK(vmm_pool_grow_async(f.pool, 128 * KIB, NULL));
  s = fixture_stats(f.pool);
  SAME(s, ready_bytes, 128 * KIB);
  SAME(s, committed_bytes, 0);
  SAME(s, background_failures, 0);
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN"));
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  s = fixture_stats(f.pool);
  SAME(s, background_failures, 1);
  SAME(s, committed_bytes, 0);
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  s = fixture_stats(f.pool);
  SAME(s, background_failures, 1);
  SAME(s, ready_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_fence_that_fails_is_counted) {
  void *stream = NULL;
  u64 address = 0;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  OK(vmm_raw_stream_create(f.sim, &stream, 1));
  CHECK_OK(vmm_pool_alloc_async(f.pool, 64 * KIB, stream, &address, NULL));
  CHECK_OK(vmm_pool_free_async(f.pool, address, stream, NULL));
  CHECK_CALL(fixture_rule(&f, "cuEventRecord:UNKNOWNx*"));
  CHECK_OK(vmm_device_forget_stream(f.device, stream, NULL));
  CHECK_CALL(fixture_clear(&f));
  CHECK_EQ(fixture_stats(f.pool).fence_failures, 1);
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

TEST(every_failure_of_a_pool_is_counted) {
  vmm_pool_stats s;
  u64 a = 0;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:NOT_READY@1x2"));
  a = fixture_alloc(&f, 64 * KIB);
  s = fixture_stats(f.pool);
  SAME(s, retry_count, 2);
  SAME(s, not_ready_count, 2);
  SAME(s, quiesce_count, 2);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemCreate:OUT_OF_MEMORY@1x*"));
  fixture_free(&f, a);
  CHECK_EQ(vmm_pool_alloc(f.pool, 512 * KIB, &a, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  s = fixture_stats(f.pool);
  SAME(s, alloc_failures, 1);
  CHECK(s.growth_failures >= 1 && s.growth_failures <= 4);
  CHECK(s.oom_rounds >= 1 && s.oom_rounds <= 3);
  SAME(s, growth_count, 1);
  CHECK_EQ(f.error.gave_back, 64 * KIB);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN@1,cuMemUnmap:UNKNOWN@1x*"));
  CHECK_EQ(vmm_pool_alloc(f.pool, 64 * KIB, &a, NULL), VMM_ERROR_DRIVER);
  s = fixture_stats(f.pool);
  SAME(s, quarantined_bytes, 64 * KIB);
  SAME(s, mapping_count, 1);
  SAME(s, committed_bytes, 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(every_number_of_a_device_is_counted) {
  vmm_device_stats s;
  void *stream = NULL;
  u64 a, b;
  fixture f;

  CHECK_CALL(open_story(&f, 64 * KIB));
  OK(vmm_raw_stream_create(f.sim, &stream, 1));
  CHECK_OK(vmm_device_register_stream(f.device, stream, NULL));
  CHECK_OK(vmm_device_capture_begin(f.device, stream, NULL));
  a = fixture_alloc(&f, 64 * KIB);
  b = fixture_alloc(&f, 128 * KIB);
  s = fixture_device_stats(f.device);
  SAME(s, handle_count, 2);
  SAME(s, handle_bytes, 192 * KIB);
  SAME(s, handle_bytes_peak, 192 * KIB);
  SAME(s, reserved_bytes, 16 * MIB);
  SAME(s, limit, 200 * MIB);
  SAME(s, created_count, 2);
  SAME(s, created_bytes, 192 * KIB);
  SAME(s, pool_count, 1);
  SAME(s, stream_count, 1);
  SAME(s, capture_count, 1);
  CHECK_EQ(s.idle_count + s.idle_bytes + s.released_count + s.released_bytes + s.quarantined_count, 0);
  CHECK_OK(vmm_device_capture_end(f.device, stream, VMM_CAPTURE_COMMITTED, NULL, NULL));
  CHECK_OK(vmm_device_forget_stream(f.device, stream, NULL));
  CHECK_OK(vmm_pool_free_idle(f.pool, a, NULL));
  CHECK_OK(vmm_pool_free_idle(f.pool, b, NULL));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  s = fixture_device_stats(f.device);
  SAME(s, handle_count, 1);
  SAME(s, handle_bytes, 64 * KIB);
  SAME(s, handle_bytes_peak, 192 * KIB);
  SAME(s, idle_count, 1);
  SAME(s, idle_bytes, 64 * KIB);
  SAME(s, released_count, 1);
  SAME(s, released_bytes, 128 * KIB);
  SAME(s, stream_count, 0);
  SAME(s, capture_count, 0);
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

TEST(every_failure_of_a_device_is_counted) {
  vmm_device_stats s;
  u64 a = 0;
  fixture f;

  CHECK_CALL(open_story(&f, 0));
  CHECK_CALL(fixture_rule(&f, "cuMemMap:NOT_READY@1x2,cuMemSetAccess:0@1:lie"));
  a = fixture_alloc(&f, 64 * KIB);
  s = fixture_device_stats(f.device);
  SAME(s, not_ready_count, 2);
  SAME(s, not_confirmed_count, 1);
  SAME(s, retry_count, 3);
  SAME(s, quiesce_count, 3);
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_free_idle(f.pool, a, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemRelease:UNKNOWN@1x*"));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  s = fixture_device_stats(f.device);
  SAME(s, quarantined_count, 1);
  SAME(s, quarantined_bytes, 64 * KIB);
  SAME(s, handle_count, 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemCreate:OUT_OF_MEMORY@1x*"));
  CHECK_EQ(vmm_pool_alloc(f.pool, 64 * KIB, &a, NULL), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  s = fixture_device_stats(f.device);
  SAME(s, pressure_count, 1);
  SAME(s, quarantined_count, 0);
  SAME(s, quarantined_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(records_of_growth_and_trim_are_given_back) {
  long long early = 0;
  fixture f;
  int i;

  CHECK_CALL(open_story(&f, 0));
  for (i = 0; i < 2000; i++) {
    u64 a = fixture_alloc(&f, 300 * KIB);

    CHECK(a != 0);
    CHECK_OK(vmm_pool_free_idle(f.pool, a, NULL));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
    if (i == 50) early = atomic_load(&f.memory.out);
  }
  CHECK_EQ(atomic_load(&f.memory.out), early);
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN@1x*"));
  for (i = 0; i < 2000; i++) {
    u64 a = 0;

    CHECK_EQ(vmm_pool_alloc(f.pool, 300 * KIB, &a, NULL), VMM_ERROR_DRIVER);
    if (i == 50) early = atomic_load(&f.memory.out);
  }
  CHECK_EQ(atomic_load(&f.memory.out), early);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
