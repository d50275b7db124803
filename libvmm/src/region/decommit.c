/* Taking mappings away: unmap, quarantine, and trying again what was quarantined. */
#include "region/region.h"
#include "region/undo.h"

/* get-access asks without a side effect: measured, it answers INVALID_VALUE on reserved-only memory and SUCCESS on mapped
 * memory, with or without access. (retain-handle tells the same, but takes a reference whose release can fail.) A "no" is
 * asked twice: acting on a wrong one would leave a mapping nobody knows of. */
bool vmm__region_is_mapped(vmm__region *region, vmm__u64 address) {
  vmm_raw_location location = {1, region->device->raw};
  unsigned long long flags = 0;
  int i;

  for (i = 0; i < 2; i++)
    if (vmm__cu_mem_get_access(region->device, &flags, &location, address) != VMM_CODE_INVALID_VALUE) return true;
  return false;
}

bool vmm__is_quarantined(vmm__region *region, const vmm__mapping *mapping) {
  bool is;

  vmm__lock_acquire(region->lock);
  is = mapping->state == VMM_MAPPING_QUARANTINED;
  vmm__lock_release(region->lock);
  return is;
}

bool vmm__unmap(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size) {
  vmm_device *device = region->device;
  bool second = false;

  for (;;) {
    int code = vmm__cu_mem_unmap(device, address, (size_t)size);

    if (code == VMM_CODE_SUCCESS || !vmm__region_is_mapped(region, address)) break;
    if (code == VMM_CODE_NOT_READY && vmm__work_again(work, VMM_OP_mem_unmap, code, address, size)) continue;
    if (!second) { /* a passing fault is worth one more try even when the budget is spent */
      second = true;
      continue;
    }
    work->attempt = 0;
    (void)vmm__work_undone(work, code);
    return vmm__device_lost(device);
  }
  work->attempt = 0;
  return true;
}

void vmm__quarantine(vmm__region *region, vmm__mapping stuck) {
  vmm__lock_acquire(region->lock);
  (void)vmm__mappings_insert(&region->mappings, stuck);
  region->quarantined_bytes += stuck.size;
  vmm__lock_release(region->lock);
  vmm__device_event(region->device, VMM_EVENT_QUARANTINE, VMM_OP_mem_unmap, 0, 0, stuck.address, stuck.size, 0);
}

vmm__decommit_result vmm__region_decommit(vmm__region *region, vmm__work *work, vmm__u64 address) {
  vmm__mapping mapping = *vmm__mappings_find(&region->mappings, address);
  int failures = work->undo_failures, first = work->undo_code;
  int code;
  bool gone;

  work->undo_failures = 0; /* should it fail, then it is the step itself that does, not an undo */
  gone = vmm__unmap(region, work, mapping.address, mapping.size);
  code = work->undo_code;
  work->undo_failures = failures;
  work->undo_code = first;
  if (gone) {
    vmm__lock_acquire(region->lock);
    (void)vmm__mappings_remove(&region->mappings, mapping.address, NULL);
    region->live_bytes -= mapping.size;
    region->generation++;
    vmm__lock_release(region->lock);
    vmm__handle_give(work, mapping.handle);
    return VMM__DECOMMIT_GONE;
  }
  (void)vmm__work_call_failed(work, VMM_OP_mem_unmap, code, mapping.address, mapping.size);
  if (vmm__has_access(region, mapping.address)) return VMM__DECOMMIT_KEPT;
  vmm__lock_acquire(region->lock);
  vmm__mappings_find(&region->mappings, address)->state = VMM_MAPPING_QUARANTINED;
  region->live_bytes -= mapping.size;
  region->quarantined_bytes += mapping.size;
  vmm__lock_release(region->lock);
  vmm__device_event(region->device, VMM_EVENT_QUARANTINE, VMM_OP_mem_unmap, 0, 0, mapping.address, mapping.size, 0);
  return VMM__DECOMMIT_QUARANTINED;
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

/* From a quarantined entry to all around it that is not live. Should a mapping have been taken for unmapped once (the
 * driver refused the unmap and then denied the mapping), what lies there now need not be what the table says; measured,
 * an unmap may span several mappings and holes. */
static void widen(const vmm__region *region, size_t i, vmm__u64 *from, vmm__u64 *to) {
  const vmm__mappings *table = &region->mappings;
  size_t before = i, after = i + 1;

  while (before > 0 && vmm__mappings_at(table, before - 1)->state == VMM_MAPPING_QUARANTINED) before--;
  while (after < table->count && vmm__mappings_at(table, after)->state == VMM_MAPPING_QUARANTINED) after++;
  *from = before == 0 ? region->base
                      : vmm__mappings_at(table, before - 1)->address + vmm__mappings_at(table, before - 1)->size;
  *to = after == table->count ? region->base + region->size : vmm__mappings_at(table, after)->address;
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
    vmm__handle_give(work, mapping.handle);
  }
}

void vmm__region_recover(vmm__region *region, vmm__work *work) {
  vmm__work again = *work; /* old failures are not this call's */
  vmm__mapping mapping;
  size_t i = 0;

  again.status = VMM_OK;
  again.attempts_left = 0;
  vmm__handles_recover(&again, false);
  if (region->revoke_count != 0) recover_revokes(region, &again);
  if (region->quarantined_bytes == 0 || !vmm__region_data_done(region)) return;
  while (next_quarantined(region, &i, &mapping)) {
    vmm__u64 from = mapping.address, to = mapping.address + mapping.size;

    if (!vmm__unmap(region, &again, from, to - from)) {
      widen(region, i, &from, &to);
      if (vmm__cu_mem_unmap(region->device, from, (size_t)(to - from)) != VMM_CODE_SUCCESS) {
        i++;
        continue;
      }
    }
    release_quarantined(region, &again, from, to);
    i = vmm__mappings_lower_bound(&region->mappings, to);
  }
}
