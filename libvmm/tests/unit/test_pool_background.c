/* The pool's own thread: head-room, threshold, what was put aside; its life, beside other threads and across a fork. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hook.h"
#include "base/thread.h"
#include "support/fixture.h"

static bool reaches(fixture *f, u64 idle, u64 aside) {
  int i;

  for (i = 0; i < 5000; i++) {
    vmm_pool_stats stats = fixture_stats(f->pool);

    if (stats.idle_bytes == idle && stats.ready_bytes == aside && stats.pending_bytes == 0) return true;
    vmm__clock_wait(1000000);
  }
  return false;
}

TEST(the_thread_keeps_head_room_and_gives_back_what_is_above_the_threshold) {
  fixture_options options;
  u64 blocks[8];
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.headroom = 2 * MIB;
  options.pool.trim_threshold = 6 * MIB;
  options.pool.trim_keep = 3 * MIB;
  options.pool.background = 1;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  for (i = 0; i < 8; i++) {
    CHECK(reaches(&f, 2 * MIB, 0));
    CHECK_CALL(blocks[i] = fixture_alloc(&f, MIB));
  }
  CHECK(reaches(&f, 2 * MIB, 0));
  for (i = 0; i < 8; i++) CHECK_OK(vmm_pool_free_idle(f.pool, blocks[i], NULL));
  CHECK(reaches(&f, 3 * MIB, 0));
  CHECK_EQ(fixture_stats(f.pool).growth_failures, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(the_thread_publishes_what_was_put_aside) {
  fixture_options options;
  fixture f;

  fixture_defaults(&options);
  options.pool.background = 1;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_OK(vmm_pool_grow_async(f.pool, 8 * MIB, NULL));
  CHECK(reaches(&f, 8 * MIB, 0));
  CHECK_CALL(fixture_close(&f));
}

static bool refuse_thread(void *data, vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result) {
  (void)data;
  (void)object;
  (void)value;
  (void)result;
  return point == VMM__POINT_THREAD;
}

TEST(a_pool_whose_thread_cannot_be_had_is_not_made) {
  static const vmm__hook hook = {refuse_thread, NULL};
  vmm_pool_options options = fixture_pool_options();
  vmm_pool *pool = NULL;
  vmm_status status;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  options.background = 1;
  options.initial = MIB;
  vmm__hook_install(&hook);
  status = vmm_pool_create(&pool, f.device, &options, &f.error);
  vmm__hook_install(NULL);
  CHECK_STATUS(status, VMM_ERROR_OUT_OF_HOST_MEMORY);
  CHECK(pool == NULL);
  CHECK_EQ(fixture_ledger(&f, 0).reservations, 1);
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  CHECK_CALL(fixture_close(&f));
}

TEST(a_destroy_that_is_refused_leaves_the_thread) {
  fixture_options options;
  u64 block;
  fixture f;

  fixture_defaults(&options);
  options.pool.headroom = 2 * MIB;
  options.pool.background = 1;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_CALL(block = fixture_alloc(&f, MIB));
  CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), VMM_ERROR_BUSY);
  CHECK_OK(vmm_pool_set_limit(f.pool, 0, NULL));
  CHECK(reaches(&f, 2 * MIB, 0));
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

/* By then the thread has ended: the pool stands, and so it has one again. */
TEST(a_destroy_that_the_driver_refuses_starts_the_thread_again) {
  fixture_options options;
  fixture f;

  fixture_defaults(&options);
  options.pool.background = 1;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK_OK(vmm_pool_grow(f.pool, MIB, NULL, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemUnmap:UNKNOWNx*"));
  CHECK(vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, NULL) != VMM_OK);
  CHECK_CALL(fixture_clear(&f));
  CHECK(reaches(&f, MIB, 0)); /* it still is there */
  CHECK_OK(vmm_pool_grow_async(f.pool, 4 * MIB, NULL));
  CHECK(reaches(&f, 5 * MIB, 0));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_forked_child_leaves_the_thread_alone) {
  fixture_options options;
  int status = -1;
  fixture f;
  pid_t child;

  fixture_defaults(&options);
  options.pool.headroom = MIB;
  options.pool.background = 1;
  CHECK_CALL(fixture_open_exact(&f, &options, MIB));
  CHECK(reaches(&f, MIB, 0));
  child = fork();
  CHECK(child >= 0);
  if (child == 0)
    _exit(vmm_pool_grow_async(f.pool, MIB, NULL) == VMM_ERROR_FORKED &&
                  vmm_pool_destroy(f.pool, VMM_DESTROY_FORCED, NULL) == VMM_ERROR_FORKED
              ? 0
              : 1);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
  CHECK_CALL(fixture_close(&f));
}

typedef struct worker {
  fixture *f;
  u64 seed;
  int failures;
  pthread_t id;
} worker;

static void *work(void *data) {
  worker *w = data;
  u64 blocks[16] = {0}, state = w->seed;
  int i;

  for (i = 0; i < 3000; i++) {
    u64 r = fixture_random(&state), *block = &blocks[r % 16];

    if (*block != 0) {
      if (vmm_pool_free(w->f->pool, *block, NULL) != VMM_OK) w->failures++;
      *block = 0;
    } else if (vmm_pool_alloc(w->f->pool, fixture_lognormal(&state), block, NULL) != VMM_OK) {
      w->failures++;
    }
    if (r % 512 == 0 && vmm_pool_grow_async(w->f->pool, MIB, NULL) != VMM_OK) w->failures++;
    if (r % 701 == 0 && vmm_pool_trim(w->f->pool, 0, 0, NULL, NULL) != VMM_OK) w->failures++;
  }
  for (i = 0; i < 16; i++)
    if (blocks[i] != 0 && vmm_pool_free(w->f->pool, blocks[i], NULL) != VMM_OK) w->failures++;
  return NULL;
}

TEST(the_thread_works_beside_others) {
  fixture_options options;
  worker workers[3];
  fixture f;
  int i;

  fixture_defaults(&options);
  options.pool.headroom = 4 * MIB;
  options.pool.trim_threshold = 16 * MIB;
  options.pool.background = 1;
  CHECK_CALL(fixture_open(&f, &options));
  for (i = 0; i < 3; i++) {
    workers[i] = (worker){&f, (u64)i + 1, 0, 0};
    CHECK_EQ(pthread_create(&workers[i].id, NULL, work, &workers[i]), 0);
  }
  for (i = 0; i < 3; i++) {
    CHECK_EQ(pthread_join(workers[i].id, NULL), 0);
    CHECK_EQ(workers[i].failures, 0);
  }
  CHECK_CALL(fixture_check(&f));
  CHECK_CALL(fixture_close(&f));
}

/* ---- threads as such ---- */

static bool count_starts(void *data, vmm__point point, const void *object, u64 value, u64 *result) {
  (void)object;
  (void)value;
  (void)result;
  if (point == VMM__POINT_THREAD) ++*(_Atomic int *)data;
  return false;
}

/* Another thread may be in the middle of a call that wakes it. */
TEST(a_destroy_that_is_refused_for_live_blocks_leaves_the_thread_alone) {
  _Atomic int starts = 0;
  vmm__hook hook = {count_starts, &starts};
  fixture_options options;
  fixture f;
  u64 block;

  fixture_defaults(&options);
  options.pool.background = 1;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(block = fixture_alloc(&f, MIB));
  vmm__hook_install(&hook);
  CHECK_STATUS(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, &f.error), VMM_ERROR_BUSY);
  CHECK_EQ(f.error.size, 1);
  vmm__hook_install(NULL);
  CHECK_EQ(starts, 0);
  CHECK_CALL(fixture_free(&f, block));
  CHECK_CALL(fixture_close(&f));
}

static _Atomic int rounds;

static void count_rounds(void *data) {
  while (vmm__thread_sleep(data, 60000000000ull)) rounds++;
}

TEST(a_thread_sleeps_is_woken_and_ends) {
  vmm__thread thread = {0};
  int i;

  vmm__thread_wake(&thread); /* none yet */
  vmm__thread_stop(&thread);
  CHECK(vmm__thread_start(&thread, count_rounds, &thread));
  for (i = 0; i < 5000 && rounds == 0; i++) {
    vmm__thread_wake(&thread);
    vmm__clock_wait(1000000);
  }
  CHECK(rounds > 0);
  vmm__thread_stop(&thread); /* at once, not in a minute */
  CHECK(!thread.started);
}

RUN_TESTS()
