/* Growth that fails: everything undone, told, and possible again. */
#include "support/fixture.h"

/* Two old blocks with bytes in them, which must survive whatever happens. */
typedef struct old_blocks {
  u64 address[2], size[2];
} old_blocks;

static old_blocks make_old(fixture *f) {
  old_blocks old = {{0, 0}, {100 * KIB, 700 * KIB}};
  int i;

  for (i = 0; i < 2; i++) {
    old.address[i] = fixture_alloc(f, old.size[i]);
    fixture_fill(f, old.address[i], old.size[i], 100 + (u64)i);
  }
  return old;
}

static void check_old(fixture *f, const old_blocks *old) {
  int i;

  for (i = 0; i < 2; i++) CHECK_CALL(fixture_expect(f, old->address[i], old->size[i], 100 + (u64)i));
  CHECK_CALL(fixture_check(f));
}

static void free_old(fixture *f, const old_blocks *old) {
  int i;

  for (i = 0; i < 2; i++) CHECK_CALL(fixture_free(f, old->address[i]));
}

static vmm_status expected_status(int op, int code) {
  if (code == VMM_CODE_NOT_READY) return VMM_OK;                                /* once: retried */
  if (code == VMM_CODE_OUT_OF_MEMORY && op == VMM_OP_mem_create) return VMM_OK; /* once: a smaller size, or later */
  if (code == VMM_CODE_OUT_OF_MEMORY && op == VMM_OP_mem_map) return VMM_ERROR_MAPPING_LIMIT;
  if (code == VMM_CODE_OUT_OF_MEMORY) return VMM_OK;
  return VMM_ERROR_DRIVER;
}

/* One growth of three pieces with the k-th call of `op` refused once: either it works all the same, or it is undone. */
static void refuse_once(int op, int k, int code) {
  vmm_pool_stats before, after;
  vmm_status status, expected = expected_status(op, code);
  u64 grown = 1;
  vmm_fault_rule rule;
  old_blocks old;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(old = make_old(&f));
  before = fixture_stats(f.pool);
  CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
  rule.op = op;
  rule.code = code;
  rule.occurrence = (u64)k;
  CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
  status = vmm_pool_grow(f.pool, 6 * MIB, &grown, &f.error);
  after = fixture_stats(f.pool);
  CHECK_STATUS_ERROR(status, expected, &f.error);
  CHECK_EQ(grown, status == VMM_OK ? 6 * MIB : 0);
  CHECK_EQ(after.committed_bytes, before.committed_bytes + grown);
  CHECK_EQ(after.quarantined_bytes, 0);
  if (status != VMM_OK) {
    CHECK_EQ(f.error.status, status);
    CHECK_EQ(f.error.code, code);
    CHECK_STR(f.error.call, vmm_op_symbol(op));
    CHECK_STR(f.error.code_name, vmm_code_name(code));
    CHECK(strstr(f.error.message, vmm_op_symbol(op)) != NULL);
    CHECK(after.growth_failures > before.growth_failures);
  }
  CHECK_CALL(check_old(&f, &old));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK_ERROR(vmm_pool_grow(f.pool, 6 * MIB, &grown, &f.error), &f.error); /* the same again, on the same range */
  CHECK_CALL(check_old(&f, &old));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(free_old(&f, &old));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_growth_refused_at_any_step_is_undone_and_works_later) {
  static const int ops[] = {VMM_OP_mem_create, VMM_OP_mem_map, VMM_OP_mem_set_access, VMM_OP_mem_get_access};
  static const int codes[] = {2, 1, 999, 600};
  int o, c, k;

  for (o = 0; o < 4; o++)
    for (c = 0; c < 4; c++)
      for (k = 1; k <= (ops[o] == VMM_OP_mem_set_access ? 1 : 3); k++) {
        CHECK_CALL(refuse_once(ops[o], k, codes[c]));
      }
}

TEST(set_access_that_answers_other_codes_gives_the_memory_back) {
  static const char *rules[] = {"cuMemSetAccess:OUT_OF_MEMORYx*", "cuMemSetAccess:UNKNOWNx*"};
  int i;

  for (i = 0; i < 2; i++) {
    u64 free_before, address = 1;
    old_blocks old;
    fixture f;

    CHECK_CALL(fixture_open(&f, NULL));
    CHECK_CALL(old = make_old(&f));
    free_before = fixture_ledger(&f, 0).free_bytes;
    CHECK_CALL(fixture_rule(&f, rules[i]));
    CHECK_STATUS(vmm_pool_alloc(f.pool, 5 * MIB, &address, &f.error),
                 i == 0 ? VMM_ERROR_OUT_OF_DEVICE_MEMORY : VMM_ERROR_DRIVER);
    CHECK_EQ(address, 0);
    CHECK_EQ(fixture_ledger(&f, 0).free_bytes, free_before + f.error.gave_back);
    CHECK_CALL(check_old(&f, &old));
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(free_old(&f, &old));
    CHECK_CALL(fixture_close(&f));
  }
}

/* Creating works j times, then the card is full: all or nothing. */
TEST(a_partial_growth_leaves_nothing) {
  u64 j;

  for (j = 0; j < 4; j++) {
    u64 grown = 1, used;
    char rule[64];
    old_blocks old;
    fixture f;

    CHECK_CALL(fixture_open(&f, NULL));
    CHECK_CALL(old = make_old(&f));
    used = fixture_ledger(&f, 0).handle_bytes;
    (void)snprintf(rule, sizeof rule, "cuMemCreate:OUT_OF_MEMORY@%llux*", j + 1);
    CHECK_CALL(fixture_rule(&f, rule));
    CHECK_STATUS(vmm_pool_grow(f.pool, 8 * MIB, &grown, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_EQ(grown, 0);
    CHECK_EQ(fixture_ledger(&f, 0).handle_bytes, used - f.error.gave_back);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(check_old(&f, &old));
    CHECK_CALL(free_old(&f, &old));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_create_that_is_short_once_works_by_the_late_retry) {
  u64 address = 0;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemCreate:OUT_OF_MEMORY"));
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 256 * KIB, &address, &f.error), &f.error);
  CHECK_EQ(fixture_stats(f.pool).oom_rounds, 1);
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(when_memory_is_short_the_head_room_goes_first) {
  fixture_options options;
  u64 address = 0, second = 0;
  fixture f;

  fixture_defaults(&options);
  options.sim.memory = MIB;
  options.pool.mapping_min = options.pool.mapping_max = 2 * MIB; /* more than there is */
  options.pool.reservation = 64 * MIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 300 * KIB, &address, &f.error), &f.error);
  CHECK(fixture_stats(f.pool).committed_bytes < MIB + 1);
  CHECK_STATUS(vmm_pool_alloc(f.pool, 900 * KIB, &second, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_STR(f.error.call, "cuMemCreate");
  CHECK_EQ(f.error.total_bytes, MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_pool_alloc(f.pool, 300 * KIB, &second, NULL));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_free(&f, second));
  CHECK_CALL(fixture_close(&f));
}

/* The first error is told, the failed undo beside it; the range is never handed out, until its undo works. */
TEST(what_cannot_be_undone_is_quarantined_and_recovered_later) {
  u64 address = 1, done = 0, quarantined, block;
  vmm_mapping_info mappings[16];
  vmm_pool_stats stats;
  size_t count = 0, i;
  old_blocks old;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(old = make_old(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN,cuMemUnmap:INVALID_VALUEx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 3 * MIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(address, 0);
  CHECK_STR(f.error.call, "cuMemSetAccess");
  CHECK_EQ(f.error.code, VMM_CODE_UNKNOWN);
  CHECK_EQ(f.error.undo_failures, 1);
  CHECK_EQ(f.error.undo_code, VMM_CODE_INVALID_VALUE);
  CHECK(strstr(f.error.message, "quarantined") != NULL);
  stats = fixture_stats(f.pool);
  quarantined = stats.quarantined_bytes;
  CHECK(quarantined >= 2 * MIB);
  CHECK_CALL(check_old(&f, &old));
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_pool_get_mappings(f.pool, mappings, 16, &count, NULL));
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 3 * MIB, &block, &f.error), &f.error); /* beside it */
  for (i = 0; i < count; i++)
    if (mappings[i].state == VMM_MAPPING_QUARANTINED)
      CHECK(block + 3 * MIB <= mappings[i].address || block >= mappings[i].address + mappings[i].size);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, quarantined);
  CHECK_CALL(fixture_fill(&f, block, 3 * MIB, 5));
  CHECK_CALL(fixture_expect(&f, block, 3 * MIB, 5));
  CHECK_CALL(fixture_compare(&f));
  CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL), VMM_ERROR_BUSY); /* blocks live */
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_trim(f.pool, UINT64_MAX, 0, &done, NULL)); /* tries the undo again, gives nothing else back */
  CHECK_EQ(done, 0);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(free_old(&f, &old));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_quarantined_range_keeps_the_pool_until_it_can_be_unmapped) {
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN,cuMemUnmap:INVALID_VALUEx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 3 * MIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, &f.error), VMM_ERROR_BUSY);
  CHECK(strstr(f.error.message, "quarantined") != NULL);
  CHECK_STATUS(vmm_device_close(f.device, &f.error), VMM_ERROR_BUSY);
  CHECK_EQ(f.error.size, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f)); /* without the fault it goes */
}

/* An unmap that is merely refused says nothing about what lies around it: that is left alone. INVALID_VALUE may mean that
 * it cuts another mapping; if nothing is found beyond, the same is tried once more. */
TEST(a_quarantined_range_that_is_refused_again_is_tried_again_alone) {
  static const char *again[] = {"cuMemUnmap:UNKNOWNx2", "cuMemUnmap:NOT_READYx2", "cuMemUnmap:OUT_OF_MEMORYx2",
                                "cuMemUnmap:INVALID_VALUEx3", "cuMemUnmap:INVALID_VALUEx2"};
  u64 address = 1, quarantined;
  size_t i;

  for (i = 0; i < sizeof again / sizeof again[0]; i++) {
    fixture_options options;
    fixture f;

    fixture_defaults(&options);
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN,cuMemUnmap:UNKNOWNx2"));
    CHECK_STATUS(vmm_pool_alloc(f.pool, 300 * KIB, &address, NULL), VMM_ERROR_DRIVER);
    quarantined = fixture_stats(f.pool).quarantined_bytes;
    CHECK(quarantined != 0);
    CHECK_CALL(fixture_rule(&f, again[i]));
    CHECK_CALL(fixture_forget_calls(&f));
    CHECK_OK(vmm_pool_trim(f.pool, UINT64_MAX, 0, NULL, NULL));
    CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, i < 4 ? quarantined : 0); /* the last had its third try */
    CHECK_CALL(fixture_compare(&f));
    CHECK_OK(vmm_pool_trim(f.pool, UINT64_MAX, 0, NULL, NULL));
    CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f)); /* no hole was unmapped on the way */
  }
}

/* A growth that fails after it recovered what was quarantined says how much went back. */
TEST(a_failed_growth_tells_what_its_recovery_gave_back) {
  u64 address = 1, quarantined, free_before;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN,cuMemUnmap:UNKNOWNx2"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 300 * KIB, &address, NULL), VMM_ERROR_DRIVER);
  quarantined = fixture_stats(f.pool).quarantined_bytes;
  CHECK(quarantined != 0);
  free_before = fixture_ledger(&f, 0).free_bytes;
  CHECK_CALL(fixture_rule(&f, "cuMemCreate:UNKNOWN"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 300 * KIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(f.error.gave_back, quarantined);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_EQ(fixture_ledger(&f, 0).free_bytes, free_before + quarantined);
  CHECK_CALL(fixture_close(&f));
}

/* The driver refuses an unmap and then denies the mapping twice: it counts as gone. A growth that meets it cannot map, and
 * its undo would cut it in two; what is quarantined then takes all around it that is not live along. */
TEST(a_mapping_that_the_driver_denied_is_found_again) {
  u64 kept, address = 1, block;
  vmm_sim_misuse found[16];
  size_t count = 0, i;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(kept = fixture_alloc(&f, 100 * KIB));
  CHECK_CALL(fixture_fill(&f, kept, 100 * KIB, 9));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN,cuMemUnmap:UNKNOWN,cuMemGetAccess:INVALID_VALUEx2"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 2 * MIB, &address, NULL), VMM_ERROR_DRIVER);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_EQ(fixture_ledger(&f, 0).mappings, 2); /* nobody knows of the second */
  CHECK_STATUS(vmm_pool_alloc(f.pool, 500 * KIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_STR(f.error.call, "cuMemMap");
  CHECK(fixture_stats(f.pool).quarantined_bytes != 0);
  CHECK_CALL(block = fixture_alloc(&f, 2 * MIB));
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_expect(&f, kept, 100 * KIB, 9));
  CHECK_OK(vmm_sim_get_misuse(f.sim, found, 16, &count));
  CHECK(count >= 1);
  for (i = 0; i < count; i++) CHECK_EQ(found[i].kind, VMM_SIM_MISUSE_UNMAP_HOLE);
  CHECK_OK(vmm_sim_clear_misuse(f.sim));
  CHECK_CALL(fixture_free(&f, kept));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

/* The report itself meets a failing query: it still comes, with what is known. */
TEST(the_report_comes_even_if_its_own_query_fails) {
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWNx*,cuMemGetInfo:UNKNOWNx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(f.error.code, VMM_CODE_UNKNOWN);
  CHECK_STR(f.error.call, "cuMemSetAccess");
  CHECK_EQ(f.error.free_bytes, 0);
  CHECK_EQ(f.error.total_bytes, 0);
  CHECK(f.error.reserved_bytes != 0);
  CHECK(strstr(f.error.message, "cuMemSetAccess") != NULL);
  CHECK(memchr(f.error.message, 0, sizeof f.error.message) != NULL);
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, NULL), VMM_ERROR_DRIVER); /* nor is a report needed */
  CHECK_CALL(fixture_close(&f));
}

/* Success that get-access denies: tried again, then given up, told as NOT_CONFIRMED. */
TEST(success_that_is_none_is_never_believed) {
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:SUCCESS:lie"));
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, MIB, &address, &f.error), &f.error);
  CHECK_EQ(fixture_device_stats(f.device).not_confirmed_count, 1);
  CHECK_CALL(fixture_fill(&f, address, MIB, 3));
  CHECK_CALL(fixture_expect(&f, address, MIB, 3));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:SUCCESSx*:lie"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_NOT_CONFIRMED);
  CHECK_EQ(address, 0);
  CHECK(strstr(f.error.message, "denies") != NULL);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).not_ready_count, 0); /* nobody said NOT_READY */
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_map_that_lies_is_noticed_too) {
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemMap:SUCCESSx*:lie"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER); /* set-access finds nothing there */
  CHECK_STR(f.error.call, "cuMemSetAccess");
  CHECK_EQ(address, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_sim_clear_misuse(f.sim)); /* the unmap of what was never there: harmless, and the driver's doing */
  CHECK_OK(vmm_pool_alloc(f.pool, MIB, &address, NULL));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_mapping_limit_of_the_drivers_is_told_apart) {
  fixture_options options;
  u64 addresses[8], address = 1;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.sim.mapping_limit = 3;
  options.pool.mapping_min = options.pool.mapping_max = 64 * KIB;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 3; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, 64 * KIB));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 64 * KIB, &address, &f.error), VMM_ERROR_MAPPING_LIMIT);
  CHECK_EQ(address, 0);
  CHECK_STR(f.error.call, "cuMemMap");
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 3; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(without_host_memory_nothing_changes) {
  long long n;
  bool failed = true;

  for (n = 1; failed; n++) {
    u64 grown = 1, committed;
    vmm_status status;
    fixture f;

    CHECK_CALL(fixture_open(&f, NULL));
    f.memory.fail_in = n;
    status = vmm_pool_grow(f.pool, 4 * MIB, &grown, &f.error);
    failed = atomic_exchange(&f.memory.fail_in, 0) <= 0;
    committed = fixture_stats(f.pool).committed_bytes;
    CHECK_STATUS_ERROR(status, failed ? VMM_ERROR_OUT_OF_HOST_MEMORY : VMM_OK, &f.error);
    CHECK_EQ(committed, failed ? 0 : 4 * MIB);
    CHECK_EQ(grown, committed);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_close(&f));
  }
  CHECK(n > 4); /* pieces, records and tables were all asked for */
}

RUN_TESTS()
