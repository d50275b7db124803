/* The launches: test kernels, host functions, copies and fills. */
#include "sim/sim.h"

int vmm__sim_op_kernel_spin(vmm__sim *sim, void *stream, unsigned long long ns) {
  vmm__sim_work work = {.kind = VMM__SIM_SPIN, .duration = ns};

  return vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_kernel_fill(vmm__sim *sim, void *stream, unsigned long long address, size_t size,
                            unsigned long long seed) {
  vmm__sim_work work = {.kind = VMM__SIM_FILL, .address = address, .size = size, .value = seed};

  return vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_kernel_verify(vmm__sim *sim, void *stream, unsigned long long address, size_t size,
                              unsigned long long seed, unsigned long long mismatches) {
  vmm__sim_work work = {
      .kind = VMM__SIM_VERIFY, .address = address, .size = size, .value = seed, .other = mismatches, .other_size = 8};

  return vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_kernel_sum(vmm__sim *sim, void *stream, unsigned long long address, size_t size,
                           unsigned long long sum) {
  vmm__sim_work work = {.kind = VMM__SIM_SUM, .address = address, .size = size, .other = sum, .other_size = 8};

  return vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_kernel_trap(vmm__sim *sim, void *stream) {
  vmm__sim_work work = {.kind = VMM__SIM_TRAP};

  return vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_launch_host_func(vmm__sim *sim, void *stream, vmm_host_function function, void *data) {
  vmm__sim_work work = {.kind = VMM__SIM_HOST, .function = function, .data = data};

  return function == NULL ? VMM_CODE_INVALID_VALUE : vmm__sim_launch(sim, stream, &work);
}

/* A copy that the host waits for: on the legacy stream, done when the call returns. */
static int copy_and_wait(vmm__sim *sim, vmm__sim_work *work) {
  vmm__sim_context *context;
  vmm__u64 key;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  key = context->node.key;
  code = vmm__sim_capture_legacy(sim, &context->legacy);
  if (code == VMM_CODE_SUCCESS) code = context->lost;
  if (code == VMM_CODE_SUCCESS) code = vmm__sim_launch(sim, NULL, work);
  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_run_to(sim, context->legacy.done);
  code = vmm__sim_context_code(sim, key);
  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_order_host(sim, &context->legacy.order);
  vmm__sim_waited(sim, context);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_memcpy_htod(vmm__sim *sim, unsigned long long address, const void *host, size_t size) {
  vmm__sim_work work = {.kind = VMM__SIM_HTOD, .address = address, .size = size, .from = host};

  if (size == 0) return VMM_CODE_SUCCESS;
  return host == NULL ? VMM_CODE_INVALID_VALUE : copy_and_wait(sim, &work);
}

/* What a copy writes on the host is its second range: pinned memory freed too early is noticed. */
static vmm__sim_work to_host(void *host, vmm__u64 address, vmm__u64 size) {
  vmm__sim_work work = {.kind = VMM__SIM_DTOH,
                        .address = address,
                        .size = size,
                        .other = (vmm__u64)(uintptr_t)host,
                        .other_size = size,
                        .to = host};
  return work;
}

int vmm__sim_op_memcpy_dtoh(vmm__sim *sim, void *host, unsigned long long address, size_t size) {
  vmm__sim_work work = to_host(host, address, size);

  if (size == 0) return VMM_CODE_SUCCESS;
  return host == NULL ? VMM_CODE_INVALID_VALUE : copy_and_wait(sim, &work);
}

int vmm__sim_op_memcpy_htod_async(vmm__sim *sim, unsigned long long address, const void *host, size_t size,
                                  void *stream) {
  vmm__sim_work work = {.kind = VMM__SIM_HTOD, .address = address, .size = size, .from = host};

  if (size == 0) return VMM_CODE_SUCCESS;
  return host == NULL ? VMM_CODE_INVALID_VALUE : vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_memcpy_dtoh_async(vmm__sim *sim, void *host, unsigned long long address, size_t size, void *stream) {
  vmm__sim_work work = to_host(host, address, size);

  if (size == 0) return VMM_CODE_SUCCESS;
  return host == NULL ? VMM_CODE_INVALID_VALUE : vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_memcpy_dtod_async(vmm__sim *sim, unsigned long long to, unsigned long long from, size_t size,
                                  void *stream) {
  vmm__sim_work work = {.kind = VMM__SIM_DTOD, .address = to, .size = size, .other = from, .other_size = size};

  return size == 0 ? VMM_CODE_SUCCESS : vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_memset_d8_async(vmm__sim *sim, unsigned long long address, unsigned char value, size_t size,
                                void *stream) {
  vmm__sim_work work = {.kind = VMM__SIM_SET8, .address = address, .size = size, .value = value};

  return size == 0 ? VMM_CODE_SUCCESS : vmm__sim_launch(sim, stream, &work);
}

int vmm__sim_op_memset_d2d32_async(vmm__sim *sim, unsigned long long address, size_t pitch, unsigned int value,
                                   size_t width, size_t height, void *stream) {
  vmm__sim_work work = {
      .kind = VMM__SIM_SET32, .address = address, .value = value, .pitch = pitch, .width = width, .height = height};
  vmm__u64 row;

  if (width == 0 || height == 0) return VMM_CODE_SUCCESS;
  if (!vmm__multiply(width, 4, &row) || (height > 1 && (pitch < row || pitch % 4 != 0)) || address % 4 != 0 ||
      !vmm__multiply(pitch, height - 1, &work.size) || !vmm__add(work.size, row, &work.size))
    return VMM_CODE_INVALID_VALUE;
  return vmm__sim_launch(sim, stream, &work);
}
