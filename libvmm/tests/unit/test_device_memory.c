/* The device's physical memory: limit, idle handles, trim, quarantine; and the ladder when it runs out, with the pressure
 * callback. */
#include <pthread.h>
#include <time.h>

#include "support/fixture.h"

static void open_with(fixture *f, fixture_options *options) {
  options->pool.mapping_min = options->pool.mapping_max = MIB;
  CHECK_CALL(fixture_open(f, options));
}

TEST(the_devices_limit_holds_over_all_pools) {
  fixture_options options;
  vmm_pool *second;
  u64 one, two = 1, three;
  fixture f;

  fixture_defaults(&options);
  options.device.limit = 10 * MIB;
  CHECK_CALL(open_with(&f, &options));
  CHECK_CALL(second = fixture_add_pool(&f, &options.pool));
  CHECK_CALL(one = fixture_alloc(&f, 6 * MIB));
  CHECK_STATUS(vmm_pool_alloc(second, 5 * MIB, &two, &f.error), VMM_ERROR_LIMIT);
  CHECK_EQ(two, 0);
  CHECK_EQ(f.error.code, 0);
  CHECK(strstr(f.error.message, "limit") != NULL);
  CHECK_EQ(fixture_device_stats(f.device).limit, 10 * MIB);
  CHECK_OK(vmm_pool_alloc(second, 4 * MIB, &two, NULL));
  CHECK_OK(vmm_device_set_limit(f.device, MIB, NULL)); /* below what is held: only stops growth */
  CHECK_STATUS(vmm_pool_alloc(second, 256, &three, NULL), VMM_ERROR_LIMIT);
  CHECK_CALL(fixture_free(&f, one));
  CHECK_CALL(one = fixture_alloc(&f, 6 * MIB));
  CHECK_OK(vmm_device_set_limit(f.device, 0, NULL));
  CHECK_OK(vmm_pool_alloc(second, 9 * MIB, &three, NULL));
  CHECK_STATUS(vmm_device_set_limit(NULL, 0, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, one));
  CHECK_OK(vmm_pool_free(second, two, NULL));
  CHECK_OK(vmm_pool_free(second, three, NULL));
  CHECK_CALL(fixture_close(&f));
}

TEST(idle_handles_are_kept_up_to_their_limit_and_used_again) {
  fixture_options options;
  vmm_device_stats stats;
  u64 addresses[6], done = 0;
  fixture f;
  int i;

  fixture_defaults(&options);
  options.device.idle_limit = 4 * MIB;
  CHECK_CALL(open_with(&f, &options));
  for (i = 0; i < 6; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  for (i = 0; i < 6; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, &done, NULL));
  CHECK_EQ(done, 6 * MIB);
  stats = fixture_device_stats(f.device);
  CHECK_EQ(stats.idle_bytes, 4 * MIB);
  CHECK_EQ(stats.idle_count, 4);
  CHECK_EQ(stats.handle_bytes, 4 * MIB);
  CHECK_EQ(stats.handle_bytes_peak, 6 * MIB);
  CHECK_EQ(stats.created_count, 6);
  CHECK_EQ(stats.released_count, 2);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_forget_calls(&f));
  for (i = 0; i < 4; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
  CHECK_EQ(fixture_calls(&f, VMM_OP_mem_create), 0);
  CHECK_EQ(fixture_device_stats(f.device).idle_count, 0);
  CHECK_CALL(fixture_compare(&f));
  for (i = 0; i < 4; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_OK(vmm_device_trim(f.device, 3 * MIB, &done, NULL));
  CHECK_EQ(done, MIB);
  CHECK_OK(vmm_device_trim(f.device, 3 * MIB, &done, NULL));
  CHECK_EQ(done, 0);
  CHECK_OK(vmm_device_trim(f.device, 0, NULL, NULL));
  CHECK_EQ(fixture_ledger(&f, 0).handles, 0);
  CHECK_STATUS(vmm_device_trim(NULL, 0, &done, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(done, 0);
  CHECK_CALL(fixture_close(&f));
}

/* A growth is made of them, whatever their sizes. */
TEST(idle_handles_do_not_stand_in_the_way_of_the_limit_or_of_a_full_card) {
  int full;

  for (full = 0; full < 2; full++) {
    fixture_options options;
    u64 addresses[8], big = 0;
    fixture f;
    int i;

    fixture_defaults(&options);
    options.device.idle_limit = 64 * MIB;
    options.sim.memory = 16 * MIB;
    options.pool.reservation = 64 * MIB;
    if (!full) options.device.limit = 8 * MIB;
    CHECK_CALL(open_with(&f, &options));
    for (i = 0; i < 8; i++) CHECK_CALL(addresses[i] = fixture_alloc(&f, MIB));
    for (i = 0; i < 8; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
    CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
    CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 8 * MIB);
    CHECK_OK_ERROR(vmm_pool_alloc(f.pool, full ? 15 * MIB : 8 * MIB, &big, &f.error), &f.error);
    CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 0);
    CHECK_EQ(fixture_device_stats(f.device).created_bytes, full ? 15 * MIB : 8 * MIB);
    CHECK_EQ(fixture_stats(f.pool).oom_rounds, 0);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_free(&f, big));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_release_that_fails_is_quarantined_and_tried_again) {
  fixture_options options;
  vmm_device_stats stats;
  u64 address, done = 1;
  fixture f;

  fixture_defaults(&options);
  options.device.idle_limit = 64 * MIB;
  CHECK_CALL(open_with(&f, &options));
  CHECK_CALL(address = fixture_alloc(&f, 2 * MIB));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemRelease:UNKNOWNx*"));
  CHECK_STATUS(vmm_device_trim(f.device, 0, &done, &f.error), VMM_ERROR_DRIVER);
  CHECK_EQ(done, 0);
  CHECK_STR(f.error.call, "cuMemRelease");
  stats = fixture_device_stats(f.device);
  CHECK_EQ(stats.quarantined_count, 1);
  CHECK_EQ(stats.quarantined_bytes, 2 * MIB);
  CHECK_EQ(stats.handle_count, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(address = fixture_alloc(&f, MIB)); /* a growth tries it again too */
  CHECK_EQ(fixture_device_stats(f.device).quarantined_count, 0);
  CHECK_EQ(fixture_ledger(&f, 0).handle_bytes, MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* A release that was done and then told failed: INVALID_VALUE of the second try says so. */
TEST(a_release_that_was_done_is_not_counted_as_held) {
  fixture_options options;
  u64 address;
  fixture f;

  fixture_defaults(&options);
  CHECK_CALL(open_with(&f, &options));
  CHECK_CALL(address = fixture_alloc(&f, 2 * MIB));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_rule(&f, "cuMemRelease:UNKNOWN:after"));
  CHECK_OK(vmm_pool_trim(f.pool, 0, 0, NULL, NULL));
  CHECK_OK(vmm_device_trim(f.device, 0, NULL, NULL));
  CHECK_EQ(fixture_device_stats(f.device).quarantined_count, 0);
  CHECK_EQ(fixture_device_stats(f.device).released_count, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_sim_clear_misuse(f.sim)); /* the second release, which could not be avoided */
  CHECK_CALL(fixture_close(&f));
}

/* ---- pressure ---- */

typedef struct cache {
  fixture *f;
  u64 blocks[32];
  int count, calls;
  u64 asked;
  vmm_status grow, alloc, create, trim;
  long long answer;
  bool trim_inside;
} cache;

static long long evict(void *data, vmm_device *device, unsigned long long size) {
  cache *c = data;
  u64 address = 1, done = 0;
  vmm_pool *pool = NULL;
  vmm_pool_options options = fixture_pool_options();

  c->calls++;
  c->asked = size;
  c->grow = vmm_pool_grow(c->f->pool, MIB, NULL, NULL);
  c->alloc = vmm_pool_alloc(c->f->pool, 200 * MIB, &address, NULL);
  options.initial = MIB;
  c->create = vmm_pool_create(&pool, device, &options, NULL);
  while (c->count > 0) (void)vmm_pool_free(c->f->pool, c->blocks[--c->count], NULL);
  if (c->trim_inside) c->trim = vmm_pool_trim(c->f->pool, 0, 0, &done, NULL);
  return c->answer < 0 ? c->answer : (long long)(c->trim_inside ? done : (u64)c->answer);
}

static void fill_card(fixture *f, cache *c, fixture_options *options) {
  int i;

  options->sim.memory = 16 * MIB;
  options->pool.reservation = 256 * MIB;
  options->device.pressure = evict;
  options->device.pressure_data = c;
  CHECK_CALL(open_with(f, options));
  memset(c, 0, sizeof *c);
  c->f = f;
  for (i = 0; i < 16; i++) CHECK_CALL(c->blocks[c->count++] = fixture_alloc(f, MIB));
  CHECK_EQ(fixture_ledger(f, 0).free_bytes, 0);
}

TEST(the_pressure_callback_makes_room) {
  int inside;

  for (inside = 0; inside < 2; inside++) {
    fixture_options options;
    u64 address = 0;
    cache c;
    fixture f;

    fixture_defaults(&options);
    CHECK_CALL(fill_card(&f, &c, &options));
    c.trim_inside = inside;
    c.answer = 16 * (long long)MIB;
    CHECK_OK_ERROR(vmm_pool_alloc(f.pool, 12 * MIB, &address, &f.error), &f.error);
    CHECK_EQ(c.calls, 1);
    CHECK_EQ(c.asked, 12 * MIB);
    CHECK_STATUS(c.grow, VMM_ERROR_BUSY); /* nothing grows in it, free and trim work */
    CHECK_STATUS(c.alloc, VMM_ERROR_BUSY);
    CHECK_STATUS(c.create, VMM_ERROR_BUSY);
    CHECK_STATUS(c.trim, VMM_OK);
    CHECK_EQ(fixture_device_stats(f.device).pressure_count, 1);
    CHECK_EQ(fixture_device_stats(f.device).pool_count, 1);
    CHECK_CALL(fixture_compare(&f));
    CHECK_CALL(fixture_free(&f, address));
    CHECK_CALL(fixture_close(&f));
  }
}

TEST(a_callback_that_frees_nothing_ends_in_the_drivers_answer) {
  fixture_options options;
  u64 address = 1, start;
  cache c;
  fixture f;
  int i;

  fixture_defaults(&options);
  CHECK_CALL(fill_card(&f, &c, &options));
  i = c.count;
  c.count = 0; /* keeps its blocks */
  start = vmm_driver_now(f.driver);
  CHECK_STATUS(vmm_pool_alloc(f.pool, 12 * MIB, &address, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(vmm_driver_now(f.driver) - start < 100 * MS);
  CHECK_EQ(address, 0);
  CHECK_EQ(c.calls, 1);
  CHECK_STR(f.error.call, "cuMemCreate");
  CHECK_EQ(f.error.free_bytes, 0);
  CHECK_EQ(f.error.total_bytes, 16 * MIB);
  CHECK(fixture_stats(f.pool).oom_rounds <= 4);
  CHECK_CALL(fixture_compare(&f));
  while (i-- > 0) CHECK_CALL(fixture_free(&f, c.blocks[i]));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_callback_that_fails_fails_the_request) {
  fixture_options options;
  u64 address = 1;
  cache c;
  fixture f;

  fixture_defaults(&options);
  CHECK_CALL(fill_card(&f, &c, &options));
  c.answer = -5;
  CHECK_STATUS(vmm_pool_alloc(f.pool, 12 * MIB, &address, &f.error), VMM_ERROR_CALLBACK);
  CHECK_EQ(address, 0);
  CHECK_EQ(f.error.size, 12 * MIB);
  CHECK_EQ(c.calls, 1);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_pool_alloc(f.pool, 12 * MIB, &address, NULL)); /* its blocks were freed all the same */
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

/* ---- changing the callback while it runs ---- */

typedef struct slow {
  fixture *f;
  atomic_int entered, left;
  vmm_status inside;
} slow;

static void nap(long ms) {
  struct timespec rest = {0, ms * 1000000};

  (void)nanosleep(&rest, NULL);
}

static long long slow_callback(void *data, vmm_device *device, unsigned long long size) {
  slow *s = data;

  (void)size;
  s->inside = vmm_device_set_pressure(device, slow_callback, s, NULL); /* from inside: not waited for */
  atomic_store(&s->entered, 1);
  nap(60);
  atomic_store(&s->left, 1);
  return 0;
}

static void *ask_too_much(void *data) {
  slow *s = data;
  u64 address;

  (void)vmm_pool_alloc(s->f->pool, 200 * MIB, &address, NULL);
  return NULL;
}

TEST(set_pressure_waits_for_a_call_under_way) {
  fixture_options options;
  pthread_t thread;
  slow s;
  fixture f;

  fixture_defaults(&options);
  options.sim.memory = 16 * MIB;
  options.pool.reservation = 256 * MIB;
  CHECK_CALL(open_with(&f, &options));
  memset(&s, 0, sizeof s);
  s.f = &f;
  s.inside = VMM_ERROR_BROKEN;
  CHECK_OK(vmm_device_set_pressure(f.device, slow_callback, &s, NULL));
  CHECK_EQ(pthread_create(&thread, NULL, ask_too_much, &s), 0);
  while (!atomic_load(&s.entered)) nap(1);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0); /* meanwhile others go on: no lock is held */
  CHECK_OK(vmm_pool_check(f.pool, NULL));
  CHECK_OK_ERROR(vmm_device_set_pressure(f.device, NULL, NULL, &f.error), &f.error);
  CHECK_EQ(atomic_load(&s.left), 1);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_STATUS(s.inside, VMM_OK);
  CHECK_STATUS(vmm_device_set_pressure(NULL, NULL, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_close(&f));
}

static long long clear_the_other(void *data, vmm_device *device, unsigned long long size) {
  slow *s = data;

  (void)device;
  (void)size;
  return vmm_device_set_pressure(s->f->device, NULL, NULL, NULL) == VMM_OK && atomic_load(&s->left) == 1 ? 0 : -1;
}

/* A callback does not wait for itself, but for one of another device it does. */
TEST(set_pressure_waits_inside_another_devices_callback) {
  fixture_options options;
  vmm_device *other = NULL;
  vmm_pool *pool = NULL;
  pthread_t thread;
  u64 address;
  slow s;
  fixture f;

  fixture_defaults(&options);
  options.sim.memory = 16 * MIB;
  options.sim.device_count = 2;
  options.pool.reservation = 256 * MIB;
  CHECK_CALL(open_with(&f, &options));
  memset(&s, 0, sizeof s);
  s.f = &f;
  options.device.driver = f.driver;
  options.device.pressure = clear_the_other;
  options.device.pressure_data = &s;
  CHECK_OK(vmm_device_open(&other, 1, &options.device, NULL));
  CHECK_OK(vmm_pool_create(&pool, other, &options.pool, NULL));
  CHECK_OK(vmm_device_set_pressure(f.device, slow_callback, &s, NULL));
  CHECK_EQ(pthread_create(&thread, NULL, ask_too_much, &s), 0);
  while (!atomic_load(&s.entered)) nap(1);
  CHECK_STATUS(vmm_pool_alloc(pool, 200 * MIB, &address, NULL), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_OK(vmm_pool_destroy(pool, VMM_DESTROY_IDLE, NULL));
  CHECK_OK(vmm_device_close(other, NULL));
  CHECK_CALL(fixture_close(&f));
}

TEST(set_pressure_does_not_wait_for_ever) {
  fixture_options options;
  pthread_t thread;
  slow s;
  fixture f;

  fixture_defaults(&options);
  options.sim.memory = 16 * MIB;
  options.pool.reservation = 256 * MIB;
  options.device.deadline_ns = 5 * MS;
  CHECK_CALL(open_with(&f, &options));
  memset(&s, 0, sizeof s);
  s.f = &f;
  CHECK_OK(vmm_device_set_pressure(f.device, slow_callback, &s, NULL));
  CHECK_EQ(pthread_create(&thread, NULL, ask_too_much, &s), 0);
  while (!atomic_load(&s.entered)) nap(1);
  CHECK_STATUS(vmm_device_set_pressure(f.device, NULL, NULL, &f.error), VMM_ERROR_TIMEOUT);
  CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
