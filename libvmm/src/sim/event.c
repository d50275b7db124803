/* Events: a moment of a stream's (or a context's) queue; or, recorded in a capture, a place in it. */
#include "sim/sim.h"

enum { WAIT_EXTERNAL = 1, EVENT_FLAGS = 7 };

int vmm__sim_event_find(vmm__sim *sim, const void *handle, vmm__sim_event **event) {
  vmm__u64 key = (vmm__u64)(uintptr_t)handle;

  *event = (vmm__sim_event *)vmm__sim_tree_find(&sim->events, key);
  if (*event != NULL) return VMM_CODE_SUCCESS;
  if (key != 0 && vmm__sim_was_given(sim, key))
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DEAD_STREAM, 0, 0, "a destroyed event was used");
  return VMM_CODE_INVALID_HANDLE;
}

static void drop(vmm__sim *sim, vmm__sim_event *event) {
  sim->devices[event->context->device].ledger.events--;
  vmm__sim_tree_remove(&sim->events, &event->node);
  vmm__sim_free(sim, event, 1, sizeof *event);
}

void vmm__sim_events_end(vmm__sim *sim, const vmm__sim_context *context) {
  vmm__sim_node *node = vmm__sim_tree_at_or_above(&sim->events, 0);

  while (node != NULL) {
    vmm__sim_node *next = vmm__sim_tree_next(&sim->events, node);

    if (((vmm__sim_event *)node)->context == context) drop(sim, (vmm__sim_event *)node);
    node = next;
  }
}

int vmm__sim_op_event_create(vmm__sim *sim, void **handle, unsigned int flags) {
  vmm__sim_context *context;
  vmm__sim_event *event;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (handle == NULL || flags > EVENT_FLAGS) return VMM_CODE_INVALID_VALUE;
  event = vmm__sim_allocate(sim, 1, sizeof *event);
  if (event == NULL) return VMM_CODE_OUT_OF_MEMORY;
  event->node.key = vmm__sim_value(sim);
  event->context = context;
  vmm__sim_tree_insert(&sim->events, &event->node);
  sim->devices[context->device].ledger.events++;
  *handle = vmm__sim_pointer(event->node.key);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_event_destroy(vmm__sim *sim, void *handle) {
  vmm__u64 key = (vmm__u64)(uintptr_t)handle;
  vmm__sim_event *event = (vmm__sim_event *)vmm__sim_tree_find(&sim->events, key);

  if (event == NULL) {
    if (vmm__sim_was_given(sim, key))
      vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DOUBLE_RELEASE, 0, 0, "an event was destroyed before");
    return VMM_CODE_INVALID_HANDLE;
  }
  drop(sim, event);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_event_record(vmm__sim *sim, void *handle, void *stream_handle) {
  vmm__sim_stream *stream;
  vmm__sim_event *event;
  int code = vmm__sim_event_find(sim, handle, &event);

  if (code == VMM_CODE_SUCCESS) code = vmm__sim_stream_find(sim, stream_handle, &stream);
  if (code != VMM_CODE_SUCCESS) return code;
  if (event->context != stream->context) {
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_FOREIGN, 0, 0, "an event was recorded on a stream of another context");
    return VMM_CODE_INVALID_HANDLE;
  }
  if (stream->capture != NULL) {
    if (!stream->capture->valid) return VMM_CODE_STREAM_CAPTURE_INVALIDATED;
    event->capture = stream->capture->node.key;
    event->stream = stream->id;
    event->captured = stream->captured;
    return VMM_CODE_SUCCESS;
  }
  code = vmm__sim_capture_legacy(sim, stream);
  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_order_enter(sim, stream);
  event->capture = 0;
  event->done = vmm__max(sim->now, vmm__sim_stream_done(stream));
  event->order = stream->order;
  vmm__sim_stream_advance(stream, event->done);
  return VMM_CODE_SUCCESS;
}

/* What query and synchronise refuse alike. */
static int check(vmm__sim *sim, const vmm__sim_event *event) {
  int code = vmm__sim_capture_unsafe(sim);

  if (code != VMM_CODE_SUCCESS) return code;
  if (event->capture != 0) {
    vmm__sim_capture *capture = (vmm__sim_capture *)vmm__sim_tree_find(&sim->captures, event->capture);

    if (capture != NULL)
      vmm__sim_capture_invalidate(sim, capture, "an event recorded in a capture was queried or waited for");
    return VMM_CODE_CAPTURED_EVENT;
  }
  return event->context->lost;
}

int vmm__sim_op_event_query(vmm__sim *sim, void *handle) {
  vmm__sim_event *event;
  int code = vmm__sim_event_find(sim, handle, &event);

  if (code == VMM_CODE_SUCCESS) code = check(sim, event);
  if (code != VMM_CODE_SUCCESS) return code;
  if (event->done > sim->now) return VMM_CODE_NOT_READY;
  vmm__sim_order_host(sim, &event->order);
  vmm__sim_waited(sim, event->context);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_event_synchronize(vmm__sim *sim, void *handle) {
  vmm__sim_event *event;
  vmm__sim_order order;
  vmm__u64 key;
  int code = vmm__sim_event_find(sim, handle, &event);

  if (code != VMM_CODE_SUCCESS) return code;
  if (sim->forbid_blocking)
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_BLOCKING_SYNC, 0, 0, "cuEventSynchronize blocks the host");
  code = check(sim, event);
  if (code != VMM_CODE_SUCCESS) return code;
  key = event->context->node.key;
  order = event->order;
  vmm__sim_run_to(sim, event->done);
  code = vmm__sim_context_code(sim, key);
  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_order_host(sim, &order);
  vmm__sim_waited(sim, vmm__sim_context_find(sim, key));
  return VMM_CODE_SUCCESS;
}

/* Waiting for an event of a capture: joins the stream into it, or back into the origin. */
static int wait_captured(vmm__sim *sim, vmm__sim_stream *stream, const vmm__sim_event *event) {
  vmm__sim_capture *capture = (vmm__sim_capture *)vmm__sim_tree_find(&sim->captures, event->capture);
  vmm__sim_stream *other;

  if (capture == NULL) return VMM_CODE_CAPTURED_EVENT;
  if (!capture->valid) return VMM_CODE_STREAM_CAPTURE_INVALIDATED;
  if (stream->legacy) {
    vmm__sim_capture_invalidate(sim, capture, "the legacy stream was made to wait for a capture");
    return VMM_CODE_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture != NULL && stream->capture != capture) {
    vmm__sim_capture_invalidate(sim, capture, "two captures were joined");
    vmm__sim_capture_invalidate(sim, stream->capture, "two captures were joined");
    return VMM__CODE_CAPTURE_MERGE;
  }
  if (stream->capture == NULL) {
    stream->capture = capture;
    stream->unjoined = true;
    return VMM_CODE_SUCCESS;
  }
  for (other = stream->context->streams; other != NULL; other = other->next)
    if (other != stream && other->capture == capture && other->id == event->stream &&
        other->captured == event->captured)
      other->unjoined = false;
  stream->captured++;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_stream_wait_event(vmm__sim *sim, void *stream_handle, void *handle, unsigned int flags) {
  vmm__sim_stream *stream;
  vmm__sim_event *event;
  int code = vmm__sim_stream_find(sim, stream_handle, &stream);

  if (code == VMM_CODE_SUCCESS) code = vmm__sim_event_find(sim, handle, &event);
  if (code != VMM_CODE_SUCCESS) return code;
  if (flags > WAIT_EXTERNAL) return VMM_CODE_INVALID_VALUE;
  if (stream->capture != NULL && !stream->capture->valid) return VMM_CODE_STREAM_CAPTURE_INVALIDATED;
  if (event->capture != 0) return wait_captured(sim, stream, event);
  if (stream->capture != NULL) {
    if (flags == WAIT_EXTERNAL) return VMM_CODE_SUCCESS; /* the wait itself is not replayed */
    vmm__sim_capture_invalidate(sim, stream->capture, "a captured stream was made to wait for an outside event");
    return VMM_CODE_STREAM_CAPTURE_ISOLATION;
  }
  code = vmm__sim_capture_legacy(sim, stream);
  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_order_enter(sim, stream);
  vmm__sim_order_wait(stream, &event->order);
  vmm__sim_stream_advance(stream, vmm__max(event->done, vmm__sim_stream_done(stream)));
  return VMM_CODE_SUCCESS;
}
