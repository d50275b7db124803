/* The fault wrapper: phases, counting, which calls a rule matches, threads, wrong rules. */
#include "fault_help.h"

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
