/* Backing a range with physical memory, and taking all of it back when a step fails. */
#include <string.h>

#include "base/memory.h"
#include "device/streams.h"
#include "region/plain.h"
#include "region/undo.h"

/* ---- prepare ---- */

static vmm_status reserve_entries(vmm__region *region, vmm__work *work, vmm__u64 count) {
  for (;;) {
    vmm__mappings_spare spare;
    vmm__u64 hint;

    vmm__lock_acquire(region->lock);
    hint = vmm__mappings_short(&region->mappings, count);
    vmm__lock_release(region->lock);
    if (hint == 0) return VMM_OK;
    if (!vmm__mappings_spare_make(&spare, &region->device->memory, hint))
      return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    vmm__lock_acquire(region->lock);
    vmm__mappings_spare_adopt(&region->mappings, &spare);
    vmm__lock_release(region->lock);
    vmm__mappings_spare_release(&spare, &region->device->memory);
  }
}

/* Size and handle of piece number i; `left` bytes of the range are in no piece yet. False: no host memory. */
static bool shape_piece(vmm__region *region, vmm__piece *piece, size_t i, vmm__u64 left, vmm__u64 piece_size,
                        vmm__parts *parts) {
  piece->size = i < parts->count ? parts->part[i].size : vmm__min(piece_size, left);
  if (i < parts->count && parts->part[i].kind != VMM__PART_IDLE) {
    piece->lender = &parts->part[i]; /* its handle comes with the commit */
    return true;
  }
  piece->handle = vmm__handle_record(region->device);
  return piece->handle != NULL;
}

vmm_status vmm__commit_prepare(vmm__region *region, vmm__work *work, vmm__commit *commit, vmm__u64 address,
                               vmm__u64 size, vmm__u64 piece_size, vmm__parts *parts) {
  vmm__u64 rest = size - parts->bytes;
  vmm__u64 count = parts->count + (rest != 0 ? (rest - 1) / piece_size + 1 : 0);
  vmm__u64 at = 0;
  size_t i;

  memset(commit, 0, sizeof *commit);
  commit->address = address;
  commit->size = size;
  commit->pieces = vmm__memory_allocate(&region->device->memory, count, sizeof *commit->pieces);
  if (commit->pieces == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  commit->count = (size_t)count;
  for (i = 0; i < commit->count; i++) {
    vmm__piece *piece = &commit->pieces[i];

    piece->address = address + at;
    if (!shape_piece(region, piece, i, size - at, piece_size, parts)) {
      (void)vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
      break;
    }
    at += piece->size;
  }
  if (work->status == VMM_OK) (void)reserve_entries(region, work, count);
  if (work->status != VMM_OK) vmm__commit_release(region, commit);
  return work->status;
}

void vmm__commit_release(vmm__region *region, vmm__commit *commit) {
  size_t i;

  if (commit->pieces == NULL) return;
  for (i = 0; i < commit->count; i++)
    if (commit->pieces[i].handle != NULL && commit->pieces[i].lender == NULL)
      vmm__handle_record_free(region->device, commit->pieces[i].handle);
  vmm__memory_release(&region->device->memory, commit->pieces, commit->count, sizeof *commit->pieces);
  commit->pieces = NULL;
}

/* ---- the steps ---- */

/* A map that answers an error may have been made. After NOT_READY that counts as done if it is known; else it is left to the
 * undo, which unmaps unless nothing is known to be there. */
static vmm_status map_piece(vmm__region *region, vmm__work *work, vmm__piece *piece) {
  vmm_device *device = region->device;

  for (;;) {
    vmm__presence presence = VMM__PRESENCE_MAPPED;
    int code = vmm__cu_mem_map(device, piece->address, (size_t)piece->size, 0, piece->handle->raw, 0);

    if (code != VMM_CODE_SUCCESS) presence = vmm__region_presence(region, piece->address);
    piece->mapped = presence != VMM__PRESENCE_NOTHING;
    if (code == VMM_CODE_SUCCESS || (code == VMM_CODE_NOT_READY && presence == VMM__PRESENCE_MAPPED)) break;
    if (code == VMM_CODE_NOT_READY && presence == VMM__PRESENCE_NOTHING &&
        vmm__work_again(work, VMM_OP_mem_map, code, piece->address, piece->size))
      continue;
    return vmm__work_call_failed(work, VMM_OP_mem_map, code, piece->address, piece->size);
  }
  work->attempt = 0;
  return VMM_OK;
}

/* One set-access over the whole range and all devices. "Success" that get-access denies is tried again like NOT_READY. */
static vmm_status grant_and_confirm(vmm__region *region, vmm__work *work, const vmm__commit *commit) {
  vmm_device *device = region->device;
  size_t i;

  for (;;) {
    CU_CHECK(work, commit->address, commit->size, mem_set_access,
             (device, commit->address, (size_t)commit->size, region->access, region->access_count));
    for (i = 0; i < commit->count; i++)
      if (vmm__region_confirm(region, work, commit->pieces[i].address, commit->pieces[i].size) != VMM_OK) break;
    if (work->status != VMM_ERROR_NOT_CONFIRMED) return work->status;
    if (!vmm__work_again(work, VMM_OP_mem_get_access, VMM_CODE_SUCCESS, commit->address, commit->size))
      return work->status;
    work->status = VMM_OK;
  }
undo:
  return work->status;
}

/* A lost context is not noticed by the cuMem* calls (measured): the sentinel is. */
static vmm_status check_alive(vmm__region *region, vmm__work *work) {
  if (vmm__device_lost(region->device)) return vmm__work_fail(work, VMM_ERROR_DEVICE_LOST, NULL);
  CU_CHECK(work, 0, 0, event_query, (region->device, region->device->sentinel));
undo:
  return work->status;
}

static vmm_status run(vmm__region *region, vmm__work *work, vmm__commit *commit) {
  size_t i;

  if (region->plain)
    return vmm__plain_commit(region, work, commit) == VMM_OK ? check_alive(region, work) : work->status;
  for (i = 0; i < commit->count; i++) {
    vmm__piece *piece = &commit->pieces[i];

    if (piece->lender != NULL) piece->handle = piece->lender->handle;
    else if (vmm__handle_take(work, piece->handle, piece->size) != VMM_OK) return work->status;
  }
  if (vmm__quiesce(work) != VMM_OK) return work->status;
  for (i = 0; i < commit->count; i++)
    if (map_piece(region, work, &commit->pieces[i]) != VMM_OK) return work->status;
  if (grant_and_confirm(region, work, commit) != VMM_OK) return work->status;
  if (region->verify == VMM_VERIFY_DATA &&
      vmm__region_verify_data(region, work, commit->address, commit->size) != VMM_OK)
    return work->status;
  return check_alive(region, work);
}

/* In reverse, every step even if one fails. A range that queued work may still touch is not unmapped (measured: the driver
 * does not wait, the context would be lost) but quarantined. */
static void undo_commit(vmm__region *region, vmm__work *work, vmm__commit *commit) {
  size_t i = commit->count;
  bool quiet = vmm__region_data_done(region, work);

  while (i-- > 0) {
    vmm__piece *piece = &commit->pieces[i];

    if (piece->mapped && !(quiet && vmm__unmap(region, work, piece->address, piece->size))) {
      vmm__mapping stuck = {piece->address, piece->size, 0, piece->handle, VMM_MAPPING_QUARANTINED, 0, 0};
      vmm__quarantine(region, stuck);
      if (piece->lender != NULL) piece->lender->handle = NULL;
    } else if (piece->lender == NULL) {
      (void)vmm__handle_give(work, piece->handle);
    }
    piece->handle = NULL; /* gone, the table's, or the lender's */
    piece->mapped = false;
  }
}

vmm_status vmm__region_commit(vmm__region *region, vmm__work *work, vmm__commit *commit) {
  vmm__region_recover(region, work);
  if (run(region, work, commit) == VMM_OK) return VMM_OK;
  vmm__work_probe(work);
  vmm__work_measure(work);
  undo_commit(region, work, commit);
  vmm__work_measure(work); /* again, as the caller finds it: without the half of a growth */
  return work->status;
}

void vmm__region_publish(vmm__region *region, vmm__commit *commit) {
  size_t i;

  for (i = 0; i < commit->count; i++) {
    vmm__piece *piece = &commit->pieces[i];
    vmm__mapping live = {piece->address, piece->size, ++region->generation, piece->handle, VMM_MAPPING_LIVE, 0, 0};

    (void)vmm__mappings_insert(&region->mappings, live);
    region->live_bytes += piece->size;
    if (piece->lender != NULL) piece->lender->handle = NULL;
    piece->handle->fresh = false;
    piece->handle = NULL;
  }
}
