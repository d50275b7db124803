/* Plain allocations behind the interface of a region. */
#include "region/plain.h"

vmm_status vmm__plain_open(vmm__region *region, vmm__work *work, const vmm__region_request *request) {
  if (request->peer_count != 0)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED,
                          "the device has no virtual memory management, so peers cannot be granted access");
  region->plain = true;
  region->granularity = VMM__PLAIN_GUARD;
  region->base = VMM__PLAIN_GUARD;
  region->size = UINT64_MAX - 2 * (vmm__u64)VMM__PLAIN_GUARD + 1;
  return VMM_OK;
}

vmm_status vmm__plain_commit(vmm__region *region, vmm__work *work, vmm__commit *commit) {
  vmm__piece *piece = &commit->pieces[0];

  if (piece->lender != NULL) piece->handle = piece->lender->handle;
  else if (vmm__handle_take(work, piece->handle, commit->size + VMM__PLAIN_GUARD) != VMM_OK) return work->status;
  piece->mapped = true;
  commit->address = piece->address = piece->handle->raw;
  if (commit->address % VMM__PLAIN_GUARD != 0)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "the driver's allocations are not aligned to 256 bytes");
  if (region->verify != VMM_VERIFY_DATA) return VMM_OK;
  return vmm__region_verify_data(region, work, commit->address, commit->size);
}

bool vmm__plain_round(const vmm_device *device, vmm__u64 size, vmm__u64 *usable) {
  vmm__u64 whole;

  if (!vmm__add(size, VMM__PLAIN_GUARD, &whole) || !vmm__round_up(whole, device->info.granularity, &whole))
    return false;
  *usable = whole - VMM__PLAIN_GUARD;
  return true;
}
