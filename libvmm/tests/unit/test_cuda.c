/* The CUDA driver on a GPU: conversions, test kernels, and the wrappers over it. The driver's own behaviour is the
 * conformance suite's business. Each test is skipped where there is no GPU. */
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "driver/driver.h"
#include "driver/ops.h"

#ifndef VMM_TEST_FATBIN
#define VMM_TEST_FATBIN ""
#endif

enum { GRANULE = 2 << 20, RELAXED = 2, NON_BLOCKING = 1 };

typedef struct gpu {
  vmm_driver *driver;
  void *context;
  void *stream;
  unsigned long long counter; /* 8 bytes of device memory for the kernels' results */
} gpu;

/* 0: no GPU. Loads the kernels once per driver. */
static int open_gpu(gpu *g) {
  static unsigned char image[8 << 20];
  FILE *file;
  size_t size = 0;
  memset(g, 0, sizeof *g);
  if (vmm_cuda_create(&g->driver, NULL) != VMM_OK) return 0;
  file = VMM_TEST_FATBIN[0] != '\0' ? fopen(VMM_TEST_FATBIN, "rb") : NULL;
  if (file != NULL) {
    size = fread(image, 1, sizeof image, file);
    (void)fclose(file);
  }
  if (size > 0) CHECK_OK_RETURN(vmm_cuda_set_kernels(g->driver, image, size, NULL), 0);
  CHECK_EQ_RETURN(vmm_raw_primary_retain(g->driver, &g->context, 0), 0, 0);
  CHECK_EQ_RETURN(vmm_raw_ctx_push(g->driver, g->context), 0, 0);
  CHECK_EQ_RETURN(vmm_raw_stream_create(g->driver, &g->stream, NON_BLOCKING), 0, 0);
  CHECK_EQ_RETURN(vmm_raw_mem_alloc(g->driver, &g->counter, 8), 0, 0);
  return 1;
}

static void close_gpu(gpu *g) {
  void *popped;
  CHECK_EQ(vmm_raw_mem_free(g->driver, g->counter), 0);
  CHECK_EQ(vmm_raw_stream_destroy(g->driver, g->stream), 0);
  CHECK_EQ(vmm_raw_ctx_pop(g->driver, &popped), 0);
  CHECK_EQ(vmm_raw_primary_release(g->driver, 0), 0);
  vmm_driver_release(g->driver);
}

#define WITH_GPU(g) \
  gpu g;            \
  if (!open_gpu(&g)) SKIP("no GPU here")
#define WITH_KERNELS(g)                                        \
  WITH_GPU(g);                                                 \
  if (!vmm__driver_has(g.driver, VMM_OP_kernel_fill)) {        \
    close_gpu(&g);                                             \
    SKIP("a GPU, but no nvcc to build the test kernels with"); \
  }

static unsigned long long take_counter(gpu *g) {
  unsigned long long value = 0xA5A5A5A5A5A5A5A5ull;
  CHECK_EQ_RETURN(vmm_raw_stream_synchronize(g->driver, g->stream), 0, value);
  CHECK_EQ_RETURN(vmm_raw_memcpy_dtoh(g->driver, &value, g->counter, 8), 0, value);
  return value;
}

static void clear_counter(gpu *g) { CHECK_EQ(vmm_raw_memset_d8_async(g->driver, g->counter, 0, 8, g->stream), 0); }

/* `count` mappings of one granule, without access. */
static void map_granules(gpu *g, vmm_driver *driver, unsigned count, unsigned long long *address) {
  vmm_raw_prop prop = {1, 0, 1, 0, 0, 0};
  (void)g;
  CHECK_EQ(vmm_raw_mem_reserve(driver, address, (size_t)count * GRANULE, 0, 0, 0), 0);
  for (unsigned i = 0; i < count; i++) {
    unsigned long long handle;
    CHECK_EQ(vmm_raw_mem_create(driver, &handle, GRANULE, &prop, 0), 0);
    CHECK_EQ(vmm_raw_mem_map(driver, *address + (unsigned long long)i * GRANULE, GRANULE, 0, handle, 0), 0);
    CHECK_EQ(vmm_raw_mem_release(driver, handle), 0);
  }
}

static void unmap_granules(vmm_driver *driver, unsigned count, unsigned long long address) {
  CHECK_EQ(vmm_raw_mem_unmap(driver, address, (size_t)count * GRANULE), 0);
  CHECK_EQ(vmm_raw_mem_address_free(driver, address, (size_t)count * GRANULE), 0);
}

TEST(everything_required_is_there) {
  char name[64] = "";
  int version = 0;
  WITH_GPU(g);
  CHECK_EQ(vmm_raw_driver_version(g.driver, &version), 0);
  CHECK(version >= 12000);
  for (int op = 0; op < VMM_OP_COUNT; op++)
    if (vmm__op_info_of(op)->since != 0 && vmm__op_info_of(op)->since <= version) CHECK(vmm__driver_has(g.driver, op));
  CHECK_EQ(vmm_raw_device_name(g.driver, name, sizeof name, 0), 0);
  CHECK(strlen(name) > 0);
  unsigned long long before = vmm_driver_now(g.driver);
  vmm_driver_wait(g.driver, 1000000);
  CHECK(vmm_driver_now(g.driver) - before >= 1000000);
  CHECK_CALL(close_gpu(&g));
}

TEST(allocation_properties_reach_the_driver) {
  WITH_GPU(g);
  vmm_raw_prop prop = {1, 0, 1, 999, 0, 0};
  unsigned long long handle = 0;
  size_t granularity = 0;
  int file = -1;
  CHECK_EQ(vmm_raw_mem_create(g.driver, &handle, GRANULE, &prop, 0), VMM_CODE_INVALID_DEVICE);
  prop.location_id = 0;
  CHECK_EQ(vmm_raw_mem_granularity(g.driver, &granularity, &prop, 0), 0);
  CHECK_EQ(granularity, GRANULE);
  CHECK_EQ(vmm_raw_mem_create(g.driver, &handle, GRANULE, &prop, 0), 0);
  CHECK_EQ(vmm_raw_mem_export(g.driver, &file, handle, 1, 0), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_release(g.driver, handle), 0);
  prop.handle_types = 1;
  CHECK_EQ(vmm_raw_mem_create(g.driver, &handle, GRANULE, &prop, 0), 0);
  CHECK_EQ(vmm_raw_mem_export(g.driver, &file, handle, 1, 0), 0);
  CHECK(file >= 0);
  CHECK_EQ(close(file), 0);
  CHECK_EQ(vmm_raw_mem_release(g.driver, handle), 0);
  CHECK_CALL(close_gpu(&g));
}

TEST(kernels_compute_what_the_header_says) {
  enum { WORDS = 1000003 };
  static unsigned words[WORDS];
  WITH_KERNELS(g);
  unsigned long long address, sum = 0;
  CHECK_EQ(vmm_raw_mem_alloc(g.driver, &address, sizeof words), 0);
  CHECK_EQ(vmm_raw_kernel_fill(g.driver, g.stream, address, sizeof words, 77), 0);
  CHECK_EQ(vmm_raw_stream_synchronize(g.driver, g.stream), 0);
  memset(words, 0xA5, sizeof words);
  CHECK_EQ(vmm_raw_memcpy_dtoh(g.driver, words, address, sizeof words), 0);
  for (unsigned i = 0; i < WORDS; i++) {
    if (words[i] != vmm_pattern_word(77, i)) CHECK_EQ(words[i], vmm_pattern_word(77, i));
    sum += ((unsigned long long)words[i] + 1) * (2ull * i + 1);
  }
  CHECK_CALL(clear_counter(&g));
  CHECK_EQ(vmm_raw_kernel_verify(g.driver, g.stream, address, sizeof words, 77, g.counter), 0);
  CHECK_EQ(take_counter(&g), 0);
  CHECK_EQ(vmm_raw_memset_d8_async(g.driver, address + 4000, 0x11, 12, g.stream), 0);
  CHECK_EQ(vmm_raw_kernel_verify(g.driver, g.stream, address, sizeof words, 77, g.counter), 0);
  CHECK_EQ(take_counter(&g), 3);
  CHECK_EQ(vmm_raw_kernel_fill(g.driver, g.stream, address, sizeof words, 77), 0);
  CHECK_CALL(clear_counter(&g));
  CHECK_EQ(vmm_raw_kernel_sum(g.driver, g.stream, address, sizeof words, g.counter), 0);
  CHECK_EQ(take_counter(&g), sum);
  CHECK_EQ(vmm_raw_kernel_fill(g.driver, g.stream, address, 6, 1), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_kernel_fill(g.driver, g.stream, address + 2, 8, 1), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_free(g.driver, address), 0);
  CHECK_CALL(close_gpu(&g));
}

TEST(spin_occupies_the_stream) {
  WITH_KERNELS(g);
  CHECK_EQ(vmm_raw_kernel_spin(g.driver, g.stream, 1000), 0); /* loads */
  CHECK_EQ(vmm_raw_stream_synchronize(g.driver, g.stream), 0);
  unsigned long long start = vmm_driver_now(g.driver);
  CHECK_EQ(vmm_raw_kernel_spin(g.driver, g.stream, 20000000), 0);
  CHECK_EQ(vmm_raw_stream_query(g.driver, g.stream), VMM_CODE_NOT_READY);
  CHECK_EQ(vmm_raw_stream_synchronize(g.driver, g.stream), 0);
  CHECK(vmm_driver_now(g.driver) - start >= 19000000);
  CHECK_CALL(close_gpu(&g));
}

TEST(a_kernel_needs_no_current_context_for_a_stream_of_its_own) {
  WITH_KERNELS(g);
  void *popped, *current = &popped;
  int mode;
  CHECK_EQ(vmm_raw_ctx_pop(g.driver, &popped), 0);
  CHECK_EQ(vmm_raw_kernel_spin(g.driver, g.stream, 1000), 0);
  CHECK_EQ(vmm_raw_kernel_spin(g.driver, NULL, 1000), VMM_CODE_INVALID_CONTEXT);
  CHECK_EQ(vmm_raw_ctx_get_current(g.driver, &current), 0);
  CHECK(current == NULL);
  mode = 1;
  CHECK_EQ(vmm_raw_capture_mode(g.driver, &mode), 0);
  CHECK_EQ(mode, 0);
  CHECK_EQ(vmm_raw_ctx_push(g.driver, g.context), 0);
  CHECK_EQ(vmm_raw_kernel_spin(g.driver, NULL, 1000), 0);
  CHECK_EQ(vmm_raw_capture_mode(g.driver, &mode), 0);
  CHECK_EQ(mode, 1);
  CHECK_CALL(close_gpu(&g));
}

TEST(kernels_are_loaded_in_the_middle_of_a_capture_without_harm) {
  void *context, *stream, *graph = NULL, *executable, *popped;
  unsigned long long address;
  WITH_KERNELS(g);
  CHECK_EQ(vmm_raw_ctx_create(g.driver, &context, 0, 0), 0); /* a context that has no kernels yet */
  CHECK_EQ(vmm_raw_stream_create(g.driver, &stream, NON_BLOCKING), 0);
  CHECK_EQ(vmm_raw_mem_alloc(g.driver, &address, 4096), 0);
  CHECK_EQ(vmm_raw_stream_begin_capture(g.driver, stream, 0), 0);
  CHECK_EQ(vmm_raw_kernel_fill(g.driver, stream, address, 4096, 5), 0);
  CHECK_EQ(vmm_raw_stream_end_capture(g.driver, stream, &graph), 0);
  CHECK(graph != NULL);
  CHECK_EQ(vmm_raw_graph_instantiate(g.driver, &executable, graph, 0), 0);
  CHECK_EQ(vmm_raw_graph_launch(g.driver, executable, stream), 0);
  CHECK_EQ(vmm_raw_stream_synchronize(g.driver, stream), 0);
  unsigned word = 0xA5A5A5A5u;
  CHECK_EQ(vmm_raw_memcpy_dtoh(g.driver, &word, address + 4092, 4), 0);
  CHECK_EQ(word, vmm_pattern_word(5, 1023));
  CHECK_EQ(vmm_raw_graph_exec_destroy(g.driver, executable), 0);
  CHECK_EQ(vmm_raw_graph_destroy(g.driver, graph), 0);
  CHECK_EQ(vmm_raw_stream_destroy(g.driver, stream), 0);
  CHECK_EQ(vmm_raw_ctx_pop(g.driver, &popped), 0);
  CHECK_EQ(vmm_raw_ctx_destroy(g.driver, context), 0);
  CHECK_CALL(close_gpu(&g));
}

TEST(a_fault_if_work_is_pending_sees_real_work) {
  vmm_driver *fault;
  void *context, *stream;
  unsigned long long address;
  vmm_raw_access access = {1, 0, 3};
  WITH_KERNELS(g);
  CHECK_OK(vmm_fault_create(&fault, g.driver, 1, NULL));
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:pending", NULL));
  CHECK_EQ(vmm_raw_primary_retain(fault, &context, 0), 0);
  CHECK_EQ(vmm_raw_stream_create(fault, &stream, NON_BLOCKING), 0);
  CHECK_CALL(map_granules(&g, fault, 2, &address));
  CHECK_EQ(vmm_raw_kernel_spin(fault, stream, 30000000), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, address, 2 * GRANULE, &access, 1), VMM_CODE_NOT_READY);
  CHECK_EQ(vmm_raw_stream_synchronize(fault, stream), 0);
  CHECK_EQ(vmm_raw_mem_set_access(fault, address, 2 * GRANULE, &access, 1), 0);
  CHECK_EQ(vmm_raw_kernel_spin(fault, NULL, 30000000), 0); /* the legacy stream counts too */
  CHECK_EQ(vmm_raw_mem_set_access(fault, address, 2 * GRANULE, &access, 1), VMM_CODE_NOT_READY);
  CHECK_EQ(vmm_raw_ctx_synchronize(fault), 0);
  CHECK_CALL(unmap_granules(fault, 2, address));
  CHECK_EQ(vmm_raw_stream_destroy(fault, stream), 0);
  CHECK_EQ(vmm_raw_primary_release(fault, 0), 0);
  vmm_driver_release(fault);
  CHECK_CALL(close_gpu(&g));
}

TEST(asking_for_pending_work_leaves_captures_alone) {
  vmm_driver *fault;
  void *context, *free_stream, *captured[2], *graph = NULL;
  vmm_raw_access access = {1, 0, 3};
  unsigned long long address;
  WITH_KERNELS(g);
  CHECK_OK(vmm_fault_create(&fault, g.driver, 1, NULL));
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READYx*:pending", NULL));
  CHECK_EQ(vmm_raw_primary_retain(fault, &context, 0), 0);
  CHECK_EQ(vmm_raw_stream_create(fault, &free_stream, NON_BLOCKING), 0);
  CHECK_EQ(vmm_raw_stream_create(fault, &captured[0], NON_BLOCKING), 0);
  CHECK_EQ(vmm_raw_stream_create(fault, &captured[1], 0), 0); /* blocking: the legacy stream is drawn in */
  CHECK_CALL(map_granules(&g, fault, 1, &address));
  for (int kind = 0; kind < 2; kind++) {
    CHECK_EQ(vmm_raw_stream_begin_capture(fault, captured[kind], 0), 0);
    CHECK_EQ(vmm_raw_kernel_spin(fault, captured[kind], 1000), 0);
    CHECK_EQ(vmm_raw_mem_set_access(fault, address, GRANULE, &access, 1), 0);
    CHECK_EQ(vmm_raw_stream_end_capture(fault, captured[kind], &graph), 0);
    CHECK(graph != NULL);
    CHECK_EQ(vmm_raw_graph_destroy(fault, graph), 0);
    CHECK_EQ(vmm_raw_stream_destroy(fault, captured[kind]), 0);
  }
  CHECK_CALL(unmap_granules(fault, 1, address));
  CHECK_EQ(vmm_raw_stream_destroy(fault, free_stream), 0);
  CHECK_EQ(vmm_raw_primary_release(fault, 0), 0);
  vmm_driver_release(fault);
  CHECK_CALL(close_gpu(&g));
}

TEST(partial_faults_do_half_over_the_real_driver) {
  vmm_driver *fault;
  unsigned long long address, flags = 9;
  vmm_raw_access access = {1, 0, 3};
  vmm_raw_location location = {1, 0};
  WITH_GPU(g);
  CHECK_OK(vmm_fault_create(&fault, g.driver, 1, NULL));
  CHECK_OK(vmm_fault_add_text(fault, "cuMemSetAccess:NOT_READY:partial,cuMemUnmap:UNKNOWN:partial", NULL));
  CHECK_CALL(map_granules(&g, fault, 4, &address));
  CHECK_EQ(vmm_raw_mem_set_access(fault, address, 4ull * GRANULE, &access, 1), VMM_CODE_NOT_READY);
  for (unsigned i = 0; i < 4; i++) {
    CHECK_EQ(vmm_raw_mem_get_access(fault, &flags, &location, address + (unsigned long long)i * GRANULE), 0);
    CHECK_EQ(flags, i < 2 ? 3 : 0);
  }
  CHECK_EQ(vmm_raw_mem_unmap(fault, address, 4ull * GRANULE), VMM_CODE_UNKNOWN);
  CHECK_EQ(vmm_raw_mem_get_access(fault, &flags, &location, address), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_mem_get_access(fault, &flags, &location, address + 2ull * GRANULE), 0);
  CHECK_CALL(unmap_granules(fault, 4, address));
  vmm_driver_release(fault);
  CHECK_CALL(close_gpu(&g));
}

TEST(orphans_are_given_back_to_the_real_driver) {
  vmm_driver *fault;
  size_t before, after, total, count;
  vmm_raw_prop prop = {1, 0, 1, 0, 0, 0};
  unsigned long long value;
  void *pointer;
  WITH_GPU(g);
  CHECK_OK(vmm_fault_create(&fault, g.driver, 1, NULL));
  CHECK_EQ(vmm_raw_mem_get_info(fault, &before, &total), 0);
  CHECK_OK(vmm_fault_add_text(fault, "*:UNKNOWNx*:after", NULL));
  CHECK_EQ(vmm_raw_mem_create(fault, &value, 64ull * GRANULE, &prop, 0), VMM_CODE_UNKNOWN);
  CHECK_EQ(vmm_raw_mem_reserve(fault, &value, 64ull * GRANULE, 0, 0, 0), VMM_CODE_UNKNOWN);
  CHECK_EQ(vmm_raw_event_create(fault, &pointer, 0), VMM_CODE_UNKNOWN);
  CHECK_EQ(vmm_raw_stream_create(fault, &pointer, 0), VMM_CODE_UNKNOWN);
  CHECK_EQ(vmm_raw_primary_retain(fault, &pointer, 0), VMM_CODE_UNKNOWN);
  CHECK_OK(vmm_fault_clear(fault));
  CHECK_EQ(vmm_raw_mem_get_info(fault, &after, &total), 0);
  CHECK(before - after >= 64ull * GRANULE);
  CHECK_OK(vmm_fault_get_orphans(fault, NULL, 0, &count));
  CHECK_EQ(count, 5);
  CHECK_OK(vmm_fault_release_orphans(fault));
  CHECK_EQ(vmm_raw_mem_get_info(fault, &after, &total), 0);
  CHECK(before - after < 64ull * GRANULE);
  vmm_driver_release(fault);
  CHECK_CALL(close_gpu(&g));
}

/* The last test: the context is dead after it. */
TEST(z_trap_ends_the_context) {
  WITH_KERNELS(g);
  CHECK_EQ(vmm_raw_kernel_trap(g.driver, g.stream), 0);
  CHECK_EQ(vmm_raw_stream_synchronize(g.driver, g.stream), VMM_CODE_LAUNCH_FAILED);
  CHECK_EQ(vmm_raw_stream_query(g.driver, g.stream), VMM_CODE_LAUNCH_FAILED);
  vmm_driver_release(g.driver);
}

RUN_TESTS()
