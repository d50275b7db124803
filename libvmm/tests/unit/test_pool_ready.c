/* Memory ahead of need off the path: put aside by grow_async, head-room and the trim threshold, by polls. */
#include "support/fixture.h"

TEST(what_is_put_aside_serves_the_next_request_that_does_not_fit) {
  vmm_pool_stats stats;
  u64 block;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_OK(vmm_pool_grow_async(f.pool, 3 * MIB - 5, NULL));
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.ready_bytes, 3 * MIB);
  CHECK_EQ(stats.committed_bytes, 0);
  CHECK_EQ(stats.growth_count, 0);
  CHECK_EQ(fixture_device_stats(f.device).handle_bytes, 3 * MIB);
  CHECK_CALL(fixture_check(&f));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(block = fixture_alloc(&f, 2 * MIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.ready_bytes, MIB);
  CHECK_EQ(stats.committed_bytes, 2 * MIB);
  CHECK_EQ(stats.growth_count, 1);
  CHECK_CALL(fixture_fill(&f, block, 2 * MIB, 5));
  CHECK_CALL(fixture_expect(&f, block, 2 * MIB, 5));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f)); /* with what is aside still */
}

TEST(a_poll_publishes_what_is_put_aside) {
  u64 block, done = 7;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_OK(vmm_pool_grow_async(f.pool, 100 * MIB, NULL)); /* more handles than one growth takes */
  CHECK_OK(vmm_pool_poll(f.pool, &done, NULL, &f.error));
  CHECK_EQ(done, 0);
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 100 * MIB);
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(block = fixture_alloc(&f, 60 * MIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(trim_gives_back_what_is_put_aside) {
  u64 done = 0;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_OK(vmm_pool_grow_async(f.pool, 4 * MIB, NULL));
  CHECK_OK(vmm_pool_grow(f.pool, 2 * MIB, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 2 * MIB); /* growth ahead takes it too */
  CHECK_OK(vmm_pool_trim(f.pool, MIB, 0, &done, NULL));
  CHECK_EQ(done, 3 * MIB);
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, MIB);
  CHECK_EQ(fixture_ledger(&f, 0).handle_bytes, MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(what_is_put_aside_is_no_reason_to_be_out_of_memory) {
  fixture_options options;
  vmm_pool *second;
  u64 block;
  fixture f;

  fixture_defaults(&options);
  options.sim.memory = 16 * MIB;
  options.pool.reservation = 64 * MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_CALL(second = fixture_add_pool(&f, &options.pool));
  CHECK_OK(vmm_pool_grow_async(f.pool, 10 * MIB, NULL));
  CHECK_STATUS(vmm_pool_grow_async(second, 10 * MIB, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(f.error.total_bytes != 0);
  CHECK_EQ(fixture_stats(second).ready_bytes, 0); /* all or nothing */
  CHECK_EQ(fixture_ledger(&f, 0).handle_bytes, 10 * MIB);
  CHECK_CALL(block = fixture_alloc(&f, 15 * MIB));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

TEST(limits_hold_for_what_is_put_aside) {
  fixture_options options;
  fixture f;

  fixture_defaults(&options);
  options.pool.limit = 4 * MIB;
  options.pool.reservation = 6 * MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_STATUS(vmm_pool_grow_async(f.pool, 0, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_grow_async(NULL, MIB, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_grow_async(f.pool, UINT64_MAX, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_grow_async(f.pool, 5 * MIB, &f.error), VMM_ERROR_LIMIT);
  CHECK_OK(vmm_pool_grow_async(f.pool, 3 * MIB, NULL));
  CHECK_STATUS(vmm_pool_grow_async(f.pool, 2 * MIB, &f.error), VMM_ERROR_LIMIT);
  CHECK_OK(vmm_pool_set_limit(f.pool, 0, NULL));
  CHECK_STATUS(vmm_pool_grow_async(f.pool, 4 * MIB, &f.error), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_OK(vmm_device_set_limit(f.device, 4 * MIB, NULL));
  CHECK_STATUS(vmm_pool_grow_async(f.pool, 2 * MIB, &f.error), VMM_ERROR_LIMIT);
  CHECK_OK(vmm_pool_set_limit(f.pool, 2 * MIB, NULL)); /* below what is aside: a poll gives it back */
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 0);
  CHECK_EQ(fixture_ledger(&f, 0).handle_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_publication_that_fails_is_tried_again_later) {
  static const char *rules[] = {"cuMemMap:UNKNOWN", "cuMemSetAccess:UNKNOWN", "cuMemGetAccess:UNKNOWN@1"};
  fixture f;
  int i;

  for (i = 0; i < 3; i++) {
    CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
    CHECK_OK(vmm_pool_grow_async(f.pool, 2 * MIB, NULL));
    CHECK_CALL(fixture_rule(&f, rules[i]));
    CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
    CHECK_EQ(fixture_stats(f.pool).background_failures, 1);
    CHECK_EQ(fixture_stats(f.pool).ready_bytes, 2 * MIB);
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
    CHECK_CALL(fixture_check(&f));
    CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 2 * MIB);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(where_the_policy_waits_before_growth_only_a_request_publishes) {
  fixture_options options;
  u64 block;
  fixture f;

  fixture_defaults(&options);
  options.device.sync_policy = VMM_SYNC_DEVICE;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_OK(vmm_pool_grow_async(f.pool, 2 * MIB, NULL));
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 2 * MIB);
  CHECK_CALL(block = fixture_alloc(&f, 2 * MIB));
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 0);
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

/* ---- head-room and threshold, by polls ---- */

TEST(head_room_is_kept) {
  fixture_options options;
  u64 blocks[4];
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.headroom = 4 * MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  for (i = 0; i < 4; i++) {
    CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
    CHECK_EQ(fixture_stats(f.pool).idle_bytes, 4 * MIB);
    CHECK_CALL(fixture_forget_calls(&f));
    CHECK_CALL(blocks[i] = fixture_alloc(&f, 4 * MIB));
    CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  }
  for (i = 0; i < 4; i++) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 16 * MIB);
  CHECK_CALL(fixture_close(&f));
}

TEST(head_room_that_cannot_be_had_is_no_failure_of_the_poll) {
  fixture_options options;
  fixture f;

  fixture_defaults(&options);
  options.pool.headroom = 4 * MIB;
  options.pool.limit = 2 * MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).background_failures, 1);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(idle_memory_above_the_threshold_goes_down_to_the_level_below_it) {
  fixture_options options;
  u64 blocks[10], done = 0;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.trim_threshold = 6 * MIB;
  options.pool.trim_keep = 2 * MIB;
  options.pool.headroom = MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  for (i = 0; i < 10; i++) CHECK_CALL(blocks[i] = fixture_alloc(&f, MIB));
  for (i = 9; i > 3; i--) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_OK(vmm_pool_poll(f.pool, &done, NULL, NULL));
  CHECK_EQ(done, 0); /* not above */
  CHECK_CALL(fixture_free(&f, blocks[3]));
  CHECK_OK(vmm_pool_poll(f.pool, &done, NULL, NULL));
  CHECK_EQ(done, 5 * MIB);
  CHECK_EQ(fixture_stats(f.pool).idle_bytes, 2 * MIB);
  CHECK_OK(vmm_pool_poll(f.pool, &done, NULL, NULL));
  CHECK_EQ(done, 0);
  for (i = 0; i < 3; i++) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(levels_out_of_order_are_refused) {
  static const u64 wrong[][3] = {/* headroom, threshold, keep */
                                 {0, 0, MIB},
                                 {0, MIB, 2 * MIB},
                                 {2 * MIB, 4 * MIB, MIB},
                                 {5 * MIB, 4 * MIB, 0}};
  vmm_pool_options options = fixture_pool_options();
  vmm_pool *pool = NULL;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  for (i = 0; i < 4; i++) {
    options.headroom = wrong[i][0];
    options.trim_threshold = wrong[i][1];
    options.trim_keep = wrong[i][2];
    CHECK_STATUS(vmm_pool_create(&pool, f.device, &options, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  }
  options.headroom = 3 * MIB;
  options.trim_threshold = 4 * MIB;
  options.trim_keep = 0; /* then it is the head-room, if that is more than a half */
  CHECK(fixture_add_pool(&f, &options) != NULL);
  options.background = 2;
  CHECK_STATUS(vmm_pool_create(&pool, f.device, &options, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
