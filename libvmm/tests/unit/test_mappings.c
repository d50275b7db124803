/* The table of mappings. */
#include "check.h"
#include "index_memory.h"

#define BASE (1ull << 40)
#define G 4096ull

static index_memory memory;
static vmm__mappings table;

static void start(void) {
  index_memory_init(&memory);
  vmm__mappings_init(&table);
}

static void finish(void) {
  const char *what = "";

  if (!vmm__mappings_check(&table, &what)) check_fail(__FILE__, __LINE__, what);
  CHECK_EQ(memory.locked_calls, 0);
  vmm__mappings_destroy(&table, &memory.table);
  CHECK_EQ(memory.out, 0);
}

static void put(vmm__u64 address, vmm__u64 size) {
  vmm__u64 hint = vmm__mappings_short(&table, 1);
  vmm__mapping *entry;

  if (hint != 0) {
    vmm__mappings_spare spare;

    CHECK(vmm__mappings_spare_make(&spare, &memory.table, hint));
    memory.locked = true;
    vmm__mappings_spare_adopt(&table, &spare);
    memory.locked = false;
    vmm__mappings_spare_release(&spare, &memory.table);
    CHECK_EQ(vmm__mappings_short(&table, 1), 0);
  }
  memory.locked = true;
  entry = vmm__mappings_insert(&table, (vmm__mapping){address, size, address / G, &table, 3, 0, 0});
  memory.locked = false;
  CHECK_EQ(entry->address, address);
  CHECK_EQ(entry->generation, address / G);
}

TEST(mappings_empty) {
  CHECK_CALL(start());
  CHECK(vmm__mappings_find(&table, BASE) == NULL);
  CHECK(!vmm__mappings_remove(&table, BASE, NULL));
  CHECK_EQ(vmm__mappings_lower_bound(&table, 0), 0);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 4 * G, 4 * G, G), BASE);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 4 * G, 5 * G, G), 0);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 4 * G, UINT64_MAX, G), 0);
  CHECK_EQ(vmm__mappings_gap_after(&table, BASE + G, BASE + 4 * G), 3 * G);
  CHECK(vmm__mappings_short(&table, UINT64_MAX) != 0);
  CHECK_CALL(finish());
}

TEST(mappings_are_found_by_any_address_in_them) {
  vmm__mapping out;

  CHECK_CALL(start());
  CHECK_CALL(put(BASE + 8 * G, 2 * G));
  CHECK_CALL(put(BASE, G));
  CHECK_CALL(put(BASE + 4 * G, 2 * G));
  CHECK_EQ(table.count, 3);
  CHECK_EQ(table.bytes, 5 * G);
  CHECK_EQ(vmm__mappings_at(&table, 1)->address, BASE + 4 * G);
  CHECK_EQ(vmm__mappings_find(&table, BASE)->address, BASE);
  CHECK_EQ(vmm__mappings_find(&table, BASE + G - 1)->address, BASE);
  CHECK(vmm__mappings_find(&table, BASE + G) == NULL);
  CHECK(vmm__mappings_find(&table, BASE - 1) == NULL);
  CHECK(vmm__mappings_find(&table, BASE + 10 * G) == NULL);
  CHECK(vmm__mappings_find(&table, UINT64_MAX) == NULL);
  CHECK_EQ(vmm__mappings_find(&table, BASE + 9 * G)->address, BASE + 8 * G);
  CHECK_EQ(vmm__mappings_lower_bound(&table, BASE + G), 1);
  CHECK_EQ(vmm__mappings_lower_bound(&table, BASE + 10 * G), 3);
  CHECK(!vmm__mappings_remove(&table, BASE + 5 * G, &out));
  CHECK(vmm__mappings_remove(&table, BASE + 4 * G, &out));
  CHECK_EQ(out.size, 2 * G);
  CHECK_EQ(out.state, 3);
  CHECK(out.handle == &table);
  CHECK(vmm__mappings_find(&table, BASE + 4 * G) == NULL);
  CHECK_EQ(table.bytes, 3 * G);
  CHECK_CALL(finish());
}

TEST(mappings_gaps_are_found_lowest_first) {
  CHECK_CALL(start());
  CHECK_CALL(put(BASE, 2 * G));
  CHECK_CALL(put(BASE + 3 * G, G));
  CHECK_CALL(put(BASE + 6 * G, G));
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 16 * G, G, G), BASE + 2 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 16 * G, 2 * G, G), BASE + 4 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 16 * G, 3 * G, G), BASE + 7 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 16 * G, 9 * G, G), BASE + 7 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 16 * G, 10 * G, G), 0);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 5 * G, 2 * G, G), 0);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE, BASE + 16 * G, G, 4 * G), BASE + 4 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE + 3 * G, BASE + 16 * G, G, G), BASE + 4 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, BASE + 7 * G, BASE + 16 * G, G, G), BASE + 7 * G);
  CHECK_EQ(vmm__mappings_gap_after(&table, BASE + 2 * G, BASE + 16 * G), G);
  CHECK_EQ(vmm__mappings_gap_after(&table, BASE + 3 * G, BASE + 16 * G), 0);
  CHECK_EQ(vmm__mappings_gap_after(&table, BASE + 5 * G, BASE + 16 * G), G);
  CHECK_EQ(vmm__mappings_gap_after(&table, BASE + 7 * G, BASE + 16 * G), 9 * G);
  CHECK_EQ(vmm__mappings_gap_after(&table, BASE + 16 * G, BASE + 16 * G), 0);
  CHECK_CALL(finish());
}

TEST(mappings_at_the_top_of_the_address_space) {
  vmm__u64 top = 0 - 4 * G;

  CHECK_CALL(start());
  CHECK_CALL(put(top, 3 * G));
  CHECK_EQ(vmm__mappings_lowest_gap(&table, top, UINT64_MAX, G, G), 0);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, top, UINT64_MAX, 1, G), top + 3 * G);
  CHECK_EQ(vmm__mappings_lowest_gap(&table, top, UINT64_MAX, G, 8 * G), 0);
  CHECK(vmm__mappings_find(&table, UINT64_MAX) == NULL);
  CHECK_CALL(finish());
}

TEST(mappings_agree_with_a_map_of_granules) {
  enum { GRANULES = 512 };
  uint16_t at[GRANULES] = {0};
  vmm__u64 random = 42;
  const char *what = "";
  long done = 0;

  CHECK_CALL(start());
  for (int i = 0; i < 20000; i++) {
    vmm__u64 a = index_random(&random) % GRANULES, length = 1 + index_random(&random) % 12, gap;
    uint16_t number = at[a];

    if (i % 3 != 0 || number == 0) {
      bool fits = a + length <= GRANULES;

      for (vmm__u64 k = a; fits && k < a + length; k++) fits = at[k] == 0;
      if (fits) CHECK_CALL(put(BASE + a * G, length * G));
      for (vmm__u64 k = a; fits && k < a + length; k++) at[k] = (uint16_t)(a + 1);
      done += fits;
    } else {
      CHECK(vmm__mappings_remove(&table, BASE + (number - 1u) * G, NULL));
      for (int k = 0; k < GRANULES; k++) at[k] = at[k] == number ? 0 : at[k];
    }
    gap = vmm__mappings_lowest_gap(&table, BASE, BASE + GRANULES * G, length * G, G);
    for (vmm__u64 k = 0, run = 0; k <= GRANULES; k++) {
      if (k == GRANULES) {
        CHECK_EQ(gap, 0);
        break;
      }
      run = at[k] == 0 ? run + 1 : 0;
      if (run < length) continue;
      CHECK_EQ(gap, BASE + (k + 1 - length) * G);
      break;
    }
    if (i % 64 == 0) CHECK(vmm__mappings_check(&table, &what));
    for (vmm__u64 k = a;; k++) {
      if (k < GRANULES && at[k] != 0) continue;
      CHECK_EQ(vmm__mappings_first_unmapped(&table, BASE + a * G + 1), k == a ? BASE + a * G + 1 : BASE + k * G);
      break;
    }
    number = at[a];
    CHECK_EQ(vmm__mappings_find(&table, BASE + a * G + 1) != NULL, number != 0);
    if (number != 0) CHECK_EQ(vmm__mappings_find(&table, BASE + a * G + 1)->address, BASE + (number - 1u) * G);
  }
  CHECK(done > 1000);
  CHECK_CALL(finish());
}

TEST(mappings_survive_host_memory_running_out) {
  vmm__mappings_spare spare;
  vmm__u64 hint;

  CHECK_CALL(start());
  for (vmm__u64 i = 0; (hint = vmm__mappings_short(&table, 1)) == 0 || i < 40; i++) CHECK_CALL(put(BASE + i * G, G));
  memory.fail_in = 1;
  CHECK(!vmm__mappings_spare_make(&spare, &memory.table, hint));
  vmm__mappings_spare_release(&spare, &memory.table);
  CHECK(!vmm__mappings_spare_make(&spare, &memory.table, UINT64_MAX));
  vmm__mappings_spare_release(&spare, &memory.table);
  CHECK(vmm__mappings_find(&table, BASE + 39 * G) != NULL);
  CHECK_CALL(finish());
}

TEST(mappings_check_notices_damage) {
  const char *what = NULL;

  CHECK_CALL(start());
  CHECK_CALL(put(BASE, G));
  CHECK_CALL(put(BASE + G, G));
  CHECK(vmm__mappings_check(&table, &what));
  table.entries[0].size = 2 * G;
  CHECK(!vmm__mappings_check(&table, &what));
  table.entries[0].size = 0;
  CHECK(!vmm__mappings_check(&table, &what));
  table.entries[0].size = G;
  table.bytes++;
  CHECK(!vmm__mappings_check(&table, &what));
  table.bytes--;
  table.prefix--;
  CHECK(!vmm__mappings_check(&table, &what));
  table.prefix = 3;
  CHECK(!vmm__mappings_check(&table, &what));
  table.prefix = 2;
  CHECK(vmm__mappings_check(&table, &what));
  CHECK_CALL(finish());
}

RUN_TESTS()
