/* Statistics, events and call counts against the simulator's ledger and against what happened; two pools, one failing. */
#include "support/fixture.h"

enum { SLOTS = 60 };

typedef struct slot {
  u64 address, size, seed;
} slot;

static void release(fixture *f, slot *s, u64 random) {
  CHECK_CALL(fixture_expect(f, s->address, s->size & ~3ull, s->seed));
  if ((random & 1) != 0) CHECK_OK(vmm_pool_free(f->pool, s->address, NULL));
  else CHECK_OK(vmm_pool_free_idle(f->pool, s->address, NULL));
  s->address = 0;
}

static void take(fixture *f, slot *s, u64 random) {
  vmm_request request;
  vmm_status status;

  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = random % 5 == 0 ? random % (3 * MIB) : random % 100000;
  if (random % 7 == 0) request.alignment = (u64)256 << random % 12;
  if (random % 11 == 0) request.flags |= VMM_REQUEST_ONE_MAPPING;
  if (random % 13 == 0) request.flags |= VMM_REQUEST_SCRUB;
  request.tag = random;
  status = vmm_pool_alloc_with(f->pool, &request, &s->address, &f->error);
  if (status != VMM_OK) {
    CHECK_EQ(s->address, 0);
    CHECK(f->error.status == (int)status && f->error.message[0] != 0);
    return;
  }
  s->size = request.size;
  s->seed = random;
  if ((request.flags & VMM_REQUEST_SCRUB) != 0) CHECK_CALL(fixture_expect_bytes(f, s->address, s->size, 0));
  CHECK_CALL(fixture_fill(f, s->address, s->size & ~3ull, s->seed));
}

static void random_operations(u64 seed, int steps, const char *faults, fixture_options *options) {
  slot slots[SLOTS];
  u64 random = seed;
  fixture f;
  int i;

  memset(slots, 0, sizeof slots);
  CHECK_CALL(fixture_open(&f, options));
  if (faults != NULL) CHECK_CALL(fixture_rule(&f, faults));
  for (i = 0; i < steps; i++) {
    u64 r = fixture_random(&random);
    slot *s = &slots[(r >> 8) % SLOTS];

    if (s->address != 0) CHECK_CALL(release(&f, s, r));
    else CHECK_CALL(take(&f, s, r >> 16));
    if (r % 16 == 0) (void)vmm_pool_trim(f.pool, (r >> 20) % (8 * MIB), 0, NULL, NULL);
    if (r % 32 == 1) (void)vmm_pool_grow(f.pool, (r >> 20) % (2 * MIB), NULL, NULL);
    if (r % 64 == 2) (void)vmm_device_trim(f.device, (r >> 20) % (4 * MIB), NULL, NULL);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_check(&f));
  }
  for (i = 0; i < SLOTS; i++)
    if (slots[i].address != 0) CHECK_CALL(release(&f, &slots[i], 1));
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_OK(vmm_device_trim(f.device, 0, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  CHECK_EQ(fixture_ledger(&f, 0).mappings, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(statistics_equal_the_ledger_after_every_operation) {
  fixture_options options;

  fixture_defaults(&options);
  CHECK_CALL(random_operations(1, 600, NULL, &options));
  options.device.idle_limit = 5 * MIB;
  options.pool.verify = VMM_VERIFY_DATA;
  CHECK_CALL(random_operations(2, 300, NULL, &options));
}

TEST(statistics_equal_the_ledger_when_memory_is_short) {
  fixture_options options;

  fixture_defaults(&options);
  options.sim.memory = 12 * MIB;
  options.pool.reservation = 64 * MIB;
  options.device.idle_limit = 2 * MIB;
  CHECK_CALL(random_operations(3, 400, NULL, &options));
  fixture_defaults(&options);
  options.pool.limit = 10 * MIB;
  options.device.limit = 11 * MIB;
  options.device.idle_limit = 2 * MIB;
  CHECK_CALL(random_operations(4, 400, NULL, &options));
}

TEST(statistics_equal_the_ledger_under_random_refusals) {
  static const char *faults[] = {
      "cuMemCreate:OUT_OF_MEMORYx*:p=0.2,cuMemMap:UNKNOWNx*:p=0.1",
      "cuMemSetAccess:NOT_READYx*:p=0.5,cuMemUnmap:UNKNOWNx*:p=0.3",
      "cuMemSetAccess:UNKNOWNx*:p=0.3,cuMemUnmap:INVALID_VALUEx*:p=0.5",
      "cuMemSetAccess:UNKNOWNx*:p=0.3,cuMemUnmap:NOT_READYx*:p=0.5,cuMemRelease:UNKNOWNx*:p=0.3",
      /* No refused map or unmap beside a get-access that cannot tell: then a hole may be unmapped, to be sure. */
      "cuMemGetAccess:UNKNOWNx*:p=0.1,cuMemCreate:OUT_OF_MEMORYx*:p=0.2,cuMemRelease:NOT_READYx*:p=0.5",
  };
  int i;

  for (i = 0; i < (int)(sizeof faults / sizeof faults[0]); i++) {
    fixture_options options;

    fixture_defaults(&options);
    options.device.idle_limit = (u64)i * MIB;
    CHECK_CALL(random_operations(10 + (u64)i, 300, faults[i], &options));
  }
}

/* ---- two pools ---- */

TEST(a_failing_pool_leaves_the_other_alone) {
  vmm_pool_options options = fixture_pool_options();
  vmm_fault_rule rule;
  u64 one[8], two[8], address = 1;
  vmm_pool *second;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(second = fixture_add_pool(&f, &options));
  CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
  rule.op = VMM_OP_mem_set_access;
  rule.code = VMM_CODE_UNKNOWN;
  rule.times = VMM_FAULT_FOR_EVER;
  rule.address = fixture_stats(second).address;
  rule.size = fixture_stats(second).reserved_bytes;
  CHECK_OK(vmm_pool_alloc(second, 100 * KIB, &two[0], NULL));
  CHECK_CALL(fixture_fill(&f, two[0], 100 * KIB, 77));
  CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
  for (i = 0; i < 8; i++) {
    CHECK_STATUS(vmm_pool_alloc(second, 2 * MIB, &address, NULL), VMM_ERROR_DRIVER);
    CHECK_CALL(one[i] = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_fill(&f, one[i], MIB, (u64)i));
  }
  CHECK_EQ(fixture_stats(second).alloc_failures, 8);
  CHECK_EQ(fixture_stats(f.pool).alloc_failures, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_check(&f));
  CHECK_CALL(fixture_expect(&f, two[0], 100 * KIB, 77));
  for (i = 0; i < 8; i++) {
    CHECK_CALL(fixture_expect(&f, one[i], MIB, (u64)i));
    CHECK_CALL(fixture_free(&f, one[i]));
  }
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_alloc(second, 2 * MIB, &two[1], NULL)); /* nothing sticks */
  CHECK_OK(vmm_pool_free(second, two[0], NULL));
  CHECK_OK(vmm_pool_free(second, two[1], NULL));
  CHECK_CALL(fixture_close(&f));
}

/* ---- call statistics and events ---- */

TEST(call_statistics_equal_the_recorders) {
  vmm_call_stats ours[VMM_OP_COUNT], theirs[VMM_OP_COUNT];
  size_t our_count = 0, their_count = 0, i, k, matched = 0;
  fixture f;
  u64 address;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemMap:UNKNOWN"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, NULL), VMM_ERROR_DRIVER);
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, MS));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL)); /* polls: their NOT_READYs are no failures */
  CHECK_OK(vmm_device_get_calls(f.device, ours, VMM_OP_COUNT, &our_count, NULL));
  CHECK_OK(vmm_record_get_calls(f.driver, theirs, VMM_OP_COUNT, &their_count));
  CHECK_EQ(our_count, their_count);
  for (i = 0; i < our_count; i++)
    for (k = 0; k < their_count; k++) {
      if (strcmp(ours[i].call, theirs[k].call) != 0) continue;
      matched++;
      CHECK_EQ(ours[i].count, theirs[k].count);
      CHECK_EQ(ours[i].failures, strcmp(ours[i].call, "cuMemMap") == 0         ? 1
                                 : strcmp(ours[i].call, "cuMemGetAccess") == 0 ? 3 /* "is it mapped?" */
                                                                               : 0);
      CHECK(ours[i].max_ns <= ours[i].total_ns);
      CHECK(ours[i].total_ns >= 1000 * (ours[i].count - ours[i].failures)); /* a call takes 1 us here */
    }
  CHECK_EQ(matched, our_count);
  CHECK_OK(vmm_device_get_calls(f.device, ours, 1, &our_count, NULL));
  CHECK_EQ(our_count, their_count);
  CHECK_OK(vmm_device_get_calls(f.device, NULL, 0, &our_count, NULL));
  CHECK_STATUS(vmm_device_get_calls(f.device, NULL, 1, &our_count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_get_calls(f.device, ours, 1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_get_calls(NULL, ours, 1, &our_count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_close(&f));
}

static size_t count_events(const vmm_event *events, size_t count, int kind) {
  size_t found = 0, i;

  for (i = 0; i < count; i++) found += events[i].kind == kind;
  return found;
}

TEST(events_tell_what_happened_in_order) {
  vmm_event events[300];
  size_t count = 0, i;
  u64 address, last;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:NOT_READY"));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN,cuMemUnmap:UNKNOWNx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, NULL), VMM_ERROR_DRIVER);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK_OK(vmm_device_get_events(f.device, 0, events, 300, &count, NULL));
  CHECK(count > 8);
  for (i = 0; i < count; i++) {
    CHECK_EQ(events[i].sequence, i + 1);
    if (i > 0) CHECK(events[i].time_ns >= events[i - 1].time_ns);
    CHECK(events[i].kind >= VMM_EVENT_CALL_FAILED && events[i].kind <= VMM_EVENT_LOST);
  }
  CHECK_EQ(count_events(events, count, VMM_EVENT_RETRY), 1);
  CHECK_EQ(count_events(events, count, VMM_EVENT_QUIESCE), 1);
  CHECK_EQ(count_events(events, count, VMM_EVENT_GROWTH), 2);
  CHECK_EQ(count_events(events, count, VMM_EVENT_GROWTH_FAILED), 1);
  CHECK_EQ(count_events(events, count, VMM_EVENT_TRIM), 1);
  CHECK_EQ(count_events(events, count, VMM_EVENT_QUARANTINE), 1);
  CHECK_EQ(count_events(events, count, VMM_EVENT_RECOVERED), 1);
  CHECK_EQ(events[0].kind, VMM_EVENT_CALL_FAILED);
  CHECK_STR(events[0].call, "cuMemSetAccess");
  CHECK_EQ(events[0].code, VMM_CODE_NOT_READY);
  CHECK_EQ(events[0].size, MIB);
  last = count;
  CHECK_OK(vmm_device_get_events(f.device, last - 2, events, 300, &count, NULL));
  CHECK_EQ(count, 2);
  CHECK_EQ(events[0].sequence, last - 1);
  CHECK_OK(vmm_device_get_events(f.device, UINT64_MAX, events, 300, &count, NULL));
  CHECK_EQ(count, 0);
  CHECK_CALL(fixture_free(&f, address));
  for (i = 0; i < 300; i++) { /* the ring wraps: the gap shows */
    CHECK_CALL(address = fixture_alloc(&f, 3 * MIB));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  }
  CHECK_OK(vmm_device_get_events(f.device, last, events, 300, &count, NULL));
  CHECK_EQ(count, 256);
  CHECK(events[0].sequence > last + 1);
  CHECK_EQ(events[255].sequence, events[0].sequence + 255);
  CHECK_STATUS(vmm_device_get_events(f.device, 0, NULL, 1, &count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_get_events(f.device, 0, events, 1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_get_events(NULL, 0, events, 1, &count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
