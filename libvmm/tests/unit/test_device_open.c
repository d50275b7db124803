/* Opening and closing: what is refused, what is shared, what is left. */
#include "support/fixture.h"

static void open_none(fixture *f, fixture_options *options) {
  options->no_device = true;
  CHECK_CALL(fixture_open(f, options));
}

static vmm_device_options options_on(fixture *f) {
  vmm_device_options options;

  CHECK_OK_RETURN(vmm_device_options_init(&options, sizeof options), options);
  options.driver = f->driver;
  options.host_memory = &f->memory.table;
  return options;
}

static void refuse(fixture *f, int ordinal, const vmm_device_options *options, vmm_status expected) {
  vmm_device *device = (vmm_device *)f;

  CHECK_STATUS_ERROR(vmm_device_open(&device, ordinal, options, &f->error), expected, &f->error);
  CHECK(device == NULL);
  CHECK(f->error.message[0] != 0);
  CHECK_STATUS(vmm_device_open(&device, ordinal, options, NULL), expected);
}

TEST(the_same_device_opens_twice_and_closes_twice) {
  vmm_device *again = NULL, *third = NULL;
  vmm_device_options options;
  fixture_options all;
  fixture f;

  fixture_defaults(&all);
  CHECK_CALL(open_none(&f, &all));
  options = options_on(&f);
  options.limit = 100 * MIB;
  CHECK_OK(vmm_device_open(&f.device, 0, &options, NULL));
  CHECK_OK(vmm_device_open(&again, 0, &options, NULL));
  CHECK(again == f.device);
  options.limit = 0;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  options.limit = 100 * MIB;
  options.sync_policy = VMM_SYNC_DEVICE;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  CHECK(strstr(f.error.message, "vmm_device_open: the device is open with another ") != NULL);
  options.sync_policy = 0;
  options.context = f.context; /* another key: a device of its own, on the caller's context */
  CHECK_OK_ERROR(vmm_device_open(&third, 0, &options, &f.error), &f.error);
  CHECK(third != f.device);
  CHECK_EQ(fixture_ledger(&f, 0).primary_references, 2);
  CHECK_OK(vmm_device_close(third, NULL));
  CHECK_OK(vmm_device_close(f.device, NULL));
  CHECK_EQ(fixture_device_stats(again).pool_count, 0); /* still there */
  CHECK_OK(vmm_device_close(again, NULL));
  CHECK_STATUS(vmm_device_close(NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_end(&f));
}

TEST(ordinals_and_contexts_that_do_not_fit_are_refused) {
  vmm_device_options options;
  fixture_options all;
  void *other = NULL;
  fixture f;

  fixture_defaults(&all);
  all.sim.device_count = 2;
  CHECK_CALL(open_none(&f, &all));
  options = options_on(&f);
  CHECK_CALL(refuse(&f, 2, &options, VMM_ERROR_INVALID_ARGUMENT));
  CHECK_CALL(refuse(&f, -1, &options, VMM_ERROR_INVALID_ARGUMENT));
  CHECK_CALL(refuse(&f, 2147483647, &options, VMM_ERROR_INVALID_ARGUMENT));
  OK(vmm_raw_primary_retain(f.sim, &other, 1));
  options.context = other;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  CHECK(strstr(f.error.message, "another device") != NULL);
  CHECK_OK(vmm_device_open(&f.device, 1, &options, NULL));
  CHECK_OK(vmm_device_close(f.device, NULL));
  OK(vmm_raw_primary_release(f.sim, 1));
  CHECK_STATUS(vmm_device_open(NULL, 0, &options, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_end(&f));
}

TEST(options_that_make_no_sense_are_refused) {
  vmm_host_memory broken = {sizeof broken, NULL, NULL, NULL};
  vmm_device_options options, *longer;
  fixture_options all;
  fixture f;

  fixture_defaults(&all);
  CHECK_CALL(open_none(&f, &all));
  options = options_on(&f);
  options.sync_policy = 4;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  options.sync_policy = -1;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = options_on(&f);
  options.retry_attempts = -1;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = options_on(&f);
  options.host_memory = &broken;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_INVALID_ARGUMENT));
  options = options_on(&f);
  options.struct_size = sizeof options - 8;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_VERSION));
  options.struct_size = (size_t)1 << 40;
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_VERSION));
  longer = calloc(1, sizeof *longer + 24);
  CHECK(longer != NULL);
  memcpy(longer, &options, sizeof options);
  longer->struct_size = sizeof *longer + 24;
  memset((char *)longer + sizeof *longer + 5, 1, 1);
  CHECK_CALL(refuse(&f, 0, longer, VMM_ERROR_VERSION));
  CHECK(strstr(f.error.message, "vmm_device_options") != NULL);
  memset((char *)longer + sizeof *longer, 0, 24);
  CHECK_OK(vmm_device_open(&f.device, 0, longer, NULL));
  free(longer);
  CHECK_STATUS(vmm_device_options_init(NULL, sizeof options), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_options_init(&options, sizeof options - 1), VMM_ERROR_VERSION);
  CHECK_OK(vmm_device_close(f.device, NULL));
  CHECK_CALL(fixture_end(&f));
}

TEST(a_device_without_virtual_memory_management_says_why) {
  vmm_device_options options;
  fixture_options all;
  fixture f;

  fixture_defaults(&all);
  all.sim.no_vmm = 1;
  CHECK_CALL(open_none(&f, &all));
  options = options_on(&f);
  CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_UNSUPPORTED));
  CHECK(strstr(f.error.message, "virtual memory management") != NULL);
  CHECK_CALL(fixture_end(&f));
}

/* An attribute an older driver does not know, the platform, the version: asked, never assumed. */
TEST(what_a_driver_does_not_know_counts_as_not_there) {
  static const struct {
    const char *fault;
    vmm_status expected;
  } cases[] = {
      {"cuDeviceGetAttribute:INVALID_VALUEx*", VMM_ERROR_UNSUPPORTED},
      {"cuDeviceGetAttribute:UNKNOWNx*", VMM_ERROR_DRIVER},
      {"cuInit:NO_DEVICE", VMM_ERROR_NO_DRIVER},
      {"cuInit:NOT_INITIALIZED", VMM_ERROR_NO_DRIVER},
      {"cuInit:UNKNOWN", VMM_ERROR_DRIVER},
      {"cuDevicePrimaryCtxRetain:OUT_OF_MEMORY", VMM_ERROR_OUT_OF_DEVICE_MEMORY},
      {"cuStreamCreate:OUT_OF_MEMORY", VMM_ERROR_OUT_OF_DEVICE_MEMORY},
      {"cuEventCreate:UNKNOWN@2", VMM_ERROR_DRIVER},
      {"cuEventRecord:LAUNCH_FAILED", VMM_ERROR_DEVICE_LOST},
      {"cuMemGetAllocationGranularity:NOT_SUPPORTED@2", VMM_ERROR_UNSUPPORTED},
  };
  vmm_device_options options;
  fixture_options all;
  fixture f;
  size_t i;

  fixture_defaults(&all);
  CHECK_CALL(open_none(&f, &all));
  options = options_on(&f);
  for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    vmm_device *device = NULL;

    CHECK_CALL(fixture_rule(&f, cases[i].fault));
    CHECK_STATUS_ERROR(vmm_device_open(&device, 0, &options, &f.error), cases[i].expected, &f.error);
    CHECK(device == NULL);
    CHECK_CALL(fixture_clear(&f));
    CHECK_EQ(fixture_ledger(&f, 0).primary_references, 1);
    CHECK_EQ(fixture_ledger(&f, 0).streams, 0);
    CHECK_EQ(fixture_ledger(&f, 0).events, 0);
    CHECK_EQ(f.memory.out, 0);
    CHECK_OK(vmm_device_open(&device, 0, &options, NULL));
    CHECK_OK(vmm_device_close(device, NULL));
  }
  CHECK_CALL(fixture_end(&f));
}

TEST(drivers_before_twelve_are_refused_and_older_ones_do) {
  static const int versions[] = {11080, 12000, 12040, 12050, 13000};
  int i;

  for (i = 0; i < 5; i++) {
    vmm_device_options options;
    vmm_device_info info;
    fixture_options all;
    fixture f;

    fixture_defaults(&all);
    all.sim.driver_version = versions[i];
    all.sim.old_attributes = i % 2;
    CHECK_CALL(open_none(&f, &all));
    options = options_on(&f);
    if (versions[i] < 12000) {
      CHECK_CALL(refuse(&f, 0, &options, VMM_ERROR_UNSUPPORTED));
      CHECK(strstr(f.error.message, "12.0") != NULL);
    } else {
      CHECK_OK_ERROR(vmm_device_open(&f.device, 0, &options, &f.error), &f.error);
      info.struct_size = sizeof info;
      CHECK_OK(vmm_device_get_info(f.device, &info, NULL));
      CHECK_EQ(info.driver_version, versions[i]);
      CHECK_EQ(info.context_fence, versions[i] >= 12050);
      CHECK_OK(vmm_device_close(f.device, NULL));
    }
    CHECK_CALL(fixture_end(&f));
  }
}

TEST(without_host_memory_no_device_opens) {
  vmm_device_options options;
  fixture_options all;
  long long n;
  bool failed = true;
  fixture f;

  fixture_defaults(&all);
  CHECK_CALL(open_none(&f, &all));
  options = options_on(&f);
  for (n = 1; failed; n++) {
    vmm_device *device = NULL;
    vmm_status status;

    f.memory.fail_in = n;
    status = vmm_device_open(&device, 0, &options, &f.error);
    failed = atomic_exchange(&f.memory.fail_in, 0) <= 0;
    CHECK_STATUS(status, failed ? VMM_ERROR_OUT_OF_HOST_MEMORY : VMM_OK);
    CHECK_EQ(device == NULL, failed);
    if (!failed) CHECK_OK(vmm_device_close(device, NULL));
    CHECK_EQ(f.memory.out, 0);
  }
  CHECK(n >= 3);
  CHECK_CALL(fixture_end(&f));
}

TEST(info_tells_what_is_there) {
  static const int policies[][3] = {/* asked, wsl, in force */
                                    {VMM_SYNC_AUTO, 0, VMM_SYNC_ON_DEMAND},
                                    {VMM_SYNC_AUTO, 1, VMM_SYNC_DEVICE},
                                    {VMM_SYNC_STREAMS, 1, VMM_SYNC_STREAMS},
                                    {VMM_SYNC_ON_DEMAND, 1, VMM_SYNC_ON_DEMAND},
                                    {VMM_SYNC_DEVICE, 0, VMM_SYNC_DEVICE}};
  int i;

  for (i = 0; i < 5; i++) {
    fixture_options all;
    vmm_device_info info;
    fixture f;

    fixture_defaults(&all);
    all.sim.granularity = 128 * KIB;
    all.sim.wsl = policies[i][1];
    all.device.sync_policy = policies[i][0];
    CHECK_CALL(fixture_open(&f, &all));
    memset(&info, 0xEE, sizeof info);
    info.struct_size = sizeof info;
    CHECK_OK(vmm_device_get_info(f.device, &info, NULL));
    CHECK_EQ(info.ordinal, 0);
    CHECK_EQ(info.sync_policy, policies[i][2]);
    CHECK_EQ(info.wsl, policies[i][1]);
    CHECK_EQ(info.lost, 0);
    CHECK_EQ(info.granularity, 128 * KIB);
    CHECK_EQ(info.minimum_granularity, 64 * KIB);
    CHECK_EQ(info.total_bytes, 256 * MIB);
    CHECK_STR(info.driver_name, "record(fault(sim))");
    CHECK(info.name[0] != 0);
    CHECK_STATUS(vmm_device_get_info(f.device, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(vmm_device_get_info(NULL, &info, NULL), VMM_ERROR_INVALID_ARGUMENT);
    CHECK_CALL(fixture_close(&f));
  }
}

/* Outputs of an older or a newer header: as much as both know, zero behind. */
TEST(outputs_take_any_reasonable_size) {
  struct {
    vmm_pool_stats stats;
    unsigned char behind[32];
  } larger;
  vmm_device_stats device;
  fixture f;
  u64 address;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_CALL(address = fixture_alloc(&f, 1000));
  memset(&larger, 0xEE, sizeof larger);
  larger.stats.struct_size = sizeof larger;
  CHECK_OK(vmm_pool_get_stats(f.pool, &larger.stats, NULL));
  CHECK_EQ(larger.stats.block_count, 1);
  CHECK_EQ(larger.behind[0] | larger.behind[31], 0);
  CHECK_EQ(larger.stats.struct_size, sizeof larger);
  memset(&larger, 0xEE, sizeof larger);
  larger.stats.struct_size = offsetof(vmm_pool_stats, committed_peak);
  CHECK_OK(vmm_pool_get_stats(f.pool, &larger.stats, NULL));
  CHECK_EQ(larger.stats.committed_bytes, 256 * KIB);
  CHECK_EQ(larger.stats.committed_peak, 0xEEEEEEEEEEEEEEEEull); /* untouched */
  larger.stats.struct_size = 0;
  CHECK_STATUS(vmm_pool_get_stats(f.pool, &larger.stats, &f.error), VMM_ERROR_VERSION);
  CHECK(strstr(f.error.message, "vmm_pool_stats") != NULL);
  device.struct_size = SIZE_MAX;
  CHECK_STATUS(vmm_device_get_stats(f.device, &device, NULL), VMM_ERROR_VERSION);
  CHECK_STATUS(vmm_device_get_stats(f.device, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_device_get_stats(NULL, &device, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_stats(NULL, &larger.stats, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_pool_get_stats(f.pool, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_close(&f));
}

TEST(close_refuses_while_pools_stand_and_can_be_tried_again) {
  fixture_options all;
  u64 address;
  fixture f;

  fixture_defaults(&all);
  all.device.idle_limit = 64 * MIB;
  CHECK_CALL(fixture_open(&f, &all));
  CHECK_STATUS(vmm_device_close(f.device, &f.error), VMM_ERROR_BUSY);
  CHECK_EQ(f.error.size, 1);
  CHECK_CALL(address = fixture_alloc(&f, 3 * MIB));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(vmm_pool_destroy(f.pool, VMM_DESTROY_IDLE, NULL));
  f.pools[0] = NULL;
  CHECK_EQ(fixture_device_stats(f.device).idle_bytes, 3 * MIB);
  CHECK_CALL(fixture_rule(&f, "cuMemRelease:UNKNOWNx*"));
  CHECK_STATUS(vmm_device_close(f.device, &f.error), VMM_ERROR_DRIVER); /* the memory is not back: it stays open */
  CHECK_STR(f.error.call, "cuMemRelease");
  CHECK_EQ(fixture_ledger(&f, 0).handle_bytes, 3 * MIB);
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK_ERROR(vmm_device_close(f.device, &f.error), &f.error);
  CHECK_CALL(fixture_end(&f));
}

TEST(an_event_that_the_driver_keeps_makes_the_close_partial) {
  fixture_options all;
  fixture f;

  fixture_defaults(&all);
  all.no_pool = true;
  CHECK_CALL(fixture_open(&f, &all));
  CHECK_CALL(fixture_rule(&f, "cuEventDestroy:UNKNOWN:after")); /* done all the same; nobody can know */
  CHECK_STATUS(vmm_device_close(f.device, &f.error), VMM_ERROR_PARTIAL);
  CHECK_EQ(f.error.undo_failures, 1);
  CHECK_EQ(f.error.undo_code, VMM_CODE_UNKNOWN);
  CHECK_CALL(fixture_end(&f));
}

RUN_TESTS()
