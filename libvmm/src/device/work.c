/* One public call's dealings with the driver: lock, context, capture mode, budget. */
#include "device/work.h"

#include <string.h>

#include "device/streams.h"

enum {
  CAPTURE_MODE_RELAXED = 2,
  RESTORE_ATTEMPTS = 16, /* more than any step gets: the thread is the caller's */
  FIRST_ROUND_ATTEMPTS = 4,
  LATER_ROUND_ATTEMPTS = 2
};

void vmm__work_start(vmm__work *work, vmm_device *device, const char *function, vmm__u64 deadline_ns) {
  memset(work, 0, sizeof *work);
  work->device = device;
  work->function = function;
  work->deadline = vmm__saturating_add(vmm__device_now(device), deadline_ns != 0 ? deadline_ns : device->deadline_ns);
  work->backoff_ns = device->retry_first_ns;
  work->attempts_left = device->retry_attempts - 1; /* the first attempt is none that is left */
  work->round_left = FIRST_ROUND_ATTEMPTS - 1;
  work->op = -1;
}

vmm__u64 vmm__work_time_left(const vmm__work *work) {
  return vmm__saturating_sub(work->deadline, vmm__device_now(work->device));
}

/* The context is set, not pushed: setting can be repeated when an answer leaves open whether it was done. */
static void restore_context(vmm__work *work) {
  int code = VMM_CODE_SUCCESS;
  int attempt;

  if (!work->entered) return;
  work->entered = false;
  if (work->previous_context == work->device->context) return;
  for (attempt = 0; attempt < RESTORE_ATTEMPTS; attempt++) {
    code = vmm__cu_ctx_set_current(work->device, work->previous_context);
    if (code == VMM_CODE_SUCCESS) return;
  }
  (void)vmm__work_undone(work, code);
}

static void restore_mode(vmm__work *work) {
  int code = VMM_CODE_SUCCESS;
  int attempt;

  if (!work->relaxed) return;
  work->relaxed = false;
  for (attempt = 0; attempt < RESTORE_ATTEMPTS; attempt++) {
    int mode = work->previous_mode;
    code = vmm__cu_capture_mode(work->device, &mode);
    if (code == VMM_CODE_SUCCESS) return;
  }
  (void)vmm__work_undone(work, code);
}

/* An exchange that answers an error may still have been made: then `mode` holds what was there before. */
static int relax_mode(vmm__work *work) {
  int mode = CAPTURE_MODE_RELAXED;
  int code = vmm__cu_capture_mode(work->device, &mode);

  work->previous_mode = mode;
  work->relaxed = code == VMM_CODE_SUCCESS || mode != CAPTURE_MODE_RELAXED;
  return code;
}

vmm_status vmm__work_enter(vmm__work *work) {
  vmm_device *device = work->device;
  int code;

  CU_CHECK(work, 0, 0, ctx_get_current, (device, &work->previous_context));
  work->entered = true; /* from here a restore is due, whatever the next call answers */
  if (work->previous_context != device->context) CU_CHECK(work, 0, 0, ctx_set_current, (device, device->context));
  code = relax_mode(work);
  if (code == VMM_CODE_SUCCESS) return VMM_OK;
  (void)vmm__work_call_failed(work, VMM_OP_capture_mode, code, 0, 0);

undo:
  if (work->teardown) { /* goes on without: the cuMem* calls do not need a current context */
    (void)vmm__work_undone(work, work->code);
    work->status = VMM_OK;
    return VMM_OK;
  }
  vmm__work_leave(work);
  return work->status;
}

void vmm__work_leave(vmm__work *work) {
  restore_mode(work);
  restore_context(work);
}

vmm_status vmm__work_lock(vmm__work *work) {
  if (work->locked) return work->status;
  if (!vmm__lock_acquire_within(&work->device->structure, vmm__work_time_left(work)))
    return vmm__work_fail(work, VMM_ERROR_TIMEOUT, "another growth or trim on the device lasted beyond the deadline");
  work->locked = true;
  if (!work->entered && vmm__work_enter(work) != VMM_OK) {
    vmm__lock_release(&work->device->structure);
    work->locked = false;
  }
  return work->status;
}

void vmm__work_unlock(vmm__work *work) {
  vmm__work_leave(work);
  if (work->locked) vmm__lock_release(&work->device->structure);
  work->locked = false;
}

void vmm__work_let_others(vmm__work *work) {
  if (work->locked) vmm__lock_release(&work->device->structure);
  work->locked = false;
}

vmm_status vmm__work_fail(vmm__work *work, vmm_status status, const char *message) {
  if (work->status == VMM_OK) {
    work->status = status;
    work->message = message;
    work->op = -1;
  }
  return work->status;
}

vmm_status vmm__work_call_failed(vmm__work *work, int op, int code, vmm__u64 address, vmm__u64 size) {
  if (code == VMM_CODE_NOT_READY) work->not_ready++;
  if (work->status == VMM_OK) {
    work->status = vmm__device_lost(work->device) ? VMM_ERROR_DEVICE_LOST : vmm__status_of(op, code);
    work->message = NULL;
    work->op = op;
    work->code = code;
    work->failed_attempt = work->attempt + 1;
    if (code == VMM_CODE_NOT_READY) /* of the whole call, over all rounds */
      work->failed_attempt = work->device->retry_attempts - work->attempts_left;
    work->address = address;
    work->size = size;
  }
  work->attempt = 0;
  return work->status;
}

int vmm__work_undone(vmm__work *work, int code) {
  if (code == VMM_CODE_SUCCESS) return code;
  if (work->undo_failures == 0) work->undo_code = code;
  work->undo_failures++;
  return code;
}

/* Counted only once it is sure that the step is tried again: a NOT_READY that ends the call is call_failed's. */
bool vmm__work_again(vmm__work *work, int op, int code, vmm__u64 address, vmm__u64 size) {
  vmm_device *device = work->device;

  if (vmm__device_lost(device) || work->attempts_left <= 0 || work->round_left <= 0) return false;
  if (vmm__work_time_left(work) <= work->backoff_ns) return false;
  if (!vmm__quiesce_after_not_ready(work)) return false;
  work->attempts_left--;
  work->round_left--;
  work->attempt++;
  if (code == VMM_CODE_NOT_READY) work->not_ready++; /* "success" that is denied is tried again too */
  work->retries++;
  vmm__lock_acquire(&device->lock);
  device->counters.retry_count++;
  vmm__lock_release(&device->lock);
  vmm__device_event(device, VMM_EVENT_RETRY, op, code, work->attempt, address, size, work->backoff_ns);
  vmm__device_wait(device, work->backoff_ns);
  work->backoff_ns = vmm__min(vmm__saturating_add(work->backoff_ns, work->backoff_ns), device->retry_max_ns);
  return true;
}

void vmm__work_forget(vmm__work *work) {
  work->status = VMM_OK;
  work->message = NULL;
  work->op = -1;
  work->code = 0;
  work->address = work->size = 0;
}

void vmm__work_next_round(vmm__work *work, bool last) {
  work->rounds++;
  vmm__work_forget(work);
  if (work->attempts_left > 0) work->attempts_left--; /* the first attempt of the round */
  work->round_left = work->attempts_left;
  if (!last && work->round_left >= LATER_ROUND_ATTEMPTS) work->round_left = LATER_ROUND_ATTEMPTS - 1;
}

/* Only in relaxed mode: otherwise a query would invalidate a capture of the calling thread. */
void vmm__work_probe(vmm__work *work) {
  if (!vmm__device_lost(work->device) && work->relaxed) (void)vmm__cu_event_query(work->device, work->device->sentinel);
  if (vmm__device_lost(work->device)) work->status = VMM_ERROR_DEVICE_LOST;
}

void vmm__work_measure(vmm__work *work) {
  size_t free_bytes = 0, total_bytes = 0;

  if (!work->relaxed || vmm__device_lost(work->device)) return;
  if (vmm__cu_mem_get_info(work->device, &free_bytes, &total_bytes) != VMM_CODE_SUCCESS) return;
  work->free_bytes = free_bytes;
  work->total_bytes = total_bytes;
}
