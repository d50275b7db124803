/* The bytes behind device addresses. They are read and written through the memfd, not through host mappings: nothing has to
 * be mapped, holes cost nothing, and a bad host pointer is an error code. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sim/sim.h"

unsigned char *vmm__sim_scratch(vmm__sim *sim) {
  if (sim->scratch == NULL) sim->scratch = vmm__sim_allocate(sim, VMM__SIM_SCRATCH, 1);
  return sim->scratch;
}

/* Pinned host memory that holds the whole range: devices reach it at its host address. */
static unsigned char *pinned_at(const vmm__sim *sim, vmm__u64 address, vmm__u64 size) {
  const vmm__sim_pinned *pinned = (vmm__sim_pinned *)vmm__sim_tree_at_or_below(&sim->pinned, address);

  if (pinned == NULL || address - pinned->node.key > pinned->size || size > pinned->size - (address - pinned->node.key))
    return NULL;
  return (unsigned char *)pinned->pointer + (address - pinned->node.key);
}

bool vmm__sim_is_pinned(const vmm__sim *sim, const void *pointer, vmm__u64 size) {
  return sim->pinned.count != 0 && pinned_at(sim, (vmm__u64)(uintptr_t)pointer, size) != NULL;
}

/* The longest start of the range that is alike: in one mapping with access, or without. */
static vmm__sim_mapping *piece(vmm__sim *sim, int device, vmm__u64 address, vmm__u64 size, int need, vmm__u64 *length) {
  vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);

  if (mapping == NULL) {
    const vmm__sim_node *next = vmm__sim_tree_at_or_above(&sim->mappings, address);

    *length = next == NULL ? size : vmm__min(size, next->key - address);
    return NULL;
  }
  *length = vmm__min(size, mapping->node.key + mapping->size - address);
  return mapping->access[device] >= need ? mapping : NULL;
}

bool vmm__sim_allowed(vmm__sim *sim, int device, vmm__u64 address, vmm__u64 size, int need) {
  vmm__u64 end;

  if (!vmm__add(address, size, &end)) return false;
  if (sim->pinned.count != 0 && pinned_at(sim, address, size) != NULL) return true;
  while (size != 0) {
    vmm__u64 length;

    if (piece(sim, device, address, size, need, &length) == NULL) return false;
    address += length;
    size -= length;
  }
  return true;
}

static bool read_file(int fd, unsigned char *to, vmm__u64 offset, vmm__u64 size) {
  while (size != 0) {
    ssize_t got = pread(fd, to, (size_t)size, (off_t)offset);

    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += (vmm__u64)got;
    size -= (vmm__u64)got;
  }
  return true;
}

static bool write_file(int fd, const unsigned char *from, vmm__u64 offset, vmm__u64 size) {
  while (size != 0) {
    ssize_t got = pwrite(fd, from, (size_t)size, (off_t)offset);

    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    from += got;
    offset += (vmm__u64)got;
    size -= (vmm__u64)got;
  }
  return true;
}

bool vmm__sim_read(vmm__sim *sim, int device, void *to, vmm__u64 address, vmm__u64 size) {
  unsigned char *bytes = to;
  const unsigned char *pinned = sim->pinned.count != 0 ? pinned_at(sim, address, size) : NULL;

  if (pinned != NULL) {
    memmove(to, pinned, (size_t)size);
    return true;
  }
  while (size != 0) {
    vmm__u64 length;
    vmm__sim_mapping *mapping = piece(sim, device, address, size, VMM__SIM_READ, &length);

    if (mapping == NULL || (!mapping->handle->touched && mapping->handle->poisoned == NULL)) {
      memset(bytes, 0, (size_t)length);
    } else {
      vmm__u64 offset = address - mapping->node.key;

      if (!vmm__sim_physical_poison(sim, mapping->handle, offset, length) ||
          !read_file(vmm__sim_physical_file(sim, mapping->handle), bytes, mapping->handle->offset + offset, length))
        return false;
    }
    bytes += length;
    address += length;
    size -= length;
  }
  return true;
}

bool vmm__sim_write(vmm__sim *sim, int device, vmm__u64 address, const void *from, vmm__u64 size) {
  const unsigned char *bytes = from;
  unsigned char *pinned = sim->pinned.count != 0 ? pinned_at(sim, address, size) : NULL;

  if (pinned != NULL) {
    memmove(pinned, from, (size_t)size);
    return true;
  }
  while (size != 0) {
    vmm__u64 length;
    vmm__sim_mapping *mapping = piece(sim, device, address, size, VMM__SIM_WRITE, &length);

    if (mapping != NULL) {
      vmm__u64 offset = address - mapping->node.key;

      if (!vmm__sim_physical_poison(sim, mapping->handle, offset, length) ||
          !write_file(vmm__sim_physical_file(sim, mapping->handle), bytes, mapping->handle->offset + offset, length))
        return false;
      mapping->handle->touched = true;
    }
    bytes += length;
    address += length;
    size -= length;
  }
  return true;
}
