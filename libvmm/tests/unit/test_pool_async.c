/* Alloc and free in the order of streams: who may have what when, what it costs, and what happens when the driver says no.
 * The simulator reports each block that is touched before its last owner's work is done, and fixture_close fails on it. */
#include "support/fixture.h"

/* A block ordered on a stream; it has a new owner, whose first work fills it. */
static u64 take(fixture *f, u64 size, void *stream) {
  u64 address = fixture_alloc_on(f, size, stream);

  CHECK_EQ_RETURN(vmm_raw_kernel_fill(f->sim, stream, address, (size_t)size, address), VMM_CODE_SUCCESS, 0);
  return address;
}

static void work(fixture *f, void *stream, u64 ns) { OK(vmm_raw_kernel_spin(f->sim, stream, ns)); }

/* Three streams and a pool that may hold 4 MiB, in mappings of 1 MiB. */
typedef struct three {
  fixture f;
  void *a, *b, *c;
} three;

static void open_three(three *t, fixture_options *options) {
  options->pool.mapping_min = options->pool.mapping_max = MIB;
  options->pool.limit = 4 * MIB;
  CHECK_CALL(fixture_open(&t->f, options));
  CHECK_CALL(t->a = fixture_new_stream(&t->f, NON_BLOCKING));
  CHECK_CALL(t->b = fixture_new_stream(&t->f, NON_BLOCKING));
  CHECK_CALL(t->c = fixture_new_stream(&t->f, NON_BLOCKING));
  CHECK_OK(vmm_device_register_stream(t->f.device, t->a, NULL));
  CHECK_OK(vmm_device_register_stream(t->f.device, t->b, NULL));
  CHECK_OK(vmm_device_register_stream(t->f.device, t->c, NULL));
}

static void close_three(three *t) {
  CHECK_CALL(fixture_end_stream(&t->f, t->a));
  CHECK_CALL(fixture_end_stream(&t->f, t->b));
  CHECK_CALL(fixture_end_stream(&t->f, t->c));
  CHECK_CALL(fixture_close(&t->f));
}

static void open_plain(three *t) {
  fixture_options options;

  fixture_defaults(&options);
  CHECK_CALL(open_three(t, &options));
}

/* ---- who may have it when ---- */

TEST(what_a_stream_freed_is_its_own_at_once_and_anothers_when_its_work_is_done) {
  u64 first, own, other, later;
  three t;

  CHECK_CALL(open_plain(&t));
  CHECK_CALL(other = take(&t.f, 256, t.b)); /* both streams use the pool */
  CHECK_CALL(fixture_free_on(&t.f, other, t.b));
  CHECK_CALL(first = take(&t.f, MIB / 2, t.a));
  CHECK_CALL(work(&t.f, t.a, 20 * MS));
  CHECK_CALL(fixture_free_on(&t.f, first, t.a));
  CHECK_EQ(fixture_stats(t.f.pool).stream_count, 2);
  CHECK_CALL(own = take(&t.f, MIB / 2, t.a));
  CHECK_EQ(own, first);
  CHECK_CALL(fixture_free_on(&t.f, own, t.a));
  CHECK_CALL(other = take(&t.f, MIB - 4096, t.b));
  CHECK(other + MIB - 4096 <= first || other >= first + MIB / 2);
  CHECK_CALL(fixture_free_on(&t.f, other, t.b));
  vmm_driver_wait(t.f.driver, 30 * MS);
  CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, 2 * MIB);
  CHECK_CALL(later = take(&t.f, 2 * MIB, t.c)); /* all of both, without growth */
  CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, 2 * MIB);
  CHECK_EQ(fixture_stats(t.f.pool).ordered_bytes, 0);
  CHECK_EQ(fixture_stats(t.f.pool).wait_count, 0);
  CHECK_CALL(fixture_compare(&t.f));
  CHECK_CALL(fixture_free_on(&t.f, later, t.c));
  CHECK_CALL(close_three(&t));
}

TEST(a_batch_of_frees_and_allocs_costs_one_record_and_one_query) {
  enum { N = 64 };
  fixture_options options;
  u64 blocks[N];
  three t;
  int i, round;

  fixture_defaults(&options);
  CHECK_CALL(open_three(&t, &options));
  for (i = 0; i < N; i++) CHECK_CALL(blocks[i] = take(&t.f, 16 * KIB, t.a));
  for (i = 0; i < N; i++) CHECK_CALL(fixture_free_on(&t.f, blocks[i], t.a));
  CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, MIB);
  for (round = 0; round < 3; round++) { /* from a to b, to c, to a */
    void *to[] = {t.b, t.c, t.a};

    vmm_driver_wait(t.f.driver, 20 * MS);
    CHECK_CALL(fixture_forget_calls(&t.f));
    for (i = 0; i < N; i++) CHECK_OK(vmm_pool_alloc_async(t.f.pool, 16 * KIB, to[round], &blocks[i], NULL));
    CHECK_EQ(fixture_calls(&t.f, VMM_OP_event_record), 1);
    CHECK_EQ(fixture_calls(&t.f, VMM_OP_event_query), 1);
    CHECK_EQ(fixture_calls(&t.f, VMM_OP_stream_wait_event), 0);
    for (i = 0; i < N; i++) {
      CHECK_OK(vmm_sim_new_owner(t.f.sim, blocks[i], 16 * KIB));
      OK(vmm_raw_kernel_fill(t.f.sim, to[round], blocks[i], 16 * KIB, 1));
      CHECK_CALL(fixture_free_on(&t.f, blocks[i], to[round]));
    }
    CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, MIB);
  }
  CHECK_EQ(fixture_stats(t.f.pool).seal_count, 3);
  CHECK_CALL(close_three(&t));
}

TEST(on_one_stream_pairs_call_neither_the_driver_nor_the_host_allocator) {
  enum { PAIRS = 100000, LIVE = 256 };
  u64 blocks[LIVE] = {0}, random = 7;
  long long allocations;
  three t;
  int i, shared;

  for (shared = 0; shared < 2; shared++) {
    CHECK_CALL(open_plain(&t));
    if (shared) CHECK_CALL(fixture_free_on(&t.f, take(&t.f, 256, t.b), t.b));
    for (i = 0; i < LIVE; i++) CHECK_CALL(blocks[i] = take(&t.f, 4096, t.a));
    CHECK_OK(vmm_pool_grow(t.f.pool, MIB, NULL, NULL));
    CHECK_CALL(fixture_forget_calls(&t.f));
    allocations = t.f.memory.calls;
    for (i = 0; i < PAIRS; i++) {
      u64 *block = &blocks[fixture_random(&random) % LIVE];

      CHECK_OK(vmm_pool_free_async(t.f.pool, *block, t.a, NULL));
      CHECK_OK(vmm_pool_alloc_async(t.f.pool, fixture_random(&random) % 4096, t.a, block, NULL));
    }
    CHECK_EQ(fixture_calls(&t.f, VMM_OP_ANY), 0);
    CHECK_EQ(t.f.memory.calls, allocations);
    CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, 2 * MIB);
    for (i = 0; i < LIVE; i++) CHECK_CALL(fixture_free_on(&t.f, blocks[i], t.a));
    CHECK_CALL(close_three(&t));
  }
}

TEST(the_two_names_of_the_legacy_stream_are_one) {
  void *zero = NULL, *one = (void *)(size_t)1;
  u64 address, again;
  three t;

  CHECK_CALL(open_plain(&t));
  CHECK_CALL(fixture_free_on(&t.f, take(&t.f, 256, t.b), t.b));
  CHECK_CALL(address = take(&t.f, MIB, zero));
  CHECK_CALL(work(&t.f, zero, 5 * MS));
  CHECK_CALL(fixture_free_on(&t.f, address, one));
  CHECK_CALL(again = take(&t.f, MIB, zero));
  CHECK_EQ(again, address);
  CHECK_CALL(fixture_free_on(&t.f, again, zero));
  CHECK_OK(vmm_pool_alloc(t.f.pool, MIB, &again, NULL)); /* the home stream is it, too */
  CHECK_EQ(again, address);
  CHECK_CALL(fixture_free_on(&t.f, again, one));
  CHECK_EQ(fixture_stats(t.f.pool).stream_count, 1);
  CHECK_CALL(close_three(&t));
}

/* What lies side by side serves, whoever freed it. */
TEST(neighbours_that_different_streams_freed_serve_a_third_at_the_limit) {
  u64 blocks[8], all;
  three t;
  int i, busy;

  for (busy = 0; busy < 2; busy++) {
    void *streams[3];

    CHECK_CALL(open_plain(&t));
    streams[0] = t.a, streams[1] = t.b, streams[2] = t.c;
    for (i = 0; i < 8; i++) CHECK_CALL(blocks[i] = take(&t.f, MIB / 2, streams[i % 3]));
    if (busy)
      for (i = 0; i < 2; i++) CHECK_CALL(work(&t.f, streams[i], 20 * MS));
    for (i = 0; i < 7; i++) CHECK_CALL(fixture_free_on(&t.f, blocks[i], streams[i % 3]));
    CHECK_CALL(all = take(&t.f, 3 * MIB + MIB / 4, t.c)); /* more than any one of them, and no mapping can be had */
    CHECK_EQ(fixture_stats(t.f.pool).wait_count, busy ? 2 : 0);
    CHECK_EQ(fixture_stats(t.f.pool).growth_count, 4);
    CHECK_EQ(fixture_stats(t.f.pool).trim_count, 0);
    CHECK_CALL(fixture_free_on(&t.f, all, t.c));
    CHECK_CALL(fixture_free_on(&t.f, blocks[7], t.b));
    CHECK_CALL(close_three(&t));
  }
}

/* A pool of one stream whose blocks are freed in the order of the home stream: nobody owns it all. */
TEST(what_is_freed_in_home_order_comes_back_to_the_stream_that_uses_the_pool) {
  u64 address, round;
  three t;

  CHECK_CALL(open_plain(&t));
  for (round = 0; round < 20; round++) {
    CHECK_CALL(address = take(&t.f, MIB, t.a));
    OK(vmm_raw_stream_synchronize(t.f.sim, t.a) == VMM_CODE_SUCCESS ? VMM_CODE_SUCCESS : VMM_CODE_UNKNOWN);
    CHECK_CALL(fixture_free(&t.f, address));
    vmm_driver_wait(t.f.driver, MS);
  }
  CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, MIB);
  CHECK_OK(vmm_sim_clear_misuse(t.f.sim)); /* the test's own synchronise */
  CHECK_CALL(close_three(&t));
}

/* ---- waiting ---- */

TEST(a_pool_that_prefers_it_makes_a_stream_wait_rather_than_grow) {
  fixture_options options;
  u64 address, other;
  three t;

  fixture_defaults(&options);
  options.pool.prefer_wait = 1;
  CHECK_CALL(open_three(&t, &options));
  CHECK_CALL(address = take(&t.f, MIB, t.a));
  CHECK_CALL(work(&t.f, t.a, 20 * MS));
  CHECK_CALL(fixture_free_on(&t.f, address, t.a));
  CHECK_EQ(vmm_pool_alloc_async(t.f.pool, 2 * MIB, t.b, &other, NULL), VMM_OK); /* too much for that: growth */
  CHECK_EQ(fixture_stats(t.f.pool).wait_count, 0);
  CHECK_CALL(fixture_free_on(&t.f, other, t.b));
  CHECK_OK(vmm_pool_trim(t.f.pool, 0, 0, NULL, NULL));
  CHECK_CALL(address = take(&t.f, MIB, t.a));
  CHECK_CALL(work(&t.f, t.a, 20 * MS));
  CHECK_CALL(fixture_free_on(&t.f, address, t.a));
  CHECK_CALL(fixture_forget_calls(&t.f));
  CHECK_CALL(other = take(&t.f, MIB, t.b)); /* its fill comes after a's work, or the simulator says so */
  CHECK_EQ(other, address);
  CHECK_EQ(fixture_calls(&t.f, VMM_OP_event_record), 1);
  CHECK_EQ(fixture_calls(&t.f, VMM_OP_stream_wait_event), 1);
  CHECK_EQ(fixture_calls(&t.f, VMM_OP_mem_create), 0);
  CHECK_EQ(fixture_stats(t.f.pool).wait_count, 1);
  CHECK_EQ(fixture_stats(t.f.pool).committed_bytes, MIB);
  vmm_driver_wait(t.f.driver, 2 * MS); /* its own work is over by then */
  CHECK_EQ(vmm_raw_stream_query(t.f.sim, t.b), VMM_CODE_NOT_READY);
  CHECK_CALL(fixture_free_on(&t.f, other, t.b));
  CHECK_CALL(close_three(&t));
}

TEST(at_the_limit_a_stream_waits_rather_than_fail) {
  fixture_options options;
  u64 blocks[4], other, start;
  three t;
  int i, how;

  for (how = 0; how < 2; how++) {
    vmm_request request;

    fixture_defaults(&options);
    CHECK_CALL(open_three(&t, &options));
    for (i = 0; i < 4; i++) CHECK_CALL(blocks[i] = take(&t.f, MIB, t.a));
    CHECK_CALL(work(&t.f, t.a, 20 * MS));
    CHECK_CALL(fixture_free_on(&t.f, blocks[2], t.a));
    start = vmm_driver_now(t.f.driver);
    if (how == 0) {
      CHECK_CALL(other = take(&t.f, MIB, t.b));
    } else { /* one that may not grow is in the same place */
      CHECK_OK(vmm_request_init(&request, sizeof request));
      request.size = MIB;
      request.flags = VMM_REQUEST_NO_GROWTH | VMM_REQUEST_ON_STREAM;
      request.stream = t.b;
      CHECK_OK_ERROR(vmm_pool_alloc_with(t.f.pool, &request, &other, &t.f.error), &t.f.error);
    }
    CHECK(vmm_driver_now(t.f.driver) - start < MS); /* the stream waits, the host does not */
    CHECK_EQ(other, blocks[2]);
    CHECK_EQ(fixture_stats(t.f.pool).wait_count, 1);
    CHECK_EQ(fixture_stats(t.f.pool).alloc_failures, 0);
    blocks[2] = other;
    for (i = 0; i < 4; i++) CHECK_CALL(fixture_free_on(&t.f, blocks[i], i == 2 ? t.b : t.a));
    CHECK_CALL(close_three(&t));
  }
}

/* Neither because the pool prefers it nor at the limit. What is idle it gets all the same. */
TEST(a_stream_that_is_captured_is_never_made_to_wait) {
  fixture_options options;
  void *graph = NULL;
  u64 blocks[4], other = 1, idle;
  three t;
  int i, prefer;

  for (prefer = 0; prefer < 2; prefer++) {
    fixture_defaults(&options);
    options.pool.prefer_wait = prefer;
    CHECK_CALL(open_three(&t, &options));
    for (i = 0; i < 4; i++) CHECK_CALL(blocks[i] = take(&t.f, i == 3 ? MIB / 2 : MIB, t.a));
    CHECK_CALL(fixture_free_on(&t.f, take(&t.f, 256, t.b), t.b));
    CHECK_CALL(work(&t.f, t.a, 20 * MS));
    CHECK_CALL(fixture_free_on(&t.f, blocks[2], t.a));
    CHECK_OK(vmm_device_capture_begin(t.f.device, t.b, NULL));
    OK(vmm_raw_stream_begin_capture(t.f.sim, t.b, 0));
    CHECK_STATUS(vmm_pool_alloc_async(t.f.pool, MIB, t.b, &other, &t.f.error), VMM_ERROR_LIMIT);
    CHECK_EQ(other, 0);
    CHECK_EQ(fixture_stats(t.f.pool).wait_count, 0);
    CHECK_OK(vmm_pool_alloc_async(t.f.pool, 4096, t.b, &idle, NULL));
    vmm_driver_wait(t.f.driver, 30 * MS);
    CHECK_OK(vmm_pool_alloc_async(t.f.pool, MIB, t.b, &other, NULL)); /* done by now */
    OK(vmm_raw_stream_end_capture(t.f.sim, t.b, &graph));
    CHECK_OK(vmm_device_capture_end(t.f.device, t.b, VMM_CAPTURE_ABORTED, NULL, NULL));
    OK(vmm_raw_graph_destroy(t.f.sim, graph));
    CHECK_CALL(fixture_free_on(&t.f, other, t.b));
    CHECK_CALL(fixture_free_on(&t.f, idle, t.b));
    for (i = 0; i < 4; i++)
      if (i != 2) CHECK_CALL(fixture_free_on(&t.f, blocks[i], t.a));
    CHECK_EQ(fixture_ledger(&t.f, 0).captures_invalidated, 0);
    CHECK_CALL(close_three(&t));
  }
}

RUN_TESTS()
