/* libvmm: GPU memory that grows in place and is never handed out unless it is really there.
 *
 * The headers this one includes are stable per major version. They are also the single source of the Python binding:
 * preprocessed with VMM_CDEF defined they are plain declarations, so there are no inline functions, no varargs and no
 * bit-fields in them.
 *
 * Conventions, once for all functions:
 *  - Every fallible function returns a vmm_status and takes a trailing vmm_error pointer, which may be NULL. Nothing is
 *    thread-local or global. On VMM_OK the error struct is not written.
 *  - A call that fails leaves live blocks, their bytes, addresses and accounting, the caller's current context, its
 *    capture mode and every announced capture as they were. Idle capacity or cached handles may have been given back;
 *    vmm_error.gave_back says how many bytes.
 *  - `address` is a device address (CUdeviceptr) as unsigned long long, a stream is a CUstream as void *: 0 and 1 are
 *    the legacy default stream, 2 the per-thread one. Sizes are bytes.
 *  - Options structs start with struct_size and are filled by vmm_x_options_init(&o, sizeof o); zero means default,
 *    trailing bytes this version does not know must be zero. Outputs with a struct_size write min(size) bytes and zero
 *    the rest.
 *  - Any thread may call any function at any time, with any or no context current. A forked child is answered
 *    VMM_ERROR_FORKED before any lock is taken or driver call made.
 */
#ifndef VMM_VMM_H
#define VMM_VMM_H

#include "vmm/device.h"
#include "vmm/error.h"
#include "vmm/pool.h"

#endif
