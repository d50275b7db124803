/* One stream waits for another: it gets what it needs of what that one freed, and the rest stays where it was. */
#include "support/fixture.h"

enum { BLOCKS = 32, STEPS = 6000 };

typedef struct pair {
  fixture f;
  void *a, *b;
} pair;

static void start(pair *p, int events, int policy) {
  fixture_options options;

  CHECK_CALL(fixture_defaults(&options));
  options.pool.prefer_wait = 1;
  options.pool.events = events;
  options.pool.growth_policy = policy;
  CHECK_CALL(fixture_open(&p->f, &options));
  CHECK_CALL(p->a = fixture_new_stream(&p->f, NON_BLOCKING));
  CHECK_CALL(p->b = fixture_new_stream(&p->f, NON_BLOCKING));
}

static void finish(pair *p) {
  (void)vmm_device_forget_stream(p->f.device, p->a, NULL);
  (void)vmm_device_forget_stream(p->f.device, p->b, NULL);
  vmm_driver_wait(p->f.driver, 1000 * MS);
  CHECK_OK(vmm_pool_trim(p->f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(p->f.pool).committed_bytes, 0);
  OK(vmm_raw_stream_destroy(p->f.sim, p->a));
  OK(vmm_raw_stream_destroy(p->f.sim, p->b));
  CHECK_CALL(fixture_close(&p->f));
}

static void use(pair *p, u64 address, u64 size, void *stream) {
  OK(vmm_raw_kernel_spin(p->f.sim, stream, MS / 50));
  OK(vmm_raw_kernel_fill(p->f.sim, stream, address, size, 1));
}

/* All that `b` had, freed with work queued on it. */
static void fill_and_free(pair *p, u64 *blocks, u64 size) {
  int i;

  for (i = 0; i < BLOCKS; i++) CHECK_CALL(blocks[i] = fixture_alloc_on(&p->f, size, p->b));
  OK(vmm_raw_kernel_spin(p->f.sim, p->b, 500 * MS));
  for (i = 0; i < BLOCKS; i++) CHECK_CALL(use(p, blocks[i], size, p->b));
  for (i = 0; i < BLOCKS; i++) CHECK_CALL(fixture_free_on(&p->f, blocks[i], p->b));
}

static void hand_over(int events) {
  u64 blocks[BLOCKS], taken[BLOCKS];
  vmm_pool_stats before;
  pair p;
  int i;

  CHECK_CALL(start(&p, events, VMM_GROWTH_EXACT));
  CHECK_CALL(fixture_free_on(&p.f, fixture_alloc_on(&p.f, 256, p.a), p.a)); /* nobody has the pool alone */
  CHECK_CALL(fill_and_free(&p, blocks, 64 * KIB));
  before = fixture_stats(p.f.pool);
  for (i = 0; i < BLOCKS / 2; i++) CHECK_CALL(taken[i] = fixture_alloc_on(&p.f, 64 * KIB, p.a));
  CHECK_EQ(fixture_stats(p.f.pool).wait_count, before.wait_count + 1);
  CHECK_EQ(fixture_stats(p.f.pool).seal_count, before.seal_count + 1);
  CHECK_CALL(fixture_forget_calls(&p.f));
  for (; i < BLOCKS - 1; i++) CHECK_CALL(taken[i] = fixture_alloc_on(&p.f, 64 * KIB, p.b));
  CHECK_EQ(fixture_calls(&p.f, VMM_OP_stream_wait_event), 0); /* the rest is its own still */
  CHECK_EQ(fixture_stats(p.f.pool).committed_bytes, before.committed_bytes);
  for (i = 0; i < BLOCKS - 1; i++) CHECK_CALL(use(&p, taken[i], 64 * KIB, i < BLOCKS / 2 ? p.a : p.b));
  for (i = 0; i < BLOCKS - 1; i++) CHECK_CALL(fixture_free_on(&p.f, taken[i], i < BLOCKS / 2 ? p.a : p.b));
  CHECK_CALL(fixture_check(&p.f));
  CHECK_CALL(finish(&p));
}

TEST(a_batch_is_waited_for_once) { CHECK_CALL(hand_over(VMM_EVENTS_LAZY)); }
TEST(a_batch_is_waited_for_once_with_eager_events) { CHECK_CALL(hand_over(VMM_EVENTS_EAGER)); }

/* Five blocks that are all of the pool, side by side: the first and the third of `a`, the others of `b`. */
static void fill_pool(pair *p, u64 *blocks) {
  static const u64 sizes[] = {64 * KIB, 64 * KIB, 64 * KIB, 32 * KIB, 32 * KIB};
  int i;

  for (i = 0; i < 5; i++) {
    CHECK_CALL(blocks[i] = fixture_alloc_on(&p->f, sizes[i], i == 0 || i == 2 ? p->a : p->b));
    CHECK(i == 0 || blocks[i] == blocks[i - 1] + sizes[i - 1]);
  }
  CHECK_EQ(fixture_stats(p->f.pool).idle_bytes, 0);
  CHECK_OK(vmm_pool_set_limit(p->f.pool, fixture_stats(p->f.pool).committed_bytes, NULL));
}

/* A third stream, a full pool, and `b` at work. How often anybody has waited so far. */
static u64 start_full(pair *p, int events, u64 *blocks, void **third) {
  CHECK_CALL_RETURN(start(p, events, VMM_GROWTH_EXACT), 0);
  CHECK_CALL_RETURN(*third = fixture_new_stream(&p->f, NON_BLOCKING), 0);
  CHECK_CALL_RETURN(fill_pool(p, blocks), 0);
  CHECK_EQ_RETURN(vmm_raw_kernel_spin(p->f.sim, p->b, 50 * MS), VMM_CODE_SUCCESS, 0);
  return fixture_stats(p->f.pool).wait_count;
}

/* A block that spans what both have freed takes all that is waited for. What is left over of that is still behind it. */
static void take_over(int events) {
  u64 blocks[5], small, large, other, waits;
  void *third;
  pair p;

  CHECK_CALL(waits = start_full(&p, events, blocks, &third));
  CHECK_CALL(use(&p, blocks[1], 64 * KIB, p.b));
  CHECK_CALL(use(&p, blocks[3], 32 * KIB, p.b));
  CHECK_CALL(fixture_free_on(&p.f, blocks[1], p.b));
  CHECK_CALL(fixture_free_on(&p.f, blocks[3], p.b));
  CHECK_CALL(fixture_free_on(&p.f, blocks[0], p.a));
  CHECK_CALL(large = fixture_alloc_on(&p.f, 128 * KIB, p.a));
  CHECK_EQ(large, blocks[0]);
  CHECK_EQ(fixture_stats(p.f.pool).wait_count, waits + 1);
  CHECK_CALL(small = fixture_alloc_on(&p.f, 32 * KIB, third)); /* `b` is done with it, but not seen to be */
  CHECK_EQ(small, blocks[3]);
  CHECK_EQ(fixture_stats(p.f.pool).wait_count, waits + 2);
  CHECK_CALL(use(&p, large, 128 * KIB, p.a));
  CHECK_CALL(use(&p, small, 32 * KIB, third));
  CHECK_CALL(fixture_free_on(&p.f, large, p.a));
  CHECK_CALL(fixture_free_on(&p.f, small, third));
  CHECK_CALL(fixture_free_on(&p.f, blocks[2], p.a));
  CHECK_CALL(other = fixture_alloc_on(&p.f, 64 * KIB, p.b));
  CHECK_CALL(use(&p, other, 64 * KIB, p.b));
  CHECK_CALL(fixture_free_on(&p.f, other, p.b));
  CHECK_CALL(fixture_free_on(&p.f, blocks[4], p.b));
  CHECK_CALL(fixture_check(&p.f));
  (void)vmm_device_forget_stream(p.f.device, third, NULL);
  vmm_driver_wait(p.f.driver, 1000 * MS);
  OK(vmm_raw_stream_destroy(p.f.sim, third));
  CHECK_CALL(finish(&p));
}

TEST(what_needs_neighbours_takes_all) { CHECK_CALL(take_over(VMM_EVENTS_LAZY)); }
TEST(what_needs_neighbours_takes_all_with_eager_events) { CHECK_CALL(take_over(VMM_EVENTS_EAGER)); }

static void expect_waits(pair *p, u64 *before, u64 more) {
  u64 now = fixture_stats(p->f.pool).wait_count;

  CHECK_EQ(now, *before + more);
  *before = now;
}

/* A wait serves the stream that made it, for that batch. */
TEST(who_has_waited_waits_no_more_and_nobody_else_has_of_it) {
  u64 blocks[5], waits, i;
  void *third;
  pair p;

  CHECK_CALL(waits = start_full(&p, VMM_EVENTS_LAZY, blocks, &third));
  for (i = 1; i < 5; i += i == 1 ? 2 : 1) CHECK_CALL(fixture_free_on(&p.f, blocks[i], p.b));
  CHECK_CALL(blocks[1] = fixture_alloc_on(&p.f, 64 * KIB, p.a));
  CHECK_CALL(expect_waits(&p, &waits, 1));
  CHECK_CALL(blocks[3] = fixture_alloc_on(&p.f, 32 * KIB, third)); /* for which the other wait is none */
  CHECK_CALL(expect_waits(&p, &waits, 1));
  CHECK_CALL(use(&p, blocks[3], 32 * KIB, third));
  vmm_driver_wait(p.f.driver, 100 * MS);
  CHECK_CALL(blocks[4] = fixture_alloc_on(&p.f, 32 * KIB, p.b)); /* idle by now */
  CHECK_CALL(expect_waits(&p, &waits, 0));
  OK(vmm_raw_kernel_spin(p.f.sim, p.b, 50 * MS));
  CHECK_CALL(fixture_free_on(&p.f, blocks[4], p.b));
  CHECK_CALL(blocks[4] = fixture_alloc_on(&p.f, 32 * KIB, third)); /* behind another event */
  CHECK_CALL(expect_waits(&p, &waits, 1));
  CHECK_CALL(use(&p, blocks[4], 32 * KIB, third));
  for (i = 0; i < 3; i++) CHECK_CALL(fixture_free_on(&p.f, blocks[i], p.a));
  for (i = 3; i < 5; i++) CHECK_CALL(fixture_free_on(&p.f, blocks[i], third));
  CHECK_OK(vmm_device_forget_stream(p.f.device, third, NULL));
  vmm_driver_wait(p.f.driver, 1000 * MS);
  OK(vmm_raw_stream_destroy(p.f.sim, third));
  CHECK_CALL(finish(&p));
}

/* One that had a block of a batch, and then needs all of it. */
TEST(a_batch_that_is_taken_in_two_steps_is_waited_for_once) {
  u64 blocks[5], waits;
  pair p;

  CHECK_CALL(start(&p, VMM_EVENTS_LAZY, VMM_GROWTH_EXACT));
  CHECK_CALL(fill_pool(&p, blocks));
  waits = fixture_stats(p.f.pool).wait_count;
  OK(vmm_raw_kernel_spin(p.f.sim, p.b, 50 * MS));
  CHECK_CALL(fixture_free_on(&p.f, blocks[1], p.b));
  CHECK_CALL(fixture_free_on(&p.f, blocks[3], p.b));
  CHECK_CALL(blocks[3] = fixture_alloc_on(&p.f, 32 * KIB, p.a));
  CHECK_CALL(fixture_free_on(&p.f, blocks[0], p.a));
  CHECK_CALL(blocks[0] = fixture_alloc_on(&p.f, 128 * KIB, p.a));
  CHECK_CALL(expect_waits(&p, &waits, 1));
  CHECK_CALL(use(&p, blocks[0], 128 * KIB, p.a));
  CHECK_CALL(fixture_free_on(&p.f, blocks[0], p.a));
  CHECK_CALL(fixture_free_on(&p.f, blocks[2], p.a));
  CHECK_CALL(fixture_free_on(&p.f, blocks[3], p.a));
  CHECK_CALL(fixture_free_on(&p.f, blocks[4], p.b));
  CHECK_CALL(finish(&p));
}

/* Each needs a little more or less from time to time. If all that the other has free changed hands with that, it would be
 * asked back at once, and so on. */
static void churn(int events) {
  u64 blocks[2][BLOCKS] = {{0}}, sizes[2][BLOCKS], random = 5, before = 0;
  vmm_pool_stats stats;
  pair p;
  int i;

  CHECK_CALL(start(&p, events, VMM_GROWTH_PROPORTIONAL));
  for (i = 0; i < STEPS; i++) {
    const int side = (int)(fixture_random(&random) % 2), n = (int)(fixture_random(&random) % BLOCKS);
    void *stream = side == 0 ? p.a : p.b;

    if (blocks[side][n] != 0) {
      CHECK_CALL(fixture_free_on(&p.f, blocks[side][n], stream));
      blocks[side][n] = 0;
    } else {
      sizes[side][n] = 4096 + fixture_random(&random) % 100000;
      CHECK_CALL(blocks[side][n] = fixture_alloc_on(&p.f, sizes[side][n], stream));
      CHECK_CALL(use(&p, blocks[side][n], sizes[side][n], stream));
    }
    if (i % 4 == 0) vmm_driver_wait(p.f.driver, MS / 50);
    if (i == STEPS / 3) before = fixture_stats(p.f.pool).wait_count;
  }
  stats = fixture_stats(p.f.pool);
  CHECK(stats.wait_count - before <= STEPS / 100);
  CHECK(stats.committed_bytes <= 2 * stats.block_bytes_peak + 2 * MIB);
  for (i = 0; i < 2 * BLOCKS; i++)
    if (blocks[i % 2][i / 2] != 0) CHECK_CALL(fixture_free_on(&p.f, blocks[i % 2][i / 2], i % 2 == 0 ? p.a : p.b));
  CHECK_CALL(finish(&p));
}

TEST(memory_does_not_go_back_and_forth) { CHECK_CALL(churn(VMM_EVENTS_LAZY)); }
TEST(memory_does_not_go_back_and_forth_with_eager_events) { CHECK_CALL(churn(VMM_EVENTS_EAGER)); }

RUN_TESTS()
