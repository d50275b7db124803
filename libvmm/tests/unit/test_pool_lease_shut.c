/* Blocks that a captured stream and others have used: no graph waits for the others, so they are nobody's until the leases end. */
#include "support/fixture.h"

typedef struct capture {
  void *stream, *graph, *executable;
  vmm_lease *lease;
} capture;

static void begin(fixture *f, capture *c) {
  CHECK_CALL(c->stream = fixture_new_stream(f, NON_BLOCKING));
  CHECK_CALL(fixture_begin_capture(f, c->stream, 0));
}

static void end(fixture *f, capture *c) {
  OK(vmm_raw_stream_end_capture(f->sim, c->stream, &c->graph));
  CHECK_OK(vmm_device_capture_end(f->device, c->stream, VMM_CAPTURE_COMMITTED, &c->lease, NULL));
  OK(vmm_raw_graph_instantiate(f->sim, &c->executable, c->graph, 0));
}

static void release(fixture *f, capture *c) {
  OK(vmm_raw_graph_exec_destroy(f->sim, c->executable));
  OK(vmm_raw_graph_destroy(f->sim, c->graph));
  CHECK_OK(vmm_lease_release(c->lease, NULL));
}

static u64 take(fixture *f, void *stream) { return fixture_alloc_on(f, MIB, stream); }

static void close_all(fixture *f, void *other) {
  CHECK_OK(vmm_device_forget_stream(f->device, other, NULL));
  vmm_driver_wait(f->driver, 100 * MS);
  CHECK_OK(vmm_pool_trim(f->pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(f->pool).committed_bytes, 0);
  OK(vmm_raw_stream_destroy(f->sim, other));
  CHECK_CALL(fixture_close(f));
}

TEST(a_graph_is_not_given_what_a_stream_outside_it_still_uses) {
  capture c;
  fixture f;
  void *both[2], *other;
  u64 block, inside;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(other = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(block = take(&f, other));
  OK(vmm_raw_kernel_spin(f.sim, other, 20 * MS));
  OK(vmm_raw_kernel_fill(f.sim, other, block, MIB, 3));
  CHECK_CALL(begin(&f, &c));
  both[0] = other;
  both[1] = c.stream;
  CHECK_OK(vmm_pool_free_multi(f.pool, block, both, 2, NULL));
  CHECK_STATUS(vmm_pool_free_multi(f.pool, block, both, 2, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, MIB);
  CHECK_CALL(inside = take(&f, c.stream));
  OK(vmm_raw_kernel_fill(f.sim, c.stream, inside, MIB, 9));
  CHECK_CALL(end(&f, &c));
  OK(vmm_raw_graph_launch(f.sim, c.executable, c.stream)); /* at once: the other is not done */
  vmm_driver_wait(f.driver, 50 * MS);
  CHECK_CALL(fixture_expect(&f, inside, MIB, 9));
  CHECK(take(&f, other) != block); /* nor anybody else's */
  CHECK_OK(vmm_pool_check(f.pool, &f.error));
  CHECK_CALL(release(&f, &c));
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, 0);
  OK(vmm_raw_stream_destroy(f.sim, c.stream));
  CHECK_OK(vmm_pool_check(f.pool, &f.error));
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, NULL));
  f.pools[0] = f.pool = NULL;
  CHECK_OK(vmm_device_forget_stream(f.device, other, NULL));
  OK(vmm_raw_stream_destroy(f.sim, other));
  CHECK_CALL(fixture_close(&f));
}

TEST(what_two_captures_used_is_theirs_until_both_leases_end) {
  capture a, b;
  fixture f;
  void *both[2], *other;
  u64 block, got;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(other = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(begin(&f, &a));
  CHECK_CALL(begin(&f, &b));
  CHECK_CALL(block = take(&f, a.stream)); /* it sticks to the lease of a */
  both[0] = a.stream;
  both[1] = b.stream;
  CHECK_OK(vmm_pool_free_multi(f.pool, block, both, 2, NULL));
  CHECK_CALL(got = take(&f, a.stream));
  CHECK(got != block);
  CHECK_OK(vmm_pool_free_async(f.pool, got, a.stream, NULL));
  CHECK_CALL(got = take(&f, b.stream));
  CHECK(got != block);
  CHECK_OK(vmm_pool_free_async(f.pool, got, b.stream, NULL));
  CHECK_CALL(end(&f, &a));
  CHECK_CALL(end(&f, &b));
  CHECK_CALL(release(&f, &a));
  CHECK_EQ(fixture_stats(f.pool).lease_count, 1);
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, 2 * MIB); /* it, and what b freed alone */
  CHECK_OK(vmm_pool_check(f.pool, &f.error));
  CHECK_CALL(release(&f, &b));
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, 0);
  CHECK_CALL(got = take(&f, other));
  CHECK_OK(vmm_pool_free_async(f.pool, got, other, NULL));
  OK(vmm_raw_stream_destroy(f.sim, a.stream));
  OK(vmm_raw_stream_destroy(f.sim, b.stream));
  CHECK_CALL(close_all(&f, other));
}

/* The capture that a block comes from does not wait for the one that frees it, nor does its lease outlive the other's. */
TEST(what_one_capture_allocates_and_another_frees_is_theirs_until_both_leases_end) {
  capture a, b;
  fixture f;
  void *other;
  u64 block, got;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(other = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(begin(&f, &a));
  CHECK_CALL(begin(&f, &b));
  CHECK_CALL(block = take(&f, a.stream));
  CHECK_OK(vmm_pool_free_async(f.pool, block, b.stream, NULL));
  CHECK_STATUS(vmm_pool_free_async(f.pool, block, b.stream, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_CALL(got = take(&f, a.stream));
  CHECK(got != block);
  CHECK_OK(vmm_pool_free_async(f.pool, got, a.stream, NULL));
  CHECK_CALL(end(&f, &a));
  CHECK_CALL(end(&f, &b));
  CHECK_CALL(release(&f, &a));
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, MIB);
  CHECK_OK(vmm_pool_check(f.pool, &f.error));
  CHECK_CALL(release(&f, &b));
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, 0);
  OK(vmm_raw_stream_destroy(f.sim, a.stream));
  OK(vmm_raw_stream_destroy(f.sim, b.stream));
  CHECK_CALL(got = take(&f, other));
  CHECK_OK(vmm_pool_free_async(f.pool, got, other, NULL));
  CHECK_CALL(close_all(&f, other));
}

TEST(with_eager_events_a_free_in_a_capture_needs_none) {
  fixture_options options;
  capture c;
  fixture f;
  u64 block;

  fixture_defaults(&options);
  options.pool.events = VMM_EVENTS_EAGER;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(begin(&f, &c));
  CHECK_CALL(block = take(&f, c.stream));
  fixture_forget_calls(&f);
  CHECK_OK(vmm_pool_free_async(f.pool, block, c.stream, NULL));
  CHECK_STATUS(vmm_pool_free_async(f.pool, block, c.stream, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(fixture_calls(&f, VMM_OP_stream_get_id), 0);
  CHECK_EQ(fixture_stats(f.pool).lease_bytes, MIB);
  CHECK_EQ(fixture_stats(f.pool).limbo_count, 0);
  CHECK_EQ(fixture_stats(f.pool).fence_failures, 0);
  CHECK_CALL(end(&f, &c));
  CHECK_CALL(release(&f, &c));
  OK(vmm_raw_stream_destroy(f.sim, c.stream));
  CHECK_CALL(fixture_close(&f));
}

/* Where nobody can say who uses it no capture is given it, not even that of the home stream. */
TEST(a_capture_of_the_home_stream_is_not_given_what_waits_for_all_work) {
  fixture_options options;
  u64 block, inside;
  void *other;
  capture c;
  fixture f;

  CHECK_CALL(fixture_defaults(&options));
  options.no_pool = true;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(c.stream = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(other = fixture_new_stream(&f, NON_BLOCKING));
  options.pool.home_stream = c.stream;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
  CHECK_CALL(block = take(&f, other));
  OK(vmm_raw_kernel_spin(f.sim, other, 20 * MS));
  OK(vmm_raw_kernel_fill(f.sim, other, block, MIB, 3));
  CHECK_CALL(fixture_begin_capture(&f, c.stream, 0));
  CHECK_OK(vmm_pool_free_multi(f.pool, block, NULL, 0, NULL));
  CHECK_STATUS(vmm_pool_free_multi(f.pool, block, NULL, 0, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(fixture_stats(f.pool).limbo_count, 1);
  CHECK_CALL(inside = take(&f, c.stream));
  CHECK(inside != block);
  OK(vmm_raw_kernel_fill(f.sim, c.stream, inside, MIB, 9));
  CHECK_CALL(end(&f, &c));
  OK(vmm_raw_graph_launch(f.sim, c.executable, c.stream)); /* at once: the other is not done */
  vmm_driver_wait(f.driver, 50 * MS);
  CHECK_CALL(fixture_expect(&f, inside, MIB, 9));
  CHECK_OK(vmm_pool_free(f.pool, inside, NULL));
  CHECK_CALL(release(&f, &c));
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL));
  f.pools[0] = f.pool = NULL;
  OK(vmm_raw_stream_destroy(f.sim, c.stream));
  OK(vmm_raw_stream_destroy(f.sim, other));
  CHECK_CALL(fixture_close(&f));
}

/* One stream named twice is one stream: its capture reuses the block. */
TEST(a_captured_stream_that_is_named_twice_keeps_the_block_for_its_capture) {
  capture c;
  fixture f;
  void *both[2], *other;
  u64 block, again;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(other = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(block = take(&f, other));
  CHECK_CALL(begin(&f, &c));
  both[0] = both[1] = c.stream;
  CHECK_OK(vmm_pool_free_multi(f.pool, block, both, 2, NULL));
  CHECK_CALL(again = take(&f, c.stream));
  CHECK_EQ(again, block);
  CHECK_OK(vmm_pool_free_async(f.pool, again, c.stream, NULL));
  CHECK_CALL(end(&f, &c));
  CHECK_CALL(release(&f, &c));
  OK(vmm_raw_stream_destroy(f.sim, c.stream));
  CHECK_CALL(close_all(&f, other));
}

RUN_TESTS()
