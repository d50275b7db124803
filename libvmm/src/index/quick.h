/* Quick blocks: freed blocks that are kept whole, by bin, so that most frees and allocs touch the block's slot in the hash
 * and nothing else: no neighbour, no record, nothing is split, joined or hashed anew. All of it is inlined into the
 * pool's alloc and free; what is not quick falls through to vmm__space_alloc and vmm__space_free, which any caller may
 * also call at once.
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

/* The next bin above an empty one that has a block, if it is near: one of those in which a block holds at most 1/10 more than
 * is asked for, and not more than 4 MiB. Else the last of them, or the one given. (There are so many bins that one of ten
 * is empty at any time, measured, however many blocks are kept. To cut a range instead takes longer, and leaves a block
 * too many, which must be joined again.) */
static inline unsigned vmm__quick_bin_near(const vmm__arena *arena, unsigned bin) {
  unsigned last = bin + (bin / 16 < 4 ? bin / 16 : 4);

  if (last > VMM__QUICK_NEAR_LAST) last = VMM__QUICK_NEAR_LAST;
  while (bin < last && arena->kept[bin].count == 0) bin++;
  return bin;
}

/* A quick block of an arena that serves, made live; 0 if there is none. Size (in units, not above
 * VMM__QUICK_LARGEST_UNITS) and bytes asked for as in vmm__space_alloc; not more is asked for than the size. */
__attribute__((always_inline)) static inline vmm__u64 vmm__quick_alloc(vmm__space *space, unsigned arena_id,
                                                                       vmm__u64 units, vmm__u64 requested) {
  vmm__arena *arena = space->arenas[arena_id];
  vmm__slot *lines = space->slots.lines;
  unsigned bin = vmm__quick_bin_above(units);
  uint32_t count, size;
  vmm__u64 key;
  vmm__slot *slot;

  /* One bin up costs a small block too much. */
  bin += (unsigned)(arena->kept[bin].count == 0) & (unsigned)(bin >= VMM__BINS_PER_WORD / 2);
  count = arena->kept[bin].count;
  if (__builtin_expect(count == 0, 0)) {
    bin = vmm__quick_bin_near(arena, bin);
    count = arena->kept[bin].count;
    if (count == 0) return 0;
  }
  arena->kept[bin].count = --count;
  slot = &lines[arena->quick[count][bin]];
  size = arena->kept[bin].size;
  key = slot->key + (VMM__SLOT_LIVE - VMM__SLOT_QUICK);
  slot->key = key;
  slot->bin_waste = vmm__slot_bin_waste(bin, size - requested);
  space->block_bytes += size;
  space->requested_bytes += requested;
  space->block_count++;
  return key - VMM__SLOT_LIVE;
}

/* Whether a block may be kept, by its bin and place. */
static inline bool vmm__quick_may_keep(const vmm__arena *arena, vmm__u64 address, unsigned bin) {
  return address < arena->quick_low && bin <= arena->quick_most && arena->kept[bin].count < VMM__QUICK_PER_BIN;
}
/* ... and by its bytes. */
static inline bool vmm__quick_has_room(const vmm__space *space, const vmm__arena *arena, unsigned bin) {
  return space->block_bytes - arena->kept[bin].size >= space->quick_floor;
}

/* Lists a slot as a quick block's. There is room in the bin. */
static inline void vmm__quick_list(const vmm__slots *slots, vmm__arena *arena, vmm__slot *slot, unsigned bin) {
  uint32_t count = arena->kept[bin].count;

  arena->quick[count][bin] = (uint32_t)(slot - slots->lines);
  arena->kept[bin].count = count + 1;
  if (bin > arena->top) arena->top = bin;
  slot->bin_waste = vmm__slot_bin_waste(bin, arena->slot_mark | count);
}

/* Frees a live block, neither odd nor tagged, and keeps it. It may be kept. */
__attribute__((always_inline)) static inline void vmm__quick_keep(vmm__space *space, vmm__arena *arena, vmm__slot *slot,
                                                                  unsigned bin) {
  uint32_t size = arena->kept[bin].size;

  space->block_bytes -= size;
  space->requested_bytes -= size - vmm__slot_waste(slot);
  space->block_count--;
  slot->key -= VMM__SLOT_LIVE - VMM__SLOT_QUICK;
  vmm__quick_list(&space->slots, arena, slot, bin);
}

/* Frees the live block that starts at `address` (any number) into an arena if it may be kept. False: nothing changed, and
 * vmm__space_free says whether there is one. */
__attribute__((always_inline)) static inline bool vmm__quick_free(vmm__space *space, vmm__u64 address,
                                                                  unsigned arena_id) {
  vmm__arena *arena = space->arenas[arena_id];
  vmm__slot *slot = vmm__slots_find(&space->slots, address);
  unsigned bin;

  if (__builtin_expect(slot == NULL, 0)) return false;
  bin = vmm__slot_bin(slot);
  /* Of all that is no address the first look alone can pass what would make the key 0; but that is not low. */
  if (__builtin_expect(!vmm__quick_may_keep(arena, address, bin) || !vmm__quick_has_room(space, arena, bin), 0))
    return false;
  vmm__quick_keep(space, arena, slot, bin);
  return true;
}

#endif
