/* More streams than a pool keeps apart: with eager events nobody says when a stream ends, so entries that nobody uses go. */
#include "support/fixture.h"

enum { MANY = 120, KEPT = 40 };

static void open(fixture *f) {
  fixture_options options;

  fixture_defaults(&options);
  options.pool.events = VMM_EVENTS_EAGER;
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  CHECK_CALL(fixture_open(f, &options));
}

static u64 take(fixture *f, void *stream) {
  u64 address = fixture_alloc_on(f, 64 * KIB, stream);

  CHECK_EQ_RETURN(vmm_raw_kernel_fill(f->sim, stream, address, 64 * KIB, 1), VMM_CODE_SUCCESS, 0);
  return address;
}

TEST(streams_that_come_and_go_leave_nothing_behind) {
  u64 address, events;
  void *stream;
  fixture f;
  int i;

  CHECK_CALL(open(&f));
  events = fixture_ledger(&f, 0).events;
  for (i = 0; i < MANY; i++) {
    OK(vmm_raw_stream_create(f.sim, &stream, 1));
    CHECK_CALL(address = take(&f, stream));
    CHECK_OK(vmm_pool_free_async(f.pool, address, stream, NULL));
    OK(vmm_raw_stream_destroy(f.sim, stream));
    if (i % 8 == 7) vmm_driver_wait(f.driver, 10 * MS);
    CHECK(fixture_stats(f.pool).stream_count <= KEPT);
  }
  CHECK(fixture_ledger(&f, 0).events <= events + 2 * KEPT);
  CHECK(fixture_stats(f.pool).committed_bytes <= 2 * MIB);
  CHECK_EQ(fixture_stats(f.pool).limbo_count, 0);
  CHECK_CALL(fixture_close(&f));
}

/* As many as there can be arenas, and more. */
TEST(streams_that_are_forgotten_make_room_for_others) {
  fixture_options options;
  u64 address;
  void *stream;
  fixture f;
  int i;

  fixture_defaults(&options);
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 1100; i++) {
    OK(vmm_raw_stream_create(f.sim, &stream, 1));
    CHECK_OK_ERROR(vmm_pool_alloc_async(f.pool, 4096, stream, &address, &f.error), &f.error);
    CHECK_OK(vmm_pool_free_async(f.pool, address, stream, NULL));
    CHECK_OK(vmm_device_forget_stream(f.device, stream, NULL));
    OK(vmm_raw_stream_destroy(f.sim, stream));
    if (i % 64 == 63) CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL)); /* what has passed is swept */
  }
  CHECK(fixture_stats(f.pool).stream_count <= 64);
  CHECK_CALL(fixture_close(&f));
}

/* Another stream comes, and entries go, while a free records its event. */
typedef struct comer {
  fixture *f;
  void *stream;
  int came;
} comer;

static void come(void *data, int op, u64 opportunity) {
  comer *c = data;

  (void)op;
  if (opportunity != 1) return;
  c->came = take(c->f, c->stream) != 0;
}

TEST(an_entry_that_a_free_uses_stays) {
  void *streams[MANY / 2], *last;
  comer c = {NULL, NULL, 0};
  u64 block;
  fixture f;
  int i;

  CHECK_CALL(open(&f));
  for (i = 0; i < MANY / 2; i++) {
    OK(vmm_raw_stream_create(f.sim, &streams[i], 1));
    CHECK_CALL(block = take(&f, streams[i]));
    if (i + 1 < MANY / 2) CHECK_OK(vmm_pool_free_async(f.pool, block, streams[i], NULL));
    if (i % 8 == 7) vmm_driver_wait(f.driver, 10 * MS);
  }
  OK(vmm_raw_stream_create(f.sim, &last, 1));
  vmm_driver_wait(f.driver, 10 * MS);
  c.f = &f;
  c.stream = last;
  CHECK_CALL(fixture_hook(&f, VMM_OP_event_record, come, &c));
  CHECK_OK(vmm_pool_free_async(f.pool, block, streams[MANY / 2 - 1],
                               NULL)); /* of an event that is gone the simulator tells */
  CHECK_EQ(c.came, 1);
  CHECK_EQ(fixture_stats(f.pool).limbo_count, 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_check(f.pool, NULL));
  /* Once it is done with, it can go too: 40 others come, and none is kept for ever. */
  for (i = 0; i < KEPT; i++) {
    CHECK_CALL(block = take(&f, streams[i]));
    CHECK_OK(vmm_pool_free_async(f.pool, block, streams[i], NULL));
    vmm_driver_wait(f.driver, 10 * MS);
  }
  CHECK(fixture_stats(f.pool).stream_count <= KEPT);
  for (i = 0; i < MANY / 2; i++) OK(vmm_raw_stream_destroy(f.sim, streams[i]));
  OK(vmm_raw_stream_destroy(f.sim, last));
  CHECK_EQ(fixture_stats(f.pool).block_count, 1); /* the comer's */
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, NULL));
  f.pools[0] = NULL;
  CHECK_CALL(fixture_close(&f));
}

/* More of them than there can be arenas, all with work queued: the oldest wait for the whole context. */
TEST(streams_with_eager_events_never_run_out) {
  u64 address;
  void *stream;
  fixture f;
  int i;

  CHECK_CALL(open(&f));
  for (i = 0; i < 1200; i++) {
    OK(vmm_raw_stream_create(f.sim, &stream, 1));
    CHECK_CALL(address = take(&f, stream));
    OK(vmm_raw_kernel_spin(f.sim, stream, 1000 * MS));
    CHECK_OK(vmm_pool_free_async(f.pool, address, stream, NULL));
    OK(vmm_raw_stream_destroy(f.sim, stream));
  }
  CHECK_OK(vmm_pool_check(f.pool, NULL));
  vmm_driver_wait(f.driver, 2000 * MS);
  CHECK_CALL(address = take(&f, NULL));
  CHECK_OK(vmm_pool_free(f.pool, address, NULL));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
