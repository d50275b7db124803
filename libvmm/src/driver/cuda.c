/* The CUDA driver of this machine, one per process: a function pointer per operation, called with its real type. */
#include "driver/cuda.h"

#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/status.h"
#include "driver/cuda_abi.h"

/* Held while the driver is made and ended, also across its first calls: there is nothing to wait for it yet. */
static vmm__lock guard = {.rank = VMM__RANK_DRIVER};
static vmm__cuda singleton = {.lock = {.rank = VMM__RANK_DRIVER}};

/* ---- the operations ----------------------------------------------------------------------------------------------
 * Handles are pointers or 64-bit numbers in the driver's interface and in ours, enums are ints: such functions are called
 * through a pointer of our own type. Those by hand take structs of another layout, or nothing. */

#define REST_OF(self_first, ...) (__VA_ARGS__)

#define GENERATED(name, parameters, arguments)                                 \
  static int call_##name parameters {                                          \
    typedef int(*function_type) REST_OF parameters;                            \
    function_type function = (function_type)function_of(self, VMM_OP_##name);  \
    return function != NULL ? function REST_OF arguments : VMM_CODE_NOT_FOUND; \
  }
#define BY_HAND(name, parameters, arguments)

#define HAND_ctx_synchronize ~, BY_HAND
#define HAND_mem_granularity ~, BY_HAND
#define HAND_mem_create ~, BY_HAND
#define HAND_mem_set_access ~, BY_HAND
#define HAND_launch_host_func ~, BY_HAND
#define HAND_kernel_spin ~, BY_HAND
#define HAND_kernel_fill ~, BY_HAND
#define HAND_kernel_verify ~, BY_HAND
#define HAND_kernel_sum ~, BY_HAND
#define HAND_kernel_trap ~, BY_HAND

static vmm__cuda_function function_of(void *self, int op) { return ((vmm__cuda *)self)->functions[op]; }

#define VMM_SELF_PARAMETER void *self
#define VMM_SELF self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  VMM__CALL_PICK(HAND_##name, GENERATED, ~)(name, parameters, arguments)
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER
#undef VMM_SELF

static int call_ctx_synchronize(void *self) {
  typedef int (*function_type)(void);
  function_type function = (function_type)function_of(self, VMM_OP_ctx_synchronize);

  return function != NULL ? function() : VMM_CODE_NOT_FOUND;
}

static vmm__cuda_prop as_prop(const vmm_raw_prop *prop) {
  vmm__cuda_prop result;

  memset(&result, 0, sizeof result);
  result.type = prop->type;
  result.handle_types = prop->handle_types;
  result.location.type = prop->location_type;
  result.location.id = prop->location_id;
  result.flags.compression_type = prop->compression ? VMM__CUDA_COMPRESSION_GENERIC : 0;
  result.flags.gpudirect_rdma_capable = prop->gpudirect_rdma ? 1 : 0;
  return result;
}

static int call_mem_granularity(void *self, size_t *granularity, const vmm_raw_prop *prop, int option) {
  typedef int (*function_type)(size_t *, const vmm__cuda_prop *, int);
  function_type function = (function_type)function_of(self, VMM_OP_mem_granularity);
  vmm__cuda_prop real;

  if (function == NULL) return VMM_CODE_NOT_FOUND;
  if (prop == NULL) return function(granularity, NULL, option);
  real = as_prop(prop);
  return function(granularity, &real, option);
}

static int call_mem_create(void *self, vmm__u64 *handle, size_t size, const vmm_raw_prop *prop, vmm__u64 flags) {
  typedef int (*function_type)(vmm__u64 *, size_t, const vmm__cuda_prop *, vmm__u64);
  function_type function = (function_type)function_of(self, VMM_OP_mem_create);
  vmm__cuda_prop real;

  if (function == NULL) return VMM_CODE_NOT_FOUND;
  if (prop == NULL) return function(handle, size, NULL, flags);
  real = as_prop(prop);
  return function(handle, size, &real, flags);
}

/* The two structs are three ints each, in the same order; still, what is passed on is what the driver declares. A pool has
 * few devices; more descriptors than fit here are passed as they are. */
static int call_mem_set_access(void *self, vmm__u64 address, size_t size, const vmm_raw_access *access, size_t count) {
  typedef int (*function_type)(vmm__u64, size_t, const void *, size_t);
  function_type function = (function_type)function_of(self, VMM_OP_mem_set_access);
  vmm__cuda_access real[16];
  size_t i;

  if (function == NULL) return VMM_CODE_NOT_FOUND;
  if (access == NULL || count > sizeof real / sizeof real[0]) return function(address, size, access, count);
  for (i = 0; i < count; i++) {
    real[i].location.type = access[i].location_type;
    real[i].location.id = access[i].location_id;
    real[i].flags = access[i].flags;
  }
  return function(address, size, real, count);
}

static int call_launch_host_func(void *self, void *stream, vmm_host_function work, void *data) {
  typedef int (*function_type)(void *, vmm_host_function, void *);
  function_type function = (function_type)function_of(self, VMM_OP_launch_host_func);

  return function != NULL ? function(stream, work, data) : VMM_CODE_NOT_FOUND;
}

#define call_kernel_spin vmm__cuda_kernel_spin
#define call_kernel_fill vmm__cuda_kernel_fill
#define call_kernel_verify vmm__cuda_kernel_verify
#define call_kernel_sum vmm__cuda_kernel_sum
#define call_kernel_trap vmm__cuda_kernel_trap

/* ---- the rest of the table ---- */

static vmm__u64 now(void *self) {
  (void)self;
  return vmm__clock_now();
}

static void wait(void *self, vmm__u64 ns) {
  (void)self;
  vmm__clock_wait(ns);
}

static bool has(void *self, int op) {
  switch (op) {
    case VMM_OP_kernel_spin:
    case VMM_OP_kernel_fill:
    case VMM_OP_kernel_verify:
    case VMM_OP_kernel_sum:
    case VMM_OP_kernel_trap:
      return vmm__cuda_has_kernels(self);
    default:
      return function_of(self, op) != NULL;
  }
}

static bool is_wsl(void *self) { return ((vmm__cuda *)self)->wsl; }

/* With the guard. The kernels stay loaded in their contexts, and end with them. */
static void forget_image(vmm__cuda *cuda) {
  vmm__memory_release(&vmm__memory_default, cuda->image, cuda->image_size, 1);
  cuda->image = NULL;
  cuda->image_size = 0;
  memset(cuda->modules, 0, sizeof cuda->modules); /* the next image may be another one */
}

/* Somebody may have asked for the driver again between the last release and this. */
static void destroy(void *self) {
  vmm__cuda *cuda = self;

  vmm__lock_acquire(&guard);
  if (atomic_load_explicit(&cuda->base.count, memory_order_acquire) == 0) forget_image(cuda);
  vmm__lock_release(&guard);
}

static const vmm__driver_table table = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) .name = call_##name,
#include "vmm/ops.def"
    .now = now,
    .wait = wait,
    .has = has,
    .is_wsl = is_wsl,
    .destroy = destroy,
};

/* ---- making it ---- */

static vmm_status fail_init(vmm_error *error, int code) {
  char message[256];
  vmm__text text = vmm__text_start(message, sizeof message);

  vmm__text_add(&text, "the CUDA driver cannot be used: cuInit answered ");
  vmm__text_add(&text, vmm_code_name(code));
  vmm__text_add(&text, " (");
  vmm__text_add_signed(&text, code);
  vmm__text_add(&text, ")");
  (void)vmm__fail(error, VMM_ERROR_NO_DRIVER, message);
  if (error != NULL) {
    error->code = code;
    vmm__text_copy(error->call, sizeof error->call, vmm_op_symbol(VMM_OP_init));
    vmm__text_copy(error->code_name, sizeof error->code_name, vmm_code_name(code));
  }
  return VMM_ERROR_NO_DRIVER;
}

/* One more reference, if there is one already. */
static bool retain_live(vmm_driver *driver) {
  unsigned count = atomic_load_explicit(&driver->count, memory_order_acquire);

  while (count != 0)
    if (atomic_compare_exchange_weak_explicit(&driver->count, &count, count + 1, memory_order_acq_rel,
                                              memory_order_acquire))
      return true;
  return false;
}

/* With the guard. */
static vmm_status make(vmm__cuda *cuda, vmm_error *error) {
  vmm_status status;
  int code;

  if (retain_live(&cuda->base)) return VMM_OK;
  if (cuda->library == NULL) {
    status = vmm__cuda_load(cuda, error);
    if (status != VMM_OK) return status;
    cuda->wsl = vmm__cuda_on_wsl();
  }
  code = call_init(cuda, 0);
  if (code != VMM_CODE_SUCCESS) return fail_init(error, code);
  forget_image(cuda);
  vmm__driver_init(&cuda->base, VMM__DRIVER_CUDA, &table, cuda, NULL);
  return VMM_OK;
}

vmm_status vmm_cuda_create(vmm_driver **driver, vmm_error *error) {
  vmm_status status;

  if (driver != NULL) *driver = NULL;
  if (vmm__forked()) return vmm__fail_forked(error, "vmm_cuda_create");
  if (driver == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_cuda_create: driver is NULL");
  if (!vmm__fork_guard())
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_cuda_create: no memory for the page that notices forks");
  vmm__lock_acquire(&guard);
  status = make(&singleton, error);
  vmm__lock_release(&guard);
  if (status == VMM_OK) *driver = &singleton.base;
  return status;
}

vmm_status vmm_cuda_set_kernels(vmm_driver *driver, const void *image, size_t size, vmm_error *error) {
  vmm_driver *found = vmm__driver_find(driver, VMM__DRIVER_CUDA);
  vmm__cuda *cuda = found != NULL ? found->self : NULL;
  void *copy;
  bool set;

  if (cuda == NULL || image == NULL || size == 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_cuda_set_kernels: no CUDA driver, or no image");
  copy = vmm__memory_allocate(&vmm__memory_default, size, 1);
  if (copy == NULL) return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_cuda_set_kernels: no host memory");
  memcpy(copy, image, size);
  vmm__lock_acquire(&cuda->lock);
  set = cuda->image == NULL;
  if (set) {
    cuda->image = copy;
    cuda->image_size = size;
  }
  vmm__lock_release(&cuda->lock);
  if (set) return VMM_OK;
  vmm__memory_release(&vmm__memory_default, copy, size, 1);
  return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_cuda_set_kernels: kernels were set before");
}
