/* Status, and the one way an error struct is filled. */
#ifndef VMM_BASE_STATUS_H
#define VMM_BASE_STATUS_H

#include "base/text.h"
#include "vmm/vmm.h"

/* Fills *error (if not NULL) with a status and a message and nothing else, and returns the status:
 *   return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_alloc: pool is NULL"); */
vmm_status vmm__fail(vmm_error *error, vmm_status status, const char *message);

/* The same, with "function: " in front of the message. */
vmm_status vmm__fail_in(vmm_error *error, vmm_status status, const char *function, const char *message);

/* The answer in a forked child. */
vmm_status vmm__fail_forked(vmm_error *error, const char *function);

/* Checks an options struct of the caller's: its size is known or larger with only zero bytes behind, and copies the known
 * part into `known` (`known_size` bytes, zeroed first). `first_size` is the size the struct had when it first came out.
 * Returns VMM_OK, or VMM_ERROR_VERSION with a message that names `what`. `options` NULL: all zero. */
vmm_status vmm__options_read(void *known, size_t known_size, size_t first_size, const void *options, const char *what,
                             vmm_error *error);

/* The body of every vmm_x_options_init. */
vmm_status vmm__options_init(void *options, size_t size, size_t first_size);

/* Writes an output struct of the caller's that starts with struct_size: min(size) bytes, and zero behind. `source` must
 * start with a struct_size too; the caller's is kept. */
vmm_status vmm__output_write(void *output, const void *source, size_t source_size, const char *what, vmm_error *error);

#endif
