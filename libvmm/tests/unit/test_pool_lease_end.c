/* The end of leases with their pool: what a destroy that fails leaves to graphs and captures. */
#include "support/fixture.h"

typedef struct graphs {
  fixture f;
  void *stream, *other; /* captured; announced when the pool is to end */
  vmm_lease *lease;
  u64 inside; /* memory of the graph's */
} graphs;

static void start(graphs *g) {
  void *graph;

  memset(g, 0, sizeof *g);
  CHECK_CALL(fixture_open(&g->f, NULL));
  CHECK_CALL(g->stream = fixture_new_stream(&g->f, NON_BLOCKING));
  CHECK_CALL(g->other = fixture_new_stream(&g->f, NON_BLOCKING));
  CHECK_CALL(fixture_begin_capture(&g->f, g->stream, 0));
  CHECK_CALL(g->inside = fixture_alloc_on(&g->f, MIB, g->stream));
  CHECK_CALL(fixture_free_on(&g->f, g->inside, g->stream));
  OK(vmm_raw_stream_end_capture(g->f.sim, g->stream, &graph));
  OK(vmm_raw_graph_destroy(g->f.sim, graph));
  CHECK_OK(vmm_device_capture_end(g->f.device, g->stream, VMM_CAPTURE_COMMITTED, &g->lease, NULL));
}

static void expect_leased(graphs *g) {
  u64 others;

  CHECK_EQ(fixture_stats(g->f.pool).lease_count, 1);
  CHECK_EQ(fixture_stats(g->f.pool).lease_bytes, MIB);
  CHECK_OK(vmm_pool_alloc(g->f.pool, MIB, &others, NULL));
  CHECK(others != g->inside);
  CHECK_OK(vmm_pool_free(g->f.pool, others, NULL));
  CHECK_CALL(fixture_check(&g->f));
}

static void finish(graphs *g) {
  CHECK_OK(vmm_pool_destroy(g->f.pool, VMM_DESTROY_FORCED, &g->f.error));
  g->f.pools[0] = g->f.pool = NULL;
  CHECK_OK(vmm_lease_release(g->lease, NULL));
  OK(vmm_raw_stream_destroy(g->f.sim, g->stream));
  OK(vmm_raw_stream_destroy(g->f.sim, g->other));
  CHECK_CALL(fixture_close(&g->f));
}

TEST(a_destroy_that_a_capture_forbids_leaves_graphs_their_memory) {
  graphs g;

  CHECK_CALL(start(&g));
  CHECK_OK(vmm_device_capture_begin(g.f.device, g.other, NULL));
  CHECK_STATUS(vmm_pool_destroy(g.f.pool, VMM_DESTROY_IDLE, NULL), VMM_ERROR_CAPTURE);
  CHECK_STATUS(vmm_pool_destroy(g.f.pool, VMM_DESTROY_FORCED, NULL), VMM_ERROR_CAPTURE);
  CHECK_OK(vmm_device_capture_end(g.f.device, g.other, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_CALL(expect_leased(&g));
  CHECK_CALL(finish(&g));
}

TEST(a_destroy_that_cannot_wait_long_enough_leaves_graphs_their_memory) {
  graphs g;
  u64 live;

  CHECK_CALL(start(&g));
  OK(vmm_raw_kernel_spin(g.f.sim, g.stream, 5000 * MS));
  CHECK_STATUS(vmm_pool_destroy(g.f.pool, VMM_DESTROY_IDLE, NULL), VMM_ERROR_TIMEOUT);
  CHECK_CALL(expect_leased(&g));
  CHECK_CALL(live = fixture_alloc(&g.f, MIB));
  CHECK(live != g.inside);
  CHECK_STATUS(vmm_pool_destroy(g.f.pool, VMM_DESTROY_FORCED, NULL), VMM_ERROR_BUSY);
  CHECK_CALL(fixture_free(&g.f, live));
  CHECK_CALL(expect_leased(&g));
  vmm_driver_wait(g.f.driver, 10000 * MS);
  CHECK_CALL(finish(&g));
}

/* The free on the captured stream finds what was prepared for it. */
TEST(a_destroy_that_fails_leaves_a_capture_what_was_prepared_for_it) {
  graphs g;
  u64 before;

  CHECK_CALL(start(&g));
  CHECK_OK(vmm_lease_release(g.lease, NULL));
  CHECK_CALL(before = fixture_alloc(&g.f, MIB));
  OK(vmm_raw_kernel_spin(g.f.sim, NULL, MS));
  CHECK_CALL(fixture_begin_capture(&g.f, g.other, 0));
  CHECK_STATUS(vmm_pool_destroy(g.f.pool, VMM_DESTROY_FORCED, NULL), VMM_ERROR_CAPTURE);
  CHECK_OK(vmm_pool_free_async(g.f.pool, before, g.other, NULL));
  CHECK_EQ(fixture_stats(g.f.pool).fence_failures, 0);
  CHECK_STATUS(vmm_pool_destroy(g.f.pool, VMM_DESTROY_IDLE, NULL), VMM_ERROR_CAPTURE);
  CHECK_EQ(fixture_stats(g.f.pool).lease_count, 1);
  OK(vmm_raw_stream_end_capture(g.f.sim, g.other, &(void *){NULL}));
  CHECK_OK(vmm_device_capture_end(g.f.device, g.other, VMM_CAPTURE_COMMITTED, &g.lease, NULL));
  CHECK_CALL(finish(&g));
}

/* While a destroy waits for its fence others may announce captures: what that prepares goes with the pool. The first look at
 * the fence is no wait yet. */
static void announce(void *data, int op, u64 opportunity) {
  graphs *g = data;

  (void)op;
  if (opportunity != 3) return;
  CHECK_OK(vmm_device_capture_begin(g->f.device, g->other, NULL));
  CHECK_OK(vmm_device_capture_end(g->f.device, g->other, VMM_CAPTURE_ABORTED, NULL, NULL));
}

TEST(what_is_prepared_for_a_capture_in_the_middle_of_a_destroy_goes_with_the_pool) {
  graphs g;

  CHECK_CALL(start(&g));
  CHECK_OK(vmm_lease_release(g.lease, NULL));
  CHECK_CALL(fixture_free(&g.f, fixture_alloc(&g.f, MIB)));
  OK(vmm_raw_kernel_spin(g.f.sim, NULL, 5 * MS));
  CHECK_CALL(fixture_hook(&g.f, VMM_OP_event_query, announce, &g));
  CHECK_OK(vmm_pool_destroy(g.f.pool, VMM_DESTROY_IDLE, &g.f.error));
  CHECK_CALL(fixture_clear(&g.f));
  g.f.pools[0] = g.f.pool = NULL;
  OK(vmm_raw_stream_destroy(g.f.sim, g.stream));
  OK(vmm_raw_stream_destroy(g.f.sim, g.other));
  CHECK_CALL(fixture_close(&g.f));
}

/* Captures that overlap without a break: no context-wide fence can be had. */
static void capture_with_others(graphs *g, bool idle) {
  int i;

  for (i = 0; i < 20; i++) {
    void *const next = i % 2 == 0 ? g->other : g->stream, *const before = i % 2 == 0 ? g->stream : g->other;
    vmm_lease *lease = NULL;
    u64 inside;

    CHECK_CALL(inside = fixture_alloc_on(&g->f, MIB, before));
    CHECK_CALL(fixture_free_on(&g->f, inside, before));
    CHECK_OK(vmm_device_capture_begin(g->f.device, next, NULL));
    CHECK_OK(vmm_device_capture_end(g->f.device, before, VMM_CAPTURE_COMMITTED, &lease, NULL));
    if (idle) CHECK_OK(vmm_lease_release_idle(lease, NULL));
    else CHECK_OK(vmm_lease_release(lease, NULL));
    CHECK_CALL(fixture_check(&g->f));
  }
}

TEST(what_the_caller_vouches_for_is_free_while_captures_are_announced) {
  u64 committed;
  graphs g;

  CHECK_CALL(start(&g));
  CHECK_OK(vmm_lease_release_idle(g.lease, NULL));
  CHECK_STATUS(vmm_lease_release_idle(NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_device_capture_begin(g.f.device, g.stream, NULL));
  committed = fixture_stats(g.f.pool).committed_bytes;
  CHECK_CALL(capture_with_others(&g, true));
  CHECK(fixture_stats(g.f.pool).committed_bytes <= committed + MIB);
  CHECK_EQ(fixture_stats(g.f.pool).ordered_bytes, 0);
  CHECK_CALL(capture_with_others(&g, false)); /* otherwise they pile up, until there is a break */
  CHECK(fixture_stats(g.f.pool).ordered_bytes >= 10 * MIB);
  CHECK_OK(vmm_device_capture_end(g.f.device, g.stream, VMM_CAPTURE_COMMITTED, &g.lease, NULL));
  CHECK_OK(vmm_pool_trim(g.f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(g.f.pool).committed_bytes, fixture_stats(g.f.pool).lease_bytes);
  CHECK_CALL(finish(&g));
}

/* A block of the lease was scrubbed on another stream, which its owner does not see. */
TEST(nobody_vouches_for_a_scrub) {
  vmm_request request;
  u64 block = 0, other;
  graphs g;

  CHECK_CALL(start(&g));
  CHECK_OK(vmm_lease_release(g.lease, NULL));
  CHECK_OK(vmm_pool_trim(g.f.pool, 0, 0, NULL, NULL));
  OK(vmm_raw_kernel_spin(g.f.sim, g.stream, 20 * MS));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = MIB;
  request.flags = VMM_REQUEST_SCRUB | VMM_REQUEST_ON_STREAM;
  request.stream = g.stream;
  CHECK_OK(vmm_pool_alloc_with(g.f.pool, &request, &block, NULL));
  CHECK_OK(vmm_device_capture_begin(g.f.device, g.other, NULL));
  CHECK_OK(vmm_pool_free_async(g.f.pool, block, g.other, NULL));
  CHECK_OK(vmm_device_capture_end(g.f.device, g.other, VMM_CAPTURE_COMMITTED, &g.lease, NULL));
  CHECK_OK(vmm_lease_release_idle(g.lease, NULL));
  CHECK_CALL(other = fixture_alloc(&g.f, MIB));
  CHECK(other != block);
  CHECK_CALL(fixture_free(&g.f, other));
  g.lease = NULL;
  CHECK_OK(vmm_device_capture_begin(g.f.device, g.other, NULL));
  CHECK_OK(vmm_device_capture_end(g.f.device, g.other, VMM_CAPTURE_COMMITTED, &g.lease, NULL));
  CHECK_CALL(finish(&g));
}

RUN_TESTS()
