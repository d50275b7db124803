/* How much to grow. */
#include "check.h"
#include "index/growth.h"
#include "vmm/vmm.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define G (2 * MIB)

/* A pool on a device of 128 GiB or more. */
static vmm__growth usual(vmm__u64 committed, vmm__u64 live, vmm__u64 request) {
  return (vmm__growth){.policy = VMM_GROWTH_PROPORTIONAL,
                       .step = 64 * MIB,
                       .committed = committed,
                       .live = live,
                       .request = request,
                       .mapping_min = G,
                       .mapping_max = 64 * MIB,
                       .ahead_max = UINT64_MAX,
                       .small = 4 * GIB,
                       .granularity = G,
                       .limit_left = UINT64_MAX,
                       .room = UINT64_MAX};
}

static vmm__u64 size_of(vmm__growth growth) {
  vmm__u64 size = 12345;

  return vmm__growth_size(&growth, &size) == VMM__GROWTH_OK ? size : 0;
}

TEST(a_tiny_pool_quadruples) {
  CHECK_EQ(size_of(usual(0, 256, 256)), G);
  CHECK_EQ(size_of(usual(0, G, G)), G);
  CHECK_EQ(size_of(usual(G, G + 1, 1)), 3 * G);
  CHECK_EQ(size_of(usual(4 * MIB, 4 * MIB + 256, 256)), 12 * MIB);
  CHECK_EQ(size_of(usual(4 * MIB, 20 * MIB, 16 * MIB)), 28 * MIB); /* what is used counts if it is more */
  CHECK_EQ(size_of(usual(32 * MIB, 33 * MIB, MIB)), 96 * MIB);
  CHECK_EQ(size_of(usual(40 * MIB, 41 * MIB, MIB)), 88 * MIB); /* up to a 32nd of what is small */
}

TEST(a_small_pool_doubles_to_powers_of_two) {
  CHECK_EQ(size_of(usual(64 * MIB, 65 * MIB, MIB)), 64 * MIB);
  CHECK_EQ(size_of(usual(128 * MIB, 129 * MIB, MIB)), 128 * MIB);
  CHECK_EQ(size_of(usual(2 * GIB, 2 * GIB + G, G)), 2 * GIB);
  CHECK_EQ(size_of(usual(0, 100 * MIB, 100 * MIB)), 128 * MIB);
}

TEST(a_small_pool_in_shreds_grows_half_way_first) {
  static const struct {
    vmm__u64 committed, request, size;
  } cases[] = {{512 * MIB, MIB, 256 * MIB},
               {768 * MIB, 100 * MIB, 256 * MIB},
               {512 * MIB, 256 * MIB, 256 * MIB},
               {512 * MIB, 258 * MIB, 512 * MIB},
               {2 * GIB, MIB, GIB},
               {3 * GIB, MIB, GIB},
               {64 * MIB, MIB, 32 * MIB},
               {32 * MIB, MIB, 16 * MIB},
               {31 * MIB, MIB, 93 * MIB}, /* tiny: that would save nothing */
               {16 * MIB, MIB, 48 * MIB}};

  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    vmm__growth growth = usual(cases[i].committed, cases[i].committed, cases[i].request);

    growth.in_shreds = true;
    CHECK_EQ(vmm__growth_allowance(&growth), vmm__round_down(cases[i].size, G));
  }
  CHECK(vmm__growth_is_in_shreds(GIB / 4, GIB, GIB / 4));
  CHECK(!vmm__growth_is_in_shreds(GIB / 4, GIB, GIB / 4 - 1)); /* it would not fit */
  CHECK(!vmm__growth_is_in_shreds(MIB, GIB, GIB / 6));         /* there is little */
}

TEST(a_large_pool_stays_within_a_tenth_of_what_is_live) {
  vmm__u64 live;

  for (live = 4 * GIB; live < 200 * GIB; live += 777 * MIB) {
    vmm__u64 size = size_of(usual(live, live + G, G));

    CHECK(live + size <= live + G + (live + G) / 10);
    CHECK(live + size > live + live / 10 - G);
  }
}

TEST(what_is_committed_and_cannot_be_used_counts_against_the_growth) {
  CHECK_EQ(size_of(usual(11 * GIB, 10 * GIB, 30 * MIB)), 30 * MIB); /* a tenth more than is live already */
  CHECK_EQ(size_of(usual(20 * GIB, 10 * GIB, G)), G);
  CHECK_EQ(size_of(usual(512 * MIB, 300 * MIB, G)), 512 * MIB); /* but not in a small one */
  CHECK_EQ(size_of(usual(UINT64_MAX - GIB, UINT64_MAX - GIB, G)), vmm__round_down(GIB, G));
}

TEST(a_pool_on_a_small_device_is_no_longer_small) {
  vmm__growth growth = usual(GIB, GIB + G, G);

  CHECK_EQ(vmm__growth_small(8 * GIB), 256 * MIB);
  CHECK_EQ(vmm__growth_small(1024 * GIB), 4 * GIB);
  growth.small = vmm__growth_small(8 * GIB);
  CHECK_EQ(size_of(growth), vmm__round_down((GIB + G) / 10 + G, G));
  growth = usual(160 * MIB, 162 * MIB, G); /* doubles up to there only */
  growth.small = 200 * MIB;
  CHECK_EQ(size_of(growth), 40 * MIB);
}

TEST(growth_is_the_request_if_that_is_larger) {
  CHECK_EQ(size_of(usual(0, G + 1, G + 1)), 4 * MIB);
  CHECK_EQ(size_of(usual(0, 8 * GIB, 8 * GIB)), vmm__round_down(8 * GIB / 10 + 8 * GIB, G));
  CHECK_EQ(size_of(usual(80 * GIB, 64 * GIB, 8 * GIB - 1)), 8 * GIB);
}

TEST(other_policies_and_bounds) {
  vmm__growth growth = usual(10 * GIB, 10 * GIB, 30 * MIB);

  growth.policy = VMM_GROWTH_EXACT;
  CHECK_EQ(size_of(growth), 30 * MIB);
  growth.mapping_min = 50 * MIB;
  CHECK_EQ(size_of(growth), 50 * MIB);
  growth.policy = VMM_GROWTH_FIXED;
  CHECK_EQ(size_of(growth), 64 * MIB);
  growth.request = 70 * MIB;
  CHECK_EQ(size_of(growth), 70 * MIB);
  growth.policy = VMM_GROWTH_PROPORTIONAL;
  growth.ahead_max = 100 * MIB;
  CHECK_EQ(size_of(growth), 100 * MIB);
  growth.request = 200 * MIB;
  CHECK_EQ(size_of(growth), 200 * MIB);
}

TEST(what_is_at_hand_comes_first) {
  vmm__growth growth = usual(10 * GIB, 10 * GIB, 30 * MIB);

  growth.at_hand = 30 * MIB;
  CHECK_EQ(size_of(growth), 30 * MIB);
  growth.at_hand = 300 * MIB;
  CHECK_EQ(size_of(growth), 300 * MIB); /* handles map whole */
  growth.at_hand = 20 * MIB;
  CHECK_EQ(size_of(growth), 20 * MIB + GIB);
  growth.policy = VMM_GROWTH_EXACT;
  CHECK_EQ(size_of(growth), 30 * MIB);
}

TEST(growth_is_cut_to_what_is_left_but_not_below_the_request) {
  vmm__growth growth = usual(GIB, GIB + 3 * MIB, 3 * MIB);
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
  vmm__growth growth = usual(0, UINT64_MAX, UINT64_MAX);
  vmm__u64 size;

  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OVERFLOW);
  growth.request = UINT64_MAX - G + 2;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OVERFLOW);
  growth.request = UINT64_MAX - G + 1; /* the largest multiple */
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OK);
  CHECK_EQ(size, UINT64_MAX - G + 1);
  growth = usual(UINT64_MAX, UINT64_MAX, 1);
  growth.mapping_min = UINT64_MAX;
  CHECK_EQ(vmm__growth_size(&growth, &size), VMM__GROWTH_OK);
  CHECK_EQ(size, UINT64_MAX - G + 1);
}

TEST(growth_rounds_to_granularities_that_are_no_powers_of_two) {
  vmm__growth growth = usual(100 * MIB, 100 * MIB + 1, 1);

  growth.granularity = 3 * MIB;
  CHECK_EQ(size_of(growth), 27 * MIB);
  growth.limit_left = 14 * MIB;
  CHECK_EQ(size_of(growth), 12 * MIB);
}

TEST(what_is_created_comes_in_pieces_unless_the_request_is_most_of_the_pool) {
  vmm__growth growth = usual(10 * GIB, 10 * GIB, GIB);

  CHECK_EQ(vmm__growth_piece(&growth, GIB), 80 * MIB); /* a 128th of the pool */
  CHECK_EQ(vmm__growth_piece(&growth, 256 * MIB), 32 * MIB);
  CHECK_EQ(vmm__growth_piece(&growth, 40 * MIB), 8 * MIB);
  CHECK_EQ(vmm__growth_piece(&growth, 4 * MIB), 4 * MIB);
  growth.request = 10 * GIB;
  CHECK_EQ(vmm__growth_piece(&growth, 11 * GIB), 11 * GIB);
  growth = usual(100 * MIB, 100 * MIB, MIB);
  CHECK_EQ(vmm__growth_piece(&growth, GIB), 64 * MIB);
  growth.mapping_min = growth.mapping_max = 4 * MIB;
  CHECK_EQ(vmm__growth_piece(&growth, GIB), 4 * MIB);
  growth.mapping_min = growth.mapping_max = 1ull << 62; /* four times that is more than any size */
  CHECK_EQ(vmm__growth_piece(&growth, GIB), GIB);
}

TEST(pieces_are_finer_where_free_memory_lies_scattered) {
  vmm__growth growth = usual(10 * GIB, 10 * GIB, GIB);

  growth.scattered = 3 * MIB; /* blocks are small: a 1024th of the pool */
  CHECK_EQ(vmm__growth_piece(&growth, GIB), 10 * MIB);
  CHECK_EQ(vmm__growth_piece(&growth, 64 * MIB), 8 * MIB); /* an eighth was less */
  CHECK_EQ(vmm__growth_piece(&growth, 5 * GIB), 20 * MIB); /* no more than 256 in one growth */
  growth.scattered = 320 * MIB;                            /* an eighth of the mean block */
  CHECK_EQ(vmm__growth_piece(&growth, GIB), 40 * MIB);
  growth.scattered = 8 * GIB; /* never coarser than usual */
  CHECK_EQ(vmm__growth_piece(&growth, GIB), 80 * MIB);
  growth.scattered = 1;
  growth.request = 10 * GIB;
  CHECK_EQ(vmm__growth_piece(&growth, 11 * GIB), 11 * GIB);
  growth = usual(100 * MIB, 100 * MIB, MIB);
  growth.scattered = 1;
  CHECK_EQ(vmm__growth_piece(&growth, 512 * MIB), 4 * MIB); /* twice the smallest */
  CHECK_EQ(vmm__growth_piece(&growth, 3 * MIB), G);
  growth.mapping_min = growth.mapping_max = 4 * MIB;
  CHECK_EQ(vmm__growth_piece(&growth, GIB), 4 * MIB);
  growth.mapping_min = growth.mapping_max = 1ull << 62;
  CHECK_EQ(vmm__growth_piece(&growth, GIB), GIB);
}

TEST(less_is_made_ahead_where_free_memory_lies_scattered) {
  vmm__growth growth = usual(10 * GIB, 10 * GIB + MIB, MIB);

  growth.scattered = MIB;
  CHECK_EQ(vmm__growth_allowance(&growth), vmm__round_down((10 * GIB + MIB) / 11 + MIB, G));
}

TEST(memory_is_scattered_where_much_was_free_at_several_misses_or_most_at_one) {
  uint32_t scatter = 0;
  int misses;

  CHECK(!vmm__growth_is_scattered(vmm__growth_scatter(0, 0, 0)));
  CHECK(!vmm__growth_is_scattered(vmm__growth_scatter(0, GIB, GIB / 6)));
  CHECK(vmm__growth_is_scattered(vmm__growth_scatter(0, GIB, GIB / 4)));
  CHECK(vmm__growth_is_scattered(vmm__growth_scatter(0, UINT64_MAX, UINT64_MAX)));
  for (misses = 1; !vmm__growth_is_scattered(scatter); misses++)
    CHECK((scatter = vmm__growth_scatter(scatter, GIB, GIB / 10)) < 1u << 16);
  CHECK_EQ(misses, 4);
  for (misses = 0; misses < 100; misses++) scatter = vmm__growth_scatter(scatter, GIB, GIB / 30);
  CHECK(!vmm__growth_is_scattered(scatter));
  for (misses = 0; misses < 100; misses++) scatter = vmm__growth_scatter(scatter, 100 * GIB, 100 * GIB);
  CHECK(scatter <= 1u << 16);
  for (misses = 0; vmm__growth_is_scattered(scatter); misses++) scatter = vmm__growth_scatter(scatter, GIB, 0);
  CHECK_EQ(misses, 11); /* and is forgotten in as many in which nothing was */
}

/* The bounds that the replays hold it to, for demand that rises without a stop. */
TEST(growths_per_doubling_and_excess_are_bounded) {
  vmm__u64 committed = 0, live, growths = 0, at_small = 0;

  for (live = G; live <= 128 * GIB; live += G) {
    if (live <= committed) continue;
    committed += size_of(usual(committed, live, G));
    growths++;
    if (live <= 4 * GIB) at_small = growths;
    if (live <= 64 * MIB) CHECK(committed <= 4 * live);
    else CHECK(live < 4 * GIB ? committed <= 2 * live : committed <= live + live / 10);
  }
  CHECK_EQ(at_small, 9);
  CHECK(growths - at_small <= 5 * 7 + 3);
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
