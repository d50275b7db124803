/* What stands before an operation on streams: blocks in their order, queued work, a capture and its lease. */
#include "faults.h"

enum { WORK_NS = 200000 };

u64 world_take(world *w, u64 size, void *stream) {
  u64 address = 0;

  if (vmm_pool_alloc_async(w->pool, size, stream, &address, NULL) != VMM_OK) w->failed = true;
  return address;
}

void world_give(world *w, u64 address, void *stream) {
  if (vmm_pool_free_async(w->pool, address, stream, NULL) != VMM_OK) w->failed = true;
}

void world_queue(world *w, void *stream, u64 address, u64 size) {
  world_enter(w, w->context);
  if (vmm_raw_kernel_spin(w->base, stream, WORK_NS) != 0 || vmm_raw_kernel_fill(w->base, stream, address, size, 7) != 0)
    w->failed = true;
  world_leave(w);
}

vmm_status world_capture(world *w, vmm_error *error) {
  vmm_status status = vmm_device_capture_begin(w->device, w->captured, error);

  if (status != VMM_OK) return status;
  w->announced = true;
  world_enter(w, w->context);
  if (vmm_raw_stream_begin_capture(w->base, w->captured, 0) != 0) w->failed = true;
  world_leave(w);
  return status;
}

/* A device that was closed, which a lost one may be, takes the announcement with it. */
bool world_end_capture(world *w, int how) {
  void *graph = NULL;
  bool valid;

  world_enter(w, w->context);
  valid = vmm_raw_stream_end_capture(w->base, w->captured, &graph) == 0;
  if (valid && how == VMM_CAPTURE_COMMITTED) valid = vmm_raw_graph_instantiate(w->base, &w->executable, graph, 0) == 0;
  if (graph != NULL) (void)vmm_raw_graph_destroy(w->base, graph);
  world_leave(w);
  if (w->device == NULL || vmm_device_capture_end(w->device, w->captured, how, &w->lease, NULL) == VMM_OK)
    w->announced = false;
  return valid;
}
