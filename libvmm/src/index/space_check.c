/* The free space of a pool: every invariant, for tests and vmm_pool_check. */
#include <string.h>

#include "index/space_inner.h"

#define BROKEN_IF(condition, text) \
  do {                             \
    if (condition) {               \
      *what = text;                \
      return false;                \
    }                              \
  } while (0)

typedef struct totals {
  vmm__u64 blocks, block_bytes, requested, ranges, free_bytes, quick, quick_bytes, quick_places;
  vmm__u64 label_ranges[VMM__ARENAS], label_bytes[VMM__ARENAS];
  uint32_t stuck[VMM__ARENAS];
} totals;

static bool check_bits(const vmm__arena *arena, const char **what) {
  for (unsigned word = 0; word < VMM__BIN_WORDS; word++) {
    BROKEN_IF((arena->bins[word] != 0) != (arena->words >> word & 1), "index: a word of bins and its bit disagree");
    for (unsigned bit = 0; bit < VMM__BINS_PER_WORD; bit++) {
      BROKEN_IF((arena->heads[word][bit] != 0) != (arena->bins[word] >> bit & 1), "index: a bin and its bit disagree");
    }
  }
  BROKEN_IF(arena->words >> VMM__BIN_WORDS != 0, "index: a bit for a bin that is not there");
  return true;
}

/* A number for a slot that tells it from others, also in a sum. */
static vmm__u64 fingerprint(uint32_t place) {
  vmm__u64 hash = vmm__slots_hash(place + 1);

  return (hash ^ hash >> 29) * (hash | 1);
}

/* A block and its slot. */
static bool check_block(const vmm__space *space, uint32_t id, totals *sum, const char **what) {
  const vmm__record *record = vmm__space_record(space, id);
  uint32_t place = vmm__slots_at(&space->slots, record->address), info;
  vmm__u64 size = vmm__record_size(record);
  vmm__block block;

  BROKEN_IF(place == VMM__SLOT_NONE || vmm__slots_id(&space->slots, place) != id, "index: a block is not in the hash");
  info = *vmm__slots_info(&space->slots, place);
  if (!vmm__slot_is_live(info)) {
    BROKEN_IF((info & ~(VMM__SLOT_QUICK - 1)) != VMM__SLOT_QUICK, "index: a quick block has another state");
    BROKEN_IF(vmm__record_arena(record) != 0, "index: a quick block sticks to an arena");
    sum->quick++;
    sum->quick_bytes += size;
    sum->quick_places += fingerprint(place);
    return true;
  }
  if ((info & VMM__SLOT_PLAIN) != 0) BROKEN_IF(vmm__slot_bin(info) >= VMM__QUICK_BINS, "index: a block has no bin");
  else BROKEN_IF((info & ~(VMM__SLOT_TAGGED | VMM__SLOT_FAR)) != VMM__SLOT_ODD, "index: a block has no known state");
  vmm__space_describe(space, place, &block);
  BROKEN_IF(block.size != size, "index: a block and its slot disagree about the size");
  BROKEN_IF(block.arena >= space->arena_count, "index: a block sticks to no arena");
  BROKEN_IF(vmm__record_arena(record) != block.arena, "index: a block that is not odd sticks to an arena");
  sum->stuck[block.arena]++;
  sum->blocks++;
  sum->block_bytes += size;
  sum->requested += block.requested;
  return true;
}

/* All ranges by rising address. */
static bool check_ranges(const vmm__space *space, totals *sum, const char **what) {
  vmm__u64 unit_mask = (1ull << VMM__UNIT_SHIFT) - 1;
  vmm__u64 steps = 0, end = 0;
  unsigned free_before = VMM__ARENAS; /* label of the range before, if it is free */
  uint32_t prev = 0;

  for (uint32_t id = vmm__space_record(space, 0)->next; id != 0; prev = id, id = vmm__space_record(space, id)->next) {
    const vmm__record *record;
    vmm__u64 size;

    BROKEN_IF(id >= space->records.used || steps++ >= space->records.used, "index: a link leads astray");
    record = vmm__space_record(space, id);
    size = vmm__record_size(record);
    BROKEN_IF(record->prev != prev, "index: a link back is wrong");
    BROKEN_IF(size == 0 || ((size | record->address) & unit_mask) != 0, "index: a range is empty or not aligned");
    BROKEN_IF(record->address < space->base || record->address + size < record->address,
              "index: a range out of bounds");
    BROKEN_IF(record->address < end, "index: ranges overlap or are out of order");
    if (vmm__record_is_free(record)) {
      unsigned label = vmm__record_arena(record);

      BROKEN_IF(label >= space->arena_count, "index: a free range is in no arena");
      BROKEN_IF(label == free_before && record->address == end, "index: two free neighbours");
      sum->ranges++;
      sum->free_bytes += size;
      sum->label_ranges[label]++;
      sum->label_bytes[label] += size;
      free_before = label;
    } else {
      if (!check_block(space, id, sum, what)) return false;
      free_before = VMM__ARENAS;
    }
    end = record->address + size;
  }
  BROKEN_IF(vmm__space_record(space, 0)->prev != prev, "index: the last range is not the last");
  BROKEN_IF(vmm__space_record(space, 0)->size_flags != 0, "index: the sentinel was written");
  return true;
}

static bool check_bins(const vmm__space *space, const vmm__arena *arena, const totals *sum, const char **what) {
  vmm__u64 ranges = 0;

  for (unsigned word = 0; word < VMM__BIN_WORDS; word++) {
    for (unsigned bit = 0; bit < VMM__BINS_PER_WORD; bit++) {
      uint32_t prev = 0;

      for (uint32_t id = arena->heads[word][bit]; id != 0; prev = id, id = vmm__space_record(space, id)->bin_next) {
        const vmm__record *record;
        vmm__bin bin;

        BROKEN_IF(id >= space->records.used || ranges++ >= sum->ranges, "index: more in the bins than free ranges");
        record = vmm__space_record(space, id);
        BROKEN_IF(!vmm__record_is_free(record), "index: a block is in a bin");
        BROKEN_IF(!vmm__arena_has(arena, record), "index: a free range is in another arena's bin");
        BROKEN_IF(record->bin_prev != prev, "index: a link of a bin is wrong");
        bin = vmm__bin_of(vmm__record_size(record));
        BROKEN_IF(bin.word != word || bin.bit != bit, "index: a free range is in another size's bin");
      }
    }
  }
  BROKEN_IF(ranges != sum->label_ranges[arena->label], "index: a free range is in no bin");
  BROKEN_IF(ranges != arena->range_count, "index: an arena's count of ranges is wrong");
  BROKEN_IF(arena->range_bytes != sum->label_bytes[arena->label], "index: the bytes of an arena are wrong");
  return true;
}

/* A list of quick blocks. `places`: those listed are added, all that is quick is to be listed once. */
static bool check_quick_bin(const vmm__space *space, const vmm__arena *arena, unsigned bin, vmm__u64 *places,
                            const char **what) {
  const vmm__slots *slots = &space->slots;
  unsigned count = arena->kept[bin].count;
  uint32_t place = arena->kept[bin].first;

  BROKEN_IF(count > VMM__QUICK_PER_BIN, "index: too many quick blocks of a size");
  BROKEN_IF((count != 0) != (arena->quick_bits[bin / VMM__BINS_PER_WORD] >> bin % VMM__BINS_PER_WORD & 1),
            "index: a bin of quick blocks and its bit disagree");
  BROKEN_IF(count != 0 && space->ids[arena->id].sticky, "index: a quick block in an arena that is sticky");
  BROKEN_IF(arena->kept[bin].near != space->first.kept[bin].near || (arena->kept[bin].near & 1) == 0,
            "index: bins are near others than they were");
  for (; count != 0; count--) {
    uint32_t info;

    BROKEN_IF(place >= 2 * slots->table.count || (place & VMM__SLOTS_PER_LINE) != 0,
              "index: what is listed is no slot");
    info = *vmm__slots_info(slots, place);
    BROKEN_IF((info & ~(VMM__SLOT_QUICK - 1)) != VMM__SLOT_QUICK, "index: what is listed is no quick block");
    BROKEN_IF(vmm__record_size(vmm__space_record(space, vmm__slots_id(slots, place))) != arena->kept[bin].size,
              "index: a quick block is listed as one of another size");
    *places += fingerprint(place);
    place = vmm__slot_next(info);
  }
  return true;
}

/* All arenas, whether open or not: one that is not must be empty, or else the sums would miss something. */
static bool check_arenas(const vmm__space *space, const totals *sum, const char **what) {
  vmm__u64 listed = 0, places = 0, can_be_opened = 0;

  for (unsigned i = 0; i < space->arena_count; i++) {
    const vmm__arena *arena = space->labels[i];
    const vmm__arena_id *id = &space->ids[i];

    BROKEN_IF(arena->label != i || arena->id >= space->arena_count || space->arenas[arena->id] != arena,
              "index: an arena and its number disagree");
    if (!check_bits(arena, what) || !check_bins(space, arena, sum, what)) return false;
    BROKEN_IF(arena->quick_bits[VMM__QUICK_WORDS] != 0, "index: a bit for a bin that is not there");
    for (unsigned bin = 0; bin < VMM__QUICK_BINS; bin++) {
      if (!check_quick_bin(space, arena, bin, &places, what)) return false;
      listed += arena->kept[bin].count;
    }
    BROKEN_IF(!space->ids[arena->id].open && vmm__space_arena_bytes(space, arena->id) != 0,
              "index: an arena that is not open holds something");
    BROKEN_IF(i != VMM__ARENA_IDLE && sum->stuck[i] != id->stuck, "index: the count of blocks that stick is wrong");
    BROKEN_IF(id->sticky && !id->open, "index: an arena that is not open is sticky");
    can_be_opened += !id->open && id->stuck == 0;
  }
  BROKEN_IF(listed != sum->quick || places != sum->quick_places, "index: a quick block is not listed");
  for (unsigned id = space->free_id; id != 0; id = space->ids[id].next) {
    BROKEN_IF(id >= space->arena_count || space->ids[id].open || space->ids[id].stuck != 0 || can_be_opened-- == 0,
              "index: an arena that can be opened is in use");
    listed++;
  }
  BROKEN_IF(can_be_opened != 0 || listed - sum->quick != space->free_ids, "index: an arena was lost");
  return true;
}

/* That all blocks are there is known: that there is nothing else, and who is counted as not in their own line. */
static bool check_slots(const vmm__space *space, const totals *sum, const char **what) {
  const vmm__slot_table *table = &space->slots.table;
  vmm__u64 lines = table->count / VMM__SLOTS_PER_LINE, slots = 0, behind = 0, spilt = 0;

  for (vmm__u64 line = 0; line < lines; line++) {
    spilt += table->spilt[line];
    for (unsigned i = 0; i < VMM__SLOTS_PER_LINE; i++) {
      uint32_t place = (uint32_t)(line * 2 * VMM__SLOTS_PER_LINE + i);

      if (*vmm__slots_info(&space->slots, place) == 0) continue;
      slots++;
      behind += (line - (vmm__slots_hash(table->words[place]) >> table->shift)) & (lines - 1);
    }
  }
  BROKEN_IF(slots != sum->blocks + sum->quick, "index: the hash holds another number of blocks");
  BROKEN_IF(spilt != behind, "index: the count of blocks that are not in their own line is wrong");
  return true;
}

static bool check_records(const vmm__space *space, const totals *sum, const char **what) {
  vmm__u64 chained = 0;

  for (uint32_t id = space->records.free_head; id != 0; id = vmm__space_record(space, id)->next) {
    BROKEN_IF(id >= space->records.used || chained++ >= space->records.free_count,
              "index: a free record's link is wrong");
    BROKEN_IF(vmm__space_record(space, id)->size_flags != 0, "index: a free record is in use");
  }
  BROKEN_IF(1 + sum->blocks + sum->quick + sum->ranges + chained != space->records.used, "index: a record was lost");
  BROKEN_IF(sum->blocks + sum->quick + sum->ranges + space->records.free_count + 1 !=
                (vmm__u64)space->records.chunk_count * VMM__RECORDS_PER_CHUNK,
            "index: the count of free records is wrong");
  return true;
}

bool vmm__space_check(const vmm__space *space, const char **what) {
  totals sum;

  memset(&sum, 0, sizeof sum);
  if (space->records.chunk_count != 0) {
    if (!check_ranges(space, &sum, what) || !check_arenas(space, &sum, what)) return false;
    if (!check_slots(space, &sum, what) || !check_records(space, &sum, what)) return false;
  }
  BROKEN_IF(sum.blocks != space->block_count || sum.blocks + sum.quick > space->slots.limit,
            "index: the count of blocks is wrong");
  BROKEN_IF(sum.blocks + sum.quick != space->slots.used, "index: the count of slots is wrong");
  BROKEN_IF(sum.block_bytes + sum.quick_bytes != space->whole_bytes, "index: the bytes of whole blocks are wrong");
  BROKEN_IF(sum.block_bytes != space->block_bytes, "index: the bytes in blocks are wrong");
  BROKEN_IF(sum.requested != space->requested_bytes, "index: the bytes asked for are wrong");
  BROKEN_IF(sum.block_bytes + sum.free_bytes + sum.quick_bytes != space->total_bytes,
            "index: the bytes in all are wrong");
  return true;
}
