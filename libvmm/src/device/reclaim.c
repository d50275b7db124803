/* The out-of-memory ladder: own idle memory, the caller's pressure callback, one late retry. Smaller mappings, the lowest
 * rung, are tried by the growth itself. */
#include "device/reclaim.h"

#include "base/clock.h"
#include "base/fork.h"
#include "base/status.h"
#include "device/handles.h"

enum { RUNG_OWN_IDLE = 0, RUNG_PRESSURE, RUNG_LATE_RETRY, RUNG_END };

static const vmm__u64 late_retry_ns =
    2000000; /* a driver that scrubs freed memory is done by then (seen in the field) */

static _Thread_local const vmm_device
    *pressed; /* whose callback the thread is in: nothing grows in one, so there is one */

bool vmm__in_pressure(void) { return pressed != NULL; }

static vmm__u64 give_back_own(vmm__work *work, vmm__u64 need, vmm__give_back own_idle, void *owner) {
  vmm__u64 done = own_idle(owner, work, need);
  vmm__work trim;

  vmm__work_start(&trim, work->device, work->function, 0);
  trim.deadline = work->deadline;
  if (vmm__work_lock(&trim) == VMM_OK) done += vmm__handles_trim(&trim, 0);
  (void)vmm__work_finish(&trim, NULL);
  work->gave_back += done + trim.gave_back;
  return done;
}

/* True: try again. */
static bool press(vmm__work *work, vmm__u64 need) {
  vmm_device *device = work->device;
  vmm_pressure_callback pressure;
  void *data;
  long long said;

  vmm__lock_acquire(&device->lock);
  pressure = device->pressure;
  data = device->pressure_data;
  if (pressure != NULL) {
    device->pressure_running++;
    device->counters.pressure_count++;
  }
  vmm__lock_release(&device->lock);
  if (pressure == NULL) return false;
  pressed = device;
  said = pressure(data, device, need);
  pressed = NULL;
  vmm__lock_acquire(&device->lock);
  device->pressure_running--;
  vmm__lock_release(&device->lock);
  vmm__device_event(device, VMM_EVENT_PRESSURE, -1, 0, 0, 0, need, said > 0 ? (vmm__u64)said : 0);
  if (said >= 0) return said > 0;
  work->status = VMM_OK; /* the callback's failure takes the place of the attempt's */
  work->size = need;
  (void)vmm__work_fail(work, VMM_ERROR_CALLBACK, "the pressure callback failed");
  return false;
}

static bool memory_is_short(vmm_status status) {
  return status == VMM_ERROR_OUT_OF_DEVICE_MEMORY || status == VMM_ERROR_MAPPING_LIMIT || status == VMM_ERROR_NOT_READY;
}

bool vmm__memory_is_short(vmm_status status) {
  return memory_is_short(status) || status == VMM_ERROR_LIMIT || status == VMM_ERROR_OUT_OF_ADDRESS_SPACE;
}

bool vmm__reclaim(vmm__work *work, vmm__ladder *ladder, vmm__u64 need, vmm__give_back own_idle, void *owner) {
  vmm_status status = work->status;

  if (!vmm__memory_is_short(status)) return false;
  if (status == VMM_ERROR_NOT_READY && work->attempts_left <= 0) return false;
  if (vmm__work_time_left(work) == 0 || vmm__device_lost(work->device)) return false;
  while (ladder->rung < RUNG_END) {
    switch (ladder->rung++) {
      case RUNG_OWN_IDLE:
        if (give_back_own(work, need, own_idle, owner) != 0 || status == VMM_ERROR_NOT_READY) return true;
        break;
      case RUNG_PRESSURE:
        if (memory_is_short(status) && press(work, need)) return true;
        if (work->status == VMM_ERROR_CALLBACK) return false;
        break;
      default: /* the late retry */
        if (status != VMM_ERROR_OUT_OF_DEVICE_MEMORY && status != VMM_ERROR_NOT_READY) return false;
        vmm__device_wait(work->device, vmm__min(late_retry_ns, vmm__work_time_left(work)));
        return true;
    }
  }
  return false;
}

bool vmm__ladder_ended(const vmm__ladder *ladder) { return ladder->rung >= RUNG_END; }

vmm_status vmm_device_set_pressure(vmm_device *device, vmm_pressure_callback pressure, void *data, vmm_error *error) {
  vmm__work work;
  unsigned own = pressed == device ? 1 : 0; /* a callback does not wait for itself */
  vmm__u64 start;
  bool running;

  if (vmm__forked()) return vmm__fail_forked(error, "vmm_device_set_pressure");
  if (device == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_set_pressure: device is NULL");
  vmm__work_start(&work, device, "vmm_device_set_pressure", 0);
  start = vmm__clock_now(); /* another thread is waited for, not the GPU: in real time, as for a lock */
  vmm__lock_acquire(&device->lock);
  device->pressure = pressure;
  device->pressure_data = data;
  running = device->pressure_running > own;
  vmm__lock_release(&device->lock);
  while (running) {
    if (vmm__clock_now() - start >= device->deadline_ns) {
      (void)vmm__work_fail(&work, VMM_ERROR_TIMEOUT, "the callback set before is still running");
      break;
    }
    vmm__clock_wait(100000);
    vmm__lock_acquire(&device->lock);
    running = device->pressure_running > own;
    vmm__lock_release(&device->lock);
  }
  return vmm__work_finish(&work, error);
}
