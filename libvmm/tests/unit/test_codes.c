/* Names of driver codes. */
#include "check.h"
#include "vmm/driver.h"

TEST(names_of_the_codes_that_matter) {
  CHECK_STR(vmm_code_name(VMM_CODE_SUCCESS), "CUDA_SUCCESS");
  CHECK_STR(vmm_code_name(VMM_CODE_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
  CHECK_STR(vmm_code_name(VMM_CODE_NOT_READY), "CUDA_ERROR_NOT_READY");
  CHECK_STR(vmm_code_name(VMM_CODE_LAUNCH_FAILED), "CUDA_ERROR_LAUNCH_FAILED");
  CHECK_STR(vmm_code_name(VMM_CODE_STREAM_CAPTURE_IMPLICIT), "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT");
  CHECK_STR(vmm_code_name(VMM_CODE_UNKNOWN), "CUDA_ERROR_UNKNOWN");
}

TEST(a_number_that_is_no_code_has_the_name_for_that) {
  CHECK_STR(vmm_code_name(4242), "CUDA_ERROR_?");
  CHECK_STR(vmm_code_name(-1), "CUDA_ERROR_?");
  CHECK_STR(vmm_code_name(1000), "CUDA_ERROR_?");
}

TEST(every_name_leads_back_to_its_code_and_fits_the_error_struct) {
  int known = 0;
  for (int code = 0; code <= 1000; code++) {
    const char *name = vmm_code_name(code);
    if (strcmp(name, "CUDA_ERROR_?") == 0) continue;
    known++;
    CHECK_EQ(vmm_code_from_name(name), code);
    CHECK_EQ(vmm_code_from_name(name + (code == 0 ? 5 : 11)), code);
    CHECK(strlen(name) < sizeof((vmm_error *)0)->code_name);
  }
  CHECK(known >= 100);
}

TEST(numbers_are_taken_as_text) {
  CHECK_EQ(vmm_code_from_name("600"), 600);
  CHECK_EQ(vmm_code_from_name("4242"), 4242);
  CHECK_EQ(vmm_code_from_name("2147483647"), 2147483647);
}

TEST(what_is_no_code_is_minus_one) {
  CHECK_EQ(vmm_code_from_name("2147483648"), -1);
  CHECK_EQ(vmm_code_from_name("99999999999999999999"), -1);
  CHECK_EQ(vmm_code_from_name("-1"), -1);
  CHECK_EQ(vmm_code_from_name(""), -1);
  CHECK_EQ(vmm_code_from_name("600 "), -1);
  CHECK_EQ(vmm_code_from_name("NOT_READ"), -1);
  CHECK_EQ(vmm_code_from_name("CUDA_ERROR_"), -1);
  CHECK_EQ(vmm_code_from_name("not_ready"), -1);
  CHECK_EQ(vmm_code_from_name(NULL), -1);
}

RUN_TESTS()
