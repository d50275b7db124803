/* Every kind of misuse the simulator reports, and that clean programs are not accused. */
#include "sim_world.h"

static size_t total(vmm_driver *driver) {
  size_t count = 999;
  CHECK_OK_RETURN(vmm_sim_get_misuse(driver, NULL, 0, &count), 999);
  return count;
}

TEST(map_past_the_end_and_unmap_over_holes) {
  vmm_driver *driver = sim_open(NULL);
  u64 address = sim_reserve(driver, 4 * GRANULE), two = sim_handle(driver, 2 * GRANULE);
  vmm_sim_misuse entry;

  OK(vmm_raw_mem_map(driver, address + 2 * GRANULE, 2 * GRANULE, 0, two, 0));
  CHECK_EQ(total(driver), 0);
  OK(vmm_raw_mem_unmap(driver, address + 2 * GRANULE, 2 * GRANULE));
  CHECK_EQ(total(driver), 0);
  OK(vmm_raw_mem_map(driver, address + 3 * GRANULE, 2 * GRANULE, 0, two, 0));
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_MAP_PAST_END), 1);
  CHECK_EQ(vmm_raw_mem_address_free(driver, address, 4 * GRANULE), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_FREE_MAPPED), 1);
  OK(vmm_raw_mem_unmap(driver, address + 2 * GRANULE, 3 * GRANULE));
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_UNMAP_HOLE), 1);
  CHECK_OK(vmm_sim_get_misuse(driver, &entry, 1, NULL));
  CHECK_EQ(entry.kind, VMM_SIM_MISUSE_MAP_PAST_END);
  CHECK_EQ(entry.op, VMM_OP_mem_map);
  CHECK_EQ(entry.address, address + 3 * GRANULE);
  CHECK_EQ(entry.size, 2 * GRANULE);
  CHECK(entry.time_ns != 0 && entry.text[0] != 0);
  CHECK_EQ(sim_ledger(driver, 0).misuse, 3);
  CHECK_OK(vmm_sim_clear_misuse(driver));
  CHECK_EQ(total(driver), 0);
  vmm_driver_release(driver);
}

TEST(what_was_given_back_before_counts_apart) {
  vmm_driver *driver = sim_open(NULL);
  void *event = sim_event(driver);
  u64 plain = 0;
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  CHECK_CALL(sim_unmake(driver, &range));
  CHECK_EQ(vmm_raw_mem_release(driver, range.handle), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_address_free(driver, range.address, range.size), VMM_CODE_INVALID_VALUE);
  OK(vmm_raw_event_destroy(driver, event));
  CHECK_EQ(vmm_raw_event_destroy(driver, event), VMM_CODE_INVALID_HANDLE);
  OK(vmm_raw_mem_alloc(driver, &plain, 1));
  OK(vmm_raw_mem_free(driver, plain));
  CHECK_EQ(vmm_raw_mem_free(driver, plain), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(sim_ledger(driver, 0).double_releases, 4);
  CHECK_EQ(sim_ledger(driver, 0).misuse, 0);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_DOUBLE_RELEASE), 4);
  vmm_driver_release(driver);
}

TEST(dead_and_foreign_streams_events_and_contexts) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1), *event = sim_event(driver), *first = NULL, *second = NULL, *theirs;

  OK(vmm_raw_ctx_get_current(driver, &first));
  OK(vmm_raw_ctx_create(driver, &second, 0, 0));
  theirs = sim_event(driver);
  CHECK_EQ(vmm_raw_event_record(driver, theirs, stream), VMM_CODE_INVALID_HANDLE);
  CHECK_EQ(vmm_raw_kernel_spin(driver, stream, 1), VMM_CODE_INVALID_HANDLE); /* not of the current context */
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_FOREIGN), 2);
  OK(vmm_raw_ctx_destroy(driver, second));
  CHECK_EQ(vmm_raw_event_record(driver, theirs, stream), VMM_CODE_INVALID_HANDLE);
  CHECK_EQ(vmm_raw_ctx_push(driver, second), VMM_CODE_INVALID_CONTEXT);
  OK(vmm_raw_stream_destroy(driver, stream));
  CHECK_EQ(vmm_raw_event_record(driver, event, stream), VMM_CODE_INVALID_HANDLE);
  CHECK_EQ(vmm_raw_stream_query(driver, (void *)0x123456), VMM_CODE_INVALID_HANDLE);
  CHECK_EQ(vmm_raw_stream_destroy(driver, NULL), VMM_CODE_INVALID_HANDLE);
  OK(vmm_raw_event_destroy(driver, event));
  CHECK_EQ(vmm_raw_event_query(driver, event), VMM_CODE_INVALID_HANDLE);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_DEAD_STREAM), 5);
  vmm_driver_release(driver);
}

TEST(blocking_counts_only_while_it_is_forbidden) {
  vmm_driver *driver = sim_open(NULL);
  void *event = sim_event(driver);

  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(total(driver), 0);
  CHECK_OK(vmm_sim_forbid_blocking(driver, 1));
  OK(vmm_raw_ctx_synchronize(driver));
  OK(vmm_raw_stream_synchronize(driver, NULL));
  OK(vmm_raw_event_synchronize(driver, event));
  OK(vmm_raw_event_query(driver, event));
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_BLOCKING_SYNC), 3);
  CHECK_OK(vmm_sim_forbid_blocking(driver, 0));
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(total(driver), 3);
  vmm_driver_release(driver);
}

TEST(unmapping_under_queued_work_is_a_race_and_ends_the_context) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1);
  sim_range used, idle;

  CHECK_CALL(used = sim_make(driver, GRANULE));
  CHECK_CALL(idle = sim_make(driver, GRANULE));
  OK(vmm_raw_kernel_spin(driver, stream, 1000000));
  OK(vmm_raw_kernel_fill(driver, stream, used.address, 4096, 1));
  OK(vmm_raw_mem_unmap(driver, idle.address, idle.size));
  CHECK_EQ(total(driver), 0);
  OK(vmm_raw_mem_unmap(driver, used.address, used.size));
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_RACE), 1);
  CHECK_EQ(vmm_raw_stream_synchronize(driver, stream), VMM_CODE_ILLEGAL_ADDRESS);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_TOUCH), 1);
  CHECK_EQ(vmm_raw_ctx_synchronize(driver), VMM_CODE_ILLEGAL_ADDRESS);
  vmm_driver_release(driver);
}

TEST(revoking_under_queued_work_is_a_race_granting_again_is_none) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1);
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_kernel_spin(driver, stream, 1000000));
  OK(vmm_raw_kernel_fill(driver, stream, range.address, 4096, 1));
  OK(sim_access(driver, range.address, range.size, 0, 3));
  CHECK_EQ(total(driver), 0);
  OK(sim_access(driver, range.address, range.size, 0, 0));
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_RACE), 1);
  OK(sim_access(driver, range.address, range.size, 0, 3)); /* in time: the work finds access */
  OK(vmm_raw_stream_synchronize(driver, stream));
  OK(vmm_raw_mem_unmap(driver, range.address, range.size)); /* done by now */
  CHECK_EQ(total(driver), 1);
  vmm_driver_release(driver);
}

TEST(a_bogus_handle_is_refused_where_the_real_driver_crashes) {
  vmm_driver *driver = sim_open(NULL);
  u64 address = sim_reserve(driver, GRANULE), handle = sim_handle(driver, GRANULE);

  CHECK_EQ(vmm_raw_mem_map(driver, address, GRANULE, 0, 0xdeadbeef, 0), VMM_CODE_INVALID_VALUE);
  OK(vmm_raw_mem_release(driver, handle));
  CHECK_EQ(vmm_raw_mem_map(driver, address, GRANULE, 0, handle, 0), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_release(driver, 0xdeadbeef), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_BOGUS_HANDLE), 3);
  CHECK_EQ(sim_ledger(driver, 0).mappings, 0);
  vmm_driver_release(driver);
}

/* Queues a fill over memory without access and waits; the code of launch * 1000 + that of the wait. */
static int touch(int mode, unsigned int *word) {
  vmm_sim_options options = sim_defaults();
  vmm_driver *driver;
  sim_range range;
  int code;

  options.touch = mode;
  driver = sim_open(&options);
  CHECK_CALL_RETURN(range = sim_make(driver, GRANULE), -1);
  CHECK_EQ_RETURN(sim_access(driver, range.address, range.size, 0, 0), VMM_CODE_SUCCESS, -1);
  code = 1000 * vmm_raw_kernel_fill(driver, NULL, range.address, 64, 1);
  code += vmm_raw_ctx_synchronize(driver);
  *word = 0xBAD0BAD0u;
  if (mode == VMM_SIM_TOUCH_ZERO) code += 100000 * vmm_raw_memcpy_dtoh(driver, word, range.address, 4);
  if (mode == VMM_SIM_TOUCH_REFUSED) CHECK_EQ_RETURN(sim_misuses(driver, VMM_SIM_MISUSE_TOUCH), 0, -1);
  vmm_driver_release(driver);
  return code;
}

TEST(touching_without_access_goes_by_the_mode) {
  unsigned int word;

  CHECK_EQ(touch(VMM_SIM_TOUCH_LOST, &word), VMM_CODE_ILLEGAL_ADDRESS);
  CHECK_EQ(touch(VMM_SIM_TOUCH_REFUSED, &word), 1000 * VMM_CODE_INVALID_VALUE);
  CHECK_EQ(touch(VMM_SIM_TOUCH_ZERO, &word), 0);
  CHECK_EQ(word, 0);
}

TEST(the_list_keeps_256_and_counts_on) {
  vmm_driver *driver = sim_open(NULL);
  u64 address = sim_reserve(driver, GRANULE);
  vmm_sim_misuse entries[2];
  size_t count = 0;

  for (int i = 0; i < 300; i++) OK(vmm_raw_mem_unmap(driver, address, GRANULE));
  CHECK_OK(vmm_sim_get_misuse(driver, entries, 2, &count));
  CHECK_EQ(count, 300);
  CHECK_EQ(entries[1].kind, VMM_SIM_MISUSE_UNMAP_HOLE);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_UNMAP_HOLE), 256);
  vmm_driver_release(driver);
}

RUN_TESTS()
