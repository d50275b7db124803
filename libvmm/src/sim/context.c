/* Threads and contexts: who is current where, the primary contexts, capture mode of a thread, waiting for a context. */
#include <stdatomic.h>

#include "sim/sim.h"

static atomic_ullong thread_numbers;
static _Thread_local vmm__u64 thread_number;
static _Thread_local struct {
  vmm__u64 serial;
  vmm__sim_thread *record;
} cached; /* the record in the simulator this thread used last */

vmm__u64 vmm__sim_thread_number(void) {
  if (thread_number == 0) thread_number = atomic_fetch_add(&thread_numbers, 1) + 1;
  return thread_number;
}

vmm__sim_thread *vmm__sim_thread_find(vmm__sim *sim) {
  vmm__u64 number = vmm__sim_thread_number();
  vmm__sim_thread *thread;

  if (cached.serial == sim->serial) return cached.record;
  thread = (vmm__sim_thread *)vmm__sim_tree_find(&sim->threads, number);
  if (thread == NULL) {
    thread = vmm__sim_allocate(sim, 1, sizeof *thread);
    if (thread == NULL) return NULL;
    thread->node.key = number;
    vmm__sim_tree_insert(&sim->threads, &thread->node);
  }
  cached.serial = sim->serial;
  cached.record = thread;
  return thread;
}

vmm__sim_context *vmm__sim_context_find(vmm__sim *sim, vmm__u64 key) {
  return (vmm__sim_context *)vmm__sim_tree_find(&sim->contexts, key);
}

int vmm__sim_context_code(vmm__sim *sim, vmm__u64 key) {
  const vmm__sim_context *context = vmm__sim_context_find(sim, key);

  return context == NULL ? VMM_CODE_CONTEXT_IS_DESTROYED : context->lost;
}

static int dead_context(vmm__sim *sim, int code) {
  vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_DEAD_STREAM, 0, 0, "a destroyed context was used");
  return code;
}

int vmm__sim_current(vmm__sim *sim, vmm__sim_context **context) {
  const vmm__sim_thread *thread = sim->thread;

  *context = NULL;
  if (thread->depth == 0 || thread->stack[thread->depth - 1] == 0) return VMM_CODE_INVALID_CONTEXT;
  *context = vmm__sim_context_find(sim, thread->stack[thread->depth - 1]);
  return *context == NULL ? dead_context(sim, VMM_CODE_CONTEXT_IS_DESTROYED) : VMM_CODE_SUCCESS;
}

static vmm__u64 primary_key(int device) { return 0x100 + 16 * (vmm__u64)device; } /* below all other values */

static vmm__sim_context *make(vmm__sim *sim, vmm__u64 key, int device, bool primary) {
  vmm__sim_context *context = vmm__sim_allocate(sim, 1, sizeof *context);

  if (context == NULL) return NULL;
  context->node.key = key;
  context->device = device;
  context->primary = primary;
  context->legacy.legacy = true;
  vmm__sim_stream_init(sim, &context->legacy, context, true);
  vmm__sim_tree_insert(&sim->contexts, &context->node);
  return context;
}

/* All its work is done, or it is lost. */
void vmm__sim_context_end(vmm__sim *sim, vmm__sim_context *context) {
  vmm__sim_stream *stream = context->streams;

  vmm__sim_order_host(sim, &context->all_order);
  vmm__sim_queue_drop(sim, context);
  vmm__sim_captures_end(sim, context);
  vmm__sim_events_end(sim, context);
  vmm__sim_plain_drop(sim, context->node.key);
  while (stream != NULL) {
    vmm__sim_stream *next = stream->next;

    vmm__sim_stream_end(sim, stream);
    stream = next;
  }
  vmm__sim_tree_remove(&sim->contexts, &context->node);
  vmm__sim_free(sim, context, 1, sizeof *context);
}

static bool is_device(const vmm__sim *sim, int device) { return device >= 0 && device < sim->options.device_count; }

int vmm__sim_op_primary_retain(vmm__sim *sim, void **context, int device) {
  vmm__sim_context *primary;

  if (context == NULL) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, device)) return VMM_CODE_INVALID_DEVICE;
  primary = vmm__sim_context_find(sim, primary_key(device));
  if (primary == NULL) primary = make(sim, primary_key(device), device, true);
  if (primary == NULL) return VMM_CODE_OUT_OF_MEMORY;
  sim->devices[device].primary_references++;
  *context = vmm__sim_pointer(primary->node.key);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_primary_release(vmm__sim *sim, int device) {
  vmm__sim_context *primary;

  if (!is_device(sim, device)) return VMM_CODE_INVALID_DEVICE;
  primary = vmm__sim_context_find(sim, primary_key(device));
  if (primary == NULL) return VMM_CODE_INVALID_CONTEXT;
  if (sim->devices[device].primary_references == 1 && primary->lost == 0) vmm__sim_run_to(sim, primary->all_done);
  if (sim->devices[device].primary_references == 0) return VMM_CODE_INVALID_CONTEXT;
  if (--sim->devices[device].primary_references == 0) vmm__sim_context_end(sim, primary);
  return VMM_CODE_SUCCESS;
}

static int push(vmm__sim_thread *thread, vmm__u64 key) {
  if (thread->depth == VMM__SIM_STACK) return VMM_CODE_OUT_OF_MEMORY;
  thread->stack[thread->depth++] = key;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ctx_create(vmm__sim *sim, void **context, unsigned int flags, int device) {
  vmm__sim_context *made;

  (void)flags;
  if (context == NULL) return VMM_CODE_INVALID_VALUE;
  if (!is_device(sim, device)) return VMM_CODE_INVALID_DEVICE;
  if (sim->thread->depth == VMM__SIM_STACK) return VMM_CODE_OUT_OF_MEMORY;
  made = make(sim, vmm__sim_value(sim), device, false);
  if (made == NULL) return VMM_CODE_OUT_OF_MEMORY;
  *context = vmm__sim_pointer(made->node.key);
  return push(sim->thread, made->node.key);
}

/* A context the caller names; NULL with *code set if it cannot be used. */
static vmm__sim_context *named(vmm__sim *sim, const void *pointer, int *code) {
  vmm__u64 key = (vmm__u64)(uintptr_t)pointer;
  vmm__sim_context *context = vmm__sim_context_find(sim, key);

  *code = VMM_CODE_INVALID_CONTEXT;
  if (context == NULL && key != 0) (void)dead_context(sim, 0);
  return context;
}

int vmm__sim_op_ctx_destroy(vmm__sim *sim, void *pointer) {
  vmm__sim_thread *thread = sim->thread;
  int code;
  vmm__sim_context *context = named(sim, pointer, &code);

  if (context == NULL || context->primary) return code;
  if (context->lost == 0) vmm__sim_run_to(sim, context->all_done);
  context = named(sim, pointer, &code);
  if (context == NULL) return code;
  if (thread->depth != 0 && thread->stack[thread->depth - 1] == context->node.key) thread->depth--;
  vmm__sim_context_end(sim, context);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ctx_get_current(vmm__sim *sim, void **context) {
  const vmm__sim_thread *thread = sim->thread;

  if (context == NULL) return VMM_CODE_INVALID_VALUE;
  *context = thread->depth == 0 ? NULL : vmm__sim_pointer(thread->stack[thread->depth - 1]);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ctx_set_current(vmm__sim *sim, void *pointer) {
  vmm__sim_thread *thread = sim->thread;
  int code;

  if (pointer == NULL) {
    if (thread->depth != 0) thread->depth--;
    return VMM_CODE_SUCCESS;
  }
  if (named(sim, pointer, &code) == NULL) return code;
  if (thread->depth != 0) thread->depth--;
  return push(thread, (vmm__u64)(uintptr_t)pointer);
}

int vmm__sim_op_ctx_push(vmm__sim *sim, void *pointer) {
  int code;

  if (named(sim, pointer, &code) == NULL) return code;
  return push(sim->thread, (vmm__u64)(uintptr_t)pointer);
}

int vmm__sim_op_ctx_pop(vmm__sim *sim, void **context) {
  vmm__sim_thread *thread = sim->thread;

  if (thread->depth == 0) return VMM_CODE_INVALID_CONTEXT;
  thread->depth--;
  if (context != NULL) *context = vmm__sim_pointer(thread->stack[thread->depth]);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ctx_get_device(vmm__sim *sim, int *device) {
  vmm__sim_context *context;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (device == NULL) return VMM_CODE_INVALID_VALUE;
  *device = context->device;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ctx_synchronize(vmm__sim *sim) {
  vmm__sim_context *context;
  vmm__sim_order order;
  vmm__u64 key;
  int code = vmm__sim_current(sim, &context);

  if (code != VMM_CODE_SUCCESS) return code;
  if (sim->forbid_blocking)
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_BLOCKING_SYNC, 0, 0, "cuCtxSynchronize blocks the host");
  code = vmm__sim_capture_context(sim, context);
  if (code != VMM_CODE_SUCCESS) return code;
  if (context->lost != 0) return context->lost;
  order = context->all_order;
  key = context->node.key;
  vmm__sim_run_to(sim, context->all_done);
  code = vmm__sim_context_code(sim, key);
  if (code != VMM_CODE_SUCCESS) return code;
  vmm__sim_order_host(sim, &order);
  vmm__sim_waited(sim, context);
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_ctx_record_event(vmm__sim *sim, void *pointer, void *handle) {
  vmm__sim_event *event;
  int code;
  const vmm__sim_context *context = named(sim, pointer, &code);

  if (context == NULL) return code;
  code = vmm__sim_event_find(sim, handle, &event);
  if (code != VMM_CODE_SUCCESS) return code;
  if (event->context != context) {
    vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_FOREIGN, 0, 0, "an event of another context was recorded");
    return VMM_CODE_INVALID_HANDLE;
  }
  code = vmm__sim_capture_context(sim, context);
  if (code != VMM_CODE_SUCCESS) return code;
  event->capture = 0;
  event->done = vmm__max(sim->now, context->all_done);
  event->order = context->all_order;
  return VMM_CODE_SUCCESS;
}

int vmm__sim_op_capture_mode(vmm__sim *sim, int *mode) {
  int old = sim->thread->mode;

  if (mode == NULL || *mode < 0 || *mode > 2) return VMM_CODE_INVALID_VALUE;
  sim->thread->mode = *mode;
  *mode = old;
  return VMM_CODE_SUCCESS;
}
