/* When create, map, set-access, unmap and release answer NOT_READY: the explanations that stand for what was reported in
 * public, each as a mode. */
#include "sim/sim.h"

static const vmm__u64 INTRUDER_NS = 100000;

static bool answers(vmm__sim *sim, vmm__sim_device *device) {
  bool access = sim->op == VMM_OP_mem_set_access;
  bool evicted = device->evicted;

  switch (device->not_ready) {
    case VMM_SIM_NOT_READY_PENDING:
    case VMM_SIM_NOT_READY_INTRUDER:
      return access && device->ledger.pending != 0;
    case VMM_SIM_NOT_READY_RESIDENCY:
      return access && device->ledger.handle_bytes > device->not_ready_value;
    case VMM_SIM_NOT_READY_EVICTED:
      if (access) device->evicted = false;
      return access && evicted;
    case VMM_SIM_NOT_READY_FIRST:
      if (!access || device->not_ready_value == 0) return false;
      device->not_ready_value--;
      return true;
    case VMM_SIM_NOT_READY_RANDOM:
      return (vmm__sim_random(sim) >> 32) < device->not_ready_value;
    default:
      return false;
  }
}

bool vmm__sim_not_ready(vmm__sim *sim, int device) {
  if (!answers(sim, &sim->devices[device])) return false;
  sim->devices[device].ledger.not_ready++;
  return true;
}

void vmm__sim_waited(vmm__sim *sim, const vmm__sim_context *context) {
  vmm__sim_device *device = &sim->devices[context->device];

  if (device->not_ready != VMM_SIM_NOT_READY_INTRUDER || device->ledger.pending != 0) return;
  device->armed = true;
  device->armed_context = context->node.key;
}

void vmm__sim_intrude(vmm__sim *sim, int number) {
  vmm__sim_device *device = &sim->devices[number];
  vmm__u64 pieces = device->not_ready_value == 0 ? 1 : device->not_ready_value;
  vmm__sim_context *context;

  if (device->not_ready != VMM_SIM_NOT_READY_INTRUDER || !device->armed) return;
  context = vmm__sim_context_find(sim, device->armed_context);
  device->armed = false;
  if (context == NULL || context->lost != 0) return;
  if (context->intruder == NULL) {
    context->intruder = vmm__sim_allocate(sim, 1, sizeof *context->intruder);
    if (context->intruder == NULL) return;
    vmm__sim_stream_init(sim, context->intruder, context, false);
  }
  while (pieces-- > 0) {
    vmm__sim_work work = {.kind = VMM__SIM_SPIN, .op = VMM_OP_kernel_spin, .duration = INTRUDER_NS};

    if (vmm__sim_submit(sim, context->intruder, &work, 1) != VMM_CODE_SUCCESS) return;
  }
}
