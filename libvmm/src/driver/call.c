/* What the wrappers share: reading an output, numbering threads, passing on what they do not touch. */
#include "driver/call.h"

#include <string.h>

vmm__u64 vmm__call_output_value(const vmm__call *call) {
  const vmm__output *output = &call->outputs[0];
  vmm__u64 wide = 0;
  unsigned narrow = 0;

  if (output->where == NULL) return 0;
  if (output->size == sizeof wide) {
    memcpy(&wide, output->where, sizeof wide);
    return wide;
  }
  if (output->size != sizeof narrow || call->op == VMM_OP_device_name) return 0;
  memcpy(&narrow, output->where, sizeof narrow);
  return narrow;
}

vmm__u64 vmm__thread_number(void) {
  static atomic_ullong last;
  static _Thread_local vmm__u64 number;

  if (number == 0) number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
  return number;
}

static vmm_driver *inner_of(void *self) { return ((vmm_driver *)self)->inner; }

vmm__u64 vmm__wrapper_now(void *self) { return inner_of(self)->table->now(inner_of(self)->self); }

void vmm__wrapper_wait(void *self, vmm__u64 ns) { inner_of(self)->table->wait(inner_of(self)->self, ns); }

bool vmm__wrapper_has(void *self, int op) { return inner_of(self)->table->has(inner_of(self)->self, op); }

bool vmm__wrapper_is_wsl(void *self) { return inner_of(self)->table->is_wsl(inner_of(self)->self); }
