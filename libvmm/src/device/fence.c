/* Fences: waiting for queued work by polling events against the deadline, so that no call blocks without bound, and so
 * that announced captures are left alone. */
#include "device/streams.h"

enum { FIRST_POLL_NS = 10000, LONGEST_POLL_NS = 1000000 };

vmm_status vmm__fence_wait(vmm__work *work, void *event) {
  vmm_device *device = work->device;
  vmm__u64 pause = FIRST_POLL_NS;

  for (;;) {
    int code = vmm__cu_event_query(device, event);
    if (code == VMM_CODE_SUCCESS) return VMM_OK;
    if (code != VMM_CODE_NOT_READY) return vmm__work_call_failed(work, VMM_OP_event_query, code, 0, 0);
    if (vmm__work_time_left(work) == 0)
      return vmm__work_fail(work, VMM_ERROR_TIMEOUT, "queued work did not end before the deadline");
    vmm__device_wait(device, vmm__min(pause, vmm__work_time_left(work)));
    pause = vmm__min(pause * 2, LONGEST_POLL_NS);
  }
}

/* A driver without cuCtxRecordEvent leaves only the blocking call: unbounded, and the documents say so. */
vmm_status vmm__wait_context(vmm__work *work) {
  vmm_device *device = work->device;

  if (vmm__context_is_captured(work))
    return vmm__work_fail(work, VMM_ERROR_CAPTURE, "a context-wide wait would invalidate an announced capture");
  if (device->info.context_fence) {
    CU_CHECK(work, 0, 0, ctx_record_event, (device, device->context, device->context_event));
    return vmm__fence_wait(work, device->context_event);
  }
  CU_CHECK(work, 0, 0, ctx_synchronize, (device));
undo:
  return work->status;
}

/* Fences on the legacy stream and the registered ones, but for those that take part in a capture: all recorded first, then
 * waited for. */
static vmm_status wait_streams(vmm__work *work) {
  vmm_device *device = work->device;
  bool legacy = false;
  vmm__stream *entry;

  vmm__streams_sweep(work);
  for (entry = device->streams; entry != NULL; entry = entry->next) {
    vmm__stream_view view = vmm__stream_look(device, entry);

    entry->awaited = view.fenced;
    if (view.fenceable && vmm__stream_record(work, entry->event, view.stream, &entry->awaited) != VMM_OK)
      return work->status;
  }
  if (vmm__stream_record(work, device->stream_event, NULL, &legacy) != VMM_OK) return work->status;
  for (entry = device->streams; entry != NULL; entry = entry->next)
    if (entry->awaited && vmm__fence_wait(work, entry->event) != VMM_OK) return work->status;
  return legacy ? vmm__fence_wait(work, device->stream_event) : VMM_OK;
}

static vmm_status wait_for_work(vmm__work *work, bool streams_only) {
  vmm_device *device = work->device;
  vmm__u64 start = vmm__device_now(device);
  vmm_status status = streams_only ? wait_streams(work) : vmm__wait_context(work);

  work->quiesces++;
  vmm__lock_acquire(&device->lock);
  device->counters.quiesce_count++;
  vmm__lock_release(&device->lock);
  vmm__device_event(device, VMM_EVENT_QUIESCE, -1, 0, 0, 0, 0, vmm__device_now(device) - start);
  return status;
}

vmm_status vmm__quiesce(vmm__work *work) {
  int policy = work->device->info.sync_policy;

  if (policy == VMM_SYNC_ON_DEMAND) return VMM_OK;
  return wait_for_work(work, policy == VMM_SYNC_STREAMS || vmm__context_is_captured(work));
}

/* The wait's own failures must not hide the NOT_READY, and its own NOT_READYs must not recurse. */
bool vmm__quiesce_after_not_ready(vmm__work *work) {
  vmm_device *device = work->device;
  vmm__work wait = *work;
  vmm_status status;

  if (!work->relaxed || !work->locked) return true; /* not inside yet: backing off is all that can be done */
  wait.status = VMM_OK;
  wait.attempts_left = 0;
  status = wait_for_work(&wait, device->info.sync_policy == VMM_SYNC_STREAMS || vmm__context_is_captured(work));
  work->quiesces = wait.quiesces;
  return status == VMM_OK;
}

vmm_status vmm__fence_record(vmm__work *work, void *event, void *home_stream) {
  vmm_device *device = work->device;
  bool recorded = true;

  if (device->info.context_fence && !vmm__context_is_captured(work))
    CU_CHECK(work, 0, 0, ctx_record_event, (device, device->context, event));
  else if (vmm__stream_record(work, event, home_stream, &recorded) == VMM_OK && !recorded)
    return vmm__work_fail(
        work, VMM_ERROR_CAPTURE,
        "work on the memory cannot be waited for while a capture is announced: the home stream is the "
        "legacy stream or takes part in a capture");
undo:
  return work->status;
}
