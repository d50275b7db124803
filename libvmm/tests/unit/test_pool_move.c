/* Idle backing in holes is moved to where a request needs it, before the driver is asked for more; idle handles are used
 * whatever their sizes. What fails on the way leaves the pool as it was, but for idle memory that may have been given back. */
#include "support/fixture.h"

enum { PIECES = 6 };

/* Mappings of 1 MiB, each under a block of its size; every second one is freed: three holes of 1 MiB. */
typedef struct holes {
  u64 blocks[PIECES];
} holes;

static holes make_holes(fixture *f, bool idle) {
  holes h;
  int i;

  for (i = 0; i < PIECES; i++) {
    h.blocks[i] = fixture_alloc(f, MIB);
    fixture_fill(f, h.blocks[i], MIB, 10 + (u64)i);
  }
  CHECK_OK_RETURN(vmm_sim_drain(f->sim), h);
  for (i = 0; i < PIECES; i += 2)
    CHECK_OK_RETURN((idle ? vmm_pool_free_idle : vmm_pool_free)(f->pool, h.blocks[i], NULL), h);
  return h;
}

static void check_rest(fixture *f, const holes *h) {
  int i;

  for (i = 1; i < PIECES; i += 2) CHECK_CALL(fixture_expect(f, h->blocks[i], MIB, 10 + (u64)i));
  CHECK_CALL(fixture_check(f));
}

static void end(fixture *f, const holes *h) {
  int i;

  for (i = 1; i < PIECES; i += 2) CHECK_CALL(fixture_free(f, h->blocks[i]));
  CHECK_CALL(fixture_close(f));
}

static void move(bool idle) {
  vmm_pool_stats stats;
  u64 big;
  fixture f;
  holes h;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_CALL(h = make_holes(&f, idle));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_CALL(big = fixture_alloc(&f, 3 * MIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_release), 0);
  stats = fixture_stats(f.pool);
  CHECK_EQ(stats.committed_bytes, 6 * MIB);
  CHECK_EQ(stats.committed_peak, 6 * MIB);
  CHECK_EQ(stats.growth_count, 6);
  CHECK_EQ(stats.move_count, 1);
  CHECK_EQ(stats.moved_bytes, 3 * MIB);
  CHECK_EQ(fixture_device_stats(f.device).handle_bytes_peak, 6 * MIB);
  CHECK_CALL(fixture_fill(&f, big, 3 * MIB, 99));
  CHECK_CALL(fixture_expect(&f, big, 3 * MIB, 99));
  CHECK_CALL(check_rest(&f, &h));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, big));
  CHECK_CALL(end(&f, &h));
}

TEST(idle_backing_in_holes_serves_a_request_that_is_larger_than_each) { CHECK_CALL(move(true)); }

/* ... also if blocks were freed in order, once the GPU is known to be done with them. */
TEST(idle_backing_is_moved_when_the_work_before_it_is_done) { CHECK_CALL(move(false)); }

TEST(what_is_missing_is_created_and_no_more) {
  u64 big;
  fixture f;
  holes h;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_CALL(h = make_holes(&f, true));
  CHECK_CALL(big = fixture_alloc(&f, 5 * MIB));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 8 * MIB);
  CHECK_EQ(fixture_stats(f.pool).growth_count, 7);
  CHECK_EQ(fixture_stats(f.pool).move_count, 0);
  CHECK_EQ(fixture_device_stats(f.device).created_bytes, 8 * MIB);
  CHECK_CALL(check_rest(&f, &h));
  CHECK_CALL(fixture_free(&f, big));
  CHECK_CALL(end(&f, &h));
}

/* With fewer the request would create what it has already, and each growth that is short leaves a small mapping more. */
TEST(a_request_is_made_of_as_many_parts_as_there_are) {
  enum { HALF = 100 };
  u64 blocks[2 * HALF], big;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  for (i = 0; i < 2 * HALF; i++) CHECK_CALL(blocks[i] = fixture_alloc(&f, MIB));
  for (i = 0; i < 2 * HALF; i += 2) CHECK_OK(vmm_pool_free_idle(f.pool, blocks[i], NULL));
  CHECK_CALL(big = fixture_alloc(&f, HALF * MIB));
  CHECK_EQ(fixture_stats(f.pool).moved_bytes, HALF * MIB);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 2 * HALF * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, big));
  for (i = 1; i < 2 * HALF; i += 2) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_CALL(fixture_close(&f));
}

/* The pool's limit counts what is held, wherever it lies. */
TEST(a_pool_at_its_limit_serves_by_moving) {
  fixture_options options;
  u64 big;
  fixture f;
  holes h;

  fixture_defaults(&options);
  options.pool.limit = 6 * MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_CALL(h = make_holes(&f, true));
  CHECK_CALL(big = fixture_alloc(&f, 3 * MIB));
  CHECK_EQ(fixture_stats(f.pool).oom_rounds, 0);
  CHECK_CALL(check_rest(&f, &h));
  CHECK_CALL(fixture_free(&f, big));
  CHECK_CALL(end(&f, &h));
}

TEST(memory_that_queued_work_may_use_is_not_moved) {
  u64 big;
  fixture f;
  holes h;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_CALL(h = make_holes(&f, false));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 50 * MS));
  CHECK_CALL(big = fixture_alloc(&f, 3 * MIB));
  CHECK_EQ(fixture_stats(f.pool).moved_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 9 * MIB);
  CHECK(vmm_driver_now(f.sim) < 40 * MS); /* and nobody waited for the work */
  CHECK_CALL(fixture_free(&f, big));
  CHECK_OK(vmm_sim_drain(f.sim));
  CHECK_CALL(check_rest(&f, &h));
  CHECK_CALL(end(&f, &h));
}

/* Among several streams what is proven idle moves, and what one of them has freed and still uses does not. */
TEST(what_another_stream_may_use_is_not_moved) {
  void *streams[2] = {NULL, NULL};
  u64 blocks[6], big = 0, i;
  fixture f;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  for (i = 0; i < 2; i++) OK(vmm_raw_stream_create(f.sim, &streams[i], 1));
  for (i = 0; i < 6; i++) CHECK_OK(vmm_pool_alloc_async(f.pool, MIB, streams[i % 2], &blocks[i], NULL));
  OK(vmm_raw_kernel_spin(f.sim, streams[0], 50 * MS));
  CHECK_OK(vmm_pool_free_async(f.pool, blocks[0], streams[0], NULL)); /* in use still */
  CHECK_OK(vmm_pool_free_idle(f.pool, blocks[2], NULL));
  CHECK_OK(vmm_pool_free_idle(f.pool, blocks[4], NULL));
  CHECK_OK(vmm_pool_alloc_async(f.pool, 3 * MIB, streams[1], &big, NULL));
  CHECK_EQ(fixture_stats(f.pool).moved_bytes, 2 * MIB);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 7 * MIB);
  CHECK(vmm_driver_now(f.sim) < 40 * MS);
  CHECK_OK(vmm_pool_free_async(f.pool, big, streams[1], NULL));
  for (i = 1; i < 6; i += 2) CHECK_OK(vmm_pool_free_async(f.pool, blocks[i], streams[1], NULL));
  CHECK_OK(vmm_sim_drain(f.sim));
  CHECK_CALL(fixture_check(&f));
  for (i = 0; i < 2; i++) CHECK_CALL(fixture_end_stream(&f, streams[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_block_within_one_mapping_is_not_made_of_parts) {
  vmm_request request;
  u64 big = 0;
  fixture f;
  holes h;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_CALL(h = make_holes(&f, true));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 2 * MIB;
  request.flags = VMM_REQUEST_ONE_MAPPING;
  CHECK_OK(vmm_pool_alloc_with(f.pool, &request, &big, NULL));
  CHECK_EQ(fixture_stats(f.pool).moved_bytes, 0);
  CHECK_CALL(fixture_free(&f, big));
  CHECK_CALL(end(&f, &h));
}

/* While the policy would have the pool grow anyway it does. */
TEST(nothing_is_moved_while_the_pool_is_to_grow_anyway) {
  fixture_options options;
  u64 big;
  fixture f;
  holes h;

  fixture_defaults(&options);
  options.pool.mapping_min = options.pool.mapping_max = MIB;
  options.pool.growth_ahead = 8 * MIB;
  options.sim.memory = 32 * GIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(h = make_holes(&f, true));
  CHECK_CALL(big = fixture_alloc(&f, 5 * MIB)); /* 8 MiB are committed; half-way to twice that is the next step */
  CHECK_EQ(fixture_stats(f.pool).moved_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 12 * MIB);
  CHECK_CALL(fixture_free(&f, big));
  CHECK_CALL(end(&f, &h));
}

/* ---- failures ---- */

/* Every call of a request that moves three mappings and creates 1 MiB, refused once or for ever. */
static bool refuse(int op, u64 n, int code, u64 times, u64 idle_limit) {
  fixture_options options;
  vmm_pool_stats stats;
  vmm_fault_rule rule;
  vmm_status status;
  u64 big = 1, free_before;
  unsigned long long fired = 0;
  fixture f;
  holes h;
  int id = 0;

  fixture_defaults(&options);
  options.device.idle_limit = idle_limit;
  CHECK_CALL_RETURN(fixture_open_exact(&f, &options, MIB), false);
  CHECK_CALL_RETURN(h = make_holes(&f, false), false);
  free_before = fixture_ledger(&f, 0).free_bytes;
  CHECK_OK_RETURN(vmm_fault_rule_init(&rule, sizeof rule), false);
  rule.op = op;
  rule.code = code;
  rule.occurrence = n;
  rule.times = times;
  CHECK_OK_RETURN(vmm_fault_add(f.fault, &rule, &id, NULL), false);
  status = vmm_pool_alloc(f.pool, 4 * MIB, &big, &f.error);
  CHECK_OK_RETURN(vmm_fault_count(f.fault, id, &fired, NULL), false);
  stats = fixture_stats(f.pool);
  CHECK_EQ_RETURN(stats.block_count, status == VMM_OK ? 4 : 3, false);
  CHECK_EQ_RETURN(big == 0, status != VMM_OK, false);
  if (op == VMM_OP_mem_unmap || op == VMM_OP_ctx_record_event) /* the request does without */
    CHECK_EQ_RETURN(status, VMM_OK, false);
  if (status != VMM_OK && stats.quarantined_bytes == 0)
    CHECK_EQ_RETURN(fixture_ledger(&f, 0).free_bytes, free_before + f.error.gave_back, false);
  CHECK_CALL_RETURN(check_rest(&f, &h), false);
  CHECK_CALL_RETURN(fixture_clear(&f), false);
  if (status != VMM_OK) CHECK_OK_RETURN(vmm_pool_alloc(f.pool, 4 * MIB, &big, &f.error), false);
  CHECK_CALL_RETURN(fixture_compare(&f), false);
  CHECK_CALL_RETURN(check_rest(&f, &h), false);
  CHECK_CALL_RETURN(fixture_free(&f, big), false);
  CHECK_CALL_RETURN(end(&f, &h), false);
  return fired != 0;
}

TEST(a_request_that_moves_may_fail_at_any_call) {
  static const int ops[] = {VMM_OP_mem_create,     VMM_OP_mem_map,         VMM_OP_mem_set_access,
                            VMM_OP_mem_get_access, VMM_OP_mem_unmap,       VMM_OP_ctx_record_event,
                            VMM_OP_event_query,    VMM_OP_ctx_set_current, VMM_OP_ctx_get_current};
  static const int codes[] = {VMM_CODE_OUT_OF_MEMORY, VMM_CODE_UNKNOWN, VMM_CODE_NOT_READY};
  size_t o, c;
  int limit, ever;
  u64 n;

  for (o = 0; o < sizeof ops / sizeof ops[0]; o++)
    for (c = 0; c < 3; c++)
      for (ever = 0; ever < 2; ever++)
        for (limit = 0; limit < 2; limit++)
          for (n = 1; n < 40; n++)
            if (!refuse(ops[o], n, codes[c], ever ? VMM_FAULT_FOR_EVER : 1, limit ? 64 * MIB : 0)) break;
}

/* Its context is dead: there is nothing to be had from it, whatever its memory calls answer. */
TEST(a_device_that_is_lost_while_backing_is_moved_is_asked_for_nothing_more) {
  u64 big = 1;
  fixture f;
  holes h;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_CALL(h = make_holes(&f, true));
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:ILLEGAL_ADDRESS"));
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 3 * MIB, &big, &f.error), VMM_ERROR_DEVICE_LOST);
  CHECK_EQ(big, 0);
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_map), 0);
  CHECK_CALL(end(&f, &h));
}

TEST(what_could_not_be_taken_down_is_told_if_the_request_fails_after_all) {
  u64 big = 1;
  fixture f;
  holes h;

  CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
  CHECK_CALL(h = make_holes(&f, true));
  /* No unmap, nobody who could tell whether the access is left, and no memory either. */
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:UNKNOWNx2,cuMemGetAccess:UNKNOWN@1x4,cuMemCreate:OUT_OF_MEMORYx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 4 * MIB, &big, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(f.error.undo_failures >= 1);
  CHECK_EQ(f.error.undo_code, VMM_CODE_UNKNOWN);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(check_rest(&f, &h));
  CHECK_CALL(end(&f, &h));
}

TEST(a_request_that_moves_may_lack_host_memory) {
  int n;

  for (n = 1; n < 200; n++) {
    vmm_status status;
    u64 big = 1;
    bool done;
    fixture f;
    holes h;

    CHECK_CALL(fixture_open_exact(&f, NULL, MIB));
    CHECK_CALL(h = make_holes(&f, true));
    atomic_store(&f.memory.fail_in, n);
    status = vmm_pool_alloc(f.pool, 4 * MIB, &big, &f.error);
    done = atomic_load(&f.memory.fail_in) > 0; /* there was no n-th allocation */
    atomic_store(&f.memory.fail_in, 0);
    CHECK_STATUS(status, done ? VMM_OK : VMM_ERROR_OUT_OF_HOST_MEMORY);
    CHECK_CALL(check_rest(&f, &h));
    if (status != VMM_OK) CHECK_EQ(fixture_stats(f.pool).moved_bytes, 0);
    if (status == VMM_OK) CHECK_CALL(fixture_free(&f, big));
    CHECK_CALL(end(&f, &h));
    if (done) return;
  }
  CHECK(false);
}

/* ---- idle handles ---- */

TEST(a_growth_is_shaped_after_idle_handles) {
  fixture_options options;
  vmm_pool *second;
  u64 a, b, c = 0;
  fixture f;

  fixture_defaults(&options);
  options.device.idle_limit = 64 * MIB;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_CALL(second = fixture_add_pool(&f, &options.pool));
  CHECK_CALL(a = fixture_alloc(&f, 2 * MIB));
  CHECK_CALL(b = fixture_alloc(&f, 3 * MIB));
  CHECK_CALL(fixture_free(&f, a));
  CHECK_CALL(fixture_free(&f, b));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 5 * MIB);
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_OK(vmm_pool_alloc(second, 4 * MIB, &c, NULL));
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  CHECK_EQ(fixture_stats(second).committed_bytes, 5 * MIB);
  CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 0);
  CHECK_OK(vmm_pool_free(second, c, NULL));
  CHECK_OK(vmm_pool_trim(second, 0, 0, NULL, NULL));
  CHECK_OK(
      vmm_pool_grow(second, 6 * MIB, NULL, NULL)); /* ahead of need in pieces of at most 1 MiB: they are too large */
  CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 5 * MIB);
  CHECK_OK(vmm_pool_alloc(f.pool, 256, &c, NULL)); /* a mapping of 1 MiB is wanted, and none is idle */
  CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 5 * MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, c));
  CHECK_CALL(fixture_close(&f));
}

TEST(unknown_policies_are_refused) {
  vmm_pool_options options = fixture_pool_options();
  vmm_pool *pool = NULL;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  options.growth_policy = 3;
  CHECK_STATUS(vmm_pool_create(&pool, f.device, &options, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  options.growth_policy = -1;
  CHECK_STATUS(vmm_pool_create(&pool, f.device, &options, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "growth_policy") != NULL);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_fixed_step_is_kept) {
  fixture_options options;
  u64 a, b;
  fixture f;

  fixture_defaults(&options);
  options.pool.growth_policy = VMM_GROWTH_FIXED;
  options.pool.growth_step = 3 * MIB;
  options.pool.growth_ahead = 64 * MIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(a = fixture_alloc(&f, 256));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 3 * MIB);
  CHECK_CALL(b = fixture_alloc(&f, 4 * MIB));
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 6 * MIB);
  CHECK_CALL(fixture_free(&f, a));
  CHECK_CALL(fixture_free(&f, b));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
