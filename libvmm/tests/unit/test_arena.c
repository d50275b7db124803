/* Arenas: what is free in one is no one else's, ids keep their meaning, and blocks that stick go back where they came from. */
#include "index/quick.h"
#include "space_world.h"

TEST(arenas_that_were_not_prepared_cannot_be_opened) {
  unsigned a, b;

  CHECK_CALL(space_open(100, 0));
  CHECK_EQ(vmm__space_arena_open(&space), VMM__ARENA_IDLE);
  CHECK(index_memory_reserve_arenas(&memory, &space, 1, 2));
  a = vmm__space_arena_open(&space);
  b = vmm__space_arena_open(&space);
  CHECK(a != VMM__ARENA_IDLE && b != VMM__ARENA_IDLE && a != b);
  CHECK_EQ(vmm__space_arena_open(&space), VMM__ARENA_IDLE);
  vmm__space_arena_close(&space, a);
  CHECK_EQ(vmm__space_short(&space, 1, 1), 0);
  CHECK_EQ(vmm__space_arena_open(&space), a);
  CHECK_CALL(space_close());
}

TEST(arenas_have_an_end_and_reserving_more_ends_too) {
  unsigned opened = 0;

  CHECK_CALL(space_open(100, 0));
  while (index_memory_reserve_arenas(&memory, &space, 1, 3) && vmm__space_arena_open(&space) != VMM__ARENA_IDLE)
    opened++;
  CHECK_EQ(opened, VMM__ARENAS - 1);
  CHECK_EQ(vmm__space_short(&space, 1, 1), 0);
  CHECK_CALL(space_close());
}

TEST(what_is_free_in_one_arena_is_not_given_by_another) {
  vmm__u64 a;
  unsigned one, two, from = 0;

  CHECK_CALL(space_open(100, 2));
  one = vmm__space_arena_open(&space);
  two = vmm__space_arena_open(&space);
  vmm__space_add(&space, one, BASE, 64 * MIB);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, UNIT, UNIT, 1, 0), 0);
  CHECK_EQ(vmm__space_alloc(&space, two, UNIT, UNIT, 1, 0), 0);
  a = vmm__space_alloc(&space, one, MIB, UNIT, MIB, 0);
  CHECK_EQ(a, BASE);
  CHECK(vmm__space_free(&space, a, two, NULL));
  CHECK_EQ(vmm__space_arena_bytes(&space, one), 63 * MIB);
  CHECK_EQ(vmm__space_arena_bytes(&space, two), MIB);
  /* They touch and are two, but one run. */
  CHECK_EQ(vmm__space_alloc(&space, one, 64 * MIB, UNIT, 1, 0), 0);
  CHECK_EQ(vmm__space_largest(&space), 64 * MIB);
  CHECK(vmm__space_arena_of(&space, BASE, MIB, &from));
  CHECK_EQ(from, two);
  CHECK(vmm__space_arena_of(&space, BASE + MIB, MIB, &from));
  CHECK_EQ(from, one);
  CHECK(vmm__space_arena_of(&space, BASE + UNIT, MIB, &from));
  CHECK_EQ(from, VMM__ARENA_MIXED);
  CHECK_EQ(vmm__space_free_before(&space, BASE + 2 * MIB, one, one), MIB);
  CHECK_EQ(vmm__space_free_before(&space, BASE + 2 * MIB, one, two), 2 * MIB);
  CHECK_EQ(vmm__space_free_before(&space, BASE + 2 * MIB, two, two), 0);
  CHECK_CALL(space_close());
}

TEST(quick_blocks_are_their_arenas_own) {
  vmm__u64 a, b, c;
  unsigned one;

  CHECK_CALL(space_open(100, 1));
  one = vmm__space_arena_open(&space);
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE, 64 * MIB);
  a = vmm__space_alloc(&space, VMM__ARENA_IDLE, MIB, UNIT, MIB, 0);
  b = vmm__space_alloc(&space, VMM__ARENA_IDLE, MIB, UNIT, MIB, 0);
  c = vmm__space_alloc(&space, VMM__ARENA_IDLE, 2 * MIB, UNIT, 2 * MIB, 0);
  CHECK(vmm__space_free(&space, c, one, NULL)); /* the bounds are reckoned */
  CHECK(vmm__quick_free(&space, a, one));
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, MIB / UNIT, 1), 0);
  CHECK_EQ(vmm__space_arena_bytes(&space, one), 3 * MIB);
  vmm__space_arena_merge(&space, one, VMM__ARENA_IDLE);
  CHECK_EQ(vmm__space_arena_bytes(&space, one), 0);
  CHECK_EQ(vmm__space_arena_bytes(&space, VMM__ARENA_IDLE), 63 * MIB);
  CHECK_EQ(vmm__quick_alloc(&space, one, MIB / UNIT, 1), 0);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, MIB / UNIT, 1), a); /* a merge leaves it quick */
  CHECK(vmm__space_free(&space, a, one, NULL));
  CHECK(vmm__space_free(&space, b, VMM__ARENA_IDLE, NULL));
  CHECK_CALL(space_close());
}

/* Whichever has more ranges: they move the other way, and nobody can tell. */
static void merge(int pieces_from, int pieces_into) {
  unsigned from, into, other;
  vmm__u64 at = BASE;

  CHECK_CALL(space_open(100, 3));
  from = vmm__space_arena_open(&space);
  into = vmm__space_arena_open(&space);
  other = vmm__space_arena_open(&space);
  for (int i = 0; i < pieces_from; i++, at += 3 * UNIT) vmm__space_add(&space, from, at, UNIT);
  for (int i = 0; i < pieces_into; i++, at += 3 * UNIT) vmm__space_add(&space, into, at, UNIT);
  /* A run of three, and one of an arena that has no part in it. */
  vmm__space_add(&space, into, at, MIB);
  vmm__space_add(&space, from, at + MIB, MIB);
  vmm__space_add(&space, into, at + 2 * MIB, MIB);
  vmm__space_add(&space, other, at + 3 * MIB, MIB);
  vmm__space_arena_merge(&space, from, into);
  CHECK_CALL(space_check());
  CHECK_EQ(vmm__space_arena_bytes(&space, from), 0);
  CHECK_EQ(vmm__space_arena_bytes(&space, into), (vmm__u64)(pieces_from + pieces_into) * UNIT + 3 * MIB);
  CHECK_EQ(vmm__space_arena_bytes(&space, other), MIB);
  CHECK_EQ(vmm__space_alloc(&space, into, 3 * MIB, UNIT, 1, 0), at);
  CHECK_EQ(vmm__space_alloc(&space, from, UNIT, UNIT, 1, 0), 0);
  vmm__space_arena_close(&space, from);
  CHECK_CALL(space_close());
}

TEST(merge_of_few_into_many) { CHECK_CALL(merge(2, 40)); }
TEST(merge_of_many_into_few) { CHECK_CALL(merge(40, 2)); }

TEST(blocks_that_stick_are_freed_where_they_came_from) {
  vmm__u64 a, b;
  vmm__block block;
  unsigned lease;

  CHECK_CALL(space_open(100, 1));
  lease = vmm__space_arena_open(&space);
  vmm__space_add(&space, lease, BASE, 64 * MIB);
  b = vmm__space_alloc(&space, lease, MIB, UNIT, MIB, 0);
  vmm__space_arena_stick(&space, lease);
  a = vmm__space_alloc(&space, lease, MIB, UNIT, 12345, 77);
  CHECK(vmm__space_find(&space, a, &block));
  CHECK_EQ(block.arena, lease);
  CHECK_EQ(block.requested, 12345);
  CHECK_EQ(block.tag, 77);
  CHECK(!vmm__quick_free(&space, a, VMM__ARENA_IDLE));
  CHECK(vmm__space_free(&space, a, VMM__ARENA_IDLE, &block));
  CHECK_EQ(block.arena, lease);
  CHECK_EQ(vmm__space_arena_bytes(&space, lease), 63 * MIB);
  CHECK_EQ(vmm__space_arena_bytes(&space, VMM__ARENA_IDLE), 0);
  /* What was cut before does not stick, but nothing is kept whole for this arena. */
  CHECK(!vmm__quick_free(&space, b, lease));
  CHECK(vmm__space_free(&space, b, lease, &block));
  CHECK_EQ(block.arena, VMM__ARENA_IDLE);
  CHECK_EQ(vmm__space_quick_count(&space), 0);
  CHECK_CALL(space_close());
}

TEST(number_of_an_arena_stays_taken_until_no_block_sticks_to_it) {
  vmm__u64 a, b;
  vmm__block block;
  unsigned lease;

  CHECK_CALL(space_open(100, 1));
  lease = vmm__space_arena_open(&space);
  vmm__space_add(&space, lease, BASE, 64 * MIB);
  vmm__space_arena_stick(&space, lease);
  a = vmm__space_alloc(&space, lease, MIB, UNIT, MIB, 0);
  b = vmm__space_alloc(&space, lease, MIB, UNIT, MIB, 0);
  vmm__space_arena_unstick(&space, lease);
  vmm__space_arena_merge(&space, lease, VMM__ARENA_IDLE);
  vmm__space_arena_close(&space, lease);
  CHECK_EQ(vmm__space_arena_open(&space), VMM__ARENA_IDLE); /* none can be */
  CHECK_CALL(space_check());
  CHECK(vmm__space_free(&space, a, VMM__ARENA_IDLE, &block));
  CHECK_EQ(block.arena, lease);
  CHECK_EQ(vmm__space_arena_open(&space), VMM__ARENA_IDLE);
  CHECK(vmm__space_free(&space, b, VMM__ARENA_IDLE, &block));
  CHECK_EQ(vmm__space_arena_bytes(&space, VMM__ARENA_IDLE), 64 * MIB);
  CHECK_EQ(vmm__space_arena_open(&space), lease);
  CHECK_CALL(space_close());
}

TEST(range_taken_tells_its_arena) {
  unsigned one, from = 0;

  CHECK_CALL(space_open(100, 1));
  one = vmm__space_arena_open(&space);
  vmm__space_add(&space, one, BASE, 2 * MIB);
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + 2 * MIB, 2 * MIB);
  vmm__space_add(&space, one, BASE + 4 * MIB, 2 * MIB);
  CHECK(!vmm__space_take(&space, BASE + 5 * MIB, 2 * MIB, &from));
  CHECK(!vmm__space_take(&space, BASE, 0, &from));
  CHECK(vmm__space_take(&space, BASE + MIB, 4 * MIB, &from));
  CHECK_EQ(from, VMM__ARENA_MIXED);
  CHECK_EQ(vmm__space_arena_bytes(&space, one), 2 * MIB);
  CHECK_EQ(vmm__space_arena_bytes(&space, VMM__ARENA_IDLE), 0);
  CHECK_CALL(space_check());
  CHECK(vmm__space_take(&space, BASE, MIB, &from));
  CHECK_EQ(from, one);
  CHECK_EQ(space.total_bytes, MIB);
  CHECK_CALL(space_close());
}

RUN_TESTS()
