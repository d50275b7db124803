/* NOT_READY: retried within the budget and the deadline, survived where that is possible, told with what is known where
 * it is not. Time is the simulator's virtual clock. */
#include "support/fixture.h"

static void check_counters(fixture *f) {
  vmm_pool_stats stats = fixture_stats(f->pool);
  vmm_device_stats device = fixture_device_stats(f->device);

  CHECK_EQ(device.not_ready_count, fixture_ledger(f, 0).not_ready);
  CHECK_EQ(stats.not_ready_count, device.not_ready_count);
  CHECK_EQ(stats.retry_count, device.retry_count);
  CHECK_EQ(stats.quiesce_count, device.quiesce_count);
}

/* k NOT_READYs, then it works: within the limit of attempts that is a success. */
TEST(the_budget_is_exactly_the_attempts) {
  static const int limits[] = {1, 2, 5, 10};
  int l, k;

  for (l = 0; l < 4; l++)
    for (k = 0; k <= limits[l] + 1; k++) {
      fixture_options options;
      u64 address = 1;
      vmm_status status;
      fixture f;

      fixture_defaults(&options);
      options.device.retry_attempts = limits[l];
      CHECK_CALL(fixture_open(&f, &options));
      CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_FIRST, (u64)k));
      status = vmm_pool_alloc(f.pool, 100 * KIB, &address, &f.error);
      CHECK_STATUS_ERROR(status, k < limits[l] ? VMM_OK : VMM_ERROR_NOT_READY, &f.error);
      CHECK_EQ(address != 0, status == VMM_OK);
      if (status != VMM_OK) {
        CHECK_STR(f.error.call, "cuMemSetAccess");
        CHECK_STR(f.error.code_name, "CUDA_ERROR_NOT_READY");
        CHECK_EQ(f.error.attempt, limits[l]);
      }
      CHECK_CALL(check_counters(&f));
      CHECK_EQ(fixture_ledger(&f, 0).not_ready, k < limits[l] ? k : limits[l]);
      CHECK_CALL(fixture_compare(&f));
      if (address != 0) CHECK_CALL(fixture_free(&f, address));
      CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_NEVER, 0));
      CHECK_CALL(fixture_close(&f));
    }
}

TEST(not_ready_for_ever_ends_within_the_deadline) {
  static const u64 deadlines[] = {1 * MS, 10 * MS, 100 * MS, 3000 * MS};
  int i;

  for (i = 0; i < 4; i++) {
    fixture_options options;
    u64 start, taken, address = 1;
    fixture f;

    fixture_defaults(&options);
    options.device.retry_attempts = 1000000;
    options.device.deadline_ns = deadlines[i];
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:NOT_READYx*"));
    start = vmm_driver_now(f.driver);
    CHECK_STATUS(vmm_pool_alloc(f.pool, 100 * KIB, &address, &f.error), VMM_ERROR_NOT_READY);
    taken = vmm_driver_now(f.driver) - start;
    CHECK(taken <= deadlines[i] + MS);
    CHECK(f.error.attempt > 3);
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_request_has_its_own_deadline) {
  vmm_request request;
  u64 start, address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 100 * KIB;
  request.deadline_ns = 500000;
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:NOT_READYx*"));
  start = vmm_driver_now(f.driver);
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, NULL), VMM_ERROR_NOT_READY);
  CHECK(vmm_driver_now(f.driver) - start <= MS);
  CHECK_CALL(fixture_close(&f));
}

/* Pending work: the wait drains it; the retry then works. */
TEST(pending_work_is_waited_for_and_the_growth_survives) {
  static const int policies[] = {VMM_SYNC_DEVICE, VMM_SYNC_STREAMS, VMM_SYNC_ON_DEMAND};
  int i;

  for (i = 0; i < 3; i++) {
    fixture_options options;
    void *stream = NULL;
    u64 address;
    fixture f;

    fixture_defaults(&options);
    options.device.sync_policy = policies[i];
    CHECK_CALL(fixture_open(&f, &options));
    OK(vmm_raw_stream_create(f.sim, &stream, 1));
    CHECK_OK(vmm_device_register_stream(f.device, stream, NULL));
    CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_PENDING, 0));
    OK(vmm_raw_kernel_spin(f.sim, stream, 20 * MS));
    CHECK_CALL(address = fixture_alloc(&f, 100 * KIB));
    CHECK_EQ(fixture_ledger(&f, 0).pending, 0);
    CHECK_EQ(fixture_ledger(&f, 0).not_ready, policies[i] == VMM_SYNC_ON_DEMAND ? 1 : 0);
    CHECK_EQ(fixture_stats(f.pool).quiesce_count, 1);
    CHECK_CALL(check_counters(&f));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_OK(vmm_device_forget_stream(f.device, stream, NULL));
    OK(vmm_raw_stream_destroy(f.sim, stream));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(on_demand_waits_for_nothing_unless_told_to) {
  u64 address;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 500 * MS));
  CHECK_CALL(address = fixture_alloc(&f, 3 * MIB));
  CHECK_EQ(fixture_ledger(&f, 0).pending, 1); /* still queued */
  CHECK_EQ(fixture_stats(f.pool).quiesce_count, 0);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ctx_record_event), 0);
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* The streams policy waits for the streams it was told of, and for no other. */
TEST(the_streams_policy_waits_for_registered_streams_only) {
  fixture_options options;
  void *known = NULL, *unknown = NULL;
  u64 address, start;
  fixture f;

  fixture_defaults(&options);
  options.device.sync_policy = VMM_SYNC_STREAMS;
  CHECK_CALL(fixture_open(&f, &options));
  OK(vmm_raw_stream_create(f.sim, &known, 1));
  OK(vmm_raw_stream_create(f.sim, &unknown, 1));
  CHECK_OK(vmm_device_register_stream(f.device, known, NULL));
  OK(vmm_raw_kernel_spin(f.sim, known, 5 * MS));
  OK(vmm_raw_kernel_spin(f.sim, unknown, 700 * MS));
  start = vmm_driver_now(f.driver);
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK(vmm_driver_now(f.driver) - start >= 5 * MS);
  CHECK(vmm_driver_now(f.driver) - start < 50 * MS);
  CHECK_EQ(fixture_ledger(&f, 0).pending, 1);
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_device_forget_stream(f.device, known, NULL));
  OK(vmm_raw_stream_destroy(f.sim, known));
  CHECK_OK(vmm_sim_drain(f.sim));
  OK(vmm_raw_stream_destroy(f.sim, unknown));
  CHECK_CALL(fixture_close(&f));
}

/* Work that outlasts the deadline: the wait gives up, the NOT_READY is what is told, and counted once. */
TEST(work_beyond_the_deadline_ends_the_call_in_time) {
  static const int policies[] = {VMM_SYNC_ON_DEMAND, VMM_SYNC_DEVICE};
  int i;

  for (i = 0; i < 2; i++) {
    fixture_options options;
    u64 start, address = 1;
    fixture f;

    fixture_defaults(&options);
    options.device.sync_policy = policies[i];
    options.device.deadline_ns = 10 * MS;
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_PENDING, 0));
    OK(vmm_raw_kernel_spin(f.sim, NULL, 10000 * MS));
    start = vmm_driver_now(f.driver);
    CHECK_STATUS_ERROR(vmm_pool_alloc(f.pool, MIB, &address, &f.error),
                       policies[i] == VMM_SYNC_DEVICE ? VMM_ERROR_TIMEOUT : VMM_ERROR_NOT_READY, &f.error);
    CHECK(vmm_driver_now(f.driver) - start <= 11 * MS);
    CHECK_EQ(fixture_ledger(&f, 0).pending, 1);
    CHECK_EQ(fixture_ledger(&f, 0).not_ready, policies[i] == VMM_SYNC_DEVICE ? 0 : 1);
    CHECK_EQ(fixture_stats(f.pool).retry_count, 0); /* it never came to one */
    CHECK_CALL(check_counters(&f));
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

/* Another thread queues between every wait and the set-access: only a retry survives that. */
TEST(an_intruder_after_each_wait_is_survived_by_retry) {
  static const int policies[] = {VMM_SYNC_DEVICE, VMM_SYNC_ON_DEMAND};
  int i, k;

  for (i = 0; i < 2; i++) {
    fixture_options options;
    u64 addresses[6];
    fixture f;

    fixture_defaults(&options);
    options.device.sync_policy = policies[i];
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_INTRUDER, 1));
    for (k = 0; k < 6; k++) {
      OK(vmm_raw_kernel_spin(f.sim, NULL, MS));
      CHECK_CALL(addresses[k] = fixture_alloc(&f, 2 * MIB));
      CHECK_CALL(fixture_fill(&f, addresses[k], 2 * MIB, (u64)k));
    }
    CHECK(fixture_ledger(&f, 0).not_ready >= 6);
    CHECK(fixture_stats(f.pool).retry_count >= 6);
    CHECK_CALL(check_counters(&f));
    for (k = 0; k < 6; k++) {
      CHECK_CALL(fixture_expect(&f, addresses[k], 2 * MIB, (u64)k));
      CHECK_CALL(fixture_free(&f, addresses[k]));
    }
    CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_NEVER, 0));
    CHECK_CALL(fixture_close(&f));
  }
}

/* A residency budget below "free": draining does not help, giving memory back does. */
TEST(a_residency_budget_ends_in_an_error_that_says_all_and_a_smaller_request_works) {
  u64 start, held, address = 1, smaller;
  char size[32];
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(held = fixture_alloc(&f, 10 * MIB));
  CHECK_CALL(fixture_fill(&f, held, 10 * MIB, 9));
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_RESIDENCY, 16 * MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, MS));
  start = vmm_driver_now(f.driver);
  CHECK_STATUS(vmm_pool_alloc(f.pool, 20 * MIB, &address, &f.error), VMM_ERROR_NOT_READY);
  CHECK(vmm_driver_now(f.driver) - start <= 1001 * MS);
  CHECK_EQ(address, 0);
  CHECK_EQ(f.error.attempt, 10);
  CHECK_STR(f.error.call, "cuMemSetAccess");
  CHECK_EQ(f.error.total_bytes, 256 * MIB);
  CHECK(f.error.free_bytes > 200 * MIB);
  CHECK(f.error.size >= 10 * MIB && f.error.size % (64 * KIB) == 0);
  (void)snprintf(size, sizeof size, " for %llu MiB", f.error.size / MIB);
  CHECK(strstr(f.error.message, "cuMemSetAccess") != NULL && strstr(f.error.message, "CUDA_ERROR_NOT_READY") != NULL);
  CHECK(f.error.size % MIB != 0 || strstr(f.error.message, size) != NULL);
  CHECK(strstr(f.error.message, "of 256 MiB free") != NULL);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_expect(&f, held, 10 * MIB, 9));
  CHECK_CALL(smaller = fixture_alloc(&f, 4 * MIB));
  CHECK_CALL(fixture_fill(&f, smaller, 4 * MIB, 10));
  CHECK_CALL(fixture_expect(&f, smaller, 4 * MIB, 10));
  CHECK_CALL(fixture_free(&f, smaller));
  CHECK_CALL(fixture_free(&f, held));
  CHECK_CALL(fixture_close(&f));
}

/* The pool's own idle memory is what stands in the way: giving it back lets the request through. */
TEST(over_the_residency_budget_own_idle_memory_is_given_back) {
  u64 big, address = 0;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(big = fixture_alloc(&f, 12 * MIB));
  CHECK_CALL(fixture_free(&f, big));
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_RESIDENCY, 16 * MIB));
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 14 * MIB, &address, &f.error), &f.error);
  CHECK_EQ(fixture_stats(f.pool).oom_rounds, 0); /* the free tail serves, in place */
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));

  CHECK_CALL(big = fixture_alloc(&f, 12 * MIB));
  {
    vmm_request request;

    CHECK_OK(vmm_request_init(&request, sizeof request));
    request.size = 14 * MIB;
    request.flags = VMM_REQUEST_ONE_MAPPING; /* cannot use what is there */
    CHECK_CALL(fixture_free(&f, big));
    CHECK_OK_ERROR(vmm_pool_alloc_with(f.pool, &request, &address, &f.error), &f.error);
  }
  CHECK(fixture_stats(f.pool).oom_rounds >= 1);
  CHECK(fixture_stats(f.pool).retry_count >= 1);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 14 * MIB);
  CHECK_CALL(check_counters(&f));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(the_first_map_after_an_eviction_works_by_a_bare_retry) {
  u64 address;
  int i;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_EVICTED, 0));
  for (i = 0; i < 5; i++) {
    CHECK_CALL(address = fixture_alloc(&f, 2 * MIB));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  }
  CHECK_EQ(fixture_ledger(&f, 0).not_ready, 4);
  CHECK_EQ(fixture_stats(f.pool).retry_count, 4);
  CHECK_CALL(check_counters(&f));
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_NEVER, 0));
  CHECK_CALL(fixture_close(&f));
}

/* Any of the five calls, at random: what is handed out is always good, and nothing is lost on the way. */
TEST(not_ready_from_any_call_at_random_breaks_nothing) {
  u64 addresses[40], random = 7;
  fixture_options options;
  fixture f;
  int i, k;

  fixture_defaults(&options);
  options.device.deadline_ns = 60000 * MS;
  CHECK_CALL(fixture_open(&f, &options));
  memset(addresses, 0, sizeof addresses);
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_RANDOM, 0x40000000u));
  for (i = 0; i < 400; i++) {
    k = (int)(fixture_random(&random) % 40);
    if (addresses[k] != 0) {
      CHECK_CALL(fixture_expect(&f, addresses[k], 300 * KIB, (u64)k));
      CHECK_CALL(fixture_free(&f, addresses[k]));
      addresses[k] = 0;
    } else if (vmm_pool_alloc(f.pool, 300 * KIB, &addresses[k], &f.error) == VMM_OK) {
      CHECK_CALL(fixture_fill(&f, addresses[k], 300 * KIB, (u64)k));
    } else {
      CHECK_EQ(f.error.status, VMM_ERROR_NOT_READY);
    }
    if (i % 10 == 9) (void)vmm_pool_trim(f.pool, 0, 0, NULL, NULL);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_check(&f));
  }
  CHECK(fixture_ledger(&f, 0).not_ready > 30);
  CHECK_EQ(fixture_device_stats(f.device).not_ready_count, fixture_ledger(&f, 0).not_ready);
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_NEVER, 0));
  for (k = 0; k < 40; k++)
    if (addresses[k] != 0) CHECK_CALL(fixture_free(&f, addresses[k]));
  CHECK_CALL(fixture_close(&f));
}

/* Where the driver cannot record a context-wide event, the blocking call stands in; info says so. */
TEST(an_older_driver_waits_by_the_blocking_call) {
  fixture_options options;
  vmm_device_info info;
  u64 address;
  fixture f;

  fixture_defaults(&options);
  options.sim.driver_version = 12000;
  CHECK_CALL(fixture_open(&f, &options));
  info.struct_size = sizeof info;
  CHECK_OK(vmm_device_get_info(f.device, &info, NULL));
  CHECK_EQ(info.context_fence, 0);
  CHECK_OK(vmm_sim_forbid_blocking(f.sim, 0));
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_PENDING, 0));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 20 * MS));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK(fixture_calls(&f, VMM_OP_ctx_synchronize) >= 1);
  CHECK_CALL(fixture_fill(&f, address, MIB, 1));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL)); /* waits on the home stream: its own event serves */
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
