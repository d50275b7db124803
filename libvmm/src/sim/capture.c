/* Stream captures: what they forbid, what invalidates them. */
#include "sim/sim.h"

enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };

static vmm__sim_capture *first_capture(const vmm__sim *sim) {
  return sim->captures.count == 0 ? NULL : (vmm__sim_capture *)vmm__sim_tree_at_or_above(&sim->captures, 0);
}

static vmm__sim_capture *next_capture(const vmm__sim *sim, const vmm__sim_capture *capture) {
  return (vmm__sim_capture *)vmm__sim_tree_next(&sim->captures, &capture->node);
}

void vmm__sim_capture_invalidate(vmm__sim *sim, vmm__sim_capture *capture, const char *text) {
  if (!capture->valid) return;
  capture->valid = false;
  sim->captures_invalidated++;
  vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_CAPTURE, 0, 0, text);
}

/* A thread is bound by its own captures that are not relaxed, and, in the global mode, by other threads' global ones. */
static bool binds(const vmm__sim_capture *capture, const vmm__sim_thread *thread) {
  if (!capture->valid || thread->mode == RELAXED || capture->mode == RELAXED) return false;
  if (capture->thread == thread->node.key) return true;
  return thread->mode == GLOBAL && capture->mode == GLOBAL;
}

int vmm__sim_capture_unsafe(vmm__sim *sim) {
  vmm__sim_capture *capture;
  int code = VMM_CODE_SUCCESS;

  for (capture = first_capture(sim); capture != NULL; capture = next_capture(sim, capture)) {
    if (!binds(capture, sim->thread)) continue;
    vmm__sim_capture_invalidate(sim, capture, "a call that a capture forbids");
    code = VMM_CODE_STREAM_CAPTURE_UNSUPPORTED;
  }
  return code;
}

int vmm__sim_capture_context(vmm__sim *sim, const vmm__sim_context *context) {
  vmm__sim_capture *capture;
  int code = VMM_CODE_SUCCESS;

  for (capture = first_capture(sim); capture != NULL; capture = next_capture(sim, capture)) {
    if (capture->context != context || !capture->valid) continue;
    vmm__sim_capture_invalidate(sim, capture, "a call about the whole context during a capture in it");
    code = VMM_CODE_STREAM_CAPTURE_UNSUPPORTED;
  }
  return code;
}

static bool captures_blocking(const vmm__sim_capture *capture) {
  const vmm__sim_stream *stream;

  for (stream = capture->context->streams; stream != NULL; stream = stream->next)
    if (stream->capture == capture && stream->blocking) return true;
  return false;
}

bool vmm__sim_capture_blocking(vmm__sim *sim, const vmm__sim_context *context) {
  const vmm__sim_capture *capture;

  for (capture = first_capture(sim); capture != NULL; capture = next_capture(sim, capture))
    if (capture->context == context && capture->valid && captures_blocking(capture)) return true;
  return false;
}

int vmm__sim_capture_legacy(vmm__sim *sim, const vmm__sim_stream *stream) {
  vmm__sim_capture *capture;
  int code = VMM_CODE_SUCCESS;

  if (!stream->legacy) return VMM_CODE_SUCCESS;
  for (capture = first_capture(sim); capture != NULL; capture = next_capture(sim, capture)) {
    if (capture->context != stream->context || !capture->valid || !captures_blocking(capture)) continue;
    vmm__sim_capture_invalidate(sim, capture, "the legacy stream was used during a capture of a blocking stream");
    code = VMM_CODE_STREAM_CAPTURE_IMPLICIT;
  }
  return code;
}

void vmm__sim_capture_end(vmm__sim *sim, vmm__sim_capture *capture) {
  vmm__sim_stream *stream;

  for (stream = capture->context->streams; stream != NULL; stream = stream->next) {
    if (stream->capture != capture) continue;
    stream->capture = NULL;
    stream->unjoined = false;
  }
  vmm__sim_nodes_release(sim, capture->nodes);
  vmm__sim_tree_remove(&sim->captures, &capture->node);
  vmm__sim_free(sim, capture, 1, sizeof *capture);
}

void vmm__sim_captures_end(vmm__sim *sim, const vmm__sim_context *context) {
  vmm__sim_capture *capture = first_capture(sim);

  while (capture != NULL) {
    vmm__sim_capture *next = next_capture(sim, capture);

    if (capture->context == context) vmm__sim_capture_end(sim, capture);
    capture = next;
  }
}

int vmm__sim_op_stream_is_capturing(vmm__sim *sim, void *handle, int *status) {
  vmm__sim_stream *stream;
  int code = vmm__sim_stream_find(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (status == NULL) return VMM_CODE_INVALID_VALUE;
  if (stream->legacy && vmm__sim_capture_blocking(sim, stream->context)) return VMM_CODE_STREAM_CAPTURE_IMPLICIT;
  *status = stream->capture == NULL ? 0 : stream->capture->valid ? 1 : 2;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_stream_begin_capture(vmm__sim *sim, void *handle, int mode) {
  vmm__sim_capture *capture;
  vmm__sim_stream *stream;
  int code = vmm__sim_stream_find(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (mode < GLOBAL || mode > RELAXED) return VMM_CODE_INVALID_VALUE;
  if (stream->legacy) return VMM_CODE_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != NULL) return VMM__CODE_ILLEGAL_STATE;
  if (stream->context->lost != 0) return stream->context->lost;
  capture = vmm__sim_allocate(sim, 1, sizeof *capture);
  if (capture == NULL) return VMM_CODE_OUT_OF_MEMORY;
  capture->nodes = vmm__sim_allocate(sim, 1, sizeof *capture->nodes);
  if (capture->nodes == NULL) {
    vmm__sim_free(sim, capture, 1, sizeof *capture);
    return VMM_CODE_OUT_OF_MEMORY;
  }
  capture->nodes->references = 1;
  capture->node.key = vmm__sim_value(sim);
  capture->context = stream->context;
  capture->origin = stream;
  capture->thread = sim->thread->node.key;
  capture->mode = mode;
  capture->valid = true;
  vmm__sim_tree_insert(&sim->captures, &capture->node);
  stream->capture = capture;
  stream->unjoined = false;
  return VMM_CODE_SUCCESS;
}

static bool has_unjoined(const vmm__sim_capture *capture) {
  const vmm__sim_stream *stream;

  for (stream = capture->context->streams; stream != NULL; stream = stream->next)
    if (stream->capture == capture && stream != capture->origin && stream->unjoined) return true;
  return false;
}

int vmm__sim_op_stream_end_capture(vmm__sim *sim, void *handle, void **result) {
  vmm__sim_capture *capture;
  vmm__sim_stream *stream;
  vmm__sim_graph *graph;
  int code = vmm__sim_stream_find(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (result == NULL) return VMM_CODE_INVALID_VALUE;
  *result = NULL;
  capture = stream->capture;
  if (capture == NULL) return VMM__CODE_ILLEGAL_STATE;
  if (capture->origin != stream) return VMM__CODE_CAPTURE_UNMATCHED;
  if (capture->thread != sim->thread->node.key && capture->mode != RELAXED) return VMM__CODE_CAPTURE_WRONG_THREAD;
  graph = vmm__sim_allocate(sim, 1, sizeof *graph);
  if (!capture->valid) code = VMM_CODE_STREAM_CAPTURE_INVALIDATED;
  else if (has_unjoined(capture)) code = VMM__CODE_CAPTURE_UNJOINED;
  else if (graph == NULL) code = VMM_CODE_OUT_OF_MEMORY;
  if (code == VMM_CODE_SUCCESS) {
    graph->node.key = vmm__sim_value(sim);
    graph->nodes = capture->nodes;
    graph->nodes->references++;
    vmm__sim_tree_insert(&sim->graphs, &graph->node);
    *result = vmm__sim_pointer(graph->node.key);
  } else {
    vmm__sim_free(sim, graph, 1, sizeof *graph);
  }
  vmm__sim_capture_end(sim, capture);
  return code;
}
