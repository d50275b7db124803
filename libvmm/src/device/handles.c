/* Handles of physical memory. */
#include "device/handles.h"

#include "base/memory.h"

vmm__handle *vmm__handle_record(vmm_device *device) {
  return vmm__memory_allocate(&device->memory, 1, sizeof(vmm__handle));
}

void vmm__handle_record_free(vmm_device *device, vmm__handle *record) {
  vmm__memory_release(&device->memory, record, 1, sizeof *record);
}

/* Takes an idle handle of exactly `size` out of the list; any size if `size` is 0. Under the device lock. */
static vmm__handle *take_idle(vmm_device *device, vmm__u64 size) {
  vmm__handle **link;
  vmm__handle *handle;

  for (link = &device->idle; *link != NULL; link = &(*link)->next)
    if (size == 0 || (*link)->size == size) break;
  handle = *link;
  if (handle == NULL) return NULL;
  *link = handle->next;
  device->counters.idle_count--;
  device->counters.idle_bytes -= handle->size;
  return handle;
}

/* A new handle with the value of a quarantined one: that one was released after all. Gives its record. Device lock. */
static vmm__handle *take_quarantined(vmm_device *device, vmm__u64 raw) {
  vmm__handle **link;
  vmm__handle *handle;

  for (link = &device->quarantined; *link != NULL && (*link)->raw != raw; link = &(*link)->next) {
  }
  handle = *link;
  if (handle == NULL) return NULL;
  *link = handle->next;
  device->counters.quarantined_count--;
  device->counters.quarantined_bytes -= handle->size;
  return handle;
}

/* Whether `bytes` more may be held; counts them if so. Under the device lock. */
static bool count_in(vmm_device *device, vmm__u64 bytes) {
  vmm__device_counters *counters = &device->counters;
  vmm__u64 after;

  if (!vmm__add(counters->handle_bytes, bytes, &after)) return false;
  if (device->limit != 0 && after > device->limit) return false;
  counters->handle_bytes = after;
  counters->handle_count++;
  return true;
}

static void count_out(vmm_device *device, vmm__u64 bytes) {
  device->counters.handle_bytes -= bytes;
  device->counters.handle_count--;
}

static vmm_status create_raw(vmm__work *work, vmm__handle *record, vmm__u64 size) {
  vmm_device *device = work->device;
  vmm_raw_prop prop = {1, 0, 1, 0, 0, 0};

  prop.location_id = device->raw;
  if (device->info.fallback != 0) CU_CHECK(work, 0, size, mem_alloc, (device, &record->raw, (size_t)size));
  else CU_CHECK(work, 0, size, mem_create, (device, &record->raw, (size_t)size, &prop, 0));
undo:
  return work->status;
}

static vmm_status create(vmm__work *work, vmm__handle *record, vmm__u64 size) {
  vmm_device *device = work->device;
  vmm__handle *twin;

  if (create_raw(work, record, size) != VMM_OK) {
    record->raw = 0;
    return work->status;
  }
  record->size = size;
  record->first_code = 0;
  record->fresh = true;
  vmm__lock_acquire(&device->lock);
  twin = take_quarantined(device, record->raw);
  if (twin != NULL) {
    device->counters.released_count++;
    device->counters.released_bytes += twin->size;
  }
  device->counters.created_count++;
  device->counters.created_bytes += size;
  device->counters.handle_bytes_peak = vmm__max(device->counters.handle_bytes_peak, device->counters.handle_bytes);
  vmm__lock_release(&device->lock);
  if (twin != NULL) vmm__handle_record_free(device, twin);
  return VMM_OK;
}

vmm_status vmm__handle_take(vmm__work *work, vmm__handle *record, vmm__u64 size) {
  vmm_device *device = work->device;
  vmm__handle *idle;
  bool allowed;

  vmm__lock_acquire(&device->lock);
  idle = take_idle(device, size);
  allowed = idle != NULL || count_in(device, size);
  vmm__lock_release(&device->lock);
  if (idle != NULL) {
    record->raw = idle->raw;
    record->size = idle->size;
    record->fresh = false;
    vmm__handle_record_free(device, idle);
    return VMM_OK;
  }
  if (!allowed) {
    work->size = size;
    return vmm__work_fail(work, VMM_ERROR_LIMIT, "the device's limit of physical memory is reached");
  }
  if (create(work, record, size) == VMM_OK) return VMM_OK;
  vmm__lock_acquire(&device->lock);
  count_out(device, size);
  vmm__lock_release(&device->lock);
  return work->status;
}

/* One release. A failure leaves open whether it was done; INVALID_VALUE to the next then says that it was: measured,
 * releasing a released handle answers that and does nothing else. A first answer of INVALID_VALUE proves nothing. */
static bool release(vmm__work *work, vmm__handle *handle, bool last_chance) {
  vmm_device *device = work->device;
  bool plain = device->info.fallback != 0;
  int op = plain ? VMM_OP_mem_free : VMM_OP_mem_release;

  for (;;) {
    int code = plain ? vmm__cu_mem_free(device, handle->raw) : vmm__cu_mem_release(device, handle->raw);
    bool done_before = handle->first_code != 0 && (last_chance || handle->first_code != VMM_CODE_INVALID_VALUE);

    if (code == VMM_CODE_SUCCESS || (code == VMM_CODE_INVALID_VALUE && done_before)) break;
    if (handle->first_code == 0) handle->first_code = code;
    if (code == VMM_CODE_NOT_READY && vmm__work_again(work, op, code, 0, handle->size)) continue;
    work->attempt = 0;
    (void)vmm__work_undone(work, code);
    return false;
  }
  work->attempt = 0;
  return true;
}

static void released(vmm_device *device, vmm__handle *handle) {
  vmm__lock_acquire(&device->lock);
  device->counters.released_count++;
  device->counters.released_bytes += handle->size;
  vmm__lock_release(&device->lock);
  vmm__handle_record_free(device, handle);
}

static void quarantine(vmm_device *device, vmm__handle *handle) {
  vmm__lock_acquire(&device->lock);
  handle->next = device->quarantined;
  device->quarantined = handle;
  device->counters.quarantined_count++;
  device->counters.quarantined_bytes += handle->size;
  vmm__lock_release(&device->lock);
  vmm__device_event(device, VMM_EVENT_QUARANTINE, VMM_OP_mem_release, 0, 0, 0, handle->size, 0);
}

/* Gives the memory behind a counted handle back to the driver, or quarantines it. True if it is back. */
static bool give_back(vmm__work *work, vmm__handle *handle) {
  vmm_device *device = work->device;
  bool done = release(work, handle, false);

  vmm__lock_acquire(&device->lock);
  count_out(device, handle->size);
  vmm__lock_release(&device->lock);
  if (done || vmm__device_lost(device)) released(device, handle); /* on a lost device it goes with the context */
  else quarantine(device, handle);
  return done;
}

vmm__u64 vmm__handle_give(vmm__work *work, vmm__handle *handle) {
  vmm_device *device = work->device;
  vmm__u64 size = handle->size, after;
  bool kept = false;

  if (handle->raw == 0) {
    vmm__handle_record_free(device, handle);
    return 0;
  }
  vmm__lock_acquire(&device->lock);
  if (!handle->fresh && !vmm__device_lost(device) && vmm__add(device->counters.idle_bytes, handle->size, &after) &&
      after <= device->idle_limit) {
    handle->next = device->idle;
    device->idle = handle;
    device->counters.idle_count++;
    device->counters.idle_bytes = after;
    kept = true;
  }
  vmm__lock_release(&device->lock);
  return !kept && give_back(work, handle) ? size : 0;
}

size_t vmm__handles_sizes(vmm_device *device, vmm__u64 least, vmm__u64 most, vmm__u64 granularity, vmm__u64 *sizes,
                          size_t capacity) {
  const vmm__handle *handle;
  size_t count = 0, i;

  vmm__lock_acquire(&device->lock);
  for (handle = device->idle; handle != NULL; handle = handle->next) {
    if (handle->size < least || handle->size > most || handle->size % granularity != 0) continue;
    if (count == capacity && handle->size <= sizes[capacity - 1]) continue;
    for (i = count == capacity ? capacity - 1 : count++; i > 0 && sizes[i - 1] < handle->size; i--)
      sizes[i] = sizes[i - 1];
    sizes[i] = handle->size;
  }
  vmm__lock_release(&device->lock);
  return count;
}

void vmm__handles_recover(vmm__work *work, bool last_chance) {
  vmm_device *device = work->device;
  vmm__handle *list, *next;

  vmm__lock_acquire(&device->lock);
  list = device->quarantined;
  device->quarantined = NULL;
  for (next = list; next != NULL; next = next->next) {
    device->counters.quarantined_count--;
    device->counters.quarantined_bytes -= next->size;
  }
  vmm__lock_release(&device->lock);
  for (; list != NULL; list = next) {
    next = list->next;
    if (release(work, list, last_chance) || vmm__device_lost(device)) {
      vmm__device_event(device, VMM_EVENT_RECOVERED, VMM_OP_mem_release, 0, 0, 0, list->size, 0);
      work->gave_back += list->size;
      released(device, list);
    } else {
      quarantine(device, list);
    }
  }
}

vmm__u64 vmm__handles_trim(vmm__work *work, vmm__u64 keep) {
  vmm_device *device = work->device;
  vmm__u64 done = 0;

  vmm__handles_recover(work, false);
  for (;;) {
    vmm__handle *handle = NULL;
    vmm__u64 size;

    vmm__lock_acquire(&device->lock);
    if (device->counters.idle_bytes > keep) handle = take_idle(device, 0);
    vmm__lock_release(&device->lock);
    if (handle == NULL) return done;
    size = handle->size;
    if (give_back(work, handle)) done += size;
    else if (!vmm__device_lost(device)) return done; /* a lost device must not keep the rest */
  }
}
