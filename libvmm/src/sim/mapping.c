/* Mapping and unmapping, with the real driver's leniency: a mapping may cross the end of its reservation, an unmap may
 * cover holes. Both are reported. */
#include "sim/sim.h"

vmm__sim_mapping *vmm__sim_mapping_at(vmm__sim *sim, vmm__u64 address) {
  vmm__sim_mapping *found = (vmm__sim_mapping *)vmm__sim_tree_at_or_below(&sim->mappings, address);

  return found != NULL && address - found->node.key < found->size ? found : NULL;
}

/* 0, or why the handle cannot be mapped there. */
static int check(vmm__sim *sim, vmm__u64 address, vmm__u64 size, vmm__u64 offset, vmm__u64 value, vmm__u64 flags,
                 vmm__sim_handle **handle) {
  const vmm__sim_mapping *below;
  vmm__u64 end;

  *handle = (vmm__sim_handle *)vmm__sim_tree_find(&sim->handles, value);
  if (value == 0) return VMM_CODE_INVALID_VALUE;
  if (*handle == NULL || (*handle)->plain) {
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_BOGUS_HANDLE, address, size, "what was mapped is no live handle");
    return VMM_CODE_INVALID_VALUE;
  }
  if (flags != 0 || address % sim->options.minimum_granularity != 0) return VMM_CODE_INVALID_VALUE;
  if (offset != 0 || size != (*handle)->size) return VMM_CODE_NOT_SUPPORTED;
  if (vmm__sim_reservation_at(sim, address) == NULL || !vmm__add(address, size, &end)) return VMM_CODE_INVALID_VALUE;
  below = (vmm__sim_mapping *)vmm__sim_tree_at_or_below(&sim->mappings, end - 1);
  if (below != NULL && below->node.key + below->size > address) return VMM_CODE_INVALID_VALUE;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_map(vmm__sim *sim, unsigned long long address, size_t size, size_t offset, unsigned long long value,
                        unsigned long long flags) {
  const vmm__sim_reservation *range;
  vmm__sim_mapping *mapping;
  vmm__sim_handle *handle;
  vmm_sim_ledger *ledger;
  int code = check(sim, address, size, offset, value, flags, &handle);

  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_intrude(sim, handle->device);
  if (vmm__sim_not_ready(sim, handle->device)) return VMM_CODE_NOT_READY;
  ledger = &sim->devices[handle->device].ledger;
  if (ledger->mappings >= sim->options.mapping_limit) return VMM_CODE_OUT_OF_MEMORY;
  mapping = vmm__sim_allocate(sim, 1, sizeof *mapping);
  if (mapping == NULL) return VMM_CODE_OUT_OF_MEMORY;
  range = vmm__sim_reservation_at(sim, address);
  if (address - range->node.key + size > range->size)
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_MAP_PAST_END, address, size,
                         "a mapping crosses the end of its reservation");
  mapping->node.key = address;
  mapping->size = size;
  mapping->handle = handle;
  vmm__sim_tree_insert(&sim->mappings, &mapping->node);
  handle->mappings++;
  ledger->mappings++;
  ledger->mapped_bytes += size;
  return VMM_CODE_SUCCESS;
}

void vmm__sim_mapping_remove(vmm__sim *sim, vmm__sim_mapping *mapping) {
  vmm__sim_handle *handle = mapping->handle;
  vmm_sim_ledger *ledger = &sim->devices[handle->device].ledger;

  vmm__sim_views_drop(sim, mapping->node.key, mapping->size);
  vmm__sim_tree_remove(&sim->mappings, &mapping->node);
  handle->mappings--;
  if (!handle->plain) {
    ledger->mappings--;
    ledger->mapped_bytes -= mapping->size;
    if (mapping->access[handle->device] == VMM__SIM_WRITE) ledger->accessible_bytes -= mapping->size;
  }
  vmm__sim_free(sim, mapping, 1, sizeof *mapping);
  vmm__sim_physical_drop(sim, handle);
}

/* The first mapping that begins at `address` or behind, and before `end`. */
static vmm__sim_mapping *next_mapping(const vmm__sim *sim, vmm__u64 address, vmm__u64 end) {
  vmm__sim_mapping *mapping = (vmm__sim_mapping *)vmm__sim_tree_at_or_above(&sim->mappings, address);

  return mapping != NULL && mapping->node.key < end ? mapping : NULL;
}

/* Whether an unmap would cut a mapping in two, and whether it covers holes. */
static bool cuts(vmm__sim *sim, vmm__u64 address, vmm__u64 end, bool *holes) {
  const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);
  vmm__u64 at = address;

  *holes = false;
  if (mapping != NULL && mapping->node.key != address) return true;
  while ((mapping = next_mapping(sim, at, end)) != NULL) {
    if (mapping->node.key != at) *holes = true;
    at = mapping->node.key + mapping->size;
    if (at > end) return true;
  }
  if (at != end) *holes = true;
  return false;
}

int vmm__sim_op_mem_unmap(vmm__sim *sim, unsigned long long address, size_t size) {
  vmm__sim_mapping *mapping;
  vmm__u64 end;
  bool holes;
  int device = 0;

  if (size == 0 || !vmm__add(address, size, &end) || vmm__sim_reservation_at(sim, address) == NULL)
    return VMM_CODE_INVALID_VALUE;
  if (cuts(sim, address, end, &holes)) return VMM_CODE_INVALID_VALUE;
  mapping = next_mapping(sim, address, end);
  if (mapping != NULL) device = mapping->handle->device;
  if (vmm__sim_not_ready(sim, device)) return VMM_CODE_NOT_READY;
  if (holes)
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_UNMAP_HOLE, address, size,
                         "an unmap covers addresses that are not mapped");
  (void)vmm__sim_race(sim, -1, address, size, "memory was unmapped while queued work may touch it");
  while ((mapping = next_mapping(sim, address, end)) != NULL) {
    sim->devices[mapping->handle->device].evicted = true;
    vmm__sim_mapping_remove(sim, mapping);
  }
  return VMM_CODE_SUCCESS;
}
