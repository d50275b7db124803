/* Registered streams. The list is short. Entries come and go only with the structure lock and the
 * device lock held, so that a quiesce, which has the first, may walk it across driver calls; what an entry says changes
 * under the device lock. */
#include "device/streams.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/status.h"

static bool is_legacy(const void *stream) { return vmm__stream_is_legacy(stream); }

vmm__stream *vmm__stream_find(vmm_device *device, const void *stream) {
  vmm__stream *entry;

  for (entry = device->streams; entry != NULL; entry = entry->next)
    if ((entry->known || entry->capturing) &&
        (entry->stream == stream || (is_legacy(stream) && is_legacy(entry->stream))))
      return entry;
  return NULL;
}

/* Whether work on the stream would touch an announced capture, as far as the library was told: the legacy stream would
 * touch that of any blocking stream. Under the device lock. */
static bool told_captured(vmm_device *device, const void *stream) {
  const vmm__stream *entry;

  if (!vmm__captures_announced(device)) return false;
  if (is_legacy(stream)) return true;
  entry = vmm__stream_find(device, stream);
  return entry != NULL && entry->capturing;
}

/* The same, and while a capture is announced the driver is asked too: a stream that waits for an event of a capture takes
 * part in it, without a word to the library. */
static vmm_status find_captured(vmm__work *work, void *stream, bool *captured) {
  vmm_device *device = work->device;
  int status = 0;

  vmm__lock_acquire(&device->lock);
  *captured = told_captured(device, stream);
  vmm__lock_release(&device->lock);
  if (*captured || !vmm__captures_possible(device)) return VMM_OK;
  *captured = true;
  if (is_legacy(stream) && vmm__cu_stream_is_capturing(device, stream, &status) == VMM_CODE_STREAM_CAPTURE_IMPLICIT)
    return VMM_OK;
  CU_CHECK(work, 0, 0, stream_is_capturing, (device, stream, &status));
  *captured = status != 0;
undo:
  return work->status;
}

bool vmm__captured_unannounced(vmm_device *device, void *stream) {
  int status = 0;

  if (!device->detect_captures || is_legacy(stream)) return false;
  return vmm__cu_stream_is_capturing(device, stream, &status) == VMM_CODE_SUCCESS && status != 0;
}

bool vmm__context_is_captured(vmm__work *work) {
  vmm_device *device = work->device;
  const vmm__stream *entry;
  int status = 0;

  if (vmm__captures_announced(device)) return true;
  if (!device->detect_captures) return false;
  if (vmm__cu_stream_is_capturing(device, NULL, &status) == VMM_CODE_STREAM_CAPTURE_IMPLICIT) return true;
  for (entry = device->streams; entry != NULL; entry = entry->next) {
    vmm__stream_view view = vmm__stream_look(device, entry);

    if (view.fenceable && vmm__captured_unannounced(device, view.stream)) return true;
  }
  return false;
}

vmm_status vmm__stream_record(vmm__work *work, void *event, void *stream, bool *recorded) {
  bool captured;

  *recorded = false;
  if (find_captured(work, stream, &captured) != VMM_OK || captured) return work->status;
  CU_CHECK(work, 0, 0, event_record, (work->device, event, stream));
  /* Drawn in between question and record: then the event has joined the capture. */
  if (find_captured(work, stream, &captured) == VMM_OK) *recorded = !captured;
undo:
  return work->status;
}

vmm_status vmm__stream_use(vmm__work *work, void *stream) {
  vmm_device *device = work->device;
  bool captured;

  vmm__lock_acquire(&device->lock);
  device->queueing++;
  vmm__lock_release(&device->lock);
  if (find_captured(work, stream, &captured) == VMM_OK && captured)
    (void)vmm__work_fail(work, VMM_ERROR_CAPTURE, "work on the stream would join or invalidate an announced capture");
  if (work->status != VMM_OK) vmm__stream_unuse(device);
  return work->status;
}

void vmm__stream_unuse(vmm_device *device) {
  vmm__lock_acquire(&device->lock);
  device->queueing--;
  vmm__lock_release(&device->lock);
}

/* ---- the list: under the structure lock ---- */

static void insert(vmm_device *device, vmm__stream *entry) {
  vmm__lock_acquire(&device->lock);
  entry->next = device->streams;
  device->streams = entry;
  vmm__lock_release(&device->lock);
}

static void remove_entry(vmm_device *device, vmm__stream *entry) {
  vmm__stream **link;

  vmm__lock_acquire(&device->lock);
  for (link = &device->streams; *link != NULL; link = &(*link)->next)
    if (*link == entry) {
      *link = entry->next;
      break;
    }
  vmm__lock_release(&device->lock);
}

/* Ends an entry that nothing names any more. A failed event-destroy is not tried again: if it was done after all, the
 * second would crash the process. */
static void discard(vmm__work *work, vmm__stream *entry) {
  vmm_device *device = work->device;

  remove_entry(device, entry);
  if (entry->event != NULL) (void)CU_UNDO(work, event_destroy, (device, entry->event));
  vmm__memory_release(&device->memory, entry, 1, sizeof *entry);
}

void vmm__streams_count(vmm_device *device, int streams, int captures) {
  device->counters.stream_count += (vmm__u64)streams;
  atomic_fetch_add(&device->captures, captures);
}

static vmm_status start(vmm__work *work, vmm_device *device, const char *function, vmm_error *error) {
  if (vmm__forked()) return vmm__fail_forked(error, function);
  if (device == NULL) return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function, "device is NULL");
  vmm__work_start(work, device, function, 0);
  if (vmm__device_lost(device)) return vmm__work_fail(work, VMM_ERROR_DEVICE_LOST, NULL);
  return VMM_OK;
}

/* ---- public ---- */

vmm_status vmm__stream_register(vmm__work *work, void *stream) {
  vmm_device *device = work->device;
  vmm__stream *entry;
  bool fresh = false;
  void *event = NULL;

  vmm__lock_acquire(&device->lock);
  entry = vmm__stream_find(device, stream);
  vmm__lock_release(&device->lock);
  if (entry == NULL) {
    entry = vmm__memory_allocate(&device->memory, 1, sizeof *entry);
    if (entry == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    entry->stream = stream;
    fresh = true;
  }
  if (entry->event == NULL) CU_CHECK(work, 0, 0, event_create, (device, &event, VMM__EVENT_NO_TIMING));
  if (fresh) insert(device, entry);
  vmm__lock_acquire(&device->lock);
  if (event != NULL) entry->event = event;
  if (!entry->known) vmm__streams_count(device, 1, 0);
  entry->known = true;
  vmm__lock_release(&device->lock);
  return VMM_OK;

undo:
  if (fresh) vmm__memory_release(&device->memory, entry, 1, sizeof *entry);
  return work->status;
}

vmm_status vmm_device_register_stream(vmm_device *device, void *stream, vmm_error *error) {
  vmm__work work;
  vmm_status status = start(&work, device, "vmm_device_register_stream", error);

  if (device == NULL || status == VMM_ERROR_FORKED) return status;
  if (vmm__stream_is_per_thread(stream))
    (void)vmm__work_fail(&work, VMM_ERROR_INVALID_ARGUMENT,
                         "the per-thread default stream is another stream in every thread; register a real one");
  if (work.status == VMM_OK && vmm__work_lock(&work) == VMM_OK) (void)vmm__stream_register(&work, stream);
  return vmm__work_finish(&work, error);
}

/* The driver's word, where there may be captures. No answer: not that we know. */
static bool drawn_in(vmm__work *work, void *stream) {
  int status = 0;

  if (vmm__device_lost(work->device) || is_legacy(stream) || !vmm__captures_possible(work->device)) return false;
  return CU_UNDO(work, stream_is_capturing, (work->device, stream, &status)) == VMM_CODE_SUCCESS && status != 0;
}

/* The last fence of a stream that is forgotten, or a context-wide one in its place. The legacy stream needs none: it stays,
 * and each wait fences it. */
static bool record_last(vmm__work *work, vmm__stream *entry) {
  vmm_device *device = work->device;

  if (vmm__device_lost(device) || is_legacy(entry->stream)) return false;
  if (CU_UNDO(work, event_record, (device, entry->event, entry->stream)) == VMM_CODE_SUCCESS) return true;
  if (vmm__device_lost(device) || !device->info.context_fence || vmm__context_is_captured(work)) return false;
  return CU_UNDO(work, ctx_record_event, (device, device->context, entry->event)) == VMM_CODE_SUCCESS;
}

vmm_status vmm_device_forget_stream(vmm_device *device, void *stream, vmm_error *error) {
  vmm__work work;
  vmm__stream *entry;
  bool recorded;
  vmm_status status = start(&work, device, "vmm_device_forget_stream", error);

  if (device == NULL || status == VMM_ERROR_FORKED) return status;
  work.status = VMM_OK; /* a lost device still forgets */
  work.teardown = vmm__device_lost(device);
  if (vmm__work_lock(&work) != VMM_OK) return vmm__work_finish(&work, error);
  vmm__lock_acquire(&device->lock);
  entry = vmm__stream_find(device, stream);
  if (entry == NULL || !entry->known)
    (void)vmm__work_fail(&work, VMM_ERROR_INVALID_ARGUMENT, "the stream is not registered");
  else if (entry->capturing) (void)vmm__work_fail(&work, VMM_ERROR_CAPTURE, "the stream is being captured");
  vmm__lock_release(&device->lock);
  if (work.status != VMM_OK) return vmm__work_finish(&work, error);

  if (drawn_in(&work, stream)) {
    (void)vmm__work_fail(&work, VMM_ERROR_CAPTURE, "the stream takes part in a capture");
    return vmm__work_finish(&work, error);
  }
  if (vmm__device_forget_in_clients(&work, stream) != VMM_OK) return vmm__work_finish(&work, error);
  recorded = record_last(&work, entry);
  vmm__lock_acquire(&device->lock);
  entry->known = false;
  entry->stream = NULL;
  entry->fenced = recorded;
  vmm__streams_count(device, -1, 0);
  vmm__lock_release(&device->lock);
  if (!recorded) discard(&work, entry);
  return vmm__work_finish(&work, error);
}

void vmm__streams_close(vmm__work *work) {
  while (work->device->streams != NULL) discard(work, work->device->streams);
}

vmm__stream_view vmm__stream_look(vmm_device *device, const vmm__stream *entry) {
  vmm__stream_view view;

  vmm__lock_acquire(&device->lock);
  view.named = entry->known || entry->capturing;
  view.fenceable = entry->known && !entry->capturing;
  view.fenced = entry->fenced;
  view.stream = entry->stream;
  vmm__lock_release(&device->lock);
  return view;
}

void vmm__streams_sweep(vmm__work *work) {
  vmm_device *device = work->device;
  vmm__stream *entry = device->streams;

  while (entry != NULL) {
    vmm__stream *next = entry->next;
    vmm__stream_view view = vmm__stream_look(device, entry);

    if (!view.named && (!view.fenced || vmm__cu_event_query(device, entry->event) == VMM_CODE_SUCCESS))
      discard(work, entry);
    entry = next;
  }
}
