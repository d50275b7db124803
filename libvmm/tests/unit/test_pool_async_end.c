/* Trim, destroy and a lost device, with memory of several streams. */
#include "support/fixture.h"

enum { STREAMS = 3 };

typedef struct several {
  fixture f;
  void *streams[STREAMS];
  u64 blocks[STREAMS][2];
} several;

/* Each stream has two mappings of its own, and work on both. */
static void open_several(several *s, int events) {
  fixture_options options;
  int i, k;

  fixture_defaults(&options);
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  options.pool.events = events;
  CHECK_CALL(fixture_open(&s->f, &options));
  for (i = 0; i < STREAMS; i++) {
    OK(vmm_raw_stream_create(s->f.sim, &s->streams[i], 1));
    for (k = 0; k < 2; k++) {
      CHECK_OK(vmm_pool_alloc_async(s->f.pool, MIB, s->streams[i], &s->blocks[i][k], &s->f.error));
      OK(vmm_raw_kernel_fill(s->f.sim, s->streams[i], s->blocks[i][k], MIB, 3));
    }
  }
}

/* Stream i has (i + 1) * 10 ms of work more; then its blocks are freed, in different ways. */
static void free_all(several *s) {
  int i;

  for (i = 0; i < STREAMS; i++) {
    OK(vmm_raw_kernel_spin(s->f.sim, s->streams[i], 10 * MS * (u64)(i + 1)));
    OK(vmm_raw_kernel_fill(s->f.sim, s->streams[i], s->blocks[i][0], MIB, 4));
    OK(vmm_raw_kernel_fill(s->f.sim, s->streams[i], s->blocks[i][1], MIB, 4));
  }
  for (i = 0; i < STREAMS; i++) CHECK_OK(vmm_pool_free_async(s->f.pool, s->blocks[i][0], s->streams[i], NULL));
  CHECK_OK(vmm_pool_free_async(s->f.pool, s->blocks[0][1], s->streams[0], NULL));
  CHECK_OK(vmm_pool_free_multi(s->f.pool, s->blocks[1][1], s->streams, STREAMS, NULL));
  CHECK_OK(vmm_pool_free_async(s->f.pool, s->blocks[2][1], s->streams[2], NULL));
}

static void end_streams(several *s) {
  int i;

  for (i = 0; i < STREAMS; i++) {
    (void)vmm_device_forget_stream(s->f.device, s->streams[i], NULL);
    OK(vmm_raw_stream_destroy(s->f.sim, s->streams[i]));
  }
}

TEST(a_trim_waits_for_every_stream_and_one_that_does_not_leaves_all_pending) {
  u64 done = 1, pending = 0, start;
  several s;
  int events, wait;

  for (events = 0; events < 2; events++)
    for (wait = 0; wait < 2; wait++) {
      CHECK_CALL(open_several(&s, events));
      CHECK_CALL(free_all(&s));
      start = vmm_driver_now(s.f.driver);
      if (wait) {
        CHECK_OK_ERROR(vmm_pool_trim(s.f.pool, 0, 0, &done, &s.f.error), &s.f.error);
        CHECK(vmm_driver_now(s.f.driver) - start >= 20 * MS);
        CHECK_EQ(done, 6 * MIB);
      } else {
        CHECK_OK_ERROR(vmm_pool_trim_async(s.f.pool, 0, &done, &pending, &s.f.error), &s.f.error);
        CHECK(vmm_driver_now(s.f.driver) - start < MS);
        CHECK_EQ(done, 0);
        CHECK_EQ(pending, 6 * MIB);
        CHECK_CALL(fixture_compare(&s.f));
        vmm_driver_wait(s.f.driver, 25 * MS); /* two of the three are done: not enough */
        CHECK_OK(vmm_pool_poll(s.f.pool, &done, &pending, NULL));
        CHECK_EQ(done, 0);
        vmm_driver_wait(s.f.driver, 25 * MS);
        CHECK_OK(vmm_pool_poll(s.f.pool, &done, &pending, NULL));
        CHECK_EQ(done, 6 * MIB);
        CHECK_EQ(pending, 0);
      }
      CHECK_EQ(fixture_stats(s.f.pool).committed_bytes, 0);
      CHECK_EQ(fixture_stats(s.f.pool).ordered_bytes, 0);
      CHECK_CALL(fixture_compare(&s.f));
      CHECK_CALL(end_streams(&s));
      CHECK_CALL(fixture_close(&s.f));
    }
}

/* What was sealed, and what is pending, come back once their work is done; nothing of it before. */
TEST(what_is_pending_is_nobodys_until_the_work_of_all_is_done) {
  u64 done, pending, address;
  several s;

  CHECK_CALL(open_several(&s, VMM_EVENTS_LAZY));
  CHECK_CALL(free_all(&s));
  CHECK_OK(vmm_pool_set_limit(s.f.pool, 6 * MIB, NULL));
  CHECK_OK(vmm_pool_trim_async(s.f.pool, 3 * MIB, &done, &pending, NULL));
  CHECK_EQ(pending, 3 * MIB);
  CHECK_STATUS(vmm_pool_alloc_async(s.f.pool, 7 * MIB, s.streams[0], &address, NULL), VMM_ERROR_LIMIT);
  vmm_driver_wait(s.f.driver, 50 * MS);
  CHECK_OK_ERROR(vmm_pool_alloc_async(s.f.pool, 5 * MIB, s.streams[0], &address, &s.f.error), &s.f.error);
  CHECK_OK(vmm_sim_new_owner(s.f.sim, address, 5 * MIB));
  OK(vmm_raw_kernel_fill(s.f.sim, s.streams[0], address, 5 * MIB, 5));
  CHECK_CALL(fixture_compare(&s.f));
  CHECK_OK(vmm_pool_free_async(s.f.pool, address, s.streams[0], NULL));
  CHECK_CALL(end_streams(&s));
  CHECK_CALL(fixture_close(&s.f));
}

TEST(a_pool_of_several_streams_is_destroyed_when_their_work_is_done) {
  several s;
  int events, mode, gone;

  for (events = 0; events < 2; events++)
    for (mode = 0; mode < 2; mode++)
      for (gone = 0; gone < 2; gone++) {
        CHECK_CALL(open_several(&s, events));
        if (mode == VMM_DESTROY_IDLE) CHECK_CALL(free_all(&s));
        else OK(vmm_raw_kernel_spin(s.f.sim, s.streams[2], 20 * MS)); /* and the blocks live */
        if (gone) CHECK_CALL(end_streams(&s));
        CHECK_STATUS(vmm_pool_destroy(s.f.pool, VMM_DESTROY_IDLE, &s.f.error),
                     mode == VMM_DESTROY_IDLE ? VMM_OK : VMM_ERROR_BUSY);
        if (mode == VMM_DESTROY_FORCED) CHECK_OK(vmm_pool_destroy(s.f.pool, VMM_DESTROY_FORCED, NULL));
        s.f.pools[0] = NULL;
        CHECK_EQ(fixture_ledger(&s.f, 0).mappings, 0);
        if (!gone) CHECK_CALL(end_streams(&s));
        CHECK_CALL(fixture_close(&s.f));
      }
}

TEST(on_a_lost_device_frees_and_forgets_go_on_and_allocs_say_so) {
  u64 address = 1;
  several s;
  int events, i;

  for (events = 0; events < 2; events++) {
    CHECK_CALL(open_several(&s, events));
    CHECK_OK(vmm_pool_free_async(s.f.pool, s.blocks[0][0], s.streams[0], NULL));
    OK(vmm_raw_kernel_trap(s.f.sim, s.streams[1]));
    CHECK_OK(vmm_sim_drain(s.f.sim));
    CHECK_OK(vmm_pool_free_async(s.f.pool, s.blocks[1][0], s.streams[1], NULL)); /* nobody has noticed yet */
    CHECK_STATUS(vmm_pool_alloc_async(s.f.pool, 9 * MIB, s.streams[0], &address, NULL), VMM_ERROR_DEVICE_LOST);
    CHECK_CALL(fixture_forget_calls(&s.f));
    CHECK_STATUS(vmm_pool_alloc_async(s.f.pool, 256, s.streams[0], &address, NULL), VMM_ERROR_DEVICE_LOST);
    CHECK_EQ(address, 0);
    CHECK_STATUS(vmm_pool_alloc_async(s.f.pool, 256, (void *)(size_t)64, &address, NULL), VMM_ERROR_DEVICE_LOST);
    CHECK_OK(vmm_pool_free_async(s.f.pool, s.blocks[2][0], s.streams[2], NULL));
    CHECK_OK(vmm_pool_free_multi(s.f.pool, s.blocks[2][1], s.streams, STREAMS, NULL));
    CHECK_EQ(fixture_calls(&s.f, VMM_OP_ANY), 0);
    CHECK_OK(vmm_pool_check(s.f.pool, &s.f.error));
    if (events == VMM_EVENTS_LAZY)
      for (i = 0; i < STREAMS; i++) CHECK_OK(vmm_device_forget_stream(s.f.device, s.streams[i], NULL));
    CHECK_OK(vmm_pool_check(s.f.pool, &s.f.error));
    CHECK_OK_ERROR(vmm_pool_destroy(s.f.pool, VMM_DESTROY_IDLE, &s.f.error), &s.f.error);
    CHECK_OK_ERROR(vmm_device_close(s.f.device, &s.f.error), &s.f.error);
    CHECK_EQ(s.f.memory.out, 0);
    CHECK_EQ(fixture_ledger(&s.f, 0).handles, 0);
    check_on_failure(NULL, NULL);
    vmm_driver_release(s.f.driver);
    vmm_driver_release(s.f.fault);
    vmm_driver_release(s.f.sim);
  }
}

/* A forgotten stream has no handle any more, and the legacy stream's is 0. */
TEST(the_legacy_stream_is_not_taken_for_one_that_is_forgotten) {
  fixture_options options;
  void *home = NULL, *a = NULL;
  u64 block, other;
  fixture f;

  fixture_defaults(&options);
  options.no_pool = true;
  CHECK_CALL(fixture_open(&f, &options));
  OK(vmm_raw_stream_create(f.sim, &home, 1));
  OK(vmm_raw_stream_create(f.sim, &a, 1));
  options.pool.home_stream = home;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
  CHECK_CALL(other = fixture_alloc(&f, 4096));
  CHECK_OK(vmm_pool_alloc_async(f.pool, 4096, a, &block, &f.error));
  OK(vmm_raw_kernel_spin(f.sim, a, 20 * MS));
  CHECK_OK(vmm_pool_free_async(f.pool, block, a, NULL));
  CHECK_OK(vmm_device_forget_stream(f.device, a, NULL)); /* its memory waits for the work */
  CHECK_OK(vmm_pool_free_async(f.pool, other, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).limbo_count, 1); /* nobody named it by an allocation */
  OK(vmm_raw_stream_destroy(f.sim, a));
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL));
  f.pools[0] = NULL;
  OK(vmm_raw_stream_destroy(f.sim, home));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
