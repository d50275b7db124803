/* The free space of a pool against a model that is too simple to be wrong: two numbers per unit of address space, what it
 * is and which arena it is in. */
#include "check.h"
#include "index/quick.h"
#include "index_memory.h"

#define UNIT 256ull
#define BASE ((1ull << 40) + 7 * 65536)
#define UNITS 3072u
#define MAPPING 64u /* units */
#define UNMAPPED 0u
#define FREE 1u /* above: number of the block */
#define ANY VMM__ARENA_MIXED
#define ARENAS 8u /* ids the model knows; no more are open at once */

typedef struct model {
  index_memory memory;
  vmm__space space;
  vmm__mappings table;
  uint32_t at[UNITS];
  unsigned arena[UNITS]; /* of what is free */
  bool open[ARENAS], sticky[ARENAS];
  vmm__block blocks[UNITS + 2]; /* by number; size 0: none */
  vmm__u64 random;
  long done[16]; /* how often each operation did something */
} model;

static model m;

static vmm__u64 any(vmm__u64 below) { return index_random(&m.random) % below; }

/* Small numbers often, large ones at times. */
static uint32_t any_length(void) {
  uint32_t most = 1u << any(9);

  return 1 + (uint32_t)any(most);
}

/* An arena that is open; often the idle one. */
static unsigned any_arena(void) {
  unsigned id = (unsigned)any(2 * ARENAS);

  return id < ARENAS && m.open[id] ? id : VMM__ARENA_IDLE;
}

static bool is_free(uint32_t i, unsigned arena) { return m.at[i] == FREE && (arena == ANY || m.arena[i] == arena); }

static bool model_fits(uint32_t start, uint32_t length, bool within, unsigned arena) {
  if (start + length > UNITS) return false;
  if (within && start / MAPPING != (start + length - 1) / MAPPING) return false;
  for (uint32_t i = start; i < start + length; i++) {
    if (!is_free(i, arena)) return false;
  }
  return true;
}

static bool model_has_room(uint32_t length, vmm__u64 alignment, bool within, unsigned arena) {
  uint32_t run = 0;

  if (alignment == UNIT && !within) {
    for (uint32_t i = 0; i < UNITS; i++) {
      run = is_free(i, arena) ? run + 1 : 0;
      if (run >= length) return true;
    }
    return false;
  }
  for (uint32_t i = 0; i < UNITS; i++) {
    if ((BASE + i * UNIT) % alignment == 0 && model_fits(i, length, within, arena)) return true;
  }
  return false;
}

/* As a pool does it: a quick block if there is one. */
static vmm__u64 alloc_as_pool(unsigned arena, vmm__u64 size, vmm__u64 requested) {
  vmm__u64 address = vmm__quick_alloc(&m.space, arena, size / UNIT, requested);

  if (address != 0) m.done[8]++;
  return address != 0 ? address : vmm__space_alloc(&m.space, arena, size, UNIT, requested, 0);
}

/* A block may hold a little more than was asked for, but for one that must lie within a mapping or be aligned. */
static void note_block(vmm__u64 address, const vmm__block *asked, vmm__u64 alignment, bool within, uint32_t number) {
  unsigned arena = asked->arena;
  uint32_t start, length;
  vmm__block block;

  CHECK(address >= BASE && address < BASE + UNITS * UNIT);
  CHECK_EQ(address % alignment, 0);
  CHECK_EQ((address - BASE) % UNIT, 0);
  CHECK(vmm__space_find(&m.space, address, &block));
  CHECK_EQ(block.address, address);
  CHECK_EQ(block.requested, asked->requested);
  CHECK_EQ(block.tag, asked->tag);
  CHECK_EQ(block.arena, m.sticky[arena] ? arena : VMM__ARENA_IDLE);
  if (within || alignment != UNIT) CHECK_EQ(block.size, asked->size);
  CHECK(block.size >= asked->size && block.size <= asked->size + asked->size / (asked->size <= 4 << 20 ? 10 : 32));
  if (asked->size < 16 * UNIT) CHECK_EQ(block.size, asked->size); /* what is small is never given more */
  start = (uint32_t)((address - BASE) / UNIT);
  length = (uint32_t)(block.size / UNIT);
  CHECK(model_fits(start, length, within, arena));
  for (uint32_t i = start; i < start + length; i++) m.at[i] = number;
  m.blocks[number] = block;
}

static void try_alloc(bool within) {
  uint32_t length = any_length(), number = 2;
  vmm__u64 alignment = any(4) == 0 || within ? UNIT << any(10) : UNIT;
  unsigned arena = any_arena();
  vmm__block asked = {0, length * UNIT, length * UNIT - any(UNIT), any(3) == 0 ? index_random(&m.random) : 0, arena};
  vmm__u64 address;

  while (m.blocks[number].size != 0) number++;
  if (within)
    address = vmm__space_alloc_within(&m.space, arena, asked.size, alignment, asked.requested, asked.tag, &m.table);
  else if (alignment == UNIT && asked.tag == 0) address = alloc_as_pool(arena, asked.size, asked.requested);
  else address = vmm__space_alloc(&m.space, arena, asked.size, alignment, asked.requested, asked.tag);
  if (address == 0) {
    CHECK(!model_has_room(length, alignment, within, arena));
    return;
  }
  CHECK_CALL(note_block(address, &asked, alignment, within, number));
  m.done[within ? 1 : 0]++;
}

static void free_block(const vmm__block *expected, unsigned arena) {
  vmm__block out;

  if (any(5) != 0 && vmm__quick_free(&m.space, expected->address, arena)) {
    m.done[9]++;
  } else {
    CHECK(vmm__space_free(&m.space, expected->address, arena, &out));
    CHECK_EQ(out.address, expected->address);
    CHECK_EQ(out.size, expected->size);
    CHECK_EQ(out.requested, expected->requested);
    CHECK_EQ(out.tag, expected->tag);
    CHECK_EQ(out.arena, expected->arena);
  }
  CHECK(!vmm__quick_free(&m.space, expected->address, arena));
  CHECK(!vmm__space_free(&m.space, expected->address, arena, &out));
}

static void try_free(void) {
  uint32_t i = (uint32_t)any(UNITS), number = m.at[i];
  unsigned arena = any_arena(), stuck;
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
  CHECK_CALL(free_block(&m.blocks[number], arena));
  stuck = m.blocks[number].arena;
  if (stuck != VMM__ARENA_IDLE) m.done[15]++;
  if (stuck != VMM__ARENA_IDLE && m.sticky[stuck]) arena = stuck;
  for (i = 0; i < UNITS; i++) {
    if (m.at[i] != number) continue;
    m.at[i] = FREE;
    m.arena[i] = arena;
  }
  m.blocks[number].size = 0;
  m.done[2]++;
}

/* A mapping that is not there is published. */
static void try_add(void) {
  unsigned arena = any_arena();
  uint32_t start = (uint32_t)any(UNITS / MAPPING) * MAPPING;

  for (uint32_t i = start; i < start + MAPPING; i++) {
    if (m.at[i] != UNMAPPED) return;
  }
  vmm__space_add(&m.space, arena, BASE + start * UNIT, MAPPING * UNIT);
  for (uint32_t i = start; i < start + MAPPING; i++) {
    m.at[i] = FREE;
    m.arena[i] = arena;
  }
  m.done[3]++;
}

/* The arena a free range is in. */
static unsigned model_arena(uint32_t start, uint32_t length) {
  for (uint32_t i = start; i < start + length; i++) {
    if (m.arena[i] != m.arena[start]) return VMM__ARENA_MIXED;
  }
  return m.arena[start];
}

/* Any range is asked for; a part of a mapping is put back at once, as after a growth that failed. */
static void try_take(bool whole) {
  uint32_t length = whole ? MAPPING : any_length();
  uint32_t start = whole ? (uint32_t)any(UNITS / MAPPING) * MAPPING : (uint32_t)any(UNITS - length + 1);
  bool fits = model_fits(start, length, false, ANY);
  vmm__u64 before = m.space.total_bytes;
  unsigned arena = 0;

  CHECK_EQ(vmm__space_take(&m.space, BASE + start * UNIT, length * UNIT, &arena), fits);
  CHECK_EQ(m.space.total_bytes, fits ? before - length * UNIT : before);
  if (!fits) return;
  CHECK_EQ(arena, model_arena(start, length));
  m.done[10] += arena == VMM__ARENA_MIXED;
  if (whole) {
    for (uint32_t i = start; i < start + length; i++) m.at[i] = UNMAPPED;
    m.done[4]++;
  } else {
    arena = any_arena();
    vmm__space_add(&m.space, arena, BASE + start * UNIT, length * UNIT);
    for (uint32_t i = start; i < start + length; i++) m.arena[i] = arena;
    m.done[5]++;
  }
}

/* What is free, and in which arena. */
static void ask_arenas(uint32_t start, uint32_t length) {
  bool fits = model_fits(start, length, false, ANY);
  unsigned a = any_arena(), b = any_arena(), arena = 0;
  vmm__u64 before = 0;

  for (uint32_t i = start; i > 0 && (is_free(i - 1, a) || is_free(i - 1, b)); i--) before++;
  CHECK_EQ(vmm__space_free_before(&m.space, BASE + start * UNIT, a, b), before * UNIT);
  CHECK_EQ(vmm__space_arena_of(&m.space, BASE + start * UNIT, length * UNIT, &arena), fits);
  if (fits) CHECK_EQ(arena, model_arena(start, length));
}

/* Opens an arena, or does something to one: merges it, closes it, makes blocks stick to it. */
static void try_arena(void) {
  unsigned id = (unsigned)any(ARENAS), into;

  if (!m.open[id] && any(2) == 0) {
    CHECK(index_memory_reserve_arenas(&m.memory, &m.space, 1, 1));
    id = vmm__space_arena_open(&m.space);
    CHECK(id != VMM__ARENA_IDLE);
    for (uint32_t i = 2; i < UNITS + 2; i++) CHECK(m.blocks[i].size == 0 || m.blocks[i].arena != id);
    if (id >= ARENAS) { /* more than the model follows: all the others are taken, or blocks stick to them */
      CHECK_EQ(vmm__space_arena_bytes(&m.space, id), 0);
      vmm__space_arena_close(&m.space, id);
      return;
    }
    CHECK(!m.open[id]);
    m.open[id] = true;
    m.done[11]++;
    return;
  }
  if (!m.open[id]) return;
  into = any_arena();
  if (any(3) != 0) {
    vmm__space_arena_merge(&m.space, id, into);
    for (uint32_t i = 0; i < UNITS; i++) {
      if (is_free(i, id)) m.arena[i] = into;
    }
    m.done[12]++;
    if (id == VMM__ARENA_IDLE || id == into || any(2) == 0) return;
    vmm__space_arena_close(&m.space, id);
    m.open[id] = m.sticky[id] = false;
    m.done[13]++;
  } else if (id != VMM__ARENA_IDLE) {
    if (m.sticky[id]) vmm__space_arena_unstick(&m.space, id);
    else vmm__space_arena_stick(&m.space, id);
    m.sticky[id] = !m.sticky[id];
    m.done[14]++;
  }
}

static void ask(void) {
  uint32_t start = (uint32_t)any(UNITS), length = any_length(), i, number;
  vmm__u64 address = BASE + start * UNIT + any(UNIT), blocks = 0;
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
  if (any(8) == 0) CHECK_CALL(ask_arenas(start, any(2) == 0 ? length : 1 + (uint32_t)any(length))); /* settles */
  /* The next block. */
  for (i = start; i < UNITS && (m.at[i] < 2 || m.blocks[m.at[i]].address < BASE + start * UNIT); i++) continue;
  CHECK_EQ(vmm__space_next_block(&m.space, BASE + start * UNIT, &block), i < UNITS);
  if (i < UNITS) CHECK_EQ(block.address, BASE + i * UNIT);
  m.done[6]++;
}

/* The walk gives each run of free units of at least `least` once: they add up, and each is one. */
static void walk_free(vmm__u64 least) {
  vmm__space_walk walk = {0, 0, 0, 0};
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

static void compare_arenas(void) {
  for (unsigned id = 0; id < ARENAS; id++) {
    vmm__u64 units = 0;

    if (!m.open[id]) continue;
    for (uint32_t i = 0; i < UNITS; i++) units += is_free(i, id);
    CHECK_EQ(vmm__space_arena_bytes(&m.space, id), units * UNIT);
  }
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
  CHECK_CALL(compare_arenas());
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
  else if (what < 95) CHECK_CALL(try_arena());
  else CHECK_CALL(ask());
}

static void run_model(vmm__u64 seed, int steps) {
  static const vmm__u64 fill[] = {50, 30, 4};
  vmm__mappings_spare spare;

  memset(&m, 0, sizeof m);
  m.random = seed;
  m.open[VMM__ARENA_IDLE] = true;
  index_memory_init(&m.memory);
  vmm__space_init(&m.space, &m.memory.table, BASE);
  /* The table has all mappings, whether published or not: a piece must lie within one. */
  vmm__mappings_init(&m.table);
  CHECK(vmm__mappings_spare_make(&spare, &m.memory.table, vmm__mappings_short(&m.table, UNITS / MAPPING)));
  vmm__mappings_spare_adopt(&m.table, &spare);
  for (uint32_t i = 0; i < UNITS / MAPPING; i++) {
    vmm__mappings_insert(&m.table, (vmm__mapping){BASE + i * MAPPING * UNIT, MAPPING * UNIT, 0, NULL, 1, 0, 0});
  }
  CHECK(index_memory_reserve(&m.memory, &m.space, 1));
  m.memory.locked = true;
  for (int i = 0; i < steps; i++) {
    CHECK_CALL(step(fill[i / 4000 % 3])); /* fuller, emptier, almost empty */
    if (i % 16 == 0) CHECK_CALL(compare());
  }
  CHECK_CALL(compare());
  for (int i = 0; i < 16; i++) CHECK(m.done[i] > 20);
  m.memory.locked = false;
  vmm__space_destroy(&m.space);
  vmm__mappings_destroy(&m.table, &m.memory.table);
  CHECK_EQ(m.memory.out, 0);
}

TEST(space_agrees_with_the_model_seed_1) { CHECK_CALL(run_model(1, 60000)); }
TEST(space_agrees_with_the_model_seed_2) { CHECK_CALL(run_model(2, 60000)); }
TEST(space_agrees_with_the_model_seed_3) { CHECK_CALL(run_model(3, 60000)); }

RUN_TESTS()
