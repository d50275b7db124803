/* An announced capture stays valid whatever is done meanwhile: streams that an event draws into it, the legacy stream, a
 * scrub, and a capture announced in the middle of one. */
#include <pthread.h>
#include <unistd.h>

#include "support/fixture.h"

enum { RELAXED = 2 };

/* The capture was not invalidated. */
static void end(fixture *f, void *stream) {
  void *graph = NULL;

  OK(vmm_raw_stream_end_capture(f->sim, stream, &graph));
  OK(vmm_raw_graph_destroy(f->sim, graph));
  CHECK_OK(vmm_device_capture_end(f->device, stream, VMM_CAPTURE_COMMITTED, NULL, NULL));
}

/* `side` takes part in the capture of `main` as of now. */
static void draw_in(fixture *f, void *event, void *main, void *side) {
  OK(vmm_raw_event_record(f->sim, event, main));
  OK(vmm_raw_stream_wait_event(f->sim, side, event, 0));
}

/* Growth, trim, forget while a registered stream, which may be the home stream, is in somebody else's capture. */
static void use_drawn_in(int policy, bool home, const char *fault) {
  fixture_options options;
  u64 first, second = 0, done;
  void *main, *side, *event = NULL;
  fixture f;

  fixture_defaults(&options);
  options.device.sync_policy = policy;
  options.no_pool = true;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(main = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(side = fixture_new_stream(&f, NON_BLOCKING));
  if (home) options.pool.home_stream = side;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
  CHECK_OK(vmm_device_register_stream(f.device, side, NULL));
  CHECK_CALL(first = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_free(&f, first));
  OK(vmm_raw_event_create(f.sim, &event, 2));
  CHECK_CALL(fixture_begin_capture(&f, main, RELAXED));
  CHECK_CALL(draw_in(&f, event, main, side));
  if (fault != NULL) CHECK_CALL(fixture_rule(&f, fault));
  /* What is freed cannot be waited for: the legacy stream and the home stream are both out of reach. */
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), VMM_ERROR_CAPTURE);
  CHECK(strstr(f.error.message, "home stream") != NULL);
  CHECK_EQ(done, 0);
  CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 8 * MIB, &second, &f.error), &f.error);
  CHECK_STATUS(vmm_device_forget_stream(f.device, side, &f.error), VMM_ERROR_CAPTURE);
  CHECK_CALL(draw_in(&f, event, side, main)); /* joins again: a capture must not end with loose ends */
  CHECK_CALL(end(&f, main));
  CHECK_OK(vmm_device_forget_stream(f.device, side, NULL));
  CHECK_CALL(fixture_free(&f, second));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK(done >= 8 * MIB);
  OK(vmm_raw_event_destroy(f.sim, event));
  OK(vmm_raw_stream_destroy(f.sim, main));
  OK(vmm_raw_stream_destroy(f.sim, side));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_stream_drawn_into_an_announced_capture_is_left_alone) {
  int policy;

  for (policy = VMM_SYNC_DEVICE; policy <= VMM_SYNC_ON_DEMAND; policy++) {
    CHECK_CALL(use_drawn_in(policy, false, NULL));
    CHECK_CALL(use_drawn_in(policy, true, NULL));
    CHECK_CALL(use_drawn_in(policy, true, "cuMemSetAccess:NOT_READYx2"));
  }
}

TEST(a_question_about_captures_that_fails_never_becomes_a_record) {
  fixture_options options;
  void *main, *side, *event = NULL;
  u64 address = 0;
  fixture f;

  fixture_defaults(&options);
  options.device.sync_policy = VMM_SYNC_STREAMS;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(main = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(side = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_OK(vmm_device_register_stream(f.device, side, NULL));
  OK(vmm_raw_event_create(f.sim, &event, 2));
  CHECK_CALL(fixture_begin_capture(&f, main, RELAXED));
  CHECK_CALL(draw_in(&f, event, main, side));
  CHECK_CALL(fixture_rule(&f, "cuStreamIsCapturing:UNKNOWNx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_STR(f.error.call, "cuStreamIsCapturing");
  CHECK_EQ(address, 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(draw_in(&f, event, side, main));
  CHECK_CALL(end(&f, main));
  CHECK_OK(vmm_device_forget_stream(f.device, side, NULL));
  OK(vmm_raw_event_destroy(f.sim, event));
  OK(vmm_raw_stream_destroy(f.sim, main));
  OK(vmm_raw_stream_destroy(f.sim, side));
  CHECK_CALL(fixture_close(&f));
}

TEST(forgetting_the_legacy_stream_does_not_touch_a_capture) {
  void *stream;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(stream = fixture_new_stream(&f, BLOCKING));
  CHECK_OK(vmm_device_register_stream(f.device, NULL, NULL));
  CHECK_CALL(fixture_begin_capture(&f, stream, RELAXED));
  CHECK_OK(vmm_device_forget_stream(f.device, NULL, NULL));
  CHECK_CALL(end(&f, stream));
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

/* The context may go with the device. */
/* What other threads allocate and free on theirs would be taken for the capture's. */
TEST(the_per_thread_stream_cannot_be_announced) {
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_STATUS(vmm_device_capture_begin(f.device, (void *)(size_t)2, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "per-thread") != NULL);
  CHECK_EQ(fixture_device_stats(f.device).capture_count, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_device_with_an_announced_capture_is_not_closed) {
  void *stream;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(stream = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_CALL(fixture_begin_capture(&f, stream, RELAXED));
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL));
  f.pools[0] = NULL;
  CHECK_STATUS(vmm_device_close(f.device, &f.error), VMM_ERROR_BUSY);
  CHECK(strstr(f.error.message, "captures") != NULL);
  CHECK_EQ(f.error.size, 1);
  CHECK_CALL(end(&f, stream));
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_lost_device_is_closed_whatever_was_announced) {
  void *stream;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(stream = fixture_new_stream(&f, NON_BLOCKING));
  CHECK_OK(vmm_device_capture_begin(f.device, stream, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemCreate:ILLEGAL_ADDRESS"));
  CHECK_STATUS(vmm_pool_grow(f.pool, MIB, NULL, NULL), VMM_ERROR_DEVICE_LOST);
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

static vmm_status alloc_scrubbed(fixture *f, u64 *address) {
  vmm_request request;

  CHECK_OK_RETURN(vmm_request_init(&request, sizeof request), VMM_ERROR_VERSION);
  request.size = MIB;
  request.flags = VMM_REQUEST_SCRUB;
  return vmm_pool_alloc_with(f->pool, &request, address, &f->error);
}

TEST(a_scrub_on_the_legacy_stream_does_not_touch_a_capture) {
  u64 address = 1;
  void *stream;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(stream = fixture_new_stream(&f, BLOCKING));
  CHECK_CALL(fixture_begin_capture(&f, stream, RELAXED));
  CHECK_STATUS(alloc_scrubbed(&f, &address), VMM_ERROR_CAPTURE);
  CHECK_EQ(address, 0);
  CHECK_CALL(end(&f, stream));
  CHECK_OK(alloc_scrubbed(&f, &address));
  CHECK_CALL(fixture_free(&f, address));
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

/* A caller who vouches that nothing uses a block does not know of the fill that the library queued. */
TEST(a_scrub_is_waited_for_before_its_memory_is_unmapped) {
  fixture_options options;
  u64 address, done, start;
  void *home;
  fixture f;

  fixture_defaults(&options);
  options.no_pool = true;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(home = fixture_new_stream(&f, NON_BLOCKING));
  options.pool.home_stream = home;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
  OK(vmm_raw_kernel_spin(f.sim, home, 50 * MS));
  start = vmm_driver_now(f.sim);
  CHECK_OK(alloc_scrubbed(&f, &address));
  CHECK_OK(vmm_pool_free_idle(f.pool, address, NULL));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(done, MIB);
  CHECK(vmm_driver_now(f.sim) - start >= 45 * MS);
  OK(vmm_raw_stream_destroy(f.sim, home));
  CHECK_CALL(fixture_close(&f)); /* no misuse */
}

/* ---- a capture announced while a scrub is under way ---- */

typedef struct scene {
  fixture f;
  atomic_int inside; /* the scrub's driver call is under way */
  atomic_int go_on;
} scene;

static void hold(void *data, int op, unsigned long long opportunity) {
  scene *s = data;
  int i;

  (void)op;
  (void)opportunity;
  atomic_store(&s->inside, 1);
  for (i = 0; i < 5000 && atomic_load(&s->go_on) == 0; i++) (void)usleep(1000);
}

static void *scrub(void *data) {
  scene *s = data;
  u64 address = 0;

  CHECK_OK_RETURN(alloc_scrubbed(&s->f, &address), NULL);
  CHECK_OK_RETURN(vmm_pool_free(s->f.pool, address, NULL), NULL);
  return NULL;
}

static void announce_meanwhile(u64 deadline_ns, bool in_time) {
  fixture_options options;
  pthread_t thread;
  vmm_error error;
  void *stream;
  scene s;

  fixture_defaults(&options);
  options.device.deadline_ns = deadline_ns;
  memset(&s, 0, sizeof s);
  CHECK_CALL(fixture_open(&s.f, &options));
  CHECK_CALL(stream = fixture_new_stream(&s.f, NON_BLOCKING));
  CHECK_CALL(fixture_hook(&s.f, VMM_OP_memset_d8_async, hold, &s));
  CHECK_EQ(pthread_create(&thread, NULL, scrub, &s), 0);
  while (atomic_load(&s.inside) == 0) (void)usleep(100);
  if (in_time) {
    atomic_store(&s.go_on, 1);
    CHECK_OK(vmm_device_capture_begin(s.f.device, stream, NULL));
    CHECK_OK(vmm_device_capture_end(s.f.device, stream, VMM_CAPTURE_ABORTED, NULL, NULL));
  } else {
    CHECK_STATUS(vmm_device_capture_begin(s.f.device, stream, &error), VMM_ERROR_TIMEOUT);
    CHECK(strstr(error.message, "scrub") != NULL);
    CHECK_EQ(fixture_device_stats(s.f.device).capture_count, 0);
    CHECK_STATUS(vmm_device_capture_end(s.f.device, stream, VMM_CAPTURE_ABORTED, NULL, NULL),
                 VMM_ERROR_INVALID_ARGUMENT);
    atomic_store(&s.go_on, 1);
  }
  CHECK_EQ(pthread_join(thread, NULL), 0);
  OK(vmm_raw_stream_destroy(s.f.sim, stream));
  CHECK_CALL(fixture_close(&s.f));
}

TEST(a_capture_is_announced_once_a_scrub_under_way_is_queued) {
  CHECK_CALL(announce_meanwhile(5000 * MS, true));
  CHECK_CALL(announce_meanwhile(20 * MS, false));
}

RUN_TESTS()
