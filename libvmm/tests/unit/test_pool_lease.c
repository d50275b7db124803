/* Memory of captured graphs: it is the graph's until its lease ends, whatever is freed, trimmed or grown meanwhile. */
#include "support/fixture.h"

enum { NO_TIMING = 2 };

typedef struct capture {
  fixture f;
  void *stream, *other, *graph, *executable;
  vmm_lease *lease;
} capture;

static void open_with_streams(capture *c, const fixture_options *given) {
  memset(c, 0, sizeof *c);
  CHECK_CALL(fixture_open(&c->f, given));
  CHECK_CALL(c->stream = fixture_new_stream(&c->f, NON_BLOCKING));
  CHECK_CALL(c->other = fixture_new_stream(&c->f, NON_BLOCKING));
}

static void end(capture *c, int how) {
  OK(vmm_raw_stream_end_capture(c->f.sim, c->stream, &c->graph));
  CHECK_OK(vmm_device_capture_end(c->f.device, c->stream, how, &c->lease, &c->f.error));
  CHECK((c->lease != NULL) == (how == VMM_CAPTURE_COMMITTED));
  if (how == VMM_CAPTURE_COMMITTED) OK(vmm_raw_graph_instantiate(c->f.sim, &c->executable, c->graph, 0));
  OK(vmm_raw_graph_destroy(c->f.sim, c->graph));
}

static void launch(capture *c) { OK(vmm_raw_graph_launch(c->f.sim, c->executable, c->stream)); }

static void release(capture *c) {
  OK(vmm_raw_graph_exec_destroy(c->f.sim, c->executable));
  CHECK_OK(vmm_lease_release(c->lease, &c->f.error));
}

static void close_all(capture *c) {
  CHECK_OK(vmm_device_forget_stream(c->f.device, c->stream, NULL));
  (void)vmm_device_forget_stream(c->f.device, c->other, NULL);
  vmm_driver_wait(c->f.driver, 100 * MS);
  OK(vmm_raw_stream_destroy(c->f.sim, c->stream));
  OK(vmm_raw_stream_destroy(c->f.sim, c->other));
  CHECK_CALL(fixture_close(&c->f));
}

TEST(what_a_capture_freed_is_not_given_to_others_until_the_lease_ends) {
  u64 before, inside, again, other, done = 1;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(before = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(inside = fixture_alloc_on(&c.f, MIB, c.stream));
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, inside, MIB, 7));
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, before, MIB, 8));
  CHECK_OK(vmm_pool_free_async(c.f.pool, inside, c.stream, NULL));
  CHECK_CALL(again = fixture_alloc_on(&c.f, MIB, c.stream)); /* within the capture it is reused */
  CHECK_EQ(again, inside);
  CHECK_OK(vmm_pool_free_async(c.f.pool, inside, c.stream, NULL));
  CHECK_OK(vmm_pool_free_async(c.f.pool, before, c.stream, NULL));
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED));
  CHECK_EQ(fixture_stats(c.f.pool).lease_count, 1);
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, 2 * MIB);
  CHECK_CALL(other = fixture_alloc_on(&c.f, MIB, c.other));
  CHECK(other != inside && other != before);
  OK(vmm_raw_kernel_fill(c.f.sim, c.other, other, MIB, 9));
  CHECK_CALL(again = fixture_alloc_on(&c.f, MIB, c.stream)); /* not even to the stream itself */
  CHECK(again != inside && again != before);
  CHECK_OK(vmm_pool_free_async(c.f.pool, again, c.stream, NULL));
  CHECK_OK(vmm_pool_trim(c.f.pool, 0, 0, &done, &c.f.error));
  CHECK_CALL(launch(&c));
  vmm_driver_wait(c.f.driver, 10 * MS);
  CHECK_CALL(fixture_expect(&c.f, inside, MIB, 7));
  CHECK_CALL(fixture_expect(&c.f, other, MIB, 9));
  CHECK_OK(vmm_pool_check(c.f.pool, &c.f.error));
  CHECK_CALL(release(&c));
  CHECK_EQ(fixture_stats(c.f.pool).lease_count, 0);
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, 0);
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_OK(vmm_pool_trim(c.f.pool, 0, 0, &done, &c.f.error));
  CHECK_EQ(fixture_stats(c.f.pool).committed_bytes, 0);
  CHECK_CALL(close_all(&c));
}

TEST(a_block_of_a_capture_goes_back_to_its_lease_whoever_frees_it) {
  u64 kept, other;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(kept = fixture_alloc_on(&c.f, MIB, c.stream));
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, kept, MIB, 7));
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED));
  CHECK_CALL(launch(&c));
  CHECK_OK(vmm_pool_free(c.f.pool, kept, NULL));
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, MIB);
  CHECK_CALL(other = fixture_alloc_on(&c.f, MIB, c.other));
  CHECK(other != kept);
  CHECK_CALL(launch(&c));
  CHECK_CALL(release(&c)); /* work of the last launch may still run: nobody gets it before that is done */
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_CALL(other = fixture_alloc_on(&c.f, 2 * MIB, c.other));
  OK(vmm_raw_kernel_fill(c.f.sim, c.other, other, 2 * MIB, 9));
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_CALL(close_all(&c));
}

/* A graph of 5 ms that writes to a block which its capture allocated and freed; launched, and released at once. */
static void release_under_work(capture *c, u64 *inside) {
  u64 before;

  CHECK_CALL(before = fixture_alloc_on(&c->f, 4 * MIB, c->other));
  CHECK_CALL(fixture_begin_capture(&c->f, c->stream, 0));
  CHECK_CALL(*inside = fixture_alloc_on(&c->f, MIB, c->stream));
  OK(vmm_raw_kernel_spin(c->f.sim, c->stream, 5 * MS));
  OK(vmm_raw_kernel_fill(c->f.sim, c->stream, *inside, MIB, 7));
  CHECK_OK(vmm_pool_free_async(c->f.pool, *inside, c->stream, NULL));
  CHECK_CALL(end(c, VMM_CAPTURE_COMMITTED));
  OK(vmm_raw_kernel_spin(c->f.sim, c->other, MS));
  CHECK_OK(vmm_pool_free_async(c->f.pool, before, c->other, NULL));
  CHECK_OK(vmm_pool_trim(c->f.pool, 0, 0, NULL, NULL)); /* a fence behind all that was freed so far */
  CHECK_CALL(launch(c));
  CHECK_CALL(release(c));
}

TEST(what_a_lease_held_waits_for_the_last_launch) {
  vmm_request request;
  u64 inside, other = 0;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(release_under_work(&c, &inside));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = MIB;
  request.flags = VMM_REQUEST_ON_STREAM | VMM_REQUEST_NO_GROWTH;
  request.stream = c.other;
  CHECK_OK_ERROR(vmm_pool_alloc_with(c.f.pool, &request, &other, &c.f.error), &c.f.error);
  CHECK_EQ(other, inside);
  CHECK_EQ(fixture_stats(c.f.pool).wait_count, 1);
  CHECK_OK(vmm_sim_new_owner(c.f.sim, other, MIB));
  OK(vmm_raw_kernel_fill(c.f.sim, c.other, other, MIB, 9)); /* the simulator would tell if it did not come after */
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_CALL(close_all(&c));
}

TEST(a_trim_waits_for_the_last_launch_too) {
  u64 inside, done = 0, start;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(release_under_work(&c, &inside));
  start = vmm_driver_now(c.f.driver);
  CHECK_OK(vmm_pool_trim(c.f.pool, 0, 0, &done, &c.f.error));
  CHECK(vmm_driver_now(c.f.driver) - start >= 4 * MS);
  CHECK(done >= MIB);
  CHECK_EQ(fixture_stats(c.f.pool).committed_bytes, 0);
  CHECK_CALL(close_all(&c));
}

TEST(a_lease_that_ends_makes_ordinary_blocks_of_those_that_live) {
  u64 kept, other;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(kept = fixture_alloc_on(&c.f, MIB, c.stream));
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, kept, MIB, 7));
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED));
  CHECK_CALL(release(&c));
  CHECK_OK(vmm_pool_free_async(c.f.pool, kept, c.stream, NULL));
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, 0);
  CHECK_CALL(other = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_EQ(other, kept);
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.stream, NULL));
  CHECK_CALL(close_all(&c));
}

TEST(an_aborted_capture_gives_its_memory_back) {
  u64 before, inside, other;
  u64 committed;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(before = fixture_alloc_on(&c.f, MIB, c.stream));
  OK(vmm_raw_kernel_spin(c.f.sim, c.stream, 5 * MS));
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, before, MIB, 1));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(inside = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_OK(vmm_pool_free_async(c.f.pool, before, c.stream, NULL)); /* its work was queued before: it still runs */
  CHECK_OK(vmm_pool_free_async(c.f.pool, inside, c.stream, NULL));
  CHECK_CALL(end(&c, VMM_CAPTURE_ABORTED));
  CHECK_EQ(fixture_stats(c.f.pool).lease_count, 0);
  CHECK_CALL(other = fixture_alloc_on(&c.f, 2 * MIB, c.other));
  OK(vmm_raw_kernel_fill(c.f.sim, c.other, other, 2 * MIB, 2)); /* no race */
  vmm_driver_wait(c.f.driver, 10 * MS);
  committed = fixture_stats(c.f.pool).committed_bytes;
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_CALL(other = fixture_alloc_on(&c.f, committed - MIB, c.other)); /* all of it can be had */
  CHECK_EQ(fixture_stats(c.f.pool).committed_bytes, committed);
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_CALL(close_all(&c));
}

/* The home stream too, through the functions that name no stream. */
/* The capture ends while an allocation in it grows the pool. */
static void end_meanwhile(void *data, int op, u64 opportunity) {
  capture *c = data;

  (void)op;
  if (opportunity != 1) return;
  OK(vmm_raw_stream_end_capture(c->f.sim, c->stream, &c->graph));
  OK(vmm_raw_graph_destroy(c->f.sim, c->graph));
  CHECK_OK(vmm_device_capture_end(c->f.device, c->stream, VMM_CAPTURE_ABORTED, &c->lease, &c->f.error));
}

TEST(a_capture_that_ends_under_an_allocation_takes_nothing_from_it) {
  u64 block;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(fixture_hook(&c.f, VMM_OP_mem_create, end_meanwhile, &c));
  CHECK_CALL(block = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_CALL(fixture_clear(&c.f));
  CHECK_EQ(fixture_stats(c.f.pool).lease_count, 0);
  CHECK_OK(vmm_pool_check(c.f.pool, &c.f.error));
  CHECK_OK(vmm_pool_free_async(c.f.pool, block, c.stream, NULL));
  CHECK_CALL(fixture_compare(&c.f));
  CHECK_CALL(close_all(&c));
}

TEST(a_captured_home_stream_leases_as_well) {
  u64 first, second, third;
  fixture_options options;
  capture c;
  void *home = NULL;

  fixture_defaults(&options);
  options.no_pool = true;
  CHECK_CALL(open_with_streams(&c, &options));
  home = c.stream;
  options.pool.home_stream = home;
  CHECK_CALL(c.f.pool = fixture_add_pool(&c.f, &options.pool));
  CHECK_CALL(first = fixture_alloc(&c.f, MIB));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(second = fixture_alloc(&c.f, MIB));
  OK(vmm_raw_kernel_fill(c.f.sim, home, second, MIB, 3));
  CHECK_CALL(fixture_free(&c.f, first));
  CHECK_CALL(fixture_free(&c.f, second));
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED));
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, 2 * MIB);
  CHECK_CALL(third = fixture_alloc(&c.f, MIB));
  CHECK(third != first && third != second);
  CHECK_CALL(fixture_free(&c.f, third));
  CHECK_CALL(launch(&c));
  CHECK_OK(vmm_pool_trim(c.f.pool, 0, 0, NULL, &c.f.error));
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, 2 * MIB);
  CHECK_CALL(release(&c));
  CHECK_OK(vmm_pool_destroy(c.f.pool, VMM_DESTROY_IDLE, &c.f.error));
  c.f.pools[0] = c.f.pool = NULL;
  OK(vmm_raw_stream_destroy(c.f.sim, c.stream));
  OK(vmm_raw_stream_destroy(c.f.sim, c.other));
  CHECK_CALL(fixture_close(&c.f));
}

TEST(a_capturing_stream_gets_idle_or_new_memory_and_never_waits) {
  u64 busy, inside;
  vmm_pool_stats before;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(busy = fixture_alloc_on(&c.f, MIB, c.other));
  OK(vmm_raw_kernel_spin(c.f.sim, c.other, 50 * MS));
  OK(vmm_raw_kernel_fill(c.f.sim, c.other, busy, MIB, 1));
  CHECK_OK(vmm_pool_free_async(c.f.pool, busy, c.other, NULL));
  before = fixture_stats(c.f.pool);
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(inside = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK(inside != busy);
  CHECK_EQ(fixture_stats(c.f.pool).wait_count, 0);
  CHECK_EQ(fixture_stats(c.f.pool).growth_count, before.growth_count + 1);
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, inside, MIB, 2));
  CHECK_OK(vmm_pool_set_limit(c.f.pool, fixture_stats(c.f.pool).committed_bytes, NULL));
  {
    u64 none = 1;

    CHECK_STATUS(vmm_pool_alloc_async(c.f.pool, 8 * MIB, c.stream, &none, NULL), VMM_ERROR_LIMIT);
    CHECK_EQ(none, 0);
  }
  CHECK_EQ(fixture_stats(c.f.pool).wait_count, 0);
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED)); /* valid still */
  CHECK_CALL(launch(&c));
  vmm_driver_wait(c.f.driver, 100 * MS);
  CHECK_CALL(fixture_expect(&c.f, inside, MIB, 2));
  CHECK_CALL(release(&c));
  CHECK_OK(vmm_pool_free_async(c.f.pool, inside, c.stream, NULL));
  CHECK_CALL(close_all(&c));
}

TEST(a_pool_that_ends_ends_its_leases) {
  u64 inside;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(inside = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_OK(vmm_pool_free_async(c.f.pool, inside, c.stream, NULL));
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED));
  CHECK_OK(vmm_pool_destroy(c.f.pool, VMM_DESTROY_IDLE, &c.f.error));
  c.f.pools[0] = c.f.pool = NULL;
  CHECK_CALL(release(&c)); /* afterwards, as it may come */
  CHECK_CALL(close_all(&c));
}

TEST(a_free_in_a_capture_needs_no_host_memory) {
  u64 before, other;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(before = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  OK(vmm_raw_kernel_fill(c.f.sim, c.stream, before, MIB, 7));
  atomic_store(&c.f.memory.fail_in, 1);
  CHECK_OK(vmm_pool_free_async(c.f.pool, before, c.stream, NULL)); /* the first the pool hears of the capture */
  CHECK_EQ(atomic_load(&c.f.memory.fail_in), 1);
  atomic_store(&c.f.memory.fail_in, 0);
  CHECK_EQ(fixture_stats(c.f.pool).block_count, 0);
  CHECK_EQ(fixture_stats(c.f.pool).lease_count, 1);
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, MIB);
  CHECK_CALL(end(&c, VMM_CAPTURE_COMMITTED));
  CHECK_CALL(other = fixture_alloc_on(&c.f, MIB, c.other));
  CHECK(other != before);
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_CALL(release(&c));
  CHECK_CALL(close_all(&c));
}

TEST(a_lease_that_nobody_keeps_lasts_as_long_as_the_pool) {
  u64 inside, other;
  capture c;

  CHECK_CALL(open_with_streams(&c, NULL));
  CHECK_CALL(fixture_begin_capture(&c.f, c.stream, 0));
  CHECK_CALL(inside = fixture_alloc_on(&c.f, MIB, c.stream));
  CHECK_OK(vmm_pool_free_async(c.f.pool, inside, c.stream, NULL));
  OK(vmm_raw_stream_end_capture(c.f.sim, c.stream, &c.graph));
  OK(vmm_raw_graph_destroy(c.f.sim, c.graph));
  CHECK_OK(vmm_device_capture_end(c.f.device, c.stream, VMM_CAPTURE_COMMITTED, NULL, NULL));
  CHECK_OK(vmm_pool_trim(c.f.pool, 0, 0, NULL, NULL));
  CHECK_CALL(other = fixture_alloc_on(&c.f, MIB, c.other));
  CHECK(other != inside);
  CHECK_OK(vmm_pool_free_async(c.f.pool, other, c.other, NULL));
  CHECK_EQ(fixture_stats(c.f.pool).lease_bytes, MIB);
  CHECK_CALL(close_all(&c)); /* nothing is left of it */
}

TEST(without_host_memory_no_capture_is_announced) {
  capture c;
  int i;

  CHECK_CALL(open_with_streams(&c, NULL));
  for (i = 1; i < 20; i++) {
    vmm_status status;

    atomic_store(&c.f.memory.fail_in, i);
    status = vmm_device_capture_begin(c.f.device, c.stream, NULL);
    atomic_store(&c.f.memory.fail_in, 0);
    if (status == VMM_OK) break;
    CHECK_EQ(status, VMM_ERROR_OUT_OF_HOST_MEMORY);
    CHECK_EQ(fixture_device_stats(c.f.device).capture_count, 0);
    CHECK_OK(vmm_pool_check(c.f.pool, NULL));
  }
  CHECK(i > 2 && i < 20);
  CHECK_OK(vmm_device_capture_end(c.f.device, c.stream, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_OK(vmm_device_register_stream(c.f.device, c.stream, NULL));
  CHECK_CALL(close_all(&c));
}

TEST(generations_tell_whether_backing_changed) {
  u64 addresses[2], first = 0, second = 0;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(addresses[0] = fixture_alloc(&f, MIB));
  CHECK_OK(vmm_pool_get_generation(f.pool, addresses[0], MIB, &first, &f.error));
  CHECK(first != 0);
  CHECK_CALL(addresses[1] = fixture_alloc(&f, 8 * MIB)); /* elsewhere */
  CHECK_OK(vmm_pool_get_generation(f.pool, addresses[0], MIB, &second, NULL));
  CHECK_EQ(first, second);
  CHECK_CALL(fixture_free(&f, addresses[0]));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_STATUS(vmm_pool_get_generation(f.pool, addresses[0], MIB, &second, &f.error), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(second, 0);
  CHECK_EQ(f.error.address, addresses[0]);
  CHECK_CALL(addresses[0] = fixture_alloc(&f, MIB));
  CHECK_OK(vmm_pool_get_generation(f.pool, addresses[0], MIB, &second, NULL));
  CHECK(second > first);
  CHECK_STATUS(vmm_pool_get_generation(f.pool, addresses[0], 0, &second, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_generation(f.pool, addresses[0], ~0ull, &second, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_CALL(fixture_free(&f, addresses[0]));
  CHECK_CALL(fixture_free(&f, addresses[1]));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
