/* The CUDA driver's loader, conversions and kernel launches over a stand-in for libcuda.so.1. The stand-in is loaded first,
 * by path; by its soname it is then what the library finds. The order of the tests matters only in that the driver is
 * loaded once: those that want it missing come first. */
#include <dlfcn.h>

#include "check.h"
#include "driver/cuda_abi.h"
#include "driver/driver.h"
#include "driver/ops.h"

/* A variable of the stand-in's. */
static void *fake(const char *name) {
  static void *library;
  if (library == NULL) library = dlopen(VMM_TEST_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL);
  return library != NULL ? dlsym(library, name) : NULL;
}
#define FAKE(type, name) (*(type *)fake(#name))

TEST(a_missing_symbol_is_named) {
  vmm_driver *driver;
  vmm_error error;
  CHECK(fake("fake_missing") != NULL);
  FAKE(const char *, fake_missing) = "cuMemSetAccess";
  CHECK_STATUS(vmm_cuda_create(&driver, &error), VMM_ERROR_NO_DRIVER);
  FAKE(const char *, fake_missing) = NULL;
  CHECK(driver == NULL);
  CHECK(strstr(error.message, "libcuda.so.1") != NULL);
  CHECK(strstr(error.message, "cuMemSetAccess") != NULL);
  CHECK_EQ(error.code, 0);
}

TEST(a_symbol_that_is_there_in_an_older_version_only_is_missing) {
  vmm_driver *driver;
  vmm_error error;
  FAKE(int, fake_too_new) = 11000;
  CHECK_STATUS(vmm_cuda_create(&driver, &error), VMM_ERROR_NO_DRIVER);
  FAKE(int, fake_too_new) = 0;
  CHECK(strstr(error.message, "cuDevicePrimaryCtxRelease") != NULL);
}

TEST(the_answer_of_init_is_told) {
  vmm_driver *driver;
  vmm_error error;
  FAKE(int, fake_too_new) = 12050; /* optional: no cuCtxRecordEvent */
  FAKE(int, fake_init_code) = VMM_CODE_NO_DEVICE;
  CHECK_STATUS(vmm_cuda_create(&driver, &error), VMM_ERROR_NO_DRIVER);
  FAKE(int, fake_init_code) = 0;
  FAKE(int, fake_too_new) = 0;
  CHECK(driver == NULL);
  CHECK_EQ(error.code, VMM_CODE_NO_DEVICE);
  CHECK_STR(error.call, "cuInit");
  CHECK_STR(error.code_name, "CUDA_ERROR_NO_DEVICE");
  CHECK(strstr(error.message, "CUDA_ERROR_NO_DEVICE") != NULL);
}

TEST(there_is_one_driver_and_it_is_loaded_once) {
  vmm_driver *first, *second;
  char name[16];
  CHECK_OK(vmm_cuda_create(&first, NULL));
  int lookups = FAKE(int, fake_lookups);
  CHECK_OK(vmm_cuda_create(&second, NULL));
  CHECK(first == second);
  CHECK_OK(vmm_driver_name(first, name, sizeof name));
  CHECK_STR(name, "cuda");
  CHECK(vmm__driver_has(first, VMM_OP_mem_set_access));
  CHECK(!vmm__driver_has(first, VMM_OP_ctx_record_event));
  CHECK_EQ(vmm_raw_ctx_record_event(first, NULL, NULL), VMM_CODE_NOT_FOUND);
  vmm_driver_release(first);
  vmm_driver_release(second);
  CHECK_OK(vmm_cuda_create(&second, NULL));
  CHECK_EQ(FAKE(int, fake_lookups), lookups);
  CHECK_EQ((long long)FAKE(unsigned long long, fake_bad_flags), 0);
  vmm_driver_release(second);
}

TEST(properties_and_access_are_converted) {
  vmm_driver *driver;
  vmm_raw_prop prop = {1, 8, 3, 5, 1, 1};
  vmm_raw_access access[20] = {{1, 4, 3}, {3, 6, 1}};
  vmm__cuda_prop *seen = fake("fake_prop");
  vmm__cuda_access *granted = fake("fake_access");
  unsigned long long handle = 0;
  size_t granularity = 0;
  CHECK_OK(vmm_cuda_create(&driver, NULL));
  memset(seen, 0xA5, sizeof *seen);
  CHECK_EQ(vmm_raw_mem_create(driver, &handle, 77, &prop, 0), 0);
  CHECK_EQ(handle, 77);
  CHECK(seen->type == 1 && seen->handle_types == 8 && seen->location.type == 3 && seen->location.id == 5);
  CHECK(seen->windows_only == NULL && seen->flags.compression_type == 1 && seen->flags.gpudirect_rdma_capable == 1);
  CHECK_EQ(seen->flags.usage, 0);
  CHECK_EQ(vmm_raw_mem_create(driver, &handle, 77, NULL, 0), 1);
  CHECK_EQ(vmm_raw_mem_granularity(driver, &granularity, &prop, 1), 0);
  CHECK_EQ(granularity, 8192);
  CHECK_EQ(vmm_raw_mem_granularity(driver, &granularity, NULL, 1), 1);
  CHECK_EQ(vmm_raw_mem_set_access(driver, 1, 1, access, 2), 0);
  CHECK(granted[0].location.type == 1 && granted[0].location.id == 4 && granted[0].flags == 3);
  CHECK(granted[1].location.type == 3 && granted[1].location.id == 6 && granted[1].flags == 1);
  CHECK_EQ(vmm_raw_mem_set_access(driver, 1, 1, access, 20), 1);
  CHECK_EQ(vmm_raw_mem_set_access(driver, 1, 1, NULL, 1), 1);
  int before = FAKE(int, fake_synchronised);
  CHECK_EQ(vmm_raw_ctx_synchronize(driver), 0);
  CHECK_EQ(FAKE(int, fake_synchronised), before + 1);
  vmm_driver_release(driver);
}

TEST(kernels_are_loaded_once_per_context_and_launched) {
  vmm_driver *driver;
  vmm_error error;
  void *stream = &driver;
  CHECK_OK(vmm_cuda_create(&driver, NULL));
  CHECK(!vmm__driver_has(driver, VMM_OP_kernel_fill));
  CHECK_EQ(vmm_raw_kernel_fill(driver, stream, 4096, 8, 1), VMM_CODE_NOT_SUPPORTED);
  CHECK_STATUS(vmm_cuda_set_kernels(driver, "image", 0, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_cuda_set_kernels(driver, NULL, 5, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_OK(vmm_cuda_set_kernels(driver, "image", 6, &error));
  CHECK_STATUS(vmm_cuda_set_kernels(driver, "image", 6, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK(vmm__driver_has(driver, VMM_OP_kernel_fill));
  int loads = FAKE(int, fake_loads);
  CHECK_EQ(vmm_raw_kernel_fill(driver, stream, 4096, 4 * 257, 1), 0);
  CHECK_EQ(FAKE(unsigned, fake_grid), 2);
  CHECK_EQ(FAKE(unsigned long long, fake_argument), 4096);
  CHECK_EQ(vmm_raw_kernel_sum(driver, NULL, 4096, 1ull << 40, 8), 0);
  CHECK_EQ(FAKE(unsigned, fake_grid), 4096);
  CHECK_EQ(vmm_raw_kernel_verify(driver, NULL, 4096, 4, 1, 16), 0);
  CHECK_EQ(vmm_raw_kernel_spin(driver, stream, 123), 0);
  CHECK_EQ(FAKE(unsigned long long, fake_argument), 123);
  CHECK_EQ(vmm_raw_kernel_trap(driver, stream), 0);
  CHECK_EQ(FAKE(int, fake_loads), loads + 1);
  FAKE(unsigned long long, fake_context_id) = 2;
  CHECK_EQ(vmm_raw_kernel_spin(driver, stream, 1), 0);
  CHECK_EQ(FAKE(int, fake_loads), loads + 2);
  vmm_driver_release(driver);
}

TEST(kernels_refuse_what_they_could_not_do) {
  vmm_driver *driver;
  CHECK_OK(vmm_cuda_create(&driver, NULL));
  CHECK_OK(vmm_cuda_set_kernels(driver, "image", 6, NULL)); /* a driver made anew has none */
  CHECK_EQ(vmm_raw_kernel_fill(driver, NULL, 4096, 6, 1), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_kernel_fill(driver, NULL, 4098, 8, 1), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_kernel_fill(driver, NULL, 4096, 0, 1), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_kernel_verify(driver, NULL, 4096, 8, 1, 4), VMM_CODE_INVALID_VALUE);
  CHECK_EQ(vmm_raw_kernel_sum(driver, NULL, 4096, 8, 4), VMM_CODE_INVALID_VALUE);
  FAKE(void *, fake_context) = NULL;
  CHECK_EQ(vmm_raw_kernel_spin(driver, NULL, 1), VMM_CODE_INVALID_CONTEXT);
  FAKE(void *, fake_context) = driver;
  vmm_driver_release(driver);
  CHECK_OK(vmm_cuda_create(&driver, NULL));
  CHECK_OK(vmm_cuda_set_kernels(driver, "no kernels in here", 18, NULL));
  CHECK_EQ(vmm_raw_kernel_spin(driver, NULL, 1), 200);
  vmm_driver_release(driver);
}

TEST(time_is_the_machines) {
  vmm_driver *driver;
  CHECK_OK(vmm_cuda_create(&driver, NULL));
  unsigned long long before = vmm_driver_now(driver);
  vmm_driver_wait(driver, 2000000);
  CHECK(vmm_driver_now(driver) - before >= 2000000);
  vmm_driver_release(driver);
}

RUN_TESTS()
