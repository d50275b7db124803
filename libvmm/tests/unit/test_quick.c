/* Blocks that are kept whole when they are freed: given again, never seen as anything but free memory, within bounds. */
#include "index/quick.h"
#include "space_world.h"

static vmm__u64 take(vmm__u64 size) {
  vmm__u64 address;

  while (!vmm__space_ready(&space))
    if (!vmm__space_settle_some(&space) && !index_memory_reserve(&memory, &space, 1)) return 0;
  address = size / UNIT <= VMM__QUICK_LARGEST_UNITS ? vmm__quick_alloc(&space, VMM__ARENA_IDLE, size / UNIT, size) : 0;
  return address != 0 ? address : vmm__space_alloc(&space, VMM__ARENA_IDLE, size, UNIT, size, 0);
}

static bool give(vmm__u64 address) {
  return vmm__quick_free(&space, address, VMM__ARENA_IDLE) || vmm__space_free(&space, address, VMM__ARENA_IDLE, NULL);
}

/* The bounds are reckoned at the first free. */
static void start(vmm__u64 mapped) {
  CHECK_CALL(space_open(1, 0));
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE, mapped);
  CHECK(give(take(UNIT)));
  CHECK_EQ(vmm__space_quick_count(&space), 0);
}

TEST(quick_block_is_given_again) {
  vmm__u64 a;
  vmm__block block;

  CHECK_CALL(start(64 * MIB));
  a = take(100000 / UNIT * UNIT);
  CHECK(give(a));
  CHECK_EQ(vmm__space_quick_count(&space), 1);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 99000 / UNIT, 98765), a); /* the same bin: other sizes too */
  CHECK_EQ(vmm__space_quick_count(&space), 0);
  CHECK(vmm__space_find(&space, a + 5, &block));
  CHECK_EQ(block.address, a);
  CHECK_EQ(block.requested, 98765);
  CHECK_EQ(block.tag, 0);
  CHECK_EQ(space.requested_bytes, 98765);
  CHECK_EQ(space.block_bytes, block.size);
  CHECK(give(a));
  CHECK_EQ(space.requested_bytes, 0);
  CHECK_CALL(space_close());
}

/* Up to the largest that is kept, and beyond, at both ends of each bin: what is asked for is told right. */
TEST(quick_blocks_of_every_size_account_for_what_was_asked) {
  CHECK_CALL(start(4096 * MIB));
  for (vmm__u64 units = 1; units <= 4ull * VMM__QUICK_LARGEST_UNITS; units += units / 48 + 1) {
    for (int end = 0; end < 2; end++) {
      vmm__u64 asked = end == 0 ? units * UNIT : (units - 1) * UNIT + 1;
      vmm__u64 a = take(units * UNIT), b = take(units * UNIT), c;
      vmm__block block;

      CHECK(a != 0 && b != 0 && give(a));
      c = units <= VMM__QUICK_LARGEST_UNITS ? vmm__quick_alloc(&space, VMM__ARENA_IDLE, units, asked) : 0;
      if (c == 0) c = vmm__space_alloc(&space, VMM__ARENA_IDLE, units * UNIT, UNIT, asked, 0);
      CHECK(vmm__space_find(&space, c, &block));
      CHECK_EQ(block.requested, asked);
      CHECK(block.size >= units * UNIT &&
            block.size <= units * UNIT + units * UNIT / (units * UNIT <= 4 * MIB ? 10 : 32) + UNIT);
      CHECK_EQ(space.requested_bytes, asked + units * UNIT);
      CHECK(give(b));
      CHECK(give(c));
      CHECK_EQ(space.requested_bytes, 0);
      CHECK_EQ(space.block_bytes, 0);
    }
  }
  CHECK_CALL(space_close());
}

TEST(quick_block_is_free_memory_to_everyone) {
  vmm__u64 a, b;
  vmm__block block;

  CHECK_CALL(start(64 * MIB));
  a = take(MIB);
  b = take(MIB);
  CHECK(give(a));
  CHECK_EQ(vmm__space_quick_count(&space), 1);
  CHECK(!vmm__quick_free(&space, a, VMM__ARENA_IDLE));
  CHECK(!vmm__space_free(&space, a, VMM__ARENA_IDLE, &block));
  CHECK(!vmm__space_find(&space, a, &block));
  CHECK(!vmm__space_find(&space, a + 4096, &block));
  CHECK(vmm__space_next_block(&space, 0, &block));
  CHECK_EQ(block.address, b);
  CHECK_EQ(vmm__space_bytes_in(&space, BASE, 64 * MIB), MIB);
  CHECK_EQ(vmm__space_free_bytes(&space), 63 * MIB);
  CHECK_EQ(space.block_count, 1);
  CHECK_CALL(space_check());
  CHECK_EQ(vmm__space_quick_count(&space), 1); /* none of that needed it to be a range */
  CHECK(give(b));
  CHECK_EQ(vmm__space_quick_count(&space), 2);
  CHECK_EQ(vmm__space_largest(&space), 64 * MIB);
  CHECK_EQ(vmm__space_quick_count(&space), 0);
  CHECK_CALL(space_close());
}

TEST(quick_free_takes_nothing_for_a_block_that_is_none) {
  vmm__u64 a;

  CHECK_CALL(start(64 * MIB));
  a = take(8 * UNIT);
  for (vmm__u64 i = 1; i < 8 * UNIT; i++) CHECK(!vmm__quick_free(&space, a + i, VMM__ARENA_IDLE));
  for (vmm__u64 i = 1; i < 2 * UNIT; i++)
    CHECK(!vmm__quick_free(&space, 0 - i, VMM__ARENA_IDLE) && !vmm__quick_free(&space, a - i, VMM__ARENA_IDLE));
  CHECK(!vmm__quick_free(&space, 0, VMM__ARENA_IDLE));
  CHECK(vmm__quick_free(&space, a, VMM__ARENA_IDLE));
  for (vmm__u64 i = 0; i < 2 * UNIT; i++) CHECK(!vmm__quick_free(&space, a + i, VMM__ARENA_IDLE));
  CHECK_CALL(space_close());
}

TEST(quick_blocks_give_way_to_who_needs_their_memory) {
  vmm__u64 a[64], big;
  vmm__mappings none;

  CHECK_CALL(start(64 * MIB));
  for (int i = 0; i < 30; i++) a[i] = take(MIB / 8 + (vmm__u64)i * 16 * UNIT);
  for (int i = 0; i < 30; i++) CHECK(give(a[i]));
  CHECK(vmm__space_quick_count(&space) > 5);
  big = vmm__space_alloc(&space, VMM__ARENA_IDLE, 64 * MIB, UNIT, 1, 0);
  CHECK_EQ(big, BASE);
  CHECK_EQ(vmm__space_quick_count(&space), 0);
  CHECK(give(big));
  for (int i = 0; i < 30; i++) a[i] = take(MIB / 4);
  for (int i = 0; i < 30; i++) CHECK(give(a[i]));
  CHECK(vmm__space_quick_count(&space) > 5);
  CHECK(vmm__space_take(&space, BASE, 64 * MIB, NULL));
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE, 64 * MIB);
  a[0] = take(MIB);
  CHECK(give(a[0]));
  CHECK_EQ(vmm__space_quick_count(&space), 1);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, 64 * MIB - 512 * UNIT, 512 * UNIT, 1, 0), BASE); /* aligned */
  CHECK(give(BASE));
  a[0] = take(MIB);
  CHECK(give(a[0]));
  vmm__mappings_init(&none);
  CHECK_EQ(vmm__space_alloc_within(&space, VMM__ARENA_IDLE, MIB, UNIT, 1, 0, &none), 0);
  CHECK_EQ(vmm__space_quick_count(&space), 0); /* all was looked at */
  CHECK_CALL(space_close());
}

TEST(quick_blocks_keep_to_their_bounds) {
  enum { COUNT = 200 };
  vmm__u64 a[COUNT], top;

  CHECK_CALL(start(64 * MIB));
  for (int i = 0; i < COUNT; i++) a[i] = take(4096);
  for (int i = 0; i < COUNT; i++) CHECK(give(a[i]));
  CHECK_EQ(vmm__space_quick_count(&space), VMM__QUICK_PER_BIN);
  vmm__space_settle(&space);
  for (int i = 0; i < 64; i++) a[i] = take(MIB - (vmm__u64)i * 16384);
  for (int i = 0; i < 64; i++) {
    CHECK(give(a[i]));
    CHECK(vmm__space_quick_bytes(&space) <= vmm__space_free_bytes(&space) / 2 + MIB);
    CHECK_CALL(space_check());
  }
  CHECK(vmm__space_quick_count(&space) > 10);
  vmm__space_settle(&space);
  /* Above 256 KiB none of more than a 64th of what may be kept, unless it is alone. */
  for (int i = 0; i < 2; i++) a[i] = take(MIB / 2);
  CHECK(vmm__space_free(&space, a[0], VMM__ARENA_IDLE, NULL));
  CHECK_EQ(vmm__space_quick_count(&space), 1);
  CHECK(vmm__space_free(&space, a[1], VMM__ARENA_IDLE, NULL));
  CHECK_EQ(vmm__space_quick_count(&space), 1);
  vmm__space_settle(&space);
  /* What lies high becomes a range, so that it can be given back. */
  for (int i = 0; i < 56; i++) a[i] = take(MIB);
  top = take(MIB);
  for (int i = 0; i < 56; i++) CHECK(vmm__space_free(&space, a[i], VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__quick_free(&space, top, VMM__ARENA_IDLE));
  CHECK(vmm__space_free(&space, top, VMM__ARENA_IDLE, NULL));
  CHECK_CALL(space_close());
}

/* From one that is all there is to one among many: the next of its size is it. */
TEST(quick_block_that_is_the_only_one_may_be_large) {
  for (vmm__u64 size = MIB / 4; size <= 64 * MIB; size *= 2) {
    for (vmm__u64 mapped = size; mapped <= 2 * size; mapped += vmm__max(size / 4, UNIT)) {
      vmm__block block;
      vmm__u64 a;

      CHECK_CALL(start(mapped));
      a = take(size);
      CHECK(vmm__space_find(&space, a, &block));
      CHECK(give(a)); /* the bounds are reckoned here */
      for (int i = 0; i < 3; i++) {
        CHECK_EQ(vmm__space_quick_count(&space), 1);
        CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, size / UNIT, size), a);
        CHECK(vmm__quick_free(&space, a, VMM__ARENA_IDLE));
      }
      CHECK_EQ(take(mapped), BASE); /* to others it is free memory */
      CHECK(give(BASE));
      CHECK_CALL(space_check());
      CHECK_CALL(space_close());
    }
  }
}

TEST(quick_block_of_a_smaller_size_displaces_a_larger_one) {
  enum { COUNT = 900 };
  static vmm__u64 block[COUNT];
  vmm__u64 random = 1;
  int displaced = 0;

  CHECK_CALL(start(64 * MIB));
  for (int i = 0; i < COUNT; i++) block[i] = take((1 + index_random(&random) % 500) * UNIT);
  for (int i = 0; i < 20000; i++) {
    int k = (int)(index_random(&random) % COUNT);
    vmm__u64 before = vmm__space_quick_count(&space);

    if (!vmm__quick_free(&space, block[k], VMM__ARENA_IDLE)) {
      uint32_t place;

      CHECK(vmm__space_free(&space, block[k], VMM__ARENA_IDLE, NULL));
      place = vmm__slots_at(&space.slots, block[k]);
      if (place != VMM__SLOT_NONE) { /* it was kept, and another one not any more */
        CHECK(!vmm__slot_is_live(*vmm__slots_info(&space.slots, place)));
        CHECK_EQ(vmm__space_quick_count(&space), before);
        displaced++;
      }
    }
    block[k] = take((1 + index_random(&random) % 500) * UNIT);
    CHECK(block[k] != 0);
    if (i % 500 == 0) CHECK_CALL(space_check());
  }
  CHECK(displaced > 10);
  CHECK_CALL(space_close());
}

TEST(quick_blocks_of_near_sizes_serve_but_not_for_small_ones) {
  vmm__u64 a, b;

  CHECK_CALL(start(64 * MIB));
  a = take(101 * UNIT);
  b = take(9 * UNIT);
  CHECK(give(a));
  CHECK(give(b));
  CHECK_EQ(vmm__space_quick_count(&space), 2);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 95, 1), 0);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 102, 1), 0);
  for (vmm__u64 units = 96; units <= 101; units++) {
    CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, units, 1), a);
    CHECK(give(a));
  }
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 100, 1), a);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 8, 1), 0);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 10, 1), 0);
  CHECK_EQ(vmm__quick_alloc(&space, VMM__ARENA_IDLE, 9, 1), b);
  CHECK_CALL(space_close());
}

/* At every size, from the bin's own up: what serves is never more than 1/10 larger, 1/32 where more would be wasted. */
TEST(quick_block_that_serves_is_near) {
  CHECK_CALL(start(512 * MIB));
  CHECK_EQ(space.first.kept[VMM__QUICK_NEAR_LAST].size, 4 * MIB);
  for (vmm__u64 kept = 1; kept <= 96 * MIB / UNIT; kept += kept / 9 + 1) {
    vmm__u64 a = take(kept * UNIT), first = 0;

    CHECK(a != 0 && give(a));
    if (vmm__space_quick_count(&space) == 0) continue; /* too large */
    for (vmm__u64 units = kept - kept / 4; units <= kept; units += kept / 200 + 1) {
      vmm__block block;

      if (units == 0 || vmm__quick_alloc(&space, VMM__ARENA_IDLE, units, units * UNIT) == 0) continue;
      CHECK(vmm__space_find(&space, a, &block));
      CHECK(block.size - units * UNIT <= units * UNIT / (block.size <= 4 * MIB ? 10 : 32));
      CHECK_EQ(space.requested_bytes, units * UNIT);
      if (first == 0) first = units;
      CHECK(give(a));
    }
    CHECK(first != 0);
    if (kept >= 64 && kept * UNIT <= 4 * MIB) CHECK(first < kept - kept / 32);
    if (kept < 16) CHECK_EQ(first, kept);
    vmm__space_settle(&space);
  }
  CHECK_CALL(space_close());
}

TEST(block_holds_a_little_more_than_was_asked_for_where_that_fits) {
  vmm__u64 sizes[] = {1, 63, 64, 127, 128, 129, 255, 256, 257, 4095, 65535, 131071, 131072};
  vmm__block block;

  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    vmm__u64 size = sizes[i] * UNIT, a;

    CHECK_CALL(start(64 * MIB));
    a = take(size);
    CHECK(vmm__space_find(&space, a, &block));
    CHECK(block.size >= size && block.size <= size + size / 64);
    if (sizes[i] <= 128) CHECK_EQ(block.size, size);
    CHECK_EQ(block.requested, size);
    CHECK(give(a));
    CHECK_EQ(take(size), a);
    CHECK(give(a));
    CHECK_CALL(space_close());
    /* Where only the size itself fits. */
    CHECK_CALL(start(size));
    CHECK_EQ(take(size), BASE);
    CHECK(vmm__space_find(&space, BASE, &block));
    CHECK_EQ(block.size, size);
    CHECK(give(BASE));
    CHECK_CALL(space_close());
  }
}

/* Whether the pool has few blocks for its tables or as many as they bear: nearly all allocs find a quick one. (Once those
 * who needed room in the tables took it from all the quick blocks, again and again.) */
TEST(quick_blocks_serve_however_full_the_tables_are) {
  enum { MOST = 4200 };
  static vmm__u64 address[MOST];
  vmm__u64 random = 5;

  for (vmm__u64 live = 380; live <= MOST; live += live / 32) {
    vmm__u64 served = 0, pairs = live * 6;
    long calls = 0;

    CHECK_CALL(start(4096 * MIB));
    for (vmm__u64 i = 0; i < live; i++) address[i] = take((1 + index_random(&random) % 1000) * UNIT);
    for (vmm__u64 i = 0; i < pairs; i++) {
      vmm__u64 *victim = &address[index_random(&random) % live], units = 1 + index_random(&random) % 1000;

      CHECK(give(*victim));
      if (i == pairs / 2) {
        served = 0;
        calls = memory.calls;
      }
      *victim = vmm__space_ready(&space) ? vmm__quick_alloc(&space, VMM__ARENA_IDLE, units, units * UNIT) : 0;
      served += *victim != 0;
      if (*victim == 0) *victim = take(units * UNIT);
      CHECK(*victim != 0);
    }
    CHECK(served > pairs / 2 * 9 / 10);
    CHECK_EQ(memory.calls, calls);
    for (vmm__u64 i = 0; i < live; i++) CHECK(give(address[i]));
    CHECK_CALL(space_close());
  }
}

TEST(quick_blocks_stay_when_the_hash_grows) {
  enum { COUNT = 20000 };
  static vmm__u64 address[COUNT];
  vmm__u64 kept = 0;

  CHECK_CALL(start(512 * MIB));
  for (int i = 0; i < COUNT; i++) {
    address[i] = take((1 + (vmm__u64)i % 100) * UNIT);
    CHECK(address[i] != 0);
    if (i % 3 == 0) {
      CHECK(give(address[i]));
      address[i] = 0;
    }
    if (i == 500 || i % 4000 == 0) CHECK_CALL(space_check());
  }
  CHECK_CALL(space_check());
  for (int i = 0; i < COUNT; i++) {
    if (address[i] == 0) continue;
    kept += vmm__quick_free(&space, address[i], VMM__ARENA_IDLE);
    (void)vmm__space_free(&space, address[i], VMM__ARENA_IDLE, NULL);
    CHECK(!give(address[i]));
  }
  CHECK(kept > 1000);
  CHECK_EQ(space.block_count, 0);
  CHECK_EQ(vmm__space_largest(&space), 512 * MIB);
  CHECK_CALL(space_close());
}

RUN_TESTS()
