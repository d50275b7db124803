/* Calls that meet: a lease or a stream that ends while another thread is in the middle of a call that uses it, leases that
 * end side by side, and what a stream can be made to wait for. Where one call is to run in the middle of another, a hook
 * runs it there: the library holds no lock at those points. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/lock.h"
#include "support/fixture.h"

static void forget(fixture *f, void *stream) {
  CHECK_OK(vmm_device_forget_stream(f->device, stream, NULL));
  vmm_driver_wait(f->driver, 200 * MS);
  OK(vmm_raw_stream_destroy(f->sim, stream));
}

/* Answers 0 if the pool has none. */
static u64 take(fixture *f, u64 size, void *stream) {
  u64 address = 0;

  if (vmm_pool_alloc_async(f->pool, size, stream, &address, &f->error) != VMM_OK) return 0;
  CHECK_OK_RETURN(vmm_sim_new_owner(f->sim, address, size), 0);
  return address;
}

/* Queues `ns` of work and then a fill of the block. */
static void use(fixture *f, u64 address, u64 size, void *stream, u64 ns) {
  OK(vmm_raw_kernel_spin(f->sim, stream, ns));
  OK(vmm_raw_kernel_fill(f->sim, stream, address, (size_t)size, 5));
}

/* ---- a call in the middle of another ---- */

typedef struct intruder {
  fixture *f;
  vmm__rank rank; /* of the lock whose release is the moment */
  int skip;       /* releases before it */
  void (*act)(struct intruder *intruder);
  vmm_lease *lease;
  void *stream;
  pthread_t thread;
  bool apart; /* in a thread of its own, which is given a moment to end */
  atomic_int done;
} intruder;

static _Thread_local bool intruding;

static void *run_apart(void *data) {
  intruder *i = data;

  intruding = true;
  i->act(i);
  atomic_store(&i->done, 1);
  return NULL;
}

static bool at(void *data, vmm__point point, const void *object, u64 value, u64 *result) {
  intruder *i = data;
  int wait;

  (void)object;
  (void)result;
  if (intruding || point != VMM__POINT_RELEASED || value != (u64)i->rank || i->skip-- != 0) return false;
  intruding = true;
  if (i->apart) {
    CHECK_EQ_RETURN(pthread_create(&i->thread, NULL, run_apart, i), 0, false);
    for (wait = 0; wait < 50 && atomic_load(&i->done) == 0; wait++) (void)usleep(1000);
  } else {
    i->act(i);
  }
  intruding = false;
  return false;
}

static void release_lease(intruder *i) { CHECK_OK(vmm_lease_release(i->lease, NULL)); }

static void abort_capture(intruder *i) {
  CHECK_OK(vmm_device_capture_end(i->f->device, i->stream, VMM_CAPTURE_ABORTED, NULL, NULL));
}

static void forget_stream(intruder *i) { CHECK_CALL(forget(i->f, i->stream)); }

/* A lease on MIB bytes of each pool; no graph is made. */
static vmm_lease *make_lease(fixture *f, void *stream) {
  vmm_lease *lease = NULL;
  u64 address;
  size_t i;

  CHECK_OK_RETURN(vmm_device_capture_begin(f->device, stream, NULL), NULL);
  for (i = 0; i < 2; i++) {
    CHECK_OK_RETURN(vmm_pool_alloc_async(f->pools[i], MIB, stream, &address, NULL), NULL);
    CHECK_OK_RETURN(vmm_pool_free_async(f->pools[i], address, stream, NULL), NULL);
  }
  CHECK_OK_RETURN(vmm_device_capture_end(f->device, stream, VMM_CAPTURE_COMMITTED, &lease, NULL), NULL);
  return lease;
}

TEST(leases_that_are_released_side_by_side_all_end_in_all_pools) {
  vmm_lease *first;
  intruder i;
  fixture f;
  void *stream;
  int skip;

  for (skip = 0; skip < 8; skip++) {
    vmm__hook hook = {at, &i};

    memset(&i, 0, sizeof i);
    CHECK_CALL(fixture_open(&f, NULL));
    (void)fixture_add_pool(&f, NULL);
    CHECK_CALL(stream = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(first = make_lease(&f, stream));
    CHECK_CALL(i.lease = make_lease(&f, stream));
    i.f = &f;
    i.rank = VMM__RANK_DEVICE;
    i.skip = skip;
    i.act = release_lease;
    vmm__hook_install(&hook);
    CHECK_OK(vmm_lease_release(first, NULL));
    vmm__hook_install(NULL);
    if (i.skip >= 0) CHECK_OK(vmm_lease_release(i.lease, NULL)); /* there were not so many moments */
    CHECK_EQ(fixture_stats(f.pools[0]).lease_count, 0);
    CHECK_EQ(fixture_stats(f.pools[1]).lease_count, 0);
    CHECK_EQ(fixture_stats(f.pools[0]).lease_bytes, 0);
    CHECK_EQ(fixture_stats(f.pools[1]).lease_bytes, 0);
    CHECK_CALL(forget(&f, stream));
    CHECK_CALL(fixture_close(&f));
  }
}

/* Whichever was first: no lease is left, and the block is one like others. */
static void end_capture_in_alloc(vmm__rank rank, int skip, u64 size) {
  vmm__hook hook;
  intruder i;
  fixture f;
  u64 address;

  memset(&i, 0, sizeof i);
  hook.at = at;
  hook.data = &i;
  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(i.stream = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(address = take(&f, MIB, i.stream));
  CHECK_OK(vmm_pool_free_async(f.pool, address, i.stream, NULL));
  CHECK_OK(vmm_device_capture_begin(f.device, i.stream, NULL));
  i.f = &f;
  i.rank = rank;
  i.skip = skip;
  i.act = abort_capture;
  i.apart = true;
  vmm__hook_install(&hook);
  CHECK_OK(vmm_pool_alloc_async(f.pool, size, i.stream, &address, NULL));
  vmm__hook_install(NULL);
  if (i.skip < 0) CHECK_EQ(pthread_join(i.thread, NULL), 0);
  else CHECK_OK(vmm_device_capture_end(f.device, i.stream, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).lease_count, 0);
  CHECK_OK(vmm_pool_check(f.pool, NULL));
  CHECK_OK(vmm_pool_free_async(f.pool, address, i.stream, NULL));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_CALL(forget(&f, i.stream));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_capture_that_ends_in_the_middle_of_an_alloc_leaves_no_lease) {
  int skip;

  for (skip = 0; skip < 6; skip++) {
    CHECK_CALL(end_capture_in_alloc(VMM__RANK_DEVICE, skip, 256 * KIB));
    CHECK_CALL(end_capture_in_alloc(VMM__RANK_POOL, skip, 256 * KIB));
    CHECK_CALL(end_capture_in_alloc(VMM__RANK_POOL, skip, 8 * MIB)); /* which grows */
  }
  for (skip = 6; skip < 40; skip += 3) CHECK_CALL(end_capture_in_alloc(VMM__RANK_DEVICE, skip, 8 * MIB));
}

/* To forget a stream that is in use is a mistake; it must not cost more than that. */
TEST(a_stream_that_is_forgotten_in_the_middle_of_an_alloc_breaks_nothing) {
  vmm__hook hook;
  intruder i;
  fixture f;
  u64 address, other;
  int skip;

  for (skip = 0; skip < 12; skip++) {
    memset(&i, 0, sizeof i);
    hook.at = at;
    hook.data = &i;
    CHECK_CALL(fixture_open(&f, NULL));
    CHECK_CALL(i.stream = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_CALL(other = take(&f, MIB, NULL)); /* nobody has the pool alone */
    CHECK_CALL(address = take(&f, MIB, i.stream));
    CHECK_OK(vmm_pool_free_async(f.pool, address, i.stream, NULL));
    i.f = &f;
    i.rank = VMM__RANK_POOL;
    i.skip = skip;
    i.act = forget_stream;
    i.apart = true;
    vmm__hook_install(&hook);
    CHECK_OK(vmm_pool_alloc_async(f.pool, 8 * MIB, i.stream, &address, NULL));
    vmm__hook_install(NULL);
    CHECK_EQ(pthread_join(i.thread, NULL), 0);
    CHECK_OK(vmm_pool_poll(f.pool, NULL, NULL, NULL));
    CHECK_OK(vmm_pool_check(f.pool, NULL));
    CHECK_OK(vmm_pool_free(f.pool, address, NULL));
    CHECK_OK(vmm_pool_free(f.pool, other, NULL));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
    CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
    CHECK_CALL(fixture_close(&f));
  }
}

/* ---- what can be had ---- */

/* Every mapping holds a live block, so nothing can be given back instead. */
TEST(at_the_limit_a_stream_waits_for_what_was_freed_behind_an_earlier_seal_too) {
  fixture_options options;
  void *a, *b;
  u64 first, second, small, third, block;
  fixture f;

  fixture_defaults(&options);
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  options.pool.limit = MIB + 192 * KIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(first = take(&f, 256 * KIB, b));
  CHECK_CALL(second = take(&f, 512 * KIB, b));
  CHECK_CALL(small = take(&f, 128 * KIB, a));
  CHECK_CALL(use(&f, first, 256 * KIB, b, 20 * MS));
  CHECK_OK(vmm_pool_free_async(f.pool, first, b, NULL));
  CHECK_CALL(third = take(&f, 320 * KIB, NULL)); /* looks, seals what b freed, and grows */
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, options.pool.limit);
  CHECK_CALL(use(&f, second, 512 * KIB, b, 20 * MS));
  CHECK_OK(vmm_pool_free_async(f.pool, second, b, NULL));
  CHECK_CALL(block = take(&f, 768 * KIB, a));
  CHECK_EQ(block, first);
  CHECK_CALL(use(&f, block, 768 * KIB, a, 0)); /* b is not done: the simulator would tell */
  CHECK_OK(vmm_pool_free_async(f.pool, block, a, NULL));
  CHECK_OK(vmm_pool_free_async(f.pool, small, a, NULL));
  CHECK_OK(vmm_pool_free(f.pool, third, NULL));
  CHECK_CALL(forget(&f, a));
  CHECK_CALL(forget(&f, b));
  CHECK_CALL(fixture_close(&f));
}

TEST(what_several_streams_used_comes_back_where_streams_are_asked_for_captures) {
  fixture_options options;
  void *streams[2];
  u64 kept[40];
  fixture f;
  int i;

  fixture_defaults(&options);
  options.device.detect_captures = 1;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(streams[0] = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(streams[1] = fixture_new_stream(&f, NON_BLOCKING));
  for (i = 0; i < 160; i++) {
    u64 address;

    CHECK_CALL(address = take(&f, 64 * KIB, streams[i % 2]));
    CHECK_CALL(use(&f, address, 64 * KIB, streams[0], MS));
    CHECK_CALL(use(&f, address, 64 * KIB, streams[1], MS));
    vmm_driver_wait(f.driver, 3 * MS);
    if (i % 4 == 0) kept[i / 4] = address; /* pins a mapping */
    else CHECK_OK(vmm_pool_free_multi(f.pool, address, streams, 2, NULL));
  }
  CHECK(fixture_stats(f.pool).committed_bytes <= 5 * MIB); /* of 10 that went by */
  for (i = 0; i < 40; i++) CHECK_OK(vmm_pool_free(f.pool, kept[i], NULL));
  CHECK_CALL(forget(&f, streams[0]));
  CHECK_CALL(forget(&f, streams[1]));
  CHECK_CALL(fixture_close(&f));
}

/* ---- a driver call that blocks ---- */

typedef struct blocked {
  fixture *f;
  atomic_int inside, go_on;
} blocked;

static void hold(void *data, int op, u64 opportunity) {
  blocked *b = data;
  int i;

  (void)op;
  if (opportunity != 1) return;
  atomic_store(&b->inside, 1);
  for (i = 0; i < 10000 && atomic_load(&b->go_on) == 0; i++) (void)usleep(1000);
}

static void *miss(void *data) {
  blocked *b = data;
  u64 address = take(b->f, 4 * MIB, NULL);

  CHECK_OK_RETURN(vmm_pool_free_async(b->f->pool, address, NULL, NULL), NULL);
  return NULL;
}

TEST(nothing_waits_for_a_blocked_question_to_the_driver_beyond_its_deadline) {
  fixture_options options;
  void *a, *b;
  u64 block, other;
  pthread_t thread;
  blocked state;
  fixture f;

  memset(&state, 0, sizeof state);
  fixture_defaults(&options);
  options.device.deadline_ns = 50 * MS;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(b = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(block = take(&f, 4 * MIB, a));
  CHECK_CALL(other = take(&f, 256 * KIB, b));
  CHECK_OK(vmm_pool_free_async(f.pool, block, a, NULL));
  state.f = &f;
  CHECK_CALL(fixture_hook(&f, VMM_OP_event_record, hold, &state));
  CHECK_EQ(pthread_create(&thread, NULL, miss, &state), 0);
  while (atomic_load(&state.inside) == 0) (void)usleep(100);
  CHECK_STATUS(vmm_device_forget_stream(f.device, b, &f.error), VMM_ERROR_TIMEOUT);
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 2); /* it is still known */
  CHECK_OK(vmm_pool_free_async(f.pool, other, b, NULL));    /* and what fits goes on */
  CHECK_CALL(other = take(&f, 256 * KIB, b));
  CHECK(other != 0);
  CHECK_CALL(block = take(&f, 16 * MIB, b)); /* so does growth */
  CHECK(block != 0);
  atomic_store(&state.go_on, 1);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_free_async(f.pool, other, b, NULL));
  CHECK_OK(vmm_pool_free_async(f.pool, block, b, NULL));
  CHECK_CALL(forget(&f, a));
  CHECK_CALL(forget(&f, b));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
