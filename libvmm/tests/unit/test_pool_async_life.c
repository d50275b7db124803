/* Streams that come and go, pools that one of them has alone, and what growth, trim and the end of a pool make of several.
 * The simulator gives the handle value of a destroyed stream to the next one, and reports each use of a dead one. */
#include <pthread.h>

#include "support/fixture.h"

/* Answers 0 if the pool has none. */
static u64 take_flags(fixture *f, u64 size, void *stream, unsigned flags) {
  vmm_request request;
  u64 address = 0;

  CHECK_OK_RETURN(vmm_request_init(&request, sizeof request), 0);
  request.size = size;
  request.flags = VMM_REQUEST_ON_STREAM | flags;
  request.stream = stream;
  if (vmm_pool_alloc_with(f->pool, &request, &address, &f->error) != VMM_OK) return 0;
  CHECK_OK_RETURN(vmm_sim_new_owner(f->sim, address, size), 0);
  CHECK_EQ_RETURN(vmm_raw_kernel_fill(f->sim, stream, address, (size_t)size, 3), VMM_CODE_SUCCESS, 0);
  return address;
}

static u64 take(fixture *f, u64 size, void *stream) {
  u64 address = take_flags(f, size, stream, 0);

  if (address == 0) check_status(__FILE__, __LINE__, "take", (int)f->error.status, VMM_OK, &f->error);
  return address;
}

static void spin(fixture *f, void *stream, u64 ns) { OK(vmm_raw_kernel_spin(f->sim, stream, ns)); }

/* Mappings of 1 MiB, at most `limit` of them (0: any number). */
static void open(fixture *f, u64 limit, int events, int prefer_wait) {
  fixture_options options;

  fixture_defaults(&options);
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  options.pool.limit = limit * MIB;
  options.pool.events = events;
  options.pool.prefer_wait = prefer_wait;
  CHECK_CALL(fixture_open(f, &options));
}

/* ---- eager events ---- */

TEST(an_eager_pool_touches_no_stream_after_the_free_and_knows_its_successor) {
  void *a, *b;
  u64 first, second;
  fixture f;
  int round;

  CHECK_CALL(open(&f, 2, VMM_EVENTS_EAGER, 0));
  CHECK_CALL(fixture_free_on(&f, take(&f, 256, NULL), NULL)); /* nobody has it alone */
  for (round = 0; round < 4; round++) {
    CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(first = take(&f, MIB, a));
    CHECK_CALL(spin(&f, a, 20 * MS));
    CHECK_CALL(fixture_free_on(&f, first, a));
    OK(vmm_raw_stream_destroy(f.sim, a)); /* its work goes on */
    CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
    CHECK(b == a);
    CHECK_CALL(second = take(&f, MIB, b)); /* other memory, or made to wait */
    CHECK(second != first || fixture_stats(f.pool).wait_count != 0);
    CHECK_CALL(fixture_free_on(&f, second, b));
    OK(vmm_raw_stream_destroy(f.sim, b));
    vmm_driver_wait(f.driver, round % 2 == 0 ? 50 * MS : MS);
  }
  CHECK_EQ(fixture_stats(f.pool).stream_count, 8);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 2 * MIB);
  CHECK_EQ(fixture_stats(f.pool).limbo_count, 0);
  CHECK_CALL(fixture_close(&f));
}

/* What a stream was only made to wait for is behind an event that is recorded after the wait; what it takes back from its
 * own seal is behind the seal's event. */
TEST(an_eager_event_is_behind_all_that_it_stands_for) {
  void *a, *b, *c;
  u64 block, other;
  fixture f;
  int how;

  for (how = 0; how < 2; how++) {
    CHECK_CALL(open(&f, 1, VMM_EVENTS_EAGER, 0));
    CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(c = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(fixture_free_on(&f, take(&f, 256, b), b)); /* b's event is passed long before */
    CHECK_CALL(fixture_free_on(&f, take(&f, 256, c), c));
    vmm_driver_wait(f.driver, 5 * MS);
    CHECK_CALL(block = take(&f, MIB, a));
    CHECK_CALL(spin(&f, a, 20 * MS));
    CHECK_CALL(fixture_free_on(&f, block, a));
    if (how == 0) {
      CHECK_CALL(other = take_flags(&f, MIB / 2, b, VMM_REQUEST_NO_GROWTH)); /* waits for a: all of it is b's now */
      CHECK(other != 0);
      CHECK_EQ(fixture_stats(f.pool).wait_count, 1);
    } else {
      CHECK_EQ(vmm_pool_alloc_async(f.pool, 2 * MIB, b, &other, NULL), VMM_ERROR_LIMIT);
      CHECK_CALL(other = take(&f, MIB / 2, a)); /* a's own, if it was sealed in between */
    }
    CHECK_CALL(block = take_flags(&f, MIB / 2, c, VMM_REQUEST_NO_GROWTH)); /* the other half: not before a is done */
    CHECK(block != 0);
    vmm_driver_wait(f.driver, 2 * MS); /* its own work is over by then */
    CHECK_EQ(vmm_raw_stream_query(f.sim, c), VMM_CODE_NOT_READY);
    CHECK_CALL(fixture_free_on(&f, other, how == 0 ? b : a));
    CHECK_CALL(fixture_free_on(&f, block, c));
    OK(vmm_raw_stream_destroy(f.sim, a));
    OK(vmm_raw_stream_destroy(f.sim, b));
    OK(vmm_raw_stream_destroy(f.sim, c));
    CHECK_CALL(fixture_close(&f));
  }
}

/* A seal that is taken back, and nothing freed since: the next seal must not be an older event. */
TEST(an_eager_seal_that_was_taken_back_is_not_forgotten) {
  void *a, *b;
  u64 block, half, other;
  fixture f;

  CHECK_CALL(open(&f, 2, VMM_EVENTS_EAGER, 0));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(half = take(&f, 256, a));
  CHECK_CALL(fixture_free_on(&f, take(&f, 256, b), b));
  CHECK_CALL(fixture_free_on(&f, half, a));
  vmm_driver_wait(f.driver, 5 * MS);
  CHECK_CALL(other = take(&f, MIB, b)); /* seals a's event, which is passed: both of a's events are old now */
  CHECK_CALL(fixture_free_on(&f, other, b));
  vmm_driver_wait(f.driver, 5 * MS);
  CHECK_CALL(block = take(&f, 2 * MIB, a));
  CHECK_CALL(spin(&f, a, 20 * MS));
  CHECK_CALL(fixture_free_on(&f, block, a));
  CHECK(take_flags(&f, 3 * MIB, b, VMM_REQUEST_NO_GROWTH) == 0);
  /* b seals a, and waits for nothing: it is refused while its own capture is announced */
  CHECK_OK(vmm_device_capture_begin(f.device, b, NULL));
  CHECK(take_flags(&f, MIB, b, VMM_REQUEST_NO_GROWTH) == 0);
  CHECK_OK(vmm_device_capture_end(f.device, b, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).wait_count, 0);
  CHECK_CALL(half = take(&f, MIB, a)); /* taken back */
  CHECK_EQ(half, block);
  CHECK_CALL(other = take_flags(&f, MIB, b, VMM_REQUEST_NO_GROWTH));
  CHECK(other != 0);
  vmm_driver_wait(f.driver, 2 * MS);                            /* its own work is over by then */
  CHECK_EQ(vmm_raw_stream_query(f.sim, b), VMM_CODE_NOT_READY); /* it was made to wait */
  CHECK_CALL(fixture_free_on(&f, half, a));
  CHECK_CALL(fixture_free_on(&f, other, b));
  OK(vmm_raw_stream_destroy(f.sim, a));
  OK(vmm_raw_stream_destroy(f.sim, b));
  CHECK_CALL(fixture_close(&f));
}

/* ... nor may it stand for what was freed after it. */
TEST(an_eager_seal_that_was_taken_back_is_not_for_later_frees) {
  u64 first, second, own, other;
  void *a, *b;
  fixture f;

  CHECK_CALL(open(&f, 2, VMM_EVENTS_EAGER, 0));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(fixture_free_on(&f, take(&f, 256, b), b));
  vmm_driver_wait(f.driver, 5 * MS);
  CHECK_CALL(first = take(&f, MIB, a));
  CHECK_CALL(second = take(&f, MIB, a));
  CHECK_CALL(spin(&f, a, 5 * MS));
  CHECK_CALL(fixture_free_on(&f, first, a));
  CHECK_OK(vmm_pool_trim_async(f.pool, 1ull << 60, NULL, NULL, NULL)); /* seals */
  CHECK_CALL(spin(&f, a, 40 * MS));
  OK(vmm_raw_kernel_fill(f.sim, a, second, MIB, 4));
  CHECK_CALL(fixture_free_on(&f, second, a));
  CHECK_CALL(own = take(&f, MIB + MIB / 2, a)); /* needs both */
  CHECK_EQ(own, first < second ? first : second);
  vmm_driver_wait(f.driver, 10 * MS);
  CHECK_CALL(other = take_flags(&f, MIB / 2, b, VMM_REQUEST_NO_GROWTH));
  CHECK(other != 0);
  vmm_driver_wait(f.driver, 2 * MS);                            /* its own work is over by then */
  CHECK_EQ(vmm_raw_stream_query(f.sim, b), VMM_CODE_NOT_READY); /* it waits */
  CHECK_CALL(fixture_free_on(&f, own, a));
  CHECK_CALL(fixture_free_on(&f, other, b));
  OK(vmm_raw_stream_destroy(f.sim, a));
  OK(vmm_raw_stream_destroy(f.sim, b));
  CHECK_CALL(fixture_close(&f));
}

/* ---- the per-thread default stream ---- */

#define PER_THREAD ((void *)(size_t)2)

static void *second_thread(void *data) {
  fixture *f = data;
  u64 address;

  if (vmm_raw_ctx_set_current(f->sim, f->context) != VMM_CODE_SUCCESS) check_fail(__FILE__, __LINE__, "context");
  address = take_flags(f, MIB, PER_THREAD, 0);
  if (address == 0) check_fail(__FILE__, __LINE__, "no block");
  if (vmm_pool_free_async(f->pool, address, PER_THREAD, NULL) != VMM_OK) check_fail(__FILE__, __LINE__, "free");
  return NULL;
}

TEST(the_per_thread_default_stream_is_another_one_in_each_thread) {
  pthread_t thread;
  u64 address, again;
  fixture f;
  int events;

  for (events = 0; events < 2; events++) {
    CHECK_CALL(open(&f, 2, events, 0));
    CHECK_CALL(address = take(&f, MIB, PER_THREAD));
    CHECK_CALL(spin(&f, PER_THREAD, 20 * MS));
    CHECK_CALL(fixture_free_on(&f, address, PER_THREAD));
    CHECK_CALL(again = take(&f, MIB, PER_THREAD));
    CHECK_EQ(again, address);
    CHECK_CALL(fixture_free_on(&f, again, PER_THREAD));
    CHECK_EQ(pthread_create(&thread, NULL, second_thread, &f), 0); /* given the same memory it would race */
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(atomic_load(&check_failures) == 0);
    CHECK_EQ(fixture_stats(f.pool).stream_count, 2);
    CHECK_CALL(fixture_close(&f));
  }
}

/* ---- forget ---- */

TEST(a_forgotten_streams_memory_is_had_when_its_work_is_done) {
  void *a, *b;
  u64 blocks[3], other, all;
  fixture f;
  int sealed, alone, i;

  for (sealed = 0; sealed < 2; sealed++)
    for (alone = 0; alone < 2; alone++) {
      CHECK_CALL(open(&f, 4, VMM_EVENTS_LAZY, 0));
      CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
      if (!alone) CHECK_CALL(fixture_free_on(&f, take(&f, 256, b), b));
      CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
      for (i = 0; i < 3; i++) CHECK_CALL(blocks[i] = take(&f, MIB, a));
      CHECK_CALL(spin(&f, a, 20 * MS));
      CHECK_CALL(fixture_free_on(&f, blocks[1], a));
      if (sealed) CHECK_OK(vmm_pool_trim_async(f.pool, 1ull << 60, NULL, NULL, NULL)); /* seals, and takes nothing */
      CHECK_CALL(fixture_free_on(&f, blocks[0], a));
      CHECK_CALL(fixture_free_on(&f, blocks[2], a));
      CHECK_CALL(fixture_end_stream(&f, a)); /* dead; the next has its handle value */
      CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
      CHECK_CALL(other = take(&f, MIB, a));
      CHECK_CALL(fixture_check(&f));
      CHECK_CALL(fixture_free_on(&f, other, a));
      vmm_driver_wait(f.driver, 50 * MS);
      CHECK_CALL(all = take(&f, 4 * MIB, b));
      CHECK_EQ(fixture_stats(f.pool).committed_bytes, 4 * MIB);
      CHECK_EQ(fixture_stats(f.pool).trim_bytes, 0);
      CHECK_EQ(fixture_stats(f.pool).fence_failures, 0);
      CHECK_CALL(fixture_free_on(&f, all, b));
      CHECK_EQ(fixture_stats(f.pool).stream_count, 2); /* the first is swept */
      CHECK_CALL(fixture_end_stream(&f, a));
      CHECK_CALL(fixture_end_stream(&f, b));
      CHECK_CALL(fixture_close(&f));
    }
}

/* ---- one stream alone ---- */

TEST(a_pool_that_one_stream_has_alone_is_one_list) {
  u64 blocks[64] = {0}, random = 3, size, high = 0;
  void *a, *b;
  fixture f;
  int i, round;

  CHECK_CALL(open(&f, 0, VMM_EVENTS_LAZY, 0));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_OK(vmm_pool_grow(f.pool, 16 * MIB, NULL, NULL));
  for (round = 0; round < 4000; round++) {
    i = (int)(fixture_random(&random) % 64);
    if (blocks[i] != 0) CHECK_OK(vmm_pool_free_async(f.pool, blocks[i], a, NULL));
    size = fixture_random(&random) % (128 * KIB);
    CHECK_OK(vmm_pool_alloc_async(f.pool, size, a, &blocks[i], NULL));
  }
  for (i = 0; i < 64; i++) CHECK_CALL(fixture_free_on(&f, blocks[i], a));
  CHECK_EQ(fixture_stats(f.pool).growth_count, 1);
  CHECK_EQ(fixture_stats(f.pool).ordered_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).largest_idle, 16 * MIB);
  CHECK_EQ(fixture_stats(f.pool).seal_count, 0);
  CHECK_CALL(high = take(&f, 16 * MIB, a));
  CHECK_CALL(fixture_free_on(&f, high, a));
  CHECK_EQ(fixture_stats(f.pool).growth_count, 1);
  /* Another comes: what was one stream's is its own now. And idle when proven. */
  CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(blocks[0] = take(&f, 256, b));
  CHECK(fixture_stats(f.pool).ordered_bytes != 0 || fixture_stats(f.pool).seal_count != 0);
  vmm_driver_wait(f.driver, 50 * MS);
  CHECK_CALL(high = take(&f, 15 * MIB, b));
  CHECK(fixture_stats(f.pool).committed_bytes <= 17 * MIB); /* but for the 256 bytes */
  CHECK_EQ(fixture_stats(f.pool).ordered_bytes, 0);
  CHECK_CALL(fixture_free_on(&f, high, b));
  CHECK_CALL(fixture_free_on(&f, blocks[0], b));
  CHECK_CALL(fixture_end_stream(&f, a));
  CHECK_CALL(fixture_end_stream(&f, b));
  CHECK_CALL(fixture_close(&f));
}

/* ---- growth ---- */

/* Another stream comes while a growth holds a tail that its stream's work still uses. */
typedef struct comer {
  fixture *f;
  int came;
} comer;

static void come(void *data, int op, u64 opportunity) {
  comer *c = data;

  (void)op;
  if (opportunity != 1) return;
  c->came++;
  if (take_flags(c->f, MIB / 4, NULL, VMM_REQUEST_NO_GROWTH) != 0) c->came += 10;
}

TEST(a_tail_that_a_growth_holds_is_its_streams_own_when_another_comes) {
  vmm_fault_rule rule;
  u64 tail, block, other, extra, between;
  void *a;
  fixture f;
  int fail, events;

  for (events = 0; events < 2; events++)
    for (fail = 0; fail < 2; fail++) {
      comer c = {&f, 0};

      CHECK_CALL(open(&f, 0, events, 0));
      CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
      CHECK_CALL(extra = take(&f, MIB / 2, a)); /* not held: what could be sealed */
      CHECK_CALL(between = take(&f, MIB / 2, a));
      CHECK_CALL(tail = take(&f, MIB, a));
      CHECK_CALL(spin(&f, a, 20 * MS));
      CHECK_CALL(fixture_free_on(&f, extra, a));
      CHECK_CALL(fixture_free_on(&f, tail, a));
      CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
      rule.op = VMM_OP_mem_create;
      rule.hook = come;
      rule.hook_data = &c;
      rule.times = VMM_FAULT_FOR_EVER;
      CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
      if (fail) CHECK_CALL(fixture_rule(&f, "cuMemCreate:UNKNOWN"));
      block = take_flags(&f, 3 * MIB / 2, a, 0);
      CHECK_EQ(c.came, 1);
      CHECK_EQ(block, fail ? 0 : tail);
      CHECK_CALL(fixture_clear(&f));
      CHECK_OK(vmm_pool_check(f.pool, &f.error));
      /* a race, were the tail idle */
      CHECK_CALL(other = take_flags(&f, fail ? 3 * MIB / 4 : MIB / 4, NULL, VMM_REQUEST_NO_GROWTH));
      CHECK(other != 0);
      CHECK_CALL(fixture_free_on(&f, between, a));
      if (block != 0) CHECK_CALL(fixture_free_on(&f, block, a));
      CHECK_CALL(fixture_free_on(&f, other, NULL));
      if (events == VMM_EVENTS_LAZY) CHECK_OK(vmm_device_forget_stream(f.device, a, NULL));
      OK(vmm_raw_stream_destroy(f.sim, a));
      CHECK_CALL(fixture_close(&f));
    }
}

TEST(a_growth_builds_on_a_tail_of_its_own_or_an_idle_one_and_on_no_other) {
  u64 tail, block;
  void *a, *b;
  fixture f;
  int whose;

  for (whose = 0; whose < 3; whose++) { /* its own, another's, idle */
    CHECK_CALL(open(&f, 0, VMM_EVENTS_LAZY, 0));
    CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(tail = take(&f, 256, a));
    CHECK_CALL(fixture_free_on(&f, take(&f, 256, b), b));
    CHECK_CALL(fixture_free_on(&f, tail, a));
    vmm_driver_wait(f.driver, 5 * MS);
    CHECK_CALL(tail = take(&f, MIB, a));
    if (whose != 2) CHECK_CALL(spin(&f, a, 20 * MS));
    vmm_driver_wait(f.driver, 5 * MS);
    if (whose != 2) CHECK_CALL(fixture_free_on(&f, tail, a));
    else CHECK_OK(vmm_pool_free_idle(f.pool, tail, NULL));
    if (whose == 0) { /* what a growth that fails gives back is its own still */
      CHECK_CALL(fixture_rule(&f, "cuMemCreate:UNKNOWN"));
      CHECK_EQ(take_flags(&f, 3 * MIB / 2, a, 0), 0);
      CHECK_CALL(fixture_clear(&f));
      CHECK(fixture_stats(f.pool).ordered_bytes >= MIB);
    }
    CHECK_CALL(block = take(&f, 3 * MIB / 2, whose == 0 ? a : b));
    CHECK_EQ(block, whose == 1 ? tail + MIB : tail);
    CHECK_EQ(fixture_stats(f.pool).wait_count, 0);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_free_on(&f, block, whose == 0 ? a : b));
    CHECK_CALL(fixture_end_stream(&f, a));
    CHECK_CALL(fixture_end_stream(&f, b));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(requests_with_flags_are_ordered_on_their_stream) {
  vmm_request request;
  u64 first, block;
  void *a, *b;
  fixture f;

  CHECK_CALL(open(&f, 0, VMM_EVENTS_LAZY, 0));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(first = take(&f, 256, b));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = MIB / 2;
  request.alignment = 64 * KIB;
  request.tag = 9;
  request.flags = VMM_REQUEST_ON_STREAM | VMM_REQUEST_ONE_MAPPING | VMM_REQUEST_SCRUB;
  request.stream = a;
  CHECK_CALL(spin(&f, a, 20 * MS));
  CHECK_OK_ERROR(vmm_pool_alloc_with(f.pool, &request, &block, &f.error), &f.error);
  CHECK_EQ(block % (64 * KIB), 0);
  CHECK_EQ(block / MIB, (block + MIB / 2 - 1) / MIB);
  vmm_driver_wait(f.driver, MS);
  CHECK_EQ(vmm_raw_stream_query(f.sim, NULL), VMM_CODE_SUCCESS); /* the scrub is on a, not on the home stream */
  vmm_driver_wait(f.driver, 30 * MS);
  CHECK_CALL(fixture_expect_bytes(&f, block, MIB / 2, 0));
  CHECK_CALL(fixture_free_on(&f, block, a));
  CHECK_CALL(fixture_free_on(&f, first, b));
  CHECK_CALL(fixture_end_stream(&f, a));
  CHECK_CALL(fixture_end_stream(&f, b));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
