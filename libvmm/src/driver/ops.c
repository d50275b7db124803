/* Names and properties of the operations. */
#include "driver/ops.h"

#include <string.h>

#include "vmm/driver.h"

static const vmm__op_info infos[] = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  {#name, symbol, since, VMM__NEED_##need},
#include "vmm/ops.def"
};

const vmm__op_info *vmm__op_info_of(int op) { return op >= 0 && op < VMM_OP_COUNT ? &infos[op] : NULL; }

const char *vmm_op_symbol(int op) { return op >= 0 && op < VMM_OP_COUNT ? infos[op].symbol : "?"; }

int vmm_op_from_name(const char *name) {
  int op;

  if (name == NULL) return -1;
  for (op = 0; op < VMM_OP_COUNT; op++)
    if (strcmp(name, infos[op].symbol) == 0 || strcmp(name, infos[op].name) == 0) return op;
  return -1;
}

bool vmm__op_creates(int op) {
  switch (op) {
    case VMM_OP_primary_retain:
    case VMM_OP_ctx_create:
    case VMM_OP_mem_reserve:
    case VMM_OP_mem_create:
    case VMM_OP_mem_retain_handle:
    case VMM_OP_mem_import:
    case VMM_OP_mem_alloc:
    case VMM_OP_mem_host_alloc:
    case VMM_OP_stream_create:
    case VMM_OP_stream_end_capture:
    case VMM_OP_graph_instantiate:
    case VMM_OP_event_create:
      return true;
    default:
      return false;
  }
}

bool vmm__op_gives_back(int op) {
  switch (op) {
    case VMM_OP_primary_release:
    case VMM_OP_ctx_destroy:
    case VMM_OP_mem_address_free:
    case VMM_OP_mem_release:
    case VMM_OP_mem_unmap:
    case VMM_OP_mem_free:
    case VMM_OP_mem_host_free:
    case VMM_OP_stream_destroy:
    case VMM_OP_graph_exec_destroy:
    case VMM_OP_graph_destroy:
    case VMM_OP_event_destroy:
      return true;
    default:
      return false;
  }
}

bool vmm__op_outside_context(int op) {
  switch (op) {
    case VMM_OP_init:
    case VMM_OP_driver_version:
    case VMM_OP_device_count:
    case VMM_OP_device_get:
    case VMM_OP_device_name:
    case VMM_OP_device_attribute:
    case VMM_OP_ctx_get_current:
    case VMM_OP_ctx_set_current:
    case VMM_OP_ctx_push:
    case VMM_OP_ctx_pop:
    case VMM_OP_ctx_get_device:
    case VMM_OP_capture_mode:
      return true;
    default:
      return false;
  }
}

bool vmm__op_polls(int op) { return op == VMM_OP_event_query || op == VMM_OP_stream_query; }
