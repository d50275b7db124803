/* The free space of a pool against a model that is too simple to be wrong: one number per unit of address space. */
#include "check.h"
#include "index/quick.h"
#include "index_memory.h"

#define UNIT 256ull
#define BASE ((1ull << 40) + 7 * 65536)
#define UNITS 3072u
#define MAPPING 64u /* units */
#define UNMAPPED 0u
#define FREE 1u /* above: number of the block */

typedef struct model {
  index_memory memory;
  vmm__space space;
  vmm__mappings table;
  uint32_t at[UNITS];
  vmm__block blocks[UNITS + 2]; /* by number; size 0: none */
  vmm__u64 random;
  long done[10]; /* how often each operation did something */
} model;

static model m;

static vmm__u64 any(vmm__u64 below) { return index_random(&m.random) % below; }

/* Small numbers often, large ones at times. */
static uint32_t any_length(void) {
  uint32_t most = 1u << any(9);

  return 1 + (uint32_t)any(most);
}

static bool model_fits(uint32_t start, uint32_t length, bool within) {
  if (start + length > UNITS) return false;
  if (within && start / MAPPING != (start + length - 1) / MAPPING) return false;
  for (uint32_t i = start; i < start + length; i++) {
    if (m.at[i] != FREE) return false;
  }
  return true;
}

static bool model_has_room(uint32_t length, vmm__u64 alignment, bool within) {
  uint32_t run = 0;

  if (alignment == UNIT && !within) {
    for (uint32_t i = 0; i < UNITS; i++) {
      run = m.at[i] == FREE ? run + 1 : 0;
      if (run >= length) return true;
    }
    return false;
  }
  for (uint32_t i = 0; i < UNITS; i++) {
    if ((BASE + i * UNIT) % alignment == 0 && model_fits(i, length, within)) return true;
  }
  return false;
}

/* As a pool does it: a quick block if there is one. */
static vmm__u64 alloc_as_pool(vmm__u64 size, vmm__u64 requested) {
  vmm__u64 address = vmm__quick_alloc(&m.space, VMM__ARENA_IDLE, size / UNIT, requested);

  if (address != 0) m.done[8]++;
  return address != 0 ? address : vmm__space_alloc(&m.space, VMM__ARENA_IDLE, size, UNIT, requested, 0);
}

/* A block may hold a little more than was asked for, but for one that must lie within a mapping or be aligned. */
static void note_block(vmm__u64 address, const vmm__block *asked, vmm__u64 alignment, bool within, uint32_t number) {
  uint32_t start, length;
  vmm__block block;

  CHECK(address >= BASE && address < BASE + UNITS * UNIT);
  CHECK_EQ(address % alignment, 0);
  CHECK_EQ((address - BASE) % UNIT, 0);
  CHECK(vmm__space_find(&m.space, address, &block));
  CHECK_EQ(block.address, address);
  CHECK_EQ(block.requested, asked->requested);
  CHECK_EQ(block.tag, asked->tag);
  if (within || alignment != UNIT) CHECK_EQ(block.size, asked->size);
  CHECK(block.size >= asked->size && block.size <= asked->size + asked->size / 32);
  start = (uint32_t)((address - BASE) / UNIT);
  length = (uint32_t)(block.size / UNIT);
  CHECK(model_fits(start, length, within));
  for (uint32_t i = start; i < start + length; i++) m.at[i] = number;
  m.blocks[number] = block;
}

static void try_alloc(bool within) {
  uint32_t length = any_length(), number = 2;
  vmm__u64 alignment = any(4) == 0 || within ? UNIT << any(10) : UNIT;
  vmm__block asked = {0, length * UNIT, length * UNIT - any(UNIT), any(3) == 0 ? index_random(&m.random) : 0, 0};
  vmm__u64 address;

  while (m.blocks[number].size != 0) number++;
  if (within)
    address =
        vmm__space_alloc_within(&m.space, VMM__ARENA_IDLE, asked.size, alignment, asked.requested, asked.tag, &m.table);
  else if (alignment == UNIT && asked.tag == 0) address = alloc_as_pool(asked.size, asked.requested);
  else address = vmm__space_alloc(&m.space, VMM__ARENA_IDLE, asked.size, alignment, asked.requested, asked.tag);
  if (address == 0) {
    CHECK(!model_has_room(length, alignment, within));
    return;
  }
  CHECK_CALL(note_block(address, &asked, alignment, within, number));
  m.done[within ? 1 : 0]++;
}

static void free_block(vmm__block *expected) {
  vmm__block out;

  if (any(5) != 0 && vmm__quick_free(&m.space, expected->address, VMM__ARENA_IDLE)) {
    m.done[9]++;
  } else {
    CHECK(vmm__space_free(&m.space, expected->address, VMM__ARENA_IDLE, &out));
    CHECK_EQ(out.address, expected->address);
    CHECK_EQ(out.size, expected->size);
    CHECK_EQ(out.requested, expected->requested);
    CHECK_EQ(out.tag, expected->tag);
  }
  CHECK(!vmm__quick_free(&m.space, expected->address, VMM__ARENA_IDLE));
  CHECK(!vmm__space_free(&m.space, expected->address, VMM__ARENA_IDLE, &out));
}

static void try_free(void) {
  uint32_t i = (uint32_t)any(UNITS), number = m.at[i];
  vmm__u64 address = BASE + i * UNIT + (any(8) == 0 ? any(UNIT) : 0);

  if (any(4) != 0) { /* else hits the start of a block only by chance */
    for (uint32_t k = i; m.at[i] < 2 && (i + 1) % UNITS != k;) i = (i + 1) % UNITS;
    number = m.at[i];
    if (number >= 2) address = m.blocks[number].address;
  }
  if (number < 2 || address != m.blocks[number].address) {
    CHECK(!vmm__quick_free(&m.space, address, VMM__ARENA_IDLE));
    CHECK(!vmm__space_free(&m.space, address, VMM__ARENA_IDLE, NULL));
    return;
  }
  CHECK_CALL(free_block(&m.blocks[number]));
  for (i = 0; i < UNITS; i++) {
    if (m.at[i] == number) m.at[i] = FREE;
  }
  m.blocks[number].size = 0;
  m.done[2]++;
}

/* A mapping that is not there is published. */
static void try_add(void) {
  uint32_t start = (uint32_t)any(UNITS / MAPPING) * MAPPING;

  for (uint32_t i = start; i < start + MAPPING; i++) {
    if (m.at[i] != UNMAPPED) return;
  }
  vmm__space_add(&m.space, VMM__ARENA_IDLE, BASE + start * UNIT, MAPPING * UNIT);
  for (uint32_t i = start; i < start + MAPPING; i++) m.at[i] = FREE;
  m.done[3]++;
}

/* Any range is asked for; a part of a mapping is put back at once, as after a growth that failed. */
static void try_take(bool whole) {
  uint32_t length = whole ? MAPPING : any_length();
  uint32_t start = whole ? (uint32_t)any(UNITS / MAPPING) * MAPPING : (uint32_t)any(UNITS - length + 1);
  bool fits = model_fits(start, length, false);
  vmm__u64 before = m.space.total_bytes;

  CHECK_EQ(vmm__space_take(&m.space, BASE + start * UNIT, length * UNIT, NULL), fits);
  CHECK_EQ(m.space.total_bytes, fits ? before - length * UNIT : before);
  if (!fits) return;
  if (whole) {
    for (uint32_t i = start; i < start + length; i++) m.at[i] = UNMAPPED;
    m.done[4]++;
  } else {
    vmm__space_add(&m.space, VMM__ARENA_IDLE, BASE + start * UNIT, length * UNIT);
    m.done[5]++;
  }
}

static void ask(void) {
  uint32_t start = (uint32_t)any(UNITS), length = any_length(), i, number;
  vmm__u64 address = BASE + start * UNIT + any(UNIT), blocks = 0, before = 0;
  vmm__block block;

  if (start + length > UNITS) length = UNITS - start;
  number = m.at[start];
  CHECK_EQ(vmm__space_find(&m.space, address, &block), number >= 2);
  if (number >= 2) {
    CHECK_EQ(block.address, m.blocks[number].address);
    CHECK_EQ(block.size, m.blocks[number].size);
    CHECK_EQ(block.requested, m.blocks[number].requested);
    CHECK_EQ(block.tag, m.blocks[number].tag);
  }
  for (i = start; i < start + length; i++) blocks += m.at[i] >= 2;
  CHECK_EQ(vmm__space_bytes_in(&m.space, BASE + start * UNIT, length * UNIT), blocks * UNIT);
  for (i = start; i > 0 && m.at[i - 1] == FREE; i--) before++;
  if (any(8) == 0)
    CHECK_EQ(vmm__space_free_before(&m.space, BASE + start * UNIT, VMM__ARENA_IDLE, VMM__ARENA_IDLE),
             before * UNIT); /* settles */
  /* The next block. */
  for (i = start; i < UNITS && (m.at[i] < 2 || m.blocks[m.at[i]].address < BASE + start * UNIT); i++) continue;
  CHECK_EQ(vmm__space_next_block(&m.space, BASE + start * UNIT, &block), i < UNITS);
  if (i < UNITS) CHECK_EQ(block.address, BASE + i * UNIT);
  m.done[6]++;
}

/* The walk gives each run of free units of at least `least` once: they add up, and each is one. */
static void walk_free(vmm__u64 least) {
  vmm__space_walk walk = {false, 0, 0, 0};
  vmm__u64 address, length, units = 0, run = 0, expected = 0;

  for (uint32_t i = 0; i <= UNITS; i++) {
    if (i < UNITS && m.at[i] == FREE) {
      run++;
      continue;
    }
    expected += run >= least ? run : 0;
    run = 0;
  }
  while (vmm__space_next_free(&m.space, &walk, least * UNIT, &address, &length)) {
    uint32_t start = (uint32_t)((address - BASE) / UNIT), end = start + (uint32_t)(length / UNIT);

    CHECK(length >= least * UNIT);
    CHECK(start == 0 || m.at[start - 1] != FREE);
    CHECK(end == UNITS || m.at[end] != FREE);
    for (uint32_t i = start; i < end; i++) CHECK_EQ(m.at[i], FREE);
    units += length / UNIT;
  }
  CHECK_EQ(units, expected);
}

static void compare(void) {
  vmm__u64 free_units = 0, run = 0, longest = 0, block_bytes = 0, requested = 0, count = 0;
  const char *what = "";

  if (!vmm__space_check(&m.space, &what)) check_fail(__FILE__, __LINE__, what);
  for (uint32_t i = 0; i < UNITS; i++) {
    free_units += m.at[i] == FREE;
    run = m.at[i] == FREE ? run + 1 : 0;
    longest = run > longest ? run : longest;
  }
  for (uint32_t i = 2; i < UNITS + 2; i++) {
    block_bytes += m.blocks[i].size;
    requested += m.blocks[i].size == 0 ? 0 : m.blocks[i].requested;
    count += m.blocks[i].size != 0;
  }
  CHECK_EQ(vmm__space_free_bytes(&m.space), free_units * UNIT);
  CHECK_EQ(m.space.block_bytes, block_bytes);
  CHECK_EQ(m.space.requested_bytes, requested);
  CHECK_EQ(m.space.block_count, count);
  CHECK_EQ(m.memory.locked_calls, 0);
  if (any(16) == 0) { /* these settle */
    CHECK_EQ(vmm__space_largest(&m.space), longest * UNIT);
    CHECK_CALL(walk_free(1 + any(2 * MAPPING)));
  }
  m.done[7]++;
}

static void step(vmm__u64 fill) {
  vmm__u64 what = any(100);

  if (!vmm__space_ready(&m.space)) CHECK(index_memory_reserve(&m.memory, &m.space, 1));
  if (what < fill) CHECK_CALL(try_alloc(false));
  else if (what < fill + 5) CHECK_CALL(try_alloc(true));
  else if (what < 84) CHECK_CALL(try_free());
  else if (what < 88) CHECK_CALL(try_add());
  else if (what < 90) CHECK_CALL(try_take(true));
  else if (what < 93) CHECK_CALL(try_take(false));
  else CHECK_CALL(ask());
}

static void run_model(vmm__u64 seed, int steps) {
  static const vmm__u64 fill[] = {50, 30, 4};
  vmm__mappings_spare spare;

  memset(&m, 0, sizeof m);
  m.random = seed;
  index_memory_init(&m.memory);
  vmm__space_init(&m.space, &m.memory.table, BASE);
  /* The table has all mappings, whether published or not: a piece must lie within one. */
  vmm__mappings_init(&m.table);
  CHECK(vmm__mappings_spare_make(&spare, &m.memory.table, vmm__mappings_short(&m.table, UNITS / MAPPING)));
  vmm__mappings_spare_adopt(&m.table, &spare);
  for (uint32_t i = 0; i < UNITS / MAPPING; i++) {
    vmm__mappings_insert(&m.table, (vmm__mapping){BASE + i * MAPPING * UNIT, MAPPING * UNIT, 0, NULL, 1, 0});
  }
  CHECK(index_memory_reserve(&m.memory, &m.space, 1));
  m.memory.locked = true;
  for (int i = 0; i < steps; i++) {
    CHECK_CALL(step(fill[i / 4000 % 3])); /* fuller, emptier, almost empty */
    if (i % 16 == 0) CHECK_CALL(compare());
  }
  CHECK_CALL(compare());
  for (int i = 0; i < 10; i++) CHECK(m.done[i] > 20);
  m.memory.locked = false;
  vmm__space_destroy(&m.space);
  vmm__mappings_destroy(&m.table, &m.memory.table);
  CHECK_EQ(m.memory.out, 0);
}

TEST(space_agrees_with_the_model_seed_1) { CHECK_CALL(run_model(1, 60000)); }
TEST(space_agrees_with_the_model_seed_2) { CHECK_CALL(run_model(2, 60000)); }
TEST(space_agrees_with_the_model_seed_3) { CHECK_CALL(run_model(3, 60000)); }

/* A check that passes whatever is wrong would make the tests above worthless: break something, and it must say so. */
#define DAMAGE(lvalue, value)                  \
  do {                                         \
    __typeof__(lvalue) was = (lvalue);         \
    const char *told = NULL;                   \
    (lvalue) = (value);                        \
    CHECK(!vmm__space_check(&m.space, &told)); \
    CHECK(told != NULL && told[0] != 0);       \
    (lvalue) = was;                            \
    CHECK(vmm__space_check(&m.space, &told));  \
  } while (0)

static void damage_slots(void) {
  for (vmm__u64 i = 0; i < m.space.slots.count; i++) {
    vmm__slot *slot = &m.space.slots.lines[i];

    if (slot->key == 0) continue;
    DAMAGE(slot->key, 0);
    DAMAGE(slot->key, slot->key ^ VMM__SLOT_LIVE ^ VMM__SLOT_QUICK);
    DAMAGE(slot->key, slot->key | 8);
    DAMAGE(slot->id, slot->id + 1);
    if ((slot->key & VMM__SLOT_ODD) == 0) DAMAGE(slot->bin_waste, slot->bin_waste + 1);
    if ((slot->key & VMM__SLOT_ODD) == 0) DAMAGE(slot->bin_waste, slot->bin_waste + (1u << VMM__SLOT_WASTE_BITS));
  }
}

TEST(space_check_notices_damage) {
  vmm__u64 address[12];
  const char *what = NULL;

  memset(&m, 0, sizeof m);
  index_memory_init(&m.memory);
  vmm__space_init(&m.space, &m.memory.table, BASE);
  CHECK(index_memory_reserve(&m.memory, &m.space, 10));
  vmm__space_add(&m.space, VMM__ARENA_IDLE, BASE, 1024 * UNIT);
  for (int i = 0; i < 12; i++) address[i] = vmm__space_alloc(&m.space, VMM__ARENA_IDLE, 4 * UNIT, UNIT, 1000, 0);
  CHECK(vmm__space_alloc(&m.space, VMM__ARENA_IDLE, 4 * UNIT, UNIT, 1000, 7) != 0);
  CHECK(vmm__space_alloc(&m.space, VMM__ARENA_IDLE, 4 * UNIT, UNIT, 5000000, 0) != 0);
  CHECK(vmm__space_free(&m.space, address[2], VMM__ARENA_IDLE, NULL));
  for (int i = 6; i < 9; i++) CHECK(vmm__quick_free(&m.space, address[i], VMM__ARENA_IDLE));
  CHECK(vmm__space_check(&m.space, &what));

  for (uint32_t id = 1; id < m.space.records.used; id++) {
    vmm__record *record = vmm__record_at(&m.space.records, id);

    if (record->size_flags == 0) continue;
    if (!vmm__record_is_free(record)) DAMAGE(record->address, record->address + UNIT);
    DAMAGE(record->size_flags, record->size_flags + UNIT);
    DAMAGE(record->size_flags, record->size_flags ^ VMM__RECORD_FREE);
    DAMAGE(record->prev, record->prev + 1);
    DAMAGE(record->next, record->next == 1 ? 2 : 1);
    if (record->requested == 5000000) DAMAGE(record->requested, record->requested + 1);
    if (vmm__record_is_free(record)) DAMAGE(record->bin_prev, record->bin_prev + 1);
  }
  DAMAGE(m.space.block_bytes, m.space.block_bytes - 1);
  DAMAGE(m.space.block_count, m.space.block_count + 1);
  DAMAGE(m.space.requested_bytes, 0);
  DAMAGE(m.space.total_bytes, m.space.total_bytes + UNIT);
  DAMAGE(m.space.words, m.space.words | 1ull << 40);
  DAMAGE(m.space.words, 0);
  DAMAGE(m.space.bins[0], 0);
  DAMAGE(m.space.records.free_count, m.space.records.free_count - 1);
  DAMAGE(m.space.records.used, m.space.records.used + 1);
  DAMAGE(m.space.whole_bytes, m.space.whole_bytes + UNIT);
  DAMAGE(m.space.slots.used, m.space.slots.used + 1);
  DAMAGE(m.space.slots.top, 3);
  DAMAGE(m.space.slots.top, VMM__QUICK_BINS);
  DAMAGE(m.space.slots.bins[4].count, 2);
  DAMAGE(m.space.slots.bins[4].count, 4);
  DAMAGE(m.space.slots.bins[4].count, VMM__QUICK_PER_BIN + 1);
  DAMAGE(m.space.slots.bins[4].size, 5 * (uint32_t)UNIT);
  DAMAGE(m.space.slots.quick[0][4], m.space.slots.quick[1][4]);
  DAMAGE(m.space.slots.quick[0][4], (uint32_t)m.space.slots.count);
  CHECK_CALL(damage_slots());
  vmm__space_destroy(&m.space);
  CHECK_EQ(m.memory.out, 0);
}

RUN_TESTS()
