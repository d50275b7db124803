/* Our view of the driver's interface against the real cuda.h (built only where one is found): that each symbol exists in
 * the version the table asks for, with parameters of the same number, kind and size, and that structs and numbers agree.
 * Nearly all of it is checked by the compiler. */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stddef.h>

#include "check.h"
#include "driver/cuda_abi.h"
#include "driver/driver.h"
#include "driver/ops.h"

/* Each kind of parameter: the real type and ours. */
#define KIND(kind, real, ours) \
  typedef real real_##kind;    \
  typedef ours ours_##kind;    \
  _Static_assert(sizeof(real_##kind) == sizeof(ours_##kind), #kind)
/* A pointer through which something is written or read: what it points to must agree too. */
#define POINTER(kind, real, ours) \
  KIND(kind, real *, ours *);     \
  _Static_assert(sizeof(real) == sizeof(ours), #kind)

typedef unsigned long long u64;
KIND(u32, unsigned int, unsigned int);
KIND(u64, unsigned long long, u64);
KIND(size, size_t, size_t);
KIND(number, int, int);
KIND(byte, unsigned char, unsigned char);
KIND(device, CUdevice, int);
KIND(address, CUdeviceptr, u64);
KIND(handle, CUmemGenericAllocationHandle, u64);
KIND(context, CUcontext, void *);
KIND(stream, CUstream, void *);
KIND(event, CUevent, void *);
KIND(graph, CUgraph, void *);
KIND(exec, CUgraphExec, void *);
KIND(attribute, CUdevice_attribute, int);
KIND(option, CUmemAllocationGranularity_flags, int);
KIND(handle_type, CUmemAllocationHandleType, int);
KIND(capture_mode, CUstreamCaptureMode, int);
KIND(host_function, CUhostFn, vmm_host_function);
KIND(pointer, void *, void *);
KIND(address_as_pointer, void *, u64); /* one function takes a device address as void * */
KIND(bytes, const void *, const void *);
KIND(ipc, CUipcMemHandle *, void *);
POINTER(text, char, char);
POINTER(number_out, int, int);
POINTER(u64_out, u64, u64);
POINTER(size_out, size_t, size_t);
POINTER(device_out, CUdevice, int);
POINTER(address_out, CUdeviceptr, u64);
POINTER(handle_out, CUmemGenericAllocationHandle, u64);
POINTER(context_out, CUcontext, void *);
POINTER(stream_out, CUstream, void *);
POINTER(event_out, CUevent, void *);
POINTER(graph_out, CUgraph, void *);
POINTER(exec_out, CUgraphExec, void *);
POINTER(pointer_out, void *, void *);
POINTER(capture_mode_out, CUstreamCaptureMode, int);
POINTER(capture_status_out, CUstreamCaptureStatus, int);
POINTER(location, const CUmemLocation, const vmm_raw_location);
POINTER(access, const CUmemAccessDesc, const vmm_raw_access);
KIND(prop, const CUmemAllocationProp *, const vmm_raw_prop *); /* converted on the way; its layout is checked below */

#define LIST1(p, a) p##a
#define LIST2(p, a, ...) p##a, LIST1(p, __VA_ARGS__)
#define LIST3(p, a, ...) p##a, LIST2(p, __VA_ARGS__)
#define LIST4(p, a, ...) p##a, LIST3(p, __VA_ARGS__)
#define LIST5(p, a, ...) p##a, LIST4(p, __VA_ARGS__)
#define LIST6(p, a, ...) p##a, LIST5(p, __VA_ARGS__)

/* X(parameters, operation, symbol, version, kinds...) */
#define DRIVER_OPS(X)                                                                         \
  X(1, init, cuInit, 2000, u32)                                                               \
  X(1, driver_version, cuDriverGetVersion, 2020, number_out)                                  \
  X(1, device_count, cuDeviceGetCount, 2000, number_out)                                      \
  X(2, device_get, cuDeviceGet, 2000, device_out, number)                                     \
  X(3, device_name, cuDeviceGetName, 2000, text, number, device)                              \
  X(3, device_attribute, cuDeviceGetAttribute, 2000, number_out, attribute, device)           \
  X(2, device_total_mem, cuDeviceTotalMem, 3020, size_out, device)                            \
  X(3, device_can_access_peer, cuDeviceCanAccessPeer, 4000, number_out, device, device)       \
  X(2, primary_retain, cuDevicePrimaryCtxRetain, 7000, context_out, device)                   \
  X(1, primary_release, cuDevicePrimaryCtxRelease, 11000, device)                             \
  X(3, ctx_create, cuCtxCreate, 3020, context_out, u32, device)                               \
  X(1, ctx_destroy, cuCtxDestroy, 4000, context)                                              \
  X(1, ctx_get_current, cuCtxGetCurrent, 4000, context_out)                                   \
  X(1, ctx_set_current, cuCtxSetCurrent, 4000, context)                                       \
  X(1, ctx_push, cuCtxPushCurrent, 4000, context)                                             \
  X(1, ctx_pop, cuCtxPopCurrent, 4000, context_out)                                           \
  X(1, ctx_get_device, cuCtxGetDevice, 2000, device_out)                                      \
  X(2, ctx_record_event, cuCtxRecordEvent, 12050, context, event)                             \
  X(1, capture_mode, cuThreadExchangeStreamCaptureMode, 10010, capture_mode_out)              \
  X(2, mem_get_info, cuMemGetInfo, 3020, size_out, size_out)                                  \
  X(3, mem_granularity, cuMemGetAllocationGranularity, 10020, size_out, prop, option)         \
  X(5, mem_reserve, cuMemAddressReserve, 10020, address_out, size, size, address, u64)        \
  X(2, mem_address_free, cuMemAddressFree, 10020, address, size)                              \
  X(4, mem_create, cuMemCreate, 10020, handle_out, size, prop, u64)                           \
  X(1, mem_release, cuMemRelease, 10020, handle)                                              \
  X(5, mem_map, cuMemMap, 10020, address, size, size, handle, u64)                            \
  X(2, mem_unmap, cuMemUnmap, 10020, address, size)                                           \
  X(4, mem_set_access, cuMemSetAccess, 10020, address, size, access, size)                    \
  X(3, mem_get_access, cuMemGetAccess, 10020, u64_out, location, address)                     \
  X(2, mem_retain_handle, cuMemRetainAllocationHandle, 11000, handle_out, address_as_pointer) \
  X(4, mem_export, cuMemExportToShareableHandle, 10020, pointer, handle, handle_type, u64)    \
  X(3, mem_import, cuMemImportFromShareableHandle, 10020, handle_out, pointer, handle_type)   \
  X(3, mem_address_range, cuMemGetAddressRange, 3020, address_out, size_out, address)         \
  X(2, ipc_get_handle, cuIpcGetMemHandle, 4010, ipc, address)                                 \
  X(2, mem_alloc, cuMemAlloc, 3020, address_out, size)                                        \
  X(1, mem_free, cuMemFree, 3020, address)                                                    \
  X(3, mem_host_alloc, cuMemHostAlloc, 2020, pointer_out, size, u32)                          \
  X(1, mem_host_free, cuMemFreeHost, 2000, pointer)                                           \
  X(3, memcpy_htod, cuMemcpyHtoD, 3020, address, bytes, size)                                 \
  X(3, memcpy_dtoh, cuMemcpyDtoH, 3020, pointer, address, size)                               \
  X(4, memcpy_htod_async, cuMemcpyHtoDAsync, 3020, address, bytes, size, stream)              \
  X(4, memcpy_dtoh_async, cuMemcpyDtoHAsync, 3020, pointer, address, size, stream)            \
  X(4, memcpy_dtod_async, cuMemcpyDtoDAsync, 3020, address, address, size, stream)            \
  X(4, memset_d8_async, cuMemsetD8Async, 3020, address, byte, size, stream)                   \
  X(6, memset_d2d32_async, cuMemsetD2D32Async, 3020, address, size, u32, size, size, stream)  \
  X(2, stream_create, cuStreamCreate, 2000, stream_out, u32)                                  \
  X(1, stream_destroy, cuStreamDestroy, 4000, stream)                                         \
  X(1, stream_query, cuStreamQuery, 2000, stream)                                             \
  X(1, stream_synchronize, cuStreamSynchronize, 2000, stream)                                 \
  X(3, stream_wait_event, cuStreamWaitEvent, 3020, stream, event, u32)                        \
  X(2, stream_is_capturing, cuStreamIsCapturing, 10000, stream, capture_status_out)           \
  X(2, stream_get_id, cuStreamGetId, 12000, stream, u64_out)                                  \
  X(2, stream_begin_capture, cuStreamBeginCapture, 10010, stream, capture_mode)               \
  X(2, stream_end_capture, cuStreamEndCapture, 10000, stream, graph_out)                      \
  X(3, graph_instantiate, cuGraphInstantiateWithFlags, 11040, exec_out, graph, u64)           \
  X(2, graph_launch, cuGraphLaunch, 10000, exec, stream)                                      \
  X(1, graph_exec_destroy, cuGraphExecDestroy, 10000, exec)                                   \
  X(1, graph_destroy, cuGraphDestroy, 10000, graph)                                           \
  X(3, launch_host_func, cuLaunchHostFunc, 10000, stream, host_function, pointer)             \
  X(2, event_create, cuEventCreate, 2000, event_out, u32)                                     \
  X(1, event_destroy, cuEventDestroy, 4000, event)                                            \
  X(2, event_record, cuEventRecord, 2000, event, stream)                                      \
  X(1, event_query, cuEventQuery, 2000, event)                                                \
  X(1, event_synchronize, cuEventSynchronize, 2000, event)

#define SAME(a, b) __builtin_types_compatible_p(a, b)
#define FUNCTION_AGREES(count, name, symbol, version, ...)                                                           \
  _Static_assert(SAME(PFN_##symbol##_v##version, CUresult(*)(LIST##count(real_, __VA_ARGS__))), #symbol);            \
  _Static_assert(SAME(__typeof__(((vmm__driver_table *)0)->name), int (*)(void *, LIST##count(ours_, __VA_ARGS__))), \
                 #name);
DRIVER_OPS(FUNCTION_AGREES)

_Static_assert(SAME(PFN_cuCtxSynchronize_v2000, CUresult (*)(void)), "the one function without a parameter");
_Static_assert(sizeof(CUresult) == sizeof(int), "every function's answer");

/* What the test kernels need beyond the table. */
_Static_assert(SAME(PFN_cuModuleLoadData_v2000, CUresult (*)(CUmodule *, const void *)), "cuModuleLoadData");
_Static_assert(SAME(PFN_cuModuleGetFunction_v2000, CUresult (*)(CUfunction *, CUmodule, const char *)),
               "cuModuleGetFunction");
_Static_assert(SAME(PFN_cuStreamGetCtx_v9020, CUresult (*)(CUstream, CUcontext *)), "cuStreamGetCtx");
_Static_assert(SAME(PFN_cuCtxGetId_v12000, CUresult (*)(CUcontext, u64 *)), "cuCtxGetId");
_Static_assert(SAME(PFN_cuLaunchKernel_v4000, CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                                           unsigned, unsigned, CUstream, void **, void **)),
               "cuLaunchKernel");
#if CUDA_VERSION >= 12040
_Static_assert(SAME(PFN_cuFuncLoad_v12040, CUresult (*)(CUfunction)), "cuFuncLoad");
#endif

/* Structs that are converted, and flags. */
#define FIELD(real, field, ours, ours_field)                                        \
  _Static_assert(offsetof(real, field) == offsetof(ours, ours_field) &&             \
                     sizeof(((real *)0)->field) == sizeof(((ours *)0)->ours_field), \
                 #real "." #field)
_Static_assert(sizeof(CUmemAllocationProp) == sizeof(vmm__cuda_prop), "CUmemAllocationProp");
FIELD(CUmemAllocationProp, type, vmm__cuda_prop, type);
FIELD(CUmemAllocationProp, requestedHandleTypes, vmm__cuda_prop, handle_types);
FIELD(CUmemAllocationProp, location.type, vmm__cuda_prop, location.type);
FIELD(CUmemAllocationProp, location.id, vmm__cuda_prop, location.id);
FIELD(CUmemAllocationProp, allocFlags.compressionType, vmm__cuda_prop, flags.compression_type);
FIELD(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable, vmm__cuda_prop, flags.gpudirect_rdma_capable);
FIELD(CUmemAllocationProp, allocFlags.usage, vmm__cuda_prop, flags.usage);
_Static_assert(sizeof(CUmemAccessDesc) == sizeof(vmm__cuda_access), "CUmemAccessDesc");
FIELD(CUmemAccessDesc, location.type, vmm__cuda_access, location.type);
FIELD(CUmemAccessDesc, location.id, vmm__cuda_access, location.id);
FIELD(CUmemAccessDesc, flags, vmm__cuda_access, flags);
FIELD(CUmemAccessDesc, location.type, vmm_raw_access, location_type);
FIELD(CUmemAccessDesc, location.id, vmm_raw_access, location_id);
FIELD(CUmemAccessDesc, flags, vmm_raw_access, flags);
FIELD(CUmemLocation, type, vmm_raw_location, type);
FIELD(CUmemLocation, id, vmm_raw_location, id);
_Static_assert((int)CU_GET_PROC_ADDRESS_LEGACY_STREAM == (int)VMM__CUDA_LEGACY_STREAM, "legacy stream");
_Static_assert((int)CU_STREAM_CAPTURE_MODE_RELAXED == (int)VMM__CUDA_CAPTURE_RELAXED, "relaxed capture");
_Static_assert((int)CU_MEM_ALLOCATION_COMP_GENERIC == (int)VMM__CUDA_COMPRESSION_GENERIC, "compressible memory");
_Static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1, "as vmm_raw_prop says");
_Static_assert(CU_MEM_LOCATION_TYPE_HOST_NUMA == 3, "as vmm_raw_prop says");
_Static_assert(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 1 && CU_MEM_HANDLE_TYPE_FABRIC == 8, "as vmm_raw_prop says");
_Static_assert(CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3 && CU_MEM_ACCESS_FLAGS_PROT_READ == 1, "as vmm_raw_access says");

/* The codes by number and name. */
#define CODE(name) _Static_assert((int)CUDA_ERROR_##name == (int)VMM_CODE_##name, #name)
_Static_assert((int)CUDA_SUCCESS == (int)VMM_CODE_SUCCESS, "CUDA_SUCCESS");
CODE(INVALID_VALUE);
CODE(OUT_OF_MEMORY);
CODE(NOT_INITIALIZED);
CODE(DEINITIALIZED);
CODE(DEVICE_UNAVAILABLE);
CODE(NO_DEVICE);
CODE(INVALID_DEVICE);
CODE(INVALID_CONTEXT);
CODE(ECC_UNCORRECTABLE);
CODE(NVLINK_UNCORRECTABLE);
CODE(INVALID_HANDLE);
CODE(NOT_FOUND);
CODE(NOT_READY);
CODE(ILLEGAL_ADDRESS);
CODE(LAUNCH_TIMEOUT);
CODE(CONTEXT_IS_DESTROYED);
CODE(ASSERT);
CODE(LAUNCH_FAILED);
CODE(NOT_PERMITTED);
CODE(NOT_SUPPORTED);
CODE(STREAM_CAPTURE_UNSUPPORTED);
CODE(STREAM_CAPTURE_INVALIDATED);
CODE(STREAM_CAPTURE_ISOLATION);
CODE(STREAM_CAPTURE_IMPLICIT);
CODE(CAPTURED_EVENT);
CODE(UNKNOWN);

static const struct {
  int op;
  const char *symbol;
  int since;
} checked[] = {
#define ROW(count, name, symbol, version, ...) {VMM_OP_##name, #symbol, version},
    DRIVER_OPS(ROW){VMM_OP_ctx_synchronize, "cuCtxSynchronize", 2000},
};

TEST(every_driver_symbol_of_the_table_was_compared_in_the_version_asked_for) {
  bool seen[VMM_OP_COUNT] = {false};
  for (unsigned i = 0; i < sizeof checked / sizeof checked[0]; i++) {
    const vmm__op_info *info = vmm__op_info_of(checked[i].op);
    CHECK_STR(info->symbol, checked[i].symbol);
    CHECK_EQ(info->since, checked[i].since);
    seen[checked[i].op] = true;
  }
  for (int op = 0; op < VMM_OP_COUNT; op++) CHECK_EQ(seen[op], vmm__op_info_of(op)->since != 0);
}

RUN_TESTS()
