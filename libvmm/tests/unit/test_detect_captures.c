/* detect_captures: captures that nobody announced are noticed, as far as the library can ask. */
#include "support/fixture.h"

enum { RELAXED = 2 };

typedef struct scene {
  fixture f;
  void *stream, *other, *graph;
} scene;

static void open_scene(scene *s, unsigned kind, int policy, const vmm_pool_options *pool) {
  fixture_options options;

  memset(s, 0, sizeof *s);
  fixture_defaults(&options);
  options.device.detect_captures = 1;
  options.device.sync_policy = policy;
  if (pool != NULL) options.pool = *pool;
  CHECK_CALL(fixture_open(&s->f, &options));
  OK(vmm_raw_stream_create(s->f.sim, &s->stream, kind));
  OK(vmm_raw_stream_create(s->f.sim, &s->other, NON_BLOCKING));
}

static void begin(scene *s) { OK(vmm_raw_stream_begin_capture(s->f.sim, s->stream, RELAXED)); }

/* It is valid still. */
static void end(scene *s) {
  OK(vmm_raw_stream_end_capture(s->f.sim, s->stream, &s->graph));
  CHECK_EQ(fixture_ledger(&s->f, 0).captures_invalidated, 0);
}

static void close_scene(scene *s) {
  if (s->graph != NULL) OK(vmm_raw_graph_destroy(s->f.sim, s->graph));
  (void)vmm_device_forget_stream(s->f.device, s->stream, NULL);
  (void)vmm_device_forget_stream(s->f.device, s->other, NULL);
  vmm_driver_wait(s->f.driver, 100 * MS);
  OK(vmm_raw_stream_destroy(s->f.sim, s->stream));
  OK(vmm_raw_stream_destroy(s->f.sim, s->other));
  CHECK_CALL(fixture_close(&s->f));
}

static vmm_pool_options pool_with(int events, void *home) {
  vmm_pool_options options = fixture_pool_options();

  options.events = events;
  options.home_stream = home;
  return options;
}

TEST(the_option_is_0_or_1) {
  vmm_device_options options;
  vmm_device *device = NULL;
  vmm_driver *sim = NULL;

  CHECK_OK(vmm_sim_create(&sim, NULL, NULL));
  CHECK_OK(vmm_device_options_init(&options, sizeof options));
  CHECK_EQ(options.detect_captures, 0);
  options.driver = sim;
  options.detect_captures = 2;
  CHECK_STATUS(vmm_device_open(&device, 0, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  options.detect_captures = 1;
  CHECK_OK(vmm_device_open(&device, 0, &options, NULL));
  options.detect_captures = 0;
  {
    vmm_device *again = NULL;

    CHECK_STATUS(vmm_device_open(&again, 0, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  }
  CHECK_OK(vmm_device_close(device, NULL));
  vmm_driver_release(sim);
}

/* ---- alloc ---- */

static vmm_status alloc_with(vmm_pool *pool, void *stream, u64 *address, vmm_error *error) {
  vmm_request request;

  CHECK_OK_RETURN(vmm_request_init(&request, sizeof request), VMM_ERROR_VERSION);
  request.size = MIB;
  request.flags = VMM_REQUEST_ON_STREAM;
  request.stream = stream;
  return vmm_pool_alloc_with(pool, &request, address, error);
}

static void check_refused(fixture *f, vmm_status status, const u64 *address) {
  CHECK_STATUS(status, VMM_ERROR_CAPTURE);
  CHECK_EQ(f->error.status, VMM_ERROR_CAPTURE);
  CHECK(strstr(f->error.message, "vmm_device_capture_begin") != NULL);
  CHECK_EQ(*address, 0);
}

static void refuse_allocations(int events, bool warm) {
  vmm_pool_options options = pool_with(events, NULL);
  u64 address = 0;
  vmm_pool *home;
  scene s;

  CHECK_CALL(open_scene(&s, NON_BLOCKING, VMM_SYNC_ON_DEMAND, &options));
  options.home_stream = s.stream;
  CHECK_CALL(home = fixture_add_pool(&s.f, &options));
  /* A pool with eager events keeps no handles, so whether such a stream is captured is only asked if it is registered. */
  if (events == VMM_EVENTS_EAGER) CHECK_OK(vmm_device_register_stream(s.f.device, s.stream, NULL));
  if (warm) { /* what the stream freed would fit */
    CHECK_OK(vmm_pool_alloc_async(s.f.pool, MIB, s.stream, &address, NULL));
    CHECK_OK(vmm_pool_free_async(s.f.pool, address, s.stream, NULL));
    CHECK_OK(vmm_pool_alloc(home, MIB, &address, NULL));
    CHECK_OK(vmm_pool_free(home, address, NULL));
  }
  CHECK_CALL(begin(&s));
  address = 1;
  CHECK_CALL(check_refused(&s.f, vmm_pool_alloc_async(s.f.pool, MIB, s.stream, &address, &s.f.error), &address));
  address = 1;
  CHECK_CALL(check_refused(&s.f, alloc_with(s.f.pool, s.stream, &address, &s.f.error), &address));
  address = 1;
  CHECK_CALL(check_refused(&s.f, vmm_pool_alloc(home, MIB, &address, &s.f.error), &address));
  CHECK_EQ(fixture_stats(s.f.pool).alloc_failures, 2);
  CHECK_EQ(fixture_stats(home).alloc_failures, 1);
  CHECK_OK_ERROR(vmm_pool_alloc_async(s.f.pool, 4 * MIB, s.other, &address, &s.f.error), &s.f.error); /* others go on */
  CHECK_OK(vmm_pool_free_async(s.f.pool, address, s.other, NULL));
  CHECK_CALL(end(&s));
  CHECK_OK_ERROR(vmm_pool_alloc_async(s.f.pool, MIB, s.stream, &address, &s.f.error), &s.f.error);
  CHECK_OK(vmm_pool_free_async(s.f.pool, address, s.stream, NULL));
  CHECK_OK(vmm_pool_destroy(home, VMM_DESTROY_IDLE, &s.f.error));
  s.f.pools[1] = NULL;
  CHECK_CALL(close_scene(&s));
}

TEST(an_allocation_on_a_stream_that_is_captured_unannounced_is_refused) {
  CHECK_CALL(refuse_allocations(VMM_EVENTS_LAZY, false));
  CHECK_CALL(refuse_allocations(VMM_EVENTS_LAZY, true));
  CHECK_CALL(refuse_allocations(VMM_EVENTS_EAGER, false));
  CHECK_CALL(refuse_allocations(VMM_EVENTS_EAGER, true));
}

/* Announced, it is served: the driver's answer is no surprise then. */
TEST(an_announced_capture_is_served_as_without_the_option) {
  vmm_lease *lease = NULL;
  u64 address = 0, again = 0;
  scene s;

  CHECK_CALL(open_scene(&s, NON_BLOCKING, VMM_SYNC_DEVICE, NULL));
  CHECK_OK(vmm_device_capture_begin(s.f.device, s.stream, NULL));
  CHECK_CALL(begin(&s));
  CHECK_OK_ERROR(vmm_pool_alloc_async(s.f.pool, MIB, s.stream, &address, &s.f.error), &s.f.error);
  OK(vmm_raw_kernel_fill(s.f.sim, s.stream, address, MIB, 1));
  CHECK_OK(vmm_pool_free_async(s.f.pool, address, s.stream, NULL));
  CHECK_EQ(fixture_stats(s.f.pool).block_count, 0);
  CHECK_OK(vmm_pool_alloc_async(s.f.pool, MIB, s.stream, &again, NULL));
  CHECK_EQ(again, address);
  CHECK_OK(vmm_pool_free_async(s.f.pool, address, s.stream, NULL));
  CHECK_CALL(end(&s));
  CHECK_OK(vmm_device_capture_end(s.f.device, s.stream, VMM_CAPTURE_COMMITTED, &lease, NULL));
  CHECK_OK(vmm_lease_release(lease, NULL));
  CHECK_CALL(close_scene(&s));
}

/* ---- free ---- */

typedef enum freed { ALONE, ON_HOME, WITH_OTHERS } freed;

static void keep_what_is_freed(int events, freed how) {
  vmm_pool_options options = pool_with(events, NULL);
  u64 address = 0, other = 0, before;
  void *executable = NULL, *streams[2];
  vmm_pool *pool;
  scene s;

  CHECK_CALL(open_scene(&s, NON_BLOCKING, VMM_SYNC_ON_DEMAND, &options));
  if (how == ON_HOME) options.home_stream = s.stream;
  CHECK_CALL(pool = fixture_add_pool(&s.f, &options));
  CHECK_OK(vmm_pool_alloc_async(pool, MIB, s.stream, &address, NULL));
  before = fixture_stats(pool).fence_failures;
  CHECK_CALL(begin(&s));
  OK(vmm_raw_kernel_fill(s.f.sim, s.stream, address, MIB, 5));
  streams[0] = s.stream;
  streams[1] = s.other;
  if (how == ON_HOME) CHECK_OK(vmm_pool_free(pool, address, &s.f.error));
  else if (how == ALONE) CHECK_OK(vmm_pool_free_async(pool, address, s.stream, &s.f.error));
  else CHECK_OK(vmm_pool_free_multi(pool, address, streams, 2, &s.f.error));
  CHECK_EQ(fixture_stats(pool).fence_failures, before + 1);
  CHECK_STATUS(vmm_pool_free_async(pool, address + 256, s.stream, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_CALL(end(&s));
  OK(vmm_raw_graph_instantiate(s.f.sim, &executable, s.graph, 0));
  CHECK_OK(vmm_pool_trim(pool, 0, 0, NULL, &s.f.error));
  CHECK_EQ(fixture_stats(pool).block_count, 1);
  CHECK_OK_ERROR(vmm_pool_alloc_async(pool, MIB, s.other, &other, &s.f.error), &s.f.error);
  CHECK(other != address);
  OK(vmm_raw_kernel_fill(s.f.sim, s.other, other, MIB, 6));
  OK(vmm_raw_graph_launch(s.f.sim, executable, s.stream));
  vmm_driver_wait(s.f.driver, 10 * MS);
  CHECK_CALL(fixture_expect(&s.f, address, MIB, 5));
  CHECK_CALL(fixture_expect(&s.f, other, MIB, 6));
  OK(vmm_raw_graph_exec_destroy(s.f.sim, executable));
  CHECK_OK(vmm_pool_free_async(pool, other, s.other, NULL));
  CHECK_OK(vmm_pool_check(pool, &s.f.error));
  CHECK_STATUS(vmm_pool_destroy(pool, VMM_DESTROY_IDLE, &s.f.error), VMM_ERROR_BUSY);
  CHECK_EQ(s.f.error.size, 1);
  CHECK_OK(vmm_pool_destroy(pool, VMM_DESTROY_FORCED, &s.f.error));
  s.f.pools[1] = NULL;
  CHECK_CALL(close_scene(&s));
}

TEST(a_block_freed_on_a_stream_that_is_captured_unannounced_stays_until_the_pool_ends) {
  CHECK_CALL(keep_what_is_freed(VMM_EVENTS_LAZY, ALONE));
  CHECK_CALL(keep_what_is_freed(VMM_EVENTS_LAZY, ON_HOME));
  CHECK_CALL(keep_what_is_freed(VMM_EVENTS_LAZY, WITH_OTHERS));
  CHECK_CALL(keep_what_is_freed(VMM_EVENTS_EAGER, ALONE));
  CHECK_CALL(keep_what_is_freed(VMM_EVENTS_EAGER, ON_HOME));
  CHECK_CALL(keep_what_is_freed(VMM_EVENTS_EAGER, WITH_OTHERS));
}

/* ---- the context ---- */

static bool is_left_alone(vmm_status status) { return status == VMM_OK || status == VMM_ERROR_CAPTURE; }

/* All that makes a context-wide call otherwise: waits before growth and after a NOT_READY, fences of trims, of what several
 * streams used, of pools that end, and of streams that are forgotten. */
static void leave_context_alone(unsigned kind, int policy) {
  u64 addresses[3] = {0, 0, 0};
  void *streams[2];
  vmm_pool *second;
  scene s;
  int i;

  CHECK_CALL(open_scene(&s, kind, policy, NULL));
  if (kind == NON_BLOCKING) CHECK_OK(vmm_device_register_stream(s.f.device, s.stream, NULL));
  CHECK_CALL(second = fixture_add_pool(&s.f, NULL));
  for (i = 0; i < 3; i++) CHECK_OK(vmm_pool_alloc_async(i == 2 ? second : s.f.pool, MIB, s.other, &addresses[i], NULL));
  streams[0] = s.other;
  streams[1] = NULL;
  CHECK_CALL(begin(&s));
  fixture_forget_calls(&s.f);
  CHECK_OK(vmm_pool_free_multi(s.f.pool, addresses[0], streams, 2, NULL));
  CHECK_OK(vmm_pool_free_async(s.f.pool, addresses[1], s.other, NULL));
  CHECK_OK(vmm_pool_free_async(second, addresses[2], s.other, NULL));
  CHECK(is_left_alone(vmm_pool_trim_async(s.f.pool, 0, NULL, NULL, NULL)));
  CHECK(is_left_alone(vmm_pool_trim(s.f.pool, 0, 0, NULL, NULL)));
  CHECK(is_left_alone(vmm_pool_poll(s.f.pool, NULL, NULL, NULL)));
  CHECK_OK(vmm_pool_alloc_async(s.f.pool, 8 * MIB, s.other, &addresses[0], NULL));
  CHECK_CALL(fixture_rule(&s.f, "cuMemSetAccess:NOT_READYx2"));
  CHECK_OK_ERROR(vmm_pool_alloc(s.f.pool, 16 * MIB, &addresses[1], &s.f.error), &s.f.error);
  CHECK(is_left_alone(vmm_pool_destroy(second, VMM_DESTROY_FORCED, NULL)));
  if (fixture_device_stats(s.f.device).pool_count == 1) s.f.pools[1] = NULL;
  CHECK_CALL(fixture_rule(&s.f, "cuEventRecord:UNKNOWNx*"));
  CHECK_OK(vmm_device_forget_stream(s.f.device, s.other, NULL)); /* its last fence fails, and no other stands in */
  CHECK_CALL(fixture_clear(&s.f));
  CHECK_EQ(fixture_calls(&s.f, VMM_OP_ctx_record_event), 0);
  CHECK_EQ(fixture_calls(&s.f, VMM_OP_ctx_synchronize), 0);
  CHECK_CALL(end(&s));
  CHECK_OK(vmm_pool_free(s.f.pool, addresses[0], NULL));
  CHECK_OK(vmm_pool_free(s.f.pool, addresses[1], NULL));
  CHECK_OK(vmm_pool_trim(s.f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(s.f.pool).committed_bytes, 0);
  CHECK_CALL(close_scene(&s));
}

TEST(the_context_is_left_alone_while_a_known_or_a_blocking_stream_is_captured) {
  int policy;

  for (policy = VMM_SYNC_DEVICE; policy <= VMM_SYNC_ON_DEMAND; policy++) {
    CHECK_CALL(leave_context_alone(NON_BLOCKING, policy));
    CHECK_CALL(leave_context_alone(BLOCKING, policy));
  }
}

TEST(a_stream_that_is_captured_unannounced_is_not_forgotten) {
  scene s;

  CHECK_CALL(open_scene(&s, NON_BLOCKING, VMM_SYNC_DEVICE, NULL));
  CHECK_OK(vmm_device_register_stream(s.f.device, s.stream, NULL));
  CHECK_CALL(begin(&s));
  CHECK_STATUS(vmm_device_forget_stream(s.f.device, s.stream, &s.f.error), VMM_ERROR_CAPTURE);
  CHECK_EQ(fixture_device_stats(s.f.device).stream_count, 1);
  CHECK_CALL(end(&s));
  CHECK_OK(vmm_device_forget_stream(s.f.device, s.stream, NULL));
  CHECK_CALL(close_scene(&s));
}

RUN_TESTS()
