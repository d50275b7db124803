/* How much to grow. */
#include "check.h"
#include "index/growth.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define G (2 * MIB)

static vmm__growth usual(vmm__u64 committed, vmm__u64 request) {
  return (vmm__growth){committed, request, 2 * MIB, 128 * MIB, G, UINT64_MAX, UINT64_MAX};
}

static vmm__u64 size_of(vmm__growth growth) {
  vmm__u64 size = 12345;

  return vmm__growth_size(&growth, &size) == VMM__GROWTH_OK ? size : 0;
}

TEST(growth_is_an_eighth_of_the_pool_between_its_bounds) {
  CHECK_EQ(size_of(usual(0, 1)), 2 * MIB);
  CHECK_EQ(size_of(usual(16 * MIB, 1)), 2 * MIB);
  CHECK_EQ(size_of(usual(17 * MIB, 1)), 4 * MIB);
  CHECK_EQ(size_of(usual(256 * MIB, 1)), 32 * MIB);
  CHECK_EQ(size_of(usual(GIB, 1)), 128 * MIB);
  CHECK_EQ(size_of(usual(64 * GIB, 1)), 128 * MIB);
  CHECK_EQ(size_of(usual(UINT64_MAX, 1)), 128 * MIB);
}

TEST(growth_is_the_request_if_that_is_larger) {
  CHECK_EQ(size_of(usual(0, 2 * MIB)), 2 * MIB);
  CHECK_EQ(size_of(usual(0, 2 * MIB + 1)), 4 * MIB);
  CHECK_EQ(size_of(usual(0, 8 * GIB)), 8 * GIB);
  CHECK_EQ(size_of(usual(64 * GIB, 8 * GIB - 1)), 8 * GIB);
}

TEST(growth_is_cut_to_what_is_left_but_not_below_the_request) {
  vmm__growth growth = usual(GIB, 3 * MIB);
  vmm__u64 size;

  growth.limit_left = 10 * MIB;
  CHECK_EQ(size_of(growth), 10 * MIB);
  growth.limit_left = 5 * MIB;
  CHECK_EQ(size_of(growth), 4 * MIB);
  growth.limit_left = 4 * MIB;
  CHECK_EQ(size_of(growth), 4 * MIB);
  growth.limit_left = 4 * MIB - 1;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_LIMIT);
  CHECK_EQ(size, 0);
  growth.limit_left = 0;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_LIMIT);
  growth.limit_left = 64 * MIB;
  growth.room = 6 * MIB;
  CHECK_EQ(size_of(growth), 6 * MIB);
  growth.room = 2 * MIB;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_ROOM);
  CHECK_EQ(size, 0);
}

TEST(growth_answers_sizes_that_cannot_be_rounded) {
  vmm__growth growth = usual(0, UINT64_MAX);
  vmm__u64 size;

  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OVERFLOW);
  growth.request = UINT64_MAX - G + 2;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OVERFLOW);
  growth.request = UINT64_MAX - G + 1; /* the largest multiple */
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OK);
  CHECK_EQ(size, UINT64_MAX - G + 1);
  growth = usual(UINT64_MAX, 1);
  growth.mapping_max = UINT64_MAX;
  growth.mapping_min = UINT64_MAX;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OK);
  CHECK_EQ(size, UINT64_MAX - G + 1);
}

TEST(growth_rounds_to_granularities_that_are_no_powers_of_two) {
  vmm__growth growth = usual(100 * MIB, 1);

  growth.granularity = 3 * MIB;
  CHECK_EQ(size_of(growth), 15 * MIB);
  growth.limit_left = 14 * MIB;
  CHECK_EQ(size_of(growth), 12 * MIB);
}

TEST(growth_gets_smaller_down_to_the_request) {
  vmm__u64 size = 128 * MIB, steps = 0;

  while (size != 0) {
    vmm__u64 next = vmm__growth_smaller(size, 5 * MIB, G);

    CHECK(next < size);
    CHECK(next == 0 || (next >= 6 * MIB && next % G == 0));
    if (next == 0) CHECK_EQ(size, 6 * MIB);
    size = next;
    steps++;
  }
  CHECK_EQ(steps, 6); /* 64, 32, 16, 8, 6, done */
  CHECK_EQ(vmm__growth_smaller(G, 1, G), 0);
  CHECK_EQ(vmm__growth_smaller(2 * G, 1, G), G);
  CHECK_EQ(vmm__growth_smaller(G, 0, G), 0);
  CHECK_EQ(vmm__growth_smaller(128 * MIB, UINT64_MAX, G), 0);
}

TEST(reservation_is_four_times_the_memory_and_halves_down_to_its_floor) {
  CHECK_EQ(vmm__growth_reservation(80 * GIB, 0, G), 320 * GIB);
  CHECK_EQ(vmm__growth_reservation(80 * GIB + 1, 0, G), 320 * GIB + G);
  CHECK_EQ(vmm__growth_reservation(GIB, 8 * GIB, G), 8 * GIB);
  CHECK_EQ(vmm__growth_reservation(0, 0, G), G);
  CHECK_EQ(vmm__growth_reservation(UINT64_MAX, 0, G), 0);
  CHECK_EQ(vmm__growth_reservation(UINT64_MAX / 4, 0, G), 0);
  CHECK_EQ(vmm__growth_reservation_smaller(320 * GIB, 0, G), 160 * GIB);
  CHECK_EQ(vmm__growth_reservation_smaller(3 * GIB / 2, 0, G), GIB);
  CHECK_EQ(vmm__growth_reservation_smaller(GIB, 0, G), 0);
  CHECK_EQ(vmm__growth_reservation_smaller(10 * GIB, 8 * GIB, G), 8 * GIB);
  CHECK_EQ(vmm__growth_reservation_smaller(8 * GIB, 8 * GIB, G), 0);
  CHECK_EQ(vmm__growth_reservation_smaller(GIB / 2, 0, G), 0);
}

RUN_TESTS()
