/* The fault wrapper: conditions, probability, sticky, delays, hooks, and orphans. */
#include "fault_help.h"

TEST(what_a_creating_call_made_before_it_failed_is_an_orphan) {
  vmm_driver *fault = make();
  unsigned long long handle = 9, address = 9;
  void *event = &handle, *context = &handle;
  vmm_fault_orphan orphans[8];
  size_t count = 0;
  vmm_fault_rule rule = rule_for(VMM_OP_ANY, 999);
  rule.phase = VMM_FAULT_AFTER;
  rule.times = VMM_FAULT_FOR_EVER;
  add(fault, &rule);
  CHECK_EQ(vmm_raw_primary_retain(fault, &context, 3), 999);
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 4096, NULL, 0), 999);
  CHECK_EQ(vmm_raw_mem_reserve(fault, &address, 8192, 0, 0, 0), 999);
  CHECK_EQ(vmm_raw_event_create(fault, &event, 0), 999);
  CHECK_EQ(vmm_raw_mem_release(fault, 5), 999);
  CHECK(handle == 0 && address == 0 && event == NULL && context == NULL);
  memset(orphans, 0xA5, sizeof orphans);
  CHECK_OK(vmm_fault_get_orphans(fault, orphans, 8, &count));
  CHECK_EQ(count, 4);
  CHECK_EQ(orphans[0].op, VMM_OP_primary_retain);
  CHECK_EQ(orphans[0].value, 3);
  CHECK_EQ(orphans[1].op, VMM_OP_mem_create);
  CHECK_EQ(orphans[1].value, 0x1001);
  CHECK_EQ(orphans[1].size, 4096);
  CHECK_EQ(orphans[2].value, 0x1002);
  CHECK_EQ(orphans[2].size, 8192);
  CHECK_EQ(orphans[3].op, VMM_OP_event_create);
  CHECK_EQ(orphans[3].value, 0x1003);
  CHECK_OK(vmm_fault_get_orphans(fault, NULL, 0, &count));
  CHECK_EQ(count, 4);
  CHECK_EQ(stub.count[VMM_OP_mem_release], 1);
  CHECK_OK(vmm_fault_release_orphans(fault));
  CHECK_EQ(stub.count[VMM_OP_mem_release], 2);
  CHECK_EQ(stub.last[VMM_OP_mem_release].object, 0x1001);
  CHECK_EQ(stub.last[VMM_OP_mem_address_free].address, 0x1002);
  CHECK_EQ(stub.last[VMM_OP_mem_address_free].size, 8192);
  CHECK_EQ(stub.last[VMM_OP_event_destroy].object, 0x1003);
  CHECK_EQ(stub.last[VMM_OP_primary_release].object, 3);
  CHECK_OK(vmm_fault_get_orphans(fault, orphans, 8, &count));
  CHECK_EQ(count, 0);
  vmm_driver_release(fault);
}

TEST(every_creating_operation_can_be_given_back) {
  static const int pairs[][2] = {
      {VMM_OP_mem_retain_handle, VMM_OP_mem_release},
      {VMM_OP_mem_import, VMM_OP_mem_release},
      {VMM_OP_mem_alloc, VMM_OP_mem_free},
      {VMM_OP_mem_host_alloc, VMM_OP_mem_host_free},
      {VMM_OP_stream_create, VMM_OP_stream_destroy},
      {VMM_OP_stream_end_capture, VMM_OP_graph_destroy},
      {VMM_OP_ctx_create, VMM_OP_ctx_destroy},
      {VMM_OP_graph_instantiate, VMM_OP_graph_exec_destroy},
  };
  vmm_driver *fault = make();
  unsigned long long value;
  void *pointer;
  CHECK_OK(vmm_fault_add_text(fault, "*:999x*:after", NULL));
  CHECK_EQ(vmm_raw_mem_retain_handle(fault, &value, 1), 999);
  CHECK_EQ(vmm_raw_mem_import(fault, &value, NULL, 1), 999);
  CHECK_EQ(vmm_raw_mem_alloc(fault, &value, 1), 999);
  CHECK_EQ(vmm_raw_mem_host_alloc(fault, &pointer, 1, 0), 999);
  CHECK_EQ(vmm_raw_stream_create(fault, &pointer, 0), 999);
  CHECK_EQ(vmm_raw_stream_end_capture(fault, NULL, &pointer), 999);
  CHECK_EQ(vmm_raw_ctx_create(fault, &pointer, 0, 0), 999);
  CHECK_EQ(vmm_raw_graph_instantiate(fault, &pointer, NULL, 0), 999);
  CHECK_OK(vmm_fault_release_orphans(fault));
  for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; i++) CHECK_EQ(stub.count[pairs[i][0]], 1);
  CHECK_EQ(stub.count[VMM_OP_mem_release], 2);
  for (unsigned i = 2; i < sizeof pairs / sizeof pairs[0]; i++) CHECK_EQ(stub.count[pairs[i][1]], 1);
  vmm_driver_release(fault);
}

TEST(orphans_beyond_the_list_are_counted_and_those_that_cannot_go_are_told) {
  vmm_driver *fault = make();
  unsigned long long handle;
  size_t count;
  CHECK_OK(vmm_fault_add_text(fault, "mem_create:2x*:after", NULL));
  for (int i = 0; i < 1030; i++) CHECK_EQ(vmm_raw_mem_create(fault, &handle, 64, NULL, 0), 2);
  CHECK_OK(vmm_fault_get_orphans(fault, NULL, 0, &count));
  CHECK_EQ(count, 1030);
  CHECK_STATUS(vmm_fault_release_orphans(fault), VMM_ERROR_PARTIAL);
  CHECK_EQ(stub.count[VMM_OP_mem_release], 1024);
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 64, NULL, 0), 2);
  stub.answer[VMM_OP_mem_release] = 1;
  CHECK_STATUS(vmm_fault_release_orphans(fault), VMM_ERROR_PARTIAL);
  CHECK_OK(vmm_fault_release_orphans(fault));
  vmm_driver_release(fault);
}

TEST(a_pending_condition_asks_the_streams_and_leaves_the_capture_mode) {
  vmm_driver *fault = make();
  void *stream, *context;
  stub.mode = 1;
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:pending", NULL));
  CHECK_EQ(vmm_raw_primary_retain(fault, &context, 0), 0);
  CHECK_EQ(vmm_raw_stream_create(fault, &stream, 1), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  CHECK_EQ(stub.last[VMM_OP_ctx_push].object, (size_t)context);
  CHECK_EQ(stub.count[VMM_OP_ctx_push], stub.count[VMM_OP_ctx_pop]);
  CHECK_EQ(stub.last[VMM_OP_stream_query].object, (size_t)stream);
  stub.answer[VMM_OP_stream_query] = VMM_CODE_NOT_READY;
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(stub.mode, 1);
  stub.capturing = 1; /* a captured stream must not be queried */
  stub.count[VMM_OP_stream_query] = 0;
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  CHECK_EQ(stub.count[VMM_OP_stream_query], 0);
  vmm_driver_release(fault);
}

TEST(a_destroyed_stream_is_not_asked) {
  vmm_driver *fault = make();
  void *first, *second;
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:pending", NULL));
  CHECK_EQ(vmm_raw_stream_create(fault, &first, 1), 0);
  CHECK_EQ(vmm_raw_stream_create(fault, &second, 1), 0);
  CHECK_EQ(vmm_raw_stream_destroy(fault, second), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  CHECK_EQ(stub.count[VMM_OP_stream_query], 2); /* the legacy stream and the one alive */
  CHECK_EQ(stub.last[VMM_OP_stream_query].object, (size_t)first);
  vmm_driver_release(fault);
}

TEST(a_budget_counts_handles_until_released_and_unmapped) {
  vmm_driver *fault = make();
  unsigned long long handle, again;
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:budget=4KiB", NULL));
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 4096, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_create(fault, &again, 1, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(vmm_raw_mem_map(fault, 0x10000, 4096, 0, handle, 0), 0);
  CHECK_EQ(vmm_raw_mem_map(fault, 0x20000, 4096, 0, handle, 0), 0);
  CHECK_EQ(vmm_raw_mem_release(fault, handle), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x10000, 4096), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x20000, 4096), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  vmm_driver_release(fault);
}

TEST(evicted_holds_for_the_first_call_after_a_release) {
  vmm_driver *fault = make();
  CHECK_OK(vmm_fault_add_text(fault, "cuMemMap:NOT_READYx*:evicted", NULL));
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  CHECK_EQ(vmm_raw_mem_release(fault, 1), 0);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 600);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  stub.answer[VMM_OP_mem_release] = 1;
  CHECK_EQ(vmm_raw_mem_release(fault, 1), 1);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  vmm_driver_release(fault);
}

TEST(a_release_of_what_is_mapped_evicts_nothing_until_it_is_unmapped) {
  vmm_driver *fault = make();
  unsigned long long handle;
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:evicted", NULL));
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 4096, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_map(fault, 0x10000, 4096, 0, handle, 0), 0);
  CHECK_EQ(vmm_raw_mem_release(fault, handle), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x10000, 4096), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 0);
  vmm_driver_release(fault);
}

TEST(probability_is_seeded_and_about_right) {
  vmm_driver *one = make();
  vmm_driver *other = NULL, *third = NULL;
  unsigned fired = 0, differ = 0;
  CHECK_OK(vmm_fault_create(&other, one->inner, 7, NULL));
  CHECK_OK(vmm_fault_create(&third, one->inner, 8, NULL));
  CHECK_OK(vmm_fault_add_text(one, "cuMemMap:600x*:p=0.25", NULL));
  CHECK_OK(vmm_fault_add_text(other, "cuMemMap:600x*:p=0.25", NULL));
  CHECK_OK(vmm_fault_add_text(third, "cuMemMap:600x*:p=0.25", NULL));
  for (int i = 0; i < 4000; i++) {
    int answer = vmm_raw_mem_map(one, 1, 1, 0, 1, 0);
    CHECK_EQ(vmm_raw_mem_map(other, 1, 1, 0, 1, 0), answer);
    fired += answer == 600;
    differ += vmm_raw_mem_map(third, 1, 1, 0, 1, 0) != answer;
  }
  CHECK(fired > 850 && fired < 1150);
  CHECK(differ > 1000);
  vmm_driver_release(third);
  vmm_driver_release(other);
  vmm_driver_release(one);
}

TEST(sticky_loses_the_device_until_cleared) {
  vmm_driver *fault = make();
  unsigned long long handle = 3;
  void *context;
  int value;
  vmm_fault_rule rule = rule_for(VMM_OP_mem_set_access, 719);
  rule.sticky = 1;
  int id = add(fault, &rule);
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 64, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 719);
  CHECK_EQ(vmm_raw_event_query(fault, NULL), 719);
  CHECK_EQ(stub.count[VMM_OP_event_query], 0);
  CHECK_EQ(vmm_raw_mem_release(fault, handle), 719);
  CHECK_EQ(stub.count[VMM_OP_mem_release], 1); /* given back all the same */
  CHECK_EQ(vmm_raw_ctx_pop(fault, &context), 0);
  CHECK_EQ(vmm_raw_driver_version(fault, &value), 0);
  CHECK_CALL(expect_counts(fault, id, 1, 1));
  CHECK_OK(vmm_fault_clear(fault));
  CHECK_EQ(vmm_raw_event_query(fault, NULL), 0);
  CHECK_STATUS(vmm_fault_count(fault, id, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  vmm_driver_release(fault);
}

TEST(clear_restarts_the_opportunities_and_a_delay_passes_on_the_drivers_clock) {
  vmm_driver *fault = make();
  CHECK_OK(vmm_fault_add_text(fault, "cuMemMap:600x2:delay=3us", NULL));
  for (int i = 0; i < 3; i++) (void)vmm_raw_mem_map(fault, 1, 1, 0, 1, 0);
  CHECK_EQ(vmm_driver_now(fault), 6000);
  CHECK_EQ(vmm_fault_opportunities(fault, VMM_OP_mem_map), 3);
  CHECK_OK(vmm_fault_clear(fault));
  CHECK_EQ(vmm_fault_opportunities(fault, VMM_OP_mem_map), 0);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  vmm_driver_release(fault);
}

typedef struct hook_state {
  vmm_driver *driver;
  unsigned calls;
  unsigned long long last;
} hook_state;

/* Queues "work" before a set-access, as an intruding thread would. */
static void intrude(void *data, int op, unsigned long long opportunity) {
  hook_state *state = data;
  state->calls++;
  state->last = opportunity;
  stub.answer[VMM_OP_stream_query] = VMM_CODE_NOT_READY;
  (void)vmm_raw_mem_set_access(state->driver, 1, 1, NULL, 0);
  if (op != VMM_OP_mem_set_access) state->calls += 100;
}

TEST(a_hook_sees_each_matching_call_and_later_rules_see_what_it_did) {
  vmm_driver *fault = make();
  hook_state state = {fault, 0, 0};
  vmm_fault_rule rule = rule_for(VMM_OP_mem_set_access, 0);
  rule.hook = intrude;
  rule.hook_data = &state;
  int id = add(fault, &rule);
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:pending", NULL));
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), 600);
  CHECK_EQ(state.calls, 2);
  CHECK_EQ(state.last, 2);
  CHECK_EQ(stub.count[VMM_OP_mem_set_access], 2); /* the hook's own calls went through, unmatched */
  CHECK_EQ(vmm_fault_opportunities(fault, VMM_OP_mem_set_access), 2);
  CHECK_CALL(expect_counts(fault, id, 1, 2));
  vmm_driver_release(fault);
}

static void clear_all(void *data, int op, unsigned long long opportunity) {
  (void)op;
  (void)opportunity;
  (void)vmm_fault_clear(data);
}

TEST(a_hook_may_remove_the_rules) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_map, 600);
  rule.hook = clear_all;
  rule.hook_data = fault;
  add(fault, &rule);
  CHECK_OK(vmm_fault_add_text(fault, "cuMemMap:999x*", NULL));
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  vmm_driver_release(fault);
}

RUN_TESTS()
