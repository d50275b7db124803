/* Captures while another thread grows and trims: none is invalidated, and each graph replays right. */
#include <pthread.h>

#include "support/fixture.h"

enum { CAPTURES = 1000, MODES = 3, SIZE = 64 << 10 };

typedef struct load {
  fixture f;
  atomic_bool stop;
  atomic_int grown, trimmed;
  vmm_status unexpected;
} load;

static bool is_expected(vmm_status status) {
  return status == VMM_OK || status == VMM_ERROR_CAPTURE || status == VMM_ERROR_PARTIAL ||
         status == VMM_ERROR_TIMEOUT || status == VMM_ERROR_LIMIT;
}

static void *grow_and_trim(void *data) {
  load *l = data;

  while (!atomic_load(&l->stop)) {
    u64 address = 0, done = 0, pending = 0;
    vmm_status status = vmm_pool_alloc(l->f.pool, 4 * MIB, &address, NULL);

    if (status == VMM_OK) {
      atomic_fetch_add(&l->grown, 1);
      status = vmm_pool_free(l->f.pool, address, NULL);
    }
    if (!is_expected(status)) l->unexpected = status;
    status = vmm_pool_trim_async(l->f.pool, 0, &done, &pending, NULL);
    if (status == VMM_OK && done != 0) atomic_fetch_add(&l->trimmed, 1);
    if (!is_expected(status)) l->unexpected = status;
  }
  return NULL;
}

/* One capture that allocates, fills and frees; its graph is launched at once, after whatever the other thread has done. */
static void capture_once(load *l, void *stream, int mode, u64 seed) {
  void *graph = NULL, *executable = NULL;
  vmm_driver *sim = l->f.sim;
  vmm_lease *lease = NULL;
  u64 address = 0;

  CHECK_OK_ERROR(vmm_device_capture_begin(l->f.device, stream, &l->f.error), &l->f.error);
  OK(vmm_raw_stream_begin_capture(sim, stream, mode));
  CHECK_OK_ERROR(vmm_pool_alloc_async(l->f.pool, SIZE, stream, &address, &l->f.error), &l->f.error);
  OK(vmm_raw_kernel_fill(sim, stream, address, SIZE, seed));
  CHECK_OK(vmm_pool_free_async(l->f.pool, address, stream, NULL));
  OK(vmm_raw_stream_end_capture(sim, stream, &graph));
  CHECK_OK(vmm_device_capture_end(l->f.device, stream, VMM_CAPTURE_COMMITTED, &lease, NULL));
  OK(vmm_raw_graph_instantiate(sim, &executable, graph, 0));
  OK(vmm_raw_graph_launch(sim, executable, stream));
  vmm_driver_wait(sim, MS);
  if (seed % 16 == 0) CHECK_CALL(fixture_expect(&l->f, address, SIZE, seed));
  OK(vmm_raw_graph_exec_destroy(sim, executable));
  OK(vmm_raw_graph_destroy(sim, graph));
  CHECK_OK(vmm_lease_release(lease, NULL));
}

static void run(unsigned kind) {
  pthread_t thread;
  void *stream = NULL;
  load l;
  int i;

  memset(&l, 0, sizeof l);
  CHECK_CALL(fixture_open(&l.f, NULL));
  OK(vmm_raw_stream_create(l.f.sim, &stream, kind));
  CHECK_EQ(pthread_create(&thread, NULL, grow_and_trim, &l), 0);
  for (i = 0; i < CAPTURES * MODES && check_failures == 0; i++) capture_once(&l, stream, i % MODES, (u64)i);
  atomic_store(&l.stop, true);
  (void)pthread_join(thread, NULL);
  CHECK_EQ(l.unexpected, VMM_OK);
  CHECK_EQ(fixture_ledger(&l.f, 0).captures_invalidated, 0);
  CHECK(atomic_load(&l.grown) != 0);
  CHECK(atomic_load(&l.trimmed) != 0);
  CHECK_CALL(fixture_end_stream(&l.f, stream));
  CHECK_CALL(fixture_close(&l.f));
}

TEST(captures_of_a_blocking_stream_stay_valid_while_the_pool_grows_and_shrinks) { run(0); }
TEST(captures_of_a_non_blocking_stream_stay_valid_while_the_pool_grows_and_shrinks) { run(1); }

/* No host synchronise anywhere: trims find work that still runs, and must neither wait for it nor pull its memory away. */
TEST(allocs_kernels_frees_and_trims_need_no_synchronise) {
  void *streams[2] = {NULL, NULL};
  u64 verdict, start, longest = 0;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  for (i = 0; i < 2; i++) OK(vmm_raw_stream_create(f.sim, &streams[i], 1));
  CHECK_CALL(verdict = fixture_alloc(&f, 256));
  OK(vmm_raw_memset_d8_async(f.sim, verdict, 0, 256, NULL));
  for (i = 0; i < 200; i++) {
    void *stream = streams[i % 2];
    u64 address = 0, size = (u64)(1 + i % 7) * 512 * KIB, done, pending;

    CHECK_OK_ERROR(vmm_pool_alloc_async(f.pool, size, stream, &address, &f.error), &f.error);
    OK(vmm_raw_kernel_spin(f.sim, stream, MS));
    OK(vmm_raw_kernel_fill(f.sim, stream, address, size, (u64)i));
    OK(vmm_raw_kernel_verify(f.sim, stream, address, size, (u64)i, verdict));
    CHECK_OK(vmm_pool_free_async(f.pool, address, stream, NULL));
    start = vmm_driver_now(f.driver);
    CHECK_OK_ERROR(vmm_pool_trim_async(f.pool, 0, &done, &pending, &f.error), &f.error);
    if (vmm_driver_now(f.driver) - start > longest) longest = vmm_driver_now(f.driver) - start;
  }
  CHECK(longest < MS); /* none waited for a kernel */
  vmm_driver_wait(f.driver, 1000 * MS);
  CHECK_CALL(fixture_expect_bytes(&f, verdict, 8, 0));
  CHECK(fixture_stats(f.pool).trim_bytes + fixture_stats(f.pool).revived_bytes != 0);
  CHECK_CALL(fixture_free(&f, verdict));
  for (i = 0; i < 2; i++) CHECK_CALL(fixture_end_stream(&f, streams[i]));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
