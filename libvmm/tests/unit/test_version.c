/* The version and the names of statuses: what a caller reads before anything else. */
#include "check.h"

TEST(version_text_and_number_agree) {
  int major = -1, minor = -1, patch = -1;
  CHECK_EQ(sscanf(vmm_version_string(), "%d.%d.%d", &major, &minor, &patch), 3);
  CHECK_EQ(vmm_version(), major * 10000 + minor * 100 + patch);
}

TEST(every_status_has_a_name_and_a_sentence) {
  for (int status = VMM_OK; status <= VMM_ERROR_BROKEN; status++) {
    CHECK(strcmp(vmm_status_name(status), "VMM_ERROR_?") != 0);
    CHECK(strlen(vmm_status_text(status)) > 3);
  }
  CHECK_STR(vmm_status_name(VMM_ERROR_NOT_READY), "VMM_ERROR_NOT_READY");
}

TEST(a_number_that_is_no_status_has_a_name_that_says_so) {
  CHECK_STR(vmm_status_name(VMM_ERROR_BROKEN + 1), "VMM_ERROR_?");
  CHECK_STR(vmm_status_name(-1), "VMM_ERROR_?");
}

RUN_TESTS()
