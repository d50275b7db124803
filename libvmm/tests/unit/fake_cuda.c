/* A stand-in for libcuda.so.1 (it carries that soname): only what the loader and the conversions need to be seen at work
 * on a machine without a GPU. Every function it does not know answers 0. Controlled through the fake_* variables. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "driver/cuda_abi.h"

typedef unsigned long long u64;
typedef void (*any_function)(void);

extern const char *fake_missing; /* the symbol that is not there */
extern int fake_too_new;         /* a version from which symbols are not there; 0: none */
extern int fake_init_code;
extern int fake_lookups;         /* calls of cuGetProcAddress */
extern u64 fake_bad_flags;       /* lookups that did not ask for the legacy stream */
extern vmm__cuda_prop fake_prop; /* of the last create or granularity */
extern vmm__cuda_access fake_access[4];
extern int fake_synchronised;
extern int fake_loads; /* of modules */
extern u64 fake_context_id;
extern void *fake_context;
extern unsigned fake_grid[2]; /* blocks and threads of the last launch */
extern u64 fake_argument;     /* the first argument of the last launch */

int cuGetProcAddress_v2(const char *symbol, void **function, int version, u64 flags, int *status);

const char *fake_missing;
int fake_too_new;
int fake_init_code;
int fake_lookups;
u64 fake_bad_flags;
vmm__cuda_prop fake_prop;
vmm__cuda_access fake_access[4];
int fake_synchronised;
int fake_loads;
u64 fake_context_id = 1;
void *fake_context = &fake_context;
unsigned fake_grid[2];
u64 fake_argument;

static int any(void) { return 0; }

static int init(unsigned flags) { return flags == 0 ? fake_init_code : 1; }

static int create(u64 *handle, size_t size, const vmm__cuda_prop *prop, u64 flags) {
  if (prop == NULL || flags != 0) return 1;
  fake_prop = *prop;
  *handle = size;
  return 0;
}

static int granularity(size_t *result, const vmm__cuda_prop *prop, int option) {
  if (prop == NULL) return 1;
  fake_prop = *prop;
  *result = option == 0 ? 4096 : 8192;
  return 0;
}

static int set_access(u64 address, size_t size, const vmm__cuda_access *access, size_t count) {
  if (address == 0 || size == 0 || access == NULL || count > 4) return 1;
  memcpy(fake_access, access, count * sizeof *access);
  return 0;
}

static int synchronise(void) {
  fake_synchronised++;
  return 0;
}

static int get_context(void **context) {
  *context = fake_context;
  return 0;
}

static int stream_context(void *stream, void **context) {
  *context = stream;
  return 0;
}

static int context_id(void *context, u64 *id) {
  *id = fake_context_id;
  return context != NULL ? 0 : 201;
}

static int load_module(void **module, const void *image) {
  fake_loads++;
  *module = &fake_loads;
  return memcmp(image, "image", 5) == 0 ? 0 : 200;
}

static int get_function(void **function, void *module, const char *name) {
  *function = module;
  return strncmp(name, "vmm_kernel_", 11) == 0 ? 0 : 500;
}

static int launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra) {
  (void)stream;
  if (function == NULL || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || shared != 0 || extra != NULL)
    return 1;
  fake_grid[0] = grid_x;
  fake_grid[1] = block_x;
  if (arguments != NULL) memcpy(&fake_argument, arguments[0], sizeof fake_argument);
  return 0;
}

static const struct {
  const char *symbol;
  any_function function;
} known[] = {
    {"cuInit", (any_function)init},
    {"cuMemCreate", (any_function)create},
    {"cuMemGetAllocationGranularity", (any_function)granularity},
    {"cuMemSetAccess", (any_function)set_access},
    {"cuCtxSynchronize", (any_function)synchronise},
    {"cuCtxGetCurrent", (any_function)get_context},
    {"cuStreamGetCtx", (any_function)stream_context},
    {"cuCtxGetId", (any_function)context_id},
    {"cuModuleLoadData", (any_function)load_module},
    {"cuModuleGetFunction", (any_function)get_function},
    {"cuLaunchKernel", (any_function)launch},
};

int cuGetProcAddress_v2(const char *symbol, void **function, int version, u64 flags, int *status) {
  any_function found = (any_function)any;
  size_t i;

  fake_lookups++;
  if (flags != VMM__CUDA_LEGACY_STREAM) fake_bad_flags++;
  *status = 0;
  *function = NULL;
  if (fake_missing != NULL && strcmp(symbol, fake_missing) == 0) return 500;
  if (fake_too_new != 0 && version >= fake_too_new) {
    *status = 2; /* the symbol is there, but not in this version */
    return 0;
  }
  for (i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(symbol, known[i].symbol) == 0) found = known[i].function;
  memcpy(function, &found, sizeof found);
  return 0;
}
