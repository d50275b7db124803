/* Inside the CUDA driver: the one per process, its function pointers, and the GPU-side test kernels. */
#ifndef VMM_DRIVER_CUDA_H
#define VMM_DRIVER_CUDA_H

#include "base/lock.h"
#include "driver/call.h"

typedef void (*vmm__cuda_function)(void); /* cast to its real type where it is called */

/* Driver functions beyond the table, for the test kernels only. */
typedef enum vmm__cuda_extra {
  VMM__CUDA_MODULE_LOAD_DATA,
  VMM__CUDA_MODULE_GET_FUNCTION,
  VMM__CUDA_LAUNCH_KERNEL,
  VMM__CUDA_STREAM_GET_CTX,
  VMM__CUDA_CTX_GET_ID,
  VMM__CUDA_FUNC_LOAD, /* may be missing */
  VMM__CUDA_EXTRA_COUNT
} vmm__cuda_extra;

enum { VMM__CUDA_KERNELS = 5, VMM__CUDA_MODULES = 32 };

/* The kernels as loaded into one context, known by the driver's id of it: a context's address is used again. */
typedef struct vmm__cuda_module {
  vmm__u64 context_id; /* 0: free */
  void *kernels[VMM__CUDA_KERNELS];
} vmm__cuda_module;

typedef struct vmm__cuda {
  vmm_driver base;
  void *library; /* loaded once, kept for the life of the process */
  bool wsl;
  vmm__cuda_function functions[VMM_OP_COUNT];
  vmm__cuda_function extras[VMM__CUDA_EXTRA_COUNT];
  vmm__lock lock; /* for the modules; not held across driver calls */
  void *image;    /* the kernels' fatbin; NULL: none was set */
  size_t image_size;
  unsigned next_module;
  vmm__cuda_module modules[VMM__CUDA_MODULES];
} vmm__cuda;

/* Opens the library and looks every function up. Returns VMM_OK or VMM_ERROR_NO_DRIVER; nothing is kept then. */
vmm_status vmm__cuda_load(vmm__cuda *cuda, vmm_error *error);

/* Whether this is WSL2, where a Windows driver stands behind the Linux one. */
bool vmm__cuda_on_wsl(void);

/* The vmm.kernel_* operations; `self` is the vmm__cuda. */
int vmm__cuda_kernel_spin(void *self, void *stream, vmm__u64 ns);
int vmm__cuda_kernel_fill(void *self, void *stream, vmm__u64 address, size_t size, vmm__u64 seed);
int vmm__cuda_kernel_verify(void *self, void *stream, vmm__u64 address, size_t size, vmm__u64 seed,
                            vmm__u64 mismatches);
int vmm__cuda_kernel_sum(void *self, void *stream, vmm__u64 address, size_t size, vmm__u64 sum);
int vmm__cuda_kernel_trap(void *self, void *stream);

/* Whether the kernels can be launched: an image was set and the driver has what it takes. */
bool vmm__cuda_has_kernels(vmm__cuda *cuda);

#endif
