/* Streams the device is told of, and announced captures. */
#include <pthread.h>

#include "support/fixture.h"

TEST(streams_are_registered_once_and_forgotten_once) {
  void *a, *legacy = (void *)(size_t)1, *thread_stream = (void *)(size_t)2;
  u64 events;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  events = fixture_ledger(&f, 0).events;
  CHECK_OK(vmm_device_register_stream(f.device, a, NULL));
  CHECK_OK(vmm_device_register_stream(f.device, a, NULL));
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 1);
  CHECK_OK(vmm_device_register_stream(f.device, legacy, NULL));
  CHECK_OK(vmm_device_register_stream(f.device, NULL, NULL)); /* the same one */
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 2);
  CHECK_STATUS(vmm_device_register_stream(f.device, thread_stream, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "per-thread") != NULL);
  CHECK_STATUS(vmm_device_register_stream(NULL, a, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_device_forget_stream(f.device, NULL, NULL));
  CHECK_STATUS(vmm_device_forget_stream(f.device, legacy, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_device_forget_stream(f.device, a, NULL));
  CHECK_STATUS(vmm_device_forget_stream(f.device, a, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "not registered") != NULL);
  CHECK_STATUS(vmm_device_forget_stream(NULL, a, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 0);
  CHECK(fixture_ledger(&f, 0).events <= events + 2); /* last fences, until they are seen done */
  OK(vmm_raw_stream_destroy(f.sim, a));
  CHECK_CALL(fixture_close(&f));
}

/* Work of a forgotten stream is still waited for, and its handle is never touched again. */
TEST(a_forgotten_streams_last_work_is_waited_for) {
  fixture_options options;
  u64 address, start, events;
  void *a;
  fixture f;

  fixture_defaults(&options);
  options.device.sync_policy = VMM_SYNC_STREAMS;
  CHECK_CALL(fixture_open(&f, &options));
  events = fixture_ledger(&f, 0).events;
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_OK(vmm_device_register_stream(f.device, a, NULL));
  OK(vmm_raw_kernel_spin(f.sim, a, 25 * MS));
  CHECK_OK(vmm_device_forget_stream(f.device, a, NULL));
  OK(vmm_raw_stream_destroy(f.sim, a)); /* the driver lets its work run on */
  start = vmm_driver_now(f.driver);
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK(vmm_driver_now(f.driver) - start >= 20 * MS);
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_grow(f.pool, MIB, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).events, events); /* its fence is gone too */
  CHECK_CALL(fixture_close(&f));
}

TEST(forgetting_never_fails_for_a_failed_record) {
  u64 events;
  void *a;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  events = fixture_ledger(&f, 0).events;
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_OK(vmm_device_register_stream(f.device, a, NULL));
  CHECK_CALL(fixture_rule(&f, "cuEventRecord:UNKNOWNx*"));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_OK(vmm_device_forget_stream(f.device, a, NULL));
  CHECK_EQ(fixture_calls(&f, VMM_OP_ctx_record_event), 1); /* stands in */
  CHECK_OK(vmm_device_register_stream(f.device, a, NULL));
  CHECK_CALL(fixture_rule(&f, "cuCtxRecordEvent:UNKNOWNx*"));
  CHECK_OK(vmm_device_forget_stream(f.device, a, NULL));
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 0);
  CHECK_CALL(fixture_clear(&f));
  OK(vmm_raw_stream_destroy(f.sim, a));
  CHECK(fixture_ledger(&f, 0).events <= events + 1);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_stream_that_cannot_be_registered_is_not_known) {
  void *a;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(fixture_rule(&f, "cuEventCreate:UNKNOWN"));
  CHECK_STATUS(vmm_device_register_stream(f.device, a, &f.error), VMM_ERROR_DRIVER);
  CHECK_STR(f.error.call, "cuEventCreate");
  f.memory.fail_in = 1;
  CHECK_STATUS(vmm_device_register_stream(f.device, a, NULL), VMM_ERROR_OUT_OF_HOST_MEMORY);
  f.memory.fail_in = 1;
  CHECK_STATUS(vmm_device_capture_begin(f.device, a, NULL), VMM_ERROR_OUT_OF_HOST_MEMORY);
  f.memory.fail_in = 0;
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 0);
  CHECK_EQ(fixture_device_stats(f.device).capture_count, 0);
  CHECK_STATUS(vmm_device_forget_stream(f.device, a, NULL), VMM_ERROR_INVALID_ARGUMENT);
  OK(vmm_raw_stream_destroy(f.sim, a));
  CHECK_CALL(fixture_close(&f));
}

TEST(captures_are_announced_and_ended_once) {
  void *a, *b;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(b = fixture_new_stream(&f, BLOCKING));
  CHECK_OK(vmm_device_register_stream(f.device, a, NULL));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_STATUS(vmm_device_capture_begin(f.device, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_capture_begin(f.device, (void *)(size_t)1, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "legacy") != NULL);
  CHECK_STATUS(vmm_device_capture_begin(NULL, a, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_device_capture_begin(f.device, a, NULL));
  CHECK_OK(vmm_device_capture_begin(f.device, b, NULL));
  CHECK_EQ(fixture_device_stats(f.device).capture_count, 2);
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 1); /* announcing is not registering */
  CHECK_STATUS(vmm_device_capture_begin(f.device, a, NULL), VMM_ERROR_BUSY);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_STATUS(vmm_device_forget_stream(f.device, a, NULL), VMM_ERROR_CAPTURE);
  CHECK_STATUS(vmm_device_forget_stream(f.device, b, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_capture_end(f.device, a, 2, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_capture_end(f.device, a, -1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_capture_end(NULL, a, 0, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_capture_end(f.device, (void *)(size_t)64, 0, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_device_register_stream(f.device, b, NULL)); /* while it is being captured: allowed */
  CHECK_EQ(fixture_device_stats(f.device).stream_count, 2);
  CHECK_OK(vmm_device_capture_end(f.device, a, VMM_CAPTURE_COMMITTED, NULL, NULL));
  CHECK_OK(vmm_device_capture_end(f.device, b, VMM_CAPTURE_ABORTED, NULL, NULL));
  CHECK_STATUS(vmm_device_capture_end(f.device, a, VMM_CAPTURE_COMMITTED, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(fixture_device_stats(f.device).capture_count, 0);
  CHECK_CALL(fixture_end_stream(&f, a));
  CHECK_CALL(fixture_end_stream(&f, b));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_stream_destroyed_after_its_announced_capture_is_never_touched_again) {
  fixture_options options;
  u64 address;
  int i;
  fixture f;

  fixture_defaults(&options);
  options.device.sync_policy = VMM_SYNC_STREAMS;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 5; i++) {
    void *a;

    CHECK_CALL(a = fixture_new_stream(&f, NON_BLOCKING));
    CHECK_OK(vmm_device_capture_begin(f.device, a, NULL));
    CHECK_OK(vmm_device_capture_end(f.device, a, VMM_CAPTURE_ABORTED, NULL, NULL));
    OK(vmm_raw_stream_destroy(f.sim, a)); /* the next one gets the same handle value */
    CHECK_CALL(address = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  }
  CHECK_CALL(fixture_close(&f));
}

/* ---- announced captures against growth and trim ---- */

typedef struct grower {
  fixture *f;
  atomic_int stop;
  int rounds;
  vmm_status status;
} grower;

static void *grow_and_trim(void *data) {
  grower *g = data;

  /* keeps going until told, and at least a few times */
  for (g->rounds = 0; (!atomic_load(&g->stop) || g->rounds < 20) && g->status == VMM_OK; g->rounds++) {
    u64 address = 0;

    g->status = vmm_pool_alloc(g->f->pool, 3 * MIB, &address, &g->f->error);
    if (g->status == VMM_OK) g->status = vmm_pool_free_idle(g->f->pool, address, NULL);
    if (g->status == VMM_OK) g->status = vmm_pool_trim(g->f->pool, 0, 0, NULL, &g->f->error);
    if (g->status == VMM_OK) g->status = vmm_device_trim(g->f->device, 0, NULL, &g->f->error);
  }
  return NULL;
}

/* One announced capture: begun in `mode`, some work captured, ended, replayed. */
static void capture_once(fixture *f, void *stream, int mode, u64 address, bool abort) {
  void *graph = NULL, *executable = NULL;

  CHECK_CALL(fixture_begin_capture(f, stream, mode));
  OK(vmm_raw_kernel_fill(f->sim, stream, address, 4096, 5));
  OK(vmm_raw_stream_end_capture(f->sim, stream, &graph));
  CHECK(graph != NULL);
  CHECK_OK(vmm_device_capture_end(f->device, stream, abort ? VMM_CAPTURE_ABORTED : VMM_CAPTURE_COMMITTED, NULL, NULL));
  if (!abort) {
    OK(vmm_raw_graph_instantiate(f->sim, &executable, graph, 0));
    OK(vmm_raw_graph_launch(f->sim, executable, stream));
    OK(vmm_raw_graph_exec_destroy(f->sim, executable));
  }
  OK(vmm_raw_graph_destroy(f->sim, graph));
}

static void captures_against_growth(int policy, int mode, unsigned stream_flags, int not_ready) {
  fixture_options options;
  pthread_t thread;
  grower g;
  void *stream, *worker;
  u64 address;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.device.sync_policy = policy;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(stream = fixture_new_stream(&f, stream_flags));
  CHECK_CALL(worker = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_OK(vmm_device_register_stream(f.device, stream, NULL));
  CHECK_OK(vmm_device_register_stream(f.device, worker, NULL));
  CHECK_CALL(address = fixture_alloc(&f, 4096));
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, not_ready, not_ready == VMM_SIM_NOT_READY_RANDOM ? 0x20000000u : 0));
  memset(&g, 0, sizeof g);
  g.f = &f;
  CHECK_EQ(pthread_create(&thread, NULL, grow_and_trim, &g), 0);
  for (i = 0; i < 40 && atomic_load(&check_failures) == 0; i++) {
    if (vmm_raw_kernel_spin(f.sim, worker, 100000) != VMM_CODE_SUCCESS) check_fail(__FILE__, __LINE__, "spin");
    capture_once(&f, stream, mode, address, i % 4 == 3);
  }
  atomic_store(&g.stop, 1);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  if (not_ready == 0) CHECK_STATUS_ERROR(g.status, VMM_OK, &f.error);
  CHECK_EQ(fixture_ledger(&f, 0).captures_invalidated, 0);
  CHECK_OK(vmm_sim_set_not_ready(f.sim, 0, VMM_SIM_NOT_READY_NEVER, 0));
  CHECK_OK(vmm_sim_drain(f.sim));
  CHECK_CALL(fixture_expect(&f, address, 4096, 5));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_end_stream(&f, stream));
  CHECK_CALL(fixture_end_stream(&f, worker));
  CHECK_CALL(fixture_close(&f));
}

TEST(no_announced_capture_is_invalidated_by_growth_and_trim) {
  static const int policies[] = {VMM_SYNC_DEVICE, VMM_SYNC_STREAMS, VMM_SYNC_ON_DEMAND};
  int p, mode;
  unsigned flags;

  for (p = 0; p < 3; p++)
    for (mode = 0; mode < 3; mode++)
      for (flags = 0; flags < 2; flags++) {
        CHECK_CALL(captures_against_growth(policies[p], mode, flags, VMM_SIM_NOT_READY_NEVER));
      }
}

/* The waits that a NOT_READY asks for keep away from captures as well. */
TEST(no_announced_capture_is_invalidated_by_retries) {
  int mode;
  unsigned flags;

  for (mode = 0; mode < 3; mode++)
    for (flags = 0; flags < 2; flags++) {
      CHECK_CALL(captures_against_growth(VMM_SYNC_ON_DEMAND, mode, flags, VMM_SIM_NOT_READY_RANDOM));
    }
}

/* In the thread that captures itself: growth and trim are legal there too. */
TEST(growth_and_trim_in_the_capturing_thread) {
  int mode;
  unsigned flags;

  for (mode = 0; mode < 3; mode++)
    for (flags = 0; flags < 2; flags++) {
      fixture_options options;
      void *stream, *graph = NULL;
      u64 address, other;
      fixture f;

      fixture_defaults(&options);
      options.device.sync_policy = VMM_SYNC_DEVICE;
      CHECK_CALL(fixture_open(&f, &options));
      CHECK_CALL(stream = fixture_new_stream(&f, flags));
      CHECK_CALL(address = fixture_alloc(&f, 4096));
      CHECK_CALL(fixture_begin_capture(&f, stream, mode));
      OK(vmm_raw_kernel_fill(f.sim, stream, address, 4096, 5));
      CHECK_CALL(other = fixture_alloc(&f, 5 * MIB));
      CHECK_OK(vmm_pool_free_idle(f.pool, other, NULL));
      CHECK_OK_ERROR(vmm_pool_trim(f.pool, 0, 0, NULL, &f.error), &f.error);
      CHECK_OK(vmm_pool_check(f.pool, NULL));
      CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, &f.error),
                   VMM_ERROR_CAPTURE); /* needs a context-wide wait */
      CHECK_EQ(fixture_stats(f.pool).block_count, 1);
      OK(vmm_raw_stream_end_capture(f.sim, stream, &graph));
      CHECK_OK(vmm_device_capture_end(f.device, stream, VMM_CAPTURE_COMMITTED, NULL, NULL));
      OK(vmm_raw_graph_destroy(f.sim, graph));
      CHECK_CALL(fixture_free(&f, address));
      OK(vmm_raw_stream_destroy(f.sim, stream));
      CHECK_CALL(fixture_close(&f));
    }
}

RUN_TESTS()
