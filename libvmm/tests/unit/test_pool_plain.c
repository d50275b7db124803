/* Pools of plain allocations, where there is no virtual memory management. */
#include "support/fixture.h"

enum { GUARD = 256 };

static void open_plain(fixture *f, fixture_options *options) {
  options->sim.no_vmm = 1;
  options->device.fallback = VMM_FALLBACK_ALLOWED;
  CHECK_CALL(fixture_open(f, options));
}

static void open_default(fixture *f) {
  fixture_options options;

  fixture_defaults(&options);
  options.pool.growth_policy = VMM_GROWTH_EXACT;
  CHECK_CALL(open_plain(f, &options));
}

/* The simulator's count of plain allocations against what the device and the pools say. */
static void compare(fixture *f) {
  vmm_sim_ledger ledger = fixture_ledger(f, 0);
  vmm_device_stats device = fixture_device_stats(f->device);
  u64 mappings = 0, committed = 0, ready = 0;
  int i;

  for (i = 0; i < FIXTURE_POOLS; i++)
    if (f->pools[i] != NULL) {
      vmm_pool_stats stats = fixture_stats(f->pools[i]);
      mappings += stats.mapping_count;
      committed += stats.committed_bytes;
      ready += stats.ready_bytes;
      CHECK_EQ(stats.address + stats.reserved_bytes, 0);
    }
  CHECK_EQ(ledger.plain_allocations, device.handle_count + device.quarantined_count);
  CHECK_EQ(ledger.plain_bytes, device.handle_bytes + device.quarantined_bytes);
  CHECK_EQ(device.handle_bytes - device.idle_bytes, committed + mappings * GUARD + ready);
  CHECK_EQ(ledger.handles + ledger.mappings + ledger.reservations, 0);
  CHECK_CALL(fixture_check(f));
}

TEST(a_device_without_virtual_memory_serves_if_it_may) {
  fixture_options options;
  vmm_device *device = NULL;
  vmm_device_info info;
  u64 a, b;
  fixture f;

  fixture_defaults(&options);
  options.no_device = true;
  options.sim.no_vmm = 1;
  CHECK_CALL(fixture_open(&f, &options));
  options.device.driver = f.driver;
  CHECK_STATUS(vmm_device_open(&device, 0, &options.device, &f.error), VMM_ERROR_UNSUPPORTED);
  options.device.fallback = 3;
  CHECK_STATUS(vmm_device_open(&device, 0, &options.device, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_end(&f));

  CHECK_CALL(open_default(&f));
  info.struct_size = sizeof info;
  CHECK_OK(vmm_device_get_info(f.device, &info, NULL));
  CHECK_EQ(info.fallback, 1);
  CHECK_EQ(info.granularity, 2 * MIB);
  CHECK_EQ(info.total_bytes, 256 * MIB);
  CHECK_CALL(a = fixture_alloc(&f, 100));
  CHECK_CALL(b = fixture_alloc(&f, 3 * MIB));
  CHECK_EQ(fixture_stats(f.pool).growth_count, 2);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 6 * MIB - 2 * GUARD);
  CHECK_CALL(fixture_fill(&f, a, 100 / 4 * 4, 1));
  CHECK_CALL(fixture_fill(&f, b, 3 * MIB, 2));
  CHECK_CALL(fixture_expect(&f, a, 100 / 4 * 4, 1));
  CHECK_CALL(fixture_expect(&f, b, 3 * MIB, 2));
  CHECK_CALL(compare(&f));
  CHECK_CALL(fixture_free(&f, a));
  CHECK_CALL(fixture_free(&f, b));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_device_that_has_it_can_be_told_to_do_without) {
  fixture_options options;
  vmm_device_info info;
  int how;

  for (how = VMM_FALLBACK_ALLOWED; how <= VMM_FALLBACK_ALWAYS; how++) {
    u64 a;
    fixture f;

    fixture_defaults(&options);
    options.device.fallback = how;
    CHECK_CALL(fixture_open(&f, &options));
    info.struct_size = sizeof info;
    CHECK_OK(vmm_device_get_info(f.device, &info, NULL));
    CHECK_EQ(info.fallback, how == VMM_FALLBACK_ALWAYS ? 1 : 0);
    CHECK_CALL(a = fixture_alloc(&f, MIB));
    CHECK_EQ(fixture_ledger(&f, 0).plain_allocations, how == VMM_FALLBACK_ALWAYS ? 1 : 0);
    CHECK_CALL(fixture_free(&f, a));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(trim_gives_back_what_is_wholly_idle) {
  u64 a, b, c, done = 0;
  fixture f;

  CHECK_CALL(open_default(&f));
  CHECK_CALL(a = fixture_alloc(&f, 3 * MIB));
  CHECK_CALL(b = fixture_alloc(&f, 5 * MIB));
  CHECK_CALL(c = fixture_alloc(&f, MIB / 2)); /* fits behind one of them */
  CHECK_EQ(fixture_stats(f.pool).growth_count, 2);
  CHECK_CALL(fixture_free(&f, a));
  CHECK_CALL(fixture_free(&f, b));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK(done == 4 * MIB - GUARD || done == 6 * MIB - GUARD);
  CHECK_EQ(fixture_stats(f.pool).mapping_count, 1);
  CHECK_CALL(compare(&f));
  CHECK_CALL(fixture_free(&f, c));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).plain_allocations, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(everything_else_works_as_with_mappings) {
  static const u64 sizes[] = {MIB, 7 * MIB};
  fixture_options options;
  vmm_request request;
  vmm_pool *second, *owner = NULL;
  vmm_block_info info;
  u64 a, b = 0, grow = 0, grown = 0;
  fixture f;

  fixture_defaults(&options);
  options.pool.verify = VMM_VERIFY_DATA;
  options.pool.initial = 3 * MIB;
  options.pool.limit = 32 * MIB;
  CHECK_CALL(open_plain(&f, &options));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 4 * MIB - GUARD);
  options.pool.initial = 0;
  CHECK_CALL(second = fixture_add_pool(&f, &options.pool));
  CHECK_OK(vmm_pool_would_fit(f.pool, sizes, 2, &grow, &f.error));
  CHECK_EQ(grow, 8 * MIB - GUARD);
  CHECK_OK(vmm_pool_would_fit(f.pool, sizes, 1, &grow, &f.error));
  CHECK_EQ(grow, 0);
  CHECK_OK(vmm_pool_grow(f.pool, 5 * MIB, &grown, NULL));
  CHECK_EQ(grown, 6 * MIB - GUARD);
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 3 * MIB;
  request.alignment = MIB;
  CHECK_OK(vmm_pool_alloc_with(second, &request, &b, &f.error));
  CHECK_EQ(b % MIB, 0);
  CHECK_CALL(a = fixture_alloc(&f, 4 * MIB));
  CHECK_OK(vmm_device_find(f.device, b + 5, &owner, &info, NULL));
  CHECK(owner == second);
  CHECK_OK(vmm_device_find(f.device, a, &owner, &info, NULL));
  CHECK(owner == f.pool);
  CHECK_STATUS(vmm_device_find(f.device, 4096, &owner, &info, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_OK(vmm_pool_grow_async(f.pool, 9 * MIB, NULL));
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 10 * MIB);
  CHECK_CALL(compare(&f));
  CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).ready_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).background_failures, 0);
  CHECK_CALL(compare(&f));
  CHECK_STATUS(vmm_pool_grow(f.pool, 30 * MIB, NULL, &f.error), VMM_ERROR_LIMIT);
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, &f.error), VMM_ERROR_INVALID_ARGUMENT); /* there is one device only */
  CHECK_CALL(fixture_free(&f, a));
  CHECK_OK(vmm_pool_free(second, b, NULL));
  CHECK_CALL(fixture_close(&f));
}

TEST(peers_cannot_be_had) {
  static const int peers[] = {1};
  fixture_options options;
  vmm_pool *pool = NULL;
  fixture f;

  fixture_defaults(&options);
  options.sim.device_count = 2;
  CHECK_CALL(open_plain(&f, &options));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, &f.error), VMM_ERROR_UNSUPPORTED);
  options.pool.peers = peers;
  options.pool.peer_count = 1;
  CHECK_STATUS(vmm_pool_create(&pool, f.device, &options.pool, &f.error), VMM_ERROR_UNSUPPORTED);
  CHECK_CALL(fixture_close(&f));
}

/* There is no reservation that would refuse them first. */
TEST(sizes_near_the_largest_number_are_refused_and_change_nothing) {
  static const u64 sizes[] = {(u64)1 << 63,
                              UINT64_MAX / 2 + 257,
                              UINT64_MAX - 2 * MIB - 511,
                              UINT64_MAX - 2 * MIB - 255,
                              UINT64_MAX - 2 * MIB - 254,
                              UINT64_MAX - 511};
  const size_t last = 3; /* that can be rounded up to an allocation */
  vmm_request request;
  size_t i;
  fixture f;

  CHECK_CALL(open_default(&f));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    vmm_status expected = i <= last ? VMM_ERROR_OUT_OF_DEVICE_MEMORY : VMM_ERROR_INVALID_ARGUMENT;
    const u64 twice[] = {sizes[i], sizes[i], 1};
    u64 address = 1, grow = 0;

    CHECK_STATUS_ERROR(vmm_pool_alloc(f.pool, sizes[i], &address, &f.error), expected, &f.error);
    CHECK_EQ(address, 0);
    CHECK_STATUS_ERROR(vmm_pool_grow(f.pool, sizes[i], NULL, &f.error), expected, &f.error);
    CHECK_STATUS_ERROR(vmm_pool_grow_async(f.pool, sizes[i], &f.error), expected, &f.error);
    request.size = sizes[i];
    request.alignment = (u64)1 << 63;
    CHECK_STATUS_ERROR(vmm_pool_alloc_with(f.pool, &request, &address, &f.error), VMM_ERROR_INVALID_ARGUMENT, &f.error);
    CHECK(vmm_pool_would_fit(f.pool, twice, 3, &grow, &f.error) != VMM_OK);
    if (i <= last) CHECK_EQ(grow, UINT64_MAX); /* more than a number says */
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
    CHECK_EQ(fixture_ledger(&f, 0).plain_allocations, 0);
    CHECK_CALL(compare(&f));
  }
  CHECK_CALL(fixture_close(&f));
}

TEST(a_full_card_is_climbed_out_of) {
  u64 a, b, address = 1;
  fixture f;

  CHECK_CALL(open_default(&f));
  CHECK_CALL(a = fixture_alloc(&f, 150 * MIB));
  CHECK_CALL(b = fixture_alloc(&f, 50 * MIB));
  CHECK_CALL(fixture_free(&f, a));
  CHECK_CALL(a = fixture_alloc(&f, 180 * MIB)); /* only if the idle one goes first */
  CHECK_STATUS(vmm_pool_alloc(f.pool, 180 * MIB, &address, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_STR(f.error.call, "cuMemAlloc");
  CHECK_EQ(address, 0);
  CHECK_CALL(compare(&f));
  CHECK_CALL(fixture_free(&f, a));
  CHECK_CALL(fixture_free(&f, b));
  CHECK_CALL(fixture_close(&f));
}

/* Its pattern may still be written by the GPU: the allocation is not given back before that is known to be over. */
TEST(memory_that_verification_may_still_write_is_kept) {
  fixture_options options;
  u64 address = 1;
  fixture f;

  fixture_defaults(&options);
  options.pool.growth_policy = VMM_GROWTH_EXACT;
  options.pool.verify = VMM_VERIFY_DATA;
  CHECK_CALL(open_plain(&f, &options));
  CHECK_CALL(fixture_rule(&f, "cuMemcpyDtoHAsync:UNKNOWN,cuEventRecord:UNKNOWNx*"));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 1000, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(address, 0);
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_free), 0);
  CHECK(fixture_stats(f.pool).quarantined_bytes != 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(address = fixture_alloc(&f, 1000)); /* recovers it on the way */
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_CALL(compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* Measured: plain memory may be had and freed by a thread in relaxed mode. */
TEST(announced_captures_are_left_alone) {
  void *stream = NULL, *graph = NULL;
  u64 a;
  fixture f;

  CHECK_CALL(open_default(&f));
  OK(vmm_raw_stream_create(f.sim, &stream, 1));
  CHECK_OK(vmm_device_capture_begin(f.device, stream, NULL));
  OK(vmm_raw_stream_begin_capture(f.sim, stream, 0));
  CHECK_CALL(a = fixture_alloc(&f, 3 * MIB));
  CHECK_OK(vmm_pool_free_idle(f.pool, a, NULL));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).plain_allocations, 0);
  OK(vmm_raw_stream_end_capture(f.sim, stream, &graph));
  OK(vmm_raw_graph_destroy(f.sim, graph));
  CHECK_OK(vmm_device_capture_end(f.device, stream, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).captures_invalidated, 0);
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

static void random_operations(u64 seed, const char *faults, u64 idle_limit) {
  enum { SLOTS = 24, STEPS = 500 };
  struct {
    u64 address, size, seed;
  } slots[SLOTS];
  fixture_options options;
  u64 state = seed;
  fixture f;
  int i;

  memset(slots, 0, sizeof slots);
  fixture_defaults(&options);
  options.device.idle_limit = idle_limit;
  CHECK_CALL(open_plain(&f, &options));
  if (faults != NULL) CHECK_CALL(fixture_rule(&f, faults));
  for (i = 0; i < STEPS; i++) {
    u64 r = fixture_random(&state), k = r % SLOTS;

    if (slots[k].address != 0) {
      CHECK_CALL(fixture_expect(&f, slots[k].address, slots[k].size / 4 * 4, slots[k].seed));
      CHECK_CALL(fixture_free(&f, slots[k].address));
      slots[k].address = 0;
    } else {
      slots[k].size = fixture_lognormal(&state) * 2;
      slots[k].seed = r;
      if (vmm_pool_alloc(f.pool, slots[k].size, &slots[k].address, NULL) == VMM_OK)
        CHECK_CALL(fixture_fill(&f, slots[k].address, slots[k].size / 4 * 4, r));
      else CHECK(faults != NULL);
    }
    if (r % 16 == 0) (void)vmm_pool_trim(f.pool, (r >> 20) % (8 * MIB), 0, NULL, NULL);
    if (r % 32 == 1) (void)vmm_pool_grow(f.pool, (r >> 20) % (2 * MIB) + 1, NULL, NULL);
    if (r % 64 == 2) (void)vmm_device_trim(f.device, (r >> 20) % (4 * MIB), NULL, NULL);
    if (r % 64 == 3) (void)vmm_pool_grow_async(f.pool, (r >> 20) % (4 * MIB) + 1, NULL);
    if (r % 64 == 4) (void)vmm_pool_poll(f.pool, NULL, NULL, NULL);
    CHECK_CALL(compare(&f));
  }
  CHECK_CALL(fixture_clear(&f));
  for (i = 0; i < SLOTS; i++)
    if (slots[i].address != 0) CHECK_CALL(fixture_free(&f, slots[i].address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_OK(vmm_device_trim(f.device, 0, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).plain_allocations, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(blocks_keep_their_bytes_and_counters_their_truth) {
  CHECK_CALL(random_operations(1, NULL, 0));
  CHECK_CALL(random_operations(2, NULL, 8 * MIB));
  CHECK_CALL(random_operations(3, "cuMemAlloc:OUT_OF_MEMORYx*:p=0.3", 0));
  CHECK_CALL(random_operations(4, "cuMemFree:UNKNOWNx*:p=0.3,cuMemAlloc:UNKNOWNx*:p=0.1", 2 * MIB));
}

TEST(a_free_that_fails_is_tried_again) {
  u64 a;
  fixture f;

  CHECK_CALL(open_default(&f));
  CHECK_CALL(a = fixture_alloc(&f, MIB));
  CHECK_OK(vmm_pool_free_idle(f.pool, a, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemFree:UNKNOWN"));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_device_stats(f.device).quarantined_bytes, 2 * MIB);
  CHECK_CALL(compare(&f));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_device_stats(f.device).quarantined_bytes, 0);
  CHECK_EQ(fixture_ledger(&f, 0).plain_allocations, 0);
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
