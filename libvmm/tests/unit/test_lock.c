/* Locks: they exclude, are given up in time with a deadline, pass nobody by, and tell the hook each step. */
#include "base/lock.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"

static const vmm__u64 MS = 1000000;
static vmm__lock lock;
static atomic_int stop, rounds;

/* Holds the lock nearly always: lets it go and asks for it again at once. */
static void *grab(void *data) {
  (void)data;
  while (atomic_load(&stop) == 0) {
    CHECK_RETURN(vmm__lock_acquire_within(&lock, 10000 * MS), NULL);
    (void)usleep(5000);
    (void)atomic_fetch_add(&rounds, 1);
    vmm__lock_release(&lock);
  }
  return NULL;
}

TEST(a_thread_that_takes_a_lock_again_and_again_starves_nobody) {
  pthread_t thread;
  int i;

  atomic_store(&stop, 0);
  CHECK(vmm__lock_init(&lock, VMM__RANK_STRUCTURE));
  CHECK_EQ(pthread_create(&thread, NULL, grab, NULL), 0);
  while (atomic_load(&rounds) == 0) (void)usleep(100);
  for (i = 0; i < 20; i++) {
    CHECK(vmm__lock_acquire_within(&lock, 500 * MS));
    vmm__lock_release(&lock);
  }
  atomic_store(&stop, 1);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  vmm__lock_destroy(&lock);
}

static void *wait_in_vain(void *data) {
  bool *had = data;

  *had = vmm__lock_acquire_within(&lock, 20 * MS);
  return NULL;
}

TEST(a_wait_that_is_given_up_leaves_the_turn_to_others) {
  pthread_t threads[3];
  bool had[3] = {true, true, true};
  vmm__u64 start = vmm__clock_now();
  int i;

  CHECK(vmm__lock_init(&lock, VMM__RANK_STRUCTURE));
  vmm__lock_acquire(&lock);
  for (i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, wait_in_vain, &had[i]), 0);
  for (i = 0; i < 3; i++) {
    CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(!had[i]);
  }
  CHECK(vmm__clock_now() - start >= 20 * MS);
  vmm__lock_release(&lock);
  CHECK(vmm__lock_acquire_within(&lock, 0)); /* free: no time is needed */
  CHECK(!vmm__lock_acquire_within(&lock, 0));
  vmm__lock_release(&lock);
  vmm__lock_destroy(&lock);
}

static void *wait_and_let_go(void *data) {
  vmm__lock *other = data;

  if (vmm__lock_acquire_within(&lock, 10000 * MS)) vmm__lock_release(&lock);
  vmm__lock_acquire(other);
  vmm__lock_release(other);
  pthread_testcancel();
  return NULL;
}

/* A thread that is cancelled while it waits would take its turn along. */
TEST(a_thread_is_not_cancelled_while_it_waits) {
  static vmm__lock other;
  pthread_t thread;
  void *result = NULL;

  CHECK(vmm__lock_init(&lock, VMM__RANK_STRUCTURE) && vmm__lock_init(&other, VMM__RANK_POOL));
  vmm__lock_acquire(&lock);
  vmm__lock_acquire(&other);
  CHECK_EQ(pthread_create(&thread, NULL, wait_and_let_go, &other), 0);
  (void)usleep(5000);
  CHECK_EQ(pthread_cancel(thread), 0);
  (void)usleep(5000);
  vmm__lock_release(&lock);
  (void)usleep(5000);
  vmm__lock_release(&other);
  CHECK_EQ(pthread_join(thread, &result), 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(vmm__lock_acquire_within(&lock, 1000 * MS));
  vmm__lock_release(&lock);
  CHECK(vmm__lock_acquire_within(&other, 1000 * MS));
  vmm__lock_release(&other);
}

enum { TAKERS = 4, TAKES = 20000 };

static long counted; /* under the lock */

static void *count_often(void *data) {
  (void)data;
  for (int i = 0; i < TAKES; i++) {
    if (i % 1000 == 0) CHECK_RETURN(vmm__lock_acquire_within(&lock, 10000 * MS), NULL);
    else vmm__lock_acquire(&lock);
    counted++;
    if (i % 4000 == 0) (void)usleep(300); /* the others have to sleep */
    vmm__lock_release(&lock);
  }
  return NULL;
}

TEST(a_lock_excludes_others_while_it_is_held) {
  pthread_t threads[TAKERS];
  int i;

  counted = 0;
  CHECK(vmm__lock_init(&lock, VMM__RANK_POOL));
  for (i = 0; i < TAKERS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, count_often, NULL), 0);
  for (i = 0; i < TAKERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK_EQ(counted, (long)TAKERS * TAKES);
  vmm__lock_destroy(&lock);
}

enum { GUESTS = 48 };

static const vmm__u64 MOST_PATIENCE = 500; /* ms: some 25 where nothing else runs; without an end to it, seconds */

static void *come_and_go(void *data) {
  vmm__u64 *worst = data;

  while (atomic_load(&stop) == 0) {
    vmm__u64 start = vmm__clock_now(), waited;

    vmm__lock_acquire(&lock);
    counted++;
    vmm__lock_release(&lock);
    waited = vmm__clock_now() - start;
    if (waited > *worst) *worst = waited;
    (void)usleep(100);
  }
  return NULL;
}

static void *never_let_go_for_long(void *data) {
  (void)data;
  while (atomic_load_explicit(&stop, memory_order_relaxed) == 0) {
    vmm__lock_acquire(&lock);
    counted++;
    vmm__lock_release(&lock);
  }
  return NULL;
}

TEST(many_that_wait_for_a_busy_lock_all_get_it_in_time) {
  pthread_t threads[GUESTS + 1];
  vmm__u64 worst[GUESTS] = {0};
  int i;

  atomic_store(&stop, 0);
  CHECK(vmm__lock_init(&lock, VMM__RANK_POOL));
  CHECK_EQ(pthread_create(&threads[GUESTS], NULL, never_let_go_for_long, NULL), 0);
  for (i = 0; i < GUESTS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, come_and_go, &worst[i]), 0);
  (void)usleep(1500000);
  atomic_store(&stop, 1);
  for (i = 0; i <= GUESTS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  for (i = 0; i < GUESTS; i++) CHECK(worst[i] < MOST_PATIENCE * MS);
  vmm__lock_destroy(&lock);
}

enum { BUSY_THREADS = 2 };

/* In 200 ms. Whoever waits sleeps some 55 us at least; that busy threads hand it over call by call shows in ten thousands. */
#if defined(__SANITIZE_THREAD__)
static const long MOST_TENANTS = 1000000; /* takes are so slow there that the lock never is busy */
#else
static const long MOST_TENANTS = 4000;
#endif

static long takes, tenants; /* under the lock */
static const void *tenant;

static void *take_all_the_time(void *data) {
  while (atomic_load_explicit(&stop, memory_order_relaxed) == 0) {
    vmm__lock_acquire(&lock);
    takes++;
    if (tenant != data) tenants++;
    tenant = data;
    vmm__lock_release(&lock);
  }
  return NULL;
}

/* Handing a busy lock over call by call costs more than the calls. On a machine with a single free core they take turns in
 * any case. */
TEST(a_busy_lock_stays_a_while_with_who_got_it) {
  pthread_t threads[BUSY_THREADS];
  char names[BUSY_THREADS];

  atomic_store(&stop, 0);
  takes = tenants = 0;
  CHECK(vmm__lock_init(&lock, VMM__RANK_POOL));
  for (int i = 0; i < BUSY_THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, take_all_the_time, &names[i]), 0);
  (void)usleep(200000);
  atomic_store(&stop, 1);
  for (int i = 0; i < BUSY_THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK(takes > 0);
  CHECK(tenants <= MOST_TENANTS);
  vmm__lock_destroy(&lock);
}

/* How many of 20 waits for a free lock that was handed over just before take longer than `ns`. */
static int count_long_waits(vmm__u64 ns) {
  int count = 0;

  for (int i = 0; i < 20; i++) {
    vmm__u64 start;

    vmm__lock_wait(&lock);
    vmm__lock_release(&lock);
    start = vmm__clock_now();
    vmm__lock_wait(&lock);
    if (vmm__clock_now() - start > ns) count++;
    vmm__lock_release(&lock);
  }
  return count;
}

TEST(a_lock_that_is_met_now_and_then_is_not_slept_for) {
  CHECK(vmm__lock_init(&lock, VMM__RANK_POOL));
  CHECK(count_long_waits(MS / 20) <= 15);
  vmm__lock_destroy(&lock);
}

TEST(a_lock_counts_how_often_it_was_let_go) {
  CHECK(vmm__lock_init(&lock, VMM__RANK_POOL));
  CHECK(vmm__lock_try(&lock));
  CHECK_EQ(atomic_load(&lock.turns), 0u);
  vmm__lock_untry(&lock);
  vmm__lock_acquire(&lock);
  vmm__lock_release(&lock);
  CHECK_EQ(atomic_load(&lock.turns), 2u);
  vmm__lock_destroy(&lock);
}

/* A test's hook is told each step in turn, by whichever way the lock was had. */
static bool note(void *data, vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result) {
  char *steps = data;

  (void)result;
  if (object != &lock || value != VMM__RANK_POOL) return false;
  steps[strlen(steps)] = point == VMM__POINT_ACQUIRE    ? 'w'
                         : point == VMM__POINT_ACQUIRED ? 'a'
                         : point == VMM__POINT_RELEASED ? 'r'
                                                        : '?';
  return false;
}

TEST(a_lock_tells_the_hook_each_step) {
  char steps[32] = "";
  vmm__hook hook = {note, steps};

  CHECK(vmm__lock_init(&lock, VMM__RANK_POOL));
  vmm__hook_install(&hook);
  vmm__lock_acquire(&lock);
  CHECK(!vmm__lock_acquire_within(&lock, 0));
  vmm__lock_release(&lock);
  CHECK(vmm__lock_acquire_within(&lock, 0));
  vmm__lock_release(&lock);
  vmm__hook_install(NULL);
  vmm__lock_acquire(&lock);
  vmm__lock_release(&lock);
  CHECK_STR(steps, "wawrwar");
  vmm__lock_destroy(&lock);
}

RUN_TESTS()
