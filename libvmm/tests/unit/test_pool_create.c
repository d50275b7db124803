/* Making and ending pools: options, reservations, what is refused, what is left. */
#include "support/fixture.h"

static void open_device(fixture *f, const fixture_options *given) {
  fixture_options options;

  if (given != NULL) options = *given;
  else fixture_defaults(&options);
  options.no_pool = true;
  CHECK_CALL(fixture_open(f, &options));
}

/* Refused, with nothing changed. */
static void refuse(fixture *f, const vmm_pool_options *options, vmm_status expected) {
  vmm_sim_ledger before = fixture_ledger(f, 0), after;
  vmm_pool *pool = (vmm_pool *)f;

  CHECK_STATUS_ERROR(vmm_pool_create(&pool, f->device, options, &f->error), expected, &f->error);
  CHECK(pool == NULL);
  CHECK(f->error.message[0] != 0);
  CHECK_STATUS(vmm_pool_create(&pool, f->device, options, NULL), expected);
  after = fixture_ledger(f, 0);
  CHECK_EQ(after.reservations, before.reservations);
  CHECK_EQ(after.handles, before.handles);
  CHECK_EQ(after.events, before.events);
  CHECK_EQ(fixture_device_stats(f->device).pool_count, 0);
}

TEST(options_that_make_no_sense_are_refused) {
  vmm_pool_options options, *longer;
  vmm_pool *pool = NULL;
  fixture f;

  CHECK_CALL(open_device(&f, NULL));
  options = fixture_pool_options();
  options.mapping_min = 4 * MIB;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.mapping_max = UINT64_MAX;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.verify = 2;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options.verify = -1;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.scrub = 2;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.peer_count = 1;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.reservation = MIB;
  options.initial = 2 * MIB;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.limit = MIB;
  options.initial = 2 * MIB;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.reservation = UINT64_MAX;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.initial = UINT64_MAX;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = fixture_pool_options();
  options.struct_size = 8;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_VERSION));
  options.struct_size = 0;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_VERSION));
  CHECK_STATUS(vmm_pool_create(NULL, f.device, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_create(&pool, NULL, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_options_init(NULL, sizeof options), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_options_init(&options, 0), VMM_ERROR_VERSION);

  longer = calloc(1, sizeof *longer + 64);
  CHECK(longer != NULL);
  CHECK_OK(vmm_pool_options_init(longer, sizeof *longer + 64));
  memset((char *)longer + sizeof *longer + 63, 1, 1);
  CHECK_CALL(refuse(&f, longer, VMM_ERROR_VERSION));
  CHECK(vmm_pool_create(&pool, f.device, longer, &f.error) == VMM_ERROR_VERSION);
  CHECK(strstr(f.error.message, "vmm_pool_options") != NULL);
  memset((char *)longer + sizeof *longer + 63, 0, 1);
  longer->mapping_min = 256 * KIB;
  CHECK_CALL(f.pool = fixture_add_pool(&f, longer));
  free(longer);
  CHECK_CALL(fixture_close(&f));
}

TEST(without_options_there_is_a_pool_of_four_times_the_device) {
  vmm_pool_stats stats;
  fixture f;

  CHECK_CALL(open_device(&f, NULL));
  CHECK_OK_ERROR(vmm_pool_create(&f.pools[0], f.device, NULL, &f.error), &f.error);
  f.pool = f.pools[0];
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.reserved_bytes, 4 * 256 * MIB);
  CHECK_EQ(stats.committed_bytes, 0);
  CHECK(stats.address != 0);
  CHECK_EQ(fixture_device_stats(f.device).pool_count, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(initial_bytes_are_there_at_once) {
  vmm_pool_options options = fixture_pool_options();
  u64 address;
  fixture f;

  CHECK_CALL(open_device(&f, NULL));
  options.initial = 5 * MIB + 1;
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_FIRST, 2)); /* and the pool tells of its making */
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 5 * MIB + 64 * KIB);
  CHECK_EQ(fixture_stats(f.pool).growth_count, 1);
  CHECK_EQ(fixture_stats(f.pool).retry_count, 2);
  CHECK_EQ(fixture_stats(f.pool).not_ready_count, 2);
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(address = fixture_alloc(&f, 5 * MIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(initial_bytes_that_cannot_be_had_leave_no_pool) {
  vmm_pool_options options = fixture_pool_options();
  fixture f;

  CHECK_CALL(open_device(&f, NULL));
  options.initial = 300 * MIB;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_OUT_OF_DEVICE_MEMORY));
  CHECK_CALL(fixture_rule(&f, "cuMemMap:UNKNOWNx*"));
  options.initial = 3 * MIB;
  CHECK_CALL(refuse(&f, &options, VMM_ERROR_DRIVER));
  CHECK_CALL(fixture_close(&f));
}

/* Sizes of mappings need not be multiples of the granularity. */
TEST(odd_mapping_sizes_are_rounded) {
  static const u64 sizes[][2] = {{1, 1}, {100, 100000}, {65537, 65537}, {MIB + 1, 3 * MIB - 1}, {3, 5 * MIB + 7}};
  size_t i;

  for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    vmm_pool_options options = fixture_pool_options();
    u64 grown = 0, address, done = 0;
    fixture f;

    CHECK_CALL(open_device(&f, NULL));
    options.mapping_min = sizes[i][0];
    options.mapping_max = sizes[i][1];
    CHECK_CALL(f.pool = fixture_add_pool(&f, &options));
    CHECK_OK_ERROR(vmm_pool_grow(f.pool, 7 * MIB, &grown, &f.error), &f.error);
    CHECK_EQ(grown, 7 * MIB);
    CHECK_CALL(address = fixture_alloc(&f, 9 * MIB));
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

/* The largest there may be: all bounds on what is created in one piece lie above the room. */
TEST(mappings_may_be_larger_than_any_memory) {
  static const u64 sizes[] = {GIB, (u64)1 << 61, (u64)1 << 62};
  size_t i;

  for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    vmm_pool_options options = fixture_pool_options();
    u64 first, second;
    fixture f;

    CHECK_CALL(open_device(&f, NULL));
    options.mapping_min = options.mapping_max = sizes[i];
    options.limit = 32 * MIB;
    CHECK_CALL(f.pool = fixture_add_pool(&f, &options));
    CHECK_CALL(first = fixture_alloc(&f, MIB));
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 32 * MIB);
    CHECK_OK(vmm_pool_set_limit(f.pool, 64 * MIB, NULL));
    CHECK_CALL(fixture_forget_calls(&f));
    CHECK_CALL(second = fixture_alloc(&f, 32 * MIB)); /* with the tail before it, less than what is there already */
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 64 * MIB);
    CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 1);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_free(&f, first));
    CHECK_CALL(fixture_free(&f, second));
    CHECK_CALL(fixture_close(&f));
  }
}

/* Every other number of the options is a bound, or a wish that may be larger than what there is. */
TEST(options_may_be_the_largest_numbers_there_are) {
  static const u64 numbers[] = {UINT64_MAX, UINT64_MAX - 64 * KIB, UINT64_MAX - 64 * KIB + 1, (u64)1 << 63};
  size_t i;
  int field;

  for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    for (field = 0; field < 5; field++) {
      vmm_pool_options options = fixture_pool_options();
      u64 address, done = 0, grow = 0;
      const u64 asked = 100 * MIB;
      fixture f;

      CHECK_CALL(open_device(&f, NULL));
      options.growth_policy = field % 2 == 0 ? VMM_GROWTH_FIXED : VMM_GROWTH_PROPORTIONAL;
      if (field == 0) options.growth_step = options.growth_ahead = numbers[i];
      if (field == 1) options.growth_ahead = numbers[i];
      if (field == 2) options.limit = numbers[i];
      if (field == 3) options.trim_threshold = options.trim_keep = numbers[i];
      if (field == 4) options.headroom = numbers[i];
      CHECK_CALL(f.pool = fixture_add_pool(&f, &options));
      CHECK_CALL(address = fixture_alloc(&f, 3 * MIB));
      CHECK_OK_ERROR(vmm_pool_would_fit(f.pool, &asked, 1, &grow, &f.error), &f.error);
      CHECK_OK_ERROR(vmm_pool_poll(f.pool, &done, NULL, &f.error), &f.error);
      CHECK_EQ(done, 0);
      CHECK_EQ(fixture_stats(f.pool).background_failures, field == 4);
      CHECK(fixture_stats(f.pool).committed_bytes <= 256 * MIB);
      CHECK_CALL(fixture_compare(&f));
      CHECK_CALL(fixture_free(&f, address));
      CHECK_CALL(fixture_close(&f));
    }
}

/* ---- address space ---- */

TEST(a_refused_reservation_is_halved_down_to_what_is_needed) {
  static const u64 left[] = {GIB * 700, GIB * 300, 10 * GIB, GIB};
  static const u64 expected[] = {560 * GIB, 280 * GIB, 8 * GIB + 768 * MIB, GIB};
  int i;

  for (i = 0; i < 4; i++) {
    fixture_options options;
    fixture f;

    fixture_large(&options);
    options.sim.address_space = (u64)1 << 40;
    options.sim.address_space_used = ((u64)1 << 40) - left[i];
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_EQ(fixture_stats(f.pool).reserved_bytes, expected[i]);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(used_up_address_space_is_told_as_such) {
  fixture_options options;
  vmm_pool_options pool;
  fixture f;

  fixture_large(&options);
  options.sim.address_space = (u64)1 << 40;
  options.sim.address_space_used = ((u64)1 << 40) - GIB + 1;
  CHECK_CALL(open_device(&f, &options));
  CHECK_CALL(refuse(&f, NULL, VMM_ERROR_OUT_OF_ADDRESS_SPACE));
  CHECK_STR(f.error.call, "cuMemAddressReserve");
  CHECK_EQ(f.error.code, VMM_CODE_OUT_OF_MEMORY);
  pool = fixture_pool_options();
  pool.mapping_min = pool.mapping_max = 0;
  pool.reservation = GIB; /* a number that is given is not halved */
  CHECK_CALL(refuse(&f, &pool, VMM_ERROR_OUT_OF_ADDRESS_SPACE));
  pool.reservation = 512 * MIB + 1;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &pool));
  CHECK_EQ(fixture_stats(f.pool).reserved_bytes, 514 * MIB);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_full_reservation_is_out_of_address_space_and_works_again_later) {
  fixture_options options;
  u64 addresses[9], address = 1;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.reservation = 8 * MIB;
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 8; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_EQ(address, 0);
  CHECK_EQ(f.error.size, MIB);
  CHECK_STATUS(vmm_pool_grow(f.pool, 1, NULL, NULL), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_EQ(f.error.code, 0); /* no driver call failed */
  CHECK_CALL(fixture_free(&f, addresses[3]));
  CHECK_CALL(fixture_free(&f, addresses[4]));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 3 * MIB, &address, NULL), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_CALL(addresses[3] = fixture_alloc(&f, 2 * MIB));
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 8; i++)
    if (i != 4) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

/* Idle memory in the wrong places is given back for a range that fits. */
TEST(idle_memory_in_holes_does_not_stand_in_the_way) {
  fixture_options options;
  u64 addresses[8], address = 0;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.limit = 8 * MIB;
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 8; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  for (i = 0; i < 8; i += 2) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 4 * MIB, &address, &f.error), &f.error);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 8 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  for (i = 1; i < 8; i += 2) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(ten_thousand_pools_leave_the_address_space_as_it_was) {
  vmm_pool_options options = fixture_pool_options();
  u64 refused = 0;
  fixture f;
  int i;

  CHECK_CALL(open_device(&f, NULL));
  for (i = 0; i < 10000; i++) {
    vmm_pool *pool = NULL;
    vmm_status status;

    if (i % 100 == 99) CHECK_CALL(fixture_rule(&f, "cuMemAddressReserve:OUT_OF_MEMORYx*"));
    options.reservation = i % 2 == 0 ? 64 * MIB : 0;
    status = vmm_pool_create(&pool, f.device, &options, &f.error);
    if (i % 100 == 99) {
      refused++;
      CHECK_STATUS(status, VMM_ERROR_OUT_OF_ADDRESS_SPACE);
      CHECK(pool == NULL);
      CHECK_CALL(fixture_clear(&f));
    } else {
      CHECK_STATUS_ERROR(status, VMM_OK, &f.error);
      CHECK_OK(vmm_pool_destroy(pool, VMM_DESTROY_IDLE, NULL));
    }
    CHECK_EQ(fixture_ledger(&f, 0).reservations, 0);
  }
  CHECK_EQ(refused, 100);
  CHECK_EQ(fixture_device_stats(f.device).reserved_bytes, 0);
  CHECK_CALL(fixture_close(&f));
}

/* ---- limits ---- */

TEST(the_pools_limit_holds_and_can_be_moved) {
  u64 addresses[4], address = 1;
  fixture_options options;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.limit = 4 * MIB;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 4; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 256, &address, &f.error), VMM_ERROR_LIMIT);
  CHECK_EQ(address, 0);
  CHECK_EQ(f.error.code, 0);
  CHECK_STATUS(vmm_pool_grow(f.pool, 1, NULL, NULL), VMM_ERROR_LIMIT);
  CHECK_EQ(fixture_stats(f.pool).limit, 4 * MIB);
  CHECK_OK(vmm_pool_set_limit(f.pool, MIB, NULL)); /* below what is held: only stops growth */
  CHECK_CALL(fixture_free(&f, addresses[3]));
  CHECK_CALL(addresses[3] = fixture_alloc(&f, MIB));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 256, &address, NULL), VMM_ERROR_LIMIT);
  CHECK_OK(vmm_pool_set_limit(f.pool, 0, NULL));
  CHECK_OK(vmm_pool_alloc(f.pool, 20 * MIB, &address, NULL));
  CHECK_STATUS(vmm_pool_set_limit(NULL, 0, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  for (i = 0; i < 4; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

/* ---- the end ---- */

TEST(destroy_refuses_while_blocks_live_and_says_how_many) {
  u64 addresses[3];
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  for (i = 0; i < 3; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), VMM_ERROR_BUSY);
  CHECK_EQ(f.error.size, 3);
  CHECK_CALL(fixture_compare(&f));
  CHECK_STATUS(vmm_pool_destroy(f.pool, 2, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_destroy(NULL, VMM_DESTROY_IDLE, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_fill(&f, addresses[0], MIB, 1)); /* still good */
  CHECK_CALL(fixture_expect(&f, addresses[0], MIB, 1));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 20 * MS));
  CHECK_CALL(fixture_fill(&f, addresses[1], MIB, 1)); /* queued: a forced end waits for it */
  CHECK_OK_ERROR(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, &f.error), &f.error);
  f.pools[0] = NULL;
  CHECK_CALL(fixture_close(&f));
}

TEST(a_forced_end_that_cannot_wait_long_enough_leaves_the_pool) {
  u64 address;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 5000 * MS));
  CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, &f.error), VMM_ERROR_BUSY);
  CHECK_EQ(fixture_stats(f.pool).block_count, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_fill(&f, address, MIB, 1));
  CHECK_CALL(fixture_expect(&f, address, MIB, 1));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
