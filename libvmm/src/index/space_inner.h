/* What the files of the space share: bins, hash and links, small enough to be inlined. Nobody else includes this.
 *
 * Record 0 is a sentinel: it closes the list of ranges into a ring (its next is the lowest range, its prev the highest)
 * and takes the writes meant for "no neighbour", which saves the branches. It has size 0, so it is never adjacent. */
#ifndef VMM_INDEX_SPACE_INNER_H
#define VMM_INDEX_SPACE_INNER_H

#include "index/space.h"

typedef struct vmm__bin {
  unsigned word;
  unsigned bit;
} vmm__bin;

/* The bin a free range of this size hangs in: all sizes in it share their highest bits. */
static inline vmm__bin vmm__bin_of(const vmm__space *space, vmm__u64 size) {
  vmm__u64 units = size >> space->unit_shift;
  unsigned word = vmm__highest_bit(units | (VMM__BINS_PER_WORD - 1)) - (VMM__BIN_BITS - 1);
  unsigned shift = word - (word != 0);

  return (vmm__bin){word, (unsigned)(units >> shift) & (VMM__BINS_PER_WORD - 1)};
}

/* The next bin that is not empty, at `bin` or above / above it. False if there is none. */
static inline bool vmm__bin_from(const vmm__space *space, vmm__bin *bin, bool above) {
  vmm__u64 bits = space->bins[bin->word] & ((UINT64_MAX << bin->bit) << above);

  if (bits == 0) {
    vmm__u64 words = space->words & ((UINT64_MAX << bin->word) << 1);

    if (words == 0) return false;
    bin->word = vmm__lowest_bit(words);
    bits = space->bins[bin->word];
  }
  bin->bit = vmm__lowest_bit(bits);
  return true;
}

static inline vmm__record *vmm__space_record(const vmm__space *space, uint32_t id) {
  return vmm__record_at(&space->records, id);
}

static inline vmm__u64 vmm__record_end(const vmm__record *record) { return record->address + vmm__record_size(record); }

/* Hangs a free range in the bin of its size: in front if it lies lower than the first, else second. So the first of each
 * bin, which is taken next, tends to be its lowest, and high mappings drain: more than twice as much of a shrinking pool
 * can be trimmed (measured), for one comparison with a record that is touched anyway. */
static inline void vmm__bin_insert(vmm__space *space, vmm__bin bin, uint32_t id, vmm__record *record) {
  uint32_t *head = &space->heads[bin.word][bin.bit];
  uint32_t first = *head;
  vmm__record *other = vmm__space_record(space, first);
  bool front = first == 0 || record->address < other->address;
  uint32_t next = front ? first : other->bin_next;

  record->bin_prev = front ? 0 : first;
  record->bin_next = next;
  vmm__space_record(space, next)->bin_prev = id; /* of the sentinel if there is none: nobody reads it */
  *(front ? head : &other->bin_next) = id;
  space->bins[bin.word] |= 1ull << bin.bit;
  space->words |= 1ull << bin.word;
}

static inline void vmm__bin_remove(vmm__space *space, vmm__bin bin, const vmm__record *record) {
  uint32_t prev = record->bin_prev, next = record->bin_next;
  uint32_t *head = &space->heads[bin.word][bin.bit];
  uint32_t *link = &vmm__space_record(space, prev)->bin_next;

  /* No branches: which case it is cannot be predicted. */
  link = prev != 0 ? link : head;
  vmm__space_record(space, next)->bin_prev = prev;
  *link = next;
  space->bins[bin.word] &= ~((vmm__u64)(*head == 0) << bin.bit);
  space->words &= ~((vmm__u64)(space->bins[bin.word] == 0) << bin.word);
}

/* Gives a free range that hangs in a bin another size, and another bin if need be. */
__attribute__((always_inline)) static inline void vmm__bin_resize(vmm__space *space, uint32_t id, vmm__record *record,
                                                                  vmm__u64 size) {
  vmm__bin old = vmm__bin_of(space, vmm__record_size(record));
  vmm__bin new = vmm__bin_of(space, size);

  record->size_flags = size | VMM__RECORD_FREE;
  if (old.word == new.word && old.bit == new.bit) return;
  vmm__bin_remove(space, old, record);
  vmm__bin_insert(space, new, id, record);
}

static inline uint32_t vmm__slot_hash(const vmm__space *space, vmm__u64 address) {
  return (uint32_t)(((address >> space->unit_shift) * 0x9E3779B97F4A7C15ull) >> 32);
}

static inline void vmm__slot_insert(vmm__u64 *slots, vmm__u64 slot_count, unsigned shift, vmm__u64 slot) {
  vmm__u64 i = (slot >> 32) >> shift;

  while (slots[i] != 0) i = (i + 1) & (slot_count - 1);
  slots[i] = slot;
}

/* Where the block that starts at `address` stands in the hash; slot_count if none does. */
static inline vmm__u64 vmm__slot_find(const vmm__space *space, vmm__u64 address) {
  vmm__u64 hash = vmm__slot_hash(space, address);
  vmm__u64 i = hash >> space->slot_shift;

  if (space->slots == NULL) return space->slot_count;
  for (;;) {
    vmm__u64 slot = space->slots[i];

    if (slot == 0) return space->slot_count;
    if (slot >> 32 == hash && vmm__space_record(space, (uint32_t)slot)->address == address) return i;
    i = (i + 1) & (space->slot_count - 1);
  }
}

/* Empties a slot and moves those behind it up, so that no search ever stops short and none gets longer with time. */
static inline void vmm__slot_remove(vmm__space *space, vmm__u64 i) {
  vmm__u64 mask = space->slot_count - 1;
  vmm__u64 j = i;

  for (;;) {
    vmm__u64 slot;

    j = (j + 1) & mask;
    slot = space->slots[j];
    if (slot == 0) break;
    if (((j - ((slot >> 32) >> space->slot_shift)) & mask) >= ((j - i) & mask)) {
      space->slots[i] = slot;
      i = j;
    }
  }
  space->slots[i] = 0;
}

/* The free range that holds [address, address + size), or 0. space_query.c */
uint32_t vmm__space_free_holding(const vmm__space *space, vmm__u64 address, vmm__u64 size);
/* The range with the highest start that is not above `address`, or 0. Any address. space_query.c */
uint32_t vmm__space_locate(const vmm__space *space, vmm__u64 address);

#endif
