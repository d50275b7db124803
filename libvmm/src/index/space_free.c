/* The free space of a pool: questions about what is free, across arenas; none of them on the hot path.
 *
 * A *run* is a contiguous stretch of free ranges, of whatever arenas, as long as it can be. */
#include "index/space_inner.h"

/* The ranges before and behind a range if they are free and touch it; else 0. */
static uint32_t touching_before(const vmm__space *space, const vmm__record *record) {
  const vmm__record *other = vmm__space_record(space, record->prev);

  return vmm__record_is_free(other) && vmm__record_end(other) == record->address ? record->prev : 0;
}
static uint32_t touching_behind(const vmm__space *space, const vmm__record *record) {
  const vmm__record *other = vmm__space_record(space, record->next);

  return vmm__record_is_free(other) && vmm__record_end(record) == other->address ? record->next : 0;
}

/* Where what is free from a range on ends; no further than is asked for. */
static vmm__u64 free_end(const vmm__space *space, uint32_t id, vmm__u64 enough) {
  vmm__u64 end = 0;

  for (; id != 0 && end < enough; id = touching_behind(space, vmm__space_record(space, id)))
    end = vmm__record_end(vmm__space_record(space, id));
  return end;
}

static bool holds_free(const vmm__record *record, vmm__u64 address, vmm__u64 end) {
  return vmm__record_is_free(record) && record->address <= address && end <= vmm__record_end(record);
}

/* The range of an arena that holds all of [address, address + size), or 0. */
static uint32_t holding_in_arena(const vmm__space *space, const vmm__arena *arena, vmm__u64 address, vmm__u64 size) {
  vmm__bin bin = vmm__bin_of(size);

  for (bool above = false; vmm__bin_from(arena, &bin, above); above = true) {
    for (uint32_t id = arena->heads[bin.word][bin.bit]; id != 0; id = vmm__space_record(space, id)->bin_next) {
      if (holds_free(vmm__space_record(space, id), address, address + size)) return id;
    }
  }
  return 0;
}

uint32_t vmm__space_free_holding(const vmm__space *space, vmm__u64 address, vmm__u64 size) {
  unsigned in_use = 0;
  vmm__u64 end;
  uint32_t id;

  if (size == 0 || size > vmm__space_free_bytes(space) || !vmm__add(address, size, &end)) return 0;
  /* At most free / size ranges are that long. If they are many, reading all records in order is quicker. */
  if (vmm__space_free_bytes(space) / size <= space->records.used / 16 + 16) {
    for (unsigned label = 0; label < space->arena_count; label++) {
      const vmm__arena *arena = space->labels[label];

      in_use += arena->range_count != 0;
      id = size <= arena->range_bytes ? holding_in_arena(space, arena, address, size) : 0;
      if (id != 0) return id;
    }
    if (in_use <= 1) return 0;
  }
  id = vmm__space_locate(space, address);
  if (id == 0 || !holds_free(vmm__space_record(space, id), address, address + 1)) return 0;
  return free_end(space, id, end) >= end ? id : 0;
}

bool vmm__space_arena_of(vmm__space *space, vmm__u64 address, vmm__u64 size, unsigned *arena) {
  unsigned found;
  uint32_t id;

  vmm__space_settle(space);
  id = vmm__space_free_holding(space, address, size);
  if (id == 0) return false;
  found = vmm__arena_of(space, vmm__space_record(space, id))->id;
  while (vmm__record_end(vmm__space_record(space, id)) < address + size) {
    id = vmm__space_record(space, id)->next;
    if (vmm__arena_of(space, vmm__space_record(space, id))->id != found) found = VMM__ARENA_MIXED;
  }
  if (arena != NULL) *arena = found;
  return true;
}

bool vmm__space_sticks(vmm__space *space, vmm__u64 address, vmm__u64 size) {
  uint32_t id = vmm__space_free_holding(space, address, size);
  vmm__u64 end = address;

  for (; id != 0 && end < address + size; id = vmm__space_record(space, id)->next) {
    if (space->ids[vmm__arena_of(space, vmm__space_record(space, id))->id].sticky) return true;
    end = vmm__record_end(vmm__space_record(space, id));
  }
  return false;
}

/* ---- two arenas as if they were one ---- */

/* Ranges of one arena never touch, so in a run of two arenas they alternate: it is looked at from its first range of the
 * arena that has fewer. 0 if this is not the first. */
static uint32_t joined_start(const vmm__space *space, uint32_t id, const vmm__arena *few, const vmm__arena *many) {
  uint32_t before = touching_before(space, vmm__space_record(space, id)), first;

  if (before == 0 || !vmm__arena_has(many, vmm__space_record(space, before))) return id;
  first = touching_before(space, vmm__space_record(space, before));
  return first != 0 && vmm__arena_has(few, vmm__space_record(space, first)) ? 0 : before;
}

static vmm__u64 joined_end(const vmm__space *space, uint32_t id, const vmm__arena *few, const vmm__arena *many) {
  vmm__u64 end = 0;

  for (; id != 0; id = touching_behind(space, vmm__space_record(space, id))) {
    const vmm__record *record = vmm__space_record(space, id);

    if (!vmm__arena_has(few, record) && !vmm__arena_has(many, record)) break;
    end = vmm__record_end(record);
  }
  return end;
}

vmm__u64 vmm__space_find_joined(vmm__space *space, unsigned arena_a, unsigned arena_b, vmm__u64 size,
                                vmm__u64 alignment) {
  vmm__arena *few = space->arenas[arena_a], *many = space->arenas[arena_b];
  vmm__bin bin = {0, 0};

  vmm__quick_settle(space, few);
  vmm__quick_settle(space, many);
  if (few->range_count > many->range_count) {
    few = many;
    many = space->arenas[arena_a];
  }
  for (bool above = false; vmm__bin_from(few, &bin, above); above = true) {
    for (uint32_t id = few->heads[bin.word][bin.bit]; id != 0; id = vmm__space_record(space, id)->bin_next) {
      uint32_t first = joined_start(space, id, few, many);
      vmm__u64 start, end = first == 0 ? 0 : joined_end(space, first, few, many);

      if (end != 0 && vmm__round_up(vmm__space_record(space, first)->address, alignment, &start) && start < end &&
          end - start >= size)
        return start;
    }
  }
  return 0;
}

/* ---- the walk over runs ----
 *
 * Ranges of one arena never touch, so a run of several has one outside the arena with most ranges at every second place.
 * The walk looks at all ranges of all arenas but that one, and takes each run at its first such range; what is left are
 * single ranges of the largest arena, and there, as always if there is one arena only, it looks at those long enough. */

static unsigned label_with_most(const vmm__space *space) {
  unsigned most = 0;

  for (unsigned label = 1; label < space->arena_count; label++)
    if (space->labels[label]->range_count > space->labels[most]->range_count) most = label;
  return most;
}

/* The range a run begins with, if it is to be taken at this one; else 0. */
static uint32_t run_taken_at(const vmm__space *space, uint32_t id, const vmm__arena *most) {
  const vmm__record *record = vmm__space_record(space, id);
  uint32_t before = touching_before(space, record);

  if (vmm__arena_has(most, record)) return before == 0 && touching_behind(space, record) == 0 ? id : 0;
  if (before == 0) return id;
  if (!vmm__arena_has(most, vmm__space_record(space, before))) return 0;
  return touching_before(space, vmm__space_record(space, before)) == 0 ? before : 0;
}

/* To the next list of ranges that is not empty. */
static bool next_list(const vmm__space *space, vmm__space_walk *walk, vmm__u64 size) {
  for (;;) {
    bool last = walk->label == space->arena_count;
    const vmm__arena *arena = space->labels[last ? walk->most - 1 : walk->label];
    vmm__bin bin = {walk->bin / VMM__BINS_PER_WORD, walk->bin % VMM__BINS_PER_WORD};

    if ((last || walk->label != walk->most - 1) && bin.word < VMM__BIN_WORDS && vmm__bin_from(arena, &bin, false)) {
      walk->bin = bin.word * VMM__BINS_PER_WORD + bin.bit + 1;
      walk->next = arena->heads[bin.word][bin.bit];
      return true;
    }
    if (last) return false;
    walk->label++;
    bin = walk->label == space->arena_count ? vmm__bin_of(size) : (vmm__bin){0, 0};
    walk->bin = bin.word * VMM__BINS_PER_WORD + bin.bit;
  }
}

bool vmm__space_next_free(vmm__space *space, vmm__space_walk *walk, vmm__u64 size, vmm__u64 *address,
                          vmm__u64 *length) {
  if (walk->most == 0) {
    vmm__space_settle(space);
    walk->most = label_with_most(space) + 1;
  }
  while (walk->next != 0 || next_list(space, walk, size)) {
    uint32_t id = run_taken_at(space, walk->next, space->labels[walk->most - 1]);

    walk->next = vmm__space_record(space, walk->next)->bin_next;
    if (id == 0) continue;
    *address = vmm__space_record(space, id)->address;
    *length = free_end(space, id, UINT64_MAX) - *address;
    if (*length >= size) return true;
  }
  return false;
}

static vmm__u64 largest_range(const vmm__space *space, const vmm__arena *arena) {
  vmm__u64 largest = 0;
  unsigned word, bit;

  if (arena->words == 0) return 0;
  word = vmm__highest_bit(arena->words);
  bit = vmm__highest_bit(arena->bins[word]);
  for (uint32_t id = arena->heads[word][bit]; id != 0; id = vmm__space_record(space, id)->bin_next)
    largest = vmm__max(largest, vmm__record_size(vmm__space_record(space, id)));
  return largest;
}

vmm__u64 vmm__space_largest(vmm__space *space) {
  vmm__space_walk walk = {0, 0, 0, 0};
  vmm__u64 largest = 0, address, length;
  unsigned in_use = 0;

  vmm__space_settle(space);
  for (unsigned label = 0; label < space->arena_count; label++) {
    in_use += space->labels[label]->range_count != 0;
    largest = vmm__max(largest, largest_range(space, space->labels[label]));
  }
  if (in_use <= 1) return largest;
  while (vmm__space_next_free(space, &walk, largest + 1, &address, &length)) largest = vmm__max(largest, length);
  return largest;
}
