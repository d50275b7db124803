/* Structs with a size: a library that is older than the header notices what it does not know. */
#include <stddef.h>

#include "support/fixture.h"

/* A field that a later version put into padding at the end would not change the size, and be ignored in silence. */
#define CHECK_NO_PADDING(type, last) CHECK_EQ(offsetof(type, last) + sizeof(((type *)NULL)->last), sizeof(type))

TEST(no_struct_with_a_size_ends_in_padding) {
  CHECK_NO_PADDING(vmm_device_options, fallback);
  CHECK_NO_PADDING(vmm_pool_options, prefer_wait);
  CHECK_NO_PADDING(vmm_request, stream);
  CHECK_NO_PADDING(vmm_host_memory, data);
  CHECK_NO_PADDING(vmm_fault_rule, hook_data);
  CHECK_NO_PADDING(vmm_sim_options, host_memory);
  CHECK_NO_PADDING(vmm_error, message);
}

TEST(a_request_with_a_field_of_a_later_version_is_refused) {
  vmm_request request;
  u64 address = 1;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 100;
  request.reserved = 1;
  CHECK_STATUS(vmm_pool_alloc_with(f.pool, &request, &address, &f.error), VMM_ERROR_VERSION);
  CHECK(strstr(f.error.message, "vmm_request") != NULL);
  CHECK_EQ(address, 0);
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
