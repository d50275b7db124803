/* The happens-before check: memory that changes hands must be touched only in an order with its last owner's work. */
#include "sim_world.h"

typedef struct scene {
  vmm_driver *driver;
  void *a, *b, *event;
  sim_range range;
} scene;

/* Stream a has touched the range; then it changed hands. */
static scene begin(unsigned int flags) {
  scene s;

  memset(&s, 0, sizeof s);
  s.driver = sim_open(NULL);
  s.a = sim_stream(s.driver, flags);
  s.b = sim_stream(s.driver, flags);
  s.event = sim_event(s.driver);
  CHECK_CALL_RETURN(s.range = sim_make(s.driver, GRANULE), s);
  CHECK_EQ_RETURN(vmm_raw_kernel_spin(s.driver, s.a, 1000000), VMM_CODE_SUCCESS, s);
  CHECK_EQ_RETURN(vmm_raw_kernel_fill(s.driver, s.a, s.range.address, 4096, 1), VMM_CODE_SUCCESS, s);
  CHECK_EQ_RETURN(vmm_raw_event_record(s.driver, s.event, s.a), VMM_CODE_SUCCESS, s);
  CHECK_OK_RETURN(vmm_sim_new_owner(s.driver, s.range.address, 4096), s);
  return s;
}

/* Touches it on a stream; how many reuses were reported by now. */
static int end(scene *s, void *stream) {
  int found;

  CHECK_EQ_RETURN(vmm_raw_memset_d8_async(s->driver, s->range.address + 256, 7, 64, stream), VMM_CODE_SUCCESS, -1);
  found = sim_misuses(s->driver, VMM_SIM_MISUSE_REUSE);
  vmm_driver_release(s->driver);
  return found;
}

TEST(reuse_on_another_stream_is_reported) {
  scene s;
  CHECK_CALL(s = begin(1));
  CHECK_EQ(end(&s, s.b), 1);
}

TEST(reuse_on_the_same_stream_is_fine) {
  scene s;
  CHECK_CALL(s = begin(1));
  CHECK_EQ(end(&s, s.a), 0);
}

TEST(reuse_after_an_event_wait_is_fine) {
  scene s;
  CHECK_CALL(s = begin(1));
  OK(vmm_raw_stream_wait_event(s.driver, s.b, s.event, 0));
  CHECK_EQ(end(&s, s.b), 0);
}

TEST(an_event_recorded_too_early_orders_nothing) {
  scene s;
  void *early;

  CHECK_CALL(s = begin(1));
  early = sim_event(s.driver);
  OK(vmm_raw_event_record(s.driver, early, s.b));
  OK(vmm_raw_stream_wait_event(s.driver, s.b, early, 0));
  CHECK_EQ(end(&s, s.b), 1);
}

TEST(order_is_passed_on_through_a_third_stream) {
  scene s;
  void *third, *second_event;

  CHECK_CALL(s = begin(1));
  third = sim_stream(s.driver, 1);
  second_event = sim_event(s.driver);
  OK(vmm_raw_stream_wait_event(s.driver, third, s.event, 0));
  OK(vmm_raw_event_record(s.driver, second_event, third));
  OK(vmm_raw_stream_wait_event(s.driver, s.b, second_event, 0));
  CHECK_EQ(end(&s, s.b), 0);
}

TEST(time_alone_orders_nothing_but_a_query_that_saw_it_done_does) {
  scene s;

  CHECK_CALL(s = begin(1));
  vmm_driver_wait(s.driver, 100000000);
  CHECK_EQ(end(&s, s.b), 1);
  CHECK_CALL(s = begin(1));
  CHECK_EQ(vmm_raw_event_query(s.driver, s.event), VMM_CODE_NOT_READY);
  vmm_driver_wait(s.driver, 100000000);
  OK(vmm_raw_event_query(s.driver, s.event));
  CHECK_EQ(end(&s, s.b), 0);
}

TEST(every_kind_of_wait_orders) {
  void *context = NULL;
  scene s;

  CHECK_CALL(s = begin(1));
  OK(vmm_raw_ctx_synchronize(s.driver));
  CHECK_EQ(end(&s, s.b), 0);
  CHECK_CALL(s = begin(1));
  OK(vmm_raw_stream_synchronize(s.driver, s.a));
  CHECK_EQ(end(&s, s.b), 0);
  CHECK_CALL(s = begin(1));
  OK(vmm_raw_event_synchronize(s.driver, s.event));
  CHECK_EQ(end(&s, s.b), 0);
  CHECK_CALL(s = begin(1));
  OK(vmm_raw_ctx_get_current(s.driver, &context));
  OK(vmm_raw_ctx_record_event(s.driver, context, s.event));
  OK(vmm_raw_stream_wait_event(s.driver, s.b, s.event, 0));
  CHECK_EQ(end(&s, s.b), 0);
}

TEST(the_legacy_stream_orders_blocking_streams_and_no_others) {
  scene s;

  CHECK_CALL(s = begin(0));
  CHECK_EQ(end(&s, NULL), 0); /* it waits for a by itself */
  CHECK_CALL(s = begin(1));
  CHECK_EQ(end(&s, NULL), 1);
  CHECK_CALL(s = begin(0));
  CHECK_EQ(end(&s, s.b), 1);
  CHECK_CALL(s = begin(0));
  OK(vmm_raw_kernel_spin(s.driver, NULL, 1));
  CHECK_EQ(end(&s, s.b), 0); /* a, legacy, b */
}

TEST(memory_that_did_not_change_hands_is_not_checked) {
  scene s;

  CHECK_CALL(s = begin(1));
  OK(vmm_raw_memset_d8_async(s.driver, s.range.address + 4096, 7, 64, s.b));
  CHECK_EQ(sim_misuses(s.driver, VMM_SIM_MISUSE_REUSE), 0);
  CHECK_EQ(end(&s, s.b), 1);
}

TEST(a_stream_handle_used_again_is_another_stream) {
  scene s;
  void *again;

  CHECK_CALL(s = begin(1));
  OK(vmm_raw_stream_destroy(s.driver, s.a));
  again = sim_stream(s.driver, 1);
  CHECK(again == s.a);
  CHECK_EQ(end(&s, again), 1);
}

TEST(graph_replays_count_as_work_of_the_stream_they_are_launched_on) {
  void *graph = NULL, *executable = NULL;
  scene s;

  CHECK_CALL(s = begin(1));
  OK(vmm_raw_stream_begin_capture(s.driver, s.b, 2));
  OK(vmm_raw_memset_d8_async(s.driver, s.range.address, 7, 64, s.b));
  OK(vmm_raw_stream_end_capture(s.driver, s.b, &graph));
  OK(vmm_raw_graph_instantiate(s.driver, &executable, graph, 0));
  CHECK_EQ(sim_misuses(s.driver, VMM_SIM_MISUSE_REUSE), 0);
  OK(vmm_raw_graph_launch(s.driver, executable, s.b));
  CHECK_EQ(sim_misuses(s.driver, VMM_SIM_MISUSE_REUSE), 1);
  OK(vmm_raw_graph_exec_destroy(s.driver, executable));
  OK(vmm_raw_graph_destroy(s.driver, graph));
  vmm_driver_release(s.driver);
}

RUN_TESTS()
