/* Quick blocks: freed blocks that are kept whole, by bin, so that most frees and allocs touch the block's slot in the hash
 * and the head of its bin's list, and nothing else: no neighbour, no record, nothing is split, joined or hashed anew. The
 * lists run through the slots. All of it is inlined into the pool's alloc and free; what is not quick falls through to
 * vmm__space_alloc and vmm__space_free, which any caller may also call at once.
 *
 * Every arena has its own. Bounds, all found by measuring. VMM__QUICK_PER_BIN blocks in a bin. Half of the free
 * bytes, and less where little is free: 3/2 of the free part of the free bytes; the rest stays in ranges that can
 * join, else a full pool would grow sooner. Above 256 KiB no block of more than a 64th of that, and none above 2 MiB,
 * since what is kept whole lies in the way of what is larger (replayed mixed sizes took 23 % more than was live
 * instead of 16 %, in 22 growths instead of 17); but one may be kept nearly alone however large it is. Only low
 * addresses, 9/8 of the live bytes and 128 MiB, so that the upper mappings of a shrinking pool drain. They are
 * reckoned anew when a block is freed that is not kept. At the bound in bytes the largest quick block makes room for
 * a smaller one: small ones are asked for more often, and cost less to keep. */
#ifndef VMM_INDEX_QUICK_H
#define VMM_INDEX_QUICK_H

#include "index/space.h"

/* The bin a size in units is in, and whether the size is the smallest of it. Not above VMM__QUICK_LARGEST_UNITS. */
static inline unsigned vmm__quick_bin_below(vmm__u64 units, bool *whole) {
  unsigned word = vmm__highest_bit(units | (VMM__BINS_PER_WORD - 1)) - (VMM__BIN_BITS - 1);
  unsigned shift = word - (word != 0);

  *whole = (units & ((1ull << shift) - 1)) == 0;
  return (word << VMM__BIN_BITS) + ((unsigned)(units >> shift) & (VMM__BINS_PER_WORD - 1));
}

/* The lowest bin whose smallest size is not below `units`. Not above VMM__QUICK_LARGEST_UNITS. */
static inline unsigned vmm__quick_bin_above(vmm__u64 units) {
  unsigned word = vmm__highest_bit(units | (VMM__BINS_PER_WORD - 1)) - (VMM__BIN_BITS - 1);
  unsigned shift = word - (word != 0);

  /* In words above 0 it is bin 64 of the word before plus steps; rounding up may end in the next word's first. */
  return (shift << VMM__BIN_BITS) + (unsigned)((units + ((1ull << shift) - 1)) >> shift);
}

/* The bins, from one on, of which a block may serve, and which have one: a bit each. */
static inline vmm__u64 vmm__quick_serving(const vmm__arena *arena, unsigned bin) {
  const vmm__u64 *bits = &arena->quick_bits[bin / VMM__BINS_PER_WORD];
  unsigned bit = bin % VMM__BINS_PER_WORD;

  return (bits[0] >> bit | bits[1] << 1 << (VMM__BINS_PER_WORD - 1 - bit)) & arena->kept[bin].near;
}

/* Takes the block that is given next off its arena's list: the place of its slot. The bin has one. No branch: nobody can tell
 * whether it is the last. */
static inline uint32_t vmm__quick_unlist(const vmm__slots *slots, vmm__arena *arena, unsigned bin) {
  vmm__quick_bin *list = &arena->kept[bin];
  uint32_t place = list->first, count = list->count - 1;

  list->first = vmm__slot_next(*vmm__slots_info(slots, place));
  list->count = count;
  arena->quick_bits[bin / VMM__BINS_PER_WORD] &= ~((vmm__u64)(count == 0) << bin % VMM__BINS_PER_WORD);
  return place;
}

/* A quick block of an arena that serves, made live; 0 if there is none. Size (in units, not above
 * VMM__QUICK_LARGEST_UNITS) and bytes asked for, less than a unit below, as in vmm__space_alloc. */
__attribute__((always_inline)) static inline vmm__u64 vmm__quick_alloc(vmm__space *space, unsigned arena_id,
                                                                       vmm__u64 units, vmm__u64 requested) {
  vmm__arena *arena = space->arenas[arena_id];
  vmm__slots *slots = &space->slots;
  unsigned bin = vmm__quick_bin_above(units);
  vmm__u64 serving = vmm__quick_serving(arena, bin);
  uint32_t place, size;

  if (__builtin_expect(serving == 0, 0)) return 0;
  bin += vmm__lowest_bit(serving);
  place = vmm__quick_unlist(slots, arena, bin);
  size = arena->kept[bin].size;
  *vmm__slots_info(slots, place) = vmm__slot_plain(bin, (uint32_t)(size - requested));
  space->block_bytes += size;
  space->requested_bytes += requested;
  space->block_count++;
  return vmm__slots_address(slots, place);
}

/* Whether a block may be kept, by its bin and key. */
static inline bool vmm__quick_may_keep(const vmm__arena *arena, vmm__u64 key, unsigned bin) {
  return key < arena->quick_low && bin <= arena->quick_most && arena->kept[bin].count < VMM__QUICK_PER_BIN;
}
/* ... and by its bytes. */
static inline bool vmm__quick_has_room(const vmm__space *space, const vmm__arena *arena, unsigned bin) {
  return space->block_bytes - arena->kept[bin].size >= space->quick_floor;
}

/* Lists a slot as a quick block's. There is room in the bin. */
static inline void vmm__quick_list(const vmm__slots *slots, vmm__arena *arena, uint32_t place, unsigned bin) {
  vmm__quick_bin *list = &arena->kept[bin];

  *vmm__slots_info(slots, place) = VMM__SLOT_QUICK | list->first;
  list->first = place;
  list->count++;
  arena->quick_bits[bin / VMM__BINS_PER_WORD] |= 1ull << bin % VMM__BINS_PER_WORD;
}

/* Frees a plain block, and keeps it. It may be kept. */
__attribute__((always_inline)) static inline void vmm__quick_keep(vmm__space *space, vmm__arena *arena, uint32_t place,
                                                                  uint32_t info) {
  unsigned bin = vmm__slot_bin(info);
  uint32_t size = arena->kept[bin].size;

  space->block_bytes -= size;
  space->requested_bytes -= size - vmm__slot_waste(info);
  space->block_count--;
  vmm__quick_list(&space->slots, arena, place, bin);
}

/* Frees the live block that is sought (of whatever address) into an arena if it may be kept. False: nothing changed, and
 * vmm__space_free says whether there is one. */
__attribute__((always_inline)) static inline bool vmm__quick_free_sought(vmm__space *space, vmm__slots_sought sought,
                                                                         unsigned arena_id) {
  vmm__arena *arena = space->arenas[arena_id];
  vmm__u64 key = sought.key;
  uint32_t place = vmm__slots_look(&space->slots, vmm__slots_line(&space->slots, sought), (uint32_t)key), info;

  if (__builtin_expect(!vmm__slots_confirm(&space->slots, place, (uint32_t)key), 0)) {
    place = vmm__slots_look_on(&space->slots, sought);
    if (place == VMM__SLOT_NONE) return false;
  }
  info = *vmm__slots_info(&space->slots, place);
  /* What is no block's address, or far, may share a block's key, but then what is cut off makes it no low one. */
  if (__builtin_expect(!vmm__quick_may_keep(arena, key, vmm__slot_bin(info)) ||
                           !vmm__quick_has_room(space, arena, vmm__slot_bin(info)),
                       0))
    return false;
  vmm__quick_keep(space, arena, place, info);
  return true;
}

/* The same by the address (any number) that the block starts at. */
static inline bool vmm__quick_free(vmm__space *space, vmm__u64 address, unsigned arena_id) {
  return vmm__quick_free_sought(space, vmm__slots_seek(&space->slots, address), arena_id);
}

#endif
