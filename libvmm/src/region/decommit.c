/* Taking mappings away: unmap, quarantine, and trying again what was quarantined. */
#include "region/region.h"
#include "region/undo.h"

enum { UNMAP_LIE = -1 };

/* get-access asks without a side effect: measured, it answers INVALID_VALUE on reserved-only memory and SUCCESS on mapped
 * memory, with or without access. (retain-handle tells the same, but takes a reference whose release can fail.) A "no" is
 * asked twice: acting on a wrong one would leave a mapping nobody knows of. */
vmm__presence vmm__region_presence(vmm__region *region, vmm__u64 address) {
  vmm_raw_location location = {1, region->device->raw};
  unsigned long long flags = 0;
  int asked, denied = 0;

  for (asked = 0; asked < 3; asked++) {
    int code = vmm__cu_mem_get_access(region->device, &flags, &location, address);

    if (code == VMM_CODE_SUCCESS) return VMM__PRESENCE_MAPPED;
    if (code == VMM_CODE_INVALID_VALUE && ++denied == 2) return VMM__PRESENCE_NOTHING;
  }
  return VMM__PRESENCE_UNKNOWN;
}

bool vmm__is_quarantined(vmm__region *region, const vmm__mapping *mapping) {
  bool is;

  vmm__lock_acquire(region->lock);
  is = mapping->state == VMM_MAPPING_QUARANTINED;
  vmm__lock_release(region->lock);
  return is;
}

/* An unmap that reports success is believed unless get-access says that the mapping stands. */
static bool unmap_was_a_lie(vmm__region *region, vmm__u64 address) {
  vmm_raw_location location = {1, region->device->raw};
  unsigned long long flags = 0;

  return vmm__cu_mem_get_access(region->device, &flags, &location, address) == VMM_CODE_SUCCESS;
}

/* 0: nothing is mapped there any more (or the device is lost: then it goes with the context). Else what the last call
 * answered, or UNMAP_LIE. Only a mapping known to stand is unmapped again at once. */
static int unmap(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  vmm_device *device = region->device;
  bool second = false;

  if (region->plain) return VMM_CODE_SUCCESS; /* there is nothing but the handle */
  for (;;) {
    int code = vmm__cu_mem_unmap(device, address, (size_t)size);
    vmm__presence presence = VMM__PRESENCE_MAPPED;

    if (code != VMM_CODE_SUCCESS) presence = vmm__region_presence(region, address);
    else if (unmap_was_a_lie(region, address)) code = UNMAP_LIE;
    if (code == VMM_CODE_SUCCESS || presence == VMM__PRESENCE_NOTHING) break;
    if (presence == VMM__PRESENCE_MAPPED) {
      if (code == VMM_CODE_NOT_READY && vmm__work_again(work, VMM_OP_mem_unmap, code, address, size)) continue;
      if (!second) { /* a passing fault is worth one more try even when the budget is spent */
        second = true;
        continue;
      }
    }
    work->attempt = 0;
    return vmm__device_lost(device) ? VMM_CODE_SUCCESS : code;
  }
  work->attempt = 0;
  return VMM_CODE_SUCCESS;
}

/* The same; a failure is an undo failure of the work. */
static int unmap_undoing(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  int code = unmap(region, work, address, size);

  return vmm__work_undone(work, code == UNMAP_LIE ? VMM_CODE_UNKNOWN : code);
}

bool vmm__unmap(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  return unmap_undoing(region, work, address, size) == VMM_CODE_SUCCESS;
}

void vmm__quarantine(vmm__region *region, vmm__mapping stuck) {
  vmm__lock_acquire(region->lock);
  (void)vmm__mappings_insert(&region->mappings, stuck);
  region->quarantined_bytes += stuck.size;
  vmm__lock_release(region->lock);
  vmm__device_event(region->device, VMM_EVENT_QUARANTINE, VMM_OP_mem_unmap, 0, 0, stuck.address, stuck.size, 0);
}

static void unmap_failed(vmm__work *work, int code, const vmm__mapping *mapping) {
  if (code != UNMAP_LIE) {
    (void)vmm__work_call_failed(work, VMM_OP_mem_unmap, code, mapping->address, mapping->size);
    return;
  }
  if (work->status == VMM_OK) {
    work->address = mapping->address;
    work->size = mapping->size;
  }
  (void)vmm__work_fail(work, VMM_ERROR_NOT_CONFIRMED, "the driver reported success, but the memory is still mapped");
}

vmm__decommit_result vmm__region_take_down(vmm__region *region, vmm__work *work, vmm__u64 address,
                                           vmm__handle **handle) {
  vmm__mapping mapping = *vmm__mappings_find(&region->mappings, address);
  int code = unmap(region, work, mapping.address, mapping.size);

  if (code == VMM_CODE_SUCCESS) {
    vmm__lock_acquire(region->lock);
    (void)vmm__mappings_remove(&region->mappings, mapping.address, NULL);
    region->live_bytes -= mapping.size;
    region->generation++;
    vmm__lock_release(region->lock);
    *handle = mapping.handle;
    return VMM__DECOMMIT_GONE;
  }
  unmap_failed(work, code, &mapping);
  if (vmm__has_access(region, mapping.address)) return VMM__DECOMMIT_KEPT;
  vmm__lock_acquire(region->lock);
  vmm__mappings_find(&region->mappings, address)->state = VMM_MAPPING_QUARANTINED;
  region->live_bytes -= mapping.size;
  region->quarantined_bytes += mapping.size;
  vmm__lock_release(region->lock);
  vmm__device_event(region->device, VMM_EVENT_QUARANTINE, VMM_OP_mem_unmap, 0, 0, mapping.address, mapping.size, 0);
  return VMM__DECOMMIT_QUARANTINED;
}

vmm__decommit_result vmm__region_decommit(vmm__region *region, vmm__work *work, vmm__u64 address) {
  vmm__handle *handle = NULL;
  vmm__decommit_result result = vmm__region_take_down(region, work, address, &handle);

  if (result == VMM__DECOMMIT_GONE) (void)vmm__handle_give(work, handle);
  return result;
}

/* The first quarantined entry at or after number *i. */
static bool next_quarantined(vmm__region *region, size_t *i, vmm__mapping *mapping) {
  for (; *i < region->mappings.count; (*i)++) {
    const vmm__mapping *entry = vmm__mappings_at(&region->mappings, *i);

    if (!vmm__is_quarantined(region, entry)) continue;
    *mapping = *entry;
    return true;
  }
  return false;
}

static void recover_revokes(vmm__region *region, vmm__work *work) {
  while (region->revoke_count != 0) {
    if (!vmm__revoke(region, work, region->access[region->access_count + region->revoke_count - 1].location_id)) return;
    region->revoke_count--;
  }
}

/* Whether something is mapped at an address of the reservation where the table has nothing. */
static bool is_unknown(vmm__region *region, vmm__u64 address) {
  return address >= region->base && address - region->base < region->size &&
         vmm__mappings_find(&region->mappings, address) == NULL &&
         vmm__region_presence(region, address) == VMM__PRESENCE_MAPPED;
}

static bool is_stuck(vmm__region *region, size_t i) {
  return i < region->mappings.count && vmm__is_quarantined(region, vmm__mappings_at(&region->mappings, i));
}

/* To the quarantined entries that lie side by side with number i. */
static void widen_to_run(vmm__region *region, size_t i, vmm__u64 *from, vmm__u64 *to) {
  const vmm__mappings *table = &region->mappings;
  size_t k;

  for (k = i; k > 0 && is_stuck(region, k - 1); k--) {
    const vmm__mapping *before = vmm__mappings_at(table, k - 1);
    if (before->address + before->size != *from) break;
    *from = before->address;
  }
  for (k = i + 1; is_stuck(region, k) && vmm__mappings_at(table, k)->address == *to; k++)
    *to += vmm__mappings_at(table, k)->size;
}

/* To all around number i that is not live. */
static void widen_to_live(vmm__region *region, size_t i, vmm__u64 *from, vmm__u64 *to) {
  const vmm__mappings *table = &region->mappings;
  size_t before = i, after = i + 1;

  while (before > 0 && is_stuck(region, before - 1)) before--;
  while (is_stuck(region, after)) after++;
  *from = before == 0 ? region->base
                      : vmm__mappings_at(table, before - 1)->address + vmm__mappings_at(table, before - 1)->size;
  *to = after == table->count ? region->base + region->size : vmm__mappings_at(table, after)->address;
}

/* Should a mapping have been taken for unmapped once (the driver refused the unmap and then denied the mapping), what lies
 * there now need not be what the table says. An unmap of what it says then cuts a mapping in two, INVALID_VALUE, and what
 * is cut reaches beyond. Measured, an unmap may span several mappings and holes; but without such a trace there is no
 * reason to unmap more than is known to stand. */
static void widen(vmm__region *region, size_t i, vmm__u64 *from, vmm__u64 *to) {
  widen_to_run(region, i, from, to);
  if (is_unknown(region, *from - 1) || is_unknown(region, *to)) widen_to_live(region, i, from, to);
}

/* The quarantined entries of a range are unmapped: they leave the table. */
static void release_quarantined(vmm__region *region, vmm__work *work, vmm__u64 from, vmm__u64 to) {
  size_t i = vmm__mappings_lower_bound(&region->mappings, from);

  while (i < region->mappings.count && vmm__mappings_at(&region->mappings, i)->address < to) {
    vmm__mapping mapping = *vmm__mappings_at(&region->mappings, i);

    vmm__lock_acquire(region->lock);
    (void)vmm__mappings_remove(&region->mappings, mapping.address, NULL);
    region->quarantined_bytes -= mapping.size;
    vmm__lock_release(region->lock);
    vmm__device_event(region->device, VMM_EVENT_RECOVERED, VMM_OP_mem_unmap, 0, 0, mapping.address, mapping.size, 0);
    (void)vmm__handle_give(work, mapping.handle);
    work->gave_back += mapping.size;
  }
}

void vmm__region_recover(vmm__region *region, vmm__work *work) {
  vmm__work again = *work; /* old failures are not this call's */
  vmm__mapping mapping;
  size_t i = 0;

  again.status = VMM_OK;
  again.attempts_left = 0;
  vmm__handles_recover(&again, false);
  work->gave_back = again.gave_back;
  if (region->revoke_count != 0) recover_revokes(region, &again);
  if (region->quarantined_bytes == 0 || !vmm__region_data_done(region, &again)) return;
  while (next_quarantined(region, &i, &mapping)) {
    vmm__u64 from = mapping.address, to = mapping.address + mapping.size;
    int code = unmap_undoing(region, &again, from, to - from);

    if (code == VMM_CODE_INVALID_VALUE) {
      widen(region, i, &from, &to);
      code = vmm__cu_mem_unmap(region->device, from, (size_t)(to - from));
    }
    if (code != VMM_CODE_SUCCESS) {
      i++;
      continue;
    }
    release_quarantined(region, &again, from, to);
    i = vmm__mappings_lower_bound(&region->mappings, to);
  }
  work->gave_back = again.gave_back;
}
