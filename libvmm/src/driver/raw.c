/* The operations as plain functions: one line each, no check and no lock. */
#include "driver/driver.h"

#define VMM_SELF_PARAMETER vmm_driver *driver
#define VMM_SELF driver->self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object)      \
  int vmm_raw_##name parameters {                                                            \
    return driver->table->name != NULL ? driver->table->name arguments : VMM_CODE_NOT_FOUND; \
  }
#include "vmm/ops.def"
