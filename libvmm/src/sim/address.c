/* Address ranges. Addresses are numbers above all host addresses, so a device address used as a host pointer faults.
 * Ranges are given ever higher, with a hole between two, so a stale address is not soon valid again. */
#include "sim/sim.h"

static const vmm__u64 WINDOW_START = 1ull << 48;
static const vmm__u64 WINDOW_SIZE = 1ull << 48;

vmm__sim_reservation *vmm__sim_reservation_at(const vmm__sim *sim, vmm__u64 address) {
  vmm__sim_reservation *found = (vmm__sim_reservation *)vmm__sim_tree_at_or_below(&sim->reservations, address);

  return found != NULL && address - found->node.key < found->size ? found : NULL;
}

/* What stands in the way of a new range: the highest reservation or mapping that overlaps it; its end, or 0. */
static vmm__u64 obstacle(const vmm__sim *sim, vmm__u64 address, vmm__u64 size) {
  const vmm__sim_reservation *range =
      (vmm__sim_reservation *)vmm__sim_tree_at_or_below(&sim->reservations, address + size - 1);
  const vmm__sim_mapping *mapping = (vmm__sim_mapping *)vmm__sim_tree_at_or_below(&sim->mappings, address + size - 1);
  vmm__u64 end = 0;

  if (range != NULL && range->node.key + range->size > address) end = range->node.key + range->size;
  if (mapping != NULL && mapping->node.key + mapping->size > address)
    end = vmm__max(end, mapping->node.key + mapping->size);
  return end;
}

/* 0 if there is no room. */
static vmm__u64 find_place(const vmm__sim *sim, vmm__u64 size, vmm__u64 alignment) {
  vmm__u64 hole = sim->options.minimum_granularity;
  int lap;

  for (lap = 0; lap < 2; lap++) {
    vmm__u64 at = lap == 0 && sim->reserve_cursor != 0 ? sim->reserve_cursor : WINDOW_START;
    vmm__u64 end;

    while (vmm__round_up(at, alignment, &at) && vmm__add(at, size, &end) && end <= WINDOW_START + WINDOW_SIZE) {
      vmm__u64 behind = obstacle(sim, at, size);

      if (behind == 0) return at;
      at = behind + hole;
    }
  }
  return 0;
}

int vmm__sim_op_mem_reserve(vmm__sim *sim, unsigned long long *address, size_t size, size_t alignment,
                            unsigned long long hint, unsigned long long flags) {
  vmm__u64 granule = sim->options.minimum_granularity;
  vmm__sim_reservation *range;
  vmm__u64 total;
  vmm__u64 at = 0;

  if (address == NULL || size == 0 || size % granule != 0 || flags != 0 ||
      (alignment != 0 && !vmm__is_power_of_two(alignment)))
    return VMM_CODE_INVALID_VALUE;
  if (!vmm__add(sim->reserved_bytes + sim->options.address_space_used, size, &total) ||
      total > sim->options.address_space)
    return VMM_CODE_OUT_OF_MEMORY;
  alignment = (size_t)vmm__max(alignment, granule);
  if (hint >= WINDOW_START && hint <= WINDOW_START + WINDOW_SIZE - size && hint % alignment == 0 &&
      obstacle(sim, hint, size) == 0)
    at = hint;
  if (at == 0) {
    at = find_place(sim, size, alignment);
    if (at == 0) return VMM_CODE_OUT_OF_MEMORY;
    sim->reserve_cursor = at + size + granule;
  }
  range = vmm__sim_allocate(sim, 1, sizeof *range);
  if (range == NULL) return VMM_CODE_OUT_OF_MEMORY;
  range->node.key = at;
  range->size = size;
  vmm__sim_tree_insert(&sim->reservations, &range->node);
  sim->reserved_bytes += size;
  sim->reserve_top = vmm__max(sim->reserve_top, at + size);
  *address = at;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_address_free(vmm__sim *sim, unsigned long long address, size_t size) {
  vmm__sim_reservation *range = (vmm__sim_reservation *)vmm__sim_tree_find(&sim->reservations, address);
  const vmm__sim_mapping *mapping;

  if (range == NULL || range->size != size) {
    if (range == NULL && vmm__sim_reservation_at(sim, address) == NULL && address >= WINDOW_START && size != 0 &&
        address + size <= sim->reserve_top)
      vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DOUBLE_RELEASE, address, size, "an address range was freed before");
    return VMM_CODE_INVALID_VALUE;
  }
  mapping = (vmm__sim_mapping *)vmm__sim_tree_at_or_below(&sim->mappings, address + size - 1);
  if (mapping != NULL && mapping->node.key + mapping->size > address) {
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_FREE_MAPPED, address, size,
                         "an address range was freed while something is mapped in it");
    return VMM_CODE_INVALID_VALUE;
  }
  vmm__sim_tree_remove(&sim->reservations, &range->node);
  vmm__sim_free(sim, range, 1, sizeof *range);
  sim->reserved_bytes -= size;
  return VMM_CODE_SUCCESS;
}
