/* The GPU-side test kernels: loaded once per context, on first use, and launched. */
#include <string.h>

#include "driver/cuda.h"
#include "driver/cuda_abi.h"

enum { SPIN, FILL, VERIFY, SUM, TRAP };
enum { THREADS = 256, MOST_BLOCKS = 4096 };

static const char *const names[VMM__CUDA_KERNELS] = {"vmm_kernel_spin", "vmm_kernel_fill", "vmm_kernel_verify",
                                                     "vmm_kernel_sum", "vmm_kernel_trap"};

typedef int (*module_load_data)(void **module, const void *image);
typedef int (*module_get_function)(void **function, void *module, const char *name);
typedef int (*launch_kernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments,
                             void **extra);
typedef int (*stream_get_ctx)(void *stream, void **context);
typedef int (*ctx_get_id)(void *context, vmm__u64 *id);
typedef int (*func_load)(void *function);

bool vmm__cuda_has_kernels(vmm__cuda *cuda) {
  bool set;
  int i;

  vmm__lock_acquire(&cuda->lock);
  set = cuda->image != NULL;
  vmm__lock_release(&cuda->lock);
  for (i = 0; i < VMM__CUDA_FUNC_LOAD; i++) set = set && cuda->extras[i] != NULL;
  return set;
}

/* With the context current. Functions are loaded at once where the driver can be asked to: a lazy load at the first launch
 * may synchronise. */
static int load(vmm__cuda *cuda, vmm__u64 id, vmm__cuda_module *module) {
  func_load load_function = (func_load)cuda->extras[VMM__CUDA_FUNC_LOAD];
  void *loaded;
  int code = ((module_load_data)cuda->extras[VMM__CUDA_MODULE_LOAD_DATA])(&loaded, cuda->image);
  int i;

  module->context_id = id;
  for (i = 0; i < VMM__CUDA_KERNELS && code == VMM_CODE_SUCCESS; i++) {
    code = ((module_get_function)cuda->extras[VMM__CUDA_MODULE_GET_FUNCTION])(&module->kernels[i], loaded, names[i]);
    if (code == VMM_CODE_SUCCESS && load_function != NULL) code = load_function(module->kernels[i]);
  }
  return code;
}

/* With the context current. Two threads may load the same kernels at once; that costs a little memory and nothing else. */
static int find_kernel(vmm__cuda *cuda, void *context, int kernel, void **function) {
  vmm__cuda_module fresh;
  vmm__u64 id = 0;
  int code = ((ctx_get_id)cuda->extras[VMM__CUDA_CTX_GET_ID])(context, &id);
  int i;

  if (code != VMM_CODE_SUCCESS) return code;
  *function = NULL;
  vmm__lock_acquire(&cuda->lock);
  for (i = 0; i < VMM__CUDA_MODULES; i++)
    if (cuda->modules[i].context_id == id && cuda->modules[i].kernels[kernel] != NULL)
      *function = cuda->modules[i].kernels[kernel];
  vmm__lock_release(&cuda->lock);
  if (*function != NULL) return VMM_CODE_SUCCESS;
  code = load(cuda, id, &fresh);
  if (code != VMM_CODE_SUCCESS) return code;
  *function = fresh.kernels[kernel];
  vmm__lock_acquire(&cuda->lock);
  cuda->modules[cuda->next_module++ % VMM__CUDA_MODULES] =
      fresh; /* the oldest makes room, and is loaded again if need be */
  vmm__lock_release(&cuda->lock);
  return VMM_CODE_SUCCESS;
}

/* The stream's own context; for the default streams (0, 1, 2) the current one. */
static int find_context(vmm__cuda *cuda, void *stream, void **context) {
  int code;

  if ((size_t)stream > 2) return ((stream_get_ctx)cuda->extras[VMM__CUDA_STREAM_GET_CTX])(stream, context);
  code = cuda->base.table->ctx_get_current(cuda, context);
  return code == VMM_CODE_SUCCESS && *context == NULL ? VMM_CODE_INVALID_CONTEXT : code;
}

static int launch_in_context(vmm__cuda *cuda, void *context, int kernel, void *stream, unsigned blocks,
                             unsigned threads, void **arguments) {
  void *function;
  int code = find_kernel(cuda, context, kernel, &function);

  if (code != VMM_CODE_SUCCESS) return code;
  return ((launch_kernel)cuda->extras[VMM__CUDA_LAUNCH_KERNEL])(function, blocks, 1, 1, threads, 1, 1, 0, stream,
                                                                arguments, NULL);
}

/* Loading a module is forbidden to a thread bound by somebody's capture, hence the relaxed mode. */
static int launch(vmm__cuda *cuda, int kernel, void *stream, unsigned blocks, unsigned threads, void **arguments) {
  const vmm__driver_table *table = cuda->base.table;
  int mode = VMM__CUDA_CAPTURE_RELAXED;
  void *context = NULL;
  void *popped;
  int code;

  if (!vmm__cuda_has_kernels(cuda)) return VMM_CODE_NOT_SUPPORTED;
  code = table->capture_mode(cuda, &mode);
  if (code != VMM_CODE_SUCCESS) return code;
  code = find_context(cuda, stream, &context);
  if (code == VMM_CODE_SUCCESS) code = table->ctx_push(cuda, context);
  if (code == VMM_CODE_SUCCESS) {
    code = launch_in_context(cuda, context, kernel, stream, blocks, threads, arguments);
    (void)table->ctx_pop(cuda, &popped);
  }
  (void)table->capture_mode(cuda, &mode);
  return code;
}

/* Words of 4 bytes, one thread each until the blocks run out, then a stride. */
static int launch_words(vmm__cuda *cuda, int kernel, void *stream, vmm__u64 address, vmm__u64 size, void **arguments) {
  vmm__u64 blocks = (size / 4 + THREADS - 1) / THREADS;

  if (address % 4 != 0 || size % 4 != 0 || size == 0) return VMM_CODE_INVALID_VALUE;
  return launch(cuda, kernel, stream, (unsigned)vmm__min(blocks, MOST_BLOCKS), THREADS, arguments);
}

int vmm__cuda_kernel_spin(void *self, void *stream, vmm__u64 ns) {
  void *arguments[] = {&ns};

  return launch(self, SPIN, stream, 1, 1, arguments);
}

int vmm__cuda_kernel_fill(void *self, void *stream, vmm__u64 address, size_t size, vmm__u64 seed) {
  vmm__u64 words = size / 4;
  void *arguments[] = {&address, &words, &seed};

  return launch_words(self, FILL, stream, address, size, arguments);
}

int vmm__cuda_kernel_verify(void *self, void *stream, vmm__u64 address, size_t size, vmm__u64 seed,
                            vmm__u64 mismatches) {
  vmm__u64 words = size / 4;
  void *arguments[] = {&address, &words, &seed, &mismatches};

  if (mismatches % 8 != 0) return VMM_CODE_INVALID_VALUE;
  return launch_words(self, VERIFY, stream, address, size, arguments);
}

int vmm__cuda_kernel_sum(void *self, void *stream, vmm__u64 address, size_t size, vmm__u64 sum) {
  vmm__u64 words = size / 4;
  void *arguments[] = {&address, &words, &sum};

  if (sum % 8 != 0) return VMM_CODE_INVALID_VALUE;
  return launch_words(self, SUM, stream, address, size, arguments);
}

int vmm__cuda_kernel_trap(void *self, void *stream) { return launch(self, TRAP, stream, 1, 1, NULL); }
