/* Facts about set-access (ACC) and get-access (GET). */
#include "conformance.h"

/* `count` mappings of one granule each at the start of a reservation of 8 granules, no access yet. */
static u64 prepare(conf *c, int count) {
  u64 address = conf_reserve(c, 8 * c->granule);
  for (int i = 0; address && i < count; i++) {
    u64 handle = conf_create(c, c->granule);
    u64 at = address + (u64)i * c->granule;
    if (!handle || !EXPECT(vmm_raw_mem_map(c->driver, at, c->granule, 0, handle, 0), VMM_CODE_SUCCESS)) return 0;
    EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  }
  return address;
}

static void finish(conf *c, u64 address, int count) {
  if (count) EXPECT(vmm_raw_mem_unmap(c->driver, address, (size_t)count * c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 8 * c->granule), VMM_CODE_SUCCESS);
}

static void expect_flags(conf *c, u64 address, u64 wanted) {
  u64 flags;
  EXPECT(conf_get_access(c, address, &flags), VMM_CODE_SUCCESS);
  EXPECT_EQ(flags, wanted);
}

FACT("ACC-1", 0, access_several) {
  u64 address = prepare(c, 4);
  if (!address) return;
  EXPECT(conf_access(c, address, 4 * c->granule, 3), VMM_CODE_SUCCESS);
  for (u64 i = 0; i < 4; i++) expect_flags(c, address + i * c->granule, 3);
  finish(c, address, 4);
}

FACT("ACC-2", 0, access_over_hole) {
  u64 address = prepare(c, 4);
  if (!address) return;
  EXPECT(conf_access(c, address, 4 * c->granule, 3), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, address + 2 * c->granule, 4 * c->granule, 3), VMM_CODE_INVALID_VALUE);
  finish(c, address, 4);
}

FACT("ACC-3", 0, access_beyond) {
  conf_range r = {0, 2 * c->granule, 0};
  u64 address = conf_reserve(c, 8 * c->granule);
  r.handle = conf_create(c, r.size);
  if (!address || !r.handle) return;
  REQUIRE(vmm_raw_mem_map(c->driver, address, r.size, 0, r.handle, 0), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, address, 3 * c->granule, 3), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  finish(c, address, 2);
}

FACT("ACC-4", 0, access_part) {
  conf_range r;
  if (!conf_make(c, &r, 2 * c->granule, 0)) return;
  EXPECT(conf_access(c, r.address, c->granule, 3), VMM_CODE_INVALID_VALUE);
  EXPECT(conf_access(c, r.address, r.size, 3), VMM_CODE_SUCCESS);
  conf_unmake(c, &r);
}

FACT("ACC-5", 0, access_misaligned) {
  u64 address = prepare(c, 2);
  if (!address) return;
  EXPECT(conf_access(c, address + 4096, c->granule, 3), VMM_CODE_INVALID_VALUE);
  finish(c, address, 2);
}

FACT("ACC-6", 0, access_nothing) {
  u64 address = prepare(c, 1);
  if (!address) return;
  EXPECT(conf_access(c, address, 0, 3), VMM_CODE_INVALID_VALUE);
  finish(c, address, 1);
}

FACT("ACC-7", 0, access_for_nobody) {
  u64 address = prepare(c, 1);
  vmm_raw_access rights = conf_rights(c, 3);
  if (!address) return;
  EXPECT(vmm_raw_mem_set_access(c->driver, address, c->granule, &rights, 0), VMM_CODE_INVALID_VALUE);
  finish(c, address, 1);
}

FACT("ACC-8", 0, access_odd_size) {
  u64 address = prepare(c, 2);
  if (!address) return;
  EXPECT(conf_access(c, address, c->granule + 4096, 3), VMM_CODE_INVALID_VALUE);
  finish(c, address, 2);
}

FACT("ACC-9", 0, access_for_no_device) {
  u64 address = prepare(c, 1);
  vmm_raw_access rights = conf_rights(c, 3);
  if (!address) return;
  EXPECT(conf_access(c, address, c->granule, 3), VMM_CODE_SUCCESS);
  rights.location_id = 999;
  EXPECT(vmm_raw_mem_set_access(c->driver, address, c->granule, &rights, 1), VMM_CODE_INVALID_VALUE);
  expect_flags(c, address, 3);
  finish(c, address, 1);
}

FACT("ACC-10", 0, access_one_of_two) {
  u64 address = prepare(c, 1);
  vmm_raw_access rights[2] = {conf_rights(c, 3), conf_rights(c, 3)};
  if (!address) return;
  rights[1].location_id = 999;
  EXPECT(vmm_raw_mem_set_access(c->driver, address, c->granule, rights, 2), VMM_CODE_INVALID_VALUE);
  expect_flags(c, address, 0);
  finish(c, address, 1);
}

FACT("ACC-11", 0, access_unmapped) {
  u64 address = prepare(c, 0);
  if (!address) return;
  EXPECT(conf_access(c, address, c->granule, 3), VMM_CODE_INVALID_VALUE);
  finish(c, address, 0);
}

FACT("ACC-12", 0, access_after_release) {
  conf_range r;
  if (!conf_make(c, &r, c->granule, 0)) return;
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  r.handle = 0;
  EXPECT(conf_access(c, r.address, r.size, 3), VMM_CODE_SUCCESS);
  expect_flags(c, r.address, 3);
  conf_unmake(c, &r);
}

/* A read-only view of memory filled through another address. */
static bool make_read_only(conf *c, conf_range *r, u64 *view) {
  if (!conf_make(c, r, c->granule, 3)) return false;
  *view = conf_reserve(c, c->granule);
  if (!*view) return false;
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, r->address, r->size, 9), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  if (!EXPECT(vmm_raw_mem_map(c->driver, *view, r->size, 0, r->handle, 0), VMM_CODE_SUCCESS)) return false;
  return EXPECT(conf_access(c, *view, r->size, 1), VMM_CODE_SUCCESS);
}

FACT("ACC-13", 0, access_read) {
  conf_range r;
  u64 view;
  if (!make_read_only(c, &r, &view)) return;
  EXPECT_EQ(conf_mismatches(c, view, r.size, 9), 0);
  EXPECT(vmm_raw_mem_unmap(c->driver, view, r.size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, view, r.size), VMM_CODE_SUCCESS);
  conf_unmake(c, &r);
}

FACT("ACC-14", CONF_CHILD | CONF_LEAVES, access_read_written) {
  conf_range r;
  u64 view, plain = 0;
  if (!make_read_only(c, &r, &view)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_TOUCH);
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, view, r.size, 1), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_ILLEGAL_ADDRESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_ILLEGAL_ADDRESS);
  EXPECT(vmm_raw_mem_alloc(c->driver, &plain, 4096), VMM_CODE_ILLEGAL_ADDRESS);
}

FACT("ACC-15", 0, access_revoked) {
  conf_range r;
  unsigned char buffer[8] = {CONF_POISON_BYTE};
  if (!conf_make(c, &r, c->granule, 3)) return;
  EXPECT(conf_access(c, r.address, r.size, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_memcpy_dtoh(c->driver, buffer, r.address, sizeof buffer), VMM_CODE_INVALID_VALUE);
  EXPECT_EQ(buffer[0], CONF_POISON_BYTE);
  conf_unmake(c, &r);
}

FACT("GET-1", 0, get_reserved) {
  u64 address = prepare(c, 0), flags;
  if (!address) return;
  EXPECT(conf_get_access(c, address, &flags), VMM_CODE_INVALID_VALUE);
  finish(c, address, 0);
}

FACT("GET-2", 0, get_mapped) {
  u64 address = prepare(c, 1);
  if (!address) return;
  expect_flags(c, address, 0);
  finish(c, address, 1);
}

FACT("GET-3", 0, get_granted) {
  u64 address = prepare(c, 4);
  if (!address) return;
  EXPECT(conf_access(c, address, 4 * c->granule, 3), VMM_CODE_SUCCESS);
  expect_flags(c, address + 3 * c->granule, 3);
  finish(c, address, 4);
}

FACT("GET-4", 0, get_wild) {
  u64 flags;
  EXPECT(conf_get_access(c, CONF_WILD, &flags), VMM_CODE_INVALID_VALUE);
}

FACT("GET-5", 0, get_unmapped) {
  u64 address = prepare(c, 1), flags;
  if (!address) return;
  EXPECT(conf_access(c, address, c->granule, 3), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_unmap(c->driver, address, c->granule), VMM_CODE_SUCCESS);
  EXPECT(conf_get_access(c, address, &flags), VMM_CODE_INVALID_VALUE);
  finish(c, address, 0);
}
