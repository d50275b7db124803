/* What the fault wrapper has seen made and given back: streams and contexts (is work pending?), handles (how many bytes?)
 * and mappings (where are the halves?). Where host memory runs out, something is simply not tracked. */
#include <string.h>

#include "driver/fault.h"

/* ---- handles and mappings ---- */

/* The index of the first handle >= `handle`. */
static size_t find_handle(const vmm__fault *fault, vmm__u64 handle, vmm__fault_handle **found) {
  vmm__fault_handle *handles = fault->handles.elements;
  size_t low = 0;
  size_t high = fault->handles.count;

  while (low < high) {
    size_t middle = low + (high - low) / 2;

    if (handles[middle].handle < handle) low = middle + 1;
    else high = middle;
  }
  *found = low < fault->handles.count && handles[low].handle == handle ? &handles[low] : NULL;
  return low;
}

static void add_reference(vmm__fault *fault, vmm__u64 handle, vmm__u64 size) {
  vmm__fault_handle *entry;
  size_t index = find_handle(fault, handle, &entry);

  if (entry == NULL) {
    if (!vmm__fault_array_insert(&fault->handles, index, sizeof *entry)) return;
    entry = (vmm__fault_handle *)fault->handles.elements + index;
    entry->handle = handle;
    entry->size = size;
    fault->bytes += size;
  }
  entry->references++;
}

/* Takes one reference or one mapping away. Memory goes back with the last of both; of a handle that is not known, with its
 * release. */
static void drop(vmm__fault *fault, vmm__u64 handle, bool mapping) {
  vmm__fault_handle *entry;
  size_t index = find_handle(fault, handle, &entry);

  if (entry == NULL) {
    if (!mapping) fault->releases++;
    return;
  }
  if (mapping && entry->mappings > 0) entry->mappings--;
  if (!mapping && entry->references > 0) entry->references--;
  if (entry->references > 0 || entry->mappings > 0) return;
  fault->bytes -= entry->size;
  fault->releases++;
  vmm__fault_array_remove(&fault->handles, index, sizeof *entry);
}

/* The index of the first mapping at or above `address`. */
static size_t find_mapping(const vmm__fault *fault, vmm__u64 address) {
  const vmm__fault_mapping *mappings = fault->mappings.elements;
  size_t low = 0;
  size_t high = fault->mappings.count;

  while (low < high) {
    size_t middle = low + (high - low) / 2;

    if (mappings[middle].address < address) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* How many mappings from `index` on lie within [.., end). */
static size_t count_mappings(const vmm__fault *fault, size_t index, vmm__u64 end) {
  const vmm__fault_mapping *mappings = fault->mappings.elements;
  size_t count = 0;

  while (index + count < fault->mappings.count && mappings[index + count].address < end) count++;
  return count;
}

static void add_mapping(vmm__fault *fault, const vmm__call *call) {
  vmm__fault_handle *entry;
  vmm__fault_mapping *mapping;
  size_t index = find_mapping(fault, call->address);

  if (!vmm__fault_array_insert(&fault->mappings, index, sizeof *mapping)) return;
  mapping = (vmm__fault_mapping *)fault->mappings.elements + index;
  mapping->address = call->address;
  mapping->size = call->size;
  mapping->handle = call->object;
  (void)find_handle(fault, call->object, &entry);
  if (entry != NULL) entry->mappings++;
}

static void remove_mappings(vmm__fault *fault, vmm__u64 address, vmm__u64 size) {
  vmm__fault_mapping *mappings = fault->mappings.elements;
  size_t index = find_mapping(fault, address);
  size_t count = count_mappings(fault, index, vmm__saturating_add(address, size));
  size_t i;

  if (count == 0) return;
  for (i = 0; i < count; i++) drop(fault, mappings[index + i].handle, true);
  memmove(&mappings[index], &mappings[index + count], (fault->mappings.count - index - count) * sizeof *mappings);
  fault->mappings.count -= count;
}

void vmm__fault_partial(vmm__fault *fault, const vmm__call *call) {
  vmm_driver *inner = fault->base.inner;
  const vmm__fault_mapping *last;
  vmm__call half = *call;
  size_t index;
  size_t count;

  vmm__lock_acquire(&fault->lock);
  index = find_mapping(fault, call->address);
  count = count_mappings(fault, index, vmm__saturating_add(call->address, call->size)) / 2;
  last = count > 0 ? (const vmm__fault_mapping *)fault->mappings.elements + index + count - 1 : NULL;
  half.size = last != NULL ? last->address + last->size - call->address : 0;
  vmm__lock_release(&fault->lock);
  if (half.size == 0) return; /* one mapping has no first half */
  if (call->op == VMM_OP_mem_set_access)
    (void)inner->table->mem_set_access(inner->self, half.address, (size_t)half.size, half.access, half.access_count);
  else if (inner->table->mem_unmap(inner->self, half.address, (size_t)half.size) == VMM_CODE_SUCCESS)
    vmm__fault_track(fault, &half);
}

/* ---- streams and contexts ---- */

static void add_stream(vmm__fault *fault, void *stream) {
  if (fault->stream_count < VMM__FAULT_STREAMS) fault->streams[fault->stream_count++] = stream;
}

static void remove_stream(vmm__fault *fault, vmm__u64 stream) {
  size_t i;

  for (i = 0; i < fault->stream_count; i++)
    if ((vmm__u64)(size_t)fault->streams[i] == stream) {
      fault->streams[i] = fault->streams[--fault->stream_count];
      return;
    }
}

static void add_context(vmm__fault *fault, void *context, int device) {
  size_t i;

  for (i = 0; i < fault->context_count; i++)
    if (fault->contexts[i].context == context) {
      fault->contexts[i].references++;
      return;
    }
  if (fault->context_count == VMM__FAULT_CONTEXTS) return;
  fault->contexts[fault->context_count].context = context;
  fault->contexts[fault->context_count].device = device;
  fault->contexts[fault->context_count++].references = 1;
}

/* By device for a primary context, by its own value otherwise. */
static void remove_context(vmm__fault *fault, vmm__u64 context, int device) {
  size_t i;

  for (i = 0; i < fault->context_count; i++) {
    vmm__fault_context *entry = &fault->contexts[i];

    if (device >= 0 ? entry->device != device : (vmm__u64)(size_t)entry->context != context) continue;
    if (--entry->references == 0) *entry = fault->contexts[--fault->context_count];
    return;
  }
}

static void *output_pointer(const vmm__call *call) { return (void *)(size_t)vmm__call_output_value(call); }

void vmm__fault_track(vmm__fault *fault, const vmm__call *call) {
  vmm__lock_acquire(&fault->lock);
  switch (call->op) {
    case VMM_OP_mem_create:
      add_reference(fault, vmm__call_output_value(call), call->size);
      break;
    case VMM_OP_mem_retain_handle:
    case VMM_OP_mem_import:
      add_reference(fault, vmm__call_output_value(call), 0);
      break;
    case VMM_OP_mem_release:
      drop(fault, call->object, false);
      break;
    case VMM_OP_mem_map:
      add_mapping(fault, call);
      break;
    case VMM_OP_mem_unmap:
      remove_mappings(fault, call->address, call->size);
      break;
    case VMM_OP_stream_create:
      add_stream(fault, output_pointer(call));
      break;
    case VMM_OP_stream_destroy:
      remove_stream(fault, call->object);
      break;
    case VMM_OP_primary_retain:
      add_context(fault, output_pointer(call), (int)call->object);
      break;
    case VMM_OP_primary_release:
      remove_context(fault, 0, (int)call->object);
      break;
    case VMM_OP_ctx_create:
      add_context(fault, output_pointer(call), -1);
      break;
    case VMM_OP_ctx_destroy:
      remove_context(fault, call->object, -1);
      break;
    default:
      break;
  }
  vmm__lock_release(&fault->lock);
}

/* A query would invalidate a capture on the stream, or one that the legacy stream implies; asking whether there is one
 * does not. */
static bool stream_pending(vmm_driver *inner, void *stream) {
  int capturing = 0;

  if (inner->table->stream_is_capturing == NULL || inner->table->stream_query == NULL) return false;
  if (inner->table->stream_is_capturing(inner->self, stream, &capturing) != VMM_CODE_SUCCESS || capturing != 0)
    return false;
  return inner->table->stream_query(inner->self, stream) == VMM_CODE_NOT_READY;
}

/* The legacy stream of each context seen; of the current one if none was. */
static bool legacy_pending(vmm_driver *inner, const vmm__fault_context *contexts, size_t count) {
  bool pending = false;
  void *popped;
  size_t i;

  if (count == 0) return stream_pending(inner, NULL);
  for (i = 0; i < count && !pending; i++) {
    if (inner->table->ctx_push(inner->self, contexts[i].context) != VMM_CODE_SUCCESS) continue;
    pending = stream_pending(inner, NULL);
    (void)inner->table->ctx_pop(inner->self, &popped);
  }
  return pending;
}

bool vmm__fault_pending(vmm__fault *fault) {
  vmm_driver *inner = fault->base.inner;
  vmm__fault_context contexts[VMM__FAULT_CONTEXTS];
  void *streams[VMM__FAULT_STREAMS];
  size_t context_count;
  size_t stream_count;
  int mode = 2; /* relaxed: otherwise the queries would disturb a capture of this thread's */
  bool pending;
  size_t i;

  vmm__lock_acquire(&fault->lock);
  context_count = fault->context_count;
  stream_count = fault->stream_count;
  memcpy(contexts, fault->contexts, sizeof contexts);
  memcpy(streams, fault->streams, sizeof streams);
  vmm__lock_release(&fault->lock);
  if (inner->table->capture_mode == NULL || inner->table->capture_mode(inner->self, &mode) != VMM_CODE_SUCCESS)
    return false;
  pending = legacy_pending(inner, contexts, context_count);
  for (i = 0; i < stream_count && !pending; i++) pending = stream_pending(inner, streams[i]);
  (void)inner->table->capture_mode(inner->self, &mode);
  return pending;
}
