/* The simulator's memory: ledger, laziness, what fresh memory reads as, views, limits. */
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "sim_world.h"

TEST(ledger_follows_every_step_and_ends_where_it_began) {
  vmm_driver *driver = sim_open(NULL);
  vmm_sim_ledger start = sim_ledger(driver, 0), now;
  sim_range range;
  u64 retained = 0, plain = 0;
  void *pinned = NULL;

  CHECK_CALL(range = sim_make(driver, 4 * GRANULE));
  now = sim_ledger(driver, 0);
  CHECK_EQ(now.reservations, 1);
  CHECK_EQ(now.reserved_bytes, 4 * GRANULE);
  CHECK_EQ(now.handles, 1);
  CHECK_EQ(now.handle_bytes, 4 * GRANULE);
  CHECK_EQ(now.references, 1);
  CHECK_EQ(now.mappings, 1);
  CHECK_EQ(now.mapped_bytes, 4 * GRANULE);
  CHECK_EQ(now.accessible_bytes, 4 * GRANULE);
  CHECK_EQ(now.free_bytes, start.free_bytes - 4 * GRANULE);
  CHECK_EQ(now.primary_references, 1);
  OK(vmm_raw_mem_retain_handle(driver, &retained, range.address + 5));
  CHECK_EQ(sim_ledger(driver, 0).references, 2);
  OK(vmm_raw_mem_release(driver, retained));
  OK(sim_access(driver, range.address, range.size, 0, 1));
  CHECK_EQ(sim_ledger(driver, 0).accessible_bytes, 0);
  OK(vmm_raw_mem_release(driver, range.handle)); /* still mapped: the memory stays */
  CHECK_EQ(sim_ledger(driver, 0).handle_bytes, 4 * GRANULE);
  CHECK_EQ(sim_ledger(driver, 0).references, 0);
  OK(vmm_raw_mem_unmap(driver, range.address, range.size));
  OK(vmm_raw_mem_address_free(driver, range.address, range.size));
  OK(vmm_raw_mem_alloc(driver, &plain, 1000));
  OK(vmm_raw_mem_host_alloc(driver, &pinned, 1000, 0));
  now = sim_ledger(driver, 0);
  CHECK_EQ(now.plain_allocations, 1);
  CHECK_EQ(now.plain_bytes, 1024);
  CHECK_EQ(now.host_bytes, 1000);
  CHECK_EQ(now.handles, 0);
  OK(vmm_raw_mem_free(driver, plain));
  OK(vmm_raw_mem_host_free(driver, pinned));
  now = sim_ledger(driver, 0);
  CHECK_MEM(&now, &start, sizeof now);
  vmm_driver_release(driver);
}

TEST(aliases_and_views_are_coherent_and_a_view_spans_handles) {
  vmm_driver *driver = sim_open(NULL);
  u64 address = sim_reserve(driver, 4 * GRANULE);
  u64 first = sim_handle(driver, GRANULE), second = sim_handle(driver, GRANULE);
  unsigned char *view = NULL;
  unsigned int word = 0x12345678;
  void *wrong = view;

  OK(vmm_raw_mem_map(driver, address, GRANULE, 0, second, 0)); /* against the order in the file */
  OK(vmm_raw_mem_map(driver, address + GRANULE, GRANULE, 0, first, 0));
  OK(vmm_raw_mem_map(driver, address + 2 * GRANULE, GRANULE, 0, second, 0));
  OK(sim_access(driver, address, 3 * GRANULE, 0, 3));
  CHECK_OK(vmm_sim_view(driver, address + 4, 3 * GRANULE - 4, (void **)&view));
  OK(vmm_raw_memcpy_htod(driver, address + 2 * GRANULE - 2, &word, 4)); /* over the seam */
  CHECK_MEM(view - 4 + 2 * GRANULE - 2, &word, 4);
  CHECK_EQ(sim_word(driver, address + GRANULE - 4), 0);
  CHECK_MEM(view - 4, (unsigned char *)&word + 2, 2); /* the alias of the second handle */
  view[GRANULE + 96] = 0x77;                          /* address + GRANULE + 100 */
  CHECK_EQ(sim_word(driver, address + GRANULE + 100), 0x77);
  CHECK_STATUS(vmm_sim_view(driver, address + 2 * GRANULE, 2 * GRANULE, &wrong), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK(wrong == NULL);
  CHECK_STATUS(vmm_sim_view(driver, address, 0, &wrong), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_sim_view(driver, address, SIZE_MAX, &wrong), VMM_ERROR_INVALID_ARGUMENT);
  vmm_driver_release(driver);
}

static long resident_kib(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss : -1;
}

TEST(a_pool_of_96_gib_touches_only_what_is_written) {
  vmm_driver *driver = sim_open(NULL);
  const size_t count = 49152;
  u64 address = sim_reserve(driver, count * GRANULE), flags = 0;
  vmm_raw_location here = {1, 0};
  long before = resident_kib();
  unsigned int word;

  for (size_t i = 0; i < count; i++) {
    u64 handle;
    CHECK_CALL(handle = sim_handle(driver, GRANULE));
    OK(vmm_raw_mem_map(driver, address + i * GRANULE, GRANULE, 0, handle, 0));
    OK(vmm_raw_mem_release(driver, handle));
  }
  OK(sim_access(driver, address, count * GRANULE, 0, 3));
  for (size_t i = 0; i < 96; i++) {
    word = 0xC0DE0000u + (unsigned int)i;
    OK(vmm_raw_memcpy_htod(driver, address + (u64)i * (1u << 30) + (1u << 30) - 4, &word, 4));
  }
  for (size_t i = 0; i < 96; i++)
    CHECK_EQ(sim_word(driver, address + (u64)i * (1u << 30) + (1u << 30) - 4), 0xC0DE0000u + (unsigned int)i);
  OK(vmm_raw_mem_get_access(driver, &flags, &here, address + 77 * GRANULE));
  CHECK_EQ(flags, 3);
  CHECK_EQ(sim_ledger(driver, 0).accessible_bytes, count * GRANULE);
  CHECK(resident_kib() - before < 128 * 1024);
  OK(vmm_raw_mem_unmap(driver, address, count * GRANULE));
  CHECK_EQ(sim_ledger(driver, 0).handles, 0);
  CHECK_EQ(sim_ledger(driver, 0).misuse, 0);
  vmm_driver_release(driver);
}

/* What a second owner reads where the first wrote 0x11. */
static unsigned int read_after(int fresh) {
  vmm_sim_options options = sim_defaults();
  unsigned int word;
  vmm_driver *driver;
  sim_range range;

  options.fresh = fresh;
  driver = sim_open(&options);
  CHECK_CALL_RETURN(range = sim_make(driver, GRANULE), 1);
  CHECK_EQ_RETURN(vmm_raw_memset_d8_async(driver, range.address, 0x11, 4096, NULL), VMM_CODE_SUCCESS, 1);
  CHECK_EQ_RETURN(vmm_raw_ctx_synchronize(driver), VMM_CODE_SUCCESS, 1);
  CHECK_CALL_RETURN(sim_unmake(driver, &range), 1);
  CHECK_CALL_RETURN(range = sim_make(driver, GRANULE), 1);
  word = sim_word(driver, range.address + 8);
  vmm_driver_release(driver);
  return word;
}

TEST(fresh_memory_reads_as_the_mode_says) {
  CHECK_EQ(read_after(VMM_SIM_FRESH_ZERO), 0);
  CHECK_EQ(read_after(VMM_SIM_FRESH_POISON), 0xA5A5A5A5u);
  CHECK_EQ(read_after(VMM_SIM_FRESH_STALE), 0x11111111u);
}

TEST(poison_shows_through_a_view_and_around_a_write) {
  vmm_driver *driver = sim_open(NULL);
  unsigned char *view = NULL;
  unsigned int word = 0;
  sim_range range;

  CHECK_OK(vmm_sim_set_fresh(driver, VMM_SIM_FRESH_POISON));
  CHECK_CALL(range = sim_make(driver, 2 * GRANULE));
  OK(vmm_raw_memcpy_htod(driver, range.address + GRANULE - 2, &word, 4));
  CHECK_EQ(sim_word(driver, range.address + GRANULE - 4), 0x0000A5A5u);
  CHECK_EQ(sim_word(driver, range.address + GRANULE), 0xA5A50000u);
  CHECK_OK(vmm_sim_view(driver, range.address, range.size, (void **)&view));
  CHECK_EQ(view[0], 0xA5);
  CHECK_EQ(view[2 * GRANULE - 1], 0xA5);
  CHECK_EQ(view[GRANULE], 0);
  vmm_driver_release(driver);
}

TEST(memory_mappings_and_address_space_run_out) {
  vmm_sim_options options = sim_defaults();
  vmm_raw_prop prop = sim_prop(0);
  vmm_driver *driver;
  u64 address, other = 0, handle, more = 0;

  options.memory = 8 * (u64)GRANULE;
  options.mapping_limit = 3;
  options.address_space = 64 * (u64)GRANULE;
  options.address_space_used = 32 * (u64)GRANULE;
  driver = sim_open(&options);
  address = sim_reserve(driver, 16 * GRANULE);
  CHECK_EQ(vmm_raw_mem_reserve(driver, &other, 17 * GRANULE, 0, 0, 0), VMM_CODE_OUT_OF_MEMORY);
  OK(vmm_raw_mem_reserve(driver, &other, 16 * GRANULE, 0, 0, 0));
  OK(vmm_raw_mem_address_free(driver, other, 16 * GRANULE));
  handle = sim_handle(driver, 4 * GRANULE);
  CHECK_EQ(vmm_raw_mem_create(driver, &more, 5 * GRANULE, &prop, 0), VMM_CODE_OUT_OF_MEMORY);
  CHECK_OK(vmm_sim_set_used_by_others(driver, 0, GRANULE));
  CHECK_EQ(vmm_raw_mem_create(driver, &more, 4 * GRANULE, &prop, 0), VMM_CODE_OUT_OF_MEMORY);
  CHECK_EQ(sim_ledger(driver, 0).free_bytes, 3 * GRANULE);
  OK(vmm_raw_mem_create(driver, &more, 3 * GRANULE, &prop, 0));
  for (u64 i = 0; i < 3; i++) OK(vmm_raw_mem_map(driver, address + 4 * i * GRANULE, 4 * GRANULE, 0, handle, 0));
  CHECK_EQ(vmm_raw_mem_map(driver, address + 12 * GRANULE, 4 * GRANULE, 0, handle, 0), VMM_CODE_OUT_OF_MEMORY);
  OK(vmm_raw_mem_unmap(driver, address, 4 * GRANULE));
  OK(vmm_raw_mem_map(driver, address + 12 * GRANULE, 4 * GRANULE, 0, handle, 0));
  vmm_driver_release(driver);
}

TEST(granularities_may_differ_and_be_small) {
  vmm_sim_options options = sim_defaults();
  vmm_raw_prop prop = sim_prop(0);
  size_t least = 0, good = 0;
  unsigned char *view = NULL;
  vmm_driver *driver;
  sim_range range;

  options.minimum_granularity = 4096;
  options.granularity = 65536;
  driver = sim_open(&options);
  OK(vmm_raw_mem_granularity(driver, &least, &prop, 0));
  OK(vmm_raw_mem_granularity(driver, &good, &prop, 1));
  CHECK_EQ(least, 4096);
  CHECK_EQ(good, 65536);
  CHECK_CALL(range = sim_make(driver, 3 * 4096));
  if (sysconf(_SC_PAGESIZE) == 4096) CHECK_OK(vmm_sim_view(driver, range.address + 4096, 8192, (void **)&view));
  CHECK_CALL(sim_unmake(driver, &range));
  vmm_driver_release(driver);
}

TEST(plain_and_pinned_memory_are_reached_by_kernels) {
  vmm_driver *driver = sim_open(NULL);
  u64 plain = 0, result[2] = {0, 7};
  u64 *pinned = NULL;
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_mem_alloc(driver, &plain, 16));
  OK(vmm_raw_mem_host_alloc(driver, (void **)&pinned, 64, 0));
  OK(vmm_raw_memcpy_htod(driver, plain, result, sizeof result));
  pinned[1] = 5;
  OK(vmm_raw_kernel_fill(driver, NULL, range.address, 4096, 42));
  OK(vmm_raw_memset_d8_async(driver, range.address + 400, 0, 8, NULL));
  OK(vmm_raw_kernel_verify(driver, NULL, range.address, 4096, 42, plain + 8));
  OK(vmm_raw_kernel_verify(driver, NULL, range.address, 4096, 42, (u64)(uintptr_t)&pinned[1]));
  OK(vmm_raw_kernel_sum(driver, NULL, range.address + 400, 8, plain));
  OK(vmm_raw_memcpy_dtoh(driver, result, plain, sizeof result));
  CHECK_EQ(result[0], 1 + 3); /* (0 + 1) * 1 + (0 + 1) * 3 */
  CHECK_EQ(result[1], 7 + 2);
  CHECK_EQ(pinned[1], 5 + 2);
  CHECK_EQ(sim_word(driver, range.address + 8), vmm_pattern_word(42, 2));
  vmm_driver_release(driver);
}

TEST(memset_in_two_dimensions_writes_rows_only) {
  vmm_driver *driver = sim_open(NULL);
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  OK(vmm_raw_memset_d2d32_async(driver, range.address, 64, 0xABCD, 2, 3, NULL));
  OK(vmm_raw_ctx_synchronize(driver));
  for (u64 row = 0; row < 4; row++)
    for (u64 i = 0; i < 16; i++)
      CHECK_EQ(sim_word(driver, range.address + 64 * row + 4 * i), row < 3 && i < 2 ? 0xABCD : 0);
  CHECK_EQ(vmm_raw_memset_d2d32_async(driver, range.address, 4, 1, 2, 3, NULL), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_memset_d2d32_async(driver, range.address, SIZE_MAX & ~(size_t)3, 1, 2, 3, NULL),
           VMM_CODE_INVALID_VALUE);
  vmm_driver_release(driver);
}

TEST(a_bad_host_pointer_is_an_error_or_the_callers_own_crash_never_silence) {
  vmm_driver *driver = sim_open(NULL);
  sim_range range;

  CHECK_CALL(range = sim_make(driver, GRANULE));
  CHECK_EQ(vmm_raw_memcpy_htod(driver, range.address, NULL, 4), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_memcpy_dtoh(driver, NULL, range.address, 4), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_memcpy_htod(driver, range.address + GRANULE - 2, &range, 4), VMM_CODE_INVALID_VALUE);
  vmm_driver_release(driver);
}

RUN_TESTS()
