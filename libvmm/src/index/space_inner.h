/* What the files of the space share: bins, hash and links, small enough to be inlined. Nobody else includes this.
 *
 * Record 0 is a sentinel: it closes the list of ranges into a ring (its next is the lowest range, its prev the highest)
 * and takes the writes meant for "no neighbour", which saves the branches. It has size 0, so it is never adjacent. */
#ifndef VMM_INDEX_SPACE_INNER_H
#define VMM_INDEX_SPACE_INNER_H

#include "index/quick.h"

typedef struct vmm__bin {
  unsigned word;
  unsigned bit;
} vmm__bin;

/* The bin a free range of this size hangs in: all sizes in it share their highest bits. */
static inline vmm__bin vmm__bin_of(vmm__u64 size) {
  vmm__u64 units = size >> VMM__UNIT_SHIFT;
  unsigned word = vmm__highest_bit(units | (VMM__BINS_PER_WORD - 1)) - (VMM__BIN_BITS - 1);
  unsigned shift = word - (word != 0);

  return (vmm__bin){word, (unsigned)(units >> shift) & (VMM__BINS_PER_WORD - 1)};
}

static inline vmm__record *vmm__space_record(const vmm__space *space, uint32_t id) {
  return vmm__record_at(&space->records, id);
}

/* The next bin that is not empty, at `bin` or above / above it. False if there is none. */
static inline bool vmm__bin_from(const vmm__arena *arena, vmm__bin *bin, bool above) {
  vmm__u64 bits = arena->bins[bin->word] & ((UINT64_MAX << bin->bit) << above);

  if (bits == 0) {
    vmm__u64 words = arena->words & ((UINT64_MAX << bin->word) << 1);

    if (words == 0) return false;
    bin->word = vmm__lowest_bit(words);
    bits = arena->bins[bin->word];
  }
  bin->bit = vmm__lowest_bit(bits);
  return true;
}

static inline vmm__u64 vmm__record_end(const vmm__record *record) { return record->address + vmm__record_size(record); }

/* Hangs a free range in the bin of its size: in front if it lies lower than the first, else second. So the first of each
 * bin, which is taken next, tends to be its lowest, and high mappings drain: more than twice as much of a shrinking pool
 * can be trimmed (measured), for one comparison with a record that is touched anyway. */
static inline void vmm__bin_insert(vmm__space *space, vmm__arena *arena, vmm__bin bin, uint32_t id,
                                   vmm__record *record) {
  uint32_t *head = &arena->heads[bin.word][bin.bit];
  uint32_t first = *head;
  vmm__record *other = vmm__space_record(space, first);
  bool front = first == 0 || record->address < other->address;
  uint32_t next = front ? first : other->bin_next;

  record->bin_prev = front ? 0 : first;
  record->bin_next = next;
  vmm__space_record(space, next)->bin_prev = id; /* of the sentinel if there is none: nobody reads it */
  *(front ? head : &other->bin_next) = id;
  arena->bins[bin.word] |= 1ull << bin.bit;
  arena->words |= 1ull << bin.word;
  arena->range_count++;
}

static inline void vmm__bin_remove(vmm__space *space, vmm__arena *arena, vmm__bin bin, const vmm__record *record) {
  uint32_t prev = record->bin_prev, next = record->bin_next;
  uint32_t *head = &arena->heads[bin.word][bin.bit];
  uint32_t *link = &vmm__space_record(space, prev)->bin_next;

  /* No branches: which case it is cannot be predicted. */
  link = prev != 0 ? link : head;
  vmm__space_record(space, next)->bin_prev = prev;
  *link = next;
  arena->bins[bin.word] &= ~((vmm__u64)(*head == 0) << bin.bit);
  arena->words &= ~((vmm__u64)(arena->bins[bin.word] == 0) << bin.word);
  arena->range_count--;
}

/* Gives a free range that hangs in a bin another size, and another bin if need be. */
__attribute__((always_inline)) static inline void vmm__bin_resize(vmm__space *space, vmm__arena *arena, uint32_t id,
                                                                  vmm__record *record, vmm__u64 size) {
  vmm__bin old = vmm__bin_of(vmm__record_size(record));
  vmm__bin new = vmm__bin_of(size);

  record->size_flags = size | arena->mark;
  if (old.word == new.word && old.bit == new.bit) return;
  vmm__bin_remove(space, arena, old, record);
  vmm__bin_insert(space, arena, new, id, record);
}

/* The arena of a free range. */
static inline vmm__arena *vmm__arena_of(const vmm__space *space, const vmm__record *record) {
  return space->labels[vmm__record_arena(record)];
}

/* Whether a range is free and in this arena. */
static inline bool vmm__arena_has(const vmm__arena *arena, const vmm__record *record) {
  const vmm__u64 what = VMM__RECORD_FREE | ~((1ull << VMM__RECORD_ARENA_SHIFT) - 1);

  return (record->size_flags & what) == arena->mark;
}

/* Makes a record that is in the list, and in no bin, a free range of an arena, one with those of it that touch it.
 * space.c */
void vmm__space_release(vmm__space *space, vmm__arena *arena, uint32_t id, vmm__record *record, vmm__u64 size);
/* What the live block in a slot is. space_query.c */
void vmm__space_describe(const vmm__space *space, uint32_t place, vmm__block *out);

/* An arena that is all zero but for its list gets a label and an id of its own; `first` is label and id 0. arena.c */
void vmm__arena_enter(vmm__space *space, vmm__arena *arena);
/* One that a spare brought: its id can be opened. There must be room. arena.c */
void vmm__arena_adopt(vmm__space *space, vmm__arena *arena);
/* A block that tells an id lives no more. arena.c */
void vmm__arena_unstuck(vmm__space *space, unsigned id);

void vmm__quick_init(vmm__arena *arena);
/* The bounds of quick blocks, for the bytes there are now. quick.c */
void vmm__quick_reckon(vmm__space *space, vmm__arena *arena);
/* Makes free ranges of all quick blocks of an arena. quick.c */
void vmm__quick_settle(vmm__space *space, vmm__arena *arena);
/* Makes a free range of the smallest quick block that has `size` bytes. False if there is none. quick.c */
bool vmm__quick_settle_one(vmm__space *space, vmm__arena *arena, vmm__u64 size);
/* Makes free ranges of the largest quick blocks, down to half the size of the first. False if there is none. quick.c */
bool vmm__quick_settle_largest(vmm__space *space, vmm__arena *arena);
/* Frees a plain block, for which there is no room, by keeping it all the same: alone, or in place of a larger quick block of
 * its arena. False: it still lives. The bounds are reckoned in any case. quick.c */
bool vmm__quick_keep_anyway(vmm__space *space, vmm__arena *arena, uint32_t place);
/* Moves the quick blocks of one arena into another; those it has no room for become ranges there. quick.c */
void vmm__quick_move(vmm__space *space, vmm__arena *from, vmm__arena *into);
/* Brings the quick blocks of an arena from the table of slots that was into the one that is. quick.c */
void vmm__quick_bring(vmm__space *space, vmm__arena *arena, const vmm__slot_table *old);
/* The next bin from `bin` on that has a quick block. False if there is none. quick.c */
bool vmm__quick_bin_from(const vmm__arena *arena, unsigned *bin);

/* The record that begins a wholly free [address, address + size): it holds `address`, and the rest lies in those that
 * follow, of whatever arenas. 0 if it is not free. space_query.c */
uint32_t vmm__space_free_holding(const vmm__space *space, vmm__u64 address, vmm__u64 size);
/* The range with the highest start that is not above `address`, or 0. Any address. space_query.c */
uint32_t vmm__space_locate(const vmm__space *space, vmm__u64 address);

#endif
