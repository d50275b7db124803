/* Captures and graphs beyond the measured facts: what a replay does, what is counted, odd ends of captures. */
#include <pthread.h>

#include "sim_world.h"

TEST(a_replay_repeats_copies_fills_and_kernels_in_order) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1), *graph = NULL, *executable = NULL;
  unsigned int source = 5, seen = 0xFFFFFFFFu;
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_stream_begin_capture(driver, stream, 0));
  OK(vmm_raw_memcpy_htod_async(driver, range.address, &source, 4, stream));
  OK(vmm_raw_memcpy_dtod_async(driver, range.address + 64, range.address, 4, stream));
  OK(vmm_raw_memcpy_dtoh_async(driver, &seen, range.address + 64, 4, stream));
  OK(vmm_raw_stream_end_capture(driver, stream, &graph));
  OK(vmm_raw_graph_instantiate(driver, &executable, graph, 0));
  OK(vmm_raw_graph_destroy(driver, graph)); /* the executable lives on */
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(seen, 0xFFFFFFFFu); /* captured, not run */
  for (unsigned int i = 0; i < 3; i++) {
    source = 100 + i; /* a replay reads the host memory anew */
    OK(vmm_raw_graph_launch(driver, executable, stream));
    OK(vmm_raw_stream_synchronize(driver, stream));
    CHECK_EQ(seen, 100 + i);
  }
  OK(vmm_raw_graph_exec_destroy(driver, executable));
  CHECK_EQ(vmm_raw_graph_launch(driver, executable, stream), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(sim_ledger(driver, 0).captures_invalidated, 0);
  vmm_driver_release(driver);
}

TEST(a_forked_stream_must_be_joined_back) {
  vmm_driver *driver = sim_open(NULL);
  void *a = sim_stream(driver, 1), *b = sim_stream(driver, 1), *event = sim_event(driver), *graph = &graph;
  int status = 9;

  for (int join = 0; join < 2; join++) {
    OK(vmm_raw_stream_begin_capture(driver, a, 0));
    OK(vmm_raw_event_record(driver, event, a));
    OK(vmm_raw_stream_wait_event(driver, b, event, 0));
    OK(vmm_raw_stream_is_capturing(driver, b, &status));
    CHECK_EQ(status, 1);
    OK(vmm_raw_kernel_spin(driver, b, 10));
    OK(vmm_raw_event_record(driver, event, b));
    if (join) OK(vmm_raw_stream_wait_event(driver, a, event, 0));
    CHECK_EQ(vmm_raw_stream_end_capture(driver, b, &graph), 903); /* not where it began */
    CHECK_EQ(vmm_raw_stream_end_capture(driver, a, &graph), join ? 0 : 904);
    CHECK(join ? graph != NULL : graph == NULL);
    OK(vmm_raw_stream_is_capturing(driver, b, &status));
    CHECK_EQ(status, 0);
  }
  vmm_driver_release(driver);
}

TEST(an_invalidated_capture_is_counted_once_and_ends_with_901) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1), *graph = &graph;
  int status = 9;

  OK(vmm_raw_stream_begin_capture(driver, stream, 2));
  CHECK_EQ(vmm_raw_stream_query(driver, stream), VMM_CODE_STREAM_CAPTURE_UNSUPPORTED);
  CHECK_EQ(vmm_raw_kernel_spin(driver, stream, 1), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
  OK(vmm_raw_stream_is_capturing(driver, stream, &status));
  CHECK_EQ(status, 2);
  CHECK_EQ(sim_ledger(driver, 0).captures_invalidated, 1);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_CAPTURE), 1);
  CHECK_EQ(vmm_raw_stream_end_capture(driver, stream, &graph), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
  CHECK(graph == NULL);
  CHECK_EQ(vmm_raw_stream_end_capture(driver, stream, &graph), 401);
  OK(vmm_raw_kernel_spin(driver, stream, 1));
  vmm_driver_release(driver);
}

static void *end_elsewhere(void *data) {
  void **arguments = data, *graph = NULL;

  arguments[2] = (void *)(size_t)vmm_raw_stream_end_capture(arguments[0], arguments[1], &graph);
  return NULL;
}

TEST(a_capture_ends_in_its_own_thread_unless_it_is_relaxed) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1);
  void *arguments[3] = {driver, stream, NULL};
  pthread_t thread;

  for (int mode = 0; mode < 3; mode += 2) {
    void *graph = NULL;

    OK(vmm_raw_stream_begin_capture(driver, stream, mode));
    CHECK_EQ(pthread_create(&thread, NULL, end_elsewhere, arguments), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ((size_t)arguments[2], mode == 0 ? 908 : 0);
    CHECK_EQ(vmm_raw_stream_end_capture(driver, stream, &graph), mode == 0 ? 0 : 401);
  }
  CHECK_EQ(vmm_raw_stream_begin_capture(driver, NULL, 0), VMM_CODE_STREAM_CAPTURE_UNSUPPORTED);
  vmm_driver_release(driver);
}

TEST(ending_a_context_or_stream_in_mid_capture_leaves_nothing_behind) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1);

  OK(vmm_raw_stream_begin_capture(driver, stream, 0));
  OK(vmm_raw_kernel_spin(driver, stream, 1));
  OK(vmm_raw_stream_destroy(driver, stream));
  OK(vmm_raw_ctx_synchronize(driver));
  stream = sim_stream(driver, 1);
  OK(vmm_raw_stream_begin_capture(driver, stream, 0));
  OK(vmm_raw_primary_release(driver, 0));
  CHECK_EQ(sim_ledger(driver, 0).streams, 0);
  vmm_driver_release(driver);
}

RUN_TESTS()
