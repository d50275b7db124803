/* The calling thread's state: whatever context is current and whatever its capture mode, every function uses the owning
 * device and leaves both as they were, whether it succeeds or fails. */
#include <pthread.h>

#include "support/fixture.h"

enum { LEFT = 8 };

typedef struct world {
  fixture f;
  void *stream;
  u64 address;
  vmm_pool *left[LEFT]; /* pools that a fault let stand */
} world;

static void destroy_or_keep(world *w, vmm_pool *pool) {
  int i = 0;

  if (vmm_pool_destroy(pool, VMM_DESTROY_FORCED, NULL) == VMM_OK) return;
  while (i < LEFT && w->left[i] != NULL) i++;
  CHECK(i < LEFT);
  w->left[i] = pool;
}

static void open_world(world *w) {
  fixture_options options;

  fixture_defaults(&options);
  options.sim.device_count = 2;
  options.pool.verify = VMM_VERIFY_DATA;
  options.pool.scrub = 1;
  options.device.sync_policy = VMM_SYNC_DEVICE;
  memset(w, 0, sizeof *w);
  CHECK_CALL(fixture_open(&w->f, &options));
  OK(vmm_raw_stream_create(w->f.sim, &w->stream, 1));
}

static void close_world(world *w) {
  OK(vmm_raw_stream_destroy(w->f.sim, w->stream));
  CHECK_CALL(fixture_close(&w->f));
}

/* All public calls that may call the driver, one after the other; the numbers say which. */
enum { CALLS = 16 };

static void call(world *w, int which) {
  fixture *f = &w->f;
  vmm_pool_options pool = fixture_pool_options();
  vmm_device_options device;
  vmm_device *opened = NULL;
  vmm_pool *made = NULL;
  u64 address;

  switch (which) {
    case 0:
      (void)vmm_pool_alloc(f->pool, 3 * MIB, &w->address, NULL);
      break;
    case 1:
      (void)vmm_pool_grow(f->pool, MIB, NULL, NULL);
      break;
    case 2:
      (void)vmm_pool_free(f->pool, w->address, NULL);
      break;
    case 3:
      (void)vmm_pool_trim(f->pool, 0, 0, NULL, NULL);
      break;
    case 4:
      (void)vmm_pool_add_peer(f->pool, 1, NULL);
      break;
    case 5:
      (void)vmm_device_register_stream(f->device, w->stream, NULL);
      break;
    case 6:
      (void)vmm_device_capture_begin(f->device, w->stream, NULL);
      break;
    case 7:
      (void)vmm_pool_alloc(f->pool, 100, &address, NULL);
      (void)vmm_pool_free(f->pool, address, NULL);
      break;
    case 8:
      (void)vmm_device_capture_end(f->device, w->stream, VMM_CAPTURE_ABORTED, NULL, NULL);
      break;
    case 9:
      (void)vmm_device_forget_stream(f->device, w->stream, NULL);
      break;
    case 10:
      pool.initial = MIB;
      if (vmm_pool_create(&made, f->device, &pool, NULL) == VMM_OK) destroy_or_keep(w, made);
      break;
    case 11:
      if (vmm_pool_create(&made, f->device, &pool, NULL) != VMM_OK) break;
      (void)vmm_pool_alloc(made, MIB, &address, NULL);
      destroy_or_keep(w, made);
      break;
    case 12:
      (void)vmm_device_trim(f->device, 0, NULL, NULL);
      break;
    case 13:
      (void)vmm_pool_check(f->pool, NULL);
      break;
    case 14:
      if (vmm_device_options_init(&device, sizeof device) != VMM_OK) break;
      device.driver = f->driver;
      if (vmm_device_open(&opened, 1, &device, NULL) == VMM_OK) (void)vmm_device_close(opened, NULL);
      break;
    default:
      (void)vmm_pool_alloc(f->pool, 1000 * GIB, &address, NULL);
      break;
  }
}

static void check_thread_state(world *w, void *context, int mode) {
  void *current = &current;
  int found = 2;

  OK(vmm_raw_ctx_get_current(w->f.sim, &current));
  CHECK(current == context);
  OK(vmm_raw_capture_mode(w->f.sim, &found));
  CHECK_EQ(found, mode);
  OK(vmm_raw_capture_mode(w->f.sim, &found));
}

/* Each call in turn, with the context and mode given. */
static void run_all(world *w, void *context, int mode) {
  int which;

  for (which = 0; which < CALLS; which++) {
    int exchange = mode;

    OK(vmm_raw_ctx_set_current(w->f.sim, context));
    OK(vmm_raw_capture_mode(w->f.sim, &exchange));
    call(w, which);
    CHECK_CALL(check_thread_state(w, context, mode));
  }
}

TEST(any_context_and_capture_mode_is_restored) {
  void *other = NULL, *contexts[3];
  world w;
  int c, mode;

  CHECK_CALL(open_world(&w));
  OK(vmm_raw_primary_retain(w.f.sim, &other, 1));
  contexts[0] = NULL;
  contexts[1] = other;
  contexts[2] = w.f.context;
  for (c = 0; c < 3; c++)
    for (mode = 0; mode < 3; mode++) CHECK_CALL(run_all(&w, contexts[c], mode));
  mode = 0;
  OK(vmm_raw_capture_mode(w.f.sim, &mode));
  OK(vmm_raw_ctx_set_current(w.f.sim, w.f.context));
  CHECK_EQ(fixture_ledger(&w.f, 1).mapped_bytes, 0); /* all of it went to the owning device */
  CHECK_EQ(fixture_ledger(&w.f, 1).handles, 0);
  OK(vmm_raw_primary_release(w.f.sim, 1));
  CHECK_CALL(fixture_compare(&w.f));
  CHECK_CALL(close_world(&w));
}

TEST(a_call_that_fails_restores_them_too) {
  static const char *faults[] = {"cuMemCreate:UNKNOWNx*",
                                 "cuMemMap:UNKNOWNx*",
                                 "cuMemSetAccess:UNKNOWNx*",
                                 "cuMemUnmap:UNKNOWNx*",
                                 "cuMemRelease:UNKNOWNx*",
                                 "cuCtxRecordEvent:UNKNOWNx*",
                                 "cuEventQuery:UNKNOWNx*",
                                 "cuCtxSetCurrent:UNKNOWN",
                                 "cuCtxSetCurrent:UNKNOWN@2",
                                 "cuCtxSetCurrent:UNKNOWN@2:after",
                                 "cuThreadExchangeStreamCaptureMode:UNKNOWN",
                                 "cuThreadExchangeStreamCaptureMode:UNKNOWN:after",
                                 "cuThreadExchangeStreamCaptureMode:UNKNOWN@2",
                                 "cuThreadExchangeStreamCaptureMode:UNKNOWN@2:after",
                                 "cuCtxGetCurrent:UNKNOWN",
                                 "cuEventCreate:UNKNOWNx*",
                                 "cuMemsetD8Async:UNKNOWNx*",
                                 "cuMemAddressReserve:UNKNOWNx*",
                                 "cuMemGetInfo:UNKNOWNx*"};
  size_t i, k;

  for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    void *other = NULL;
    world w;

    CHECK_CALL(open_world(&w));
    OK(vmm_raw_primary_retain(w.f.sim, &other, 1));
    CHECK_CALL(fixture_rule(&w.f, faults[i]));
    CHECK_CALL(run_all(&w, other, 1));
    CHECK_CALL(fixture_clear(&w.f));
    {
      int mode = 0;
      OK(vmm_raw_capture_mode(w.f.sim, &mode));
    }
    OK(vmm_raw_ctx_set_current(w.f.sim, w.f.context));
    (void)vmm_device_capture_end(w.f.device, w.stream, VMM_CAPTURE_ABORTED, NULL, NULL);
    (void)vmm_device_forget_stream(w.f.device, w.stream, NULL);
    (void)vmm_pool_free(w.f.pool, w.address, NULL);
    CHECK_OK(vmm_sim_drain(w.f.sim));
    CHECK_CALL(fixture_check(&w.f));
    for (k = 0; k < LEFT; k++)
      if (w.left[k] != NULL) CHECK_OK(vmm_pool_destroy(w.left[k], VMM_DESTROY_FORCED, NULL));
    CHECK_OK_ERROR(vmm_pool_destroy(w.f.pool, VMM_DESTROY_FORCED, &w.f.error), &w.f.error);
    OK(vmm_raw_primary_release(w.f.sim, 1));
    OK(vmm_raw_stream_destroy(w.f.sim, w.stream));
    CHECK_OK_ERROR(vmm_device_close(w.f.device, &w.f.error), &w.f.error);
    OK(vmm_raw_ctx_set_current(w.f.sim, NULL));
    OK(vmm_raw_primary_release(w.f.sim, 0));
    check_on_failure(NULL, NULL);
    vmm_driver_release(w.f.driver);
    vmm_driver_release(w.f.fault);
    vmm_driver_release(w.f.sim);
  }
}

/* A thread that never saw the driver. */
static void *from_nowhere(void *data) {
  world *w = data;
  int which;

  for (which = 0; which < CALLS; which++) {
    void *current = data;

    call(w, which);
    CHECK_EQ_RETURN(vmm_raw_ctx_get_current(w->f.sim, &current), VMM_CODE_SUCCESS, NULL);
    CHECK_RETURN(current == NULL, NULL);
  }
  return NULL;
}

TEST(a_thread_without_a_context_may_call_everything) {
  pthread_t thread;
  world w;

  CHECK_CALL(open_world(&w));
  CHECK_EQ(pthread_create(&thread, NULL, from_nowhere, &w), 0);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_EQ(fixture_stats(w.f.pool).alloc_failures, 2); /* a scrub on the legacy stream in a capture; what never fits */
  CHECK_CALL(fixture_compare(&w.f));
  CHECK_CALL(close_world(&w));
}

RUN_TESTS()
