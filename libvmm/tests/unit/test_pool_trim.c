/* Giving memory back: what, how much, after which wait, and what happens when a step fails. */
#include <pthread.h>

#include "support/fixture.h"

TEST(trim_keeps_what_it_is_told_to_and_takes_the_highest_first) {
  u64 addresses[40], done = 1, first;
  vmm_pool_stats stats;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 40));
  first = addresses[0];
  for (i = 0; i < 40; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_EQ(fixture_stats(f.pool).trimmable_bytes, 40 * MIB);
  CHECK_OK(vmm_pool_trim(f.pool, 40 * MIB, 0, &done, NULL));
  CHECK_EQ(done, 0);
  CHECK_OK(vmm_pool_trim(f.pool, 35 * MIB + 1, 0, &done, NULL));
  CHECK_EQ(done, 4 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_pool_trim(f.pool, UINT64_MAX, 0, NULL, NULL));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 36 * MIB);
  CHECK_OK(vmm_pool_trim(f.pool, 3 * MIB, 0, &done, NULL)); /* more than one batch */
  CHECK_EQ(done, 33 * MIB);
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.committed_bytes, 3 * MIB);
  CHECK_EQ(stats.trim_bytes, 37 * MIB);
  CHECK_EQ(stats.trim_count, 2);
  CHECK_EQ(stats.largest_idle, 3 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(addresses[0] = fixture_alloc(&f, 3 * MIB)); /* the lowest three are left */
  CHECK_EQ(addresses[0], first);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 3 * MIB);
  CHECK_CALL(fixture_free(&f, addresses[0]));
  CHECK_STATUS(vmm_pool_trim(NULL, 0, 0, &done, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(done, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(live_blocks_pin_their_mappings_and_the_listing_says_which) {
  u64 addresses[20], done = 0, trimmable;
  vmm_mapping_info mappings[32];
  size_t count = 0, i;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 20));
  for (i = 0; i < 20; i++)
    if (i % 3 != 0) CHECK_CALL(fixture_free(&f, addresses[i]));
  trimmable = fixture_stats(f.pool).trimmable_bytes;
  CHECK_EQ(trimmable, 13 * MIB);
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(done, trimmable);
  CHECK_OK(vmm_pool_get_mappings(f.pool, mappings, 32, &count, NULL));
  CHECK_EQ(count, 7);
  for (i = 0; i < count; i++) {
    CHECK_EQ(mappings[i].address, addresses[3 * i]);
    CHECK_EQ(mappings[i].block_bytes, MIB);
    CHECK_CALL(fixture_expect(&f, addresses[3 * i], MIB, 3 * i));
  }
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 20; i += 3) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

/* 4 GiB, then 64 MiB in one block, then 64 MiB in scattered ones. */
TEST(after_a_peak_the_memory_comes_back) {
  u64 addresses[64], big, free_before, done = 0;
  vmm_mapping_info mappings[128];
  size_t count = 0, i, pinned = 0;
  fixture_options options;
  fixture f;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(addresses[0] = fixture_alloc(&f, 64 * MIB));
  for (i = 1; i < 64; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, 64 * MIB));
  for (i = 1; i < 64; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  free_before = fixture_ledger(&f, 0).free_bytes;
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK(fixture_ledger(&f, 0).free_bytes - free_before >= 38 * (GIB / 10));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, addresses[0]));

  for (i = 0; i < 64; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, 63 * MIB));
  CHECK_CALL(big = fixture_alloc(&f, MIB)); /* and one small block beside each of 63 that stay away */
  CHECK_CALL(fixture_free(&f, big));
  for (i = 0; i < 64; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  for (i = 0; i < 64; i++) {
    vmm_request request;

    CHECK_OK(vmm_request_init(&request, sizeof request));
    request.size = MIB;
    request.alignment = 64 * MIB;
    CHECK_OK(vmm_pool_alloc_with(f.pool, &request, &addresses[i], NULL));
  }
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(fixture_stats(f.pool).trimmable_bytes, 0);
  CHECK_OK(vmm_pool_get_mappings(f.pool, mappings, 128, &count, NULL));
  CHECK(count <= 128);
  for (i = 0; i < count; i++) {
    CHECK(mappings[i].block_bytes != 0); /* each that is left says what pins it */
    pinned += mappings[i].block_bytes;
  }
  CHECK_EQ(pinned, 64 * MIB);
  for (i = 0; i < 64; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_thousand_cycles_leave_the_device_as_it_was) {
  fixture_options options;
  u64 free_before, address;
  fixture f;
  int i;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&f, &options));
  free_before = fixture_ledger(&f, 0).free_bytes;
  for (i = 0; i < 1000; i++) {
    CHECK_CALL(address = fixture_alloc(&f, 256 * MIB));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
    CHECK_EQ(fixture_ledger(&f, 0).free_bytes, free_before);
    CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  }
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

/* Work queued before the free may still use the block: the trim waits for it, and says so if it cannot. */
TEST(queued_work_is_waited_for_before_an_unmap) {
  u64 address, start, done = 1;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS));
  CHECK_CALL(fixture_fill(&f, address, MIB, 1));
  CHECK_CALL(fixture_free(&f, address));
  start = vmm_driver_now(f.driver);
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 5 * MS, &done, &f.error), VMM_ERROR_TIMEOUT);
  CHECK(vmm_driver_now(f.driver) - start <= 6 * MS);
  CHECK_EQ(done, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_EQ(fixture_stats(f.pool).trimmable_bytes, MIB);
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, &f.error));
  CHECK(vmm_driver_now(f.driver) - start >= 30 * MS);
  CHECK_EQ(done, MIB);
  CHECK_CALL(fixture_close(&f)); /* no race was seen */
}

TEST(idle_frees_and_frees_already_waited_for_need_no_fence) {
  u64 addresses[2], done = 0;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(addresses[0] = fixture_alloc(&f, MIB));
  CHECK_CALL(addresses[1] = fixture_alloc(&f, MIB));
  CHECK_OK(vmm_pool_free_idle(f.pool, addresses[1], NULL));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS)); /* something else */
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(done, MIB);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ctx_record_event) + fixture_calls(&f, VMM_OP_event_record), 0);
  CHECK_CALL(fixture_free(&f, addresses[0]));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(done, MIB);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ctx_record_event), 1);
  CHECK_CALL(fixture_close(&f));
}

TEST(an_unmap_that_fails_leaves_the_mapping_as_it_was) {
  u64 addresses[6], done = 1;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 6));
  for (i = 0; i < 6; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:UNKNOWNx*"));
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(done, 0);
  CHECK_STR(f.error.call, "cuMemUnmap");
  CHECK_EQ(f.error.code, VMM_CODE_UNKNOWN);
  CHECK_EQ(f.error.undo_failures, 0);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).trimmable_bytes, 6 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 6)); /* all of it can be used */
  for (i = 0; i < 6; i++) {
    CHECK_CALL(fixture_expect(&f, addresses[i], MIB, (u64)i));
    CHECK_CALL(fixture_free(&f, addresses[i]));
  }
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:UNKNOWN@3x*"));
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), VMM_ERROR_PARTIAL);
  CHECK_EQ(done, 2 * MIB);
  CHECK_STR(f.error.call, "cuMemUnmap");
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(done, 4 * MIB);
  CHECK_CALL(fixture_close(&f));
}

/* The code told is the unmap's own, whatever failed before it. */
TEST(a_failed_unmap_tells_its_own_code) {
  u64 addresses[3], done = 1;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 3));
  for (i = 0; i < 3; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_rule(&f, "cuMemRelease:INVALID_DEVICEx*,cuMemUnmap:UNKNOWN@2x*"));
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), VMM_ERROR_PARTIAL);
  CHECK_EQ(done, MIB);
  CHECK_STR(f.error.call, "cuMemUnmap");
  CHECK_EQ(f.error.code, VMM_CODE_UNKNOWN);
  CHECK(f.error.undo_failures >= 1);
  CHECK_EQ(f.error.undo_code, VMM_CODE_INVALID_DEVICE);
  CHECK_EQ(fixture_device_stats(f.device).quarantined_bytes, MIB); /* the handle that could not be released */
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_device_trim(f.device, 0, &done, NULL));
  CHECK_EQ(fixture_device_stats(f.device).quarantined_count, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_mapping_that_lost_its_access_is_quarantined) {
  u64 addresses[3], done = 1;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 3));
  CHECK_CALL(fixture_free(&f, addresses[2]));
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:UNKNOWNx*,cuMemGetAccess:UNKNOWNx*"));
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(done, 0);
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, MIB);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 2 * MIB);
  CHECK_EQ(fixture_device_stats(f.device).not_confirmed_count, 0); /* nobody claimed a success */
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_check(&f));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_expect(&f, addresses[1], MIB, 1));
  CHECK_CALL(addresses[2] = fixture_alloc(&f, MIB)); /* the undo is tried again first */
  CHECK_EQ(fixture_stats(f.pool).quarantined_bytes, 0);
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 3; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(an_unmap_that_was_done_although_it_failed_counts_as_done) {
  u64 addresses[3], done = 1;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 3));
  for (i = 0; i < 3; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:UNKNOWNx*:after"));
  CHECK_OK_ERROR(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), &f.error);
  CHECK_EQ(done, 3 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_fence_that_cannot_be_recorded_stops_the_trim) {
  u64 address, done = 1;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_rule(&f, "cuCtxRecordEvent:UNKNOWNx*"));
  CHECK_STATUS(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(done, 0);
  CHECK_STR(f.error.call, "cuCtxRecordEvent");
  CHECK_EQ(fixture_stats(f.pool).trimmable_bytes, MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_trim_under_an_announced_capture_leaves_the_context_alone) {
  fixture_options options;
  void *stream = NULL, *home = NULL, *graph = NULL;
  u64 address, done = 1;
  fixture f;
  int own;

  for (own = 0; own < 2; own++) {
    fixture_defaults(&options);
    options.no_pool = true;
    CHECK_CALL(fixture_open(&f, &options));
    OK(vmm_raw_stream_create(f.sim, &stream, 1));
    OK(vmm_raw_stream_create(f.sim, &home, 1));
    options.pool.home_stream = own ? home : NULL;
    CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
    CHECK_CALL(address = fixture_alloc(&f, MIB));
    OK(vmm_raw_kernel_spin(f.sim, own ? home : NULL, 3 * MS));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_CALL(fixture_begin_capture(&f, stream, 0));
    CHECK_STATUS_ERROR(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), own ? VMM_OK : VMM_ERROR_CAPTURE, &f.error);
    CHECK_EQ(done, own ? MIB : 0);
    CHECK_CALL(fixture_compare(&f));
    OK(vmm_raw_stream_end_capture(f.sim, stream, &graph));
    OK(vmm_raw_graph_destroy(f.sim, graph));
    CHECK_OK(vmm_device_capture_end(f.device, stream, VMM_CAPTURE_COMMITTED, NULL, NULL));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
    CHECK_EQ(done, own ? 0 : MIB);
    CHECK_CALL(fixture_check(&f));
    CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL));
    f.pools[0] = NULL;
    OK(vmm_raw_stream_destroy(f.sim, stream));
    OK(vmm_raw_stream_destroy(f.sim, home));
    CHECK_CALL(fixture_close(&f));
  }
}

/* ---- others go on while a trim waits ---- */

typedef struct other {
  fixture *f;
  int runs;
  u64 address, done;
  vmm_status grew, trimmed, checked;
} other;

static void *grow_elsewhere(void *data) {
  other *o = data;

  o->grew = vmm_pool_alloc(o->f->pool, 7 * MIB, &o->address, NULL);
  o->checked = vmm_pool_check(o->f->pool, NULL);
  o->trimmed = vmm_pool_trim(o->f->pool, UINT64_MAX, 0, &o->done, NULL);
  return NULL;
}

static void while_it_waits(void *data, int op, unsigned long long opportunity) {
  other *o = data;
  pthread_t thread;

  (void)op;
  if (opportunity != 2) return; /* the first look is taken with the lock held */
  o->runs++;
  if (pthread_create(&thread, NULL, grow_elsewhere, o) == 0) (void)pthread_join(thread, NULL);
}

TEST(others_grow_and_check_while_a_trim_waits) {
  u64 address, done = 0;
  vmm_fault_rule rule;
  other o;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  memset(&o, 0, sizeof o);
  o.f = &f;
  o.grew = o.checked = o.trimmed = VMM_ERROR_BROKEN;
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
  rule.op = VMM_OP_event_query;
  rule.thread = vmm_fault_thread();
  rule.times = VMM_FAULT_FOR_EVER;
  rule.hook = while_it_waits;
  rule.hook_data = &o;
  CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
  CHECK_OK_ERROR(vmm_pool_trim(f.pool, 0, 0, &done, &f.error), &f.error);
  CHECK_EQ(o.runs, 1);
  CHECK_OK(o.grew);
  CHECK_OK(o.checked);
  CHECK_OK(o.trimmed);
  CHECK_EQ(done + o.done, MIB); /* whoever comes by first unmaps it */
  CHECK(o.address != address);  /* what waits to be unmapped is not handed out */
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 7 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, o.address));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
