/* Facts about address space: reserve (RES), free (FRE), and the limits on both. */
#include "conformance.h"

static int reserve(conf *c, u64 *address, size_t size, size_t alignment, u64 hint, u64 flags) {
  *address = CONF_POISON;
  return vmm_raw_mem_reserve(c->driver, address, size, alignment, hint, flags);
}

FACT("RES-1", 0, reserve_zero) {
  u64 address;
  EXPECT(reserve(c, &address, 0, 0, 0, 0), VMM_CODE_INVALID_VALUE);
}

FACT("RES-2", 0, reserve_one_byte) {
  u64 address;
  EXPECT(reserve(c, &address, 1, 0, 0, 0), VMM_CODE_INVALID_VALUE);
}

FACT("RES-3", 0, reserve_odd_size) {
  u64 address;
  EXPECT(reserve(c, &address, c->granule + 4096, 0, 0, 0), VMM_CODE_INVALID_VALUE);
}

FACT("RES-4", 0, reserve_odd_alignment) {
  u64 address;
  EXPECT(reserve(c, &address, c->granule, 3, 0, 0), VMM_CODE_INVALID_VALUE);
}

FACT("RES-5", 0, reserve_flags) {
  u64 address;
  EXPECT(reserve(c, &address, c->granule, 0, 0, 1), VMM_CODE_INVALID_VALUE);
}

FACT("RES-6", 0, reserve_aligned) {
  u64 address;
  REQUIRE(reserve(c, &address, c->granule, 1u << 30, 0, 0), VMM_CODE_SUCCESS);
  EXPECT_EQ(address % (1u << 30), 0);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, c->granule), VMM_CODE_SUCCESS);
}

FACT("RES-7", 0, reserve_large) {
  for (int bits = 36; bits <= 46; bits++) {
    u64 address;
    if (!EXPECT(reserve(c, &address, (size_t)1 << bits, 0, 0, 0), VMM_CODE_SUCCESS)) continue;
    EXPECT_EQ(address % c->granule, 0);
    EXPECT(vmm_raw_mem_address_free(c->driver, address, (size_t)1 << bits), VMM_CODE_SUCCESS);
  }
}

FACT("RES-8", 0, reserve_too_large) {
  u64 address;
  EXPECT(reserve(c, &address, (size_t)1 << 47, 0, 0, 0), VMM_CODE_OUT_OF_MEMORY);
}

/* How many fit depends on what else the process has reserved; the simulator has the space that was measured. */
FACT("RES-9", 0, reserve_until_refused) {
  enum { LIMIT = 64, MEASURED = 31 };
  u64 addresses[LIMIT];
  size_t size = (size_t)1 << 42;
  int count = 0, code = VMM_CODE_SUCCESS;
  while (count < LIMIT && (code = reserve(c, &addresses[count], size, 0, 0, 0)) == VMM_CODE_SUCCESS) count++;
  EXPECT(code, VMM_CODE_OUT_OF_MEMORY);
  EXPECT_TRUE(c->cuda ? count >= MEASURED - 2 && count < LIMIT : count == MEASURED);
  for (int i = 0; i < count; i++) EXPECT(vmm_raw_mem_address_free(c->driver, addresses[i], size), VMM_CODE_SUCCESS);
}

FACT("RES-10", 0, reserve_right_behind) {
  u64 first = conf_reserve(c, 4 * c->granule), second;
  if (!first) return;
  REQUIRE(reserve(c, &second, 4 * c->granule, 0, first + 4 * c->granule, 0), VMM_CODE_SUCCESS);
  EXPECT_EQ(second, first + 4 * c->granule);
  EXPECT(vmm_raw_mem_address_free(c->driver, second, 4 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, first, 4 * c->granule), VMM_CODE_SUCCESS);
}

FACT("FRE-1", 0, free_part) {
  u64 address = conf_reserve(c, 16 * c->granule);
  if (!address) return;
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 16 * c->granule), VMM_CODE_SUCCESS);
}

FACT("FRE-2", 0, free_two_as_one) {
  size_t size = 4 * c->granule;
  u64 first = conf_reserve(c, size), second;
  if (!first) return;
  REQUIRE(reserve(c, &second, size, 0, first + size, 0), VMM_CODE_SUCCESS);
  if (EXPECT_EQ(second, first + size)) {
    EXPECT(vmm_raw_mem_address_free(c->driver, first, 2 * size), VMM_CODE_INVALID_VALUE);
  }
  EXPECT(vmm_raw_mem_address_free(c->driver, first, size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, second, size), VMM_CODE_SUCCESS);
}

FACT("FRE-3", 0, free_wild) {
  EXPECT(vmm_raw_mem_address_free(c->driver, CONF_WILD, c->granule), VMM_CODE_INVALID_VALUE);
}

FACT("FRE-4", 0, free_mapped) {
  conf_range range;
  if (!conf_make(c, &range, 2 * c->granule, 0)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_FREE_MAPPED);
  EXPECT(vmm_raw_mem_address_free(c->driver, range.address, range.size), VMM_CODE_INVALID_VALUE);
  conf_unmake(c, &range);
}

FACT("FRE-5", 0, free_whole) {
  u64 address = conf_reserve(c, 8 * c->granule);
  if (address) EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}
