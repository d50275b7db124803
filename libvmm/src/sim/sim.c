/* A simulated CUDA driver: a stateful model of what an H200 was measured to do (docs/driver-facts.md), which also reports
 * misuse that the real one would not catch. Here: making and ending one, its own memory.
 *
 * The model. Time is virtual and moves only by driver calls (call_ns each), vmm_driver_wait and blocking waits, so a run
 * is deterministic. Every piece of queued work has its end computed when it is queued, and touches memory at that moment,
 * all at once. Device memory is real: bytes of one memfd per device, of which only touched pages exist. Device addresses
 * are numbers no host pointer can have.
 *
 * Not modelled: delays of the GPU's own address translation, contention for locks inside the driver, memory for page
 * tables, forward progress (a kernel never waits for another), fragmentation of physical memory and of address space.
 * Assumed, because it could not be measured: set-access for one device keeps the rights of the others, PROT_NONE revokes
 * only the device it names, a device that cannot reach the memory is refused with INVALID_VALUE; kernel and graph launches
 * on a lost context answer its code, asynchronous copies do nothing and answer SUCCESS, as memset was seen to do; pinned
 * host memory counts as unsafe under a capture, as cuMemAlloc does. Stricter than the real driver: a bogus handle and a
 * dead stream are error codes (and misuse), where the real one crashes.
 *
 * A host function runs in whichever thread lets the time pass; it must not wait for that thread.
 */
#include "sim/sim.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/memory.h"
#include "base/status.h"

static const vmm__u64 FIRST_VALUE = 0x1000;
static const vmm__u64 DEFAULT_MEMORY = 140ull << 30;
static const vmm__u64 DEFAULT_ADDRESS_SPACE = 124ull << 40;

static atomic_ullong serials;

void *vmm__sim_allocate(vmm__sim *sim, vmm__u64 count, vmm__u64 size) {
  return vmm__memory_allocate(&sim->memory, count, size);
}

void vmm__sim_free(vmm__sim *sim, void *pointer, vmm__u64 count, vmm__u64 size) {
  vmm__memory_release(&sim->memory, pointer, count, size);
}

bool vmm__sim_grow(vmm__sim *sim, void **array, vmm__u64 count, vmm__u64 *capacity, vmm__u64 more, vmm__u64 size) {
  vmm__u64 wanted;
  vmm__u64 larger = vmm__max(*capacity * 2, 8);
  void *fresh;

  if (!vmm__add(count, more, &wanted)) return false;
  if (wanted <= *capacity) return true;
  larger = vmm__max(larger, wanted);
  fresh = vmm__sim_allocate(sim, larger, size);
  if (fresh == NULL) return false;
  if (count != 0) memcpy(fresh, *array, (size_t)(count * size));
  vmm__sim_free(sim, *array, *capacity, size);
  *array = fresh;
  *capacity = larger;
  return true;
}

vmm__u64 vmm__sim_value(vmm__sim *sim) {
  vmm__u64 value = sim->next_value;

  sim->next_value += 16;
  return value;
}

bool vmm__sim_was_given(const vmm__sim *sim, vmm__u64 value) {
  return value >= FIRST_VALUE && value < sim->next_value && value % 16 == 0;
}

vmm__u64 vmm__sim_random(vmm__sim *sim) {
  vmm__u64 z = sim->random += 0x9E3779B97F4A7C15u;

  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

vmm_status vmm_sim_options_init(vmm_sim_options *options, size_t size) {
  return vmm__options_init(options, size, sizeof(vmm_sim_options));
}

/* Fills in the defaults. NULL, or what is wrong with the options. */
static const char *complete(vmm_sim_options *options) {
  if (options->device_count == 0) options->device_count = 1;
  if (options->driver_version == 0) options->driver_version = 13000;
  if (options->memory == 0) options->memory = DEFAULT_MEMORY;
  if (options->minimum_granularity == 0) options->minimum_granularity = 2ull << 20;
  if (options->granularity == 0) options->granularity = options->minimum_granularity;
  if (options->address_space == 0) options->address_space = DEFAULT_ADDRESS_SPACE;
  if (options->mapping_limit == 0) options->mapping_limit = 523970;
  if (options->peers == 0) options->peers = ~0ull;
  if (options->call_ns == 0) options->call_ns = 1000;
  if (options->device_count < 1 || options->device_count > VMM__SIM_DEVICES)
    return "vmm_sim_create: device_count must be 0 to 8";
  if (options->driver_version < 10020) return "vmm_sim_create: driver_version must be 0 or at least 10020";
  if (!vmm__is_power_of_two(options->minimum_granularity) || options->minimum_granularity < 4096 ||
      options->minimum_granularity > (1ull << 30))
    return "vmm_sim_create: minimum_granularity must be a power of two from 4096 to 1 GiB";
  if (!vmm__is_power_of_two(options->granularity) || options->granularity < options->minimum_granularity ||
      options->granularity > (1ull << 30))
    return "vmm_sim_create: granularity must be a power of two, at least the minimum and at most 1 GiB";
  if (options->memory > (1ull << 45) || options->address_space > (1ull << 47) ||
      options->address_space_used > options->address_space)
    return "vmm_sim_create: memory or address_space is out of range";
  if (options->touch < VMM_SIM_TOUCH_LOST || options->touch > VMM_SIM_TOUCH_REFUSED)
    return "vmm_sim_create: touch is no vmm_sim_touch";
  if (options->fresh < VMM_SIM_FRESH_ZERO || options->fresh > VMM_SIM_FRESH_STALE)
    return "vmm_sim_create: fresh is no vmm_sim_fresh";
  if (!vmm__memory_valid(options->host_memory)) return "vmm_sim_create: host_memory is incomplete";
  return NULL;
}

vmm_status vmm_sim_create(vmm_driver **driver, const vmm_sim_options *options, vmm_error *error) {
  vmm_sim_options known;
  vmm_host_memory memory;
  const char *wrong;
  vmm_status status;
  vmm__sim *sim;
  int i;

  if (driver == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_sim_create: driver is NULL");
  *driver = NULL;
  if (vmm__forked()) return vmm__fail_forked(error, "vmm_sim_create");
  status = vmm__options_read(&known, sizeof known, sizeof known, options, "vmm_sim_options", error);
  if (status != VMM_OK) return status;
  wrong = complete(&known);
  if (wrong != NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, wrong);
  memory = vmm__memory_from(known.host_memory);
  sim = vmm__memory_allocate(&memory, 1, sizeof *sim);
  if (sim == NULL || !vmm__fork_guard() || !vmm__lock_init(&sim->lock, VMM__RANK_DRIVER)) {
    vmm__memory_release(&memory, sim, 1, sizeof *sim);
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_sim_create: no host memory for a simulator");
  }
  sim->memory = memory;
  sim->options = known;
  sim->serial = atomic_fetch_add(&serials, 1) + 1;
  sim->random = known.seed;
  sim->next_value = FIRST_VALUE;
  sim->next_stream_id = 1;
  for (i = 0; i < VMM__SIM_DEVICES; i++) sim->devices[i].fd = -1;
  vmm__driver_init(&sim->driver, VMM__DRIVER_SIM, &vmm__sim_table, sim, NULL);
  *driver = &sim->driver;
  return VMM_OK;
}

static void end_memory(vmm__sim *sim) {
  vmm__sim_node *node;
  int i;

  vmm__sim_views_end(sim);
  while ((node = vmm__sim_tree_take(&sim->mappings)) != NULL) vmm__sim_free(sim, node, 1, sizeof(vmm__sim_mapping));
  while ((node = vmm__sim_tree_take(&sim->handles)) != NULL) {
    vmm__sim_handle *handle = (vmm__sim_handle *)node;

    if (handle->own && handle->fd >= 0) (void)close(handle->fd);
    if (handle->poisoned != NULL)
      vmm__sim_free(sim, handle->poisoned, handle->size / sim->options.minimum_granularity, 1);
    vmm__sim_free(sim, handle, 1, sizeof *handle);
  }
  while ((node = vmm__sim_tree_take(&sim->reservations)) != NULL)
    vmm__sim_free(sim, node, 1, sizeof(vmm__sim_reservation));
  while ((node = vmm__sim_tree_take(&sim->pinned)) != NULL) {
    vmm__sim_pinned *pinned = (vmm__sim_pinned *)node;

    vmm__sim_free(sim, pinned->pointer, pinned->size, 1);
    vmm__sim_free(sim, pinned, 1, sizeof *pinned);
  }
  for (i = 0; i < VMM__SIM_DEVICES; i++) {
    while (sim->devices[i].stale != NULL) {
      vmm__sim_stale *stale = sim->devices[i].stale;

      sim->devices[i].stale = stale->next;
      vmm__sim_free(sim, stale, 1, sizeof *stale);
    }
    if (sim->devices[i].fd >= 0) (void)close(sim->devices[i].fd);
  }
}

static void end_contexts(vmm__sim *sim) {
  vmm__sim_node *node;

  while ((node = vmm__sim_tree_take(&sim->captures)) != NULL) {
    vmm__sim_nodes_release(sim, ((vmm__sim_capture *)node)->nodes);
    vmm__sim_free(sim, node, 1, sizeof(vmm__sim_capture));
  }
  while ((node = vmm__sim_tree_take(&sim->graphs)) != NULL) vmm__sim_graph_free(sim, (vmm__sim_graph *)node);
  while ((node = vmm__sim_tree_take(&sim->events)) != NULL) vmm__sim_free(sim, node, 1, sizeof(vmm__sim_event));
  while ((node = vmm__sim_tree_take(&sim->contexts)) != NULL) {
    vmm__sim_context *context = (vmm__sim_context *)node;
    vmm__sim_stream *stream = context->streams;

    while (stream != NULL) {
      vmm__sim_stream *next = stream->next;

      if (!stream->legacy) vmm__sim_free(sim, stream, 1, sizeof *stream);
      stream = next;
    }
    vmm__sim_free(sim, context, 1, sizeof *context);
  }
  while ((node = vmm__sim_tree_take(&sim->threads)) != NULL) vmm__sim_free(sim, node, 1, sizeof(vmm__sim_thread));
}

/* In a forked child the lock may be held by a thread that is not there: it is not taken. */
void vmm__sim_destroy(void *self) {
  vmm__sim *sim = self;
  vmm_host_memory memory = sim->memory;

  vmm__sim_queue_drop(sim, NULL);
  vmm__sim_free(sim, sim->queue, sim->queue_capacity, sizeof *sim->queue);
  end_contexts(sim);
  end_memory(sim);
  vmm__sim_free(sim, sim->dead_streams, sim->dead_capacity, sizeof *sim->dead_streams);
  vmm__sim_free(sim, sim->scratch, VMM__SIM_SCRATCH, 1);
  vmm__sim_free(sim, sim->misuse, VMM__SIM_MISUSES, sizeof *sim->misuse);
  vmm__sim_free(sim, sim->touches.array, sim->touches.capacity, sizeof *sim->touches.array);
  vmm__sim_free(sim, sim->owners.array, sim->owners.capacity, sizeof *sim->owners.array);
  vmm__lock_destroy(&sim->lock);
  vmm__memory_release(&memory, sim, 1, sizeof *sim);
}
