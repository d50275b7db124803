/* Streams: created ones, the legacy stream of each context, the per-thread ones. */
#include "sim/sim.h"

enum { LEGACY = 1, PER_THREAD = 2, NON_BLOCKING = 1 };

vmm__u64 vmm__sim_stream_done(const vmm__sim_stream *stream) {
  if (stream->legacy) return vmm__max(stream->done, stream->context->blocking_done);
  return stream->blocking ? vmm__max(stream->done, stream->context->legacy.done) : stream->done;
}

void vmm__sim_stream_advance(vmm__sim_stream *stream, vmm__u64 done) {
  vmm__sim_context *context = stream->context;

  stream->done = vmm__max(stream->done, done);
  context->all_done = vmm__max(context->all_done, done);
  if (stream->blocking) context->blocking_done = vmm__max(context->blocking_done, done);
}

void vmm__sim_stream_init(vmm__sim *sim, vmm__sim_stream *stream, vmm__sim_context *context, bool blocking) {
  stream->context = context;
  stream->blocking = blocking;
  stream->slot = -1;
  stream->id = sim->next_stream_id++;
  stream->next = context->streams;
  if (stream->next != NULL) stream->next->previous = stream;
  context->streams = stream;
}

/* Its work goes on; the slot is free for another stream once the host knows that it is done. */
void vmm__sim_stream_end(vmm__sim *sim, vmm__sim_stream *stream) {
  if (stream->slot >= 0) sim->slot_taken[stream->slot] = false;
  if (stream->node.key != 0) {
    vmm__sim_tree_remove(&sim->streams, &stream->node);
    sim->devices[stream->context->device].ledger.streams--;
    if (vmm__sim_grow(sim, (void **)&sim->dead_streams, sim->dead_count, &sim->dead_capacity, 1,
                      sizeof *sim->dead_streams))
      sim->dead_streams[sim->dead_count++] = stream->node.key;
  }
  if (stream->previous != NULL) stream->previous->next = stream->next;
  if (stream->next != NULL) stream->next->previous = stream->previous;
  if (stream->context->streams == stream) stream->context->streams = stream->next;
  if (!stream->legacy) vmm__sim_free(sim, stream, 1, sizeof *stream);
}

static int per_thread(vmm__sim *sim, vmm__sim_context *context, vmm__sim_stream **stream) {
  vmm__u64 number = sim->thread->node.key;

  for (*stream = context->streams; *stream != NULL; *stream = (*stream)->next)
    if ((*stream)->thread == number) return VMM_CODE_SUCCESS;
  *stream = vmm__sim_allocate(sim, 1, sizeof **stream);
  if (*stream == NULL) return VMM_CODE_OUT_OF_MEMORY;
  (*stream)->thread = number;
  vmm__sim_stream_init(sim, *stream, context, true);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_stream_find(vmm__sim *sim, const void *handle, vmm__sim_stream **stream) {
  vmm__u64 key = (vmm__u64)(uintptr_t)handle;
  vmm__sim_context *context;
  int code;

  if (key <= PER_THREAD) {
    code = vmm__sim_current(sim, &context);
    if (code != VMM_CODE_SUCCESS) return code;
    if (key == PER_THREAD) return per_thread(sim, context, stream);
    *stream = &context->legacy;
    return VMM_CODE_SUCCESS;
  }
  *stream = (vmm__sim_stream *)vmm__sim_tree_find(&sim->streams, key);
  if (*stream != NULL) return VMM_CODE_SUCCESS;
  vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DEAD_STREAM, 0, 0,
                       vmm__sim_was_given(sim, key) ? "a destroyed stream was used" : "what was used is no stream");
  return VMM_CODE_INVALID_HANDLE;
}

int vmm__sim_stream_for_work(vmm__sim *sim, const void *handle, vmm__sim_stream **stream) {
  vmm__sim_context *context;
  int code = vmm__sim_current(sim, &context);

  if (code == VMM_CODE_SUCCESS) code = vmm__sim_stream_find(sim, handle, stream);
  if (code != VMM_CODE_SUCCESS || (*stream)->context == context) return code;
  vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_FOREIGN, 0, 0, "work was queued on a stream of another context");
  return VMM_CODE_INVALID_HANDLE;
}

int vmm__sim_op_stream_create(vmm__sim *sim, void **handle, unsigned int flags) {
  vmm__sim_context *context;
  vmm__sim_stream *stream;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (handle == NULL || flags > NON_BLOCKING) return VMM_CODE_INVALID_VALUE;
  if (context->lost != 0) return context->lost;
  stream = vmm__sim_allocate(sim, 1, sizeof *stream);
  if (stream == NULL) return VMM_CODE_OUT_OF_MEMORY;
  stream->node.key = sim->dead_count != 0 ? sim->dead_streams[--sim->dead_count] : vmm__sim_value(sim);
  vmm__sim_stream_init(sim, stream, context, flags != NON_BLOCKING);
  vmm__sim_tree_insert(&sim->streams, &stream->node);
  sim->devices[context->device].ledger.streams++;
  *handle = vmm__sim_pointer(stream->node.key);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_stream_destroy(vmm__sim *sim, void *handle) {
  vmm__sim_stream *stream;
  int code;

  if ((vmm__u64)(uintptr_t)handle <= PER_THREAD) return VMM_CODE_INVALID_HANDLE;
  code = vmm__sim_stream_find(sim, handle, &stream);
  if (code != VMM_CODE_SUCCESS) return code;
  if (stream->capture != NULL) {
    vmm__sim_capture *capture = stream->capture;

    vmm__sim_capture_invalidate(sim, capture, "a stream was destroyed while it is captured");
    if (capture->origin == stream) vmm__sim_capture_end(sim, capture);
  }
  vmm__sim_stream_end(sim, stream);
  return VMM_CODE_SUCCESS;
}

/* What query and synchronise refuse alike. */
static int check(vmm__sim *sim, const void *handle, vmm__sim_stream **stream) {
  int code = vmm__sim_stream_find(sim, handle, stream);

  if (code != VMM_CODE_SUCCESS) return code;
  code = vmm__sim_capture_unsafe(sim);
  if (code != VMM_CODE_SUCCESS) return code;
  if ((*stream)->capture != NULL) {
    if (!(*stream)->capture->valid) return VMM_CODE_STREAM_CAPTURE_INVALIDATED;
    vmm__sim_capture_invalidate(sim, (*stream)->capture, "a stream was waited for or queried while it is captured");
    return VMM_CODE_STREAM_CAPTURE_UNSUPPORTED;
  }
  code = vmm__sim_capture_legacy(sim, *stream);
  return code != VMM_CODE_SUCCESS ? code : (*stream)->context->lost;
}

/* The host knows now what the stream's work came after; a legacy stream stands for all blocking ones. */
static void seen(vmm__sim *sim, const vmm__sim_stream *stream) {
  vmm__sim_order_host(sim, &stream->order);
  if (stream->legacy) vmm__sim_order_host(sim, &stream->context->blocking_order);
  vmm__sim_waited(sim, stream->context);
}

int vmm__sim_op_stream_query(vmm__sim *sim, void *handle) {
  vmm__sim_stream *stream;
  int code = check(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (vmm__sim_stream_done(stream) > sim->now) return VMM_CODE_NOT_READY;
  seen(sim, stream);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_stream_synchronize(vmm__sim *sim, void *handle) {
  vmm__sim_stream *stream;
  vmm__u64 key;
  int code = vmm__sim_stream_find(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (sim->forbid_blocking)
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_BLOCKING_SYNC, 0, 0, "cuStreamSynchronize blocks the host");
  code = check(sim, handle, &stream);
  if (code != VMM_CODE_SUCCESS) return code;
  key = stream->context->node.key;
  vmm__sim_run_to(sim, vmm__sim_stream_done(stream));
  code = vmm__sim_context_code(sim, key);
  if (code == VMM_CODE_SUCCESS) code = vmm__sim_stream_find(sim, handle, &stream);
  if (code != VMM_CODE_SUCCESS) return code;
  seen(sim, stream);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_stream_get_id(vmm__sim *sim, void *handle, unsigned long long *id) {
  vmm__sim_stream *stream;
  int code = vmm__sim_stream_find(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (id == NULL) return VMM_CODE_INVALID_VALUE;
  *id = stream->id;
  return VMM_CODE_SUCCESS;
}
