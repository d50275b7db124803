/* The recorder. */
#include <pthread.h>

#include "check.h"
#include "stub_driver.h"

static stub_driver stub;

/* A recorder over a fresh stub; the stub's own reference is given up. */
static vmm_driver *make(size_t capacity) {
  vmm_driver *record = NULL;
  stub_init(&stub, VMM__DRIVER_SIM);
  CHECK_OK_RETURN(vmm_record_create(&record, &stub.base, capacity, NULL), NULL);
  vmm_driver_release(&stub.base);
  return record;
}

TEST(an_entry_says_what_was_called_with_what_and_what_came_back) {
  vmm_driver *record = make(8);
  vmm_raw_prop prop = {1, 0, 1, 3, 0, 0};
  unsigned long long handle = 0;
  vmm_record_entry entries[8];
  size_t count = 99;
  memset(entries, 0xA5, sizeof entries);
  vmm_driver_wait(record, 700);
  CHECK_EQ(vmm_raw_mem_create(record, &handle, 1 << 21, &prop, 0), 0);
  stub.answer[VMM_OP_mem_map] = 600;
  CHECK_EQ(vmm_raw_mem_map(record, 0x200000, 1 << 21, 0, handle, 0), 600);
  CHECK_OK(vmm_record_get(record, 0, entries, 8, &count));
  CHECK_EQ(count, 2);
  CHECK_EQ(entries[0].sequence, 1);
  CHECK_EQ(entries[0].time_ns, 700);
  CHECK_EQ(entries[0].taken_ns, 0);
  CHECK_EQ(entries[0].op, VMM_OP_mem_create);
  CHECK_EQ(entries[0].size, 1 << 21);
  CHECK_EQ(entries[0].object, 3);
  CHECK_EQ(entries[0].output, handle);
  CHECK_EQ(entries[0].thread, vmm_fault_thread());
  CHECK_EQ(entries[0].code, 0);
  CHECK_EQ(entries[1].op, VMM_OP_mem_map);
  CHECK_EQ(entries[1].address, 0x200000);
  CHECK_EQ(entries[1].object, handle);
  CHECK_EQ(entries[1].output, 0);
  CHECK_EQ(entries[1].code, 600);
  vmm_driver_release(record);
}

TEST(the_ring_keeps_the_latest) {
  vmm_driver *record = make(4);
  vmm_record_entry entries[8];
  size_t count;
  for (int i = 0; i < 10; i++) CHECK_EQ(vmm_raw_device_get(record, NULL, i), 0);
  CHECK_OK(vmm_record_get(record, 0, entries, 8, &count));
  CHECK_EQ(count, 4);
  for (unsigned i = 0; i < 4; i++) {
    CHECK_EQ(entries[i].sequence, 7 + i);
    CHECK_EQ(entries[i].object, 6 + i);
  }
  CHECK_OK(vmm_record_get(record, 0, entries, 2, &count));
  CHECK_EQ(count, 2);
  CHECK_EQ(entries[0].sequence, 9);
  CHECK_OK(vmm_record_get(record, 9, entries, 8, &count));
  CHECK_EQ(count, 1);
  CHECK_EQ(entries[0].sequence, 10);
  CHECK_OK(vmm_record_get(record, 10, entries, 8, &count));
  CHECK_EQ(count, 0);
  CHECK_OK(vmm_record_get(record, ~0ull, entries, 8, &count));
  CHECK_EQ(count, 0);
  CHECK_EQ(vmm_record_count(record, VMM_OP_device_get), 10);
  vmm_driver_release(record);
}

TEST(counts_and_times_per_operation) {
  vmm_driver *record = make(0);
  vmm_call_stats calls[VMM_OP_COUNT];
  size_t count = 0;
  stub.answer[VMM_OP_event_query] = VMM_CODE_NOT_READY;
  stub.answer[VMM_OP_mem_set_access] = VMM_CODE_NOT_READY;
  for (int i = 0; i < 3; i++) CHECK_EQ(vmm_raw_event_query(record, NULL), VMM_CODE_NOT_READY);
  CHECK_EQ(vmm_raw_mem_set_access(record, 0, 0, NULL, 0), VMM_CODE_NOT_READY);
  CHECK_EQ(vmm_record_count(record, VMM_OP_ANY), 4);
  CHECK_OK(vmm_record_get_calls(record, calls, VMM_OP_COUNT, &count));
  CHECK_EQ(count, 2);
  CHECK_STR(calls[0].call, "cuMemSetAccess");
  CHECK_EQ(calls[0].count, 1);
  CHECK_EQ(calls[0].failures, 1);
  CHECK_STR(calls[1].call, "cuEventQuery");
  CHECK_EQ(calls[1].count, 3);
  CHECK_EQ(calls[1].failures, 0);
  CHECK_OK(vmm_record_get_calls(record, calls, 1, &count));
  CHECK_EQ(count, 2);
  CHECK_OK(vmm_record_get_calls(record, NULL, 0, &count));
  CHECK_OK(vmm_record_clear(record));
  CHECK_EQ(vmm_record_count(record, VMM_OP_ANY), 0);
  CHECK_OK(vmm_record_get_calls(record, NULL, 0, &count));
  CHECK_EQ(count, 0);
  vmm_driver_release(record);
}

TEST(the_time_a_call_takes_is_that_of_the_drivers_clock) {
  stub_driver slow;
  vmm_driver *fault, *record;
  vmm_record_entry entry;
  vmm_call_stats calls[4];
  size_t count;
  stub_init(&slow, VMM__DRIVER_SIM);
  CHECK_OK(vmm_fault_create(&fault, &slow.base, 0, NULL));
  CHECK_OK(vmm_record_create(&record, fault, 0, NULL));
  CHECK_OK(vmm_fault_add_text(record, "cuMemUnmap:SUCCESS@2:delay=5us", NULL));
  for (int i = 0; i < 3; i++) CHECK_EQ(vmm_raw_mem_unmap(record, 0, 0), 0);
  CHECK_OK(vmm_record_get(record, 1, &entry, 1, &count));
  CHECK_EQ(entry.sequence, 3);
  CHECK_OK(vmm_record_get_calls(record, calls, 4, &count));
  CHECK_EQ(calls[0].total_ns, 5000);
  CHECK_EQ(calls[0].max_ns, 5000);
  vmm_driver_release(record);
  vmm_driver_release(fault);
}

TEST(clearing_forgets_entries_but_not_the_sequence) {
  vmm_driver *record = make(4);
  vmm_record_entry entries[4];
  size_t count;
  for (int i = 0; i < 3; i++) CHECK_EQ(vmm_raw_init(record, 0), 0);
  CHECK_OK(vmm_record_clear(record));
  CHECK_OK(vmm_record_get(record, 0, entries, 4, &count));
  CHECK_EQ(count, 0);
  CHECK_EQ(vmm_raw_init(record, 0), 0);
  CHECK_OK(vmm_record_get(record, 0, entries, 4, &count));
  CHECK_EQ(count, 1);
  CHECK_EQ(entries[0].sequence, 4);
  vmm_driver_release(record);
}

TEST(an_entry_as_text) {
  vmm_record_entry entry = {12, 0, 1890, 1, 0x7f0000000000, 2097152, 0x1, 0, VMM_OP_mem_map, 0};
  char text[128];
  const char *expected = "#12 cuMemMap(address=0x7f0000000000, size=2097152, object=0x1) -> CUDA_SUCCESS 1.8 us";
  CHECK_EQ(vmm_record_format(&entry, text, sizeof text), strlen(expected));
  CHECK_STR(text, expected);
  CHECK_EQ(vmm_record_format(&entry, text, 8), strlen(expected));
  CHECK_STR(text, "#12 cuM");
  CHECK_EQ(vmm_record_format(&entry, NULL, 0), strlen(expected));
  entry = (vmm_record_entry){3, 0, 0, 1, 0, 64, 0, 0xabc, VMM_OP_mem_reserve, 0};
  CHECK(vmm_record_format(&entry, text, sizeof text) > 0);
  CHECK_STR(text, "#3 cuMemAddressReserve(size=64) -> CUDA_SUCCESS output=0xabc 0.0 us");
  entry = (vmm_record_entry){4, 0, 0, 1, 0, 0, 0, 0, VMM_OP_ctx_synchronize, 4242};
  CHECK(vmm_record_format(&entry, text, sizeof text) > 0);
  CHECK_STR(text, "#4 cuCtxSynchronize() -> CUDA_ERROR_?4242 0.0 us");
  CHECK_EQ(vmm_record_format(NULL, text, sizeof text), 0);
}

static void *hundred_calls(void *data) {
  for (int i = 0; i < 100; i++) CHECK_EQ_RETURN(vmm_raw_mem_release(data, (unsigned long long)i), 0, NULL);
  return NULL;
}

TEST(threads_are_told_apart_and_none_of_their_calls_is_lost) {
  static vmm_record_entry entries[400];
  vmm_driver *record = make(400);
  pthread_t threads[4];
  unsigned seen = 0;
  size_t count;
  for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, hundred_calls, record), 0);
  for (int i = 0; i < 4; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK_OK(vmm_record_get(record, 0, entries, 400, &count));
  CHECK_EQ(count, 400);
  CHECK_EQ(vmm_record_count(record, VMM_OP_mem_release), 400);
  for (unsigned i = 0; i < 400; i++) {
    CHECK_EQ(entries[i].sequence, i + 1);
    CHECK(entries[i].thread != 0 && entries[i].thread != vmm_fault_thread());
    if (entries[i].thread == entries[0].thread) seen++;
  }
  CHECK_EQ(seen, 100);
  vmm_driver_release(record);
}

TEST(wrong_arguments_are_answered) {
  stub_driver other;
  vmm_driver *driver = &other.base;
  vmm_record_entry entry;
  size_t count;
  vmm_error error;
  stub_init(&other, VMM__DRIVER_SIM);
  CHECK_STATUS(vmm_record_create(NULL, &other.base, 0, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_record_create(&driver, NULL, 0, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(driver == NULL);
  CHECK_STATUS(vmm_record_create(&driver, &other.base, SIZE_MAX, &error), VMM_ERROR_OUT_OF_HOST_MEMORY);
  CHECK(driver == NULL);
  CHECK_STATUS(vmm_record_get(&other.base, 0, &entry, 1, &count), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_record_get_calls(&other.base, NULL, 0, &count), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_record_clear(&other.base), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(vmm_record_count(&other.base, VMM_OP_ANY), 0);
  CHECK_OK(vmm_record_create(&driver, &other.base, 0, NULL));
  CHECK_STATUS(vmm_record_get(driver, 0, NULL, 1, &count), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_record_get(driver, 0, &entry, 1, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_record_get_calls(driver, NULL, 1, &count), VMM_ERROR_INVALID_ARGUMENT);
  vmm_driver_release(driver);
}

RUN_TESTS()
