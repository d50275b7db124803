/* From a work's first error to the caller's vmm_error: what failed, in what state things are, what to do. */
#include <string.h>

#include "base/status.h"
#include "device/work.h"

vmm_status vmm__status_of(int op, int code) {
  if (vmm__code_is_sticky(code)) return VMM_ERROR_DEVICE_LOST;
  switch (code) {
    case VMM_CODE_SUCCESS:
      return VMM_OK;
    case VMM_CODE_NOT_READY:
      return VMM_ERROR_NOT_READY;
    case VMM_CODE_OUT_OF_MEMORY:
      /* Measured: reserve says so when the address space is used up, map after some 524,000 mappings. */
      if (op == VMM_OP_mem_reserve) return VMM_ERROR_OUT_OF_ADDRESS_SPACE;
      if (op == VMM_OP_mem_map) return VMM_ERROR_MAPPING_LIMIT;
      return VMM_ERROR_OUT_OF_DEVICE_MEMORY;
    case VMM_CODE_NOT_SUPPORTED:
      return VMM_ERROR_UNSUPPORTED;
    case VMM_CODE_STREAM_CAPTURE_UNSUPPORTED:
    case VMM_CODE_STREAM_CAPTURE_INVALIDATED:
    case VMM_CODE_STREAM_CAPTURE_ISOLATION:
    case VMM_CODE_STREAM_CAPTURE_IMPLICIT:
    case VMM_CODE_CAPTURED_EVENT:
      return VMM_ERROR_CAPTURE;
    default:
      return VMM_ERROR_DRIVER;
  }
}

static const char *advice(const vmm__work *work) {
  switch (work->status) {
    case VMM_ERROR_OUT_OF_DEVICE_MEMORY:
      return "free or trim memory, or ask for less";
    case VMM_ERROR_OUT_OF_ADDRESS_SPACE:
      return work->op == VMM_OP_mem_reserve ? "ask for a smaller reservation"
                                            : "free blocks, or make the pool with a larger reservation";
    case VMM_ERROR_MAPPING_LIMIT:
      return "use larger mappings (mapping_min)";
    case VMM_ERROR_LIMIT:
      return "free memory or raise the limit";
    case VMM_ERROR_NOT_READY:
      return "give memory back or let queued work finish, then try again";
    case VMM_ERROR_NOT_CONFIRMED:
      return "try again; if it stays so, the driver is at fault";
    case VMM_ERROR_CAPTURE:
      return "end the stream capture first, and announce captures to the device";
    case VMM_ERROR_DEVICE_LOST:
      return "destroy its pools, and end the process or reset the context";
    case VMM_ERROR_TIMEOUT:
      return "try again, or allow a longer deadline";
    default:
      return NULL;
  }
}

static void add_call(vmm__text *text, const vmm__work *work) {
  vmm__text_add(text, vmm_op_symbol(work->op));
  vmm__text_add(text, " answered ");
  vmm__text_add(text, vmm_code_name(work->code));
  vmm__text_add(text, " (");
  vmm__text_add_signed(text, work->code);
  vmm__text_add(text, ") on device ");
  vmm__text_add_signed(text, work->device->ordinal);
  if (work->size != 0) {
    vmm__text_add(text, " for ");
    vmm__text_add_bytes(text, work->size);
  }
  if (work->failed_attempt > 1) {
    vmm__text_add(text, ", attempt ");
    vmm__text_add_signed(text, work->failed_attempt);
  }
}

/* What the number in work->size is about, where the message does not say it. */
static void add_size(vmm__text *text, const vmm__work *work) {
  if (work->size == 0) return;
  if (work->status == VMM_ERROR_BUSY) {
    vmm__text_add(text, " (");
    vmm__text_add_number(text, work->size);
    vmm__text_add(text, ")");
  } else {
    vmm__text_add(text, " (for ");
    vmm__text_add_bytes(text, work->size);
    vmm__text_add(text, ")");
  }
}

static void add_state(vmm__text *text, const vmm__work *work) {
  if (work->total_bytes != 0) {
    vmm__text_add(text, "; ");
    vmm__text_add_number(text, work->free_bytes >> 20);
    vmm__text_add(text, " of ");
    vmm__text_add_number(text, work->total_bytes >> 20);
    vmm__text_add(text, " MiB free");
  }
  if (work->gave_back != 0) {
    vmm__text_add(text, "; gave back ");
    vmm__text_add_bytes(text, work->gave_back);
  }
  if (work->undo_failures != 0) {
    vmm__text_add(text, "; undo steps that failed: ");
    vmm__text_add_signed(text, work->undo_failures);
    vmm__text_add(text, ", first with ");
    vmm__text_add(text, vmm_code_name(work->undo_code));
    vmm__text_add(text, "; what they hold is quarantined");
  }
}

vmm_status vmm__work_finish(vmm__work *work, vmm_error *error) {
  vmm__text text;
  const char *hint;

  vmm__work_unlock(work);
  if (work->status == VMM_OK || error == NULL) return work->status;
  memset(error, 0, sizeof *error);
  error->status = (int)work->status;
  error->device = work->device->ordinal;
  error->address = work->address;
  error->size = work->size;
  error->gave_back = work->gave_back;
  error->undo_failures = work->undo_failures;
  error->undo_code = work->undo_code;
  error->free_bytes = work->free_bytes;
  error->total_bytes = work->total_bytes;
  error->reserved_bytes = atomic_load(&work->device->reserved_bytes);
  if (work->op >= 0) {
    error->code = work->code;
    error->attempt = work->failed_attempt;
    vmm__text_copy(error->call, sizeof error->call, vmm_op_symbol(work->op));
    vmm__text_copy(error->code_name, sizeof error->code_name, vmm_code_name(work->code));
  }
  text = vmm__text_start(error->message, sizeof error->message);
  vmm__text_add(&text, work->function);
  vmm__text_add(&text, ": ");
  if (work->message != NULL) vmm__text_add(&text, work->message);
  else if (work->op >= 0) add_call(&text, work);
  else vmm__text_add(&text, vmm_status_text((int)work->status));
  if (work->op < 0) add_size(&text, work);
  add_state(&text, work);
  hint = advice(work);
  if (hint != NULL) {
    vmm__text_add(&text, "; ");
    vmm__text_add(&text, hint);
  }
  return work->status;
}
