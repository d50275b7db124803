/* Who may touch the mappings: confirming what was granted, peers joining, and taking a grant back. */
#include <string.h>

#include "base/memory.h"
#include "region/region.h"
#include "region/undo.h"

enum { READ_WRITE = 3 };

static vmm_status denied(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  vmm_device *device = region->device;

  vmm__lock_acquire(&device->lock);
  device->counters.not_confirmed_count++;
  vmm__lock_release(&device->lock);
  if (work->status != VMM_OK) return work->status;
  work->address = address;
  work->size = size;
  return vmm__work_fail(work, VMM_ERROR_NOT_CONFIRMED, "the driver reported success, but get-access denies the access");
}

vmm_status vmm__region_confirm(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  vmm_device *device = region->device;
  size_t i;

  for (i = 0; i < region->access_count; i++) {
    vmm_raw_location location = {region->access[i].location_type, region->access[i].location_id};
    unsigned long long flags = 0;

    CU_CHECK(work, address, size, mem_get_access, (device, &flags, &location, address));
    if (flags != READ_WRITE) return denied(region, work, address, size);
  }
undo:
  return work->status;
}

bool vmm__has_access(vmm__region *region, vmm__u64 address) {
  size_t i;

  for (i = 0; i < region->access_count; i++) {
    vmm_raw_location location = {region->access[i].location_type, region->access[i].location_id};
    unsigned long long flags = 0;

    if (vmm__cu_mem_get_access(region->device, &flags, &location, address) != VMM_CODE_SUCCESS || flags != READ_WRITE)
      return false;
  }
  return true;
}

/* The mappings that lie side by side from entry *i on, as one range: one call serves them all. */
static bool next_run(vmm__region *region, size_t *i, vmm__u64 *address, vmm__u64 *size) {
  const vmm__mappings *table = &region->mappings;

  while (*i < table->count && vmm__is_quarantined(region, vmm__mappings_at(table, *i))) (*i)++;
  if (*i >= table->count) return false;
  *address = vmm__mappings_at(table, *i)->address;
  *size = 0;
  while (*i < table->count) {
    const vmm__mapping *mapping = vmm__mappings_at(table, *i);
    if (mapping->address != *address + *size || vmm__is_quarantined(region, mapping)) break;
    *size += mapping->size;
    (*i)++;
  }
  return true;
}

bool vmm__revoke(vmm__region *region, vmm__work *work, int raw_device) {
  vmm_raw_access none = {1, 0, 0};
  vmm__u64 address, size;
  size_t i = 0;
  bool done = true;

  none.location_id = raw_device;
  while (next_run(region, &i, &address, &size)) {
    int code = vmm__cu_mem_set_access(region->device, address, (size_t)size, &none, 1);
    /* One more try, whatever it answered: revoking twice does no harm. */
    if (code != VMM_CODE_SUCCESS) code = vmm__cu_mem_set_access(region->device, address, (size_t)size, &none, 1);
    if (vmm__work_undone(work, code) != VMM_CODE_SUCCESS) done = false;
  }
  return done || vmm__device_lost(region->device);
}

/* Room for two more entries: the peer, and its grant should revoking it fail. */
static vmm_status reserve_access(vmm__region *region, vmm__work *work) {
  vmm_host_memory *memory = &region->device->memory;
  size_t used = region->access_count + region->revoke_count;
  vmm_raw_access *longer;

  if (used < region->access_capacity) return VMM_OK;
  longer = vmm__memory_allocate(memory, region->access_capacity + 4, sizeof *longer);
  if (longer == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  memcpy(longer, region->access, used * sizeof *longer);
  vmm__memory_release(memory, region->access, region->access_capacity, sizeof *longer);
  region->access = longer;
  region->access_capacity += 4;
  return VMM_OK;
}

static vmm_status grant_all(vmm__region *region, vmm__work *work, const vmm_raw_access *grant) {
  vmm_device *device = region->device;
  vmm_raw_location location = {1, grant->location_id};
  vmm__u64 address, size;
  size_t i = 0, k;

  while (next_run(region, &i, &address, &size))
    CU_CHECK(work, address, size, mem_set_access, (device, address, (size_t)size, grant, 1));
  for (k = 0; k < region->mappings.count; k++) {
    const vmm__mapping *mapping = vmm__mappings_at(&region->mappings, k);
    unsigned long long flags = 0;

    if (vmm__is_quarantined(region, mapping)) continue;
    CU_CHECK(work, mapping->address, mapping->size, mem_get_access, (device, &flags, &location, mapping->address));
    if (flags != READ_WRITE) return denied(region, work, mapping->address, mapping->size);
  }
undo:
  return work->status;
}

static vmm_status check_peer(vmm__region *region, vmm__work *work, int raw_device) {
  vmm_raw_prop prop = {1, 0, 1, 0, 0, 0};
  size_t granularity = 0;
  int can = 0;

  if (region->plain)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED,
                          "the device has no virtual memory management, so peers cannot be granted access");
  prop.location_id = raw_device;
  CU_CHECK(work, 0, 0, device_can_access_peer, (region->device, &can, raw_device, region->device->raw));
  if (can == 0) return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "the peer cannot reach the device's memory");
  CU_CHECK(work, 0, 0, mem_granularity, (region->device, &granularity, &prop, 1));
  if (granularity == 0 || region->granularity % granularity != 0)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED,
                          "the peer needs a larger granularity; name it when the pool is created");
undo:
  return work->status;
}

/* A device whose old grant is still to be revoked becomes a member, or fails once more: it is not to be revoked twice. */
static void forget_revoke(vmm__region *region, int raw_device) {
  vmm_raw_access *stuck = region->access + region->access_count;
  size_t i = 0;

  while (i < region->revoke_count) {
    if (stuck[i].location_id == raw_device) stuck[i] = stuck[--region->revoke_count];
    else i++;
  }
}

vmm_status vmm__region_add_peer(vmm__region *region, vmm__work *work, int raw_device) {
  vmm_raw_access grant = {1, 0, READ_WRITE};

  grant.location_id = raw_device;
  if (check_peer(region, work, raw_device) != VMM_OK) return work->status;
  vmm__region_recover(region, work);
  if (reserve_access(region, work) != VMM_OK) return work->status;
  (void)grant_all(region, work, &grant);
  forget_revoke(region, raw_device); /* had again, or revoked anew below */
  if (work->status == VMM_OK) {
    /* Those still to be revoked lie behind the members. */
    region->access[region->access_count + region->revoke_count] = region->access[region->access_count];
    region->access[region->access_count++] = grant;
    vmm__lock_acquire(region->lock);
    region->peer_count++;
    vmm__lock_release(region->lock);
    return VMM_OK;
  }
  vmm__work_probe(work);
  if (!vmm__revoke(region, work, raw_device)) {
    region->access[region->access_count + region->revoke_count] = grant;
    region->revoke_count++;
  }
  return work->status;
}
