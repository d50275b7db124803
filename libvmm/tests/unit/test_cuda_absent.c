/* The CUDA driver from outside: what is answered where there is none, or where it cannot be used, and its life as the one
 * driver of the process. What needs a GPU is in test_cuda.c. */
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "stub_driver.h"

TEST(without_a_driver_the_answer_names_what_is_missing) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  vmm_driver *driver = (vmm_driver *)(size_t)1;
  vmm_error error;
  memset(&error, 0xA5, sizeof error);
  vmm_status status = vmm_cuda_create(&driver, &error);
  if (status == VMM_OK) {
    CHECK(library != NULL && driver != NULL);
    vmm_driver_release(driver);
    return;
  }
  CHECK_STATUS(status, VMM_ERROR_NO_DRIVER);
  CHECK(driver == NULL);
  CHECK_EQ(error.status, VMM_ERROR_NO_DRIVER);
  CHECK_EQ(error.device, -1);
  if (library == NULL) {
    CHECK(strstr(error.message, "libcuda.so.1") != NULL);
    CHECK_EQ(error.code, 0);
  } else { /* a driver without a GPU */
    CHECK(strstr(error.message, "cuInit") != NULL);
    CHECK_STR(error.call, "cuInit");
    CHECK(error.code != 0);
  }
}

TEST(asking_again_answers_the_same) {
  vmm_driver *first, *second;
  vmm_status status = vmm_cuda_create(&first, NULL);
  for (int i = 0; i < 3; i++) {
    CHECK_STATUS(vmm_cuda_create(&second, NULL), status);
    CHECK(first == second);
    vmm_driver_release(second);
  }
  vmm_driver_release(first);
  CHECK_STATUS(vmm_cuda_create(&second, NULL), status);
  vmm_driver_release(second);
}

TEST(a_forked_child_is_told) {
  vmm_driver *driver;
  int how = 0;
  (void)vmm_cuda_create(&driver, NULL);
  vmm_driver_release(driver);
  pid_t child = fork();
  if (child == 0) {
    vmm_error error;
    driver = (vmm_driver *)(size_t)1;
    _exit(vmm_cuda_create(&driver, &error) == VMM_ERROR_FORKED && driver == NULL ? 0 : 1);
  }
  CHECK(child > 0);
  CHECK_EQ(waitpid(child, &how, 0), child);
  CHECK(WIFEXITED(how));
  CHECK_EQ(WEXITSTATUS(how), 0);
}

TEST(wrong_arguments_are_answered) {
  stub_driver stub;
  vmm_error error;
  stub_init(&stub, VMM__DRIVER_SIM);
  CHECK_STATUS(vmm_cuda_create(NULL, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_cuda_set_kernels(&stub.base, "x", 1, &error), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_STATUS(vmm_cuda_set_kernels(NULL, "x", 1, &error), VMM_ERROR_INVALID_ARGUMENT);
}

RUN_TESTS()
