/* One call on its way through a wrapper: what it is about, and where its outputs go. Shared by fault and record, whose
 * functions are all generated from ops.def. */
#ifndef VMM_DRIVER_CALL_H
#define VMM_DRIVER_CALL_H

#include "driver/driver.h"

typedef struct vmm__output {
  void *where; /* the caller's; may be NULL */
  size_t size;
} vmm__output;

typedef struct vmm__call {
  int op;
  vmm__u64 address;
  vmm__u64 size;
  vmm__u64 object;
  vmm__output outputs[2];
  const vmm_raw_access *access; /* set-access only */
  size_t access_count;
} vmm__call;

static inline void vmm__call_output(vmm__call *call, unsigned index, void *where, size_t size) {
  call->outputs[index].where = where;
  call->outputs[index].size = size;
}

static inline void vmm__call_two_outputs(vmm__call *call, void *first, size_t first_size, void *second,
                                         size_t second_size) {
  vmm__call_output(call, 0, first, first_size);
  vmm__call_output(call, 1, second, second_size);
}

static inline void vmm__call_access(vmm__call *call, const vmm_raw_access *access, size_t count) {
  call->access = access;
  call->access_count = count;
}

/* The first output as a number; 0 if there is none, it is not there, or it is no number. */
vmm__u64 vmm__call_output_value(const vmm__call *call);

/* The number of the calling thread: 1, 2, 3 ... in the order threads came here. */
vmm__u64 vmm__thread_number(void);

/* What both wrappers pass on unchanged; self is a struct that begins with a vmm_driver. */
vmm__u64 vmm__wrapper_now(void *self);
void vmm__wrapper_wait(void *self, vmm__u64 ns);
bool vmm__wrapper_has(void *self, int op);
bool vmm__wrapper_is_wsl(void *self);

/* In a generated function: VMM__CALL_START(name, address, size, object) declares `call`; VMM__CALL_DETAILS(name) notes the
 * outputs of the operations that have some. */
#define VMM__CALL_START(name, address, size, object) \
  { VMM_OP_##name, (vmm__u64)(address), (vmm__u64)(size), (vmm__u64)(object), {{NULL, 0}, {NULL, 0}}, NULL, 0 }

#define VMM__CALL_PICK_SECOND(a, b, ...) b
#define VMM__CALL_PICK(...) VMM__CALL_PICK_SECOND(__VA_ARGS__)
#define VMM__CALL_DETAILS(name) VMM__CALL_PICK(VMM__DETAILS_##name, (void)0, ~)

#define VMM__DETAILS_ONE(output) ~, vmm__call_output(&call, 0, output, sizeof *output)
#define VMM__DETAILS_TWO(a, b) ~, vmm__call_two_outputs(&call, a, sizeof *a, b, sizeof *b)
#define VMM__DETAILS_BYTES(output, bytes) ~, vmm__call_output(&call, 0, output, bytes)

#define VMM__DETAILS_driver_version VMM__DETAILS_ONE(version)
#define VMM__DETAILS_device_count VMM__DETAILS_ONE(count)
#define VMM__DETAILS_device_get VMM__DETAILS_ONE(device)
#define VMM__DETAILS_device_name VMM__DETAILS_BYTES(name, length > 0 ? (size_t)length : 0)
#define VMM__DETAILS_device_attribute VMM__DETAILS_ONE(value)
#define VMM__DETAILS_device_total_mem VMM__DETAILS_ONE(bytes)
#define VMM__DETAILS_device_can_access_peer VMM__DETAILS_ONE(can)
#define VMM__DETAILS_primary_retain VMM__DETAILS_ONE(context)
#define VMM__DETAILS_ctx_create VMM__DETAILS_ONE(context)
#define VMM__DETAILS_ctx_get_current VMM__DETAILS_ONE(context)
#define VMM__DETAILS_ctx_pop VMM__DETAILS_ONE(context)
#define VMM__DETAILS_ctx_get_device VMM__DETAILS_ONE(device)
#define VMM__DETAILS_capture_mode VMM__DETAILS_ONE(mode)
#define VMM__DETAILS_mem_get_info VMM__DETAILS_TWO(free, total)
#define VMM__DETAILS_mem_granularity VMM__DETAILS_ONE(granularity)
#define VMM__DETAILS_mem_reserve VMM__DETAILS_ONE(address)
#define VMM__DETAILS_mem_create VMM__DETAILS_ONE(handle)
#define VMM__DETAILS_mem_set_access ~, vmm__call_access(&call, access, count)
#define VMM__DETAILS_mem_get_access VMM__DETAILS_ONE(flags)
#define VMM__DETAILS_mem_retain_handle VMM__DETAILS_ONE(handle)
#define VMM__DETAILS_mem_export VMM__DETAILS_BYTES(shareable, type == 8 ? 64 : sizeof(int))
#define VMM__DETAILS_mem_import VMM__DETAILS_ONE(handle)
#define VMM__DETAILS_mem_address_range VMM__DETAILS_TWO(base, size)
#define VMM__DETAILS_ipc_get_handle VMM__DETAILS_BYTES(handle, 64)
#define VMM__DETAILS_mem_alloc VMM__DETAILS_ONE(address)
#define VMM__DETAILS_mem_host_alloc VMM__DETAILS_ONE(pointer)
#define VMM__DETAILS_stream_create VMM__DETAILS_ONE(stream)
#define VMM__DETAILS_stream_is_capturing VMM__DETAILS_ONE(status)
#define VMM__DETAILS_stream_get_id VMM__DETAILS_ONE(id)
#define VMM__DETAILS_stream_end_capture VMM__DETAILS_ONE(graph)
#define VMM__DETAILS_graph_instantiate VMM__DETAILS_ONE(executable)
#define VMM__DETAILS_event_create VMM__DETAILS_ONE(event)

#endif
