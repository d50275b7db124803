/* Orphans: what a creating call made before its caller was told that it failed. */
#include "driver/fault.h"

#include <string.h>

void vmm__fault_orphan_add(vmm__fault *fault, const vmm__call *call) {
  size_t index = fault->orphan_count++;

  if (index >= VMM__FAULT_ORPHANS) return;
  fault->orphans[index].op = call->op;
  fault->orphans[index].value = call->op == VMM_OP_primary_retain ? call->object : vmm__call_output_value(call);
  fault->orphans[index].size = call->size;
}

vmm_status vmm_fault_get_orphans(vmm_driver *driver, vmm_fault_orphan *array, size_t capacity, size_t *count) {
  vmm__fault *fault = vmm__fault_of(driver);
  size_t i;

  if (fault == NULL || count == NULL || (array == NULL && capacity > 0)) return VMM_ERROR_INVALID_ARGUMENT;
  vmm__lock_acquire(&fault->lock);
  for (i = 0; i < capacity && i < fault->orphan_count && i < VMM__FAULT_ORPHANS; i++) array[i] = fault->orphans[i];
  *count = fault->orphan_count;
  vmm__lock_release(&fault->lock);
  return VMM_OK;
}

/* Makes one call below; *undo becomes the same call as the wrapper tracks it. */
static int give_back(vmm_driver *inner, const vmm_fault_orphan *orphan, vmm__call *undo) {
  void *pointer = (void *)(size_t)orphan->value;

  undo->object = orphan->value;
  switch (orphan->op) {
    case VMM_OP_mem_create:
    case VMM_OP_mem_retain_handle:
    case VMM_OP_mem_import:
      undo->op = VMM_OP_mem_release;
      return inner->table->mem_release(inner->self, orphan->value);
    case VMM_OP_mem_reserve:
      undo->op = VMM_OP_mem_address_free;
      return inner->table->mem_address_free(inner->self, orphan->value, (size_t)orphan->size);
    case VMM_OP_mem_alloc:
      undo->op = VMM_OP_mem_free;
      return inner->table->mem_free(inner->self, orphan->value);
    case VMM_OP_mem_host_alloc:
      undo->op = VMM_OP_mem_host_free;
      return inner->table->mem_host_free(inner->self, pointer);
    case VMM_OP_event_create:
      undo->op = VMM_OP_event_destroy;
      return inner->table->event_destroy(inner->self, pointer);
    case VMM_OP_stream_create:
      undo->op = VMM_OP_stream_destroy;
      return inner->table->stream_destroy(inner->self, pointer);
    case VMM_OP_stream_end_capture:
      undo->op = VMM_OP_graph_destroy;
      return inner->table->graph_destroy(inner->self, pointer);
    case VMM_OP_graph_instantiate:
      undo->op = VMM_OP_graph_exec_destroy;
      return inner->table->graph_exec_destroy(inner->self, pointer);
    case VMM_OP_ctx_create:
      undo->op = VMM_OP_ctx_destroy;
      return inner->table->ctx_destroy(inner->self, pointer);
    default:
      undo->op = VMM_OP_primary_release;
      return inner->table->primary_release(inner->self, (int)orphan->value);
  }
}

/* The youngest first: an event before its context. */
vmm_status vmm_fault_release_orphans(vmm_driver *driver) {
  vmm__fault *fault = vmm__fault_of(driver);
  vmm_status status = VMM_OK;

  if (fault == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  for (;;) {
    vmm_fault_orphan orphan;
    vmm__call undo;

    vmm__lock_acquire(&fault->lock);
    if (fault->orphan_count > VMM__FAULT_ORPHANS) {
      fault->orphan_count = VMM__FAULT_ORPHANS;
      status = VMM_ERROR_PARTIAL; /* the others cannot be named */
    }
    if (fault->orphan_count == 0) break;
    orphan = fault->orphans[--fault->orphan_count];
    vmm__lock_release(&fault->lock);
    memset(&undo, 0, sizeof undo);
    if (give_back(fault->base.inner, &orphan, &undo) == VMM_CODE_SUCCESS) vmm__fault_track(fault, &undo);
    else status = VMM_ERROR_PARTIAL;
  }
  vmm__lock_release(&fault->lock);
  return status;
}
