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
  uint32_t place;

  if (!has_records(space)) return 0;
  id = vmm__space_record(space, 0)->prev;
  if (id == 0 || vmm__space_record(space, id)->address <= address) return id;
  id = vmm__space_record(space, 0)->next;
  if (vmm__space_record(space, id)->address > address) return 0;
  place = vmm__slots_at(&space->slots, address);
  if (place != VMM__SLOT_NONE) return vmm__slots_id(&space->slots, place);
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

void vmm__space_describe(const vmm__space *space, uint32_t place, vmm__block *out) {
  uint32_t info = *vmm__slots_info(&space->slots, place), id;
  const vmm__record *record;

  out->arena = VMM__ARENA_IDLE;
  out->tag = 0;
  if ((info & VMM__SLOT_PLAIN) != 0) {
    out->address = vmm__slots_address(&space->slots, place);
    out->size = space->first.kept[vmm__slot_bin(info)].size;
    out->requested = out->size - vmm__slot_waste(info);
    return;
  }
  id = vmm__slots_id(&space->slots, place);
  record = vmm__space_record(space, id);
  if ((info & VMM__SLOT_TAGGED) != 0) out->tag = *vmm__record_tag(&space->records, id);
  out->address = record->address;
  out->arena = vmm__record_arena(record);
  out->size = vmm__record_size(record);
  out->requested = record->requested;
}

/* The place of the live block that a record stands for; SLOT_NONE if it is a free range or a quick block. */
static uint32_t live_place(const vmm__space *space, const vmm__record *record) {
  uint32_t place = vmm__record_is_free(record) ? VMM__SLOT_NONE : vmm__slots_at(&space->slots, record->address);

  if (place == VMM__SLOT_NONE || !vmm__slot_is_live(*vmm__slots_info(&space->slots, place))) return VMM__SLOT_NONE;
  return place;
}

bool vmm__space_find(vmm__space *space, vmm__u64 address, vmm__block *out) {
  uint32_t id = locate_and_remember(space, address), place;
  const vmm__record *record;

  if (id == 0) return false;
  record = vmm__space_record(space, id);
  if (address - record->address >= vmm__record_size(record)) return false;
  place = live_place(space, record);
  if (place != VMM__SLOT_NONE && out != NULL) vmm__space_describe(space, place, out);
  return place != VMM__SLOT_NONE;
}

bool vmm__space_next_block(vmm__space *space, vmm__u64 address, vmm__block *out) {
  uint32_t id, place = VMM__SLOT_NONE;

  if (!has_records(space)) return false;
  id = locate_and_remember(space, address);
  if (id == 0 || vmm__space_record(space, id)->address < address) id = vmm__space_record(space, id)->next;
  for (; id != 0; id = vmm__space_record(space, id)->next) {
    place = live_place(space, vmm__space_record(space, id));
    if (place != VMM__SLOT_NONE) break;
  }
  if (place == VMM__SLOT_NONE) return false;
  space->cursor = id;
  if (out != NULL) vmm__space_describe(space, place, out);
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
    if (vmm__record_end(record) <= address || live_place(space, record) == VMM__SLOT_NONE) continue;
    bytes += vmm__min(vmm__record_end(record), end) - vmm__max(record->address, address);
  }
  return bytes;
}
