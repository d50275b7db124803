/* What is asked about the driver and its devices. */
#include "base/text.h"
#include "sim/sim.h"

/* CUdevice_attribute numbers that matter to somebody. */
enum {
  MAX_THREADS_PER_BLOCK = 1,
  WARP_SIZE = 10,
  MULTIPROCESSORS = 16,
  MAP_HOST_MEMORY = 19,
  PCI_BUS = 33,
  UNIFIED_ADDRESSING = 41,
  CAPABILITY_MAJOR = 75,
  VIRTUAL_MEMORY = 102,
  POSIX_FD = 103,
  COMPRESSION = 107,
  GPUDIRECT_RDMA = 110,
  MEMORY_POOLS = 115,
  FABRIC = 128,
  HOST_NUMA_MEMORY = 141,
  FIRST_YOUNG_ATTRIBUTE = 107, /* from here on an old driver does not know them */
  LAST_ATTRIBUTE = 160
};

static bool is_device(const vmm__sim *sim, int device) { return device >= 0 && device < sim->options.device_count; }

int vmm__sim_op_init(vmm__sim *sim, unsigned int flags) {
  if (flags != 0) return VMM_CODE_INVALID_VALUE;
  sim->initialized = true;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_driver_version(vmm__sim *sim, int *version) {
  if (version == NULL) return VMM_CODE_INVALID_VALUE;
  *version = sim->options.driver_version;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_device_count(vmm__sim *sim, int *count) {
  if (count == NULL) return VMM_CODE_INVALID_VALUE;
  *count = sim->options.device_count;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_device_get(vmm__sim *sim, int *device, int ordinal) {
  if (device == NULL) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, ordinal)) return VMM_CODE_INVALID_DEVICE;
  *device = ordinal;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_device_name(vmm__sim *sim, char *name, int length, int device) {
  vmm__text text;

  if (name == NULL || length < 1) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, device)) return VMM_CODE_INVALID_DEVICE;
  text = vmm__text_start(name, (size_t)length);
  vmm__text_add(&text, "Simulated GPU ");
  vmm__text_add_signed(&text, device);
  return VMM_CODE_SUCCESS;
}

static int attribute_value(const vmm__sim *sim, int attribute, int device) {
  switch (attribute) {
    case MAX_THREADS_PER_BLOCK:
      return 1024;
    case WARP_SIZE:
      return 32;
    case MULTIPROCESSORS:
      return 132;
    case PCI_BUS:
      return 1 + device;
    case CAPABILITY_MAJOR:
      return 9;
    case MAP_HOST_MEMORY:
    case UNIFIED_ADDRESSING:
    case COMPRESSION:
    case GPUDIRECT_RDMA:
    case MEMORY_POOLS:
      return 1;
    case VIRTUAL_MEMORY:
    case POSIX_FD:
    case HOST_NUMA_MEMORY:
      return !sim->options.no_vmm;
    case FABRIC:
      return !sim->options.no_vmm && !sim->options.no_fabric;
    default:
      return 0;
  }
}

int vmm__sim_op_device_attribute(vmm__sim *sim, int *value, int attribute, int device) {
  if (value == NULL || attribute < 1 || attribute > LAST_ATTRIBUTE) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, device)) return VMM_CODE_INVALID_DEVICE;
  if (sim->options.old_attributes && attribute >= FIRST_YOUNG_ATTRIBUTE) return VMM_CODE_INVALID_VALUE;
  *value = attribute_value(sim, attribute, device);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_device_total_mem(vmm__sim *sim, size_t *bytes, int device) {
  if (bytes == NULL) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, device)) return VMM_CODE_INVALID_DEVICE;
  *bytes = (size_t)sim->options.memory;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_device_can_access_peer(vmm__sim *sim, int *can, int device, int peer) {
  if (can == NULL) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, device) || !is_device(sim, peer)) return VMM_CODE_INVALID_DEVICE;
  *can = device != peer && (sim->options.peers >> (8 * device + peer) & 1) != 0;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_get_info(vmm__sim *sim, size_t *free_bytes, size_t *total) {
  const vmm__sim_device *device;
  vmm__sim_context *context;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (free_bytes == NULL || total == NULL) return VMM_CODE_INVALID_VALUE;
  device = &sim->devices[context->device];
  *free_bytes = (size_t)vmm__saturating_sub(sim->options.memory, vmm__saturating_add(device->used, device->others));
  *total = (size_t)sim->options.memory;
  return VMM_CODE_SUCCESS;
}
