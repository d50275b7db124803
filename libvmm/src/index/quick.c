/* Quick blocks: their bounds, and how they become free ranges again. */
#include "index/quick.h"

#include "index/space_inner.h"

/* A pool of that size more or less is one mapping, of which nothing could be given back. */
static const vmm__u64 SLACK = 128ull << 20;

void vmm__quick_init(vmm__space *space) {
  uint32_t size = 0, step = 1u << VMM__UNIT_SHIFT;

  for (unsigned bin = 0; bin < VMM__QUICK_BINS; bin++, size += step) {
    space->slots.bins[bin] = (vmm__quick_bin){0, size};
    if (bin >= 2 * VMM__BINS_PER_WORD && bin % VMM__BINS_PER_WORD == 0) step *= 2;
  }
  space->slots.top = 0;
}

void vmm__quick_reckon(vmm__space *space) {
  const unsigned coarse = 16; /* products of what is left fit up to a total of 2^48 */
  vmm__u64 free_bytes = vmm__space_free_bytes(space);
  vmm__u64 part = (free_bytes >> coarse) * (free_bytes >> coarse) * 3 / 2 / ((space->total_bytes >> coarse) + 1);

  space->quick_limit = vmm__min(free_bytes / 2, part << coarse);
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  space->quick_low = space->block_bytes + space->block_bytes / 8 + vmm__min(free_bytes / 2, SLACK);
}

/* The block that would be given next becomes a free range. The bin has one. */
static void settle_last(vmm__space *space, unsigned bin) {
  vmm__slots *slots = &space->slots;
  vmm__slot *slot = &slots->lines[slots->quick[--slots->bins[bin].count][bin]];
  vmm__u64 size = slots->bins[bin].size;
  uint32_t id = slot->id;

  space->whole_bytes -= size;
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  vmm__slots_remove(slots, slot);
  vmm__space_release(space, id, vmm__space_record(space, id), size);
}

/* The highest bin that has a block; false if none has. */
static bool find_top(vmm__slots *slots, unsigned *bin) {
  while (slots->bins[slots->top].count == 0) {
    if (slots->top == 0) return false;
    slots->top--;
  }
  *bin = slots->top;
  return true;
}

bool vmm__quick_settle_largest(vmm__space *space) {
  unsigned bin, word;

  if (vmm__space_quick_count(space) == 0 || !find_top(&space->slots, &bin)) return false;
  word = bin / VMM__BINS_PER_WORD;
  do {
    while (space->slots.bins[bin].count != 0) settle_last(space, bin);
  } while (find_top(&space->slots, &bin) && bin / VMM__BINS_PER_WORD == word);
  return true;
}

void vmm__space_settle(vmm__space *space) {
  while (vmm__quick_settle_largest(space)) {
  }
}

bool vmm__quick_settle_one(vmm__space *space, vmm__u64 size) {
  vmm__u64 units = size >> VMM__UNIT_SHIFT;

  if (vmm__space_quick_count(space) == 0 || units > VMM__QUICK_LARGEST_UNITS) return false;
  for (unsigned bin = vmm__quick_bin_above(units); bin <= space->slots.top; bin++) {
    if (space->slots.bins[bin].count == 0) continue;
    settle_last(space, bin);
    return true;
  }
  return false;
}

bool vmm__quick_displace(vmm__space *space, vmm__slot **slot) {
  vmm__u64 address = vmm__slot_address(*slot);
  unsigned bin = vmm__slot_bin(*slot), top;

  vmm__quick_reckon(space);
  if (!vmm__quick_may_keep(space, address, bin) || vmm__space_quick_count(space) == 0) return false;
  if (vmm__quick_has_room(space, bin) || !find_top(&space->slots, &top) || top <= bin) return false;
  settle_last(space, top);
  *slot = vmm__slots_find(&space->slots, address);
  if (!vmm__quick_has_room(space, bin)) return false;
  vmm__quick_keep(space, *slot, bin);
  return true;
}
