/* Facts about map (MAP), unmap (UNM) and retain-handle (RET). */
#include "conformance.h"

static int map(conf *c, u64 address, size_t size, size_t offset, u64 handle) {
  return vmm_raw_mem_map(c->driver, address, size, offset, handle, 0);
}

static int unmap(conf *c, u64 address, size_t size) { return vmm_raw_mem_unmap(c->driver, address, size); }

/* A reservation of 8 granules and a handle of `granules`: what most cases here need. */
static bool prepare(conf *c, conf_range *range, size_t granules) {
  range->size = 8 * c->granule;
  range->address = conf_reserve(c, range->size);
  range->handle = conf_create(c, granules * c->granule);
  return range->address && range->handle;
}

static void finish(conf *c, const conf_range *range) {
  EXPECT(vmm_raw_mem_release(c->driver, range->handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, range->address, range->size), VMM_CODE_SUCCESS);
}

FACT("MAP-1", 0, map_less_than_handle) {
  conf_range r;
  if (!prepare(c, &r, 2)) return;
  EXPECT(map(c, r.address, c->granule, 0, r.handle), VMM_CODE_NOT_SUPPORTED);
  finish(c, &r);
}

FACT("MAP-2", 0, map_more_than_handle) {
  conf_range r;
  if (!prepare(c, &r, 1)) return;
  EXPECT(map(c, r.address, 2 * c->granule, 0, r.handle), VMM_CODE_NOT_SUPPORTED);
  finish(c, &r);
}

FACT("MAP-3", 0, map_offset) {
  conf_range r;
  if (!prepare(c, &r, 2)) return;
  EXPECT(map(c, r.address + c->granule, c->granule, c->granule, r.handle), VMM_CODE_NOT_SUPPORTED);
  finish(c, &r);
}

FACT("MAP-4", 0, map_misaligned) {
  conf_range r;
  if (!prepare(c, &r, 1)) return;
  EXPECT(map(c, r.address + 4096, c->granule, 0, r.handle), VMM_CODE_INVALID_VALUE);
  finish(c, &r);
}

FACT("MAP-5", 0, map_over_mapping) {
  conf_range r;
  u64 other = conf_create(c, c->granule);
  if (!other || !prepare(c, &r, 2)) return;
  EXPECT(map(c, r.address, 2 * c->granule, 0, r.handle), VMM_CODE_SUCCESS);
  EXPECT(map(c, r.address + c->granule, c->granule, 0, other), VMM_CODE_INVALID_VALUE);
  EXPECT(unmap(c, r.address, 2 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, other), VMM_CODE_SUCCESS);
  finish(c, &r);
}

FACT("MAP-6", 0, map_wild) {
  u64 handle = conf_create(c, c->granule);
  if (!handle) return;
  EXPECT(map(c, CONF_WILD, c->granule, 0, handle), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
}

FACT("MAP-7", 0, map_handle_zero) {
  u64 address = conf_reserve(c, 8 * c->granule);
  if (!address) return;
  EXPECT(map(c, address, c->granule, 0, 0), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}

/* In a child: over CUDA the mapping reaches into address space that belongs to nobody. */
FACT("MAP-8", CONF_CHILD | CONF_LEAVES | CONF_STRICTER, map_past_end) {
  conf_range r;
  if (!prepare(c, &r, 2)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_MAP_PAST_END);
  EXPECT(map(c, r.address + 7 * c->granule, 2 * c->granule, 0, r.handle), VMM_CODE_SUCCESS);
}

FACT("MAP-9", CONF_STRICTER, map_across_two) {
  size_t half = 4 * c->granule;
  u64 first = conf_reserve(c, half), second = 0, at = first + half - c->granule,
      handle = conf_create(c, 2 * c->granule);
  if (!first || !handle) return;
  REQUIRE(vmm_raw_mem_reserve(c->driver, &second, half, 0, first + half, 0), VMM_CODE_SUCCESS);
  if (EXPECT_EQ(second, first + half)) {
    conf_expect_misuse(c, VMM_SIM_MISUSE_MAP_PAST_END);
    EXPECT(map(c, at, 2 * c->granule, 0, handle), VMM_CODE_SUCCESS);
    EXPECT(conf_access(c, at, 2 * c->granule, 3), VMM_CODE_SUCCESS);
    EXPECT(unmap(c, at, 2 * c->granule), VMM_CODE_SUCCESS);
  }
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, first, half), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, second, half), VMM_CODE_SUCCESS);
}

FACT("MAP-10", 0, map_alias) {
  conf_range r;
  if (!prepare(c, &r, 1)) return;
  u64 alias = r.address + 4 * c->granule;
  EXPECT(map(c, r.address, c->granule, 0, r.handle), VMM_CODE_SUCCESS);
  EXPECT(map(c, alias, c->granule, 0, r.handle), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, r.address, c->granule, 3), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, alias, c->granule, 3), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, r.address, c->granule, 77), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_mismatches(c, alias, c->granule, 77), 0);
  EXPECT_EQ(conf_read_word(c, alias), vmm_pattern_word(77, 0));
  EXPECT(unmap(c, r.address, c->granule), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_read_word(c, alias), vmm_pattern_word(77, 0));
  EXPECT(unmap(c, alias, c->granule), VMM_CODE_SUCCESS);
  finish(c, &r);
}

FACT("MAP-11", 0, map_released_but_mapped) {
  conf_range r;
  if (!prepare(c, &r, 2)) return;
  EXPECT(map(c, r.address, 2 * c->granule, 0, r.handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  EXPECT(map(c, r.address + 6 * c->granule, 2 * c->granule, 0, r.handle), VMM_CODE_SUCCESS);
  EXPECT(unmap(c, r.address, 2 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(unmap(c, r.address + 6 * c->granule, 2 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
}

/* The real driver does not come back from these two. */
static void map_what_is_none(conf *c, u64 handle) {
  u64 address = conf_reserve(c, 8 * c->granule);
  conf_expect_misuse(c, VMM_SIM_MISUSE_BOGUS_HANDLE);
  EXPECT(map(c, address, c->granule, 0, handle), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}

FACT("MAP-12", CONF_CHILD | CONF_SEGFAULTS | CONF_STRICTER, map_bogus) { map_what_is_none(c, 0xdeadbeef); }

FACT("MAP-13", CONF_CHILD | CONF_SEGFAULTS | CONF_STRICTER, map_released) {
  u64 handle = conf_create(c, c->granule);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  map_what_is_none(c, handle);
}

/* Maps `count` handles of one granule each, one behind the other, and lets the mappings alone hold them. */
static bool map_several(conf *c, u64 address, int count) {
  for (int i = 0; i < count; i++) {
    u64 handle = conf_create(c, c->granule);
    if (!handle) return false;
    if (!EXPECT(map(c, address + (u64)i * c->granule, c->granule, 0, handle), VMM_CODE_SUCCESS)) return false;
    EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  }
  return true;
}

FACT("UNM-1", 0, unmap_one) {
  conf_range r;
  u64 flags;
  if (!conf_make(c, &r, 2 * c->granule, 3)) return;
  EXPECT(unmap(c, r.address, r.size), VMM_CODE_SUCCESS);
  EXPECT(conf_get_access(c, r.address, &flags), VMM_CODE_INVALID_VALUE);
  finish(c, &r);
}

FACT("UNM-2", 0, unmap_several) {
  size_t size = 4 * c->granule;
  u64 address = conf_reserve(c, size), flags;
  if (!address || !map_several(c, address, 4)) return;
  EXPECT(unmap(c, address, 2 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(conf_get_access(c, address + c->granule, &flags), VMM_CODE_INVALID_VALUE);
  EXPECT(conf_get_access(c, address + 2 * c->granule, &flags), VMM_CODE_SUCCESS);
  EXPECT(unmap(c, address + 2 * c->granule, 2 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, size), VMM_CODE_SUCCESS);
}

FACT("UNM-3", CONF_STRICTER, unmap_over_hole) {
  size_t size = 4 * c->granule;
  u64 address = conf_reserve(c, size), flags;
  if (!address || !map_several(c, address + 2 * c->granule, 2)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_UNMAP_HOLE);
  EXPECT(unmap(c, address, size), VMM_CODE_SUCCESS);
  EXPECT(conf_get_access(c, address + 2 * c->granule, &flags), VMM_CODE_INVALID_VALUE);
  EXPECT(conf_get_access(c, address + 3 * c->granule, &flags), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, size), VMM_CODE_SUCCESS);
}

FACT("UNM-4", CONF_STRICTER, unmap_never_mapped) {
  u64 address = conf_reserve(c, 8 * c->granule);
  if (!address) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_UNMAP_HOLE);
  EXPECT(unmap(c, address + 2 * c->granule, c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}

/* Measured where nothing was mapped. */
FACT("UNM-5", CONF_STRICTER, unmap_misaligned) {
  u64 address = conf_reserve(c, 8 * c->granule);
  if (!address) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_UNMAP_HOLE);
  EXPECT(unmap(c, address + 4096, c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}

FACT("UNM-6", 0, unmap_part) {
  conf_range r;
  u64 flags;
  if (!conf_make(c, &r, 2 * c->granule, 3)) return;
  EXPECT(unmap(c, r.address, c->granule), VMM_CODE_INVALID_VALUE);
  EXPECT(conf_get_access(c, r.address, &flags), VMM_CODE_SUCCESS);
  EXPECT_EQ(flags, 3);
  conf_unmake(c, &r);
}

FACT("UNM-7", 0, unmap_nothing) {
  u64 address = conf_reserve(c, 8 * c->granule);
  if (!address) return;
  EXPECT(unmap(c, address, 0), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}

FACT("UNM-8", 0, unmap_wild) { EXPECT(unmap(c, CONF_WILD, c->granule), VMM_CODE_INVALID_VALUE); }

FACT("UNM-9", CONF_STRICTER, unmap_twice) {
  conf_range r;
  if (!conf_make(c, &r, 2 * c->granule, 0)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_UNMAP_HOLE);
  EXPECT(unmap(c, r.address, r.size), VMM_CODE_SUCCESS);
  EXPECT(unmap(c, r.address, r.size), VMM_CODE_SUCCESS);
  finish(c, &r);
}

static int retain(conf *c, u64 address) {
  u64 handle = 0;
  int code = vmm_raw_mem_retain_handle(c->driver, &handle, address);
  if (code == VMM_CODE_SUCCESS) EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  return code;
}

FACT("RET-1", 0, retain_mapped) {
  conf_range r;
  if (!conf_make(c, &r, c->granule, 0)) return;
  EXPECT(retain(c, r.address), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  EXPECT(retain(c, r.address), VMM_CODE_SUCCESS);
  r.handle = 0;
  conf_unmake(c, &r);
}

FACT("RET-2", 0, retain_unmapped) {
  conf_range r;
  if (!conf_make(c, &r, c->granule, 3)) return;
  EXPECT(unmap(c, r.address, r.size), VMM_CODE_SUCCESS);
  EXPECT(retain(c, r.address), VMM_CODE_INVALID_VALUE);
  finish(c, &r);
}

FACT("RET-3", 0, retain_wild) { EXPECT(retain(c, CONF_WILD), VMM_CODE_INVALID_VALUE); }
