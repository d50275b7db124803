/* Rarer doors of the simulator: sharing, host memory, device queries, host functions and threads. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "driver/driver.h"
#include "sim_world.h"

static int map_imported(vmm_driver *driver, u64 handle, u64 *address) {
  CHECK_CALL_RETURN(*address = sim_reserve(driver, GRANULE), -1);
  CHECK_EQ_RETURN(vmm_raw_mem_map(driver, *address, GRANULE, 0, handle, 0), VMM_CODE_SUCCESS, -1);
  return sim_access(driver, *address, GRANULE, 0, 3);
}

TEST(exported_memory_is_the_same_memory_here_and_in_another_simulator) {
  vmm_driver *driver = sim_open(NULL), *other = sim_open(NULL);
  vmm_raw_prop prop = sim_prop(0);
  u64 handle = 0, again = 0, theirs = 0, mine, there;
  unsigned int word = 77;
  int fd = -1;

  prop.handle_types = 1;
  OK(vmm_raw_mem_create(driver, &handle, GRANULE, &prop, 0));
  OK(map_imported(driver, handle, &mine));
  OK(vmm_raw_mem_export(driver, &fd, handle, 1, 0));
  CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  OK(vmm_raw_mem_import(driver, &again, (void *)(intptr_t)fd, 1));
  CHECK_EQ(again, handle);
  CHECK_EQ(sim_ledger(driver, 0).references, 2);
  OK(vmm_raw_mem_import(other, &theirs, (void *)(intptr_t)fd, 1));
  CHECK_EQ(close(fd), 0);
  OK(map_imported(other, theirs, &there));
  OK(vmm_raw_memcpy_htod(driver, mine + 8, &word, 4));
  CHECK_EQ(sim_word(other, there + 8), 77);
  word = 78;
  OK(vmm_raw_memcpy_htod(other, there + 8, &word, 4));
  vmm_driver_release(other);
  CHECK_EQ(sim_word(driver, mine + 8), 78);
  CHECK_EQ(vmm_raw_mem_import(driver, &theirs, (void *)(intptr_t)STDOUT_FILENO, 1), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_export(driver, &fd, 0xdeadbeef, 1, 0), VMM_CODE_INVALID_VALUE);
  vmm_driver_release(driver);
}

TEST(host_numa_memory_takes_no_device_memory_and_every_device_reaches_it) {
  vmm_sim_options options = sim_defaults();
  vmm_raw_prop prop = {1, 0, 3, 0, 0, 0};
  vmm_raw_access access[2] = {{3, 0, 3}, {1, 1, 3}};
  vmm_raw_location host = {3, 0}, nowhere = {1, 5};
  u64 handle = 0, address, flags = 9;
  vmm_driver *driver;

  options.device_count = 2;
  options.peers = 1ull << 63; /* nobody reaches anybody */
  driver = sim_open(&options);
  address = sim_reserve(driver, GRANULE);
  OK(vmm_raw_mem_create(driver, &handle, GRANULE, &prop, 0));
  CHECK_EQ(sim_ledger(driver, 0).free_bytes, 140ull << 30);
  OK(vmm_raw_mem_map(driver, address, GRANULE, 0, handle, 0));
  OK(vmm_raw_mem_set_access(driver, address, GRANULE, access, 2));
  OK(vmm_raw_mem_get_access(driver, &flags, &host, address));
  CHECK_EQ(flags, 3);
  CHECK_EQ(vmm_raw_mem_get_access(driver, &flags, &nowhere, address), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_create(driver, &handle, SIZE_MAX - GRANULE + 1, &prop, 0), VMM_CODE_OUT_OF_MEMORY);
  vmm_driver_release(driver);
}

TEST(devices_answer_what_they_are_asked) {
  vmm_sim_options options = sim_defaults();
  vmm_driver *driver;
  char name[8];
  size_t total = 0, free_bytes = 0;
  int value = 9;

  options.device_count = 2;
  options.wsl = 1;
  options.memory = 1ull << 33;
  driver = sim_open(&options);
  OK(vmm_raw_device_name(driver, name, sizeof name, 1));
  CHECK_STR(name, "Simulat");
  OK(vmm_raw_device_total_mem(driver, &total, 1));
  CHECK_EQ(total, 1ull << 33);
  OK(vmm_raw_mem_get_info(driver, &free_bytes, &total));
  CHECK_EQ(free_bytes, total);
  OK(vmm_raw_ctx_get_device(driver, &value));
  CHECK_EQ(value, 0);
  OK(vmm_raw_device_attribute(driver, &value, 75, 0)); /* compute capability */
  CHECK_EQ(value, 9);
  CHECK_EQ(vmm_raw_device_total_mem(driver, &total, 2), VMM_CODE_INVALID_DEVICE);
  CHECK_EQ(vmm_raw_device_get(driver, &value, -1), VMM_CODE_INVALID_DEVICE);
  CHECK(driver->table->is_wsl(driver->self));
  CHECK(driver->table->has(driver->self, VMM_OP_ctx_record_event));
  CHECK(!driver->table->has(driver->self, VMM_OP_COUNT));
  vmm_driver_release(driver);
}

TEST(pinned_memory_freed_under_a_copy_is_a_race_and_stays_until_it_is_done) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1), *pinned = NULL;
  u64 plain = 0;

  OK(vmm_raw_mem_alloc(driver, &plain, 4096));
  OK(vmm_raw_mem_host_alloc(driver, &pinned, 4096, 0));
  OK(vmm_raw_kernel_spin(driver, stream, 1000000));
  OK(vmm_raw_memcpy_dtoh_async(driver, pinned, plain, 4096, stream));
  OK(vmm_raw_mem_host_free(driver, pinned));
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_RACE), 1);
  CHECK_EQ(sim_ledger(driver, 0).pending, 0);
  CHECK_EQ(vmm_raw_mem_host_free(driver, pinned), VMM_CODE_INVALID_VALUE);
  vmm_driver_release(driver);
}

TEST(the_touch_mode_can_be_switched) {
  vmm_driver *driver = sim_open(NULL);
  unsigned int word = 9;
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(sim_access(driver, range.address, GRANULE, 0, 0));
  CHECK_EQ(vmm_raw_memcpy_dtoh(driver, &word, range.address, 4), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(word, 9);
  CHECK_OK(vmm_sim_set_touch(driver, VMM_SIM_TOUCH_ZERO));
  OK(vmm_raw_memcpy_dtoh(driver, &word, range.address, 4));
  CHECK_EQ(word, 0);
  CHECK_EQ(sim_misuses(driver, VMM_SIM_MISUSE_TOUCH), 1);
  CHECK_STATUS(vmm_sim_set_touch(driver, 3), VMM_ERROR_INVALID_ARGUMENT);
  vmm_driver_release(driver);
}

TEST(captures_that_meet_are_both_invalid) {
  vmm_driver *driver = sim_open(NULL);
  void *a = sim_stream(driver, 1), *b = sim_stream(driver, 1), *event = sim_event(driver), *graph = NULL;

  OK(vmm_raw_stream_begin_capture(driver, a, 2));
  OK(vmm_raw_stream_begin_capture(driver, b, 2));
  OK(vmm_raw_event_record(driver, event, a));
  CHECK_EQ(vmm_raw_stream_wait_event(driver, b, event, 0), 902);
  CHECK_EQ(sim_ledger(driver, 0).captures_invalidated, 2);
  CHECK_EQ(vmm_raw_stream_end_capture(driver, a, &graph), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
  CHECK_EQ(vmm_raw_stream_end_capture(driver, b, &graph), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
  CHECK_EQ(vmm_raw_event_query(driver, event), VMM_CODE_CAPTURED_EVENT); /* until it is recorded again */
  OK(vmm_raw_event_record(driver, event, a));
  OK(vmm_raw_event_synchronize(driver, event));
  vmm_driver_release(driver);
}

TEST(a_graph_launched_into_a_capture_becomes_part_of_it) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1), *graph = NULL, *executable = NULL, *outer = NULL;
  u64 plain = 0;

  OK(vmm_raw_mem_alloc(driver, &plain, 4096));
  OK(vmm_raw_stream_begin_capture(driver, stream, 0));
  OK(vmm_raw_memset_d8_async(driver, plain, 3, 4, stream));
  OK(vmm_raw_stream_end_capture(driver, stream, &graph));
  OK(vmm_raw_graph_instantiate(driver, &executable, graph, 0));
  OK(vmm_raw_stream_begin_capture(driver, stream, 0));
  OK(vmm_raw_graph_launch(driver, executable, stream));
  OK(vmm_raw_stream_end_capture(driver, stream, &graph));
  OK(vmm_raw_graph_instantiate(driver, &outer, graph, 0));
  CHECK_EQ(sim_word(driver, plain), 0);
  OK(vmm_raw_graph_launch(driver, outer, stream));
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(sim_word(driver, plain), 0x03030303);
  vmm_driver_release(driver);
}

typedef struct gate {
  vmm_driver *driver;
  void *context;
  void *stream;
  atomic_int inside, open, done;
} gate;

static void wait_at_gate(void *data) {
  gate *g = data;

  atomic_store(&g->inside, 1);
  while (!atomic_load(&g->open)) (void)sched_yield();
  atomic_store(&g->done, 1);
}

static void *synchronizes(void *data) {
  const gate *g = data;
  int code = vmm_raw_ctx_set_current(g->driver, g->context);

  if (code == VMM_CODE_SUCCESS) code = vmm_raw_stream_synchronize(g->driver, g->stream);
  return (void *)(intptr_t)code;
}

/* The lock is not held while a host function runs: other threads call on. What must come after it waits for it. */
TEST(other_threads_call_on_while_a_host_function_runs) {
  static gate g;
  pthread_t runner, waiter;
  void *code = &g;
  u64 before;

  g.driver = sim_open(NULL);
  OK(vmm_raw_ctx_get_current(g.driver, &g.context));
  g.stream = sim_stream(g.driver, 1);
  OK(vmm_raw_launch_host_func(g.driver, g.stream, wait_at_gate, &g));
  CHECK_EQ(pthread_create(&runner, NULL, synchronizes, &g), 0);
  while (!atomic_load(&g.inside)) (void)sched_yield();
  before = vmm_driver_now(g.driver);
  CHECK(sim_reserve(g.driver, GRANULE) != 0);
  CHECK_EQ(vmm_driver_now(g.driver), before + 1000);
  CHECK_EQ(pthread_create(&waiter, NULL, synchronizes, &g), 0);
  atomic_store(&g.open, 1);
  CHECK_EQ(pthread_join(waiter, &code), 0);
  CHECK_EQ((intptr_t)code, VMM_CODE_SUCCESS);
  CHECK_EQ(atomic_load(&g.done), 1);
  CHECK_EQ(pthread_join(runner, &code), 0);
  CHECK_EQ((intptr_t)code, VMM_CODE_SUCCESS);
  vmm_driver_release(g.driver);
}

RUN_TESTS()
