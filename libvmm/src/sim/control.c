/* The doors for tests: modes, the ledger, the list of misuse. */
#include <string.h>

#include "base/fork.h"
#include "base/status.h"
#include "sim/sim.h"

/* The simulator in a stack, locked; NULL with *status set. */
static vmm__sim *open_sim(vmm_driver *driver, vmm_status *status) {
  vmm_driver *found;
  vmm__sim *sim;

  *status = VMM_ERROR_FORKED;
  if (vmm__forked()) return NULL;
  *status = VMM_ERROR_INVALID_ARGUMENT;
  found = vmm__driver_find(driver, VMM__DRIVER_SIM);
  if (found == NULL) return NULL;
  *status = VMM_OK;
  sim = found->self;
  vmm__lock_acquire(&sim->lock);
  return sim;
}

static vmm_status close_sim(vmm__sim *sim, vmm_status status) {
  vmm__lock_release(&sim->lock);
  return status;
}

static bool is_device(const vmm__sim *sim, int device) { return device >= 0 && device < sim->options.device_count; }

vmm_status vmm_sim_set_not_ready(vmm_driver *driver, int device, int mode, unsigned long long value) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  if (!is_device(sim, device) || mode < VMM_SIM_NOT_READY_NEVER || mode > VMM_SIM_NOT_READY_RANDOM)
    return close_sim(sim, VMM_ERROR_INVALID_ARGUMENT);
  sim->devices[device].not_ready = mode;
  sim->devices[device].not_ready_value = value;
  sim->devices[device].evicted = false;
  sim->devices[device].armed = false;
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_set_touch(vmm_driver *driver, int touch) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  if (touch < VMM_SIM_TOUCH_LOST || touch > VMM_SIM_TOUCH_REFUSED) return close_sim(sim, VMM_ERROR_INVALID_ARGUMENT);
  sim->options.touch = touch;
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_set_fresh(vmm_driver *driver, int fresh) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  if (fresh < VMM_SIM_FRESH_ZERO || fresh > VMM_SIM_FRESH_STALE) return close_sim(sim, VMM_ERROR_INVALID_ARGUMENT);
  sim->options.fresh = fresh;
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_set_used_by_others(vmm_driver *driver, int device, unsigned long long bytes) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  if (!is_device(sim, device)) return close_sim(sim, VMM_ERROR_INVALID_ARGUMENT);
  sim->devices[device].others = bytes;
  return close_sim(sim, VMM_OK);
}

/* May run host functions: not from inside one. */
vmm_status vmm_sim_drain(vmm_driver *driver) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  if (sim->host_running != 0 && sim->host_running == vmm__sim_thread_number()) return close_sim(sim, VMM_ERROR_BUSY);
  vmm__sim_run_all(sim);
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_get_ledger(vmm_driver *driver, int device, vmm_sim_ledger *ledger) {
  vmm_sim_ledger now;
  vmm_status status;
  vmm__sim *sim;
  const vmm__sim_device *of;

  if (ledger == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  sim = open_sim(driver, &status);
  if (sim == NULL) return status;
  if (!is_device(sim, device)) return close_sim(sim, VMM_ERROR_INVALID_ARGUMENT);
  of = &sim->devices[device];
  now = of->ledger;
  now.struct_size = sizeof now;
  now.reservations = sim->reservations.count;
  now.reserved_bytes = sim->reserved_bytes;
  now.host_bytes = sim->pinned_bytes;
  now.free_bytes = vmm__saturating_sub(sim->options.memory, vmm__saturating_add(of->used, of->others));
  now.primary_references = of->primary_references;
  now.captures_invalidated = sim->captures_invalidated;
  now.double_releases = sim->double_releases;
  now.misuse = sim->misuse_count - sim->double_releases;
  return close_sim(sim, vmm__output_write(ledger, &now, sizeof now, "vmm_sim_ledger", NULL));
}

vmm_status vmm_sim_get_misuse(vmm_driver *driver, vmm_sim_misuse *array, size_t capacity, size_t *count) {
  vmm_status status;
  vmm__sim *sim;
  vmm__u64 kept;

  if (array == NULL && capacity != 0) return VMM_ERROR_INVALID_ARGUMENT;
  sim = open_sim(driver, &status);
  if (sim == NULL) return status;
  kept = sim->misuse == NULL ? 0 : vmm__min(vmm__min(sim->misuse_count, VMM__SIM_MISUSES), capacity);
  if (kept != 0) memcpy(array, sim->misuse, (size_t)kept * sizeof *array);
  if (count != NULL) *count = (size_t)sim->misuse_count;
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_clear_misuse(vmm_driver *driver) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  sim->misuse_count = 0;
  sim->double_releases = 0;
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_forbid_blocking(vmm_driver *driver, int forbid) {
  vmm_status status;
  vmm__sim *sim = open_sim(driver, &status);

  if (sim == NULL) return status;
  sim->forbid_blocking = forbid != 0;
  return close_sim(sim, VMM_OK);
}

vmm_status vmm_sim_new_owner(vmm_driver *driver, unsigned long long address, unsigned long long size) {
  vmm_status status;
  vmm__sim *sim;
  vmm__u64 end;

  if (size == 0 || !vmm__add(address, size, &end)) return VMM_ERROR_INVALID_ARGUMENT;
  sim = open_sim(driver, &status);
  if (sim == NULL) return status;
  vmm__sim_order_owner(sim, address, size);
  return close_sim(sim, VMM_OK);
}
