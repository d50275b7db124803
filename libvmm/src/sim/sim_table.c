/* The simulator's driver table: what every call has in common (fork, lock, time, queues that run), then the operation. */
#include "base/fork.h"
#include "base/hook.h"
#include "sim/sim.h"

static bool is_vmm(int op) { return op >= VMM_OP_mem_granularity && op <= VMM_OP_mem_import; }

/* 0 with the lock held, or the code to answer. */
int vmm__sim_enter(vmm__sim *sim, int op, int since) {
  vmm__sim_thread *thread;
  int code = VMM_CODE_SUCCESS;

  if (vmm__forked()) return VMM_CODE_NOT_INITIALIZED;
  if (since > sim->options.driver_version) return VMM_CODE_NOT_FOUND;
  vmm__lock_acquire(&sim->lock);
  thread = vmm__sim_thread_find(sim);
  if (thread == NULL) {
    code = VMM_CODE_OUT_OF_MEMORY;
  } else if (sim->host_running == thread->node.key) {
    code = VMM_CODE_NOT_PERMITTED; /* the driver may not be called from a host function */
  } else if (!sim->initialized && op != VMM_OP_init && op != VMM_OP_driver_version) {
    code = VMM_CODE_NOT_INITIALIZED;
  } else {
    sim->op = op;
    sim->thread = thread;
    sim->now += sim->options.call_ns;
    vmm__sim_run_due(sim);
    if (sim->options.no_vmm && is_vmm(op)) code = VMM_CODE_NOT_SUPPORTED;
  }
  if (code != VMM_CODE_SUCCESS) vmm__lock_release(&sim->lock);
  return code;
}

void vmm__sim_leave(vmm__sim *sim) { vmm__lock_release(&sim->lock); }

#define VMM_SELF self
#define VMM_SELF_PARAMETER void *self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  static int enter_##name parameters {                                                  \
    int code = vmm__sim_enter(self, VMM_OP_##name, since);                              \
                                                                                        \
    if (code == VMM_CODE_SUCCESS) {                                                     \
      code = vmm__sim_op_##name arguments;                                              \
      vmm__sim_leave(self);                                                             \
    }                                                                                   \
    return code;                                                                        \
  }
#include "vmm/ops.def"
#undef VMM_SELF
#undef VMM_SELF_PARAMETER

static vmm__u64 sim_now(void *self) {
  vmm__sim *sim = self;
  vmm__u64 now;

  if (vmm__forked()) return 0;
  vmm__lock_acquire(&sim->lock);
  now = sim->now;
  vmm__lock_release(&sim->lock);
  return now;
}

static void sim_wait(void *self, vmm__u64 ns) {
  vmm__sim *sim = self;

  if (vmm__forked()) return;
  (void)vmm__hook_at(VMM__POINT_WAIT, sim, ns, NULL);
  vmm__lock_acquire(&sim->lock);
  if (sim->host_running == 0 || sim->host_running != vmm__sim_thread_number())
    vmm__sim_run_to(sim, vmm__saturating_add(sim->now, ns));
  vmm__lock_release(&sim->lock);
}

static const int versions[VMM_OP_COUNT] = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) since,
#include "vmm/ops.def"
};

static bool sim_has(void *self, int op) {
  const vmm__sim *sim = self;

  return op >= 0 && op < VMM_OP_COUNT && versions[op] <= sim->options.driver_version;
}

static bool sim_is_wsl(void *self) { return ((const vmm__sim *)self)->options.wsl != 0; }

const vmm__driver_table vmm__sim_table = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) .name = enter_##name,
#include "vmm/ops.def"
    .now = sim_now,
    .wait = sim_wait,
    .has = sim_has,
    .is_wsl = sim_is_wsl,
    .destroy = vmm__sim_destroy,
};
