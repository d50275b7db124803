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

uint32_t vmm__space_locate(const vmm__space *space, vmm__u64 address) {
  uint32_t id;
  vmm__u64 slot;

  if (!has_records(space)) return 0;
  id = vmm__space_record(space, 0)->prev;
  if (id == 0 || vmm__space_record(space, id)->address <= address) return id;
  id = vmm__space_record(space, 0)->next;
  if (vmm__space_record(space, id)->address > address) return 0;
  slot = vmm__slot_find(space, address);
  if (slot != space->slot_count) return (uint32_t)space->slots[slot];
  /* Any record in use is in the list, whatever it was when the cursor was set. */
  id = space->cursor;
  if (id != 0 && vmm__space_record(space, id)->size_flags != 0 && vmm__space_record(space, id)->address <= address) {
    for (int step = 0; step < CURSOR_STEPS; step++) {
      uint32_t next = vmm__space_record(space, id)->next;

      if (next == 0 || vmm__space_record(space, next)->address > address) return id;
      id = next;
    }
  }
  return locate_by_scan(space, address);
}

static uint32_t locate_and_remember(vmm__space *space, vmm__u64 address) {
  uint32_t id = vmm__space_locate(space, address);

  space->cursor = id;
  return id;
}

static void describe(const vmm__space *space, uint32_t id, vmm__block *out) {
  const vmm__record *record = vmm__space_record(space, id);
  bool tagged = (record->size_flags & VMM__RECORD_TAGGED) != 0;

  if (out == NULL) return;
  *out = (vmm__block){record->address, vmm__record_size(record), record->requested,
                      tagged ? *vmm__record_tag(&space->records, id) : 0};
}

bool vmm__space_find(vmm__space *space, vmm__u64 address, vmm__block *out) {
  uint32_t id = locate_and_remember(space, address);
  const vmm__record *record;

  if (id == 0) return false;
  record = vmm__space_record(space, id);
  if (vmm__record_is_free(record) || address - record->address >= vmm__record_size(record)) return false;
  describe(space, id, out);
  return true;
}

bool vmm__space_next_block(vmm__space *space, vmm__u64 address, vmm__block *out) {
  uint32_t id;

  if (!has_records(space)) return false;
  id = locate_and_remember(space, address);
  if (id == 0 || vmm__space_record(space, id)->address < address) id = vmm__space_record(space, id)->next;
  while (id != 0 && vmm__record_is_free(vmm__space_record(space, id))) id = vmm__space_record(space, id)->next;
  if (id == 0) return false;
  space->cursor = id;
  describe(space, id, out);
  return true;
}

vmm__u64 vmm__space_free_before(vmm__space *space, vmm__u64 address) {
  uint32_t id = address == 0 ? 0 : locate_and_remember(space, address - 1);
  const vmm__record *record;

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
  bin = vmm__bin_of(space, size);
  for (bool above = false; vmm__bin_from(space, &bin, above); above = true) {
    for (uint32_t id = space->heads[bin.word][bin.bit]; id != 0; id = vmm__space_record(space, id)->bin_next) {
      if (holds_free(vmm__space_record(space, id), address, end)) return id;
    }
  }
  return 0;
}

bool vmm__space_next_free(const vmm__space *space, vmm__space_walk *walk, vmm__u64 size, vmm__u64 *address,
                          vmm__u64 *length) {
  for (;;) {
    const vmm__record *record;

    if (walk->next == 0) {
      vmm__bin bin = walk->started ? (vmm__bin){walk->word, walk->bit} : vmm__bin_of(space, size);

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

vmm__u64 vmm__space_largest(const vmm__space *space) {
  vmm__u64 largest = 0;
  unsigned word, bit;

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
    if (vmm__record_is_free(record) || vmm__record_end(record) <= address) continue;
    bytes += vmm__min(vmm__record_end(record), end) - vmm__max(record->address, address);
  }
  return bytes;
}
