/* The free space of a pool: questions by address, none of them on the hot path.
 *
 * There is no tree to keep: a search by address tries the ends, the cursor and the hash, and then goes through the record
 * table, which is one linear read of 32 bytes per range. */
#include "index/space_inner.h"

#define CURSOR_STEPS 64

static bool has_records(const vmm__space *space) { return space->records.chunk_count != 0; }

/* By reading all records, in the order they lie in memory. */
static uint32_t locate_by_scan(const vmm__space *space, vmm__u64 address) {
  uint32_t found = 0;
  vmm__u64 found_address = 0;

  for (uint32_t id = 1; id < space->records.used; id++) {
    const vmm__record *record = vmm__space_record(space, id);

    if (record->size_flags != 0 && record->address <= address && record->address > found_address) {
      found = id;
      found_address = record->address;
    }
  }
  return found;
}

/* A few steps upwards from a record. 0 if they do not lead there. */
static uint32_t locate_from(const vmm__space *space, uint32_t id, vmm__u64 address) {
  const vmm__record *record = vmm__space_record(space, id);

  if (id == 0 || record->size_flags == 0 || record->address > address) return 0;
  for (int step = 0; step < CURSOR_STEPS; step++) {
    uint32_t next = record->next;

    record = vmm__space_record(space, next);
    if (next == 0 || record->address > address) return id;
    id = next;
  }
  return 0;
}

uint32_t vmm__space_locate(const vmm__space *space, vmm__u64 address) {
  uint32_t id;
  const vmm__slot *slot;

  if (!has_records(space)) return 0;
  id = vmm__space_record(space, 0)->prev;
  if (id == 0 || vmm__space_record(space, id)->address <= address) return id;
  id = vmm__space_record(space, 0)->next;
  if (vmm__space_record(space, id)->address > address) return 0;
  slot = vmm__slots_at(&space->slots, address);
  if (slot != NULL) return slot->id;
  /* Any record in use is in the list, whatever it was when the cursor was set. */
  id = locate_from(space, space->cursor, address);
  if (id == 0) id = locate_from(space, vmm__space_record(space, 0)->next, address); /* a walk that frees as it goes */
  if (id != 0) return id;
  return locate_by_scan(space, address);
}

static uint32_t locate_and_remember(vmm__space *space, vmm__u64 address) {
  uint32_t id = vmm__space_locate(space, address);

  space->cursor = id;
  return id;
}

void vmm__space_describe(const vmm__space *space, const vmm__slot *slot, vmm__block *out) {
  const vmm__record *record;

  out->address = vmm__slot_address(slot);
  out->arena = VMM__ARENA_IDLE;
  out->tag = (slot->key & VMM__SLOT_TAGGED) != 0 ? *vmm__record_tag(&space->records, slot->id) : 0;
  if ((slot->key & VMM__SLOT_ODD) == 0) {
    out->size = space->first.kept[vmm__slot_bin(slot)].size;
    out->requested = out->size - vmm__slot_waste(slot);
    return;
  }
  record = vmm__space_record(space, slot->id);
  out->arena = vmm__record_arena(record);
  out->size = vmm__record_size(record);
  out->requested = record->requested;
}

/* The slot of the live block that a record stands for; NULL if it is a free range or a quick block. */
static const vmm__slot *live_slot(const vmm__space *space, const vmm__record *record) {
  const vmm__slot *slot = vmm__record_is_free(record) ? NULL : vmm__slots_at(&space->slots, record->address);

  return slot == NULL || (slot->key & VMM__SLOT_LIVE) == 0 ? NULL : slot;
}

bool vmm__space_find(vmm__space *space, vmm__u64 address, vmm__block *out) {
  uint32_t id = locate_and_remember(space, address);
  const vmm__record *record;
  const vmm__slot *slot;

  if (id == 0) return false;
  record = vmm__space_record(space, id);
  if (address - record->address >= vmm__record_size(record)) return false;
  slot = live_slot(space, record);
  if (slot != NULL && out != NULL) vmm__space_describe(space, slot, out);
  return slot != NULL;
}

bool vmm__space_next_block(vmm__space *space, vmm__u64 address, vmm__block *out) {
  const vmm__slot *slot = NULL;
  uint32_t id;

  if (!has_records(space)) return false;
  id = locate_and_remember(space, address);
  if (id == 0 || vmm__space_record(space, id)->address < address) id = vmm__space_record(space, id)->next;
  for (; id != 0; id = vmm__space_record(space, id)->next) {
    slot = live_slot(space, vmm__space_record(space, id));
    if (slot != NULL) break;
  }
  if (slot == NULL) return false;
  space->cursor = id;
  if (out != NULL) vmm__space_describe(space, slot, out);
  return true;
}

vmm__u64 vmm__space_free_before(vmm__space *space, vmm__u64 address, unsigned arena_a, unsigned arena_b) {
  const vmm__arena *a = space->arenas[arena_a], *b = space->arenas[arena_b];
  vmm__u64 start = address;
  uint32_t id;

  vmm__quick_settle(space, space->arenas[arena_a]);
  vmm__quick_settle(space, space->arenas[arena_b]);
  id = address == 0 ? 0 : locate_and_remember(space, address - 1);
  for (; id != 0; id = vmm__space_record(space, id)->prev) {
    const vmm__record *record = vmm__space_record(space, id);

    if ((!vmm__arena_has(a, record) && !vmm__arena_has(b, record)) || vmm__record_end(record) < start) break;
    start = record->address;
  }
  return address - start;
}

vmm__u64 vmm__space_bytes_in(vmm__space *space, vmm__u64 address, vmm__u64 size) {
  vmm__u64 end = vmm__saturating_add(address, size);
  vmm__u64 bytes = 0;
  uint32_t id;

  if (!has_records(space)) return 0;
  id = locate_and_remember(space, address);
  if (id == 0) id = vmm__space_record(space, 0)->next;
  for (; id != 0; id = vmm__space_record(space, id)->next) {
    const vmm__record *record = vmm__space_record(space, id);

    if (record->address >= end) break;
    space->cursor = id;
    if (vmm__record_end(record) <= address || live_slot(space, record) == NULL) continue;
    bytes += vmm__min(vmm__record_end(record), end) - vmm__max(record->address, address);
  }
  return bytes;
}
