/* The free space of a pool: alloc, free, add, take. All O(1), but for the searches that come before giving up.
 *
 * Placement: good fit. A block's size is rounded up to its bin's, so the first range of the first bin that is not empty
 * serves; it is at most 1/64 larger than needed before other bins come in. Blocks are cut from the low end, and bins keep
 * a low range first. Before saying no, quick blocks become free ranges, and the bin below, whose ranges may hold the
 * size as it was asked for, is searched whole: a request never fails while a range that holds it exists. */
#include "index/space_inner.h"

/* Ranges looked at for an aligned block before one that fits in any case is taken. */
#define ALIGNED_TRIES 64

static inline vmm__u64 align_up(vmm__u64 address, vmm__u64 alignment) {
  return (address + (alignment - 1)) & ~(alignment - 1);
}

/* Cuts [address, address + size) out of a free range of an arena, which must hold it, and returns the record for it: in the list,
 * in no bin, its flags not set. What lies before and behind stays free. */
static inline uint32_t carve(vmm__space *space, vmm__arena *arena, uint32_t id, vmm__u64 address, vmm__u64 size) {
  vmm__record *range = vmm__space_record(space, id);
  vmm__u64 range_size = vmm__record_size(range);
  uint32_t cut_id;
  vmm__record *cut;

  arena->range_bytes -= size;
  if (__builtin_expect(address != range->address, 0)) {
    vmm__u64 front = address - range->address;
    uint32_t rest_id = vmm__record_take(&space->records);
    vmm__record *rest = vmm__space_record(space, rest_id);

    vmm__bin_resize(space, arena, id, range, front);
    rest->address = address;
    rest->size_flags = (range_size - front) | arena->mark;
    rest->prev = id;
    rest->next = range->next;
    vmm__space_record(space, range->next)->prev = rest_id;
    range->next = rest_id;
    vmm__bin_insert(space, arena, vmm__bin_of(range_size - front), rest_id, rest);
    id = rest_id;
    range = rest;
    range_size -= front;
  }
  if (range_size == size) {
    vmm__bin_remove(space, arena, vmm__bin_of(size), range);
    return id;
  }
  /* The range keeps its record and often its bin; the new record stands before it. */
  cut_id = vmm__record_take(&space->records);
  cut = vmm__space_record(space, cut_id);
  cut->address = address;
  cut->prev = range->prev;
  cut->next = id;
  vmm__space_record(space, range->prev)->next = cut_id;
  range->prev = cut_id;
  range->address = address + size;
  vmm__bin_resize(space, arena, id, range, range_size - size);
  return cut_id;
}

/* Makes a block of part of a free range of an arena. */
static inline vmm__u64 take_block(vmm__space *space, vmm__arena *arena, uint32_t id, const vmm__block *block) {
  uint32_t block_id = carve(space, arena, id, block->address, block->size);
  vmm__record *record = vmm__space_record(space, block_id);
  vmm__u64 units = block->size >> VMM__UNIT_SHIFT, waste = block->size - block->requested;
  vmm__u64 key = vmm__slots_key(&space->slots, block->address);
  unsigned bin = 0;
  uint32_t info;
  bool whole = false;

  record->size_flags = block->size;
  if (units <= VMM__QUICK_LARGEST_UNITS) bin = vmm__quick_bin_below(units, &whole);
  if (__builtin_expect(space->ids[arena->id].sticky, 0)) {
    record->size_flags |= (vmm__u64)arena->id << VMM__RECORD_ARENA_SHIFT;
    space->ids[arena->id].stuck++;
    whole = false;
  }
  if (whole && waste <= VMM__SLOT_MOST_WASTE && block->tag == 0 && key <= UINT32_MAX) {
    info = vmm__slot_plain(bin, (uint32_t)waste);
  } else {
    info = VMM__SLOT_ODD | (block->tag != 0 ? VMM__SLOT_TAGGED : 0) | (key > UINT32_MAX ? VMM__SLOT_FAR : 0);
    record->requested = block->requested;
    if (block->tag != 0) *vmm__record_tag(&space->records, block_id) = block->tag;
  }
  vmm__slots_insert(&space->slots, block->address, info, block_id);
  space->whole_bytes += block->size;
  space->quick_floor = vmm__saturating_sub(space->whole_bytes, space->quick_limit);
  space->block_bytes += block->size;
  space->requested_bytes += block->requested;
  space->block_count++;
  return block->address;
}

/* What a block of `size` bytes holds. */
static inline vmm__u64 round_to_bin(const vmm__arena *arena, vmm__u64 size) {
  vmm__u64 units = size >> VMM__UNIT_SHIFT;

  return units > VMM__QUICK_LARGEST_UNITS ? size : arena->kept[vmm__quick_bin_above(units)].size;
}

/* The first of the ranges that surely have `size` bytes, 0 if there is none. */
static inline uint32_t find_above(const vmm__space *space, const vmm__arena *arena, vmm__u64 size) {
  vmm__bin bin = vmm__bin_of(size);
  uint32_t id;

  if (size <= (vmm__u64)VMM__QUICK_LARGEST_UNITS << VMM__UNIT_SHIFT) /* the smallest size of its bin */
    return vmm__bin_from(arena, &bin, false) ? arena->heads[bin.word][bin.bit] : 0;
  id = arena->heads[bin.word][bin.bit];
  if (id != 0 && vmm__record_size(vmm__space_record(space, id)) >= size) return id;
  return vmm__bin_from(arena, &bin, true) ? arena->heads[bin.word][bin.bit] : 0;
}

/* A range with `size` bytes among those of the size's own bin, 0 if there is none. */
static uint32_t find_in_own_bin(const vmm__space *space, const vmm__arena *arena, vmm__u64 size) {
  vmm__bin bin = vmm__bin_of(size);
  uint32_t id = arena->heads[bin.word][bin.bit];

  while (id != 0 && vmm__record_size(vmm__space_record(space, id)) < size) id = vmm__space_record(space, id)->bin_next;
  return id;
}

/* A free range for a block of *size bytes, or of a little less, which is then put there; 0 if there is none. */
static inline uint32_t find_range(vmm__space *space, vmm__arena *arena, vmm__u64 *size) {
  vmm__u64 rounded = round_to_bin(arena, *size);
  uint32_t id = find_above(space, arena, rounded);

  if (__builtin_expect(id == 0, 0) && vmm__quick_settle_one(space, arena, rounded))
    id = find_above(space, arena, rounded);
  while (__builtin_expect(id == 0, 0) && vmm__quick_settle_largest(space, arena))
    id = find_above(space, arena, rounded);
  if (__builtin_expect(id == 0, 0)) return find_in_own_bin(space, arena, *size);
  *size = rounded;
  return id;
}

/* Where in a free range a piece fits, 0 if it does not. With a table of mappings: within one of them. */
static vmm__u64 fit_in(const vmm__record *range, vmm__u64 size, vmm__u64 alignment, const vmm__mappings *mappings) {
  vmm__u64 end = vmm__record_end(range);
  vmm__u64 from = range->address;
  size_t i = mappings == NULL ? 0 : vmm__mappings_lower_bound(mappings, from);

  for (;; i++) {
    vmm__u64 start, to = end;

    if (mappings != NULL) {
      const vmm__mapping *mapping;

      if (i >= mappings->count) return 0;
      mapping = vmm__mappings_at(mappings, i);
      if (mapping->address >= end) return 0;
      from = vmm__max(mapping->address, range->address);
      to = vmm__min(mapping->address + mapping->size, end);
    }
    start = align_up(from, alignment);
    if (start >= from && start < to && to - start >= size) return start;
    if (mappings == NULL) return 0;
  }
}

/* Looks at free ranges by rising bin, at most `tries` of them, and says where in the first that will do. */
static uint32_t search(const vmm__space *space, const vmm__arena *arena, vmm__u64 size, vmm__u64 alignment,
                       const vmm__mappings *mappings, vmm__u64 tries, vmm__u64 *address) {
  vmm__bin bin = vmm__bin_of(size);

  for (bool above = false; vmm__bin_from(arena, &bin, above); above = true) {
    for (uint32_t id = arena->heads[bin.word][bin.bit]; id != 0;) {
      const vmm__record *range = vmm__space_record(space, id);

      if (tries-- == 0) return 0;
      *address = fit_in(range, size, alignment, mappings);
      if (*address != 0) return id;
      id = range->bin_next;
    }
  }
  return 0;
}

static uint32_t find_aligned(vmm__space *space, vmm__arena *arena, vmm__u64 size, vmm__u64 alignment,
                             vmm__u64 *address) {
  uint32_t id = search(space, arena, size, alignment, NULL, ALIGNED_TRIES, address);
  vmm__u64 surely;

  if (id != 0) return id;
  if (vmm__add(size, alignment - (1ull << VMM__UNIT_SHIFT), &surely)) {
    id = find_above(space, arena, round_to_bin(arena, surely));
    if (id != 0) {
      *address = align_up(vmm__space_record(space, id)->address, alignment);
      return id;
    }
  }
  vmm__quick_settle(space, arena);
  return search(space, arena, size, alignment, NULL, UINT64_MAX, address);
}

vmm__u64 vmm__space_alloc(vmm__space *space, unsigned arena_id, vmm__u64 size, vmm__u64 alignment, vmm__u64 requested,
                          vmm__u64 tag) {
  vmm__block block = {0, size, requested, tag, VMM__ARENA_IDLE};
  vmm__arena *arena = space->arenas[arena_id];
  uint32_t id;

  if (__builtin_expect(alignment >> VMM__UNIT_SHIFT <= 1, 1)) {
    id = find_range(space, arena, &block.size);
    if (id == 0) return 0;
    block.address = vmm__space_record(space, id)->address;
  } else {
    id = find_aligned(space, arena, size, alignment, &block.address);
    if (id == 0) return 0;
  }
  return take_block(space, arena, id, &block);
}

vmm__u64 vmm__space_alloc_within(vmm__space *space, unsigned arena_id, vmm__u64 size, vmm__u64 alignment,
                                 vmm__u64 requested, vmm__u64 tag, const vmm__mappings *mappings) {
  vmm__block block = {0, size, requested, tag, VMM__ARENA_IDLE};
  vmm__arena *arena = space->arenas[arena_id];
  uint32_t id = search(space, arena, size, alignment, mappings, UINT64_MAX, &block.address);

  if (id == 0) {
    vmm__quick_settle(space, arena);
    id = search(space, arena, size, alignment, mappings, UINT64_MAX, &block.address);
  }
  return id == 0 ? 0 : take_block(space, arena, id, &block);
}

void vmm__space_release(vmm__space *space, vmm__arena *arena, uint32_t id, vmm__record *record, vmm__u64 size) {
  uint32_t prev_id = record->prev, next_id = record->next;
  vmm__record *prev = vmm__space_record(space, prev_id);
  vmm__record *next = vmm__space_record(space, next_id);
  bool join_prev = vmm__arena_has(arena, prev) && vmm__record_end(prev) == record->address;
  bool join_next = vmm__arena_has(arena, next) && record->address + size == next->address;

  arena->range_bytes += size;
  if (!join_prev && !join_next) {
    record->size_flags = size | arena->mark;
    vmm__bin_insert(space, arena, vmm__bin_of(size), id, record);
    return;
  }
  if (!join_prev) {
    next->address = record->address;
    next->prev = prev_id;
    prev->next = next_id;
    vmm__bin_resize(space, arena, next_id, next, size + vmm__record_size(next));
  } else {
    if (join_next) {
      uint32_t absorbed;

      vmm__bin_remove(space, arena, vmm__bin_of(vmm__record_size(next)), next);
      size += vmm__record_size(next);
      absorbed = next_id;
      next_id = next->next;
      vmm__record_give(&space->records, absorbed);
      next = vmm__space_record(space, next_id);
    }
    prev->next = next_id;
    next->prev = prev_id;
    vmm__bin_resize(space, arena, prev_id, prev, vmm__record_size(prev) + size);
  }
  vmm__record_give(&space->records, id);
}

bool vmm__space_free(vmm__space *space, vmm__u64 address, unsigned arena_id, vmm__block *out) {
  uint32_t place = vmm__slots_at(&space->slots, address), info, id;
  vmm__arena *arena;
  vmm__block block;

  if (place == VMM__SLOT_NONE) return false;
  info = *vmm__slots_info(&space->slots, place);
  if (!vmm__slot_is_live(info)) return false;
  vmm__space_describe(space, place, &block);
  if (out != NULL) *out = block;
  if (block.arena != VMM__ARENA_IDLE) {
    if (space->ids[block.arena].sticky) arena_id = block.arena;
    vmm__arena_unstuck(space, block.arena);
  }
  arena = space->arenas[arena_id];
  if ((info & VMM__SLOT_PLAIN) != 0 && vmm__quick_keep_anyway(space, arena, place)) return true;
  id = vmm__slots_id(&space->slots, place);
  space->block_bytes -= block.size;
  space->requested_bytes -= block.requested;
  space->block_count--;
  space->whole_bytes -= block.size;
  vmm__slots_remove(&space->slots, place);
  vmm__space_release(space, arena, id, vmm__space_record(space, id), block.size);
  return true;
}

void vmm__space_add(vmm__space *space, unsigned arena_id, vmm__u64 address, vmm__u64 size) {
  uint32_t prev_id = vmm__space_locate(space, address);
  vmm__record *prev = vmm__space_record(space, prev_id);
  uint32_t id = vmm__record_take(&space->records);
  vmm__record *record = vmm__space_record(space, id);

  record->address = address;
  record->prev = prev_id;
  record->next = prev->next;
  vmm__space_record(space, prev->next)->prev = id;
  prev->next = id;
  space->total_bytes += size;
  vmm__space_release(space, space->arenas[arena_id], id, record, size);
}

/* Removes what a free range has of [address, end). Returns the record that follows. */
static uint32_t take_part(vmm__space *space, vmm__arena *arena, uint32_t id, vmm__u64 address, vmm__u64 end) {
  vmm__u64 size = vmm__min(vmm__record_end(vmm__space_record(space, id)), end) - address;
  vmm__record *record;
  uint32_t next;

  id = carve(space, arena, id, address, size);
  record = vmm__space_record(space, id);
  next = record->next;
  vmm__space_record(space, record->prev)->next = next;
  vmm__space_record(space, next)->prev = record->prev;
  vmm__record_give(&space->records, id);
  space->total_bytes -= size;
  return next;
}

bool vmm__space_take(vmm__space *space, vmm__u64 address, vmm__u64 size, unsigned *arena) {
  vmm__u64 end = address + size;
  unsigned from;
  uint32_t id;

  vmm__space_settle(space);
  id = vmm__space_free_holding(space, address, size);
  if (id == 0) return false;
  from = vmm__arena_of(space, vmm__space_record(space, id))->id;
  while (address < end) {
    vmm__arena *of = vmm__arena_of(space, vmm__space_record(space, id));
    vmm__u64 next = vmm__record_end(vmm__space_record(space, id));

    if (of->id != from) from = VMM__ARENA_MIXED;
    id = take_part(space, of, id, address, end);
    address = next;
  }
  if (arena != NULL) *arena = from;
  return true;
}
