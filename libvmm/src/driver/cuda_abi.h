/* The few driver structs whose layout differs from our neutral ones. A test compares them with cuda.h where one is found. */
#ifndef VMM_DRIVER_CUDA_ABI_H
#define VMM_DRIVER_CUDA_ABI_H

/* CUmemLocation */
typedef struct vmm__cuda_location {
  int type;
  int id;
} vmm__cuda_location;

/* CUmemAllocationProp */
typedef struct vmm__cuda_prop {
  int type;
  int handle_types;
  vmm__cuda_location location;
  void *windows_only;
  struct {
    unsigned char compression_type;
    unsigned char gpudirect_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} vmm__cuda_prop;

/* CUmemAccessDesc */
typedef struct vmm__cuda_access {
  vmm__cuda_location location;
  int flags;
} vmm__cuda_access;

enum {
  VMM__CUDA_LEGACY_STREAM = 1, /* CU_GET_PROC_ADDRESS_LEGACY_STREAM */
  VMM__CUDA_COMPRESSION_GENERIC = 1,
  VMM__CUDA_CAPTURE_RELAXED = 2
};

#endif
