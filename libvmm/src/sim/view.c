/* Views: one host pointer over adjacent mappings, for tests. Made only when asked for, because a process may have few
 * mappings (65,530) where a device may have many (523,970). */
#include <sys/mman.h>

#include "base/fork.h"
#include "sim/sim.h"

/* Memory of nobody's, so that whoever still holds the host pointer reads and writes that and does not crash; its place is
 * used again for the next view of its size. */
static void retire(vmm__sim *sim, vmm__sim_view *view) {
  (void)mmap(view->pointer, (size_t)view->size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  view->next = sim->old_views;
  sim->old_views = view;
}

void vmm__sim_views_drop(vmm__sim *sim, vmm__u64 address, vmm__u64 size) {
  vmm__sim_view **link = &sim->views;

  while (*link != NULL) {
    vmm__sim_view *view = *link;

    if (view->address < address + size && address < view->address + view->size) {
      *link = view->next;
      retire(sim, view);
    } else {
      link = &view->next;
    }
  }
}

void vmm__sim_views_end(vmm__sim *sim) {
  vmm__sim_view *view;

  vmm__sim_views_drop(sim, 0, UINT64_MAX);
  while ((view = sim->old_views) != NULL) {
    sim->old_views = view->next;
    (void)munmap(view->pointer, (size_t)view->size);
    vmm__sim_free(sim, view, 1, sizeof *view);
  }
}

static bool mapped_throughout(vmm__sim *sim, vmm__u64 address, vmm__u64 end) {
  while (address < end) {
    const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, address);

    if (mapping == NULL) return false;
    address = mapping->node.key + mapping->size;
  }
  return true;
}

static bool fill(vmm__sim *sim, const vmm__sim_view *view) {
  vmm__u64 done = 0;

  while (done < view->size) {
    const vmm__sim_mapping *mapping = vmm__sim_mapping_at(sim, view->address + done);
    vmm__sim_handle *handle = mapping->handle;
    vmm__u64 within = view->address + done - mapping->node.key;
    vmm__u64 length = vmm__min(mapping->size - within, view->size - done);
    int fd = vmm__sim_physical_file(sim, handle);

    if (fd < 0 || !vmm__sim_physical_poison(sim, handle, within, vmm__min(length, handle->size - within)) ||
        mmap(view->pointer + done, (size_t)length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             (off_t)(handle->offset + within)) == MAP_FAILED)
      return false;
    handle->touched = true;
    done += length;
  }
  return true;
}

/* A place in the process for a view: one that was used before, or a new one. NULL without memory. */
static vmm__sim_view *find_place(vmm__sim *sim, vmm__u64 size) {
  vmm__sim_view **link = &sim->old_views;
  vmm__sim_view *view;
  void *pointer;

  while (*link != NULL && (*link)->size != size) link = &(*link)->next;
  view = *link;
  if (view != NULL) {
    *link = view->next;
    return view;
  }
  view = vmm__sim_allocate(sim, 1, sizeof *view);
  if (view == NULL) return NULL;
  pointer = mmap(NULL, (size_t)size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pointer == MAP_FAILED) {
    vmm__sim_free(sim, view, 1, sizeof *view);
    return NULL;
  }
  view->pointer = pointer;
  view->size = size;
  return view;
}

/* Whole granules of [address, address + size). NULL without memory, or without room for more mappings. */
static vmm__sim_view *make(vmm__sim *sim, vmm__u64 address, vmm__u64 size) {
  vmm__sim_view *view = find_place(sim, size);

  if (view == NULL) return NULL;
  view->address = address;
  if (!fill(sim, view)) {
    retire(sim, view);
    return NULL;
  }
  view->next = sim->views;
  sim->views = view;
  return view;
}

static vmm_status find_or_make(vmm__sim *sim, vmm__u64 address, vmm__u64 end, void **pointer) {
  vmm__u64 page = sim->options.minimum_granularity;
  vmm__sim_view *view;
  vmm__u64 start;
  vmm__u64 stop;

  if (!mapped_throughout(sim, address, end)) return VMM_ERROR_UNKNOWN_ADDRESS;
  for (view = sim->views; view != NULL; view = view->next)
    if (view->address <= address && end <= view->address + view->size) break;
  if (view == NULL) {
    const vmm__sim_mapping *first = vmm__sim_mapping_at(sim, address);
    const vmm__sim_mapping *last = vmm__sim_mapping_at(sim, end - 1);

    /* Plain allocations are no multiples of a page: they are viewed whole, from their first byte. */
    start = first->handle->plain ? first->node.key : vmm__round_down(address, page);
    if (!vmm__round_up(last->handle->plain ? last->node.key + last->size : end, page, &stop))
      return VMM_ERROR_INVALID_ARGUMENT;
    if (!last->handle->plain) stop = vmm__min(stop, last->node.key + last->size);
    view = make(sim, start, stop - start);
  }
  if (view == NULL) return VMM_ERROR_OUT_OF_HOST_MEMORY;
  *pointer = view->pointer + (address - view->address);
  return VMM_OK;
}

vmm_status vmm_sim_view(vmm_driver *driver, unsigned long long address, unsigned long long size, void **pointer) {
  vmm_driver *found;
  vmm_status status;
  vmm__sim *sim;
  vmm__u64 end;

  if (vmm__forked()) return VMM_ERROR_FORKED;
  if (pointer == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  *pointer = NULL;
  found = vmm__driver_find(driver, VMM__DRIVER_SIM);
  if (found == NULL || size == 0 || !vmm__add(address, size, &end)) return VMM_ERROR_INVALID_ARGUMENT;
  sim = found->self;
  vmm__lock_acquire(&sim->lock);
  status = find_or_make(sim, address, end, pointer);
  vmm__lock_release(&sim->lock);
  return status;
}
