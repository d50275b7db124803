/* verify=data, scrub, and what a lost device leaves of a pool. */
#include "support/fixture.h"

TEST(verified_growth_writes_and_reads_a_word_per_granule) {
  fixture_options options;
  u64 address;
  fixture f;

  fixture_defaults(&options);
  options.pool.verify = VMM_VERIFY_DATA;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(address = fixture_alloc(&f, 2 * MIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_memcpy_dtoh_async), 32); /* 64 KiB each */
  CHECK_EQ(fixture_calls(&f, VMM_OP_memset_d2d32_async), 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_fill(&f, address, 2 * MIB, 1));
  CHECK_CALL(fixture_expect(&f, address, 2 * MIB, 1));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(more_granules_than_the_buffer_holds_are_verified_in_batches) {
  fixture_options options;
  fixture f;

  fixture_defaults(&options);
  options.sim.minimum_granularity = 4 * KIB;
  options.sim.fresh = VMM_SIM_FRESH_ZERO;
  options.pool.verify = VMM_VERIFY_DATA;
  options.pool.mapping_max = 128 * MIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_OK_ERROR(vmm_pool_grow(f.pool, 65 * MIB, NULL, &f.error), &f.error);
  CHECK_EQ(fixture_calls(&f, VMM_OP_memset_d2d32_async), 2); /* of 16,384 words */
  CHECK_EQ(fixture_calls(&f, VMM_OP_memcpy_dtoh_async), 65 * 256);
  CHECK_CALL(fixture_close(&f));
}

/* What does not read back is not handed out, and what was told is where. */
TEST(a_word_that_does_not_read_back_stops_the_growth) {
  static const char *faults[] = {"cuMemsetD2D32Async:SUCCESS:lie", "cuMemcpyDtoHAsync:SUCCESS@7:lie"};
  int i;

  for (i = 0; i < 2; i++) {
    fixture_options options;
    u64 address = 1;
    fixture f;

    fixture_defaults(&options);
    options.pool.verify = VMM_VERIFY_DATA;
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_CALL(fixture_rule(&f, faults[i]));
    CHECK_STATUS(vmm_pool_alloc(f.pool, 2 * MIB, &address, &f.error), VMM_ERROR_NOT_CONFIRMED);
    CHECK_EQ(address, 0);
    CHECK_EQ(f.error.address, fixture_stats(f.pool).address + (i == 0 ? 0 : 6 * 64 * KIB));
    CHECK_EQ(f.error.size, 64 * KIB);
    CHECK(strstr(f.error.message, "read back") != NULL);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_clear(&f));
    CHECK_OK(vmm_pool_alloc(f.pool, 2 * MIB, &address, NULL));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_CALL(fixture_close(&f));
  }
}

/* What verify queued may still run: then the range is not unmapped, but set aside until it is done. */
TEST(verification_that_does_not_end_is_not_unmapped_under) {
  fixture_options options;
  u64 address = 1;
  fixture f;

  fixture_defaults(&options);
  options.pool.verify = VMM_VERIFY_DATA;
  options.device.deadline_ns = 2 * MS;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(fixture_rule(&f, "cuEventQuery:NOT_READYx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_TIMEOUT);
  CHECK_EQ(address, 0);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* The stream that the library made for itself. */
static void *own_stream(fixture *f) {
  static vmm_record_entry entries[64];
  size_t count = 0, i;

  CHECK_OK_RETURN(vmm_record_get(f->driver, 0, entries, 64, &count), NULL);
  for (i = 0; i < count; i++)
    if (entries[i].op == VMM_OP_stream_create) return (void *)(size_t)entries[i].output;
  CHECK_RETURN(false, NULL);
}

TEST(nor_is_it_by_a_later_call_that_tries_again) {
  fixture_options options;
  u64 address = 1;
  fixture f;

  fixture_defaults(&options);
  options.pool.verify = VMM_VERIFY_DATA;
  options.device.deadline_ns = 2 * MS;
  CHECK_CALL(fixture_open(&f, &options));
  OK(vmm_raw_kernel_spin(f.sim, own_stream(&f), 20 * MS));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_TIMEOUT);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, MIB);
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, MIB);
  vmm_driver_wait(f.sim, 30 * MS);
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(verification_that_cannot_be_queued_stops_the_growth) {
  static const char *faults[] = {"cuMemsetD2D32Async:UNKNOWN", "cuMemcpyDtoHAsync:UNKNOWN@3", "cuEventRecord:UNKNOWN"};
  int i;

  for (i = 0; i < 3; i++) {
    fixture_options options;
    u64 address = 1;
    fixture f;

    fixture_defaults(&options);
    options.pool.verify = VMM_VERIFY_DATA;
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_CALL(fixture_rule(&f, faults[i]));
    CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER);
    CHECK_EQ(address, 0);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_clear(&f));
    CHECK_CALL(address = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_CALL(fixture_close(&f));
  }
}

/* ---- scrub ---- */

TEST(a_scrubbing_pool_gives_zeroes_whoever_was_there_before) {
  fixture_options options;
  u64 address;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.scrub = 1;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 5; i++) {
    CHECK_CALL(address = fixture_alloc(&f, 300000));
    CHECK_CALL(fixture_expect_bytes(&f, address, 300032, 0));
    CHECK_CALL(fixture_fill(&f, address, 300032, 7));
    CHECK_CALL(fixture_free(&f, address));
  }
  CHECK_CALL(fixture_close(&f));
}

TEST(one_request_may_ask_for_zeroes_and_others_do_not_pay) {
  vmm_request request;
  u64 address, plain;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(plain = fixture_alloc(&f, 5000));
  CHECK_CALL(fixture_expect_bytes(&f, plain, 5120, 0xA5)); /* as fresh memory is here */
  CHECK_CALL(fixture_free(&f, plain));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(plain = fixture_alloc(&f, 5000));
  CHECK_EQ(fixture_calls(&f, VMM_OP_memset_d8_async), 0);
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 5000;
  request.flags = VMM_REQUEST_SCRUB;
  CHECK_OK(vmm_pool_alloc_with(f.pool, &request, &address, NULL));
  CHECK_CALL(fixture_expect_bytes(&f, address, 5120, 0));
  CHECK_CALL(fixture_expect_bytes(&f, plain, 5120, 0xA5)); /* nothing beside it was touched */
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_free(&f, plain));
  CHECK_CALL(fixture_close(&f));
}

/* A scrub that is told to have failed, done or not: no block, and whatever it queued is waited for before an unmap. */
TEST(a_scrub_that_fails_gives_no_block) {
  static const char *faults[] = {"cuMemsetD8Async:UNKNOWN", "cuMemsetD8Async:UNKNOWN:after",
                                 "cuCtxGetCurrent:UNKNOWN@2"};
  int i;

  for (i = 0; i < 3; i++) {
    fixture_options options;
    vmm_pool_stats stats;
    u64 address = 1;
    fixture f;

    fixture_defaults(&options);
    options.pool.scrub = 1;
    CHECK_CALL(fixture_open(&f, &options));
    OK(vmm_raw_kernel_spin(f.sim, NULL, 20 * MS)); /* what is queued stays queued */
    CHECK_CALL(fixture_rule(&f, faults[i]));
    CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER);
    CHECK_EQ(address, 0);
    stats = fixture_stats(f.pool);
    CHECK_EQ(stats.block_count, 0);
    CHECK_EQ(stats.alloc_count, 0);
    CHECK_EQ(stats.alloc_failures, 1);
    CHECK_CALL(fixture_compare(&f));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
    CHECK_CALL(address = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_expect_bytes(&f, address, MIB, 0));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_scrub_does_not_join_a_captured_home_stream) {
  fixture_options options;
  u64 address = 1;
  void *home = NULL;
  fixture f;

  fixture_defaults(&options);
  options.no_pool = true;
  CHECK_CALL(fixture_open(&f, &options));
  OK(vmm_raw_stream_create(f.sim, &home, 1));
  options.pool.home_stream = home;
  options.pool.scrub = 1;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
  CHECK_OK(vmm_device_capture_begin(f.device, home, NULL));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_CAPTURE);
  CHECK_EQ(address, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_device_capture_end(f.device, home, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL));
  f.pools[0] = NULL;
  OK(vmm_raw_stream_destroy(f.sim, home));
  CHECK_CALL(fixture_close(&f));
}

/* ---- a lost device ---- */

TEST(a_lost_device_is_noticed_before_anything_is_published) {
  u64 old, address = 1, done = 1;
  vmm_device_info info;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(old = fixture_alloc(&f, 900 * KIB));
  CHECK(fixture_stats(f.pool).idle_bytes >= 256);
  OK(vmm_raw_kernel_trap(f.sim, NULL));
  CHECK_OK(vmm_sim_drain(f.sim)); /* no cuMem* call tells */
  CHECK_STATUS(vmm_pool_alloc(f.pool, 5 * MIB, &address, &f.error), VMM_ERROR_DEVICE_LOST);
  CHECK_EQ(address, 0);
  info.struct_size = sizeof info;
  CHECK_OK(vmm_device_get_info(f.device, &info, NULL));
  CHECK_EQ(info.lost, 1);
  /* from here everything says so, at once, but for what is only a question or the way out */
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 256, &address, &f.error), VMM_ERROR_DEVICE_LOST); /* would fit */
  CHECK_EQ(address, 0);
  CHECK_STATUS(vmm_pool_alloc(f.pool, 9 * MIB, &address, NULL), VMM_ERROR_DEVICE_LOST);
  CHECK_STATUS(vmm_pool_grow(f.pool, 1, NULL, NULL), VMM_ERROR_DEVICE_LOST);
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, NULL), VMM_ERROR_DEVICE_LOST);
  CHECK_EQ(done, 0);
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, NULL), VMM_ERROR_DEVICE_LOST);
  CHECK_STATUS(vmm_device_register_stream(f.device, NULL, NULL), VMM_ERROR_DEVICE_LOST);
  CHECK_STATUS(vmm_device_capture_begin(f.device, (void *)16, NULL), VMM_ERROR_DEVICE_LOST);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_OK(vmm_pool_check(f.pool, &f.error));
  CHECK_EQ(fixture_stats(f.pool).block_count, 1);
  CHECK_CALL(fixture_free(&f, old)); /* bookkeeping goes on */
  CHECK_OK_ERROR(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), &f.error);
  f.pools[0] = NULL;
  CHECK_OK_ERROR(vmm_device_close(f.device, &f.error), &f.error);
  CHECK_EQ(f.memory.out, 0);
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  CHECK_EQ(fixture_ledger(&f, 0).reservations, 0);
  check_on_failure(NULL, NULL);
  vmm_driver_release(f.driver);
  vmm_driver_release(f.fault);
  vmm_driver_release(f.sim);
}

TEST(a_lost_device_ends_with_its_live_blocks) {
  u64 address;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK(address != 0);
  OK(vmm_raw_kernel_trap(f.sim, NULL));
  CHECK_OK(vmm_sim_drain(f.sim));
  CHECK_OK_ERROR(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, &f.error), &f.error); /* notices on the way */
  CHECK_OK_ERROR(vmm_device_close(f.device, &f.error), &f.error);
  CHECK_EQ(f.memory.out, 0);
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  check_on_failure(NULL, NULL);
  vmm_driver_release(f.driver);
  vmm_driver_release(f.fault);
  vmm_driver_release(f.sim);
}

RUN_TESTS()
