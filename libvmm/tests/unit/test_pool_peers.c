/* Peers: at creation and later, all mappings or none, undone when refused. */
#include "support/fixture.h"

/* Flags device `device` has at an address, as the driver says. */
static u64 access_of(fixture *f, int device, u64 address) {
  vmm_raw_location location = {1, device};
  unsigned long long flags = 99;

  CHECK_EQ_RETURN(vmm_raw_mem_get_access(f->sim, &flags, &location, address), VMM_CODE_SUCCESS, 99);
  return flags;
}

/* Every mapping of the pool gives `device` these flags. */
static void check_access(fixture *f, int device, u64 expected) {
  vmm_mapping_info mappings[64];
  size_t count = 0, i;

  CHECK_OK(vmm_pool_get_mappings(f->pool, mappings, 64, &count, NULL));
  CHECK(count > 0 && count <= 64);
  for (i = 0; i < count; i++)
    if (mappings[i].state == VMM_MAPPING_LIVE) CHECK_EQ(access_of(f, device, mappings[i].address), expected);
}

static void open_devices(fixture *f, int count, fixture_options *options) {
  options->sim.device_count = count;
  options->pool.mapping_min = options->pool.mapping_max = MIB;
  CHECK_CALL(fixture_open(f, options));
}

TEST(peers_named_at_creation_get_every_mapping) {
  static const int peers[] = {2, 1};
  fixture_options options;
  u64 addresses[4];
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.peers = peers;
  options.pool.peer_count = 2;
  options.pool.initial = 2 * MIB;
  CHECK_CALL(open_devices(&f, 3, &options));
  CHECK_EQ(fixture_stats(f.pool).peer_count, 2);
  for (i = 0; i < 4; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  for (i = 0; i < 3; i++) CHECK_CALL(check_access(&f, i, 3));
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 4; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_peer_that_joins_later_gets_old_and_new_mappings) {
  fixture_options options;
  u64 addresses[6];
  fixture f;
  int i;

  fixture_defaults(&options);
  CHECK_CALL(open_devices(&f, 2, &options));
  for (i = 0; i < 4; i++) {
    CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_fill(&f, addresses[i], MIB, (u64)i));
  }
  CHECK_CALL(fixture_free(&f, addresses[1])); /* a hole */
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_CALL(check_access(&f, 1, 0));
  CHECK_OK_ERROR(vmm_pool_add_peer(f.pool, 1, &f.error), &f.error);
  CHECK_EQ(fixture_stats(f.pool).peer_count, 1);
  CHECK_CALL(check_access(&f, 1, 3));
  CHECK_CALL(check_access(&f, 0, 3));
  CHECK_CALL(addresses[4] = fixture_alloc(&f, 3 * MIB));
  CHECK_CALL(check_access(&f, 1, 3));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 5; i++) {
    if (i == 1) continue;
    if (i < 4) CHECK_CALL(fixture_expect(&f, addresses[i], MIB, (u64)i));
    CHECK_CALL(fixture_free(&f, addresses[i]));
  }
  CHECK_CALL(fixture_close(&f));
}

TEST(what_is_no_peer_is_refused) {
  static const int twice[] = {1, 1}, owner[] = {0}, unknown[] = {7}, negative[] = {-1};
  static const struct {
    const int *peers;
    size_t count;
  } wrong[] = {{twice, 2}, {owner, 1}, {unknown, 1}, {negative, 1}, {unknown, SIZE_MAX}, {unknown, 1 << 20}};
  fixture_options options;
  vmm_pool *pool;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.sim.peers = 0x0101010101010101ull; /* each device reaches device 0 alone ... */
  options.sim.peers &= ~((u64)1 << 16);      /* ... but device 2 */
  CHECK_CALL(open_devices(&f, 3, &options));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 0, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 3, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_add_peer(f.pool, -1, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_add_peer(NULL, 1, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 2, &f.error), VMM_ERROR_UNSUPPORTED);
  CHECK(strstr(f.error.message, "reach") != NULL);
  CHECK_EQ(fixture_stats(f.pool).peer_count, 0);
  for (i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
    vmm_pool_options bad = fixture_pool_options();
    long long calls = f.memory.calls;

    bad.peers = wrong[i].peers;
    bad.peer_count = wrong[i].count;
    pool = f.pool;
    CHECK_STATUS(vmm_pool_create(&pool, f.device, &bad, NULL), VMM_ERROR_INVALID_ARGUMENT);
    CHECK(pool == NULL);
    if (wrong[i].count > 2) CHECK_EQ(f.memory.calls, calls); /* nothing is allocated for a number that makes no sense */
  }
  {
    static const int unreachable[] = {1, 2};
    vmm_pool_options bad = fixture_pool_options();

    bad.peers = unreachable;
    bad.peer_count = 2;
    CHECK_STATUS(vmm_pool_create(&pool, f.device, &bad, NULL), VMM_ERROR_UNSUPPORTED);
  }
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_grant_that_is_refused_is_revoked_everywhere) {
  static const char *faults[] = {"cuMemSetAccess:UNKNOWN@1", "cuMemSetAccess:UNKNOWN@2",
                                 "cuMemSetAccess:OUT_OF_MEMORY@2", "cuMemSetAccess:UNKNOWN@2:after",
                                 "cuMemGetAccess:UNKNOWN@2"};
  size_t i;

  for (i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    fixture_options options;
    u64 addresses[4];
    vmm_status status;
    fixture f;
    int k;

    fixture_defaults(&options);
    CHECK_CALL(open_devices(&f, 2, &options));
    for (k = 0; k < 4; k++) CHECK_CALL(addresses[k] = fixture_alloc(&f, MIB));
    CHECK_CALL(fixture_free(&f, addresses[1]));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL)); /* two runs: two set-accesses */
    CHECK_CALL(fixture_rule(&f, faults[i]));
    status = vmm_pool_add_peer(f.pool, 1, &f.error);
    CHECK(status == VMM_ERROR_DRIVER || status == VMM_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_EQ(fixture_stats(f.pool).peer_count, 0);
    CHECK_CALL(check_access(&f, 1, 0));
    CHECK_CALL(check_access(&f, 0, 3));
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(addresses[1] = fixture_alloc(&f, MIB)); /* a growth does not grant it either */
    CHECK_CALL(check_access(&f, 1, 0));
    CHECK_CALL(fixture_clear(&f));
    CHECK_OK(vmm_pool_add_peer(f.pool, 1, NULL));
    CHECK_CALL(check_access(&f, 1, 3));
    for (k = 0; k < 4; k++) CHECK_CALL(fixture_free(&f, addresses[k]));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_grant_that_is_claimed_but_not_given_is_no_grant) {
  fixture_options options;
  u64 address;
  fixture f;

  fixture_defaults(&options);
  CHECK_CALL(open_devices(&f, 2, &options));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:SUCCESS:lie"));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, &f.error), VMM_ERROR_NOT_CONFIRMED);
  CHECK_EQ(fixture_device_stats(f.device).not_confirmed_count, 1);
  CHECK_EQ(fixture_stats(f.pool).peer_count, 0);
  CHECK_OK(vmm_pool_add_peer(f.pool, 1, NULL));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* A growth grants all peers or fails whole. */
TEST(a_growth_that_a_peer_is_refused_fails_whole) {
  static const int peers[] = {1};
  fixture_options options;
  u64 address = 1, old;
  fixture f;

  fixture_defaults(&options);
  options.pool.peers = peers;
  options.pool.peer_count = 1;
  CHECK_CALL(open_devices(&f, 2, &options));
  CHECK_CALL(old = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:INVALID_DEVICEx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(address, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemGetAccess:UNKNOWN@2")); /* the peer's confirm */
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(address, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(check_access(&f, 1, 3));
  CHECK_CALL(fixture_free(&f, old));
  CHECK_CALL(fixture_close(&f));
}

/* A grant that could not be taken back is taken back later, but never from a device that has become a peer since. */
TEST(a_stuck_revoke_is_tried_again_but_not_on_a_member) {
  fixture_options options;
  u64 addresses[3];
  fixture f;
  int k;

  fixture_defaults(&options);
  CHECK_CALL(open_devices(&f, 2, &options));
  for (k = 0; k < 2; k++) CHECK_CALL(addresses[k] = fixture_alloc(&f, MIB));
  /* grant 1 done but told failed; both tries to revoke refused */
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN@1:after,cuMemSetAccess:UNKNOWN@2x2"));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(f.error.undo_failures, 1);
  CHECK_CALL(check_access(&f, 1, 3)); /* it has it still, but is no peer */
  CHECK_EQ(fixture_stats(f.pool).peer_count, 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_trim(f.pool, UINT64_MAX, 0, NULL, NULL));
  CHECK_CALL(check_access(&f, 1, 0));

  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN@1:after,cuMemSetAccess:UNKNOWN@2x2"));
  CHECK_STATUS(vmm_pool_add_peer(f.pool, 1, &f.error), VMM_ERROR_DRIVER);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:UNKNOWN@1x2")); /* the revoke fails once more, then the grant works */
  CHECK_OK_ERROR(vmm_pool_add_peer(f.pool, 1, &f.error), &f.error);
  CHECK_EQ(fixture_stats(f.pool).peer_count, 1);
  CHECK_CALL(check_access(&f, 1, 3));
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(addresses[2] = fixture_alloc(&f, MIB)); /* recovers what is stuck: must not touch a member */
  CHECK_CALL(check_access(&f, 1, 3));
  CHECK_OK(vmm_pool_trim(f.pool, UINT64_MAX, 0, NULL, NULL));
  CHECK_CALL(check_access(&f, 1, 3));
  CHECK_CALL(fixture_compare(&f));
  for (k = 0; k < 3; k++) CHECK_CALL(fixture_free(&f, addresses[k]));
  CHECK_CALL(fixture_close(&f));
}

TEST(many_peers_need_more_room_and_may_not_get_it) {
  fixture_options options;
  u64 address;
  fixture f;
  int i;

  fixture_defaults(&options);
  CHECK_CALL(open_devices(&f, 8, &options));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  for (i = 1; i < 8; i++) {
    f.memory.fail_in = 1;
    if (vmm_pool_add_peer(f.pool, i, &f.error) != VMM_OK) {
      CHECK_EQ(f.error.status, VMM_ERROR_OUT_OF_HOST_MEMORY);
      CHECK_EQ(fixture_stats(f.pool).peer_count, i - 1);
      CHECK_CALL(check_access(&f, i, 0));
      CHECK_OK(vmm_pool_add_peer(f.pool, i, NULL));
    }
    f.memory.fail_in = 0;
    CHECK_CALL(check_access(&f, i, 3));
  }
  CHECK_EQ(fixture_stats(f.pool).peer_count, 7);
  for (i = 0; i < 8; i++) CHECK_CALL(check_access(&f, i, 3));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
