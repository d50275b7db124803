/* The simulator's switches: NOT_READY modes, versions, several devices, fork, wrong options. */
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_world.h"

/* Maps the next granule of a reservation and sets access; what set-access said. */
static int grow(vmm_driver *driver, u64 *next, int *mapped) {
  u64 handle, at = *next;
  int code;

  CHECK_CALL_RETURN(handle = sim_handle(driver, GRANULE), -1);
  CHECK_EQ_RETURN(vmm_raw_mem_map(driver, at, GRANULE, 0, handle, 0), VMM_CODE_SUCCESS, -1);
  *next += GRANULE;
  if (mapped != NULL) ++*mapped;
  code = sim_access(driver, at, GRANULE, 0, 3);
  return code;
}

TEST(pending_work_makes_set_access_not_ready_until_it_is_done) {
  vmm_driver *driver = sim_open(NULL);
  u64 next = sim_reserve(driver, 16 * GRANULE);

  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_PENDING, 0));
  OK(grow(driver, &next, NULL));
  OK(vmm_raw_kernel_spin(driver, NULL, 1000000));
  CHECK_EQ(grow(driver, &next, NULL), VMM_CODE_NOT_READY);
  CHECK_EQ(sim_ledger(driver, 0).accessible_bytes, GRANULE);
  vmm_driver_wait(driver, 1000000);
  OK(sim_access(driver, next - GRANULE, GRANULE, 0, 3));
  CHECK_EQ(sim_ledger(driver, 0).not_ready, 1);
  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_NEVER, 0));
  OK(vmm_raw_kernel_spin(driver, NULL, 1000000));
  OK(grow(driver, &next, NULL));
  vmm_driver_release(driver);
}

TEST(an_intruder_beats_a_sync_but_not_a_retry) {
  vmm_driver *driver = sim_open(NULL);
  u64 next = sim_reserve(driver, 16 * GRANULE);

  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_INTRUDER, 3));
  OK(grow(driver, &next, NULL)); /* nobody waited yet */
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(grow(driver, &next, NULL), VMM_CODE_NOT_READY);
  CHECK_EQ(sim_ledger(driver, 0).pending, 3);
  OK(vmm_raw_ctx_synchronize(driver));
  OK(sim_access(driver, next - GRANULE, GRANULE, 0, 3)); /* no map in between */
  CHECK_EQ(grow(driver, &next, NULL), VMM_CODE_NOT_READY);
  vmm_driver_release(driver);
}

TEST(a_residency_budget_yields_to_giving_back_only) {
  vmm_driver *driver = sim_open(NULL);
  u64 next = sim_reserve(driver, 16 * GRANULE), spare;

  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_RESIDENCY, 2 * GRANULE));
  OK(grow(driver, &next, NULL));
  spare = sim_handle(driver, GRANULE);
  CHECK_EQ(grow(driver, &next, NULL), VMM_CODE_NOT_READY);
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(sim_access(driver, next - GRANULE, GRANULE, 0, 3), VMM_CODE_NOT_READY);
  OK(vmm_raw_mem_release(driver, spare));
  OK(sim_access(driver, next - GRANULE, GRANULE, 0, 3));
  vmm_driver_release(driver);
}

TEST(after_an_eviction_the_first_one_fails) {
  vmm_driver *driver = sim_open(NULL);
  u64 next = sim_reserve(driver, 16 * GRANULE);

  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_EVICTED, 0));
  OK(grow(driver, &next, NULL));
  OK(vmm_raw_mem_unmap(driver, next - GRANULE, GRANULE));
  CHECK_EQ(grow(driver, &next, NULL), VMM_CODE_NOT_READY);
  OK(sim_access(driver, next - GRANULE, GRANULE, 0, 3));
  OK(grow(driver, &next, NULL));
  vmm_driver_release(driver);
}

TEST(the_first_k_fail_and_random_ones_follow_their_probability) {
  vmm_driver *driver = sim_open(NULL);
  u64 next = sim_reserve(driver, 16 * GRANULE);
  vmm_raw_prop prop = sim_prop(0);
  int failed = 0;

  OK(grow(driver, &next, NULL));
  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_FIRST, 2));
  CHECK_EQ(sim_access(driver, next - GRANULE, GRANULE, 0, 3), VMM_CODE_NOT_READY);
  CHECK_EQ(sim_access(driver, next - GRANULE, GRANULE, 0, 3), VMM_CODE_NOT_READY);
  OK(sim_access(driver, next - GRANULE, GRANULE, 0, 3));
  CHECK_OK(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_RANDOM, 1u << 30));
  for (int i = 0; i < 1000; i++) {
    u64 handle = 0;
    int code = vmm_raw_mem_create(driver, &handle, GRANULE, &prop, 0);
    CHECK(code == VMM_CODE_SUCCESS || code == VMM_CODE_NOT_READY);
    failed += code != VMM_CODE_SUCCESS;
  }
  CHECK(failed > 150 && failed < 350);
  CHECK_EQ(sim_ledger(driver, 0).not_ready, 2 + (u64)failed);
  CHECK_STATUS(vmm_sim_set_not_ready(driver, 1, 0, 0), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_sim_set_not_ready(driver, 0, 7, 0), VMM_ERROR_INVALID_ARGUMENT);
  vmm_driver_release(driver);
}

TEST(devices_are_apart_and_peers_go_by_the_matrix) {
  vmm_sim_options options = sim_defaults();
  vmm_raw_access both[2] = {{1, 0, 3}, {1, 1, 3}};
  vmm_raw_location second = {1, 1};
  void *context = NULL;
  vmm_driver *driver;
  u64 flags = 9;
  int can = 9;
  sim_range range;

  options.device_count = 3;
  options.peers = 1ull << (8 * 1 + 0); /* device 1 reaches device 0's memory, nobody else reaches anything */
  driver = sim_open(&options);
  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_device_can_access_peer(driver, &can, 1, 0));
  CHECK_EQ(can, 1);
  OK(vmm_raw_device_can_access_peer(driver, &can, 0, 1));
  CHECK_EQ(can, 0);
  CHECK_EQ(sim_access(driver, range.address, range.size, 2, 3), VMM_CODE_INVALID_VALUE);
  OK(vmm_raw_mem_set_access(driver, range.address, range.size, both, 2));
  OK(sim_access(driver, range.address, range.size, 0, 1)); /* the other's rights stay */
  OK(vmm_raw_mem_get_access(driver, &flags, &second, range.address));
  CHECK_EQ(flags, 3);
  OK(vmm_raw_primary_retain(driver, &context, 1));
  OK(vmm_raw_ctx_push(driver, context));
  OK(vmm_raw_kernel_fill(driver, NULL, range.address, 64, 5)); /* device 1 writes device 0's memory */
  CHECK_EQ(sim_ledger(driver, 1).pending, 1);
  CHECK_EQ(sim_ledger(driver, 0).pending, 0);
  OK(vmm_raw_ctx_synchronize(driver));
  OK(vmm_raw_ctx_pop(driver, &context));
  CHECK_EQ(sim_word(driver, range.address), vmm_pattern_word(5, 0));
  CHECK_EQ(sim_ledger(driver, 1).handles, 0);
  CHECK_EQ(sim_ledger(driver, 1).primary_references, 1);
  CHECK_EQ(sim_ledger(driver, 1).reservations, 1); /* addresses belong to the process */
  vmm_driver_release(driver);
}

TEST(an_older_or_poorer_driver_says_so) {
  vmm_sim_options options = sim_defaults();
  vmm_raw_prop prop = sim_prop(0);
  vmm_driver *driver;
  void *event;
  int value = 9, version = 0;
  size_t size = 0;

  options.driver_version = 12000;
  options.old_attributes = 1;
  driver = sim_open(&options);
  event = sim_event(driver);
  OK(vmm_raw_driver_version(driver, &version));
  CHECK_EQ(version, 12000);
  CHECK_EQ(vmm_raw_ctx_record_event(driver, NULL, event), VMM_CODE_NOT_FOUND);
  OK(vmm_raw_device_attribute(driver, &value, 102, 0));
  CHECK_EQ(value, 1);
  CHECK_EQ(vmm_raw_device_attribute(driver, &value, 128, 0), VMM_CODE_INVALID_VALUE);
  vmm_driver_release(driver);
  options = sim_defaults();
  options.no_vmm = 1;
  driver = sim_open(&options);
  OK(vmm_raw_device_attribute(driver, &value, 102, 0));
  CHECK_EQ(value, 0);
  CHECK_EQ(vmm_raw_mem_granularity(driver, &size, &prop, 0), VMM_CODE_NOT_SUPPORTED);
  vmm_driver_release(driver);
}

TEST(wrong_options_are_refused_and_name_themselves) {
  vmm_driver *driver = (vmm_driver *)8;
  vmm_sim_options options = sim_defaults();
  vmm_error error;

  options.device_count = 9;
  CHECK_STATUS(vmm_sim_create(&driver, &options, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(driver == NULL && strstr(error.message, "device_count") != NULL);
  options = sim_defaults();
  options.minimum_granularity = 6000;
  CHECK_STATUS(vmm_sim_create(&driver, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  options = sim_defaults();
  options.touch = 3;
  CHECK_STATUS(vmm_sim_create(&driver, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  options = sim_defaults();
  options.struct_size = 8;
  CHECK_STATUS(vmm_sim_create(&driver, &options, NULL), VMM_ERROR_VERSION);
  CHECK_STATUS(vmm_sim_create(NULL, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_sim_drain(NULL), VMM_ERROR_INVALID_ARGUMENT);
}

TEST(the_doors_open_through_wrappers) {
  vmm_driver *driver = sim_open(NULL), *fault = NULL, *record = NULL;
  sim_range range;
  void *view = NULL;

  CHECK_OK(vmm_fault_create(&fault, driver, 1, NULL));
  CHECK_OK(vmm_record_create(&record, fault, 0, NULL));
  CHECK_CALL(range = sim_make(record, GRANULE));
  CHECK_EQ(sim_ledger(record, 0).handles, 1);
  CHECK_OK(vmm_sim_view(record, range.address, 1, &view));
  CHECK_OK(vmm_sim_new_owner(record, range.address, 1));
  vmm_driver_release(driver);
  vmm_driver_release(fault);
  CHECK_EQ(sim_ledger(record, 0).handles, 1);
  vmm_driver_release(record);
}

static int in_child(vmm_driver *driver) {
  vmm_sim_ledger ledger = {.struct_size = sizeof ledger};
  vmm_driver *another = NULL;
  u64 address = 0;

  if (vmm_raw_mem_reserve(driver, &address, GRANULE, 0, 0, 0) != VMM_CODE_NOT_INITIALIZED) return 1;
  if (vmm_raw_init(driver, 0) != VMM_CODE_NOT_INITIALIZED) return 2;
  if (vmm_sim_get_ledger(driver, 0, &ledger) != VMM_ERROR_FORKED) return 3;
  if (vmm_sim_create(&another, NULL, NULL) != VMM_ERROR_FORKED || another != NULL) return 4;
  vmm_driver_wait(driver, 1000);
  return vmm_driver_now(driver) == 0 ? 0 : 5;
}

TEST(a_forked_child_is_told_and_the_parent_goes_on) {
  static vmm_driver *volatile driver; /* the child ends without giving it up: that is no leak */
  int status = -1;
  pid_t child;

  driver = sim_open(NULL);
  fflush(stdout);
  child = fork();
  if (child == 0) _exit(in_child(driver));
  CHECK(child > 0);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  CHECK(sim_reserve(driver, GRANULE) != 0);
  vmm_driver_release(driver);
  driver = NULL;
}

TEST(before_init_only_init_and_version_answer) {
  vmm_driver *driver = NULL;
  int value = 0;

  CHECK_OK(vmm_sim_create(&driver, NULL, NULL));
  OK(vmm_raw_driver_version(driver, &value));
  CHECK_EQ(vmm_raw_device_count(driver, &value), VMM_CODE_NOT_INITIALIZED);
  OK(vmm_raw_init(driver, 0));
  OK(vmm_raw_device_count(driver, &value));
  CHECK_EQ(value, 1);
  vmm_driver_release(driver);
}

RUN_TESTS()
