/* A device's clock, events, loss, owners of address ranges, and what can be asked of it. */
#include "device/work.h"

#include <string.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/status.h"
#include "device/handles.h"
#include "device/work.h"

static const vmm__u64 PIN_POLL_NS = 10000;

bool vmm__code_is_sticky(int code) {
  switch (code) {
    case VMM_CODE_DEINITIALIZED:
    case VMM_CODE_DEVICE_UNAVAILABLE:
    case VMM_CODE_INVALID_CONTEXT:
    case VMM_CODE_ECC_UNCORRECTABLE:
    case VMM_CODE_NVLINK_UNCORRECTABLE:
    case VMM_CODE_ILLEGAL_ADDRESS:
    case VMM_CODE_LAUNCH_TIMEOUT:
    case VMM_CODE_CONTEXT_IS_DESTROYED:
    case VMM_CODE_ASSERT:
      return true;
    default:
      return code >= 714 && code <= VMM_CODE_LAUNCH_FAILED; /* hardware stack error ... launch failed */
  }
}

void vmm__device_set_lost(vmm_device *device, int op, int code) {
  int alive = 0;

  if (atomic_compare_exchange_strong(&device->lost, &alive, code))
    vmm__device_event(device, VMM_EVENT_LOST, op, code, 0, 0, 0, 0);
}

vmm__u64 vmm__device_now(vmm_device *device) { return device->driver->table->now(device->driver->self); }

void vmm__device_wait(vmm_device *device, vmm__u64 ns) { device->driver->table->wait(device->driver->self, ns); }

void vmm__device_event(vmm_device *device, int kind, int op, int code, int attempt, vmm__u64 address, vmm__u64 size,
                       vmm__u64 value) {
  vmm_event event;

  memset(&event, 0, sizeof event);
  event.time_ns = vmm__device_now(device);
  event.address = address;
  event.size = size;
  event.value = value;
  event.kind = kind;
  event.code = code;
  event.attempt = attempt;
  if (op >= 0) vmm__text_copy(event.call, sizeof event.call, vmm_op_symbol(op));
  vmm__events_add(&device->events, event);
}

/* ---- owners of address ranges ---- */

void vmm__device_add_client(vmm_device *device, vmm__client *client) {
  vmm__lock_acquire(&device->lock);
  client->next = device->clients;
  device->clients = client;
  device->counters.client_count++;
  vmm__lock_release(&device->lock);
}

/* It stays in the list as long as it is pinned, so that whoever walks the list goes on from it. */
void vmm__device_remove_client(vmm_device *device, vmm__client *client) {
  vmm__client **link;

  vmm__lock_acquire(&device->lock);
  while (client->pins != 0) {
    vmm__lock_release(&device->lock);
    vmm__clock_wait(PIN_POLL_NS);
    vmm__lock_acquire(&device->lock);
  }
  for (link = &device->clients; *link != NULL; link = &(*link)->next)
    if (*link == client) {
      *link = client->next;
      device->counters.client_count--;
      break;
    }
  vmm__lock_release(&device->lock);
}

vmm__client *vmm__device_pin_client(vmm_device *device, vmm__u64 address) {
  vmm__client *client;

  vmm__lock_acquire(&device->lock);
  for (client = device->clients; client != NULL; client = client->next)
    if (address >= client->base && address - client->base < client->size) break;
  if (client != NULL) client->pins++;
  vmm__lock_release(&device->lock);
  return client;
}

vmm__client *vmm__device_next_client(vmm_device *device, vmm__client *client) {
  vmm__client *next;

  vmm__lock_acquire(&device->lock);
  next = client == NULL ? device->clients : client->next;
  if (next != NULL) next->pins++;
  if (client != NULL) client->pins--;
  vmm__lock_release(&device->lock);
  return next;
}

void vmm__device_unpin_client(vmm_device *device, vmm__client *client) {
  vmm__lock_acquire(&device->lock);
  client->pins--;
  vmm__lock_release(&device->lock);
}

/* Those that have to call the driver: under the structure lock no client goes. */
vmm_status vmm__device_forget_in_clients(struct vmm__work *work, const void *stream) {
  vmm__client *client = NULL;

  while ((client = vmm__device_next_client(work->device, client)) != NULL)
    (void)client->forget_stream(client, work, stream);
  return work->status;
}

/* ---- public ---- */

static vmm_status refuse(const vmm_device *device, const void *output, const char *function, vmm_error *error) {
  if (vmm__forked()) return vmm__fail_forked(error, function);
  if (device != NULL && output != NULL) return VMM_OK;
  return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function,
                      device == NULL ? "device is NULL" : "the output pointer is NULL");
}

vmm_status vmm_device_set_limit(vmm_device *device, unsigned long long limit, vmm_error *error) {
  vmm_status status = refuse(device, device, "vmm_device_set_limit", error);

  if (status != VMM_OK) return status;
  vmm__lock_acquire(&device->lock);
  device->limit = limit;
  vmm__lock_release(&device->lock);
  return VMM_OK;
}

vmm_status vmm_device_trim(vmm_device *device, unsigned long long keep, unsigned long long *done, vmm_error *error) {
  vmm__work work;
  vmm__u64 given = 0;
  vmm_status status = refuse(device, device, "vmm_device_trim", error);

  if (done != NULL) *done = 0;
  if (status != VMM_OK) return status;
  vmm__work_start(&work, device, "vmm_device_trim", 0);
  work.round_left = work.attempts_left;
  work.teardown = vmm__device_lost(device);
  if (vmm__work_lock(&work) == VMM_OK) {
    given = vmm__handles_trim(&work, keep);
    if (work.undo_failures != 0 && !vmm__device_lost(device)) {
      int code = work.undo_code;
      (void)vmm__work_call_failed(&work, VMM_OP_mem_release, code, 0, 0);
      if (given != 0) work.status = VMM_ERROR_PARTIAL;
    }
  }
  if (done != NULL) *done = given;
  return vmm__work_finish(&work, error);
}

vmm_status vmm_device_get_info(vmm_device *device, vmm_device_info *info, vmm_error *error) {
  vmm_device_info copy;
  vmm_status status = refuse(device, info, "vmm_device_get_info", error);

  if (status != VMM_OK) return status;
  copy = device->info;
  copy.lost = vmm__device_lost(device) ? 1 : 0;
  return vmm__output_write(info, &copy, sizeof copy, "vmm_device_info", error);
}

vmm_status vmm_device_get_stats(vmm_device *device, vmm_device_stats *stats, vmm_error *error) {
  vmm_device_stats copy;
  vmm__device_counters counters;
  vmm__u64 captures;
  vmm_status status = refuse(device, stats, "vmm_device_get_stats", error);

  if (status != VMM_OK) return status;
  memset(&copy, 0, sizeof copy);
  vmm__lock_acquire(&device->lock);
  counters = device->counters;
  copy.limit = device->limit;
  captures = (vmm__u64)atomic_load(&device->captures);
  vmm__lock_release(&device->lock);
  copy.handle_count = counters.handle_count;
  copy.handle_bytes = counters.handle_bytes;
  copy.handle_bytes_peak = counters.handle_bytes_peak;
  copy.idle_count = counters.idle_count;
  copy.idle_bytes = counters.idle_bytes;
  copy.reserved_bytes = atomic_load(&device->reserved_bytes);
  copy.created_count = counters.created_count;
  copy.created_bytes = counters.created_bytes;
  copy.released_count = counters.released_count;
  copy.released_bytes = counters.released_bytes;
  copy.quarantined_count = counters.quarantined_count;
  copy.quarantined_bytes = counters.quarantined_bytes;
  copy.retry_count = counters.retry_count;
  copy.not_ready_count = counters.not_ready_count;
  copy.not_confirmed_count = counters.not_confirmed_count;
  copy.quiesce_count = counters.quiesce_count;
  copy.pressure_count = counters.pressure_count;
  copy.pool_count = counters.client_count;
  copy.stream_count = counters.stream_count;
  copy.capture_count = captures;
  return vmm__output_write(stats, &copy, sizeof copy, "vmm_device_stats", error);
}

vmm_status vmm_device_get_calls(vmm_device *device, vmm_call_stats *array, size_t capacity, size_t *count,
                                vmm_error *error) {
  size_t found = 0;
  int op;
  vmm_status status = refuse(device, count, "vmm_device_get_calls", error);

  if (status != VMM_OK) return status;
  if (array == NULL && capacity != 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_get_calls: array is NULL");
  for (op = 0; op < VMM_OP_COUNT; op++) {
    vmm__call_counter *counter = &device->calls[op];
    vmm__u64 calls = atomic_load_explicit(&counter->count, memory_order_relaxed);

    if (calls == 0) continue;
    if (found < capacity) {
      memset(&array[found], 0, sizeof array[found]);
      vmm__text_copy(array[found].call, sizeof array[found].call, vmm_op_symbol(op));
      array[found].count = calls;
      array[found].failures = atomic_load_explicit(&counter->failures, memory_order_relaxed);
      array[found].total_ns = atomic_load_explicit(&counter->total_ns, memory_order_relaxed);
      array[found].max_ns = atomic_load_explicit(&counter->max_ns, memory_order_relaxed);
    }
    found++;
  }
  *count = found;
  return VMM_OK;
}

vmm_status vmm_device_get_events(vmm_device *device, unsigned long long after, vmm_event *array, size_t capacity,
                                 size_t *count, vmm_error *error) {
  vmm_status status = refuse(device, count, "vmm_device_get_events", error);

  if (status != VMM_OK) return status;
  if (array == NULL && capacity != 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_get_events: array is NULL");
  *count = vmm__events_get(&device->events, after, array, capacity);
  return VMM_OK;
}
