/* The free space of a pool, case by case. */
#include "space_world.h"

static void start(vmm__u64 mapped) {
  CHECK_CALL(space_open(1, 0));
  if (mapped != 0) vmm__space_add(&space, VMM__ARENA_IDLE, BASE, mapped);
}

static vmm__u64 take(vmm__u64 size) { return vmm__space_alloc(&space, VMM__ARENA_IDLE, size, UNIT, size, 0); }

TEST(space_that_is_empty_answers_every_question) {
  vmm__space_walk walk = {0, 0, 0, 0};
  vmm__u64 address, length;
  const char *what = "";
  vmm__block block;

  index_memory_init(&memory);
  vmm__space_init(&space, &memory.table, BASE);
  CHECK(!vmm__space_ready(&space));
  CHECK(vmm__space_short(&space, 1, 0) != 0);
  CHECK(!vmm__space_free(&space, BASE, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_find(&space, BASE, &block));
  CHECK(!vmm__space_next_block(&space, 0, &block));
  CHECK_EQ(vmm__space_largest(&space), 0);
  CHECK_EQ(vmm__space_bytes_in(&space, 0, UINT64_MAX), 0);
  CHECK_EQ(vmm__space_free_before(&space, BASE, VMM__ARENA_IDLE, VMM__ARENA_IDLE), 0);
  CHECK(!vmm__space_next_free(&space, &walk, UNIT, &address, &length));
  CHECK(vmm__space_check(&space, &what));
  CHECK_EQ(memory.calls, 0);
  CHECK(index_memory_reserve(&memory, &space, 1));
  CHECK(vmm__space_ready(&space));
  memory.locked = true;
  CHECK_EQ(take(UNIT), 0);
  CHECK(!vmm__space_free(&space, BASE, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_find(&space, BASE, &block));
  CHECK(!vmm__space_take(&space, BASE, UNIT, NULL));
  CHECK_CALL(space_close());
}

TEST(space_gives_back_all_that_was_cut_from_it) {
  vmm__u64 a, b, c;
  vmm__block out;

  CHECK_CALL(start(MIB));
  a = take(UNIT);
  b = vmm__space_alloc(&space, VMM__ARENA_IDLE, 1024, UNIT, 1000, 77);
  c = take(MIB - UNIT - 1024);
  CHECK_EQ(a, BASE);
  CHECK_EQ(b, BASE + UNIT);
  CHECK_EQ(c, b + 1024);
  CHECK_EQ(take(UNIT), 0);
  CHECK_EQ(space.block_count, 3);
  CHECK_EQ(space.block_bytes, MIB);
  CHECK_EQ(space.requested_bytes, MIB - 24);
  CHECK_EQ(vmm__space_free_bytes(&space), 0);
  CHECK(vmm__space_free(&space, b, VMM__ARENA_IDLE, &out));
  CHECK_EQ(out.address, b);
  CHECK_EQ(out.size, 1024);
  CHECK_EQ(out.requested, 1000);
  CHECK_EQ(out.tag, 77);
  CHECK_EQ(vmm__space_largest(&space), 1024);
  CHECK(vmm__space_free(&space, a, VMM__ARENA_IDLE, &out));
  CHECK_EQ(out.tag, 0);
  CHECK_EQ(vmm__space_largest(&space), 1024 + UNIT);
  CHECK(vmm__space_free(&space, c, VMM__ARENA_IDLE, NULL));
  CHECK_EQ(vmm__space_largest(&space), MIB);
  CHECK_EQ(take(MIB), BASE);
  CHECK(vmm__space_free(&space, BASE, VMM__ARENA_IDLE, NULL));
  CHECK_CALL(space_close());
}

TEST(space_frees_only_what_starts_a_live_block) {
  vmm__u64 a;

  CHECK_CALL(start(MIB));
  a = take(4096);
  CHECK(!vmm__space_free(&space, 0, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_free(&space, a + 1, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_free(&space, a + UNIT, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_free(&space, a + 4096, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_free(&space, UINT64_MAX, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_free(&space, UINT64_MAX - 255, VMM__ARENA_IDLE, NULL));
  CHECK_EQ(space.block_bytes, 4096);
  CHECK(vmm__space_free(&space, a, VMM__ARENA_IDLE, NULL));
  CHECK(!vmm__space_free(&space, a, VMM__ARENA_IDLE, NULL));
  CHECK_CALL(space_close());
}

TEST(space_finds_the_only_range_that_fits_whatever_its_bin_holds) {
  vmm__u64 size = 1 * MIB; /* its bin holds sizes of up to 16 KiB more */
  vmm__u64 fitting = 0;

  CHECK_CALL(start(0));
  /* A hundred ranges of the same bin, all but the first one too short, none of them touching. */
  for (vmm__u64 i = 0; i < 100; i++) {
    CHECK(index_memory_reserve(&memory, &space, 1));
    vmm__space_add(&space, VMM__ARENA_IDLE, BASE + i * 4 * MIB, size + (i == 0 ? 4 * UNIT : i % 3 * UNIT));
  }
  fitting = vmm__space_alloc(&space, VMM__ARENA_IDLE, size + 4 * UNIT, UNIT, 1, 0);
  CHECK_EQ(fitting, BASE);
  CHECK_EQ(take(size + 3 * UNIT), 0);
  CHECK(take(size + 2 * UNIT) != 0);
  CHECK_CALL(space_close());
}

TEST(space_aligns) {
  vmm__u64 a, b;

  CHECK_CALL(start(0));
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + UNIT, 8 * MIB);
  for (vmm__u64 alignment = UNIT; alignment <= 4 * MIB; alignment *= 2) {
    a = vmm__space_alloc(&space, VMM__ARENA_IDLE, 768, alignment, 700, alignment);
    CHECK(a != 0);
    CHECK_EQ(a % alignment, 0);
    b = vmm__space_alloc(&space, VMM__ARENA_IDLE, 768, alignment, 700, 0);
    CHECK(b != 0 || alignment >= 4 * MIB); /* two multiples of 4 MiB with 768 bytes behind do not fit */
    CHECK_EQ(b % alignment, 0);
    CHECK(vmm__space_free(&space, a, VMM__ARENA_IDLE, NULL));
    if (b != 0) CHECK(vmm__space_free(&space, b, VMM__ARENA_IDLE, NULL));
    CHECK_EQ(vmm__space_largest(&space), 8 * MIB);
  }
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, UNIT, 1ull << 63, 1, 0), 0);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, UNIT, 1ull << 40, 1, 0), 0);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, 1ull << 63, UNIT, 1, 0), 0);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, 0 - UNIT, UNIT, 1, 0), 0);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, 0 - UNIT, 1ull << 63, 1, 0), 0);
  CHECK_CALL(space_close());
}

TEST(space_finds_the_only_place_an_alignment_leaves) {
  /* Many ranges long enough but badly placed, one shorter one placed well. */
  CHECK_CALL(start(0));
  for (vmm__u64 i = 0; i < 200; i++) {
    CHECK(index_memory_reserve(&memory, &space, 1));
    vmm__space_add(&space, VMM__ARENA_IDLE, BASE + i * MIB + UNIT, MIB / 2 + i * UNIT);
  }
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + 300 * MIB, MIB / 2);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, MIB / 2, MIB, 1, 0), BASE + 300 * MIB);
  CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, MIB / 2, MIB, 1, 0), 0);
  CHECK_CALL(space_close());
}

TEST(space_keeps_a_block_within_one_mapping_when_told) {
  vmm__mappings table;
  vmm__mappings_spare spare;
  vmm__u64 a, b;

  CHECK_CALL(start(0));
  memory.locked = false;
  vmm__mappings_init(&table);
  CHECK(vmm__mappings_spare_make(&spare, &memory.table, vmm__mappings_short(&table, 4)));
  vmm__mappings_spare_adopt(&table, &spare);
  vmm__mappings_spare_release(&spare, &memory.table);
  memory.locked = true;
  for (vmm__u64 i = 0; i < 4; i++) {
    vmm__mappings_insert(&table, (vmm__mapping){BASE + i * MIB, MIB, 0, NULL, 1, 0, 0});
    vmm__space_add(&space, VMM__ARENA_IDLE, BASE + i * MIB, MIB);
  }
  CHECK_EQ(vmm__space_largest(&space), 4 * MIB); /* neighbours join across mappings */
  CHECK_EQ(vmm__space_alloc_within(&space, VMM__ARENA_IDLE, MIB + UNIT, UNIT, 1, 0, &table), 0);
  a = take(UNIT);
  b = vmm__space_alloc_within(&space, VMM__ARENA_IDLE, MIB, UNIT, MIB, 5, &table);
  CHECK_EQ(a, BASE);
  CHECK_EQ(b, BASE + MIB);
  CHECK_EQ(vmm__space_alloc_within(&space, VMM__ARENA_IDLE, MIB / 2 + UNIT, MIB / 2, 1, 0, &table), BASE + 2 * MIB);
  CHECK_EQ(vmm__space_alloc_within(&space, VMM__ARENA_IDLE, MIB - UNIT, UNIT, 1, 0, &table), BASE + UNIT);
  CHECK_EQ(take(MIB + UNIT), BASE + 2 * MIB + MIB / 2 + UNIT); /* others may span */
  memory.locked = false;
  vmm__mappings_destroy(&table, &memory.table);
  memory.locked = true;
  CHECK_CALL(space_close());
}

TEST(space_take_removes_only_what_is_wholly_free) {
  vmm__u64 a;

  CHECK_CALL(start(4 * MIB));
  a = take(MIB);
  CHECK(!vmm__space_take(&space, a, MIB, NULL));
  CHECK(!vmm__space_take(&space, a + MIB - UNIT, 2 * UNIT, NULL));
  CHECK(!vmm__space_take(&space, BASE + 4 * MIB - UNIT, 2 * UNIT, NULL));
  CHECK(!vmm__space_take(&space, BASE + 3 * MIB, 0, NULL));
  CHECK(!vmm__space_take(&space, BASE + 3 * MIB, 0 - UNIT, NULL));
  CHECK_EQ(space.total_bytes, 4 * MIB);
  CHECK(vmm__space_take(&space, BASE + 2 * MIB, MIB, NULL)); /* from the middle */
  CHECK_EQ(space.total_bytes, 3 * MIB);
  CHECK(!vmm__space_take(&space, BASE + 2 * MIB, UNIT, NULL));
  CHECK_EQ(vmm__space_largest(&space), MIB);
  CHECK(vmm__space_take(&space, BASE + 3 * MIB, MIB, NULL));         /* a whole range */
  CHECK(vmm__space_take(&space, BASE + MIB, UNIT, NULL));            /* the front */
  CHECK(vmm__space_take(&space, BASE + 2 * MIB - UNIT, UNIT, NULL)); /* the end */
  CHECK_EQ(vmm__space_free_bytes(&space), MIB - 2 * UNIT);
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + 3 * MIB, MIB);
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + 2 * MIB - UNIT, UNIT);
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + MIB, UNIT);
  vmm__space_add(&space, VMM__ARENA_IDLE, BASE + 2 * MIB, MIB);
  CHECK_EQ(vmm__space_largest(&space), 3 * MIB);
  CHECK_CALL(space_close());
}

TEST(space_says_what_is_free_next_to_an_address) {
  vmm__u64 a, b;

  CHECK_CALL(start(MIB));
  a = take(MIB / 2);
  CHECK_EQ(vmm__space_free_before(&space, BASE + MIB, VMM__ARENA_IDLE, VMM__ARENA_IDLE), MIB / 2);
  CHECK_EQ(vmm__space_free_before(&space, BASE + MIB + UNIT, VMM__ARENA_IDLE, VMM__ARENA_IDLE), 0);
  CHECK_EQ(vmm__space_free_before(&space, a + MIB / 2, VMM__ARENA_IDLE, VMM__ARENA_IDLE), 0);
  CHECK_EQ(vmm__space_free_before(&space, 0, VMM__ARENA_IDLE, VMM__ARENA_IDLE), 0);
  b = take(MIB / 2);
  CHECK(b != 0);
  CHECK_EQ(vmm__space_free_before(&space, BASE + MIB, VMM__ARENA_IDLE, VMM__ARENA_IDLE), 0);
  CHECK_CALL(space_close());
}

TEST(space_lists_blocks_by_rising_address) {
  vmm__u64 sizes = 0, count = 0, at = 0;
  vmm__block block;

  CHECK_CALL(start(4 * MIB));
  for (vmm__u64 i = 0; i < 500; i++)
    CHECK(vmm__space_alloc(&space, VMM__ARENA_IDLE, 1024, UNIT, 1000 + i % 24, i) != 0);
  for (vmm__u64 i = 0; i < 500; i += 3) CHECK(vmm__space_free(&space, BASE + i * 1024, VMM__ARENA_IDLE, NULL));
  while (vmm__space_next_block(&space, at, &block)) {
    vmm__u64 i = (block.address - BASE) / 1024;

    CHECK(block.address >= at);
    CHECK(i % 3 != 0);
    CHECK_EQ(block.tag, i);
    CHECK_EQ(block.requested, 1000 + i % 24);
    CHECK_EQ(vmm__space_bytes_in(&space, block.address - 512, 1024), i % 3 == 2 ? 1024 : 512);
    at = block.address + block.size;
    sizes += block.size;
    count++;
  }
  CHECK_EQ(count, space.block_count);
  CHECK_EQ(sizes, vmm__space_bytes_in(&space, BASE, 4 * MIB));
  CHECK_EQ(vmm__space_bytes_in(&space, BASE + 1024 + 1, 1), 1);
  CHECK_EQ(vmm__space_bytes_in(&space, BASE, 1024), 0);
  CHECK(vmm__space_find(&space, BASE + 4 * 1024 + 1023, &block));
  CHECK_EQ(block.address, BASE + 4 * 1024);
  CHECK(!vmm__space_find(&space, BASE + 3 * 1024 + 5, &block));
  CHECK(!vmm__space_find(&space, BASE - 1, &block));
  CHECK_CALL(space_close());
}

TEST(space_survives_host_memory_running_out_while_reserving) {
  vmm__u64 hint;

  CHECK_CALL(start(MIB));
  CHECK(take(UNIT) != 0);
  hint = vmm__space_short(&space, 100000, 0);
  CHECK(hint != 0);
  memory.locked = false;
  for (long n = 1;; n++) {
    long long before = memory.out;
    vmm__space_spare *spare;

    memory.fail_in = n;
    spare = vmm__space_spare_make(&memory.table, hint);
    if (spare != NULL) {
      CHECK(n > 3);
      CHECK(memory.fail_in > 0);
      memory.fail_in = 0;
      vmm__space_spare_release(&memory.table, spare);
      CHECK_EQ(memory.out, before);
      break;
    }
    CHECK_EQ(memory.out, before);
  }
  vmm__space_spare_release(&memory.table, NULL);
  memory.locked = true;
  CHECK(vmm__space_free(&space, BASE, VMM__ARENA_IDLE, NULL));
  CHECK_CALL(space_close());
}

TEST(space_takes_spares_that_two_threads_made_for_the_same_need) {
  vmm__space_spare *spares[3];
  vmm__u64 hint;

  CHECK_CALL(start(64 * MIB));
  hint = vmm__space_short(&space, 50000, 0);
  memory.locked = false;
  for (int i = 0; i < 3; i++) {
    spares[i] = vmm__space_spare_make(&memory.table, hint);
    CHECK(spares[i] != NULL);
  }
  for (int i = 0; i < 3; i++) {
    memory.locked = true;
    vmm__space_spare_adopt(&space, spares[i]);
    memory.locked = false;
    vmm__space_spare_release(&memory.table, spares[i]);
  }
  CHECK_EQ(vmm__space_short(&space, 50000, 0), 0);
  memory.locked = true;
  for (int i = 0; i < 50000; i++) {
    CHECK(vmm__space_ready(&space));
    CHECK(take(UNIT) != 0);
  }
  CHECK_CALL(space_close());
}

TEST(space_grows_its_records_while_blocks_live) {
  enum { COUNT = 60000 };
  vmm__block block;

  CHECK_CALL(start(64 * MIB));
  for (vmm__u64 i = 0; i < COUNT; i++) {
    if (!vmm__space_ready(&space)) CHECK(index_memory_reserve(&memory, &space, 1));
    CHECK_EQ(vmm__space_alloc(&space, VMM__ARENA_IDLE, UNIT, UNIT, i % 256, i), BASE + i * UNIT);
  }
  for (vmm__u64 i = 0; i < COUNT; i += 2) {
    CHECK(vmm__space_free(&space, BASE + i * UNIT, VMM__ARENA_IDLE, &block));
    CHECK_EQ(block.tag, i);
    CHECK_EQ(block.requested, i % 256);
  }
  CHECK_EQ(space.block_count, COUNT / 2);
  CHECK_EQ(vmm__space_bytes_in(&space, BASE, 64 * MIB), COUNT / 2 * UNIT);
  for (vmm__u64 i = 1; i < COUNT; i += 2) CHECK(vmm__space_free(&space, BASE + i * UNIT, VMM__ARENA_IDLE, NULL));
  CHECK_EQ(vmm__space_largest(&space), 64 * MIB);
  CHECK_CALL(space_close());
}

TEST(space_prefers_low_addresses_among_equals) {
  for (int rising = 0; rising < 2; rising++) {
    CHECK_CALL(start(0));
    for (vmm__u64 i = 0; i < 6; i++)
      vmm__space_add(&space, VMM__ARENA_IDLE, BASE + (rising != 0 ? i : 5 - i) * 4 * MIB, MIB);
    CHECK_EQ(take(MIB), BASE);
    CHECK_CALL(space_close());
  }
}

RUN_TESTS()
