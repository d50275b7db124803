/* Access rights: one byte per mapping and device. */
#include "sim/sim.h"

enum { LOCATION_DEVICE = 1, LOCATION_HOST_NUMA = 3 };

/* 0, or why the descriptors cannot be used for memory on `owner`. */
static int check_descriptors(const vmm__sim *sim, const vmm_raw_access *access, size_t count) {
  size_t i;

  if (access == NULL || count == 0) return VMM_CODE_INVALID_VALUE;
  for (i = 0; i < count; i++) {
    int flags = access[i].flags;

    if (flags != 0 && flags != VMM__SIM_READ && flags != VMM__SIM_WRITE) return VMM_CODE_INVALID_VALUE;
    if (access[i].location_type == LOCATION_HOST_NUMA) continue; /* the host reads and writes through no mapping here */
    if (access[i].location_type != LOCATION_DEVICE || access[i].location_id < 0 ||
        access[i].location_id >= sim->options.device_count)
      return VMM_CODE_INVALID_VALUE;
  }
  return VMM_CODE_SUCCESS;
}

static bool reaches(const vmm__sim *sim, const vmm_raw_access *access, const vmm__sim_handle *handle) {
  if (access->location_type == LOCATION_HOST_NUMA) return handle->host;
  return handle->host || access->location_id == handle->device || access->flags == 0 ||
         (sim->options.peers >> (8 * access->location_id + handle->device) & 1) != 0;
}

/* The range must be whole mappings without a hole, all within reach of all devices. */
static int check_range(vmm__sim *sim, vmm__u64 address, vmm__u64 end, const vmm_raw_access *access, size_t count) {
  vmm__u64 at = address;
  size_t i;

  while (at < end) {
    const vmm__sim_mapping *mapping = (vmm__sim_mapping *)vmm__sim_tree_find(&sim->mappings, at);

    if (mapping == NULL || mapping->handle->plain || mapping->size > end - at) return VMM_CODE_INVALID_VALUE;
    for (i = 0; i < count; i++)
      if (!reaches(sim, &access[i], mapping->handle)) return VMM_CODE_INVALID_VALUE;
    at += mapping->size;
  }
  return VMM_CODE_SUCCESS;
}

static void grant(vmm__sim *sim, vmm__sim_mapping *mapping, const vmm_raw_access *access) {
  vmm_sim_ledger *ledger = &sim->devices[mapping->handle->device].ledger;
  unsigned char *flags;

  if (access->location_type != LOCATION_DEVICE) return;
  flags = &mapping->access[access->location_id];
  if (*flags > access->flags)
    (void)vmm__sim_race(sim, access->location_id, mapping->node.key, mapping->size,
                        "access was revoked while queued work may touch the memory");
  if (access->location_id == mapping->handle->device) {
    if (*flags == VMM__SIM_WRITE) ledger->accessible_bytes -= mapping->size;
    if (access->flags == VMM__SIM_WRITE) ledger->accessible_bytes += mapping->size;
  }
  *flags = (unsigned char)access->flags;
}

int vmm__sim_op_mem_set_access(vmm__sim *sim, unsigned long long address, size_t size, const vmm_raw_access *access,
                               size_t count) {
  vmm__sim_mapping *mapping;
  vmm__u64 end;
  vmm__u64 at;
  size_t i;
  int code;

  if (size == 0 || !vmm__add(address, size, &end)) return VMM_CODE_INVALID_VALUE;
  code = check_descriptors(sim, access, count);
  if (code == VMM_CODE_SUCCESS) code = check_range(sim, address, end, access, count);
  if (code != VMM_CODE_SUCCESS) return code;
  mapping = vmm__sim_mapping_at(sim, address);
  if (vmm__sim_not_ready(sim, mapping->handle->device)) return VMM_CODE_NOT_READY;
  for (at = address; at < end; at += mapping->size) {
    mapping = (vmm__sim_mapping *)vmm__sim_tree_find(&sim->mappings, at);
    for (i = 0; i < count; i++) grant(sim, mapping, &access[i]);
  }
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_get_access(vmm__sim *sim, unsigned long long *flags, const vmm_raw_location *location,
                               unsigned long long address) {
  const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);

  if (flags == NULL || location == NULL || mapping == NULL || mapping->handle->plain) return VMM_CODE_INVALID_VALUE;
  if (location->type == LOCATION_HOST_NUMA) {
    *flags = mapping->handle->host ? VMM__SIM_WRITE : 0;
    return VMM_CODE_SUCCESS;
  }
  if (location->type != LOCATION_DEVICE || location->id < 0 || location->id >= sim->options.device_count)
    return VMM_CODE_INVALID_VALUE;
  *flags = mapping->access[location->id];
  return VMM_CODE_SUCCESS;
}
