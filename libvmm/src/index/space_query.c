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
    out->size = space->slots.bins[vmm__slot_bin(slot)].size;
    out->requested = out->size - vmm__slot_waste(slot);
    return;
  }
  record = vmm__space_record(space, slot->id);
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
  const vmm__record *record;
  uint32_t id;

  (void)arena_a;
  (void)arena_b;
  vmm__space_settle(space);
  id = address == 0 ? 0 : locate_and_remember(space, address - 1);
  if (id == 0) return 0;
  record = vmm__space_record(space, id);
  return vmm__record_is_free(record) && address <= vmm__record_end(record) ? address - record->address : 0;
}

static bool holds_free(const vmm__record *record, vmm__u64 address, vmm__u64 end) {
  return vmm__record_is_free(record) && record->address <= address && end <= vmm__record_end(record);
}

uint32_t vmm__space_free_holding(const vmm__space *space, vmm__u64 address, vmm__u64 size) {
  vmm__u64 end;
  vmm__bin bin;

  if (size == 0 || size > vmm__space_free_bytes(space) || !vmm__add(address, size, &end)) return 0;
  /* At most free / size ranges are that long. If they are many, reading all records in order is quicker. */
  if (vmm__space_free_bytes(space) / size > space->records.used / 16 + 16) {
    uint32_t id = vmm__space_locate(space, address);

    return id != 0 && holds_free(vmm__space_record(space, id), address, end) ? id : 0;
  }
  bin = vmm__bin_of(size);
  for (bool above = false; vmm__bin_from(space, &bin, above); above = true) {
    for (uint32_t id = space->heads[bin.word][bin.bit]; id != 0; id = vmm__space_record(space, id)->bin_next) {
      if (holds_free(vmm__space_record(space, id), address, end)) return id;
    }
  }
  return 0;
}

bool vmm__space_arena_of(vmm__space *space, vmm__u64 address, vmm__u64 size, unsigned *arena) {
  vmm__space_settle(space);
  if (vmm__space_free_holding(space, address, size) == 0) return false;
  if (arena != NULL) *arena = VMM__ARENA_IDLE;
  return true;
}

bool vmm__space_next_free(vmm__space *space, vmm__space_walk *walk, vmm__u64 size, vmm__u64 *address,
                          vmm__u64 *length) {
  if (!walk->started) vmm__space_settle(space);
  for (;;) {
    const vmm__record *record;

    if (walk->next == 0) {
      vmm__bin bin = walk->started ? (vmm__bin){walk->word, walk->bit} : vmm__bin_of(size);

      if (!vmm__bin_from(space, &bin, walk->started)) return false;
      *walk = (vmm__space_walk){true, bin.word, bin.bit, space->heads[bin.word][bin.bit]};
    }
    record = vmm__space_record(space, walk->next);
    walk->next = record->bin_next;
    if (vmm__record_size(record) < size) continue; /* in the lowest bin some are shorter */
    *address = record->address;
    *length = vmm__record_size(record);
    return true;
  }
}

vmm__u64 vmm__space_largest(vmm__space *space) {
  vmm__u64 largest = 0;
  unsigned word, bit;

  vmm__space_settle(space);
  if (space->words == 0) return 0;
  word = vmm__highest_bit(space->words);
  bit = vmm__highest_bit(space->bins[word]);
  for (uint32_t id = space->heads[word][bit]; id != 0; id = vmm__space_record(space, id)->bin_next) {
    largest = vmm__max(largest, vmm__record_size(vmm__space_record(space, id)));
  }
  return largest;
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
