/* The reservation and its mappings, call by call: what each driver call of a pool's making, verifying, sharing and ending
 * does when it is refused once (as NOT_READY, which is tried again, or otherwise), for ever, or for lack of host memory. */
#include "support/fixture.h"

static const int peers[] = {1, 2};

/* A pool that makes every call there is: peers at creation, verification, initial bytes. */
static vmm_pool_options full_options(void) {
  vmm_pool_options options = fixture_pool_options();

  options.peers = peers;
  options.peer_count = 2;
  options.verify = VMM_VERIFY_DATA;
  options.initial = 3 * MIB;
  options.reservation = 64 * MIB;
  return options;
}

static void open_devices(fixture *f) {
  fixture_options options;

  fixture_defaults(&options);
  options.sim.device_count = 4;
  options.no_pool = true;
  CHECK_CALL(fixture_open(f, &options));
}

static void check_nothing_left(fixture *f) {
  vmm_sim_ledger ledger = fixture_ledger(f, 0);

  CHECK_EQ(ledger.reservations, 0);
  CHECK_EQ(ledger.mappings, 0);
  CHECK_EQ(ledger.handles, 0);
  CHECK_EQ(fixture_device_stats(f->device).pool_count, 0);
  CHECK_EQ(fixture_device_stats(f->device).reserved_bytes, 0);
}

static int rule_for(fixture *f, int op, int code, u64 occurrence, u64 times) {
  vmm_fault_rule rule;
  int id = -1;

  CHECK_OK_RETURN(vmm_fault_rule_init(&rule, sizeof rule), -1);
  rule.op = op;
  rule.code = code;
  rule.occurrence = occurrence;
  rule.times = times;
  CHECK_OK_RETURN(vmm_fault_add(f->fault, &rule, &id, NULL), -1);
  return id;
}

static bool fired(fixture *f, int id) {
  unsigned long long count = 0;

  CHECK_OK_RETURN(vmm_fault_count(f->fault, id, &count, NULL), false);
  return count != 0;
}

static const int making[] = {VMM_OP_device_count,      VMM_OP_device_get,     VMM_OP_device_can_access_peer,
                             VMM_OP_mem_granularity,   VMM_OP_event_create,   VMM_OP_mem_host_alloc,
                             VMM_OP_mem_reserve,       VMM_OP_mem_create,     VMM_OP_mem_map,
                             VMM_OP_mem_set_access,    VMM_OP_mem_get_access, VMM_OP_memset_d2d32_async,
                             VMM_OP_memcpy_dtoh_async, VMM_OP_event_record};
enum { MAKING = sizeof making / sizeof making[0] };

/* Makes the pool with the n-th call of `op` refused; says whether there was an n-th call. */
static bool make_refused(int op, int code, u64 n, u64 times) {
  vmm_pool_options options = full_options();
  vmm_pool *pool = NULL;
  vmm_status status;
  bool was;
  fixture f;
  int id;

  CHECK_CALL_RETURN(open_devices(&f), false);
  id = rule_for(&f, op, code, n, times);
  status = vmm_pool_create(&pool, f.device, &options, &f.error);
  was = fired(&f, id);
  CHECK_CALL_RETURN(fixture_clear(&f), false);
  if (code == VMM_CODE_NOT_READY && times == 1) {
    CHECK_EQ_RETURN(status, VMM_OK, false);
  } else if (was) {
    CHECK_EQ_RETURN(status, code == VMM_CODE_NOT_READY ? VMM_ERROR_NOT_READY : VMM_ERROR_DRIVER, false);
    CHECK_EQ_RETURN(f.error.code, code, false);
    CHECK_RETURN(strcmp(f.error.call, vmm_op_symbol(op)) == 0, false);
  }
  CHECK_EQ_RETURN(pool == NULL, status != VMM_OK, false);
  if (pool == NULL) {
    /* Without a fence nobody knows when verification is done: then the end is left to the device's. */
    bool unfenced = op == VMM_OP_event_record && times != 1;
    if (!unfenced) CHECK_CALL_RETURN(check_nothing_left(&f), false);
    CHECK_OK_RETURN(vmm_pool_create(&pool, f.device, &options, NULL), false); /* once the fault is gone */
  }
  f.pools[0] = f.pool = pool;
  CHECK_EQ_RETURN(fixture_stats(pool).peer_count, 2, false);
  CHECK_EQ_RETURN(fixture_stats(pool).committed_bytes, 3 * MIB, false);
  if (fixture_device_stats(f.device).pool_count == 1) CHECK_CALL_RETURN(fixture_compare(&f), false);
  CHECK_CALL_RETURN(fixture_close(&f), false);
  return was;
}

TEST(each_call_of_a_making_may_be_not_ready_once) {
  int i;

  for (i = 0; i < MAKING; i++) {
    CHECK_CALL(CHECK(make_refused(making[i], VMM_CODE_NOT_READY, 1, 1)));
  }
}

TEST(each_call_of_a_making_may_be_not_ready_for_ever) {
  int i;

  for (i = 0; i < MAKING; i++) {
    CHECK_CALL(CHECK(make_refused(making[i], VMM_CODE_NOT_READY, 1, VMM_FAULT_FOR_EVER)));
  }
}

TEST(each_call_of_a_making_may_be_refused) {
  int i;

  for (i = 0; i < MAKING; i++) {
    u64 n = 1;

    while (make_refused(making[i], VMM_CODE_UNKNOWN, n, 1)) n += 1 + n / 4; /* not each of the many copies */
    CHECK_EQ(atomic_load(&check_failures), 0);
    CHECK(n > 1);
  }
}

TEST(a_making_without_host_memory_leaves_nothing) {
  long long n;
  bool failed = true;

  for (n = 1; failed; n++) {
    vmm_pool_options options = full_options();
    vmm_pool *pool = NULL;
    fixture f;

    CHECK_CALL(open_devices(&f));
    f.memory.fail_in = n;
    failed = vmm_pool_create(&pool, f.device, &options, &f.error) != VMM_OK;
    CHECK_EQ(failed, atomic_exchange(&f.memory.fail_in, 0) <= 0);
    if (failed) {
      CHECK_EQ(f.error.status, VMM_ERROR_OUT_OF_HOST_MEMORY);
      CHECK(pool == NULL);
      CHECK_CALL(check_nothing_left(&f));
    }
    f.pools[0] = pool;
    CHECK_CALL(fixture_close(&f));
  }
  CHECK(n > 6);
}

TEST(a_granularity_that_differs_between_devices_is_the_largest) {
  fixture_options options;
  u64 address;
  fixture f;

  fixture_defaults(&options);
  options.sim.granularity = 256 * KIB;
  options.sim.device_count = 4;
  options.pool = full_options();
  options.pool.reservation = 64 * MIB + 1;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_EQ(fixture_stats(f.pool).reserved_bytes, 64 * MIB + 256 * KIB);
  CHECK_CALL(address = fixture_alloc(&f, 3 * MIB + 1));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes % (256 * KIB), 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* ---- add-peer ---- */

static const int sharing[] = {VMM_OP_device_count,    VMM_OP_device_get,     VMM_OP_device_can_access_peer,
                              VMM_OP_mem_granularity, VMM_OP_mem_set_access, VMM_OP_mem_get_access};
enum { SHARING = sizeof sharing / sizeof sharing[0] };

static void share_refused(int op, int code, u64 times) {
  vmm_pool_options options = full_options();
  bool again = code == VMM_CODE_NOT_READY && times == 1;
  vmm_status status, expected;
  fixture f;
  int id;

  CHECK_CALL(open_devices(&f));
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options));
  id = rule_for(&f, op, code, 1, times);
  status = vmm_pool_add_peer(f.pool, 3, &f.error);
  CHECK(fired(&f, id));
  expected = again ? VMM_OK : code == VMM_CODE_NOT_READY ? VMM_ERROR_NOT_READY : VMM_ERROR_DRIVER;
  CHECK_STATUS_ERROR(status, expected, &f.error);
  CHECK_EQ(fixture_stats(f.pool).peer_count, status == VMM_OK ? 3 : 2);
  CHECK_CALL(fixture_clear(&f));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 3, NULL), status == VMM_OK ? VMM_ERROR_INVALID_ARGUMENT : VMM_OK);
  CHECK_EQ(fixture_stats(f.pool).peer_count, 3);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(each_call_of_a_sharing_may_be_refused_once_or_for_ever) {
  int i;

  for (i = 0; i < SHARING; i++) {
    CHECK_CALL(share_refused(sharing[i], VMM_CODE_NOT_READY, 1));
    CHECK_CALL(share_refused(sharing[i], VMM_CODE_NOT_READY, VMM_FAULT_FOR_EVER));
    CHECK_CALL(share_refused(sharing[i], VMM_CODE_UNKNOWN, 1));
    CHECK_CALL(share_refused(sharing[i], VMM_CODE_UNKNOWN, VMM_FAULT_FOR_EVER));
  }
}

/* ---- the end ---- */

TEST(each_call_of_an_ending_may_be_not_ready_once) {
  static const int ops[] = {VMM_OP_mem_unmap, VMM_OP_mem_release, VMM_OP_mem_address_free, VMM_OP_ctx_record_event};
  int i;

  for (i = 0; i < 4; i++) {
    vmm_pool_options options = full_options();
    u64 address;
    fixture f;
    int id;

    CHECK_CALL(open_devices(&f));
    CHECK_CALL(f.pool = fixture_add_pool(&f, &options));
    CHECK_CALL(address = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_free(&f, address));
    id = rule_for(&f, ops[i], VMM_CODE_NOT_READY, 1, 1);
    CHECK_OK_ERROR(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), &f.error);
    f.pools[0] = NULL;
    CHECK(fired(&f, id));
    CHECK_CALL(check_nothing_left(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_range_that_cannot_be_given_back_keeps_the_pool) {
  static const struct {
    int code, phase;
    vmm_status expected;
    bool done; /* given back all the same */
  } cases[] = {{VMM_CODE_UNKNOWN, VMM_FAULT_BEFORE, VMM_ERROR_DRIVER, false},
               {VMM_CODE_INVALID_VALUE, VMM_FAULT_BEFORE, VMM_ERROR_DRIVER, false},
               {VMM_CODE_NOT_READY, VMM_FAULT_BEFORE, VMM_ERROR_NOT_READY, false},
               {VMM_CODE_UNKNOWN, VMM_FAULT_AFTER, VMM_ERROR_DRIVER, true}};
  int i;

  for (i = 0; i < 4; i++) {
    vmm_fault_rule rule;
    fixture f;

    CHECK_CALL(fixture_open(&f, NULL));
    CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
    rule.op = VMM_OP_mem_address_free;
    rule.code = cases[i].code;
    rule.phase = cases[i].phase;
    rule.times = cases[i].phase == VMM_FAULT_AFTER ? 1 : VMM_FAULT_FOR_EVER;
    CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
    CHECK_STATUS_ERROR(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), cases[i].expected, &f.error);
    CHECK_STR(f.error.call, "cuMemAddressFree");
    CHECK_EQ(fixture_ledger(&f, 0).reservations, cases[i].done ? 0 : 1);
    CHECK_EQ(fixture_device_stats(f.device).pool_count, 1);
    CHECK_CALL(fixture_clear(&f));
    CHECK_OK_ERROR(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), &f.error);
    f.pools[0] = NULL;
    if (cases[i].done) CHECK_OK(vmm_sim_clear_misuse(f.sim)); /* the second free, which could not be avoided */
    CHECK_CALL(check_nothing_left(&f));
    CHECK_CALL(fixture_close(&f));
  }
}

/* A driver that lacks what verify=data needs is told so when the pool is made, not later. */
TEST(verification_needs_calls_that_an_old_driver_may_lack) {
  vmm_pool_options options = full_options();
  vmm_pool *pool = NULL;
  fixture f;

  CHECK_CALL(open_devices(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemHostAlloc:OUT_OF_MEMORYx*"));
  CHECK_STATUS(vmm_pool_create(&pool, f.device, &options, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_STR(f.error.call, "cuMemHostAlloc");
  CHECK(pool == NULL);
  CHECK_CALL(check_nothing_left(&f));
  options.verify = VMM_VERIFY_ACCESS;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options)); /* without it the call is not made */
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
