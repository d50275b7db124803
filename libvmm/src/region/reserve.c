/* The reservation: how much, at what granularity, and giving it back. */
#include <string.h>

#include "base/memory.h"
#include "index/growth.h"
#include "region/plain.h"

enum { RECOMMENDED = 1 };

/* A mapping must suit every device that has access, so the largest recommended granularity counts. */
static vmm_status find_granularity(vmm__region *region, vmm__work *work, const vmm__region_request *request) {
  vmm_device *device = region->device;
  vmm__u64 granularity = device->info.granularity;
  size_t i;

  for (i = 0; i < request->peer_count; i++) {
    vmm_raw_prop prop = {1, 0, 1, 0, 0, 0};
    size_t theirs = 0;

    prop.location_id = request->peers[i];
    CU_CHECK(work, 0, 0, mem_granularity, (device, &theirs, &prop, RECOMMENDED));
    granularity = vmm__max(granularity, theirs);
  }
  region->granularity = granularity;
undo:
  return work->status;
}

static vmm_status check_peers(vmm__region *region, vmm__work *work, const vmm__region_request *request) {
  size_t i;

  for (i = 0; i < request->peer_count; i++) {
    int can = 0;

    CU_CHECK(work, 0, 0, device_can_access_peer, (region->device, &can, request->peers[i], region->device->raw));
    if (can == 0) return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "a peer cannot reach the device's memory");
  }
undo:
  return work->status;
}

/* Room for one peer more than there are, so that add-peer of the common case allocates nothing. */
static vmm_status make_access(vmm__region *region, vmm__work *work, const vmm__region_request *request) {
  size_t i;

  region->access_capacity = request->peer_count + 2;
  region->access = vmm__memory_allocate(&region->device->memory, region->access_capacity, sizeof *region->access);
  if (region->access == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  region->access_count = request->peer_count + 1;
  region->peer_count = request->peer_count;
  for (i = 0; i < region->access_count; i++) {
    region->access[i].location_type = 1;
    region->access[i].location_id = i == 0 ? region->device->raw : request->peers[i - 1];
    region->access[i].flags = 3;
  }
  return VMM_OK;
}

static vmm_status reserve(vmm__region *region, vmm__work *work, vmm__u64 size) {
  CU_CHECK(work, 0, size, mem_reserve,
           (region->device, &region->base, (size_t)size, (size_t)region->granularity, 0, 0));
  region->size = size;
undo:
  return work->status;
}

static vmm_status reserve_by_ladder(vmm__region *region, vmm__work *work, const vmm__region_request *request) {
  vmm__u64 size = vmm__growth_reservation(region->device->info.total_bytes, request->first, region->granularity);

  if (size == 0) return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the initial size is too large to reserve");
  for (;;) {
    if (reserve(region, work, size) == VMM_OK) return VMM_OK;
    if (work->status != VMM_ERROR_OUT_OF_ADDRESS_SPACE) return work->status;
    size = vmm__growth_reservation_smaller(size, request->first, region->granularity);
    if (size == 0) return work->status;
    work->status = VMM_OK; /* a refused size is no error while a smaller one is left */
  }
}

static bool device_is_plain(const vmm__work *work) { return work->device->info.fallback != 0; }

static vmm_status open_plain(vmm__region *region, vmm__work *work, const vmm__region_request *request) {
  if (vmm__plain_open(region, work, request) != VMM_OK) return work->status;
  if (request->verify == VMM_VERIFY_DATA && vmm__region_prepare_verify(region, work) != VMM_OK) return work->status;
  return make_access(region, work, request);
}

vmm_status vmm__region_open(vmm__region *region, vmm__work *work, vmm__lock *lock, const vmm__region_request *request) {
  vmm__u64 size;

  memset(region, 0, sizeof *region);
  region->device = work->device;
  region->lock = lock;
  region->verify = request->verify;
  vmm__mappings_init(&region->mappings);
  if (device_is_plain(work)) return open_plain(region, work, request);
  if (check_peers(region, work, request) != VMM_OK || find_granularity(region, work, request) != VMM_OK)
    return work->status;
  if (request->verify == VMM_VERIFY_DATA && vmm__region_prepare_verify(region, work) != VMM_OK) return work->status;
  if (make_access(region, work, request) != VMM_OK) return work->status;
  if (request->reservation == 0) (void)reserve_by_ladder(region, work, request);
  else if (!vmm__round_up(request->reservation, region->granularity, &size))
    (void)vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the reservation is too large to round up");
  else (void)reserve(region, work, size);
  if (work->status != VMM_OK) {
    vmm__memory_release(&region->device->memory, region->access, region->access_capacity, sizeof *region->access);
    region->access = NULL;
    return work->status;
  }
  (void)atomic_fetch_add(&region->device->reserved_bytes, region->size);
  return VMM_OK;
}

/* As with a handle's release: after a failure that leaves open whether it was done, INVALID_VALUE says that it was. So it
 * does after a first INVALID_VALUE, in a later call: the range and its size are ours and nothing is mapped in it, so it can
 * only be free already, and a pool must not stand for ever because the driver told the same untruth once. */
static bool give_range_back(vmm__region *region, vmm__work *work) {
  for (;;) {
    int code = vmm__cu_mem_address_free(region->device, region->base, (size_t)region->size);
    bool done_before = region->free_code != 0;

    if (code == VMM_CODE_SUCCESS || (code == VMM_CODE_INVALID_VALUE && done_before)) return true;
    if (region->free_code == 0) region->free_code = code;
    if (code == VMM_CODE_NOT_READY && vmm__work_again(work, VMM_OP_mem_address_free, code, region->base, region->size))
      continue;
    if (vmm__device_lost(region->device)) return true; /* the context is dead; the range goes with the process */
    (void)vmm__work_call_failed(work, VMM_OP_mem_address_free, code, region->base, region->size);
    return false;
  }
}

vmm_status vmm__region_close(vmm__region *region, vmm__work *work) {
  if (!region->plain && !give_range_back(region, work)) return work->status;
  if (!region->plain) (void)atomic_fetch_sub(&region->device->reserved_bytes, region->size);
  vmm__mappings_destroy(&region->mappings, &region->device->memory);
  vmm__memory_release(&region->device->memory, region->access, region->access_capacity, sizeof *region->access);
  region->access = NULL;
  return VMM_OK;
}
