/* The operation table, the common part of drivers, and the raw calls. */
#include "check.h"
#include "driver/ops.h"
#include "stub_driver.h"

TEST(every_operation_has_distinct_names_that_lead_back_to_it) {
  for (int op = 0; op < VMM_OP_COUNT; op++) {
    const vmm__op_info *info = vmm__op_info_of(op);
    CHECK(info != NULL);
    CHECK_STR(vmm_op_symbol(op), info->symbol);
    CHECK_EQ(vmm_op_from_name(info->symbol), op);
    CHECK_EQ(vmm_op_from_name(info->name), op);
    bool ours = strncmp(info->symbol, "vmm.", 4) == 0;
    CHECK(ours || strncmp(info->symbol, "cu", 2) == 0);
    CHECK_EQ(info->since != 0, !ours);
    CHECK(strlen(info->symbol) < sizeof((vmm_error *)0)->call);
  }
}

TEST(numbers_and_names_outside_the_table_are_answered) {
  CHECK_STR(vmm_op_symbol(-1), "?");
  CHECK_STR(vmm_op_symbol(VMM_OP_COUNT), "?");
  CHECK(vmm__op_info_of(-1) == NULL);
  CHECK(vmm__op_info_of(VMM_OP_COUNT) == NULL);
  CHECK_EQ(vmm_op_from_name("cuMemCreates"), -1);
  CHECK_EQ(vmm_op_from_name(""), -1);
  CHECK_EQ(vmm_op_from_name(NULL), -1);
}

TEST(the_library_needs_what_growth_is_made_of) {
  CHECK_EQ(vmm__op_info_of(VMM_OP_mem_set_access)->need, VMM__NEED_REQUIRED);
  CHECK_EQ(vmm__op_info_of(VMM_OP_mem_unmap)->need, VMM__NEED_REQUIRED);
  CHECK_EQ(vmm__op_info_of(VMM_OP_ctx_record_event)->need, VMM__NEED_OPTIONAL);
  CHECK_EQ(vmm__op_info_of(VMM_OP_kernel_trap)->need, VMM__NEED_TEST);
}

TEST(creating_and_giving_back_exclude_each_other) {
  for (int op = 0; op < VMM_OP_COUNT; op++) {
    CHECK(!(vmm__op_creates(op) && vmm__op_gives_back(op)));
    CHECK(!(vmm__op_gives_back(op) && vmm__op_outside_context(op)));
  }
}

TEST(a_raw_call_passes_arguments_and_answer_on) {
  stub_driver stub;
  unsigned long long address = 0;
  stub_init(&stub, VMM__DRIVER_SIM);
  CHECK_EQ(vmm_raw_mem_reserve(&stub.base, &address, 4096, 64, 0x7000, 0), 0);
  CHECK_EQ(address, 0x1000);
  CHECK_EQ(stub.last[VMM_OP_mem_reserve].size, 4096);
  CHECK_EQ(stub.last[VMM_OP_mem_reserve].address, 0x7000);
  stub.answer[VMM_OP_mem_unmap] = 4242;
  CHECK_EQ(vmm_raw_mem_unmap(&stub.base, 1, 2), 4242);
  CHECK_EQ(vmm_raw_ctx_synchronize(&stub.base), 0);
  CHECK_EQ(stub.count[VMM_OP_ctx_synchronize], 1);
}

TEST(a_missing_function_answers_not_found) {
  static const vmm__driver_table empty;
  vmm_driver driver;
  int value = 7;
  vmm__driver_init(&driver, VMM__DRIVER_CUDA, &empty, &driver, NULL);
  CHECK_EQ(vmm_raw_init(&driver, 0), VMM_CODE_NOT_FOUND);
  CHECK_EQ(vmm_raw_device_count(&driver, &value), VMM_CODE_NOT_FOUND);
  CHECK_EQ(value, 7);
  CHECK_EQ(vmm_raw_kernel_trap(&driver, NULL), VMM_CODE_NOT_FOUND);
}

TEST(wrappers_hold_what_is_below_them) {
  stub_driver stub;
  vmm_driver *fault, *record;
  char name[64];
  stub_init(&stub, VMM__DRIVER_SIM);
  CHECK_OK(vmm_fault_create(&fault, &stub.base, 0, NULL));
  CHECK_OK(vmm_record_create(&record, fault, 0, NULL));
  vmm_driver_release(fault);
  vmm_driver_release(&stub.base);
  CHECK(!stub.destroyed);
  CHECK_OK(vmm_driver_name(record, name, sizeof name));
  CHECK_STR(name, "record(fault(sim))");
  CHECK_OK(vmm_driver_name(record, name, 8));
  CHECK_STR(name, "record(");
  CHECK_STATUS(vmm_driver_name(record, name, 0), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_driver_name(NULL, name, sizeof name), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(vmm__driver_find(record, VMM__DRIVER_SIM) == &stub.base);
  CHECK(vmm__driver_find(record, VMM__DRIVER_RECORD) == record);
  CHECK(vmm__driver_find(record, VMM__DRIVER_CUDA) == NULL);
  vmm_driver_retain(record);
  vmm_driver_release(record);
  CHECK(!stub.destroyed);
  vmm_driver_release(record);
  CHECK(stub.destroyed);
  vmm_driver_release(NULL);
}

TEST(clock_and_properties_come_from_the_lowest_driver) {
  stub_driver stub;
  vmm_driver *fault, *record;
  stub_init(&stub, VMM__DRIVER_SIM);
  CHECK_OK(vmm_fault_create(&fault, &stub.base, 0, NULL));
  CHECK_OK(vmm_record_create(&record, fault, 0, NULL));
  vmm_driver_wait(record, 1500);
  CHECK_EQ(vmm_driver_now(record), 1500);
  CHECK_EQ(vmm_driver_now(&stub.base), 1500);
  CHECK(vmm__driver_has(record, VMM_OP_mem_create));
  CHECK(!vmm__driver_has(record, VMM_OP_ctx_record_event));
  CHECK(!vmm__driver_has(record, -1));
  CHECK(!vmm__driver_has(record, VMM_OP_COUNT));
  CHECK(record->table->is_wsl(record->self));
  vmm_driver_release(record);
  vmm_driver_release(fault);
}

TEST(pattern_words_are_those_of_splitmix64) {
  /* the first outputs of the generator seeded with 1234567, as published with it */
  static const unsigned long long expected[] = {6457827717110365317ull, 3203168211198807973ull, 9817491932198370423ull};
  for (unsigned i = 0; i < 3; i++) CHECK_EQ(vmm_pattern_word(1234567, i), (unsigned)(expected[i] >> 32));
  CHECK(vmm_pattern_word(1, 0) != vmm_pattern_word(2, 0));
}

RUN_TESTS()
