/* Asking whether requests would fit: the answer is what happens if they are made, and asking changes nothing. */
#include "support/fixture.h"

static u64 ask(fixture *f, const u64 *sizes, size_t count) {
  u64 grow = 77;

  CHECK_OK_RETURN(vmm_pool_would_fit(f->pool, sizes, count, &grow, &f->error), 77);
  return grow;
}

TEST(an_empty_pool_must_grow_by_all_of_it) {
  static const u64 sizes[] = {MIB, 64 * KIB, 1};
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, 64 * KIB));
  CHECK_EQ(ask(&f, sizes, 1), MIB);
  CHECK_EQ(ask(&f, sizes, 3), MIB + 128 * KIB);
  CHECK_EQ(ask(&f, NULL, 0), 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(holes_and_order_count) {
  static const u64 fitting[] = {100 * KIB, 100 * KIB}, large[] = {200 * KIB};
  u64 blocks[4];
  fixture f;
  int i;

  CHECK_CALL(fixture_open_exact(&f, NULL, 64 * KIB));
  for (i = 0; i < 4; i++) CHECK_CALL(blocks[i] = fixture_alloc(&f, 100 * KIB));
  CHECK_CALL(fixture_free(&f, blocks[0]));
  CHECK_CALL(fixture_free(&f, blocks[2]));
  CHECK_EQ(ask(&f, fitting, 2), 0);
  CHECK(ask(&f, large, 1) >= 64 * KIB); /* there is as much, but not in one piece */
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(blocks[0] = fixture_alloc(&f, 100 * KIB));
  CHECK_CALL(blocks[2] = fixture_alloc(&f, 100 * KIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  for (i = 0; i < 4; i++) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(what_can_be_moved_is_not_grown) {
  static const u64 large[] = {128 * KIB}, larger[] = {256 * KIB};
  u64 blocks[4], block;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_exact(&f, NULL, 64 * KIB));
  for (i = 0; i < 4; i++) CHECK_CALL(blocks[i] = fixture_alloc(&f, 64 * KIB));
  CHECK_OK(vmm_pool_free_idle(f.pool, blocks[0], NULL));
  CHECK_OK(vmm_pool_free_idle(f.pool, blocks[2], NULL));
  CHECK_EQ(ask(&f, large, 1), 0);
  CHECK_EQ(ask(&f, larger, 1), 128 * KIB);
  CHECK_CALL(block = fixture_alloc(&f, 256 * KIB));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 384 * KIB);
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_free(&f, blocks[1]));
  CHECK_CALL(fixture_free(&f, blocks[3]));
  CHECK_CALL(fixture_close(&f));
}

/* What a stream that has the pool alone has freed is idle to that stream only. */
TEST(what_another_stream_may_still_use_does_not_count) {
  static const u64 sizes[] = {MIB, MIB / 2};
  u64 block, first, second, before;
  void *other;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, 256 * KIB));
  CHECK_CALL(other = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(block = fixture_alloc_on(&f, MIB, other));
  OK(vmm_raw_kernel_spin(f.sim, other, 20 * MS));
  OK(vmm_raw_kernel_fill(f.sim, other, block, MIB, 3));
  CHECK_CALL(fixture_free_on(&f, block, other));
  CHECK_EQ(ask(&f, sizes, 2), MIB + MIB / 2);
  CHECK_CALL(fixture_check(&f));
  before = fixture_stats(f.pool).committed_bytes;
  CHECK_CALL(first = fixture_alloc(&f, sizes[0]));
  CHECK_CALL(second = fixture_alloc(&f, sizes[1]));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, before + MIB + MIB / 2);
  vmm_driver_wait(f.driver, 50 * MS);
  CHECK_CALL(fixture_free(&f, first));
  CHECK_CALL(fixture_free(&f, second));
  CHECK_CALL(fixture_end_stream(&f, other));
  CHECK_CALL(fixture_close(&f));
}

TEST(limits_and_memory_are_named) {
  static const u64 eight[] = {4 * MIB, 4 * MIB}, huge[] = {300 * MIB}, twice[] = {600 * MIB, 600 * MIB};
  u64 grow = 0;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, 64 * KIB));
  CHECK_EQ(ask(&f, eight, 2), 8 * MIB);
  CHECK_OK(vmm_pool_set_limit(f.pool, 7 * MIB, NULL));
  CHECK_STATUS(vmm_pool_would_fit(f.pool, eight, 2, &grow, &f.error), VMM_ERROR_LIMIT);
  CHECK_EQ(grow, 8 * MIB);
  CHECK_EQ(f.error.size, 8 * MIB);
  CHECK(strstr(f.error.message, "pool's limit") != NULL);
  CHECK_EQ(ask(&f, eight, 1), 4 * MIB);
  CHECK_OK(vmm_pool_set_limit(f.pool, 0, NULL));
  CHECK_OK(vmm_device_set_limit(f.device, 7 * MIB, NULL));
  CHECK_STATUS(vmm_pool_would_fit(f.pool, eight, 2, &grow, &f.error), VMM_ERROR_LIMIT);
  CHECK(strstr(f.error.message, "device's limit") != NULL);
  CHECK_OK(vmm_device_set_limit(f.device, 0, NULL));
  CHECK_STATUS(vmm_pool_would_fit(f.pool, huge, 1, &grow, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(grow, 300 * MIB);
  CHECK_EQ(f.error.free_bytes, 256 * MIB);
  CHECK_STATUS(vmm_pool_would_fit(f.pool, twice, 2, &grow, &f.error), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_EQ(grow, 600 * MIB);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(nonsense_is_refused) {
  static const u64 absurd[] = {256, UINT64_MAX}, large[] = {8 * GIB};
  u64 grow = 5;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_STATUS(vmm_pool_would_fit(NULL, absurd, 1, &grow, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(grow, 0);
  CHECK_STATUS(vmm_pool_would_fit(f.pool, absurd, 1, NULL, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_would_fit(f.pool, NULL, 1, &grow, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_would_fit(f.pool, absurd, 2, &grow, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_would_fit(f.pool, large, 1, &grow, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_close(&f));
}

/* Random pools, asked before each batch of requests: the answer is what the batch then does, and asking left no trace. */
TEST(the_answer_is_what_happens) {
  enum { BLOCKS = 64, BATCH = 8, ROUNDS = 400 };
  u64 blocks[BLOCKS] = {0}, state = 5;
  int round, exact = 0, none = 0;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, 64 * KIB));
  for (round = 0; round < ROUNDS; round++) {
    u64 sizes[BATCH], grow, committed;
    int slots[BATCH], n = 0, i;

    for (i = 0; i < BLOCKS && n < BATCH; i++) {
      u64 r = fixture_random(&state);

      if (blocks[i] != 0 && r % 3 == 0) {
        CHECK_OK(vmm_pool_free_idle(f.pool, blocks[i], NULL));
        blocks[i] = 0;
      } else if (blocks[i] == 0 && r % 2 == 0) {
        slots[n] = i;
        sizes[n++] = fixture_lognormal(&state);
      }
    }
    committed = fixture_stats(f.pool).committed_bytes;
    CHECK_CALL(grow = ask(&f, sizes, (size_t)n));
    CHECK_EQ(ask(&f, sizes, (size_t)n), grow);
    CHECK_CALL(fixture_check(&f));
    for (i = 0; i < n; i++) CHECK_OK(vmm_pool_alloc(f.pool, sizes[i], &blocks[slots[i]], NULL));
    committed = fixture_stats(f.pool).committed_bytes - committed;
    if (grow == 0) none++;
    if (grow == 0) CHECK_EQ(committed, 0);
    if (committed == grow) exact++;
    CHECK(committed + 4 * MIB >= grow);
  }
  CHECK(none > ROUNDS / 4);
  CHECK(exact > ROUNDS * 3 / 4);
  for (round = 0; round < BLOCKS; round++)
    if (blocks[round] != 0) CHECK_OK(vmm_pool_free_idle(f.pool, blocks[round], NULL));
  CHECK_CALL(fixture_close(&f));
}

TEST(asking_again_takes_no_more_host_memory) {
  static u64 sizes[500];
  long long out;
  fixture f;
  int i;

  for (i = 0; i < 500; i++) sizes[i] = 1000;
  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_free(&f, fixture_alloc(&f, MIB)));
  CHECK_EQ(ask(&f, sizes, 500), 0);
  out = atomic_load(&f.memory.out);
  for (i = 0; i < 50; i++) CHECK_EQ(ask(&f, sizes, 500), 0);
  CHECK_EQ(atomic_load(&f.memory.out), out);
  CHECK_CALL(fixture_close(&f));
}

TEST(asking_may_lack_host_memory_or_the_driver) {
  static const u64 sizes[] = {MIB, MIB};
  u64 grow = 0;
  fixture f;
  int n;

  for (n = 1; n < 20; n++) {
    vmm_status status;
    bool done;

    CHECK_CALL(fixture_open(&f, NULL));
    atomic_store(&f.memory.fail_in, n);
    status = vmm_pool_would_fit(f.pool, sizes, 2, &grow, &f.error);
    done = atomic_load(&f.memory.fail_in) > 0;
    atomic_store(&f.memory.fail_in, 0);
    CHECK_STATUS(status, done ? VMM_OK : VMM_ERROR_OUT_OF_HOST_MEMORY);
    CHECK_CALL(fixture_check(&f));
    CHECK_CALL(fixture_close(&f));
    if (done) break;
  }
  CHECK(n > 1 && n < 20);
  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemGetInfo:UNKNOWN"));
  CHECK_OK(vmm_pool_would_fit(f.pool, sizes, 2, &grow, &f.error)); /* who cannot say what is free does not say no */
  CHECK_EQ(grow, 2 * MIB);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
