/* What fits is given, however tight it is; what can never fit is refused, and nothing idle is given back for it. */
#include "support/fixture.h"

/* The pool asks for head-room beyond the request, which the device's limit need not allow. */
TEST(the_devices_limit_costs_the_headroom_and_not_the_request) {
  fixture_options options;
  u64 first, second = 0, third = 0;
  fixture f;

  fixture_defaults(&options);
  options.device.limit = 20 * MIB;
  options.pool.mapping_max = 64 * MIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_CALL(first = fixture_alloc(&f, 19 * MIB));
  CHECK_CALL(second = fixture_alloc(&f, 64 * KIB));
  CHECK(fixture_stats(f.pool).committed_bytes <= 20 * MIB);
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &third, &f.error), VMM_ERROR_LIMIT);
  CHECK_EQ(third, 0);
  CHECK_CALL(fixture_free(&f, first));
  CHECK_CALL(fixture_free(&f, second));
  CHECK_CALL(fixture_close(&f));
}

static vmm_status alloc_without_growth(fixture *f, u64 size, u64 *address) {
  vmm_request request;

  CHECK_OK_RETURN(vmm_request_init(&request, sizeof request), VMM_ERROR_VERSION);
  request.size = size;
  request.flags = VMM_REQUEST_NO_GROWTH;
  return vmm_pool_alloc_with(f->pool, &request, address, &f->error);
}

/* Records are host memory: that they run out is no reason to refuse what fits. */
TEST(a_request_that_forbids_growth_gets_whatever_fits) {
  enum { COUNT = 16384 };
  static u64 addresses[COUNT];
  u64 address = 1;
  fixture f;
  int i;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_pool_grow(f.pool, 4 * MIB, NULL, NULL));
  CHECK_CALL(fixture_forget_calls(&f));
  for (i = 0; i < COUNT; i++) CHECK_OK_ERROR(alloc_without_growth(&f, 256, &addresses[i]), &f.error);
  CHECK_STATUS(alloc_without_growth(&f, 256, &address), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(address, 0);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  for (i = 0; i < COUNT; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_CALL(fixture_close(&f));
}

static u64 hoard[200000];

static long long take_all_in_callback(void *data, vmm_device *device, unsigned long long size) {
  fixture *f = data;
  int i, n = 0;

  (void)device;
  (void)size;
  while (n < 200000 && vmm_pool_alloc(f->pools[1], 256, &hoard[n], NULL) == VMM_OK) n++;
  for (i = 0; i < n; i++) CHECK_OK_RETURN(vmm_pool_free(f->pools[1], hoard[i], NULL), -1);
  return n == 2 * (int)(MIB / 256) ? 0 : -1; /* all there was, and no growth */
}

TEST(what_fits_is_given_inside_a_pressure_callback_too) {
  u64 address = 0;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK(fixture_add_pool(&f, NULL) != NULL);
  CHECK_OK(vmm_pool_grow(f.pools[1], 2 * MIB, NULL, NULL));
  CHECK_OK(vmm_device_set_pressure(f.device, take_all_in_callback, &f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemCreate:OUT_OF_MEMORYx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, MIB, &address, &f.error), VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(fixture_device_stats(f.device).pressure_count, 1);
  CHECK_CALL(fixture_close(&f));
}

static void refuse(fixture *f, u64 size, vmm_status expected, const char *what) {
  u64 committed = fixture_stats(f->pool).committed_bytes;
  u64 address = 1, grown = 1;

  CHECK_CALL(fixture_forget_calls(f));
  CHECK_STATUS_ERROR(vmm_pool_alloc(f->pool, size, &address, &f->error), expected, &f->error);
  CHECK(strstr(f->error.message, what) != NULL);
  CHECK_EQ(address, 0);
  CHECK_STATUS_ERROR(vmm_pool_grow(f->pool, size, &grown, &f->error), expected, &f->error);
  CHECK(strstr(f->error.message, what) != NULL);
  CHECK_EQ(f->error.size, size);
  CHECK_EQ(grown, 0);
  CHECK_EQ(fixture_stats(f->pool).committed_bytes, committed);
  CHECK_EQ(fixture_calls(f, VMM_OP_mem_create) + fixture_calls(f, VMM_OP_mem_unmap), 0);
}

TEST(what_can_never_fit_is_refused_and_costs_no_idle_memory) {
  fixture_options options;
  fixture f;

  fixture_defaults(&options);
  options.pool.reservation = 512 * MIB;
  CHECK_CALL(fixture_open(&f, &options));
  CHECK_OK(vmm_pool_grow(f.pool, 8 * MIB, NULL, NULL));
  CHECK_CALL(refuse(&f, 512 * MIB + 256, VMM_ERROR_OUT_OF_ADDRESS_SPACE, "reservation"));
  CHECK_CALL(refuse(&f, (u64)1 << 62, VMM_ERROR_OUT_OF_ADDRESS_SPACE, "reservation"));
  CHECK_CALL(refuse(&f, UINT64_MAX - 64 * KIB + 1, VMM_ERROR_INVALID_ARGUMENT, "too large"));
  CHECK_CALL(refuse(&f, UINT64_MAX - 255, VMM_ERROR_INVALID_ARGUMENT, "too large"));
  CHECK_OK(vmm_pool_set_limit(f.pool, 64 * MIB, NULL));
  CHECK_CALL(refuse(&f, 64 * MIB + 256, VMM_ERROR_LIMIT, "pool's limit"));
  CHECK_OK(vmm_device_set_limit(f.device, 32 * MIB, NULL));
  CHECK_CALL(refuse(&f, 32 * MIB + 256, VMM_ERROR_LIMIT, "device's limit"));
  CHECK_CALL(fixture_free(&f, fixture_alloc(&f, 32 * MIB))); /* idle memory goes for what can be served */
  CHECK_CALL(fixture_close(&f));
}

/* What the failed attempt had taken is back by then. */
TEST(the_error_says_what_is_free_afterwards) {
  u64 address;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(fixture_rule(&f, "cuMemSetAccess:NOT_READYx*"));
  CHECK_STATUS(vmm_pool_alloc(f.pool, 100 * MIB, &address, &f.error), VMM_ERROR_NOT_READY);
  CHECK_EQ(f.error.total_bytes, 256 * MIB);
  CHECK_EQ(f.error.free_bytes, 256 * MIB);
  CHECK(strstr(f.error.message, "256 of 256 MiB free") != NULL);
  CHECK_CALL(fixture_close(&f));
}

TEST(the_per_thread_stream_is_no_home_stream) {
  vmm_pool_options options = fixture_pool_options();
  vmm_pool *pool = NULL;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  options.home_stream = (void *)(size_t)2;
  CHECK_STATUS(vmm_pool_create(&pool, f.device, &options, &f.error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(strstr(f.error.message, "per-thread") != NULL);
  CHECK(pool == NULL);
  CHECK_CALL(fixture_close(&f));
}

/* The default bounds nothing: cost goes by the call. The same number given by the caller does. */
TEST(what_is_grown_ahead_is_bounded_by_what_the_caller_names) {
  static const u64 most[] = {0, 64 * MIB, 32 * MIB};
  static const u64 mappings[] = {1, 2, 4};
  fixture_options options;
  size_t i;

  for (i = 0; i < 3; i++) {
    fixture f;

    CHECK_CALL(fixture_defaults(&options));
    options.pool.mapping_max = most[i];
    CHECK_CALL(fixture_open(&f, &options));
    CHECK_OK(vmm_pool_grow(f.pool, 128 * MIB, NULL, &f.error));
    CHECK_EQ(fixture_stats(f.pool).mapping_count, mappings[i]);
    CHECK_CALL(fixture_close(&f));
  }
}

RUN_TESTS()
