/* Finding the CUDA driver: the library by its soname, every symbol in the version the table was written for. */
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "driver/cuda.h"
#include "driver/cuda_abi.h"
#include "driver/ops.h"

static const char library_name[] = "libcuda.so.1";

/* cuGetProcAddress as of CUDA 12.0 and as of 11.3. */
typedef int (*lookup_v2)(const char *symbol, void **function, int version, vmm__u64 flags, int *status);
typedef int (*lookup_v1)(const char *symbol, void **function, int version, vmm__u64 flags);

typedef struct lookup {
  lookup_v2 v2;
  lookup_v1 v1;
} lookup;

static const struct {
  const char *symbol;
  int since;
} extras[VMM__CUDA_EXTRA_COUNT] = {
    [VMM__CUDA_MODULE_LOAD_DATA] = {"cuModuleLoadData", 2000},
    [VMM__CUDA_MODULE_GET_FUNCTION] = {"cuModuleGetFunction", 2000},
    [VMM__CUDA_LAUNCH_KERNEL] = {"cuLaunchKernel", 4000},
    [VMM__CUDA_STREAM_GET_CTX] = {"cuStreamGetCtx", 9020},
    [VMM__CUDA_CTX_GET_ID] = {"cuCtxGetId", 12000},
    [VMM__CUDA_FUNC_LOAD] = {"cuFuncLoad", 12040},
};

/* ISO C has no cast from void * to a function pointer. */
static vmm__cuda_function as_function(void *pointer) {
  vmm__cuda_function function;

  memcpy(&function, &pointer, sizeof function);
  return function;
}

static vmm__cuda_function find(const lookup *how, const char *symbol, int since) {
  void *function = NULL;
  int status = 0;
  int code = how->v2 != NULL ? how->v2(symbol, &function, since, VMM__CUDA_LEGACY_STREAM, &status)
                             : how->v1(symbol, &function, since, VMM__CUDA_LEGACY_STREAM);

  return as_function(code == VMM_CODE_SUCCESS && status == 0 ? function : NULL);
}

static vmm_status no_driver(vmm_error *error, const char *start, const char *rest) {
  char message[256];
  vmm__text text = vmm__text_start(message, sizeof message);

  vmm__text_add(&text, start);
  vmm__text_add(&text, rest);
  return vmm__fail(error, VMM_ERROR_NO_DRIVER, message);
}

static vmm_status find_all(vmm__cuda *cuda, const lookup *how, vmm_error *error) {
  int op;
  int i;

  for (op = 0; op < VMM_OP_COUNT; op++) {
    const vmm__op_info *info = vmm__op_info_of(op);

    cuda->functions[op] = info->since != 0 ? find(how, info->symbol, info->since) : NULL;
    if (cuda->functions[op] == NULL && info->need == VMM__NEED_REQUIRED)
      return no_driver(error, "the CUDA driver is too old: libcuda.so.1 has no usable ", info->symbol);
  }
  for (i = 0; i < VMM__CUDA_EXTRA_COUNT; i++) cuda->extras[i] = find(how, extras[i].symbol, extras[i].since);
  return VMM_OK;
}

vmm_status vmm__cuda_load(vmm__cuda *cuda, vmm_error *error) {
  void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  lookup how = {NULL, NULL};
  vmm_status status;
  const char *why;

  if (library == NULL) {
    why = dlerror();
    return no_driver(error, "there is no CUDA driver: ", why != NULL ? why : library_name);
  }
  how.v2 = (lookup_v2)as_function(dlsym(library, "cuGetProcAddress_v2"));
  how.v1 = (lookup_v1)as_function(dlsym(library, "cuGetProcAddress"));
  if (how.v2 == NULL && how.v1 == NULL)
    status = no_driver(error, "the CUDA driver is too old: libcuda.so.1 has no ", "cuGetProcAddress");
  else status = find_all(cuda, &how, error);
  if (status != VMM_OK) {
    (void)dlclose(library);
    return status;
  }
  cuda->library = library;
  return VMM_OK;
}

bool vmm__cuda_on_wsl(void) {
  char version[512];
  ssize_t length = -1;
  int file;

  if (access("/dev/dxg", F_OK) == 0) return true;
  file = open("/proc/version", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    length = read(file, version, sizeof version - 1);
    (void)close(file);
  }
  if (length <= 0) return false;
  version[length] = '\0';
  return strstr(version, "microsoft") != NULL || strstr(version, "Microsoft") != NULL;
}
