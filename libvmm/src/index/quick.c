/* Quick blocks: their bounds, and how they become free ranges again. */
#include "index/quick.h"

#include "index/space_inner.h"

/* A pool of that size more or less is one mapping, of which nothing could be given back. */
static const vmm__u64 SLACK = 128ull << 20;

/* The largest size that is kept lies between these; so many blocks of it fit into what may be kept. */
static const vmm__u64 LARGE = 256ull << 10, LARGEST = 2ull << 20;
enum { LEAST_FIT = 64 };

void vmm__quick_init(vmm__arena *arena) {
  uint32_t size = 0, step = 1u << VMM__UNIT_SHIFT;

  for (unsigned bin = 0; bin < VMM__QUICK_BINS; bin++, size += step) {
    arena->kept[bin] = (vmm__quick_bin){0, size};
    if (bin >= 2 * VMM__BINS_PER_WORD && bin % VMM__BINS_PER_WORD == 0) step *= 2;
  }
}

void vmm__quick_reckon(vmm__space *space, vmm__arena *arena) {
  const unsigned coarse = 16; /* so that the product fits: 2^16 bytes are one */
  vmm__u64 free_bytes = vmm__space_free_bytes(space), some = free_bytes >> coarse;
  vmm__u64 part = vmm__saturating_multiply(some, some) / ((space->total_bytes >> coarse) + 1) * 3 / 2;
  vmm__u64 most;
  bool whole;

  space->quick_limit = vmm__min(free_bytes / 2, part << coarse);
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  most = vmm__max(vmm__min(space->quick_limit / LEAST_FIT, LARGEST), LARGE);
  arena->quick_most = vmm__quick_bin_below(most >> VMM__UNIT_SHIFT, &whole);
  arena->quick_low = space->base + space->block_bytes + space->block_bytes / 8 + vmm__min(free_bytes / 2, SLACK);
  if (space->ids[arena->id].sticky) arena->quick_low = 0;
}

/* Takes the block that would be given next off its arena's list. The bin has one. */
static vmm__slot *unlist_last(const vmm__space *space, vmm__arena *arena, unsigned bin) {
  return &space->slots.lines[arena->quick[--arena->kept[bin].count][bin]];
}

/* Makes a free range, in an arena, of a quick block that is in no list any more. */
static void settle(vmm__space *space, vmm__arena *arena, vmm__slot *slot, vmm__u64 size) {
  uint32_t id = slot->id;

  space->whole_bytes -= size;
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  vmm__slots_remove(&space->slots, slot);
  vmm__space_release(space, arena, id, vmm__space_record(space, id), size);
}

static void settle_last(vmm__space *space, vmm__arena *arena, unsigned bin) {
  settle(space, arena, unlist_last(space, arena, bin), arena->kept[bin].size);
}

/* The highest bin that has a block; false if none has. */
static bool find_top(vmm__arena *arena, unsigned *bin) {
  while (arena->kept[arena->top].count == 0) {
    if (arena->top == 0) return false;
    arena->top--;
  }
  *bin = arena->top;
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

  if (units > VMM__QUICK_LARGEST_UNITS) return false;
  for (unsigned bin = vmm__quick_bin_above(units); bin <= arena->top; bin++) {
    if (arena->kept[bin].count == 0) continue;
    settle_last(space, arena, bin);
    return true;
  }
  return false;
}

/* A large block that would be nearly all that is kept, in a pool that is half free at least, is kept whatever its share of
 * that: taken and given back again and again it costs what a small one does. The limit stays raised until it is reckoned
 * anew. */
static bool is_alone(const vmm__space *space, vmm__u64 size) {
  return size >= LARGE && vmm__space_quick_bytes(space) <= size / 16 &&
         space->block_bytes - size <= space->total_bytes / 2;
}

static void keep_alone(vmm__space *space, vmm__arena *arena, vmm__slot *slot, unsigned bin) {
  space->quick_limit = vmm__max(space->quick_limit, vmm__space_quick_bytes(space) + arena->kept[bin].size);
  if (bin > arena->quick_most) arena->quick_most = bin;
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  vmm__quick_keep(space, arena, slot, bin);
}

bool vmm__quick_keep_anyway(vmm__space *space, vmm__arena *arena, vmm__slot **slot) {
  vmm__u64 address = vmm__slot_address(*slot);
  unsigned bin = vmm__slot_bin(*slot), top;

  vmm__quick_reckon(space, arena);
  if (is_alone(space, arena->kept[bin].size) && address < arena->quick_low) {
    keep_alone(space, arena, *slot, bin);
    return true;
  }
  if (!vmm__quick_may_keep(arena, address, bin)) return false;
  if (vmm__quick_has_room(space, arena, bin) || !find_top(arena, &top) || top <= bin) return false;
  settle_last(space, arena, top);
  *slot = vmm__slots_find(&space->slots, address);
  if (!vmm__quick_has_room(space, arena, bin)) return false;
  vmm__quick_keep(space, arena, *slot, bin);
  return true;
}

void vmm__quick_move(vmm__space *space, vmm__arena *from, vmm__arena *into) {
  bool sticky = space->ids[into->id].sticky;
  unsigned bin;

  while (find_top(from, &bin)) {
    vmm__slot *slot = unlist_last(space, from, bin);

    if (!sticky && into->kept[bin].count < VMM__QUICK_PER_BIN) vmm__quick_list(&space->slots, into, slot, bin);
    else settle(space, into, slot, from->kept[bin].size);
  }
}
