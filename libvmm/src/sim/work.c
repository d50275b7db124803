/* Queued work: what a launch checks, where in time its end lies. */
#include <string.h>

#include "sim/sim.h"

static const vmm__u64 LAUNCH_NS = 2000;
static const vmm__u64 LINK_BYTES_PER_NS = 50;     /* host and device */
static const vmm__u64 MEMORY_BYTES_PER_NS = 2000; /* within a device */

static bool is_kernel(const vmm__sim_work *work) { return work->kind <= VMM__SIM_TRAP || work->kind == VMM__SIM_HOST; }

static vmm__u64 duration(const vmm__sim_work *work) {
  switch (work->kind) {
    case VMM__SIM_SPIN:
      return work->duration;
    case VMM__SIM_HOST:
      return 0;
    case VMM__SIM_HTOD:
    case VMM__SIM_DTOH:
      return LAUNCH_NS + work->size / LINK_BYTES_PER_NS;
    default:
      return LAUNCH_NS + work->size / MEMORY_BYTES_PER_NS;
  }
}

bool vmm__sim_work_allowed(vmm__sim *sim, const vmm__sim_work *work) {
  int device = work->context->device;
  int first = VMM__SIM_WRITE;
  int second = VMM__SIM_WRITE;

  switch (work->kind) {
    case VMM__SIM_VERIFY:
    case VMM__SIM_SUM:
      first = VMM__SIM_READ;
      break;
    case VMM__SIM_DTOH: /* the second range is on the host */
      return vmm__sim_allowed(sim, device, work->address, work->size, VMM__SIM_READ);
    case VMM__SIM_DTOD:
      second = VMM__SIM_READ;
      break;
    default:
      break;
  }
  return vmm__sim_allowed(sim, device, work->address, work->size, first) &&
         vmm__sim_allowed(sim, device, work->other, work->other_size, second);
}

void vmm__sim_work_free(vmm__sim *sim, vmm__sim_work *work) {
  vmm__sim_free(sim, work->staged, work->size, 1);
  vmm__sim_free(sim, work, 1, sizeof *work);
}

void vmm__sim_lose(vmm__sim *sim, vmm__sim_context *context, int code) {
  if (context->lost != 0) return;
  context->lost = code;
  sim->devices[context->device].ledger.pending -= context->pending; /* none of it will run */
  context->pending = 0;
}

static void enqueue(vmm__sim *sim, vmm__sim_stream *stream, vmm__sim_work *work) {
  vmm__u64 start;

  vmm__sim_order_enter(sim, stream);
  vmm__sim_order_touch(sim, stream, work);
  start = vmm__max(sim->now, vmm__sim_stream_done(stream));
  work->done = vmm__saturating_add(start, duration(work));
  vmm__sim_stream_advance(stream, work->done);
  vmm__sim_queue_push(sim, work);
}

int vmm__sim_submit(vmm__sim *sim, vmm__sim_stream *stream, const vmm__sim_work *work, vmm__u64 count) {
  vmm__sim_work **copies;
  vmm__sim_work *only[1];
  vmm__u64 made;
  vmm__u64 i;

  if (!vmm__sim_queue_reserve(sim, count)) return VMM_CODE_OUT_OF_MEMORY;
  copies = count <= 1 ? only : vmm__sim_allocate(sim, count, sizeof *copies);
  if (copies == NULL) return VMM_CODE_OUT_OF_MEMORY;
  for (made = 0; made < count; made++) {
    copies[made] = vmm__sim_allocate(sim, 1, sizeof **copies);
    if (copies[made] == NULL) break;
    *copies[made] = work[made];
    copies[made]->context = stream->context;
  }
  for (i = 0; i < made; i++) {
    if (made == count) enqueue(sim, stream, copies[i]);
    else vmm__sim_free(sim, copies[i], 1, sizeof **copies); /* what it staged stays the caller's */
  }
  if (copies != only) vmm__sim_free(sim, copies, count, sizeof *copies);
  return made == count ? VMM_CODE_SUCCESS : VMM_CODE_OUT_OF_MEMORY;
}

/* Pageable host memory is read when the copy is called, as the driver's staging does. */
static int stage(vmm__sim *sim, vmm__sim_work *work) {
  if (work->kind != VMM__SIM_HTOD || vmm__sim_is_pinned(sim, work->from, work->size)) return VMM_CODE_SUCCESS;
  work->staged = vmm__sim_allocate(sim, work->size, 1);
  if (work->staged == NULL) return VMM_CODE_OUT_OF_MEMORY;
  memcpy(work->staged, work->from, (size_t)work->size);
  return VMM_CODE_SUCCESS;
}

static int capture(vmm__sim *sim, vmm__sim_stream *stream, const vmm__sim_work *work) {
  if (!stream->capture->valid) return VMM_CODE_STREAM_CAPTURE_INVALIDATED;
  if (!vmm__sim_nodes_add(sim, stream->capture->nodes, work, 1)) return VMM_CODE_OUT_OF_MEMORY;
  stream->captured++;
  stream->unjoined = stream != stream->capture->origin;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_launch(vmm__sim *sim, const void *handle, vmm__sim_work *work) {
  vmm__sim_stream *stream;
  int code = vmm__sim_stream_for_work(sim, handle, &stream);

  if (code != VMM_CODE_SUCCESS) return code;
  if (vmm__sim_scratch(sim) == NULL) return VMM_CODE_OUT_OF_MEMORY;
  work->op = sim->op;
  work->context = stream->context;
  if (stream->capture != NULL) return capture(sim, stream, work);
  code = vmm__sim_capture_legacy(sim, stream);
  if (code != VMM_CODE_SUCCESS) return code;
  if (stream->context->lost != 0) return is_kernel(work) ? stream->context->lost : VMM_CODE_SUCCESS;
  if (sim->options.touch != VMM_SIM_TOUCH_ZERO && (!is_kernel(work) || sim->options.touch == VMM_SIM_TOUCH_REFUSED) &&
      !vmm__sim_work_allowed(sim, work))
    return VMM_CODE_INVALID_VALUE;
  code = stage(sim, work);
  if (code == VMM_CODE_SUCCESS) code = vmm__sim_submit(sim, stream, work, 1);
  if (code != VMM_CODE_SUCCESS) vmm__sim_free(sim, work->staged, work->size, 1);
  return code;
}
