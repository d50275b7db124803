/* The hash of blocks: lines that are full, blocks that are far, and both at once. */
#include "index/quick.h"
#include "space_world.h"

#define TIB (1ull << 40)

static vmm__u64 take(vmm__u64 units) {
  vmm__u64 address = vmm__quick_alloc(&space, VMM__ARENA_IDLE, units, units * UNIT);

  return address != 0 ? address : vmm__space_alloc(&space, VMM__ARENA_IDLE, units * UNIT, UNIT, units * UNIT, 0);
}

/* Blocks of all sizes, so that they lie in disorder, as many as the table bears, each given back and taken again. */
TEST(slots_are_found_behind_lines_that_are_full) {
  enum { COUNT = 4090 };
  static vmm__u64 address[COUNT];
  vmm__u64 random = 3, spilt = 0;

  CHECK_CALL(space_open(COUNT, 0));
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE, 512 * MIB);
  for (int i = 0; i < COUNT; i++) {
    address[i] = take(1 + index_random(&random) % 300);
    CHECK(address[i] != 0);
  }
  for (int round = 0; round < 20000; round++) {
    int k = (int)(index_random(&random) % COUNT);

    if (!vmm__quick_free(&space, address[k], VMM__ARENA_IDLE)) {
      CHECK(vmm__space_free(&space, address[k], VMM__ARENA_IDLE, NULL));
    }
    CHECK(!vmm__quick_free(&space, address[k], VMM__ARENA_IDLE));
    CHECK(!vmm__space_free(&space, address[k], VMM__ARENA_IDLE, NULL));
    if (!vmm__space_ready(&space)) vmm__space_settle_some(&space);
    address[k] = take(1 + index_random(&random) % 300);
    CHECK(address[k] != 0);
    if (round % 5000 == 0) {
      vmm__space_settle(&space);
      CHECK_CALL(space_check());
    }
  }
  for (vmm__u64 line = 0; line < space.slots.table.count / VMM__SLOTS_PER_LINE; line++)
    spilt += space.slots.table.spilt[line];
  CHECK(spilt > 20);
  for (int i = 0; i < COUNT; i++) CHECK(vmm__space_free(&space, address[i], VMM__ARENA_IDLE, NULL));
  vmm__space_settle(&space);
  for (vmm__u64 line = 0; line < space.slots.table.count / VMM__SLOTS_PER_LINE; line++)
    CHECK_EQ(space.slots.table.spilt[line], 0);
  CHECK_EQ(space.slots.used, 0);
  CHECK_CALL(space_close());
}

/* Blocks a TiB apart have the same key: each is told from the others, whatever state they are in. */
TEST(blocks_that_are_far_are_told_apart) {
  enum { APART = 3, EACH = 40 };
  vmm__u64 address[APART][EACH];
  vmm__block block;

  CHECK_CALL(space_open(APART * EACH + APART, APART));
  for (vmm__u64 i = 0; i < APART; i++) {
    unsigned arena = vmm__space_arena_open(&space);

    CHECK(arena != VMM__ARENA_IDLE);
    vmm__space_add(&space, arena, BASE + i * TIB, 64 * MIB);
    for (int k = 0; k < EACH; k++) {
      vmm__u64 tag = k % 5 == 0 ? 77 : 0;

      address[i][k] = vmm__space_alloc(&space, arena, 4 * UNIT, UNIT, 1000, tag);
      CHECK_EQ(address[i][k], BASE + i * TIB + (vmm__u64)k * 4 * UNIT);
    }
    vmm__space_arena_merge(&space, arena, VMM__ARENA_IDLE);
    vmm__space_arena_close(&space, arena);
  }
  CHECK_CALL(space_check());
  for (int k = 0; k < EACH; k++) {
    for (int i = 0; i < APART; i++) {
      CHECK(vmm__space_find(&space, address[i][k] + 5, &block));
      CHECK_EQ(block.address, address[i][k]);
      CHECK_EQ(block.size, 4 * UNIT);
      CHECK_EQ(block.requested, 1000);
      CHECK_EQ(block.tag, k % 5 == 0 ? 77 : 0);
    }
    /* In every order: by turns the near one is quick, or a range, or still there while the others go. */
    for (int n = 0; n < APART; n++) {
      vmm__u64 a = address[(n + k) % APART][k];

      if (!vmm__quick_free(&space, a, VMM__ARENA_IDLE)) CHECK(vmm__space_free(&space, a, VMM__ARENA_IDLE, &block));
      CHECK(!vmm__quick_free(&space, a, VMM__ARENA_IDLE));
      CHECK(!vmm__space_free(&space, a, VMM__ARENA_IDLE, NULL));
      CHECK(!vmm__space_find(&space, a, NULL));
      for (int left = n + 1; left < APART; left++) CHECK(vmm__space_find(&space, address[(left + k) % APART][k], NULL));
      CHECK_CALL(space_check());
    }
  }
  CHECK(vmm__space_quick_count(&space) > 0);
  CHECK_EQ(space.block_count, 0);
  vmm__space_settle(&space);
  CHECK_EQ(vmm__space_largest(&space), 64 * MIB);
  CHECK_CALL(space_close());
}

/* The first unit, the last that has a key of its own, and the first that has not. */
TEST(blocks_at_the_ends_of_what_has_a_key) {
  const vmm__u64 at[] = {0, TIB - 2 * UNIT, TIB - UNIT, TIB, 5 * TIB - UNIT};

  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    vmm__block block;

    CHECK_CALL(space_open(4, 0));
    CHECK(!vmm__quick_free(&space, BASE + at[i], VMM__ARENA_IDLE));
    vmm__space_add(&space, VMM__ARENA_IDLE, BASE + at[i], UNIT);
    CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, UNIT, UNIT, 200, 0), BASE + at[i]);
    CHECK(vmm__space_find(&space, BASE + at[i] + 255, &block));
    CHECK_EQ(block.address, BASE + at[i]);
    CHECK_EQ(block.requested, 200);
    CHECK(!vmm__space_free(&space, BASE + (at[i] ^ TIB), VMM__ARENA_IDLE, NULL));
    CHECK_CALL(space_check());
    CHECK(vmm__space_free(&space, BASE + at[i], VMM__ARENA_IDLE, NULL));
    CHECK_CALL(space_close());
  }
}

/* More than there are places for is a lack of host memory. */
TEST(slots_end_somewhere) {
  vmm__u64 hint;

  CHECK_CALL(space_open(1, 0));
  hint = vmm__space_short(&space, 1ull << (VMM__MOST_SLOTS_LOG2 + 1), 0) & (0xFFull << 24);
  CHECK_EQ(hint >> 24, VMM__MOST_SLOTS_LOG2 + 1);
  memory.locked = false;
  CHECK(vmm__space_spare_make(&memory.table, hint) == NULL);
  CHECK_CALL(space_close());
}

RUN_TESTS()
