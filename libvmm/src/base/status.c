/* Status names, filling the error struct, and the size rules of options and output structs. */
#include "base/status.h"

#include <string.h>

enum { UNREASONABLE_SIZE = 1 << 16 }; /* no struct of this library's will ever be that large: an uninitialised one is */

static const struct {
  const char *name;
  const char *text;
} statuses[] = {
    {"VMM_OK", "success"},
    {"VMM_ERROR_INVALID_ARGUMENT", "an argument is wrong; nothing was changed"},
    {"VMM_ERROR_OUT_OF_HOST_MEMORY", "the host allocator is out of memory"},
    {"VMM_ERROR_OUT_OF_DEVICE_MEMORY", "the device is out of memory"},
    {"VMM_ERROR_OUT_OF_ADDRESS_SPACE", "no address range of that size is left"},
    {"VMM_ERROR_MAPPING_LIMIT", "the driver has no room for another mapping"},
    {"VMM_ERROR_LIMIT", "the limit set by the caller is reached"},
    {"VMM_ERROR_NOT_READY", "the driver answered NOT_READY until the retry budget was spent"},
    {"VMM_ERROR_NOT_CONFIRMED", "the driver reported success, but access was not granted"},
    {"VMM_ERROR_CAPTURE", "a stream capture forbids the call"},
    {"VMM_ERROR_UNKNOWN_ADDRESS", "not the address of a live block"},
    {"VMM_ERROR_BUSY", "something still in use stands in the way"},
    {"VMM_ERROR_TIMEOUT", "the deadline passed"},
    {"VMM_ERROR_PARTIAL", "only part of it was done"},
    {"VMM_ERROR_UNSUPPORTED", "the device or driver cannot do this"},
    {"VMM_ERROR_NO_DRIVER", "there is no usable CUDA driver"},
    {"VMM_ERROR_DRIVER", "a driver call failed"},
    {"VMM_ERROR_DEVICE_LOST", "the device's context is dead"},
    {"VMM_ERROR_FORKED", "this is a forked child; only the parent can use the device"},
    {"VMM_ERROR_CALLBACK", "a callback of the caller's failed"},
    {"VMM_ERROR_VERSION", "a struct is of a version this library does not know"},
    {"VMM_ERROR_BROKEN", "an invariant does not hold; this is a bug in the library"},
};

enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0] };

const char *vmm_status_name(int status) {
  return status >= 0 && status < STATUS_COUNT ? statuses[status].name : "VMM_ERROR_?";
}

const char *vmm_status_text(int status) {
  return status >= 0 && status < STATUS_COUNT ? statuses[status].text : "not a status of this library";
}

vmm_status vmm__fail(vmm_error *error, vmm_status status, const char *message) {
  if (error != NULL) {
    memset(error, 0, sizeof *error);
    error->status = (int)status;
    error->device = -1;
    vmm__text_copy(error->message, sizeof error->message, message);
  }
  return status;
}

vmm_status vmm__fail_in(vmm_error *error, vmm_status status, const char *function, const char *message) {
  vmm__text text;

  if (error == NULL) return status;
  (void)vmm__fail(error, status, "");
  text = vmm__text_start(error->message, sizeof error->message);
  vmm__text_add(&text, function);
  vmm__text_add(&text, ": ");
  vmm__text_add(&text, message);
  return status;
}

vmm_status vmm__fail_forked(vmm_error *error, const char *function) {
  return vmm__fail_in(error, VMM_ERROR_FORKED, function,
                      "called in a forked child; a CUDA context does not survive fork, use spawn or exec");
}

static vmm_status fail_version(vmm_error *error, const char *what, const char *why) {
  char message[256];
  vmm__text text = vmm__text_start(message, sizeof message);

  vmm__text_add(&text, what);
  vmm__text_add(&text, why);
  return vmm__fail(error, VMM_ERROR_VERSION, message);
}

vmm_status vmm__options_read(void *known, size_t known_size, size_t first_size, const void *options, const char *what,
                             vmm_error *error) {
  size_t size;
  size_t i;

  memset(known, 0, known_size);
  if (options == NULL) return VMM_OK;
  memcpy(&size, options, sizeof size);
  if (size < first_size || size > UNREASONABLE_SIZE)
    return fail_version(error, what, ".struct_size is wrong; was the struct filled by its init function?");
  for (i = known_size; i < size; i++)
    if (((const unsigned char *)options)[i] != 0)
      return fail_version(error, what, " sets a field this version of the library does not know");
  memcpy(known, options, size < known_size ? size : known_size);
  return VMM_OK;
}

vmm_status vmm__options_init(void *options, size_t size, size_t first_size) {
  if (options == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  if (size < first_size || size > UNREASONABLE_SIZE) return VMM_ERROR_VERSION;
  memset(options, 0, size);
  memcpy(options, &size, sizeof size);
  return VMM_OK;
}

vmm_status vmm__output_write(void *output, const void *source, size_t source_size, const char *what, vmm_error *error) {
  size_t size;
  size_t known;

  memcpy(&size, output, sizeof size);
  if (size < sizeof size || size > UNREASONABLE_SIZE)
    return fail_version(error, what, ".struct_size is wrong; set it to sizeof the struct");
  known = size < source_size ? size : source_size;
  memcpy((char *)output + sizeof size, (const char *)source + sizeof size, known - sizeof size);
  memset((char *)output + known, 0, size - known);
  return VMM_OK;
}
