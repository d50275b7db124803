/* Announced captures and the leases on memory that their graphs use. Whoever has memory on the device learns of them through
 * its client's functions. */
#include "base/clock.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/status.h"
#include "device/streams.h"

enum { QUEUEING_POLL_NS = 10000 };

struct vmm_lease {
  vmm_lease *next;
  vmm_device *device;
  vmm__u64 id;
};

/* ---- the list, under the device lock ---- */

static void remove_lease(vmm_device *device, const vmm_lease *lease) {
  vmm_lease **link;

  for (link = &device->leases; *link != NULL; link = &(*link)->next)
    if (*link == lease) {
      *link = lease->next;
      return;
    }
}

vmm__u64 vmm__stream_lease(vmm_device *device, const void *stream) {
  const vmm__stream *entry;
  vmm__u64 id = 0;

  vmm__lock_acquire(&device->lock);
  entry = vmm__stream_find(device, stream);
  if (entry != NULL && entry->capturing) id = entry->lease->id;
  vmm__lock_release(&device->lock);
  return id;
}

/* The announcement ends; NULL if there is none. Under the device lock. */
static vmm_lease *end_capture(vmm_device *device, const void *stream) {
  vmm__stream *entry = vmm__stream_find(device, stream);
  vmm_lease *lease;

  if (entry == NULL || !entry->capturing) return NULL;
  lease = entry->lease;
  entry->capturing = false;
  entry->lease = NULL;
  vmm__streams_count(device, 0, -1);
  return lease;
}

/* ---- the end of a lease ---- */

/* No graph uses the memory any more: whoever holds some hears of it. */
static void end_lease(vmm_device *device, vmm_lease *lease, bool idle) {
  vmm__client *client = NULL;

  while ((client = vmm__device_next_client(device, client)) != NULL) client->end_lease(client, lease->id, idle);
  vmm__lock_acquire(&device->lock);
  remove_lease(device, lease);
  vmm__lock_release(&device->lock);
  vmm__memory_release(&device->memory, lease, 1, sizeof *lease);
}

void vmm__leases_close(vmm_device *device) {
  while (device->leases != NULL) {
    vmm_lease *lease = device->leases;

    device->leases = lease->next;
    vmm__memory_release(&device->memory, lease, 1, sizeof *lease);
  }
}

static vmm_status release(vmm_lease *lease, bool idle, const char *function, vmm_error *error) {
  if (vmm__forked()) return vmm__fail_forked(error, function);
  if (lease == NULL) return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function, "lease is NULL");
  end_lease(lease->device, lease, idle);
  return VMM_OK;
}

vmm_status vmm_lease_release(vmm_lease *lease, vmm_error *error) {
  return release(lease, false, "vmm_lease_release", error);
}

vmm_status vmm_lease_release_idle(vmm_lease *lease, vmm_error *error) {
  return release(lease, true, "vmm_lease_release_idle", error);
}

/* ---- announcing ---- */

/* Threads that asked before the capture was announced may still be queueing. False if they do not end in time (real time:
 * threads are waited for, not the GPU). */
static bool wait_for_queueing(vmm_device *device) {
  vmm__u64 start = vmm__clock_now();

  for (;;) {
    bool done;

    vmm__lock_acquire(&device->lock);
    done = device->queueing == 0;
    vmm__lock_release(&device->lock);
    if (done || vmm__clock_now() - start >= device->deadline_ns) return done;
    vmm__clock_wait(QUEUEING_POLL_NS);
  }
}

/* Whatever it takes to lease memory, so that a free on the stream needs nothing. Under the structure lock. */
static vmm_status prepare_clients(vmm__work *work) {
  vmm__client *client = NULL;

  while ((client = vmm__device_next_client(work->device, client)) != NULL) (void)client->prepare_lease(client, work);
  return work->status;
}

/* Takes over what it uses: *fresh or *lease are NULL then. */
static void announce(vmm__work *work, void *stream, vmm__stream **fresh, vmm_lease **lease) {
  vmm_device *device = work->device;
  vmm__stream *entry;

  vmm__lock_acquire(&device->lock);
  entry = vmm__stream_find(device, stream);
  if (entry != NULL && entry->capturing) {
    (void)vmm__work_fail(work, VMM_ERROR_BUSY, "a capture of this stream is announced already");
  } else {
    if (entry == NULL) {
      entry = *fresh;
      *fresh = NULL;
      entry->stream = stream;
      entry->next = device->streams;
      device->streams = entry;
    }
    (*lease)->device = device;
    (*lease)->id = ++device->lease_count;
    (*lease)->next = device->leases;
    device->leases = entry->lease = *lease;
    *lease = NULL;
    entry->capturing = true;
    vmm__streams_count(device, 0, 1);
  }
  vmm__lock_release(&device->lock);
}

static void take_back(vmm_device *device, const void *stream) {
  vmm_lease *lease;

  vmm__lock_acquire(&device->lock);
  lease = end_capture(device, stream);
  vmm__lock_release(&device->lock);
  if (lease != NULL) end_lease(device, lease, false);
}

/* The structure lock is what a growth holds: once it is had, no context-wide call is under way. Others queue without it and
 * are waited for. */
static vmm_status begin(vmm__work *work, void *stream, vmm__stream **fresh, vmm_lease **lease) {
  vmm_device *device = work->device;

  if (!vmm__lock_acquire_within(&device->structure, vmm__work_time_left(work)))
    return vmm__work_fail(work, VMM_ERROR_TIMEOUT, "a growth or trim on the device lasted beyond the deadline");
  work->locked = true;
  if (prepare_clients(work) == VMM_OK) announce(work, stream, fresh, lease);
  vmm__work_unlock(work);
  if (work->status == VMM_OK && !wait_for_queueing(device)) {
    take_back(device, stream);
    (void)vmm__work_fail(work, VMM_ERROR_TIMEOUT,
                         "a scrub or fence that another thread queues lasted beyond the deadline");
  }
  return work->status;
}

vmm_status vmm_device_capture_begin(vmm_device *device, void *stream, vmm_error *error) {
  vmm__work work;
  vmm__stream *fresh;
  vmm_lease *lease;

  if (vmm__forked()) return vmm__fail_forked(error, "vmm_device_capture_begin");
  if (device == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_capture_begin: device is NULL");
  vmm__work_start(&work, device, "vmm_device_capture_begin", 0);
  if (vmm__device_lost(device)) (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
  if (vmm__stream_is_legacy(stream))
    (void)vmm__work_fail(&work, VMM_ERROR_INVALID_ARGUMENT, "the legacy stream cannot be captured");
  if (vmm__stream_is_per_thread(stream))
    (void)vmm__work_fail(&work, VMM_ERROR_INVALID_ARGUMENT,
                         "the per-thread default stream is another stream in every thread; capture a real one");
  if (work.status != VMM_OK) return vmm__work_finish(&work, error);
  fresh = vmm__memory_allocate(&device->memory, 1, sizeof *fresh);
  lease = vmm__memory_allocate(&device->memory, 1, sizeof *lease);
  if (fresh == NULL || lease == NULL) (void)vmm__work_fail(&work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  else (void)begin(&work, stream, &fresh, &lease);
  if (fresh != NULL) vmm__memory_release(&device->memory, fresh, 1, sizeof *fresh);
  if (lease != NULL) vmm__memory_release(&device->memory, lease, 1, sizeof *lease);
  return vmm__work_finish(&work, error);
}

/* Takes no structure lock: a driver call that blocks in a growth must not hold up the end of a capture. An entry that
 * nothing names any more is swept by the next quiesce. */
vmm_status vmm_device_capture_end(vmm_device *device, void *stream, int how, vmm_lease **lease, vmm_error *error) {
  vmm_lease *ended;

  if (lease != NULL) *lease = NULL;
  if (vmm__forked()) return vmm__fail_forked(error, "vmm_device_capture_end");
  if (device == NULL || (how != VMM_CAPTURE_COMMITTED && how != VMM_CAPTURE_ABORTED))
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_device_capture_end: device is NULL, or `how` is unknown");
  vmm__lock_acquire(&device->lock);
  ended = end_capture(device, stream);
  vmm__lock_release(&device->lock);
  if (ended == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_device_capture_end: no capture of this stream is announced");
  if (how == VMM_CAPTURE_ABORTED) end_lease(device, ended, false);
  else if (lease != NULL) *lease = ended;
  return VMM_OK;
}
