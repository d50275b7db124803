/* The fault wrapper's operations, all alike: decide, make the call or not, note what it did. */
#include "driver/fault.h"

#define VMM_SELF_PARAMETER void *self
#define VMM_SELF wrapper->base.inner->self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object)                      \
  static int call_##name parameters {                                                                        \
    vmm__fault *wrapper = self;                                                                              \
    const vmm__driver_table *below = wrapper->base.inner->table;                                             \
    vmm__call call = VMM__CALL_START(name, address, size, object);                                           \
    vmm__fault_decision decision;                                                                            \
    int answer = VMM_CODE_NOT_FOUND;                                                                         \
    VMM__CALL_DETAILS(name);                                                                                 \
    if (vmm__fault_before(wrapper, &call, &decision) && below->name != NULL) answer = below->name arguments; \
    return vmm__fault_after(wrapper, &call, &decision, answer);                                              \
  }
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER

static void destroy(void *self) {
  vmm__fault *fault = self;

  vmm__lock_destroy(&fault->lock);
  vmm__fault_array_free(&fault->rules, sizeof(vmm__fault_rule));
  vmm__fault_array_free(&fault->handles, sizeof(vmm__fault_handle));
  vmm__fault_array_free(&fault->mappings, sizeof(vmm__fault_mapping));
  vmm__memory_release(&vmm__memory_default, fault, 1, sizeof *fault);
}

const vmm__driver_table vmm__fault_table = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) .name = call_##name,
#include "vmm/ops.def"
    .now = vmm__wrapper_now,
    .wait = vmm__wrapper_wait,
    .has = vmm__wrapper_has,
    .is_wsl = vmm__wrapper_is_wsl,
    .destroy = destroy,
};
