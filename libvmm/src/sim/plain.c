/* Plain device memory (cuMemAlloc) and pinned host memory. Plain memory is a handle nobody can name with one mapping. */
#include "sim/sim.h"

static const vmm__u64 PLAIN_START = 3ull << 48;
static const vmm__u64 PLAIN_ALIGNMENT = 512;

int vmm__sim_op_mem_alloc(vmm__sim *sim, unsigned long long *address, size_t size) {
  vmm__sim_mapping *mapping;
  vmm__sim_context *context;
  vmm__sim_handle *handle;
  vmm_sim_ledger *ledger;
  vmm__u64 rounded;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (address == NULL || size == 0) return VMM_CODE_INVALID_VALUE;
  code = vmm__sim_capture_unsafe(sim);
  if (code == VMM_CODE_SUCCESS) code = context->lost;
  if (code != VMM_CODE_SUCCESS) return code;
  if (!vmm__round_up(size, PLAIN_ALIGNMENT, &rounded)) return VMM_CODE_OUT_OF_MEMORY;
  mapping = vmm__sim_allocate(sim, 1, sizeof *mapping);
  if (mapping == NULL) return VMM_CODE_OUT_OF_MEMORY;
  code = vmm__sim_physical_create(sim, &handle, context->device, rounded, false, false, true);
  if (code != VMM_CODE_SUCCESS) {
    vmm__sim_free(sim, mapping, 1, sizeof *mapping);
    return code;
  }
  if (sim->plain_cursor == 0) sim->plain_cursor = PLAIN_START;
  mapping->node.key = sim->plain_cursor;
  mapping->size = rounded;
  mapping->handle = handle;
  mapping->context = context->node.key;
  mapping->access[context->device] = VMM__SIM_WRITE;
  sim->plain_cursor += vmm__round_down(rounded + 2 * sim->options.minimum_granularity - 1,
                                       sim->options.minimum_granularity); /* views need whole pages */
  vmm__sim_tree_insert(&sim->mappings, &mapping->node);
  handle->mappings = 1;
  ledger = &sim->devices[context->device].ledger;
  ledger->plain_allocations++;
  ledger->plain_bytes += rounded;
  *address = mapping->node.key;
  return VMM_CODE_SUCCESS;
}

static void drop(vmm__sim *sim, vmm__sim_mapping *mapping) {
  vmm_sim_ledger *ledger = &sim->devices[mapping->handle->device].ledger;

  ledger->plain_allocations--;
  ledger->plain_bytes -= mapping->size;
  vmm__sim_mapping_remove(sim, mapping);
}

void vmm__sim_plain_drop(vmm__sim *sim, vmm__u64 context) {
  vmm__sim_node *node = vmm__sim_tree_at_or_above(&sim->mappings, PLAIN_START);

  while (node != NULL) {
    vmm__sim_node *next = vmm__sim_tree_next(&sim->mappings, node);

    if (((vmm__sim_mapping *)node)->context == context) drop(sim, (vmm__sim_mapping *)node);
    node = next;
  }
}

int vmm__sim_op_mem_free(vmm__sim *sim, unsigned long long address) {
  vmm__sim_mapping *mapping = (vmm__sim_mapping *)vmm__sim_tree_find(&sim->mappings, address);
  vmm__sim_context *context;
  int code = vmm__sim_capture_unsafe(sim);

  if (code != VMM_CODE_SUCCESS) return code;
  if (mapping == NULL || !mapping->handle->plain) {
    if (address >= PLAIN_START && address < sim->plain_cursor)
      vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DOUBLE_RELEASE, address, 0, "plain memory was freed before");
    return VMM_CODE_INVALID_VALUE;
  }
  context = vmm__sim_context_find(sim, mapping->context);
  if (context == NULL) return VMM_CODE_INVALID_VALUE;
  if (context->lost != 0) return context->lost;
  vmm__sim_run_to(sim, context->all_done); /* it waits for the device, as the real one does */
  mapping = (vmm__sim_mapping *)vmm__sim_tree_find(&sim->mappings, address);
  if (mapping == NULL) return VMM_CODE_INVALID_VALUE;
  (void)vmm__sim_race(sim, -1, address, mapping->size, "plain memory was freed while queued work may touch it");
  drop(sim, mapping);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_host_alloc(vmm__sim *sim, void **pointer, size_t size, unsigned int flags) {
  vmm__sim_pinned *pinned;
  vmm__sim_context *context;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (pointer == NULL || size == 0 || flags > 7) return VMM_CODE_INVALID_VALUE;
  code = vmm__sim_capture_unsafe(sim);
  if (code == VMM_CODE_SUCCESS) code = context->lost;
  if (code != VMM_CODE_SUCCESS) return code;
  pinned = vmm__sim_allocate(sim, 1, sizeof *pinned);
  if (pinned == NULL) return VMM_CODE_OUT_OF_MEMORY;
  pinned->pointer = vmm__sim_allocate(sim, size, 1);
  if (pinned->pointer == NULL) {
    vmm__sim_free(sim, pinned, 1, sizeof *pinned);
    return VMM_CODE_OUT_OF_MEMORY;
  }
  pinned->node.key = (vmm__u64)(uintptr_t)pinned->pointer;
  pinned->size = size;
  vmm__sim_tree_insert(&sim->pinned, &pinned->node);
  sim->pinned_bytes += size;
  *pointer = pinned->pointer;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_host_free(vmm__sim *sim, void *pointer) {
  vmm__sim_pinned *pinned = (vmm__sim_pinned *)vmm__sim_tree_find(&sim->pinned, (vmm__u64)(uintptr_t)pointer);
  int code = vmm__sim_capture_unsafe(sim);

  if (code != VMM_CODE_SUCCESS) return code;
  if (pinned == NULL) return VMM_CODE_INVALID_VALUE;
  if (vmm__sim_race(sim, -1, pinned->node.key, pinned->size,
                    "pinned memory was freed while queued work may touch it")) {
    vmm__sim_run_all(sim);
    pinned = (vmm__sim_pinned *)vmm__sim_tree_find(&sim->pinned, (vmm__u64)(uintptr_t)pointer);
    if (pinned == NULL) return VMM_CODE_INVALID_VALUE;
  }
  vmm__sim_tree_remove(&sim->pinned, &pinned->node);
  sim->pinned_bytes -= pinned->size;
  vmm__sim_free(sim, pinned->pointer, pinned->size, 1);
  vmm__sim_free(sim, pinned, 1, sizeof *pinned);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_address_range(vmm__sim *sim, unsigned long long *base, size_t *size, unsigned long long address) {
  const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);

  if (mapping == NULL) return VMM_CODE_NOT_FOUND;
  if (base != NULL) *base = mapping->node.key;
  if (size != NULL) *size = (size_t)mapping->size;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ipc_get_handle(vmm__sim *sim, void *handle, unsigned long long address) {
  const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);

  if (handle == NULL || mapping == NULL || !mapping->handle->plain) return VMM_CODE_INVALID_VALUE;
  return VMM_CODE_NOT_SUPPORTED; /* sharing plain memory is not modelled */
}
