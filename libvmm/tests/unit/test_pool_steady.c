/* The steady state costs no driver call and no host allocation; a large pool grows far past where older ones ended. */
#include "support/fixture.h"

enum { LIVE = 10000, PAIRS = 100000 };

TEST(alloc_and_free_that_fit_call_neither_the_driver_nor_the_host_allocator) {
  static u64 blocks[LIVE];
  fixture_options options;
  u64 random = 20260101, committed;
  long long allocations;
  fixture f;
  int i, round;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < LIVE; i++) CHECK_CALL(blocks[i] = fixture_alloc(&f, fixture_lognormal(&random)));
  /* Warm: as much again is committed, so that fragmentation has room. */
  CHECK_OK(vmm_pool_grow(f.pool, fixture_stats(f.pool).committed_bytes, NULL, NULL));
  committed = fixture_stats(f.pool).committed_bytes;
  CHECK_CALL(fixture_forget_calls(&f));
  allocations = f.memory.calls;
  for (round = 0; round < PAIRS; round++) {
    i = (int)(fixture_random(&random) % LIVE);
    if (round % 2 == 0) CHECK_OK(vmm_pool_free(f.pool, blocks[i], NULL));
    else CHECK_OK(vmm_pool_free_idle(f.pool, blocks[i], NULL));
    CHECK_OK(vmm_pool_alloc(f.pool, fixture_lognormal(&random), &blocks[i], NULL));
  }
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_EQ(f.memory.calls, allocations);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, committed);
  CHECK_EQ(fixture_stats(f.pool).block_count, LIVE);
  CHECK_CALL(fixture_check(&f));
  /* Frees alone, and what allocates into the holes, cost nothing either. */
  for (i = 0; i < LIVE; i++) CHECK_OK(vmm_pool_free(f.pool, blocks[i], NULL));
  for (i = 0; i < LIVE; i++) CHECK_OK(vmm_pool_alloc(f.pool, 512, &blocks[i], NULL));
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_EQ(f.memory.calls, allocations);
  for (i = 0; i < LIVE; i++) CHECK_OK(vmm_pool_free(f.pool, blocks[i], NULL));
  CHECK_CALL(fixture_close(&f));
}

/* The first and the last word of every GiB, through device addresses. */
static void write_words(fixture *f, u64 address, u64 gib) {
  u64 i;

  for (i = 0; i < gib; i++) {
    unsigned first = (unsigned)(i * 2 + 0xC0DE0001u), last = first + 1;

    OK(vmm_raw_memcpy_htod(f->sim, address + i * GIB, &first, 4));
    OK(vmm_raw_memcpy_htod(f->sim, address + (i + 1) * GIB - 4, &last, 4));
  }
}

static void read_words(fixture *f, u64 address, u64 gib) {
  u64 i;

  for (i = 0; i < gib; i++) {
    unsigned first = 0xBADBAD00u, last = 0xBADBAD00u;

    OK(vmm_raw_memcpy_dtoh(f->sim, &first, address + i * GIB, 4));
    OK(vmm_raw_memcpy_dtoh(f->sim, &last, address + (i + 1) * GIB - 4, 4));
    CHECK_EQ(first, (unsigned)(i * 2 + 0xC0DE0001u));
    CHECK_EQ(last, (unsigned)(i * 2 + 0xC0DE0002u));
  }
}

static const int memory_calls[] = {VMM_OP_mem_create,  VMM_OP_mem_map,   VMM_OP_mem_set_access, VMM_OP_mem_get_access,
                                   VMM_OP_mem_reserve, VMM_OP_mem_unmap, VMM_OP_mem_release,    VMM_OP_mem_get_info};

static u64 count_memory_calls(fixture *f) {
  u64 calls = 0;
  size_t i;

  for (i = 0; i < sizeof memory_calls / sizeof memory_calls[0]; i++) calls += fixture_calls(f, memory_calls[i]);
  return calls;
}

TEST(ninety_six_gib_in_steps_of_one_gib) {
  fixture_options options;
  u64 blocks[96], start, address = 1;
  fixture f;
  int i;

  fixture_large(&options);
  options.pool.limit = 96 * GIB;
  options.pool.mapping_min = options.pool.mapping_max = GIB;
  CHECK_CALL(fixture_open(&f, &options));
  start = fixture_stats(f.pool).address;
  for (i = 0; i < 96; i++) {
    CHECK_CALL(fixture_forget_calls(&f));
    CHECK_CALL(blocks[i] = fixture_alloc(&f, GIB));
    CHECK(count_memory_calls(&f) <= 4); /* create, map, set-access, and the confirm */
    CHECK_EQ(fixture_calls(&f, VMM_OP_mem_get_access), 1);
    CHECK_EQ(blocks[i], start + (u64)i * GIB);
  }
  CHECK_STATUS(vmm_pool_alloc(f.pool, 256, &address, &f.error), VMM_ERROR_LIMIT);
  CHECK_EQ(address, 0);
  CHECK_CALL(write_words(&f, start, 96));
  CHECK_CALL(read_words(&f, start, 96));
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 96; i++) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_CALL(blocks[0] = fixture_alloc(&f, 96 * GIB)); /* all of it is one range */
  CHECK_EQ(blocks[0], start);
  CHECK_CALL(read_words(&f, start, 96));
  CHECK_CALL(fixture_free(&f, blocks[0]));
  CHECK_CALL(fixture_close(&f));
}

TEST(ninety_six_gib_in_steps_of_two_mib) {
  enum { STEPS = 96 * 512 };
  fixture_options options;
  u64 start, address = 0, growths;
  fixture f;
  int i;

  fixture_large(&options);
  options.pool.mapping_min = options.pool.mapping_max = 2 * MIB; /* each step grows by itself */
  CHECK_CALL(fixture_open(&f, &options));
  start = fixture_stats(f.pool).address;
  for (i = 0; i < STEPS; i++) {
    CHECK_OK(vmm_pool_alloc(f.pool, 2 * MIB, &address, NULL));
    CHECK_EQ(address, start + (u64)i * 2 * MIB);
  }
  growths = fixture_stats(f.pool).growth_count;
  CHECK_EQ(growths, STEPS);
  CHECK_EQ(fixture_stats(f.pool).mapping_count, STEPS);
  CHECK_EQ(fixture_ledger(&f, 0).mapped_bytes, 96 * GIB);
  CHECK_EQ(fixture_ledger(&f, 0).accessible_bytes, 96 * GIB);
  CHECK_CALL(write_words(&f, start, 96));
  CHECK_CALL(read_words(&f, start, 96));
  for (i = 0; i < STEPS; i++) CHECK_OK(vmm_pool_free(f.pool, start + (u64)i * 2 * MIB, NULL));
  CHECK_CALL(fixture_close(&f));
}

/* With the default policy the same takes few growths, and little is held that is not used. */
TEST(default_growth_doubles_and_then_stays_within_a_tenth) {
  fixture_options options;
  vmm_pool_stats stats;
  u64 start = 0, address;
  fixture f;
  int i;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 4096; i++) { /* 8 GiB */
    CHECK_OK(vmm_pool_alloc(f.pool, 2 * MIB, &address, NULL));
    if (i == 0) start = address;
  }
  stats = fixture_stats(f.pool);
  CHECK(stats.growth_count <= 12 + 8); /* 2 MiB to 4 GiB by doubling, from there by a tenth */
  CHECK(stats.committed_bytes <= 8 * GIB + 8 * GIB / 10);
  for (i = 0; i < 4096; i++) CHECK_OK(vmm_pool_free(f.pool, start + (u64)i * 2 * MIB, NULL));
  CHECK_CALL(fixture_close(&f));
}

/* The same, each pair gone before the next comes, for each of 16 layers. */
TEST(temporaries_of_a_long_prefill_take_few_growths) {
  fixture_options options;
  vmm_pool_stats stats;
  u64 context, layer;
  fixture f;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&f, &options));
  for (context = 384; context != 0; context = context == 131072 ? 0 : context + 384 < 131072 ? context + 384 : 131072)
    for (layer = 0; layer < 16; layer++) {
      u64 k, v;

      CHECK_CALL(k = fixture_alloc(&f, 2 * KIB * context));
      CHECK_CALL(v = fixture_alloc(&f, 2 * KIB * context));
      CHECK_CALL(fixture_free(&f, v));
      CHECK_CALL(fixture_free(&f, k));
    }
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.block_bytes_peak, 512 * MIB);
  CHECK(stats.growth_count <= 16);
  CHECK(stats.committed_peak <= stats.block_bytes_peak + stats.block_bytes_peak / 10);
  CHECK_CALL(fixture_close(&f));
}

/* Per-layer K and V temporaries that grow with the context: the older pool grew once for each. */
TEST(temporaries_that_grow_with_the_context_take_few_growths) {
  fixture_options options;
  vmm_pool_stats stats;
  u64 context, k = 0, v = 0;
  fixture f;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&f, &options));
  for (context = 384; context <= 131072; context += 384) {
    u64 next_k, next_v;

    CHECK_CALL(next_k = fixture_alloc(&f, 2 * KIB * context)); /* the new one before the old one goes */
    CHECK_CALL(next_v = fixture_alloc(&f, 2 * KIB * context));
    if (k != 0) CHECK_CALL(fixture_free(&f, k));
    if (v != 0) CHECK_CALL(fixture_free(&f, v));
    k = next_k;
    v = next_v;
  }
  stats = fixture_stats(f.pool);
  CHECK(stats.growth_count <= 16);
  CHECK(stats.committed_peak <= 2 * stats.block_bytes_peak + stats.block_bytes_peak / 10);
  CHECK_EQ(stats.idle_bytes, stats.committed_bytes - stats.block_bytes);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, k));
  CHECK_CALL(fixture_free(&f, v));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
