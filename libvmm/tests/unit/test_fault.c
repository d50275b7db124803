/* The fault wrapper: phases, counting, matching, conditions, sticky, hooks, orphans, threads. */
#include <pthread.h>

#include "check.h"
#include "stub_driver.h"

static stub_driver stub;

static vmm_driver *make_over(vmm__driver_kind kind) {
  vmm_driver *fault = NULL;
  stub_init(&stub, kind);
  CHECK_OK_RETURN(vmm_fault_create(&fault, &stub.base, 7, NULL), NULL);
  vmm_driver_release(&stub.base);
  return fault;
}

static vmm_driver *make(void) { return make_over(VMM__DRIVER_SIM); }

static vmm_fault_rule rule_for(int op, int code) {
  vmm_fault_rule rule;
  (void)vmm_fault_rule_init(&rule, sizeof rule);
  rule.op = op;
  rule.code = code;
  return rule;
}

static int add(vmm_driver *fault, const vmm_fault_rule *rule) {
  vmm_error error;
  int id = -1;
  CHECK_RETURN(vmm_fault_add(fault, rule, &id, &error) == VMM_OK, -1);
  return id;
}

static void expect_counts(vmm_driver *fault, int id, unsigned long long fired, unsigned long long matched) {
  unsigned long long f = 77, m = 77;
  CHECK_OK(vmm_fault_count(fault, id, &f, &m));
  CHECK_EQ(f, fired);
  CHECK_EQ(m, matched);
}

TEST(without_rules_every_call_passes) {
  vmm_driver *fault = make();
  unsigned long long handle = 0;
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 64, NULL, 0), 0);
  CHECK_EQ(handle, 0x1000);
  stub.answer[VMM_OP_mem_map] = 801;
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 64, 0, handle, 0), 801);
  CHECK_EQ(vmm_fault_opportunities(fault, VMM_OP_mem_map), 1);
  CHECK_EQ(vmm_fault_opportunities(fault, VMM_OP_ANY), 2);
  vmm_driver_release(fault);
  CHECK(stub.destroyed);
}

TEST(before_refuses_without_making_the_call) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_map, 600);
  int id = add(fault, &rule);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 64, 0, 5, 0), 600);
  CHECK_EQ(stub.count[VMM_OP_mem_map], 0);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 64, 0, 5, 0), 0);
  CHECK_EQ(stub.count[VMM_OP_mem_map], 1);
  CHECK_CALL(expect_counts(fault, id, 1, 2));
  vmm_driver_release(fault);
}

TEST(occurrence_and_times_choose_the_calls) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_unmap, 1);
  rule.occurrence = 3;
  rule.times = 2;
  int id = add(fault, &rule);
  for (int i = 1; i <= 6; i++) CHECK_EQ(vmm_raw_mem_unmap(fault, 1, 1), i == 3 || i == 4 ? 1 : 0);
  CHECK_CALL(expect_counts(fault, id, 2, 6));
  CHECK_OK(vmm_fault_clear(fault));
  rule.occurrence = 0;
  rule.times = VMM_FAULT_FOR_EVER;
  add(fault, &rule);
  for (int i = 0; i < 100; i++) CHECK_EQ(vmm_raw_mem_unmap(fault, 1, 1), 1);
  vmm_driver_release(fault);
}

TEST(after_makes_the_call_and_then_fails) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_map, 999);
  rule.phase = VMM_FAULT_AFTER;
  int id = add(fault, &rule);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 64, 0, 5, 0), 999);
  CHECK_EQ(stub.count[VMM_OP_mem_map], 1);
  CHECK_CALL(expect_counts(fault, id, 1, 1));
  vmm_driver_release(fault);
}

TEST(after_does_not_fire_on_a_call_that_fails_by_itself) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_map, 999);
  rule.phase = VMM_FAULT_AFTER;
  rule.sticky = 1;
  int id = add(fault, &rule);
  stub.answer[VMM_OP_mem_map] = 2;
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 64, 0, 5, 0), 2);
  CHECK_CALL(expect_counts(fault, id, 0, 1));
  CHECK_EQ(vmm_raw_mem_unmap(fault, 1, 64), 0);
  vmm_driver_release(fault);
}

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

TEST(a_lie_answers_success_and_clears_what_would_have_been_written) {
  vmm_driver *fault = make();
  size_t free_bytes = 5, total = 5;
  unsigned long long handle = 5;
  int mode = 2;
  vmm_fault_rule rule = rule_for(VMM_OP_ANY, 0);
  rule.phase = VMM_FAULT_LIE;
  rule.times = VMM_FAULT_FOR_EVER;
  add(fault, &rule);
  CHECK_EQ(vmm_raw_mem_get_info(fault, &free_bytes, &total), 0);
  CHECK_EQ(vmm_raw_mem_create(fault, &handle, 64, NULL, 0), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 64, NULL, 0), 0);
  CHECK_EQ(vmm_raw_capture_mode(fault, &mode), 0);
  CHECK(free_bytes == 0 && total == 0 && handle == 0 && mode == 2);
  CHECK_EQ(stub.count[VMM_OP_mem_get_info] + stub.count[VMM_OP_mem_create] + stub.count[VMM_OP_mem_set_access], 0);
  vmm_driver_release(fault);
}

TEST(no_lie_about_creation_over_the_cuda_driver) {
  vmm_driver *fault = make_over(VMM__DRIVER_CUDA);
  vmm_fault_rule rule = rule_for(VMM_OP_mem_create, 0);
  vmm_error error;
  rule.phase = VMM_FAULT_LIE;
  CHECK_STATUS(vmm_fault_add(fault, &rule, NULL, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "CUDA") != NULL);
  rule.op = VMM_OP_ANY;
  CHECK_STATUS(vmm_fault_add(fault, &rule, NULL, &error), VMM_ERROR_INVALID_ARGUMENT);
  rule.op = VMM_OP_mem_set_access;
  CHECK_OK(vmm_fault_add(fault, &rule, NULL, &error));
  vmm_driver_release(fault);
}

/* `count` mappings of one granule each from `base` on, each with a handle of its own. */
static void map_granules(vmm_driver *fault, unsigned long long base, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    unsigned long long handle;
    CHECK_EQ(vmm_raw_mem_create(fault, &handle, 0x1000, NULL, 0), 0);
    CHECK_EQ(vmm_raw_mem_map(fault, base + i * 0x1000, 0x1000, 0, handle, 0), 0);
  }
}

TEST(partial_does_the_first_half_of_the_mappings) {
  vmm_driver *fault = make();
  vmm_raw_access access[2] = {{1, 0, 3}, {1, 1, 3}};
  CHECK_CALL(map_granules(fault, 0x10000, 5));
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READY:partial,cuMemUnmap:1:partial", NULL));
  CHECK_EQ(vmm_raw_mem_set_access(fault, 0x11000, 0x4000, access, 2), 600);
  CHECK_EQ(stub.count[VMM_OP_mem_set_access], 1);
  CHECK_EQ(stub.last[VMM_OP_mem_set_access].address, 0x11000);
  CHECK_EQ(stub.last[VMM_OP_mem_set_access].size, 0x2000);
  CHECK(stub.last[VMM_OP_mem_set_access].access == access);
  CHECK_EQ(stub.last[VMM_OP_mem_set_access].access_count, 2);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x10000, 0x5000), 1);
  CHECK_EQ(stub.last[VMM_OP_mem_unmap].size, 0x2000);
  vmm_driver_release(fault);
}

TEST(partial_of_one_mapping_does_nothing) {
  vmm_driver *fault = make();
  vmm_raw_access access = {1, 0, 3};
  CHECK_CALL(map_granules(fault, 0x10000, 1));
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:2:partial", NULL));
  CHECK_EQ(vmm_raw_mem_set_access(fault, 0x10000, 0x1000, &access, 1), 2);
  CHECK_EQ(stub.count[VMM_OP_mem_set_access], 0);
  vmm_driver_release(fault);
}

TEST(the_first_rule_that_fires_decides_and_each_counts_for_itself) {
  vmm_driver *fault = make();
  vmm_fault_rule second = rule_for(VMM_OP_ANY, 999);
  vmm_fault_rule first = rule_for(VMM_OP_mem_map, 600);
  first.occurrence = 2;
  second.times = VMM_FAULT_FOR_EVER;
  int a = add(fault, &first);
  int b = add(fault, &second);
  CHECK(a != b);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 999);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 600);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 1, 1), 999);
  CHECK_CALL(expect_counts(fault, a, 1, 2));
  CHECK_CALL(expect_counts(fault, b, 2, 3));
  vmm_driver_release(fault);
}

TEST(range_and_object_narrow_a_rule) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_ANY, 1);
  rule.times = VMM_FAULT_FOR_EVER;
  rule.address = 0x2000;
  rule.size = 0x1000;
  add(fault, &rule);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x1000, 0x1000), 0);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x1000, 0x1001), 1);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x2fff, 0x1000), 1);
  CHECK_EQ(vmm_raw_mem_unmap(fault, 0x3000, 0x1000), 0);
  CHECK_EQ(vmm_raw_mem_release(fault, 0x2000), 0);
  CHECK_OK(vmm_fault_clear(fault));
  rule.address = rule.size = 0;
  rule.object = 7;
  rule.match_object = 1;
  add(fault, &rule);
  CHECK_EQ(vmm_raw_mem_release(fault, 6), 0);
  CHECK_EQ(vmm_raw_mem_release(fault, 7), 1);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 7, 0), 1);
  vmm_driver_release(fault);
}

static void *release_once(void *data) { return (void *)(size_t)vmm_raw_mem_release(data, 1); }

TEST(a_rule_for_one_thread_leaves_the_others_alone) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_release, 1);
  pthread_t thread;
  void *answer = fault;
  rule.thread = vmm_fault_thread();
  CHECK(rule.thread != 0);
  rule.times = VMM_FAULT_FOR_EVER;
  add(fault, &rule);
  CHECK_EQ(pthread_create(&thread, NULL, release_once, fault), 0);
  CHECK_EQ(pthread_join(thread, &answer), 0);
  CHECK(answer == NULL);
  CHECK_EQ(vmm_raw_mem_release(fault, 1), 1);
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

static void *many_maps(void *data) {
  size_t failed = 0;
  for (int i = 0; i < 500; i++) failed += vmm_raw_mem_map(data, 1, 1, 0, 1, 0) == 600;
  return (void *)failed;
}

TEST(threads_share_the_count_of_a_rule) {
  vmm_driver *fault = make();
  vmm_fault_rule rule = rule_for(VMM_OP_mem_map, 600);
  pthread_t threads[4];
  size_t failed = 0;
  rule.occurrence = 100;
  rule.times = 700;
  int id = add(fault, &rule);
  for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, many_maps, fault), 0);
  for (int i = 0; i < 4; i++) {
    void *result;
    CHECK_EQ(pthread_join(threads[i], &result), 0);
    failed += (size_t)result;
  }
  CHECK_EQ(failed, 700);
  CHECK_CALL(expect_counts(fault, id, 700, 2000));
  CHECK_EQ(stub.count[VMM_OP_mem_map], 1300);
  vmm_driver_release(fault);
}

static void expect_refused(vmm_driver *fault, vmm_fault_rule rule, const char *why) {
  vmm_error error;
  CHECK_STATUS(vmm_fault_add(fault, &rule, NULL, &error), VMM_ERROR_INVALID_ARGUMENT);
  if (strstr(error.message, why) == NULL) CHECK_STR(error.message, why);
}

TEST(wrong_rules_are_refused) {
  vmm_driver *fault = make();
  vmm_fault_rule good = rule_for(VMM_OP_mem_map, 600), rule;
  vmm_error error;
  rule = good, rule.op = VMM_OP_COUNT;
  CHECK_CALL(expect_refused(fault, rule, "op"));
  rule = good, rule.op = -2;
  CHECK_CALL(expect_refused(fault, rule, "op"));
  rule = good, rule.phase = 4;
  CHECK_CALL(expect_refused(fault, rule, "phase"));
  rule = good, rule.condition = -1;
  CHECK_CALL(expect_refused(fault, rule, "condition"));
  rule = good, rule.code = -1;
  CHECK_CALL(expect_refused(fault, rule, "code"));
  rule = good, rule.code = 0;
  CHECK_CALL(expect_refused(fault, rule, "does nothing"));
  rule = good, rule.phase = VMM_FAULT_PARTIAL;
  CHECK_CALL(expect_refused(fault, rule, "in part"));
  rule = good, rule.reserved = 1;
  CHECK_CALL(expect_refused(fault, rule, "reserved"));
  rule = good, rule.sticky = 1, rule.phase = VMM_FAULT_LIE;
  CHECK_CALL(expect_refused(fault, rule, "sticky"));
  rule = good, rule.struct_size = 8;
  CHECK_STATUS(vmm_fault_add(fault, &rule, NULL, &error), VMM_ERROR_VERSION);
  CHECK_STATUS(vmm_fault_add(fault, NULL, NULL, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_add(&stub.base, &good, NULL, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_rule_init(NULL, sizeof rule), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_rule_init(&rule, 4), VMM_ERROR_VERSION);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  vmm_driver_release(fault);
}

TEST(what_is_no_fault_wrapper_is_told) {
  stub_driver plain;
  vmm_driver *driver = &plain.base;
  size_t count;
  vmm_error error;
  stub_init(&plain, VMM__DRIVER_SIM);
  CHECK_STATUS(vmm_fault_create(NULL, &plain.base, 0, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_create(&driver, NULL, 0, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(driver == NULL);
  CHECK_STATUS(vmm_fault_clear(&plain.base), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_count(&plain.base, 1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_get_orphans(&plain.base, NULL, 0, &count), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_release_orphans(&plain.base), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_fault_add_text(&plain.base, "cuMemMap:1", &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(vmm_fault_opportunities(&plain.base, VMM_OP_ANY), 0);
}

RUN_TESTS()
