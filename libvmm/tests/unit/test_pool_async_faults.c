/* Streams when the driver says no, or has less to offer: a free never fails and memory is never handed out early. What no
 * event could be had for waits for the whole context. */
#include "support/fixture.h"

typedef struct pair {
  fixture f;
  void *a, *b;
} pair;

/* A pool of at most 1 MiB, so that who is not given a's memory gets none; one mapping. */
static void open_pair(pair *p, int events, int driver_version) {
  fixture_options options;

  fixture_defaults(&options);
  options.sim.driver_version = driver_version;
  options.pool.events = events;
  options.pool.mapping_min = options.pool.mapping_max = options.pool.limit = MIB;
  CHECK_CALL(fixture_open(&p->f, &options));
  OK(vmm_raw_stream_create(p->f.sim, &p->a, 1));
  OK(vmm_raw_stream_create(p->f.sim, &p->b, 1));
}

static void close_pair(pair *p) {
  (void)vmm_device_forget_stream(p->f.device, p->a, NULL); /* unknown to a pool of eager events */
  (void)vmm_device_forget_stream(p->f.device, p->b, NULL);
  OK(vmm_raw_stream_destroy(p->f.sim, p->a));
  OK(vmm_raw_stream_destroy(p->f.sim, p->b));
  CHECK_CALL(fixture_close(&p->f));
}

static vmm_status take(fixture *f, u64 size, void *stream, bool grow, u64 *address) {
  vmm_request request;
  vmm_status status;

  CHECK_OK_RETURN(vmm_request_init(&request, sizeof request), VMM_ERROR_BROKEN);
  request.size = size;
  request.flags = VMM_REQUEST_ON_STREAM | (grow ? 0u : (unsigned)VMM_REQUEST_NO_GROWTH);
  request.stream = stream;
  status = vmm_pool_alloc_with(f->pool, &request, address, &f->error);
  if (status != VMM_OK) return status;
  CHECK_OK_RETURN(vmm_sim_new_owner(f->sim, *address, size), VMM_ERROR_BROKEN);
  CHECK_EQ_RETURN(vmm_raw_kernel_fill(f->sim, stream, *address, (size_t)size, 3), VMM_CODE_SUCCESS, VMM_ERROR_BROKEN);
  return VMM_OK;
}

/* Both streams are known; a has the whole mapping, with 20 ms of work on it. */
static void a_has_it(pair *p, u64 *address) {
  CHECK_OK(take(&p->f, 256, p->b, true, address));
  CHECK_OK(vmm_pool_free_async(p->f.pool, *address, p->b, NULL));
  vmm_driver_wait(p->f.driver, MS);
  CHECK_OK_ERROR(take(&p->f, MIB, p->a, true, address), &p->f.error);
  OK(vmm_raw_kernel_spin(p->f.sim, p->a, 20 * MS));
}

/* Whoever gets memory early is reported by the simulator. Whatever the call does while it fails, afterwards all is had. */
static void with_fault(int events, const char *rule) {
  u64 address, other = 0;
  pair p;

  CHECK_CALL(open_pair(&p, events, 0));
  CHECK_CALL(a_has_it(&p, &address));
  CHECK_CALL(fixture_rule(&p.f, rule));
  CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
  CHECK_EQ(fixture_stats(p.f.pool).block_count, 0);
  (void)take(&p.f, MIB, p.b, false, &other);
  if (other != 0) CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.b, NULL));
  CHECK_OK(vmm_pool_check(p.f.pool, &p.f.error));
  vmm_driver_wait(p.f.driver, 50 * MS);
  (void)take(&p.f, MIB, p.b, false, &other);
  if (other != 0) CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.b, NULL));
  CHECK_OK(vmm_pool_check(p.f.pool, &p.f.error));
  CHECK_CALL(fixture_clear(&p.f));
  vmm_driver_wait(p.f.driver, 50 * MS);
  CHECK_OK_ERROR(take(&p.f, MIB, p.a, false, &other), &p.f.error);
  CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.a, NULL));
  vmm_driver_wait(p.f.driver, 50 * MS);
  CHECK_OK_ERROR(take(&p.f, MIB, p.b, false, &other), &p.f.error);
  CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.b, NULL));
  CHECK_CALL(fixture_compare(&p.f));
  CHECK_CALL(close_pair(&p));
}

TEST(a_failing_event_call_never_fails_a_free_nor_hands_memory_out_early) {
  static const char *calls[] = {"cuEventRecord",       "cuEventCreate",    "cuEventQuery",
                                "cuStreamWaitEvent",   "cuCtxRecordEvent", "cuStreamGetId",
                                "cuStreamIsCapturing", "cuCtxGetCurrent",  "cuEventRecord:UNKNOWNx*,cuStreamWaitEvent"};
  static const char *how[] = {"UNKNOWN", "UNKNOWNx*", "NOT_READYx*", "UNKNOWN:after", "UNKNOWN@2x*"};
  char rule[128];
  size_t i, k;
  int events;

  for (events = 0; events < 2; events++)
    for (i = 0; i < sizeof calls / sizeof *calls; i++)
      for (k = 0; k < sizeof how / sizeof *how; k++) {
        if (strcmp(calls[i], "cuEventCreate") == 0 && strchr(how[k], ':') != NULL) continue; /* nobody can name it */
        (void)snprintf(rule, sizeof rule, "%s:%s", calls[i], how[k]);
        with_fault(events, rule);
        if (atomic_load(&check_failures) != 0) printf("events %d, %s\n", events, rule);
        CHECK(atomic_load(&check_failures) == 0);
      }
}

TEST(a_record_that_fails_is_counted_and_a_context_wide_fence_stands_in) {
  u64 address, other;
  int events;
  pair p;

  for (events = 0; events < 2; events++) {
    CHECK_CALL(open_pair(&p, events, 0));
    CHECK_CALL(a_has_it(&p, &address));
    CHECK_CALL(fixture_rule(&p.f, "cuEventRecord:UNKNOWNx*"));
    CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
    (void)take(&p.f, MIB, p.b, false, &other); /* made to wait for the context, if at all */
    CHECK(fixture_stats(p.f.pool).fence_failures >= 1);
    CHECK_EQ(fixture_stats(p.f.pool).limbo_count, events);
    if (other != 0) CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.b, NULL));
    CHECK_CALL(close_pair(&p));
  }
}

TEST(what_a_forgotten_stream_could_not_fence_waits_for_the_context) {
  static const char *const rules[] = {"cuEventRecord:UNKNOWNx*", "cuEventCreate:UNKNOWNx*"};
  u64 address, other;
  pair p;
  int i;

  for (i = 0; i < 2; i++) {
    CHECK_CALL(open_pair(&p, VMM_EVENTS_LAZY, 0));
    CHECK_CALL(a_has_it(&p, &address));
    CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
    CHECK_CALL(fixture_rule(&p.f, rules[i]));
    CHECK_OK(vmm_device_forget_stream(p.f.device, p.a, NULL));
    CHECK_EQ(fixture_stats(p.f.pool).fence_failures, 1);
    CHECK_CALL(fixture_clear(&p.f));
    CHECK_OK_ERROR(take(&p.f, MIB, p.b, false, &other), &p.f.error); /* b waits for all of it */
    vmm_driver_wait(p.f.driver, 2 * MS);                             /* its own work is over by then */
    CHECK_EQ(vmm_raw_stream_query(p.f.sim, p.b), VMM_CODE_NOT_READY);
    CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.b, NULL));
    CHECK_CALL(close_pair(&p));
  }
}

TEST(a_free_on_a_stream_that_was_never_named_waits_for_the_context) {
  u64 address, again;
  int events;
  pair p;

  for (events = 0; events < 2; events++) {
    CHECK_CALL(open_pair(&p, events, 0));
    CHECK_OK(take(&p.f, MIB, p.b, true, &address));
    OK(vmm_raw_kernel_spin(p.f.sim, p.a, 20 * MS));
    OK(vmm_raw_kernel_fill(p.f.sim, p.a, address, MIB, 5)); /* the test's own: b's fill is done by then */
    CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
    CHECK_EQ(fixture_stats(p.f.pool).limbo_count, 1);
    CHECK_EQ(fixture_stats(p.f.pool).stream_count, 1);
    CHECK_EQ(fixture_stats(p.f.pool).ordered_bytes, MIB);
    CHECK_OK_ERROR(take(&p.f, MIB, p.b, false, &again), &p.f.error); /* b waits */
    CHECK_EQ(fixture_stats(p.f.pool).wait_count, 1);
    vmm_driver_wait(p.f.driver, 2 * MS); /* its own work is over by then */
    CHECK_EQ(vmm_raw_stream_query(p.f.sim, p.b), VMM_CODE_NOT_READY);
    CHECK_OK(vmm_pool_free_async(p.f.pool, again, p.b, NULL));
    CHECK_CALL(close_pair(&p));
  }
}

TEST(a_block_of_several_streams_is_free_when_all_are_done) {
  void *streams[3];
  u64 address, again;
  size_t n, slow;
  pair p;

  for (n = 2; n <= 3; n++)
    for (slow = 0; slow < n; slow++) {
      size_t i;

      CHECK_CALL(open_pair(&p, VMM_EVENTS_LAZY, 0));
      streams[0] = p.a, streams[1] = p.b, streams[2] = NULL;
      CHECK_OK(take(&p.f, MIB, p.a, true, &address));
      vmm_driver_wait(p.f.driver, 5 * MS);
      OK(vmm_raw_kernel_spin(p.f.sim, streams[slow], 20 * MS));
      for (i = 0; i < n; i++)
        OK(vmm_raw_kernel_verify(p.f.sim, streams[i], address, MIB / 2, 3, address + MIB / 2 + 8 * i));
      CHECK_OK(vmm_pool_free_multi(p.f.pool, address, streams, n, NULL));
      CHECK_STATUS(vmm_pool_free_multi(p.f.pool, address, streams, n, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
      CHECK_EQ(fixture_stats(p.f.pool).limbo_count, 1);
      CHECK_OK(take(&p.f, MIB, p.b, false, &again)); /* made to wait for all of them, or reported */
      CHECK_OK(vmm_pool_free_async(p.f.pool, again, p.b, NULL));
      CHECK_CALL(close_pair(&p));
    }
  CHECK_CALL(open_pair(&p, VMM_EVENTS_LAZY, 0));
  CHECK_OK(take(&p.f, MIB, p.a, true, &address));
  CHECK_OK(vmm_pool_free_multi(p.f.pool, address, &p.a, 1, NULL)); /* as free_async */
  CHECK_EQ(fixture_stats(p.f.pool).limbo_count, 0);
  CHECK_CALL(close_pair(&p));
}

/* Without cuCtxRecordEvent an event on the home stream must not stand for what others have queued. */
TEST(on_an_older_driver_nothing_is_unmapped_under_another_streams_work) {
  u64 address, done, pending, trimmed;
  int how;
  pair p;

  for (how = 0; how < 3; how++) {
    void *both[2];

    CHECK_CALL(open_pair(&p, VMM_EVENTS_LAZY, 12000));
    both[0] = p.a, both[1] = p.b;
    if (how == 0) CHECK_CALL(a_has_it(&p, &address));
    else CHECK_OK(take(&p.f, MIB, p.a, true, &address)); /* alone */
    OK(vmm_raw_kernel_spin(p.f.sim, p.a, 20 * MS));
    if (how != 2) CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
    else CHECK_OK(vmm_pool_free_multi(p.f.pool, address, both, 2, NULL));
    CHECK_OK(vmm_pool_trim_async(p.f.pool, 0, &done, &pending, NULL));
    CHECK_EQ(done, 0);
    CHECK_EQ(pending, MIB);
    CHECK_OK(vmm_sim_forbid_blocking(p.f.sim, 0)); /* the documents say that a trim blocks there */
    CHECK_OK_ERROR(vmm_pool_trim(p.f.pool, 0, 0, &trimmed, &p.f.error), &p.f.error);
    CHECK_EQ(trimmed, MIB);
    CHECK_OK(vmm_sim_forbid_blocking(p.f.sim, 1));
    CHECK_CALL(fixture_compare(&p.f));
    CHECK_CALL(close_pair(&p));
  }
}

/* While a capture is announced the fence of the home stream must not either. */
TEST(while_a_capture_is_announced_a_trim_leaves_other_streams_memory_alone) {
  u64 address, again, trimmed;
  int how;
  pair p;

  for (how = 0; how < 4; how++) {
    fixture_options options;
    void *home, *both[2];

    fixture_defaults(&options);
    CHECK_CALL(fixture_open(&p.f, &options));
    CHECK_OK(vmm_pool_destroy(p.f.pool, VMM_DESTROY_IDLE, NULL));
    p.f.pools[0] = NULL;
    OK(vmm_raw_stream_create(p.f.sim, &p.a, 1));
    OK(vmm_raw_stream_create(p.f.sim, &p.b, 1));
    OK(vmm_raw_stream_create(p.f.sim, &home, 1));
    options.pool.home_stream = home; /* one that could be fenced in a capture */
    options.pool.limit = options.pool.mapping_min = options.pool.mapping_max = MIB;
    CHECK_CALL(p.f.pool = fixture_add_pool(&p.f, &options.pool));
    both[0] = p.a, both[1] = p.b;
    if (how == 3) { /* one of several */
      CHECK_OK(take(&p.f, 256, p.b, true, &address));
      CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.b, NULL));
      vmm_driver_wait(p.f.driver, MS);
    }
    if (how % 3 == 0) { /* alone, and not the home stream */
      CHECK_OK(take(&p.f, MIB, p.a, true, &address));
    } else { /* the home stream, and a stranger */
      CHECK_OK(vmm_pool_alloc(p.f.pool, MIB, &address, NULL));
      OK(vmm_raw_kernel_fill(p.f.sim, p.a, address, MIB, 3));
    }
    OK(vmm_raw_kernel_spin(p.f.sim, p.a, 20 * MS));
    if (how == 2) CHECK_OK(vmm_pool_free_multi(p.f.pool, address, both, 2, NULL));
    else CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
    CHECK_OK(vmm_device_capture_begin(p.f.device, p.b, NULL));
    CHECK_STATUS(vmm_pool_trim(p.f.pool, 0, 0, &trimmed, &p.f.error), VMM_ERROR_CAPTURE);
    CHECK_EQ(trimmed, 0);
    CHECK_OK(vmm_pool_trim_async(p.f.pool, 0, &trimmed, NULL, NULL));
    CHECK_EQ(trimmed, 0);
    if (how % 3 == 0) { /* its own order is enough, whoever else failed meanwhile */
      CHECK_OK_ERROR(take(&p.f, MIB, p.a, false, &again), &p.f.error);
      CHECK_OK(vmm_pool_free_async(p.f.pool, again, p.a, NULL));
    }
    CHECK_OK(vmm_device_capture_end(p.f.device, p.b, VMM_CAPTURE_ABORTED, NULL, NULL));
    CHECK_OK_ERROR(vmm_pool_trim(p.f.pool, 0, 0, &trimmed, &p.f.error), &p.f.error);
    CHECK_EQ(trimmed, MIB);
    CHECK_OK(vmm_pool_destroy(p.f.pool, VMM_DESTROY_IDLE, NULL));
    p.f.pools[0] = NULL;
    OK(vmm_raw_stream_destroy(p.f.sim, home));
    CHECK_CALL(close_pair(&p));
  }
}

/* The fill of a scrub is work of the library's, which the caller's word does not cover. */
TEST(a_block_that_is_vouched_for_goes_to_nobody_under_its_own_scrub) {
  vmm_request request;
  u64 address, other;
  int events, fail;
  pair p;

  for (events = 0; events < 2; events++)
    for (fail = 0; fail < 2; fail++) {
      CHECK_CALL(open_pair(&p, events, 0));
      CHECK_OK(take(&p.f, MIB, p.b, true, &address));
      CHECK_OK(vmm_pool_free_idle(p.f.pool, address, NULL)); /* done by the time below */
      vmm_driver_wait(p.f.driver, 20 * MS);
      CHECK_OK(vmm_request_init(&request, sizeof request));
      request.size = MIB;
      request.flags = VMM_REQUEST_ON_STREAM | VMM_REQUEST_SCRUB;
      request.stream = p.a;
      OK(vmm_raw_kernel_spin(p.f.sim, p.a, 20 * MS));
      if (fail) CHECK_CALL(fixture_rule(&p.f, "cuMemsetD8Async:UNKNOWN:after"));
      CHECK_STATUS(vmm_pool_alloc_with(p.f.pool, &request, &address, &p.f.error), fail ? VMM_ERROR_DRIVER : VMM_OK);
      if (!fail) CHECK_OK(vmm_pool_free_idle(p.f.pool, address, NULL));
      CHECK_CALL(fixture_clear(&p.f));
      CHECK_OK_ERROR(take(&p.f, MIB, p.b, false, &other), &p.f.error);
      vmm_driver_wait(p.f.driver, 2 * MS); /* its own work is over by then */
      CHECK_EQ(vmm_raw_stream_query(p.f.sim, p.b), VMM_CODE_NOT_READY);
      CHECK_OK(vmm_pool_free_async(p.f.pool, other, p.b, NULL));
      CHECK_CALL(close_pair(&p));
    }
}

TEST(bad_arguments_are_told) {
  u64 address = 1, other;
  vmm_request request;
  pair p;

  CHECK_CALL(open_pair(&p, VMM_EVENTS_LAZY, 0));
  CHECK_STATUS(vmm_pool_alloc_async(NULL, 1, p.a, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(address, 0);
  CHECK_STATUS(vmm_pool_alloc_async(p.f.pool, 1, p.a, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  address = 1;
  CHECK_STATUS(vmm_pool_alloc_async(p.f.pool, ~0ull, p.a, &address, &p.f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(address, 0);
  CHECK_STATUS(vmm_pool_free_async(NULL, 1, p.a, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_free_async(p.f.pool, 1, p.a, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_OK(vmm_pool_alloc_async(p.f.pool, 0, p.a, &address, NULL));
  CHECK_STATUS(vmm_pool_free_async(p.f.pool, address + 1, p.a, &p.f.error), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(p.f.error.address, address + 1);
  CHECK_STATUS(vmm_pool_free_multi(p.f.pool, address, NULL, 1, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_free_multi(p.f.pool, address + 256, NULL, 0, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_STATUS(vmm_pool_free_multi(NULL, address, &p.a, 1, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 1;
  request.stream = p.a;
  CHECK_STATUS(vmm_pool_alloc_with(p.f.pool, &request, &other, &p.f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(p.f.error.message, "ON_STREAM") != NULL);
  CHECK_OK(vmm_pool_free_async(p.f.pool, address, p.a, NULL));
  CHECK_STATUS(vmm_pool_free_async(p.f.pool, address, p.a, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(fixture_stats(p.f.pool).free_count, 1);
  CHECK_CALL(close_pair(&p));
}

RUN_TESTS()
