/* Threads: everything at once with random faults; one that fails or blocks does not hold up the others. */
#include <pthread.h>
#include <time.h>

#include "support/fixture.h"

static void nap(long us) {
  struct timespec rest = {0, us * 1000};

  (void)nanosleep(&rest, NULL);
}

static u64 real_ms(void) {
  struct timespec now;

  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (u64)now.tv_sec * 1000 + (u64)now.tv_nsec / 1000000;
}

/* ---- all at once ---- */

enum { MOST_THREADS = 16, KEPT = 24, LEAST_STEPS = 30 /* of a thread, however slow the machine is */ };

typedef struct worker {
  fixture *f;
  u64 seed, until, steps, failures;
  bool wrong;
} worker;

/* Statuses that faults, limits and contention may bring; anything else is wrong. */
static bool allowed(vmm_status status) {
  return status == VMM_OK || status == VMM_ERROR_OUT_OF_DEVICE_MEMORY || status == VMM_ERROR_NOT_READY ||
         status == VMM_ERROR_DRIVER || status == VMM_ERROR_TIMEOUT || status == VMM_ERROR_PARTIAL ||
         status == VMM_ERROR_LIMIT || status == VMM_ERROR_OUT_OF_ADDRESS_SPACE || status == VMM_ERROR_MAPPING_LIMIT ||
         status == VMM_ERROR_NOT_CONFIRMED;
}

static void step(worker *w, u64 *blocks, u64 *sizes, u64 r) {
  fixture *f = w->f;
  size_t k = (size_t)((r >> 8) % KEPT);
  vmm_status status = VMM_OK;
  vmm_block_info info;

  if (blocks[k] == 0) {
    sizes[k] = (r >> 16) % (r % 9 == 0 ? 2 * MIB : 64 * KIB);
    status = vmm_pool_alloc(f->pool, sizes[k], &blocks[k], NULL);
    if (status != VMM_OK) w->failures++;
  } else {
    if (vmm_pool_find(f->pool, blocks[k] + sizes[k] / 2, &info, NULL) != VMM_OK || info.address != blocks[k] ||
        info.requested != sizes[k])
      w->wrong = true; /* somebody else's hands on it */
    if ((r % 2 ? vmm_pool_free(f->pool, blocks[k], NULL) : vmm_pool_free_idle(f->pool, blocks[k], NULL)) != VMM_OK)
      w->wrong = true;
    blocks[k] = 0;
  }
  if (r % 61 == 0) status = vmm_pool_grow(f->pool, (r >> 16) % MIB + 1, NULL, NULL);
  if (r % 71 == 0) (void)vmm_raw_kernel_spin(f->sim, NULL, (r >> 16) % (4 * MS)); /* something to wait for */
  if (r % 67 == 0) status = vmm_pool_trim(f->pool, (r >> 16) % (16 * MIB), r % 2 ? 0 : MS, NULL, NULL);
  if (r % 131 == 0) status = vmm_device_trim(f->device, 0, NULL, NULL);
  if (r % 257 == 0) status = vmm_pool_check(f->pool, NULL);
  if (r % 61 == 1) {
    vmm_pool_stats stats;
    stats.struct_size = sizeof stats;
    if (vmm_pool_get_stats(f->pool, &stats, NULL) != VMM_OK || stats.block_bytes > stats.committed_bytes)
      w->wrong = true;
  }
  if (!allowed(status)) w->wrong = true;
}

static void *work(void *data) {
  worker *w = data;
  u64 blocks[KEPT] = {0}, sizes[KEPT] = {0}, random = w->seed;
  size_t k;

  if (vmm_raw_ctx_set_current(w->f->sim, w->f->context) != VMM_CODE_SUCCESS) w->wrong = true;
  while ((w->steps < LEAST_STEPS || real_ms() < w->until) && !w->wrong) {
    step(w, blocks, sizes, fixture_random(&random));
    w->steps++;
  }
  for (k = 0; k < KEPT; k++)
    if (blocks[k] != 0 && vmm_pool_free(w->f->pool, blocks[k], NULL) != VMM_OK) w->wrong = true;
  return NULL;
}

static void many_threads(int count, u64 ms, const char *faults, const fixture_options *options) {
  pthread_t threads[MOST_THREADS];
  worker workers[MOST_THREADS];
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, options));
  if (faults != NULL) CHECK_CALL(fixture_rule(&f, faults));
  for (i = 0; i < count; i++) {
    workers[i] = (worker){&f, 1000 + (u64)i, real_ms() + ms, 0, 0, false};
    CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (i = 0; i < count; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  for (i = 0; i < count; i++) {
    CHECK(!workers[i].wrong);
    CHECK(workers[i].steps >= LEAST_STEPS);
  }
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_sim_drain(f.sim));
  CHECK_CALL(fixture_check(&f));
  CHECK_EQ(fixture_stats(f.pool).block_count, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK_ERROR(vmm_pool_trim(f.pool, 0, 0, NULL, &f.error), &f.error);
  CHECK_OK(vmm_device_trim(f.device, 0, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(eight_threads_on_one_pool) {
  fixture_options options;

  fixture_defaults(&options);
  options.device.idle_limit = 4 * MIB;
  CHECK_CALL(many_threads(8, 1000, NULL, &options));
}

TEST(sixteen_threads_with_random_faults) {
  fixture_options options;

  fixture_defaults(&options);
  options.sim.memory = 32 * MIB;
  options.pool.reservation = 128 * MIB;
  options.device.idle_limit = 2 * MIB;
  options.device.deadline_ns = 60000 * MS;
  CHECK_CALL(many_threads(16, 2000,
                          "cuMemSetAccess:NOT_READYx*:p=0.2,cuMemUnmap:UNKNOWNx*:p=0.3,cuMemMap:UNKNOWNx*:p=0.05,"
                          "cuMemCreate:OUT_OF_MEMORYx*:p=0.05,cuMemRelease:UNKNOWNx*:p=0.05",
                          &options));
}

TEST(four_threads_with_verification_and_waits) {
  fixture_options options;

  fixture_defaults(&options);
  options.pool.verify = VMM_VERIFY_DATA;
  options.device.sync_policy = VMM_SYNC_DEVICE;
  CHECK_CALL(many_threads(4, 500, "cuMemSetAccess:NOT_READYx*:p=0.2", &options));
}

/* ---- lookups while pools end ---- */

typedef struct seeker {
  fixture *f;
  atomic_ullong address;
  atomic_int stop;
  atomic_ullong looks;
  atomic_bool wrong;
} seeker;

static void *seek(void *data) {
  seeker *s = data;

  while (!atomic_load(&s->stop)) {
    vmm_pool *owner = NULL;
    vmm_block_info info;
    vmm_status status = vmm_device_find(s->f->device, atomic_load(&s->address), &owner, &info, NULL);

    if (status != VMM_OK && status != VMM_ERROR_UNKNOWN_ADDRESS) atomic_store(&s->wrong, true);
    if ((status == VMM_OK) != (owner != NULL)) atomic_store(&s->wrong, true);
    /* Locks are not handed over in turn: where one thread runs at a time the other would wait for minutes. */
    if (atomic_fetch_add(&s->looks, 1) % 64 == 0) nap(20);
  }
  return NULL;
}

TEST(a_lookup_by_address_never_meets_a_pool_that_is_gone) {
  vmm_pool_options options = fixture_pool_options();
  pthread_t threads[2];
  seeker s;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  memset(&s, 0, sizeof s);
  s.f = &f;
  for (i = 0; i < 2; i++) CHECK_EQ(pthread_create(&threads[i], NULL, seek, &s), 0);
  options.reservation = 16 * MIB;
  for (i = 0; i < 300 || (atomic_load(&s.looks) < 300 && i < 100000); i++) {
    vmm_pool *pool = NULL;
    u64 address = 0;

    CHECK_OK(vmm_pool_create(&pool, f.device, &options, NULL));
    CHECK_OK(vmm_pool_alloc(pool, 1000, &address, NULL));
    atomic_store(&s.address, address);
    CHECK_OK(vmm_pool_destroy(pool, VMM_DESTROY_FORCED, NULL));
  }
  atomic_store(&s.stop, 1);
  for (i = 0; i < 2; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK(!atomic_load(&s.wrong));
  CHECK_CALL(fixture_close(&f));
}

/* ---- one fails ---- */

typedef struct requester {
  fixture *f;
  u64 thread_number; /* of the one whose growth is refused */
  u64 size;
  int turns, failed;
  atomic_int ready, go;
} requester;

static void *request(void *data) {
  requester *q = data;
  int i;

  q->thread_number = vmm_fault_thread();
  atomic_store(&q->ready, 1);
  while (!atomic_load(&q->go)) nap(100);
  for (i = 0; i < q->turns; i++) {
    u64 address = 0;

    if (vmm_pool_alloc(q->f->pool, q->size, &address, NULL) != VMM_OK) q->failed++;
    else if (vmm_pool_free(q->f->pool, address, NULL) != VMM_OK) q->failed += 1000;
  }
  return NULL;
}

TEST(a_growth_that_fails_fails_for_its_own_thread_alone) {
  pthread_t threads[8];
  requester q[8];
  vmm_fault_rule rule;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  memset(q, 0, sizeof q);
  for (i = 0; i < 8; i++) {
    q[i].f = &f;
    q[i].turns = i == 0 ? 20 : 200;
    q[i].size = i == 0 ? 30 * MIB : 1 * MIB; /* the first cannot be served by what the others made */
    CHECK_EQ(pthread_create(&threads[i], NULL, request, &q[i]), 0);
    while (!atomic_load(&q[i].ready)) nap(100);
  }
  CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
  rule.op = VMM_OP_mem_set_access;
  rule.code = VMM_CODE_UNKNOWN;
  rule.times = VMM_FAULT_FOR_EVER;
  rule.thread = q[0].thread_number;
  CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
  for (i = 0; i < 8; i++) atomic_store(&q[i].go, 1);
  for (i = 0; i < 8; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK_EQ(q[0].failed, 20);
  for (i = 1; i < 8; i++) CHECK_EQ(q[i].failed, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

/* ---- one blocks ---- */

typedef struct blocker {
  fixture *f;
  atomic_int inside, let_go;
  vmm_status status;
  u64 address;
} blocker;

static void block(void *data, int op, unsigned long long opportunity) {
  blocker *b = data;

  (void)op;
  (void)opportunity;
  atomic_store(&b->inside, 1);
  while (!atomic_load(&b->let_go)) nap(200);
}

static void *grow_and_block(void *data) {
  blocker *b = data;

  b->status = vmm_pool_alloc(b->f->pool, 50 * MIB, &b->address, NULL);
  return NULL;
}

TEST(a_driver_call_that_blocks_holds_up_nobody_who_does_not_grow) {
  static const int ops[] = {VMM_OP_mem_create, VMM_OP_mem_map, VMM_OP_mem_set_access, VMM_OP_mem_get_access};
  int o;

  for (o = 0; o < 4; o++) {
    u64 blocks[100], address = 1, start;
    fixture_options options;
    vmm_mapping_info mapping;
    vmm_block_info info;
    pthread_t thread;
    vmm_pool *owner;
    vmm_event event;
    size_t count;
    blocker b;
    fixture f;
    int i;

    fixture_defaults(&options);
    options.device.deadline_ns = 50 * MS;
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_OK(vmm_pool_grow(f.pool, 4 * MIB, NULL, NULL));
    for (i = 0; i < 100; i++) CHECK_CALL(blocks[i] = fixture_alloc(&f, 10000));
    memset(&b, 0, sizeof b);
    b.f = &f;
    CHECK_CALL(fixture_hook(&f, ops[o], block, &b));
    CHECK_EQ(pthread_create(&thread, NULL, grow_and_block, &b), 0);
    while (!atomic_load(&b.inside)) nap(100);

    start = real_ms();
    for (i = 0; i < 100; i++) {
      CHECK_OK(vmm_pool_free(f.pool, blocks[i], NULL));
      CHECK_OK(vmm_pool_alloc(f.pool, 9000, &blocks[i], NULL)); /* what fits goes on as well */
      CHECK_EQ(fixture_stats(f.pool).block_count, 100);
    }
    CHECK_OK(vmm_pool_find(f.pool, blocks[3], &info, NULL));
    CHECK_OK(vmm_device_find(f.device, blocks[3], &owner, NULL, NULL));
    CHECK_OK(vmm_pool_get_mappings(f.pool, &mapping, 1, &count, NULL));
    CHECK_OK(vmm_pool_get_blocks(f.pool, &info, 1, &count, NULL));
    CHECK_OK(vmm_device_get_events(f.device, 0, &event, 1, &count, NULL));
    CHECK_EQ(fixture_device_stats(f.device).pool_count, 1);
    CHECK_OK(vmm_device_set_limit(f.device, 0, NULL));
    CHECK_OK(vmm_pool_set_limit(f.pool, 0, NULL));
    CHECK(real_ms() - start < 5000);
    /* Whoever must edit address ranges waits, but not beyond the deadline. */
    CHECK_STATUS(vmm_pool_alloc(f.pool, 60 * MIB, &address, &f.error), VMM_ERROR_TIMEOUT);
    CHECK_EQ(address, 0);
    CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, NULL, NULL), VMM_ERROR_TIMEOUT);
    CHECK_STATUS(vmm_pool_check(f.pool, NULL), VMM_ERROR_TIMEOUT);
    CHECK_STATUS(vmm_device_capture_begin(f.device, (void *)(size_t)64, NULL), VMM_ERROR_TIMEOUT);
    atomic_store(&b.let_go, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_OK(b.status);
    CHECK_CALL(fixture_compare(&f));
    for (i = 0; i < 100; i++) CHECK_OK(vmm_pool_free(f.pool, blocks[i], NULL));
    CHECK_OK(vmm_pool_free(f.pool, b.address, NULL));
    CHECK_CALL(fixture_close(&f));
  }
}

RUN_TESTS()
