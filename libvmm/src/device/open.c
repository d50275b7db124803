/* Opening and closing a device. The registry lets a second open of the same GPU find the first. */
#include <string.h>

#include "base/fork.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/handles.h"
#include "device/streams.h"
#include "device/work.h"

enum {
  ATTRIBUTE_VMM_SUPPORTED = 102,
  STREAM_NON_BLOCKING = 1,
  OLDEST_DRIVER = 12000,
  DEFAULT_ATTEMPTS = 10,
  PLAIN_GRANULARITY = 2 << 20
};

static vmm__lock registry_lock = {.rank = VMM__RANK_REGISTRY};
static vmm_device *registry;

vmm_status vmm_device_options_init(vmm_device_options *options, size_t size) {
  return vmm__options_init(options, size, sizeof(vmm_device_options));
}

static vmm_status check_options(const vmm_device_options *options, vmm_error *error) {
  if (options->fallback < VMM_FALLBACK_NEVER || options->fallback > VMM_FALLBACK_ALWAYS)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_options.fallback is unknown");
  if (options->detect_captures != 0 && options->detect_captures != 1)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_options.detect_captures is neither 0 nor 1");
  if (!vmm__memory_valid(options->host_memory))
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_options.host_memory lacks a function or its size");
  if (options->sync_policy < VMM_SYNC_AUTO || options->sync_policy > VMM_SYNC_ON_DEMAND)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_options.sync_policy is unknown");
  if (options->retry_attempts < 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_options.retry_attempts is negative");
  return VMM_OK;
}

/* The first option in which they differ, as a message; NULL if they are the same. */
static const char *difference(const vmm_device_options *a, const vmm_device_options *b) {
#define SAME(field) \
  if (a->field != b->field) return "the device is open with another " #field
  SAME(sync_policy);
  SAME(retry_attempts);
  SAME(retry_first_ns);
  SAME(retry_max_ns);
  SAME(deadline_ns);
  SAME(limit);
  SAME(idle_limit);
  SAME(pressure);
  SAME(pressure_data);
  SAME(host_memory);
  SAME(fallback);
  SAME(detect_captures);
#undef SAME
  return NULL;
}

/* ---- the steps of an open, each with its undo ---- */

static vmm_status no_driver(vmm__work *work) {
  if (work->code == VMM_CODE_NO_DEVICE || work->code == VMM_CODE_NOT_INITIALIZED) work->status = VMM_ERROR_NO_DRIVER;
  return work->status;
}

static vmm_status ask_driver(vmm__work *work) {
  vmm_device *device = work->device;
  int count = 0;

  CU_CHECK(work, 0, 0, init, (device, 0));
  CU_CHECK(work, 0, 0, driver_version, (device, &device->info.driver_version));
  if (device->info.driver_version < OLDEST_DRIVER)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "the driver is older than CUDA 12.0");
  CU_CHECK(work, 0, 0, device_count, (device, &count));
  if (device->ordinal < 0 || device->ordinal >= count)
    return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "there is no device of that ordinal");
  CU_CHECK(work, 0, 0, device_get, (device, &device->raw, device->ordinal));
  return VMM_OK;
undo:
  return no_driver(work);
}

/* Without virtual memory management: what plain allocations are made of, on all drivers there are. */
static vmm_status ask_plain(vmm__work *work) {
  vmm_device *device = work->device;

  if (!vmm__driver_has(device->driver, VMM_OP_mem_alloc) || !vmm__driver_has(device->driver, VMM_OP_mem_free))
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "the driver lacks plain allocations too");
  device->info.minimum_granularity = device->info.granularity = PLAIN_GRANULARITY;
  return VMM_OK;
}

static vmm_status ask_device(vmm__work *work) {
  vmm_device *device = work->device;
  vmm_raw_prop prop = {1, 0, 1, 0, 0, 0};
  size_t total = 0, minimum = 0, recommended = 0;
  int supported = 0;
  int code = vmm__cu_device_attribute(device, &supported, ATTRIBUTE_VMM_SUPPORTED, device->raw);

  /* INVALID_VALUE is how a driver answers that does not know the attribute. */
  if (code != VMM_CODE_SUCCESS && code != VMM_CODE_INVALID_VALUE)
    return vmm__work_call_failed(work, VMM_OP_device_attribute, code, 0, 0);
  device->info.fallback = device->options.fallback == VMM_FALLBACK_ALWAYS || supported == 0 ? 1 : 0;
  if (device->info.fallback != 0 && device->options.fallback == VMM_FALLBACK_NEVER)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED,
                          "the device says it has no virtual memory management (as a vGPU or a container may)");
  CU_CHECK(work, 0, 0, device_name, (device, device->info.name, (int)sizeof device->info.name, device->raw));
  CU_CHECK(work, 0, 0, device_total_mem, (device, &total, device->raw));
  device->info.total_bytes = total;
  if (device->info.fallback != 0) return ask_plain(work);
  prop.location_id = device->raw;
  CU_CHECK(work, 0, 0, mem_granularity, (device, &minimum, &prop, 0));
  CU_CHECK(work, 0, 0, mem_granularity, (device, &recommended, &prop, 1));
  if (minimum == 0 || recommended == 0 || recommended % minimum != 0)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED, "the driver reports a granularity that makes no sense");
  device->info.minimum_granularity = minimum;
  device->info.granularity = recommended;
undo:
  return work->status;
}

static void choose_policy(vmm_device *device) {
  vmm_driver *driver = device->driver;
  int policy = device->options.sync_policy;

  device->info.wsl = driver->table->is_wsl(driver->self) ? 1 : 0;
  device->info.context_fence = vmm__driver_has(driver, VMM_OP_ctx_record_event) ? 1 : 0;
  if (policy == VMM_SYNC_AUTO) policy = device->info.wsl ? VMM_SYNC_DEVICE : VMM_SYNC_ON_DEMAND;
  device->info.sync_policy = policy;
}

static vmm_status bind_context(vmm__work *work) {
  vmm_device *device = work->device;

  device->context = device->options.context;
  if (device->context == NULL) {
    CU_CHECK(work, 0, 0, primary_retain, (device, &device->context, device->raw));
    device->owns_primary = true;
  }
undo:
  return work->status;
}

/* Needs the context current. */
static vmm_status make_objects(vmm__work *work) {
  vmm_device *device = work->device;
  int owner = -1;

  if (!device->owns_primary) {
    CU_CHECK(work, 0, 0, ctx_get_device, (device, &owner));
    if (owner != device->raw)
      return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the context given is one of another device");
  }
  CU_CHECK(work, 0, 0, stream_create, (device, &device->stream, STREAM_NON_BLOCKING));
  CU_CHECK(work, 0, 0, event_create, (device, &device->context_event, VMM__EVENT_NO_TIMING));
  CU_CHECK(work, 0, 0, event_create, (device, &device->stream_event, VMM__EVENT_NO_TIMING));
  CU_CHECK(work, 0, 0, event_create, (device, &device->sentinel, VMM__EVENT_NO_TIMING));
  CU_CHECK(work, 0, 0, event_record, (device, device->sentinel, device->stream));
  return vmm__fence_wait(work, device->sentinel);
undo:
  return work->status;
}

/* None of these is tried again: if a call that answered an error was made after all, a second would crash the process
 * (a destroyed event's handle) or take somebody else's reference (the primary context). */
static void drop_objects(vmm__work *work) {
  vmm_device *device = work->device;

  if (device->staging != NULL) (void)CU_UNDO(work, mem_host_free, (device, device->staging));
  if (device->sentinel != NULL) (void)CU_UNDO(work, event_destroy, (device, device->sentinel));
  if (device->stream_event != NULL) (void)CU_UNDO(work, event_destroy, (device, device->stream_event));
  if (device->context_event != NULL) (void)CU_UNDO(work, event_destroy, (device, device->context_event));
  if (device->stream != NULL) (void)CU_UNDO(work, stream_destroy, (device, device->stream));
  device->staging = device->sentinel = device->stream_event = device->context_event = device->stream = NULL;
}

static void drop_context(vmm__work *work) {
  vmm_device *device = work->device;

  if (device->owns_primary) (void)CU_UNDO(work, primary_release, (device, device->raw));
  device->owns_primary = false;
}

/* ---- the struct itself ---- */

static void free_device(vmm_device *device) {
  vmm_host_memory memory = device->memory;
  vmm_driver *driver = device->driver;

  vmm__events_destroy(&device->events);
  vmm__lock_destroy(&device->lock);
  vmm__lock_destroy(&device->structure);
  vmm__memory_release(&memory, device, 1, sizeof *device);
  vmm_driver_release(driver);
}

static vmm_device *new_device(int ordinal, const vmm_device_options *options) {
  vmm_host_memory memory = vmm__memory_from(options->host_memory);
  vmm_device *device = vmm__memory_allocate(&memory, 1, sizeof *device);

  if (device == NULL) return NULL;
  device->count = 1;
  device->driver = options->driver;
  device->memory = memory;
  device->options = *options;
  device->ordinal = ordinal;
  device->info.struct_size = sizeof device->info;
  device->info.ordinal = ordinal;
  (void)vmm_driver_name(device->driver, device->info.driver_name, sizeof device->info.driver_name);
  device->detect_captures = options->detect_captures != 0;
  device->deadline_ns = options->deadline_ns != 0 ? options->deadline_ns : 1000000000u;
  device->retry_first_ns = options->retry_first_ns != 0 ? options->retry_first_ns : 50000u;
  device->retry_max_ns = options->retry_max_ns != 0 ? options->retry_max_ns : 50000000u;
  device->retry_attempts = options->retry_attempts != 0 ? options->retry_attempts : DEFAULT_ATTEMPTS;
  device->limit = options->limit;
  device->idle_limit = options->idle_limit;
  device->pressure = options->pressure;
  device->pressure_data = options->pressure_data;
  if (!vmm__lock_init(&device->structure, VMM__RANK_STRUCTURE) || !vmm__lock_init(&device->lock, VMM__RANK_DEVICE) ||
      !vmm__events_init(&device->events)) {
    vmm__memory_release(&memory, device, 1, sizeof *device);
    return NULL;
  }
  vmm_driver_retain(device->driver);
  return device;
}

static vmm_status open_new(vmm__work *work) {
  if (ask_driver(work) != VMM_OK || ask_device(work) != VMM_OK) return work->status;
  choose_policy(work->device);
  if (bind_context(work) != VMM_OK) return work->status;
  if (vmm__work_enter(work) == VMM_OK && make_objects(work) != VMM_OK) drop_objects(work);
  vmm__work_leave(work);
  if (work->status != VMM_OK) drop_context(work);
  return work->status;
}

/* ---- public ---- */

static vmm_device *find_open(int ordinal, const vmm_device_options *options) {
  vmm_device *device;

  for (device = registry; device != NULL; device = device->next)
    if (device->ordinal == ordinal && device->driver == options->driver && device->options.context == options->context)
      break;
  return device;
}

static vmm_status open_locked(vmm_device **out, int ordinal, const vmm_device_options *options, bool defaults,
                              vmm_error *error) {
  vmm_device *device = find_open(ordinal, options);
  vmm__work work;
  vmm_status status;

  if (device != NULL) {
    const char *what = defaults ? NULL : difference(&device->options, options);

    if (what != NULL) return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_open", what);
    device->count++;
    *out = device;
    return VMM_OK;
  }
  device = new_device(ordinal, options);
  if (device == NULL) return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_device_open: out of host memory");
  vmm__work_start(&work, device, "vmm_device_open", 0);
  work.round_left = work.attempts_left;
  (void)open_new(&work);
  status = vmm__work_finish(&work, error);
  if (status != VMM_OK) {
    free_device(device);
    return status;
  }
  device->next = registry;
  registry = device;
  *out = device;
  return VMM_OK;
}

vmm_status vmm_device_open(vmm_device **device, int ordinal, const vmm_device_options *options, vmm_error *error) {
  vmm_device_options known;
  bool own_driver = false;
  vmm_status status;

  if (device != NULL) *device = NULL;
  if (vmm__forked()) return vmm__fail_forked(error, "vmm_device_open");
  if (device == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_open: device is NULL");
  status = vmm__options_read(&known, sizeof known, sizeof known, options, "vmm_device_options", error);
  if (status == VMM_OK) status = check_options(&known, error);
  if (status != VMM_OK) return status;
  if (!vmm__fork_guard())
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_device_open: no page for the fork guard");
  if (known.driver == NULL) {
    status = vmm_cuda_create(&known.driver, error);
    if (status != VMM_OK) return status;
    own_driver = true;
  }
  vmm__lock_acquire(&registry_lock);
  status = open_locked(device, ordinal, &known, options == NULL, error);
  vmm__lock_release(&registry_lock);
  if (own_driver) vmm_driver_release(known.driver);
  return status;
}

/* Memory first: until it is back the device must stay to be closed again. */
static vmm_status close_last(vmm__work *work) {
  vmm_device *device = work->device;
  int failures;

  if (vmm__work_lock(work) != VMM_OK) return work->status;
  vmm__handles_recover(work, true);
  (void)vmm__handles_trim(work, 0);
  if ((device->counters.idle_count != 0 || device->counters.quarantined_count != 0) && !vmm__device_lost(device))
    return vmm__work_call_failed(work, VMM_OP_mem_release, work->undo_code, 0, device->counters.quarantined_bytes);
  failures = work->undo_failures;
  vmm__streams_close(work);
  vmm__leases_close(work->device);
  drop_objects(work);
  vmm__work_unlock(work);
  drop_context(work);
  if (work->undo_failures != failures && !vmm__device_lost(device))
    (void)vmm__work_fail(work, VMM_ERROR_PARTIAL,
                         "the device is closed, but the driver kept an event, stream or context");
  return work->status;
}

static void unregister(const vmm_device *device) {
  vmm_device **link;

  for (link = &registry; *link != NULL; link = &(*link)->next)
    if (*link == device) {
      *link = device->next;
      return;
    }
}

/* Owners whose making failed, and whose end failed too, get another chance. */
static void end_abandoned(vmm_device *device, vmm__u64 deadline) {
  for (;;) {
    vmm__client *client;

    vmm__lock_acquire(&device->lock);
    for (client = device->clients; client != NULL && client->end_abandoned == NULL; client = client->next) {
    }
    vmm__lock_release(&device->lock);
    if (client == NULL || !client->end_abandoned(client, deadline)) return;
  }
}

vmm_status vmm_device_close(vmm_device *device, vmm_error *error) {
  vmm__work work;
  vmm_status status;
  vmm__u64 pools, captures;

  if (vmm__forked()) return vmm__fail_forked(error, "vmm_device_close");
  if (device == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_close: device is NULL");
  vmm__lock_acquire(&registry_lock);
  vmm__work_start(&work, device, "vmm_device_close", 0);
  if (device->count == 1) end_abandoned(device, work.deadline);
  work.round_left = work.attempts_left;
  work.teardown = vmm__device_lost(device);
  vmm__lock_acquire(&device->lock);
  pools = device->counters.client_count;
  captures = work.teardown ? 0 : (vmm__u64)atomic_load(&device->captures);
  vmm__lock_release(&device->lock);
  if (device->count > 1) {
    device->count--;
    status = vmm__work_finish(&work, error);
  } else if (pools != 0) {
    work.size = pools;
    (void)vmm__work_fail(&work, VMM_ERROR_BUSY, "pools still stand on the device: destroy them first");
    status = vmm__work_finish(&work, error);
  } else if (captures != 0) { /* the context may go with the device, and a capture with the context */
    work.size = captures;
    (void)vmm__work_fail(&work, VMM_ERROR_BUSY, "captures are still announced: end them first");
    status = vmm__work_finish(&work, error);
  } else {
    (void)close_last(&work);
    status = vmm__work_finish(&work, error);
    if (status == VMM_OK || status == VMM_ERROR_PARTIAL) {
      unregister(device);
      free_device(device);
    }
  }
  vmm__lock_release(&registry_lock);
  return status;
}
