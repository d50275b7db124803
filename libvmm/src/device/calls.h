/* Every driver call of the library, with its count, its time and its look at lost contexts: vmm__cu_mem_map(gpu, ...) and
 * so on, from ops.def. Nothing above calls the driver's table directly. */
#ifndef VMM_DEVICE_CALLS_H
#define VMM_DEVICE_CALLS_H

#include "device/device.h"

#define VMM_SELF_PARAMETER vmm_device *gpu
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) int vmm__cu_##name parameters;
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER

#endif
