/* Blocks: sizes, alignment, requests, frees, lookup and listings. */
#include "support/fixture.h"

static vmm_request request_of(u64 size) {
  vmm_request request;

  CHECK_OK_RETURN(vmm_request_init(&request, sizeof request), request);
  request.size = size;
  return request;
}

TEST(sizes_around_the_smallest_block_are_distinct_and_freeable) {
  static const u64 sizes[] = {0, 1, 127, 128, 129, 255, 256, 257, 0};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  u64 addresses[COUNT];
  vmm_block_info info;
  fixture f;
  int i, k;

  CHECK_CALL(fixture_open(&f, NULL));
  for (i = 0; i < COUNT; i++) {
    CHECK_CALL(addresses[i] = fixture_alloc(&f, sizes[i]));
    CHECK(addresses[i] != 0);
    CHECK_EQ(addresses[i] % 256, 0);
    for (k = 0; k < i; k++) CHECK(addresses[k] != addresses[i]);
    CHECK_OK(vmm_pool_find(f.pool, addresses[i], &info, NULL));
    CHECK_EQ(info.requested, sizes[i]);
    CHECK_EQ(info.size, sizes[i] <= 256 ? 256 : 512);
    CHECK_CALL(fixture_fill(&f, addresses[i], info.size, (u64)i));
  }
  for (i = 0; i < COUNT; i++) CHECK_CALL(fixture_expect(&f, addresses[i], sizes[i] <= 256 ? 256 : 512, (u64)i));
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < COUNT; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(odd_sizes_around_the_granule_all_fit_and_all_come_back) {
  const u64 g = 64 * KIB;
  const u64 sizes[] = {1, g - 1, g, g + 1, 2 * g + 1, 3 * g + 77, 5 * g + 12345, 7 * g - 1};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  u64 addresses[COUNT], done = 0;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  for (i = 0; i < COUNT; i++) {
    CHECK_CALL(addresses[i] = fixture_alloc(&f, sizes[i]));
    CHECK_CALL(fixture_fill(&f, addresses[i], sizes[i] & ~3ull, (u64)i));
    CHECK_CALL(fixture_compare(&f));
  }
  for (i = 0; i < COUNT; i++) CHECK_CALL(fixture_expect(&f, addresses[i], sizes[i] & ~3ull, (u64)i));
  for (i = 0; i < COUNT; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(impossible_sizes_are_refused_and_change_nothing) {
  const u64 g = 64 * KIB, sizes[] = {UINT64_MAX,         UINT64_MAX - 1, UINT64_MAX - 255,
                                     UINT64_MAX - g + 1, UINT64_MAX - g, UINT64_MAX - g - 1};
  enum { COUNT = sizeof sizes / sizeof sizes[0] };
  vmm_pool_stats before, after;
  u64 address, block, grown;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(block = fixture_alloc(&f, 1000));
  before = fixture_stats(f.pool);
  CHECK_CALL(fixture_forget_calls(&f));
  for (i = 0; i < COUNT; i++) {
    vmm_request request = request_of(sizes[i]);

    address = grown = 1;
    CHECK_STATUS_ERROR(vmm_pool_alloc(f.pool, sizes[i], &address, &f.error), VMM_ERROR_INVALID_ARGUMENT, &f.error);
    CHECK_EQ(address, 0);
    CHECK(f.error.message[0] != 0);
    address = 1;
    CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(address, 0);
    if (sizes[i] > UINT64_MAX - g + 1) {
      CHECK_STATUS(vmm_pool_grow(f.pool, sizes[i], &grown, NULL), VMM_ERROR_INVALID_ARGUMENT);
      CHECK_EQ(grown, 0);
    }
  }
  grown = 1;
  CHECK_STATUS(vmm_pool_grow(f.pool, 0, &grown, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(grown, 0);
  after = fixture_stats(f.pool);
  CHECK_EQ(after.committed_bytes, before.committed_bytes);
  CHECK_EQ(after.block_bytes, before.block_bytes);
  CHECK_EQ(after.alloc_count, before.alloc_count);
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

TEST(sizes_that_no_reservation_holds_are_out_of_address_space) {
  u64 address = 1, grown = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_STATUS(vmm_pool_alloc(f.pool, (u64)1 << 62, &address, &f.error), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_EQ(address, 0);
  CHECK_EQ(f.error.size, (u64)1 << 62);
  CHECK_STATUS(vmm_pool_grow(f.pool, (u64)1 << 62, &grown, NULL), VMM_ERROR_OUT_OF_ADDRESS_SPACE);
  CHECK_EQ(grown, 0);
  CHECK_EQ(fixture_stats(f.pool).alloc_failures, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(alignments_up_to_and_beyond_the_granule_hold) {
  u64 addresses[24], alignment;
  int i = 0, k;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  for (alignment = 1; alignment <= 8 * MIB; alignment *= 2, i++) {
    vmm_request request = request_of(300);

    request.alignment = alignment;
    request.tag = alignment;
    CHECK_OK_ERROR(vmm_pool_alloc_with(f.pool, &request, &addresses[i], &f.error), &f.error);
    CHECK_EQ(addresses[i] % alignment, 0);
    CHECK_CALL(fixture_fill(&f, addresses[i], 300, alignment));
    CHECK_CALL(fixture_compare(&f));
  }
  for (k = 0, alignment = 1; k < i; k++, alignment *= 2) {
    vmm_block_info info;

    CHECK_CALL(fixture_expect(&f, addresses[k], 300, alignment));
    CHECK_OK(vmm_pool_find(f.pool, addresses[k] + 299, &info, NULL));
    CHECK_EQ(info.tag, alignment);
    CHECK_CALL(fixture_free(&f, addresses[k]));
  }
  CHECK_CALL(fixture_close(&f));
}

TEST(requests_that_make_no_sense_are_refused) {
  vmm_request request, *longer;
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  request = request_of(1);
  request.alignment = 3;
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(address, 0);
  request.alignment = (u64)1 << 63;
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
  request.alignment = 0;
  request.flags = 16;
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
  request.flags = 0;
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, NULL, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_alloc_with(NULL, &request, &address, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_alloc(NULL, 1, &address, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "vmm_pool_alloc") != NULL);
  CHECK_STATUS(vmm_pool_alloc(f.pool, 1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);

  request.struct_size--;
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, &f.error), VMM_ERROR_VERSION);
  CHECK(strstr(f.error.message, "vmm_request") != NULL);
  CHECK_STATUS(vmm_request_init(NULL, sizeof request), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_request_init(&request, 8), VMM_ERROR_VERSION);
  CHECK_STATUS(vmm_request_init(&request, SIZE_MAX), VMM_ERROR_VERSION);

  longer = calloc(1, sizeof *longer + 16);
  CHECK(longer != NULL);
  CHECK_OK(vmm_request_init(longer, sizeof *longer + 16));
  CHECK_OK(vmm_pool_alloc_with(f.pool, longer, &address, NULL)); /* a newer header, nothing new asked */
  CHECK_CALL(fixture_free(&f, address));
  memset((char *)longer + sizeof *longer, 1, 1);
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, longer, &address, &f.error), VMM_ERROR_VERSION);
  CHECK_EQ(address, 0);
  free(longer);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_block_of_one_mapping_lies_in_one_mapping) {
  vmm_mapping_info mappings[64];
  u64 addresses[8], first;
  size_t count = 0, i, k;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_pool_grow(f.pool, 5 * MIB, NULL, NULL)); /* pieces of 2 MiB: room enough, but not in one of them */
  CHECK_CALL(first = fixture_alloc(&f, 1536 * KIB));
  for (i = 0; i < 8; i++) {
    vmm_request request = request_of(700 * KIB + 512 * KIB * i);
    int within = 0;

    request.flags = VMM_REQUEST_ONE_MAPPING;
    request.alignment = i % 2 == 0 ? 0 : 128 * KIB;
    CHECK_OK_ERROR(vmm_pool_alloc_with(f.pool, &request, &addresses[i], &f.error), &f.error);
    CHECK_OK(vmm_pool_get_mappings(f.pool, mappings, 64, &count, NULL));
    for (k = 0; k < count; k++)
      within +=
          addresses[i] >= mappings[k].address && addresses[i] + request.size <= mappings[k].address + mappings[k].size;
    CHECK_EQ(within, 1);
    CHECK_CALL(fixture_compare(&f));
  }
  for (i = 0; i < 8; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_free(&f, first));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_request_without_growth_does_not_grow) {
  vmm_request request = request_of(3000);
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  request.flags = VMM_REQUEST_NO_GROWTH;
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(address, 0);
  CHECK_EQ(f.error.size, 3072);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_OK(vmm_pool_grow(f.pool, 1, NULL, NULL));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_OK(vmm_pool_alloc_with(f.pool, &request, &address, NULL));
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(free_of_what_is_no_live_block_is_refused_and_changes_nothing) {
  u64 mine, other, reserved;
  vmm_pool *second;
  vmm_pool_stats stats;
  vmm_pool_options options = fixture_pool_options();
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(second = fixture_add_pool(&f, &options));
  CHECK_CALL(mine = fixture_alloc(&f, 1000));
  CHECK_OK(vmm_pool_alloc(second, 1000, &other, NULL));
  reserved = fixture_stats(f.pool).address + fixture_stats(f.pool).reserved_bytes - 256;
  for (i = 0; i < 2; i++) {
    const u64 wrong[] = {mine + 256, mine + 1, mine - 256, other, reserved, 0, 256, UINT64_MAX, UINT64_MAX - 255};
    vmm_status (*release)(vmm_pool *, unsigned long long, vmm_error *) = i == 0 ? vmm_pool_free : vmm_pool_free_idle;
    size_t k;

    for (k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
      memset(&f.error, 0, sizeof f.error);
      CHECK_STATUS(release(f.pool, wrong[k], &f.error), VMM_ERROR_UNKNOWN_ADDRESS);
      CHECK_EQ(f.error.address, wrong[k]);
      CHECK_STATUS(release(f.pool, wrong[k], NULL), VMM_ERROR_UNKNOWN_ADDRESS);
    }
    CHECK_STATUS(release(NULL, mine, NULL), VMM_ERROR_INVALID_ARGUMENT);
  }
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.block_count, 1);
  CHECK_EQ(stats.free_count, 0);
  CHECK_CALL(fixture_free(&f, mine));
  CHECK_STATUS(vmm_pool_free(f.pool, mine, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_STATUS(vmm_pool_free_idle(f.pool, mine, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_OK(vmm_pool_free_idle(second, other, NULL));
  CHECK_STATUS(vmm_pool_free(second, other, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(fixture_stats(f.pool).free_count, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(lookup_finds_a_block_by_any_of_its_bytes) {
  vmm_pool_options options = fixture_pool_options();
  vmm_pool *second, *owner;
  vmm_block_info info;
  u64 one, two, three;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(second = fixture_add_pool(&f, &options));
  CHECK_CALL(one = fixture_alloc(&f, 5000));
  CHECK_CALL(two = fixture_alloc(&f, 100));
  CHECK_OK(vmm_pool_alloc(second, 5000, &three, NULL));
  CHECK_OK(vmm_pool_find(f.pool, one + 5119, &info, NULL));
  CHECK_EQ(info.address, one);
  CHECK_EQ(info.size, 5120);
  CHECK_EQ(info.requested, 5000);
  CHECK_OK(vmm_pool_find(f.pool, two + 255, &info, NULL));
  CHECK_EQ(info.address, two);
  CHECK_OK(vmm_device_find(f.device, three + 77, &owner, &info, NULL));
  CHECK(owner == second);
  CHECK_EQ(info.address, three);
  CHECK_OK(vmm_device_find(f.device, one, &owner, NULL, NULL));
  CHECK(owner == f.pool);

  CHECK_STATUS(vmm_pool_find(f.pool, three, &info, &f.error), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_EQ(f.error.address, three);
  CHECK_STATUS(vmm_pool_find(f.pool, 0, &info, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_STATUS(vmm_pool_find(f.pool, UINT64_MAX, &info, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK_STATUS(vmm_pool_find(f.pool, one, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_find(NULL, one, &info, NULL), VMM_ERROR_INVALID_ARGUMENT);
  owner = f.pool;
  CHECK_STATUS(vmm_device_find(f.device, 42, &owner, &info, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK(owner == NULL);
  CHECK_CALL(fixture_free(&f, one));
  CHECK_STATUS(vmm_device_find(f.device, one, &owner, &info, NULL), VMM_ERROR_UNKNOWN_ADDRESS);
  CHECK(owner == NULL);
  CHECK_STATUS(vmm_device_find(NULL, one, &owner, &info, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_find(f.device, one, NULL, &info, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_free(&f, two));
  CHECK_OK(vmm_pool_free(second, three, NULL));
  CHECK_CALL(fixture_close(&f));
}

TEST(listings_fill_what_there_is_room_for_and_say_how_many_there_are) {
  vmm_mapping_info mappings[8];
  vmm_block_info blocks[8];
  u64 addresses[5];
  size_t count = 77, i;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_pool_get_blocks(f.pool, NULL, 0, &count, NULL));
  CHECK_EQ(count, 0);
  for (i = 0; i < 5; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, 300 * KIB));
  memset(blocks, 0xEE, sizeof blocks);
  CHECK_OK(vmm_pool_get_blocks(f.pool, blocks, 3, &count, NULL));
  CHECK_EQ(count, 5);
  CHECK(blocks[0].address < blocks[1].address && blocks[1].address < blocks[2].address);
  CHECK_EQ(blocks[3].address, 0xEEEEEEEEEEEEEEEEull);
  CHECK_OK(vmm_pool_get_mappings(f.pool, NULL, 0, &count, NULL));
  CHECK_EQ(count, fixture_stats(f.pool).mapping_count);
  memset(mappings, 0xEE, sizeof mappings);
  CHECK_OK(vmm_pool_get_mappings(f.pool, mappings, 1, &count, NULL));
  CHECK_EQ(mappings[0].address, fixture_stats(f.pool).address);
  CHECK_EQ(mappings[1].address, 0xEEEEEEEEEEEEEEEEull);
  CHECK_STATUS(vmm_pool_get_blocks(f.pool, NULL, 1, &count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_blocks(f.pool, blocks, 1, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_blocks(NULL, blocks, 1, &count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_mappings(f.pool, NULL, 1, &count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_mappings(NULL, mappings, 1, &count, NULL), VMM_ERROR_INVALID_ARGUMENT);
  for (i = 0; i < 5; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
