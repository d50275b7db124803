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

RUN_TESTS()
