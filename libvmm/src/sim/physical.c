/* Physical memory: handles, their references, the memfds their bytes lie in. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/sim.h"

enum { POISON = 0xA5, POISON_CHUNK = 16384, STALE_KEPT = 64, LOCATION_DEVICE = 1, LOCATION_HOST_NUMA = 3 };

static const vmm__u64 FILE_SIZE = 1ull << 60; /* sparse: only touched pages exist */

static int make_file(vmm__u64 size) {
  int fd = memfd_create("vmm-sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);

  if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
    (void)close(fd);
    fd = -1;
  }
  return fd;
}

int vmm__sim_physical_file(vmm__sim *sim, vmm__sim_handle *handle) {
  int *fd = handle->own ? &handle->fd : &sim->devices[handle->device].fd;

  if (*fd < 0) *fd = make_file(handle->own ? handle->size : FILE_SIZE);
  return *fd;
}

bool vmm__sim_physical_poison(vmm__sim *sim, vmm__sim_handle *handle, vmm__u64 offset, vmm__u64 size) {
  vmm__u64 granule = sim->options.minimum_granularity;
  unsigned char bytes[POISON_CHUNK];
  vmm__u64 i;

  if (handle->poisoned == NULL || size == 0) return true;
  memset(bytes, POISON, sizeof bytes);
  for (i = offset / granule; i <= (offset + size - 1) / granule; i++) {
    vmm__u64 done = 0;

    if (handle->poisoned[i]) continue;
    handle->poisoned[i] = 1;
    handle->touched = true;
    while (done < granule) {
      ssize_t wrote = pwrite(vmm__sim_physical_file(sim, handle), bytes, (size_t)vmm__min(granule - done, POISON_CHUNK),
                             (off_t)(handle->offset + i * granule + done));

      if (wrote < 0 && errno != EINTR) return false;
      if (wrote > 0) done += (vmm__u64)wrote;
    }
  }
  return true;
}

/* An extent for a new handle: one with its last owner's bytes if fresh memory is to be stale and one fits. */
static void place(vmm__sim *sim, vmm__sim_handle *handle) {
  vmm__sim_device *device = &sim->devices[handle->device];
  vmm__u64 granule = sim->options.minimum_granularity;
  vmm__sim_stale **link = &device->stale;

  while (sim->options.fresh == VMM_SIM_FRESH_STALE && *link != NULL) {
    vmm__sim_stale *stale = *link;

    if (stale->size == handle->size) {
      handle->offset = stale->offset;
      handle->touched = true;
      *link = stale->next;
      device->stale_count--;
      vmm__sim_free(sim, stale, 1, sizeof *stale);
      return;
    }
    link = &stale->next;
  }
  handle->offset = device->next_offset;
  device->next_offset += (handle->size + granule - 1) / granule * granule;
}

int vmm__sim_physical_create(vmm__sim *sim, vmm__sim_handle **result, int number, vmm__u64 size, bool own, bool host,
                             bool plain) {
  vmm__sim_device *device = &sim->devices[number];
  vmm__u64 granules = (size + sim->options.minimum_granularity - 1) / sim->options.minimum_granularity;
  vmm__u64 taken = vmm__saturating_add(device->used, device->others);
  vmm__sim_handle *handle;

  if (size > (host ? sim->options.memory : vmm__saturating_sub(sim->options.memory, taken)))
    return VMM_CODE_OUT_OF_MEMORY;
  handle = vmm__sim_allocate(sim, 1, sizeof *handle);
  if (handle == NULL) return VMM_CODE_OUT_OF_MEMORY;
  if (sim->options.fresh == VMM_SIM_FRESH_POISON) {
    handle->poisoned = vmm__sim_allocate(sim, granules, 1);
    if (handle->poisoned == NULL) {
      vmm__sim_free(sim, handle, 1, sizeof *handle);
      return VMM_CODE_OUT_OF_MEMORY;
    }
  }
  handle->node.key = vmm__sim_value(sim);
  handle->device = number;
  handle->host = host;
  handle->own = own;
  handle->plain = plain;
  handle->fd = -1;
  handle->size = size;
  if (!own) place(sim, handle);
  if (!host) device->used += size;
  vmm__sim_tree_insert(&sim->handles, &handle->node);
  if (!plain) {
    device->ledger.handles++;
    device->ledger.handle_bytes += size;
  }
  *result = handle;
  return VMM_CODE_SUCCESS;
}

/* Gives the bytes back: to the machine, or to the next owner. */
static void give_back(vmm__sim *sim, vmm__sim_handle *handle) {
  vmm__sim_device *device = &sim->devices[handle->device];
  vmm__sim_stale *stale = NULL;

  if (handle->own) {
    if (handle->fd >= 0) (void)close(handle->fd);
    return;
  }
  if (!handle->touched || device->fd < 0) return;
  if (sim->options.fresh == VMM_SIM_FRESH_STALE && device->stale_count < STALE_KEPT)
    stale = vmm__sim_allocate(sim, 1, sizeof *stale);
  if (stale == NULL) {
    (void)fallocate(device->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)handle->offset, (off_t)handle->size);
    return;
  }
  stale->offset = handle->offset;
  stale->size = handle->size;
  stale->next = device->stale;
  device->stale = stale;
  device->stale_count++;
}

void vmm__sim_physical_drop(vmm__sim *sim, vmm__sim_handle *handle) {
  vmm__sim_device *device = &sim->devices[handle->device];

  if (handle->references != 0 || handle->mappings != 0) return;
  give_back(sim, handle);
  if (!handle->host) device->used -= handle->size;
  if (!handle->plain) {
    device->ledger.handles--;
    device->ledger.handle_bytes -= handle->size;
  }
  vmm__sim_tree_remove(&sim->handles, &handle->node);
  if (handle->poisoned != NULL)
    vmm__sim_free(sim, handle->poisoned,
                  (handle->size + sim->options.minimum_granularity - 1) / sim->options.minimum_granularity, 1);
  vmm__sim_free(sim, handle, 1, sizeof *handle);
}

/* Whether a property can be served; 0 or the code. */
static int check_prop(const vmm__sim *sim, const vmm_raw_prop *prop) {
  if (prop == NULL || prop->type != 1) return VMM_CODE_INVALID_VALUE;
  if (prop->location_type == LOCATION_HOST_NUMA)
    return prop->location_id == 0 ? VMM_CODE_SUCCESS : VMM_CODE_INVALID_VALUE;
  if (prop->location_type != LOCATION_DEVICE) return VMM_CODE_INVALID_VALUE;
  if (prop->location_id < 0 || prop->location_id >= sim->options.device_count) return VMM_CODE_INVALID_DEVICE;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_granularity(vmm__sim *sim, size_t *granularity, const vmm_raw_prop *prop, int option) {
  int code = check_prop(sim, prop);

  if (granularity == NULL || option < 0 || option > 1) return VMM_CODE_INVALID_VALUE;
  if (code != VMM_CODE_SUCCESS) return code;
  *granularity = (size_t)(option == 0 ? sim->options.minimum_granularity : sim->options.granularity);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_create(vmm__sim *sim, unsigned long long *handle, size_t size, const vmm_raw_prop *prop,
                           unsigned long long flags) {
  vmm__sim_handle *made;
  bool host;
  int device;
  int code;

  if (handle == NULL || size == 0 || size % sim->options.minimum_granularity != 0 || flags != 0)
    return VMM_CODE_INVALID_VALUE;
  code = check_prop(sim, prop);
  if (code != VMM_CODE_SUCCESS) return code;
  if (prop->handle_types == 8) return sim->options.no_fabric ? VMM_CODE_NOT_SUPPORTED : VMM_CODE_NOT_PERMITTED;
  if (prop->handle_types != 0 && prop->handle_types != 1) return VMM_CODE_NOT_SUPPORTED;
  host = prop->location_type == LOCATION_HOST_NUMA;
  device = host ? 0 : prop->location_id;
  if (vmm__sim_not_ready(sim, device)) return VMM_CODE_NOT_READY;
  code = vmm__sim_physical_create(sim, &made, device, size, prop->handle_types == 1, host, false);
  if (code != VMM_CODE_SUCCESS) return code;
  made->types = prop->handle_types;
  made->references = 1;
  sim->devices[device].ledger.references++;
  *handle = made->node.key;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_release(vmm__sim *sim, unsigned long long value) {
  vmm__sim_handle *handle = (vmm__sim_handle *)vmm__sim_tree_find(&sim->handles, value);
  vmm__sim_device *device;

  if (handle == NULL || handle->plain || handle->references == 0) {
    if (value != 0 && vmm__sim_was_given(sim, value))
      vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DOUBLE_RELEASE, 0, 0,
                           "a handle was released that has no reference left");
    else if (value != 0)
      vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_BOGUS_HANDLE, 0, 0, "what was released never was a handle");
    return VMM_CODE_INVALID_VALUE;
  }
  if (vmm__sim_not_ready(sim, handle->device)) return VMM_CODE_NOT_READY;
  device = &sim->devices[handle->device];
  handle->references--;
  device->ledger.references--;
  device->evicted = true;
  vmm__sim_physical_drop(sim, handle);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_retain_handle(vmm__sim *sim, unsigned long long *value, unsigned long long address) {
  const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);

  if (value == NULL || mapping == NULL || mapping->handle->plain) return VMM_CODE_INVALID_VALUE;
  mapping->handle->references++;
  sim->devices[mapping->handle->device].ledger.references++;
  *value = mapping->handle->node.key;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_mem_export(vmm__sim *sim, void *shareable, unsigned long long value, int type,
                           unsigned long long flags) {
  vmm__sim_handle *handle = (vmm__sim_handle *)vmm__sim_tree_find(&sim->handles, value);
  int fd;

  if (handle == NULL && value != 0)
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_BOGUS_HANDLE, 0, 0, "what was exported is no live handle");
  if (shareable == NULL || handle == NULL || flags != 0 || type != 1 || handle->types != 1)
    return VMM_CODE_INVALID_VALUE;
  fd = vmm__sim_physical_file(sim, handle);
  if (fd >= 0) fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return VMM_CODE_OUT_OF_MEMORY;
  handle->touched = true;
  memcpy(shareable, &fd, sizeof fd);
  return VMM_CODE_SUCCESS;
}

/* The handle of this simulator whose file it is; NULL if another process made it. */
static vmm__sim_handle *find_file(const vmm__sim *sim, const struct stat *wanted) {
  const vmm__sim_node *node = vmm__sim_tree_at_or_above(&sim->handles, 0);

  for (; node != NULL; node = vmm__sim_tree_next(&sim->handles, node)) {
    vmm__sim_handle *handle = (vmm__sim_handle *)vmm__sim_tree_find(&sim->handles, node->key);
    struct stat mine;

    if (handle->own && handle->fd >= 0 && fstat(handle->fd, &mine) == 0 && mine.st_ino == wanted->st_ino &&
        mine.st_dev == wanted->st_dev)
      return handle;
  }
  return NULL;
}

int vmm__sim_op_mem_import(vmm__sim *sim, unsigned long long *value, void *shareable, int type) {
  int fd = (int)(intptr_t)shareable;
  vmm__sim_handle *handle;
  struct stat file;
  int code;

  if (value == NULL || type != 1 || fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &file) != 0 || file.st_size <= 0 ||
      (vmm__u64)file.st_size % sim->options.minimum_granularity != 0)
    return VMM_CODE_INVALID_VALUE;
  handle = find_file(sim, &file);
  if (handle == NULL) {
    code = vmm__sim_physical_create(sim, &handle, 0, (vmm__u64)file.st_size, true, false, false);
    if (code != VMM_CODE_SUCCESS) return code;
    handle->types = 1;
    handle->touched = true;
    handle->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (handle->poisoned != NULL)
      memset(handle->poisoned, 1, (size_t)(handle->size / sim->options.minimum_granularity));
    if (handle->fd < 0) {
      vmm__sim_physical_drop(sim, handle);
      return VMM_CODE_OUT_OF_MEMORY;
    }
  }
  handle->references++;
  sim->devices[handle->device].ledger.references++;
  *value = handle->node.key;
  return VMM_CODE_SUCCESS;
}
