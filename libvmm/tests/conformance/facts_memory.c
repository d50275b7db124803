/* Facts about physical memory: granularity (GRA), create (CRT), release (REL). */
#include <string.h>

#include "conformance.h"

static int create(conf *c, size_t size, const vmm_raw_prop *prop, u64 flags) {
  u64 handle = CONF_POISON;
  int code = vmm_raw_mem_create(c->driver, &handle, size, prop, flags);
  if (code == VMM_CODE_SUCCESS) EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  return code;
}

static void expect_two_mib(conf *c, const vmm_raw_prop *prop) {
  for (int option = 0; option < 2; option++) { /* 0: minimum, 1: recommended */
    size_t granule = CONF_POISON;
    EXPECT(vmm_raw_mem_granularity(c->driver, &granule, prop, option), VMM_CODE_SUCCESS);
    EXPECT_EQ(granule, 2u << 20);
  }
}

FACT("GRA-1", 0, granularity) {
  vmm_raw_prop prop = conf_prop(c);
  expect_two_mib(c, &prop);
}

FACT("GRA-2", 0, granularity_rdma) {
  vmm_raw_prop prop = conf_prop(c);
  prop.gpudirect_rdma = 1;
  expect_two_mib(c, &prop);
}

FACT("GRA-3", 0, granularity_compression) {
  vmm_raw_prop prop = conf_prop(c);
  prop.compression = 1;
  expect_two_mib(c, &prop);
}

static void expect_attribute(conf *c, int attribute, int wanted) {
  int value = -1;
  EXPECT(vmm_raw_device_attribute(c->driver, &value, attribute, c->device), VMM_CODE_SUCCESS);
  if (value != wanted) EXPECT_EQ(attribute * 1000 + value, attribute * 1000 + wanted);
}

/* VMM, posix fd and fabric handles, compression, RDMA with VMM, memory pools. */
FACT("ATT-1", 0, attributes) {
  expect_attribute(c, 102, 1);
  expect_attribute(c, 103, 1);
  expect_attribute(c, 128, 1);
  expect_attribute(c, 107, 1);
  expect_attribute(c, 110, 1);
  expect_attribute(c, 115, 1);
}

FACT("CRT-1", 0, create_zero) {
  vmm_raw_prop prop = conf_prop(c);
  EXPECT(create(c, 0, &prop, 0), VMM_CODE_INVALID_VALUE);
}

FACT("CRT-2", 0, create_odd_size) {
  vmm_raw_prop prop = conf_prop(c);
  EXPECT(create(c, c->granule + 4096, &prop, 0), VMM_CODE_INVALID_VALUE);
}

FACT("CRT-3", 0, create_flags) {
  vmm_raw_prop prop = conf_prop(c);
  EXPECT(create(c, c->granule, &prop, 1), VMM_CODE_INVALID_VALUE);
}

FACT("CRT-4", 0, create_on_no_device) {
  vmm_raw_prop prop = conf_prop(c);
  prop.location_id = 999;
  EXPECT(create(c, c->granule, &prop, 0), VMM_CODE_INVALID_DEVICE);
}

FACT("CRT-5", 0, create_too_large) {
  vmm_raw_prop prop = conf_prop(c);
  EXPECT(create(c, (size_t)1 << 40, &prop, 0), VMM_CODE_OUT_OF_MEMORY);
}

static size_t free_bytes(conf *c) {
  size_t bytes = CONF_POISON, total = CONF_POISON;
  EXPECT(vmm_raw_mem_get_info(c->driver, &bytes, &total), VMM_CODE_SUCCESS);
  EXPECT_TRUE(bytes <= total);
  return bytes;
}

FACT("CRT-6", 0, create_counts) {
  size_t before = free_bytes(c), size = 64 * c->granule;
  u64 handle = conf_create(c, size);
  if (!handle) return;
  EXPECT_EQ(before - free_bytes(c), size);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  EXPECT_EQ(free_bytes(c), before);
}

/* Whether any of the range's bytes is not 0; the buffer is poisoned before each copy. */
static bool reads_as_zero(conf *c, u64 address, size_t size) {
  static unsigned char buffer[1 << 20];
  bool zero = true;
  for (size_t at = 0; at < size; at += sizeof buffer) {
    memset(buffer, CONF_POISON_BYTE, sizeof buffer);
    EXPECT(vmm_raw_memcpy_dtoh(c->driver, buffer, address + at, sizeof buffer), VMM_CODE_SUCCESS);
    for (size_t i = 0; i < sizeof buffer; i++) zero = zero && buffer[i] == 0;
  }
  return zero;
}

/* Observed, promised by no document: the library does not rely on it. */
FACT("CRT-7", 0, create_zeroed) {
  size_t size = (c->cuda ? 512 : 4) * c->granule;
  for (int i = 0; i < 3; i++) {
    conf_range range;
    if (!conf_make(c, &range, size, 3)) return;
    EXPECT_TRUE(reads_as_zero(c, range.address, size));
    EXPECT(vmm_raw_kernel_fill(c->driver, NULL, range.address, size, 7), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
    EXPECT_TRUE(!reads_as_zero(c, range.address, size));
    conf_unmake(c, &range);
  }
}

FACT("CRT-8", 0, create_until_full) {
  enum { LIMIT = 8192 };
  static u64 handles[LIMIT];
  vmm_raw_prop prop = conf_prop(c);
  const size_t sizes[2] = {(size_t)4 << 30, c->granule};
  size_t before = free_bytes(c);
  u64 plain = 0;
  int count = 0;
  for (int i = 0; i < 2; i++) {
    int code = VMM_CODE_SUCCESS;
    while (count < LIMIT && !(code = vmm_raw_mem_create(c->driver, &handles[count], sizes[i], &prop, 0))) count++;
    EXPECT(code, VMM_CODE_OUT_OF_MEMORY);
  }
  EXPECT_TRUE(free_bytes(c) < 2 * c->granule);
  EXPECT(vmm_raw_mem_alloc(c->driver, &plain, c->granule), VMM_CODE_OUT_OF_MEMORY);
  for (int i = 0; i < count; i++) EXPECT(vmm_raw_mem_release(c->driver, handles[i]), VMM_CODE_SUCCESS);
  EXPECT_EQ(free_bytes(c), before);
}

/* The attribute says that fabric handles are supported; without an IMEX channel they are not to be had. */
FACT("CRT-9", 0, create_fabric) {
  vmm_raw_prop prop = conf_prop(c);
  prop.handle_types = 8;
  EXPECT(create(c, c->granule, &prop, 0), VMM_CODE_NOT_PERMITTED);
}

typedef struct host_call {
  conf *c;
  int code;
} host_call;

static void create_inside(void *data) {
  host_call *call = data;
  vmm_raw_prop prop = conf_prop(call->c);
  call->code = create(call->c, call->c->granule, &prop, 0);
}

FACT("CRT-10", 0, create_in_host_function) {
  host_call call = {c, -1};
  void *stream = NULL;
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_launch_host_func(c->driver, stream, create_inside, &call), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_synchronize(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT(call.code, VMM_CODE_NOT_PERMITTED);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
}

FACT("CRT-11", 0, create_on_host_node) {
  vmm_raw_prop prop = conf_prop(c);
  vmm_raw_access cpu = {3, 0, 3};
  size_t size = 32 * c->granule;
  u64 handle = 0, address = conf_reserve(c, size);
  unsigned int word = CONF_POISON;
  prop.location_type = 3;
  prop.location_id = 0;
  REQUIRE(vmm_raw_mem_create(c->driver, &handle, size, &prop, 0), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_mem_map(c->driver, address, size, 0, handle, 0), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, address, size, 3), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_set_access(c->driver, address, size, &cpu, 1), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, address, size, 5), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  /* The simulator's addresses are not the process's. */
  if (c->cuda) memcpy(&word, (const void *)(uintptr_t)address, sizeof word);
  if (!c->cuda) word = conf_read_word(c, address);
  EXPECT_EQ(word, vmm_pattern_word(5, 0));
  EXPECT(vmm_raw_mem_unmap(c->driver, address, size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, size), VMM_CODE_SUCCESS);
}

FACT("REL-1", 0, release_mapped) {
  conf_range range;
  if (!conf_make(c, &range, c->granule, 3)) return;
  EXPECT(vmm_raw_mem_release(c->driver, range.handle), VMM_CODE_SUCCESS);
  range.handle = 0;
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, range.address, range.size, 3), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_mismatches(c, range.address, range.size, 3), 0);
  conf_unmake(c, &range);
}

FACT("REL-2", 0, release_mapped_twice) {
  conf_range range;
  if (!conf_make(c, &range, c->granule, 0)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_DOUBLE_RELEASE);
  EXPECT(vmm_raw_mem_release(c->driver, range.handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, range.handle), VMM_CODE_INVALID_VALUE);
  range.handle = 0;
  conf_unmake(c, &range);
}

FACT("REL-3", 0, release_zero) { EXPECT(vmm_raw_mem_release(c->driver, 0), VMM_CODE_INVALID_VALUE); }

FACT("REL-4", 0, release_gone) {
  u64 handle = conf_create(c, c->granule);
  if (!handle) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_DOUBLE_RELEASE);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_INVALID_VALUE);
}
