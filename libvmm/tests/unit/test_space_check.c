/* The checker of free space: whatever is broken by hand, it says so. */
#include "check.h"
#include "index/quick.h"
#include "index_memory.h"

#define UNIT 256ull
#define BASE ((1ull << 40) + 7 * 65536)

static index_memory memory;
static vmm__space space;

/* A check that passes whatever is wrong would make the tests above worthless: break something, and it must say so. */
#define DAMAGE(lvalue, value)                \
  do {                                       \
    __typeof__(lvalue) was = (lvalue);       \
    const char *told = NULL;                 \
    (lvalue) = (value);                      \
    CHECK(!vmm__space_check(&space, &told)); \
    CHECK(told != NULL && told[0] != 0);     \
    (lvalue) = was;                          \
    CHECK(vmm__space_check(&space, &told));  \
  } while (0)

static void damage_slots(void) {
  for (uint32_t place = 0; place < 2 * space.slots.table.count; place++) {
    uint32_t *key = &space.slots.table.words[place], *info = vmm__slots_info(&space.slots, place);
    uint32_t *id = &space.slots.table.ids[vmm__slot_number(place)];

    if ((place & VMM__SLOTS_PER_LINE) != 0 || *info == 0) continue;
    DAMAGE(*key, 0);
    DAMAGE(*key, *key + 1);
    DAMAGE(*info, 0);
    DAMAGE(*info, *info ^ VMM__SLOT_QUICK);
    DAMAGE(*info, *info ^ VMM__SLOT_PLAIN);
    if ((*info & VMM__SLOT_PLAIN) != 0) DAMAGE(*info, *info | VMM__SLOT_ODD);
    if (*info < VMM__SLOT_QUICK) DAMAGE(*info, *info ^ VMM__SLOT_FAR);
    if (*info < VMM__SLOT_QUICK) DAMAGE(*info, *info | 4);
    DAMAGE(*id, *id + 1);
    if ((*info & VMM__SLOT_PLAIN) != 0) DAMAGE(*info, *info + 1);
    if ((*info & VMM__SLOT_PLAIN) != 0) DAMAGE(*info, *info + (1u << VMM__SLOT_WASTE_BITS));
  }
  DAMAGE(space.slots.table.spilt[3], space.slots.table.spilt[3] + 1);
}

static void damage_arenas(unsigned a, unsigned b) {
  vmm__arena *one = space.arenas[a];

  DAMAGE(one->range_bytes, one->range_bytes - UNIT);
  DAMAGE(one->range_count, one->range_count + 1);
  DAMAGE(one->id, b);
  DAMAGE(one->label, b);
  DAMAGE(one->mark, space.arenas[b]->mark);
  DAMAGE(one->kept[4].count, 0);
  DAMAGE(space.arenas[a], space.arenas[b]);
  DAMAGE(space.ids[a].open, false);
  DAMAGE(space.ids[a].sticky, true); /* it has a quick block */
  DAMAGE(space.ids[a].stuck, 1);
  DAMAGE(space.ids[b].stuck, 0);
  DAMAGE(space.ids[b].stuck, 2);
  DAMAGE(space.ids[b].open, false);
  DAMAGE(space.free_ids, 0);
  DAMAGE(space.free_id, 0);
  DAMAGE(space.free_id, (uint16_t)a);
  DAMAGE(space.ids[space.free_id].sticky, true);
  DAMAGE(space.ids[space.free_id].open, true);
}

static void damage_quick_blocks(unsigned a) {
  uint32_t first = space.first.kept[4].first, *next = vmm__slots_info(&space.slots, first);

  DAMAGE(space.first.quick_bits[0], 0);
  DAMAGE(space.first.quick_bits[0], space.first.quick_bits[0] | 1);
  DAMAGE(space.first.quick_bits[VMM__QUICK_WORDS], 1);
  DAMAGE(space.first.kept[4].near, 2);
  DAMAGE(space.first.kept[4].count, 2);
  DAMAGE(space.first.kept[4].count, 4);
  DAMAGE(space.first.kept[4].count, VMM__QUICK_PER_BIN + 1);
  DAMAGE(space.first.kept[4].size, 5 * (uint32_t)UNIT);
  DAMAGE(space.first.kept[4].first, vmm__slot_next(*next));
  DAMAGE(space.first.kept[4].first, space.arenas[a]->kept[4].first);
  DAMAGE(space.first.kept[4].first, first | VMM__SLOTS_PER_LINE);
  DAMAGE(space.first.kept[4].first, 2 * (uint32_t)space.slots.table.count);
  DAMAGE(*next, VMM__SLOT_QUICK | first);
}

TEST(space_check_notices_damage) {
  vmm__u64 address[12];
  const char *what = NULL;
  unsigned a, b;

  index_memory_init(&memory);
  vmm__space_init(&space, &memory.table, BASE);
  CHECK(index_memory_reserve_arenas(&memory, &space, 10, 3));
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE, 1024 * UNIT);
  for (int i = 0; i < 12; i++) address[i] = vmm__space_alloc(&space, VMM__ARENA_IDLE, 4 * UNIT, UNIT, 1000, 0);
  CHECK(vmm__space_alloc(&space, VMM__ARENA_IDLE, 4 * UNIT, UNIT, 1000, 7) != 0);
  CHECK(vmm__space_alloc(&space, VMM__ARENA_IDLE, 4 * UNIT, UNIT, 5000000, 0) != 0);
  CHECK(vmm__space_free(&space, address[2], VMM__ARENA_IDLE, NULL));
  for (int i = 6; i < 9; i++) CHECK(vmm__quick_free(&space, address[i], VMM__ARENA_IDLE));
  /* Two arenas more, one of them sticky, and a third that can be opened. */
  a = vmm__space_arena_open(&space);
  b = vmm__space_arena_open(&space);
  CHECK(a != VMM__ARENA_IDLE && b != VMM__ARENA_IDLE);
  CHECK(vmm__space_free(&space, address[3], a, NULL));
  CHECK(vmm__space_free(&space, address[9], a, NULL));
  CHECK(vmm__quick_free(&space, address[10], a));
  vmm__space_add(&space, b, BASE + 2048 * UNIT, 64 * UNIT);
  vmm__space_arena_stick(&space, b);
  CHECK(vmm__space_alloc(&space, b, 4 * UNIT, UNIT, 1000, 0) != 0);
  CHECK(vmm__space_check(&space, &what));

  for (uint32_t id = 1; id < space.records.used; id++) {
    vmm__record *record = vmm__record_at(&space.records, id);

    if (record->size_flags == 0) continue;
    if (!vmm__record_is_free(record)) DAMAGE(record->address, record->address + UNIT);
    DAMAGE(record->size_flags, record->size_flags + UNIT);
    DAMAGE(record->size_flags, record->size_flags ^ VMM__RECORD_FREE);
    DAMAGE(record->size_flags, record->size_flags ^ 1ull << VMM__RECORD_ARENA_SHIFT);
    DAMAGE(record->size_flags, record->size_flags ^ 1ull << 63);
    DAMAGE(record->prev, record->prev + 1);
    DAMAGE(record->next, record->next == 1 ? 2 : 1);
    if (record->requested == 5000000) DAMAGE(record->requested, record->requested + 1);
    if (vmm__record_is_free(record)) DAMAGE(record->bin_prev, record->bin_prev + 1);
  }
  DAMAGE(space.block_bytes, space.block_bytes - 1);
  DAMAGE(space.block_count, space.block_count + 1);
  DAMAGE(space.requested_bytes, 0);
  DAMAGE(space.total_bytes, space.total_bytes + UNIT);
  DAMAGE(space.first.words, space.first.words | 1ull << 40);
  DAMAGE(space.first.words, 0);
  DAMAGE(space.first.bins[0], 0);
  DAMAGE(space.records.free_count, space.records.free_count - 1);
  DAMAGE(space.records.used, space.records.used + 1);
  DAMAGE(space.whole_bytes, space.whole_bytes + UNIT);
  DAMAGE(space.slots.used, space.slots.used + 1);
  CHECK_CALL(damage_quick_blocks(a));
  CHECK_CALL(damage_slots());
  CHECK_CALL(damage_arenas(a, b));
  vmm__space_destroy(&space);
  CHECK_EQ(memory.out, 0);
}

RUN_TESTS()
