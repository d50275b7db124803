/* Quick blocks: their bounds, and how they become free ranges again. */
#include "index/quick.h"

#include "index/space_inner.h"

/* A pool of that size more or less is one mapping, of which nothing could be given back. */
static const vmm__u64 SLACK = 128ull << 20;

/* The largest size that is kept lies between these; so many blocks of it fit into what may be kept. */
static const vmm__u64 LARGE = 256ull << 10, LARGEST = 2ull << 20;
enum { LEAST_FIT = 64 };

/* Of an empty bin, blocks of the next serve in its place; of small ones not, which would waste too much. And so do those of
 * others that are near: in which a block holds at most 1/10 more than is asked for, and not more than 4 MiB. (There are so
 * many bins that one of ten is empty at any time, measured, however many blocks are kept. To cut a range instead takes
 * longer, and leaves a block too many, which must be joined again.) */
static uint32_t bins_near(unsigned bin) {
  unsigned next = bin + (bin >= VMM__BINS_PER_WORD / 2);
  unsigned last = (unsigned)vmm__min(next + vmm__min(next / 16, 4), VMM__QUICK_NEAR_LAST);

  return (2u << (vmm__max(last, next) - bin)) - 1;
}

void vmm__quick_init(vmm__arena *arena) {
  uint32_t size = 0, step = 1u << VMM__UNIT_SHIFT;

  for (unsigned bin = 0; bin < VMM__QUICK_BINS; bin++, size += step) {
    arena->kept[bin] = (vmm__quick_bin){0, 0, size, bins_near(bin)};
    if (bin >= 2 * VMM__BINS_PER_WORD && bin % VMM__BINS_PER_WORD == 0) step *= 2;
  }
}

void vmm__quick_reckon(vmm__space *space, vmm__arena *arena) {
  const unsigned coarse = 16; /* so that the product fits: 2^16 bytes are one */
  vmm__u64 free_bytes = vmm__space_free_bytes(space), some = free_bytes >> coarse;
  vmm__u64 part = vmm__saturating_multiply(some, some) / ((space->total_bytes >> coarse) + 1) * 3 / 2;
  vmm__u64 most, low;
  bool whole;

  space->quick_limit = vmm__min(free_bytes / 2, part << coarse);
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  most = vmm__max(vmm__min(space->quick_limit / LEAST_FIT, LARGEST), LARGE);
  arena->quick_most = vmm__quick_bin_below(most >> VMM__UNIT_SHIFT, &whole);
  low = (space->block_bytes + space->block_bytes / 8 + vmm__min(free_bytes / 2, SLACK)) >> VMM__UNIT_SHIFT;
  arena->quick_low = space->ids[arena->id].sticky ? 0 : vmm__min(low, UINT32_MAX) + 1; /* the lowest key is 1 */
}

/* Makes a free range, in an arena, of a quick block that is in no list any more. */
static void settle(vmm__space *space, vmm__arena *arena, uint32_t place, vmm__u64 size) {
  uint32_t id = vmm__slots_id(&space->slots, place);

  space->whole_bytes -= size;
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  vmm__slots_remove(&space->slots, place);
  vmm__space_release(space, arena, id, vmm__space_record(space, id), size);
}

static void settle_last(vmm__space *space, vmm__arena *arena, unsigned bin) {
  settle(space, arena, vmm__quick_unlist(&space->slots, arena, bin), arena->kept[bin].size);
}

/* The highest bin that has a block; false if none has. */
static bool find_top(const vmm__arena *arena, unsigned *bin) {
  for (unsigned word = VMM__QUICK_WORDS; word-- > 0;) {
    if (arena->quick_bits[word] == 0) continue;
    *bin = word * VMM__BINS_PER_WORD + vmm__highest_bit(arena->quick_bits[word]);
    return true;
  }
  return false;
}

bool vmm__quick_bin_from(const vmm__arena *arena, unsigned *bin) {
  unsigned word = *bin / VMM__BINS_PER_WORD;
  vmm__u64 bits = arena->quick_bits[word] & UINT64_MAX << *bin % VMM__BINS_PER_WORD; /* the last word has none */

  while (bits == 0) {
    if (++word >= VMM__QUICK_WORDS) return false;
    bits = arena->quick_bits[word];
  }
  *bin = word * VMM__BINS_PER_WORD + vmm__lowest_bit(bits);
  return true;
}

bool vmm__quick_settle_largest(vmm__space *space, vmm__arena *arena) {
  unsigned bin, word;

  if (!find_top(arena, &bin)) return false;
  word = bin / VMM__BINS_PER_WORD;
  do {
    while (arena->kept[bin].count != 0) settle_last(space, arena, bin);
  } while (find_top(arena, &bin) && bin / VMM__BINS_PER_WORD == word);
  return true;
}

void vmm__quick_settle(vmm__space *space, vmm__arena *arena) {
  while (vmm__quick_settle_largest(space, arena)) {
  }
}

void vmm__space_settle(vmm__space *space) {
  for (unsigned label = 0; label < space->arena_count && vmm__space_quick_count(space) != 0; label++)
    vmm__quick_settle(space, space->labels[label]);
}

bool vmm__space_settle_some(vmm__space *space) {
  if (vmm__space_quick_count(space) == 0) return false;
  for (unsigned label = 0; label < space->arena_count; label++)
    if (vmm__quick_settle_largest(space, space->labels[label])) return true;
  return false;
}

bool vmm__quick_settle_one(vmm__space *space, vmm__arena *arena, vmm__u64 size) {
  vmm__u64 units = size >> VMM__UNIT_SHIFT;
  unsigned bin;

  if (units > VMM__QUICK_LARGEST_UNITS) return false;
  bin = vmm__quick_bin_above(units);
  if (!vmm__quick_bin_from(arena, &bin)) return false;
  settle_last(space, arena, bin);
  return true;
}

/* A large block that would be nearly all that is kept, in a pool that is half free at least, is kept whatever its share of
 * that: taken and given back again and again it costs what a small one does. The limit stays raised until it is reckoned
 * anew. */
static bool is_alone(const vmm__space *space, vmm__u64 size) {
  return size >= LARGE && vmm__space_quick_bytes(space) <= size / 16 &&
         space->block_bytes - size <= space->total_bytes / 2;
}

static void keep_alone(vmm__space *space, vmm__arena *arena, uint32_t place, uint32_t info) {
  unsigned bin = vmm__slot_bin(info);

  space->quick_limit = vmm__max(space->quick_limit, vmm__space_quick_bytes(space) + arena->kept[bin].size);
  if (bin > arena->quick_most) arena->quick_most = bin;
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  vmm__quick_keep(space, arena, place, info);
}

bool vmm__quick_keep_anyway(vmm__space *space, vmm__arena *arena, uint32_t place) {
  uint32_t key = space->slots.table.words[place], info = *vmm__slots_info(&space->slots, place);
  unsigned bin = vmm__slot_bin(info), top;

  vmm__quick_reckon(space, arena);
  if (is_alone(space, arena->kept[bin].size) && key < arena->quick_low) {
    keep_alone(space, arena, place, info);
    return true;
  }
  if (!vmm__quick_may_keep(arena, key, bin)) return false;
  if (vmm__quick_has_room(space, arena, bin) || !find_top(arena, &top) || top <= bin) return false;
  settle_last(space, arena, top);
  if (!vmm__quick_has_room(space, arena, bin)) return false;
  vmm__quick_keep(space, arena, place, info);
  return true;
}

void vmm__quick_move(vmm__space *space, vmm__arena *from, vmm__arena *into) {
  bool sticky = space->ids[into->id].sticky;
  unsigned bin;

  while (find_top(from, &bin)) {
    uint32_t place = vmm__quick_unlist(&space->slots, from, bin);

    if (!sticky && into->kept[bin].count < VMM__QUICK_PER_BIN) vmm__quick_list(&space->slots, into, place, bin);
    else settle(space, into, place, from->kept[bin].size);
  }
}

/* A list is as long as it was, and in the same order. */
void vmm__quick_bring(vmm__space *space, vmm__arena *arena, const vmm__slot_table *old) {
  for (unsigned bin = 0; vmm__quick_bin_from(arena, &bin); bin++) {
    uint32_t *link = &arena->kept[bin].first, place = *link;

    for (uint32_t i = 0; i < arena->kept[bin].count; i++) {
      uint32_t next = vmm__slot_next(old->words[place + VMM__SLOTS_PER_LINE]);
      uint32_t new = vmm__slots_bring(&space->slots, old, place);

      *link = (*link & VMM__SLOT_QUICK) | new;
      link = vmm__slots_info(&space->slots, new);
      place = next;
    }
  }
}
