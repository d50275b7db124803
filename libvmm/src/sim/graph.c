/* Graphs: captured work, replayed in the order it was captured on the stream it is launched on. */
#include "sim/sim.h"

bool vmm__sim_nodes_add(vmm__sim *sim, vmm__sim_nodes *nodes, const vmm__sim_work *work, vmm__u64 count) {
  vmm__u64 i;

  if (!vmm__sim_grow(sim, (void **)&nodes->work, nodes->count, &nodes->capacity, count, sizeof *nodes->work))
    return false;
  for (i = 0; i < count; i++) nodes->work[nodes->count++] = work[i];
  return true;
}

void vmm__sim_nodes_release(vmm__sim *sim, vmm__sim_nodes *nodes) {
  if (--nodes->references != 0) return;
  vmm__sim_free(sim, nodes->work, nodes->capacity, sizeof *nodes->work);
  vmm__sim_free(sim, nodes, 1, sizeof *nodes);
}

void vmm__sim_graph_free(vmm__sim *sim, vmm__sim_graph *graph) {
  vmm__sim_nodes_release(sim, graph->nodes);
  vmm__sim_free(sim, graph, 1, sizeof *graph);
}

static vmm__sim_graph *find(const vmm__sim *sim, const void *handle, bool executable) {
  vmm__sim_graph *graph = (vmm__sim_graph *)vmm__sim_tree_find(&sim->graphs, (vmm__u64)(uintptr_t)handle);

  return graph != NULL && graph->executable == executable ? graph : NULL;
}

int vmm__sim_op_graph_instantiate(vmm__sim *sim, void **executable, void *handle, unsigned long long flags) {
  const vmm__sim_graph *graph = find(sim, handle, false);
  vmm__sim_graph *made;

  if (executable == NULL || graph == NULL || flags != 0) return VMM_CODE_INVALID_VALUE;
  made = vmm__sim_allocate(sim, 1, sizeof *made);
  if (made == NULL) return VMM_CODE_OUT_OF_MEMORY;
  made->node.key = vmm__sim_value(sim);
  made->nodes = graph->nodes;
  made->nodes->references++;
  made->executable = true;
  vmm__sim_tree_insert(&sim->graphs, &made->node);
  *executable = vmm__sim_pointer(made->node.key);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_graph_launch(vmm__sim *sim, void *executable, void *stream_handle) {
  const vmm__sim_graph *graph = find(sim, executable, true);
  vmm__sim_stream *stream;
  int code;

  if (graph == NULL) return VMM_CODE_INVALID_VALUE;
  code = vmm__sim_stream_for_work(sim, stream_handle, &stream);
  if (code != VMM_CODE_SUCCESS) return code;
  if (stream->capture != NULL) {
    if (!stream->capture->valid) return VMM_CODE_STREAM_CAPTURE_INVALIDATED;
    stream->captured++;
    return vmm__sim_nodes_add(sim, stream->capture->nodes, graph->nodes->work, graph->nodes->count)
               ? VMM_CODE_SUCCESS
               : VMM_CODE_OUT_OF_MEMORY;
  }
  code = vmm__sim_capture_legacy(sim, stream);
  if (code == VMM_CODE_SUCCESS) code = stream->context->lost;
  if (code != VMM_CODE_SUCCESS || graph->nodes->count == 0) return code;
  return vmm__sim_submit(sim, stream, graph->nodes->work, graph->nodes->count);
}

static int destroy(vmm__sim *sim, const void *handle, bool executable) {
  vmm__sim_graph *graph = find(sim, handle, executable);

  if (graph == NULL) return VMM_CODE_INVALID_VALUE;
  vmm__sim_tree_remove(&sim->graphs, &graph->node);
  vmm__sim_graph_free(sim, graph);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_graph_exec_destroy(vmm__sim *sim, void *executable) { return destroy(sim, executable, true); }

int vmm__sim_op_graph_destroy(vmm__sim *sim, void *graph) { return destroy(sim, graph, false); }
