/* Queued work on the virtual clock: order, ends, host functions, determinism. */
#include "sim_world.h"

TEST(time_moves_by_calls_waits_and_blocking_only) {
  vmm_driver *driver = sim_open(NULL);
  u64 start = vmm_driver_now(driver);
  int count = 0;

  CHECK_EQ(vmm_driver_now(driver), start);
  OK(vmm_raw_device_count(driver, &count));
  CHECK_EQ(vmm_driver_now(driver), start + 1000);
  vmm_driver_wait(driver, 5000);
  CHECK_EQ(vmm_driver_now(driver), start + 6000);
  OK(vmm_raw_kernel_spin(driver, NULL, 1000000));
  CHECK_EQ(vmm_driver_now(driver), start + 7000);
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(vmm_driver_now(driver), start + 1007000);
  vmm_driver_release(driver);
}

TEST(a_stream_is_a_queue_and_streams_run_side_by_side) {
  vmm_driver *driver = sim_open(NULL);
  void *a = sim_stream(driver, 1), *b = sim_stream(driver, 1);
  u64 start = vmm_driver_now(driver);

  OK(vmm_raw_kernel_spin(driver, a, 10000000));
  OK(vmm_raw_kernel_spin(driver, a, 10000000));
  OK(vmm_raw_kernel_spin(driver, b, 15000000));
  CHECK_EQ(sim_ledger(driver, 0).pending, 3);
  OK(vmm_raw_stream_synchronize(driver, b));
  CHECK_EQ(vmm_driver_now(driver) - start, 15003000);
  CHECK_EQ(sim_ledger(driver, 0).pending, 1);
  CHECK_EQ(vmm_raw_stream_query(driver, a), VMM_CODE_NOT_READY);
  OK(vmm_raw_stream_query(driver, b));
  CHECK_OK(vmm_sim_drain(driver));
  CHECK_EQ(vmm_driver_now(driver) - start, 20001000);
  OK(vmm_raw_stream_query(driver, a));
  vmm_driver_release(driver);
}

/* How long after `start` the last of two spins of 1 ms is done. */
static u64 both(vmm_driver *driver, void *first, void *second) {
  u64 start;

  CHECK_OK_RETURN(vmm_sim_drain(driver), 0);
  start = vmm_driver_now(driver);
  CHECK_EQ_RETURN(vmm_raw_kernel_spin(driver, first, 1000000), VMM_CODE_SUCCESS, 0);
  CHECK_EQ_RETURN(vmm_raw_kernel_spin(driver, second, 1000000), VMM_CODE_SUCCESS, 0);
  CHECK_OK_RETURN(vmm_sim_drain(driver), 0);
  return (vmm_driver_now(driver) - start) / 1000000;
}

TEST(the_legacy_stream_is_ordered_with_blocking_streams_both_ways) {
  vmm_driver *driver = sim_open(NULL);
  void *blocking = sim_stream(driver, 0), *other = sim_stream(driver, 0), *free_stream = sim_stream(driver, 1);
  void *per_thread = (void *)2, *legacy = (void *)1;

  CHECK_EQ(both(driver, NULL, blocking), 2);
  CHECK_EQ(both(driver, blocking, legacy), 2);
  CHECK_EQ(both(driver, legacy, per_thread), 2);
  CHECK_EQ(both(driver, NULL, legacy), 2);
  CHECK_EQ(both(driver, blocking, other), 1);
  CHECK_EQ(both(driver, per_thread, other), 1);
  CHECK_EQ(both(driver, NULL, free_stream), 1);
  CHECK_EQ(both(driver, free_stream, blocking), 1);
  vmm_driver_release(driver);
}

TEST(work_touches_memory_when_it_is_done_and_events_order_it) {
  vmm_driver *driver = sim_open(NULL);
  void *a = sim_stream(driver, 1), *b = sim_stream(driver, 1), *event = sim_event(driver);
  unsigned int first = 1, second = 2, seen = 0xFFFFFFFFu;
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_kernel_spin(driver, a, 1000000));
  OK(vmm_raw_memcpy_htod_async(driver, range.address, &first, 4, a));
  OK(vmm_raw_event_record(driver, event, a));
  OK(vmm_raw_stream_wait_event(driver, b, event, 0));
  OK(vmm_raw_memcpy_dtoh_async(driver, &seen, range.address, 4, b));
  first = 99; /* pageable memory was read at the call */
  CHECK_EQ(seen, 0xFFFFFFFFu);
  CHECK_EQ(vmm_raw_event_query(driver, event), VMM_CODE_NOT_READY);
  OK(vmm_raw_stream_synchronize(driver, b));
  CHECK_EQ(seen, 1);
  OK(vmm_raw_event_query(driver, event));
  OK(vmm_raw_kernel_spin(driver, a, 1000000)); /* without the event the copy overtakes */
  OK(vmm_raw_memcpy_htod_async(driver, range.address, &second, 4, a));
  OK(vmm_raw_memcpy_dtoh_async(driver, &seen, range.address, 4, b));
  CHECK_OK(vmm_sim_drain(driver));
  CHECK_EQ(seen, 1);
  CHECK_EQ(sim_word(driver, range.address), 2);
  vmm_driver_release(driver);
}

typedef struct host_call {
  vmm_driver *driver;
  u64 when;
  int code;
  int calls;
} host_call;

static void in_host_function(void *data) {
  host_call *call = data;
  vmm_raw_prop prop = sim_prop(0);
  u64 handle = 0;

  call->calls++;
  call->when = vmm_driver_now(call->driver);
  call->code = vmm_raw_mem_create(call->driver, &handle, GRANULE, &prop, 0);
  vmm_driver_wait(call->driver, 1000);
}

TEST(a_host_function_runs_once_in_its_turn_and_may_not_call_the_driver) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1);
  host_call call = {driver, 0, -1, 0};
  u64 queued;

  OK(vmm_raw_kernel_spin(driver, stream, 1000000));
  queued = vmm_driver_now(driver);
  OK(vmm_raw_launch_host_func(driver, stream, in_host_function, &call));
  CHECK_EQ(call.calls, 0);
  OK(vmm_raw_stream_synchronize(driver, stream));
  CHECK_EQ(call.calls, 1);
  CHECK_EQ(call.when, queued + 1000000);
  CHECK_EQ(call.code, VMM_CODE_NOT_PERMITTED);
  CHECK_EQ(sim_ledger(driver, 0).handles, 0);
  vmm_driver_release(driver);
}

TEST(a_context_wide_event_covers_every_stream_and_does_not_block) {
  vmm_driver *driver = sim_open(NULL);
  void *a = sim_stream(driver, 1), *event = sim_event(driver), *context = NULL;
  u64 start = vmm_driver_now(driver);

  OK(vmm_raw_ctx_get_current(driver, &context));
  OK(vmm_raw_kernel_spin(driver, a, 5000000));
  OK(vmm_raw_kernel_spin(driver, NULL, 1000000));
  OK(vmm_raw_ctx_record_event(driver, context, event));
  CHECK(vmm_driver_now(driver) - start < 10000);
  vmm_driver_wait(driver, 2000000);
  CHECK_EQ(vmm_raw_event_query(driver, event), VMM_CODE_NOT_READY);
  vmm_driver_wait(driver, 3000000);
  OK(vmm_raw_event_query(driver, event));
  vmm_driver_release(driver);
}

TEST(a_destroyed_streams_work_is_done_and_its_value_comes_again_at_once) {
  vmm_driver *driver = sim_open(NULL);
  void *stream = sim_stream(driver, 1);
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_kernel_spin(driver, stream, 1000000));
  OK(vmm_raw_memset_d8_async(driver, range.address, 9, 4, stream));
  OK(vmm_raw_stream_destroy(driver, stream));
  CHECK_EQ(sim_ledger(driver, 0).pending, 2);
  CHECK(sim_stream(driver, 1) == stream);
  OK(vmm_raw_stream_query(driver, stream)); /* a new stream: nothing of the old one's */
  OK(vmm_raw_ctx_synchronize(driver));
  CHECK_EQ(sim_word(driver, range.address), 0x09090909);
  vmm_driver_release(driver);
}

/* A program with some of everything; what it saw, in one number. */
static u64 play(u64 seed) {
  vmm_sim_options options = sim_defaults();
  u64 trace = 1469598103934665603ull, address;
  vmm_driver *driver;
  void *streams[3];

  options.seed = seed;
  driver = sim_open(&options);
  CHECK_OK_RETURN(vmm_sim_set_not_ready(driver, 0, VMM_SIM_NOT_READY_RANDOM, 1u << 30), 0);
  for (int i = 0; i < 3; i++) streams[i] = sim_stream(driver, (unsigned int)i % 2);
  address = sim_reserve(driver, 64 * GRANULE);
  for (u64 i = 0; i < 64; i++) {
    vmm_raw_prop prop = sim_prop(0);
    u64 handle = 0, at = address + i * GRANULE;
    int code = vmm_raw_mem_create(driver, &handle, GRANULE, &prop, 0);

    if (code == 0) code = vmm_raw_mem_map(driver, at, GRANULE, 0, handle, 0) * 3;
    if (code == 0) code = sim_access(driver, at, GRANULE, 0, 3) * 5;
    if (code == 0) code = vmm_raw_kernel_fill(driver, streams[i % 3], at, 64, i) * 7;
    trace = (trace ^ (u64)code ^ vmm_driver_now(driver)) * 1099511628211ull;
  }
  trace ^= (u64)vmm_raw_ctx_synchronize(driver) + sim_ledger(driver, 0).not_ready + vmm_driver_now(driver);
  vmm_driver_release(driver);
  return trace;
}

TEST(the_same_calls_and_seed_give_the_same_run) {
  u64 first = play(1);

  CHECK_EQ(play(1), first);
  CHECK(play(2) != first);
}

TEST(a_lost_context_drops_its_work_and_others_go_on) {
  vmm_driver *driver = sim_open(NULL);
  void *first = NULL, *second = NULL, *event, *other_event;
  unsigned int host = 0x5A5A5A5Au;
  sim_range range;

  OK(vmm_raw_ctx_get_current(driver, &first));
  CHECK_CALL(range = sim_make(driver, GRANULE));
  event = sim_event(driver);
  OK(vmm_raw_ctx_create(driver, &second, 0, 0));
  other_event = sim_event(driver);
  OK(vmm_raw_kernel_spin(driver, NULL, 50000));
  OK(vmm_raw_event_record(driver, other_event, NULL));
  OK(vmm_raw_ctx_set_current(driver, first));
  OK(vmm_raw_kernel_trap(driver, NULL));
  OK(vmm_raw_memset_d8_async(driver, range.address, 1, 4, NULL));
  OK(vmm_raw_memcpy_dtoh_async(driver, &host, range.address, 4, NULL));
  CHECK_EQ(vmm_raw_ctx_synchronize(driver), VMM_CODE_LAUNCH_FAILED);
  CHECK_EQ(host, 0x5A5A5A5Au);
  CHECK_EQ(sim_ledger(driver, 0).pending, 1); /* the other context's */
  CHECK_EQ(vmm_raw_event_query(driver, event), VMM_CODE_LAUNCH_FAILED);
  CHECK_EQ(vmm_raw_memcpy_dtoh(driver, &host, range.address, 4), VMM_CODE_LAUNCH_FAILED);
  OK(vmm_raw_event_synchronize(driver, other_event));
  CHECK_CALL(sim_unmake(driver, &range));
  OK(vmm_raw_primary_release(driver, 0));
  CHECK_EQ(vmm_raw_event_query(driver, event), VMM_CODE_INVALID_HANDLE);
  OK(vmm_raw_primary_retain(driver, &first, 0)); /* a fresh one */
  OK(vmm_raw_ctx_synchronize(driver));
  vmm_driver_release(driver);
}

RUN_TESTS()
