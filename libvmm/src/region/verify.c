/* verify=data: a word per granule is written by the device and read back, on the library's own stream. It costs a copy
 * per granule and is meant for those who distrust a platform more than they mind the time. */
#include <string.h>

#include "device/streams.h"
#include "region/region.h"

static const unsigned poison = 0xDEADBEEFu;

vmm_status vmm__region_prepare_verify(vmm__region *region, vmm__work *work) {
  vmm_device *device = region->device;

  if (device->staging != NULL) return VMM_OK;
  if (!vmm__driver_has(device->driver, VMM_OP_mem_host_alloc) ||
      !vmm__driver_has(device->driver, VMM_OP_memset_d2d32_async) ||
      !vmm__driver_has(device->driver, VMM_OP_memcpy_dtoh_async))
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "the driver lacks the calls that verify=data needs");
  CU_CHECK(work, 0, VMM__STAGING_BYTES, mem_host_alloc, (device, &device->staging, VMM__STAGING_BYTES, 0));
  return VMM_OK;
undo:
  device->staging = NULL;
  return work->status;
}

/* A value that neither fresh nor stale memory is likely to hold, another for each place and time. */
static unsigned word_for(vmm__u64 address, vmm__u64 generation) { return vmm_pattern_word(address, generation) | 1u; }

/* Bytes from one word looked at to the next. */
static vmm__u64 step(const vmm__region *region) {
  return region->plain ? region->device->info.granularity : region->granularity;
}

static vmm_status verify_granules(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 count) {
  vmm_device *device = region->device;
  vmm__u64 granule = step(region);
  unsigned *words = device->staging;
  unsigned value = word_for(address, region->generation);
  vmm__u64 i;

  for (i = 0; i < count; i++) words[i] = poison;
  CU_CHECK(work, address, count * granule, memset_d2d32_async,
           (device, address, (size_t)granule, value, 1, (size_t)count, device->stream));
  for (i = 0; i < count; i++)
    CU_CHECK(work, address + i * granule, sizeof *words, memcpy_dtoh_async,
             (device, &words[i], address + i * granule, sizeof *words, device->stream));
  CU_CHECK(work, 0, 0, event_record, (device, device->stream_event, device->stream));
  if (vmm__fence_wait(work, device->stream_event) != VMM_OK) return work->status;
  for (i = 0; i < count; i++)
    if (words[i] != value) {
      (void)vmm__work_fail(work, VMM_ERROR_NOT_CONFIRMED, "a word written to the new memory did not read back");
      work->address = address + i * granule;
      work->size = granule;
      return work->status;
    }
undo:
  return work->status;
}

/* The library's own stream is first in, first out: a fence recorded now covers all that was queued before. What is queued
 * there is short; and a growth that verifies could not get past it either. */
bool vmm__region_data_done(vmm__region *region, const vmm__work *work) {
  vmm_device *device = region->device;
  vmm__work wait = *work;

  if (!region->data_pending || vmm__device_lost(device)) return true;
  wait.status = VMM_OK;
  wait.attempts_left = 0;
  if (vmm__cu_event_record(device, device->stream_event, device->stream) != VMM_CODE_SUCCESS ||
      vmm__fence_wait(&wait, device->stream_event) != VMM_OK)
    return vmm__device_lost(device);
  region->data_pending = false;
  return true;
}

vmm_status vmm__region_verify_data(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  vmm__u64 batch = VMM__STAGING_BYTES / sizeof(unsigned);
  vmm__u64 left = (size - 1) / step(region) + 1;

  region->data_pending = true;
  while (left != 0) {
    vmm__u64 count = vmm__min(left, batch);

    if (verify_granules(region, work, address, count) != VMM_OK) return work->status;
    address += count * step(region);
    left -= count;
  }
  region->data_pending = false;
  return VMM_OK;
}
