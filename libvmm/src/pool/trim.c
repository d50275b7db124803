/* Giving idle mappings back, as far as a caller wants to wait for it. */
#include "base/status.h"
#include "pool/ready.h"

/* Out of the index with what is idle, then to the driver with what nothing uses any more. */
static vmm__u64 run(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want, bool wait) {
  vmm__u64 done = 0, pending;
  bool left = false;

  while ((pending = vmm__pending_bytes(pool)) < want)
    if (vmm__pending_detach(pool, work, keep, want - pending, &left) == 0) break;
  while (work->status == VMM_OK && done < want && vmm__pending_bytes(pool) != 0) {
    (void)vmm__pending_fence(pool, work, wait);
    if (work->status == VMM_OK || work->status == VMM_ERROR_CAPTURE)
      done += vmm__pending_finish(pool, work, want - done);
    if (work->status == VMM_ERROR_CAPTURE && !wait) work->status = VMM_OK; /* later, then */
    if (!wait || work->status != VMM_OK || vmm__pending_bytes(pool) == 0 || done >= want) break;
    if (vmm__pending_wait(pool, work) != VMM_OK) break;
  }
  if (wait && left && done < want && work->status == VMM_OK) (void)vmm__pending_refuse(work);
  return done;
}

vmm__u64 vmm__pool_trim(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want, bool wait) {
  vmm__u64 start = vmm__device_now(pool->device);
  vmm__u64 done = 0;

  if (vmm__work_lock(work) == VMM_OK) {
    vmm__region_recover(&pool->region, work);
    if (!work->teardown) vmm__pool_tidy(pool, work, true);
    if (keep != UINT64_MAX) done = vmm__ready_give(pool, work, want);
    if (pool->region.mappings.count != 0 && done < want) /* without mappings it needs no host memory either */
      done += run(pool, work, keep, want - done, wait);
  }
  if (work->status != VMM_OK) {
    vmm__work_probe(work);
    vmm__work_measure(work);
  }
  vmm__work_unlock(work);
  if (done != 0) {
    vmm__lock_acquire(&pool->lock);
    pool->counters.trim_count++;
    vmm__lock_release(&pool->lock);
    vmm__device_event(pool->device, VMM_EVENT_TRIM, -1, 0, 0, 0, done, vmm__device_now(pool->device) - start);
  }
  return done;
}

/* What is left over may be as good as done: it is only not waited for. */
static vmm_status report(vmm_pool *pool, vmm__work *work, vmm__u64 bytes, unsigned long long *done,
                         unsigned long long *pending, vmm_error *error) {
  if (work->status != VMM_OK && work->status != VMM_ERROR_DEVICE_LOST && bytes != 0) work->status = VMM_ERROR_PARTIAL;
  if (done != NULL) *done = bytes;
  if (pending != NULL) *pending = vmm__pending_bytes(pool);
  vmm__pool_count_work(pool, work);
  return vmm__work_finish(work, error);
}

static vmm_status start(vmm_pool *pool, vmm__work *work, const char *function, vmm__u64 deadline_ns, vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, pool, function, error);

  if (status != VMM_OK) return status;
  vmm__work_start(work, pool->device, function, deadline_ns);
  work->round_left = work->attempts_left;
  if (vmm__device_lost(pool->device)) (void)vmm__work_fail(work, VMM_ERROR_DEVICE_LOST, NULL);
  return VMM_OK;
}

vmm_status vmm_pool_trim(vmm_pool *pool, unsigned long long keep, unsigned long long deadline_ns,
                         unsigned long long *done, vmm_error *error) {
  vmm__work work;
  vmm__u64 bytes = 0;
  vmm_status status;

  if (done != NULL) *done = 0;
  status = start(pool, &work, "vmm_pool_trim", deadline_ns, error);
  if (status != VMM_OK) return status;
  if (work.status == VMM_OK) bytes = vmm__pool_trim(pool, &work, keep, UINT64_MAX, true);
  return report(pool, &work, bytes, done, NULL, error);
}

vmm_status vmm_pool_trim_async(vmm_pool *pool, unsigned long long keep, unsigned long long *done,
                               unsigned long long *pending, vmm_error *error) {
  vmm__work work;
  vmm__u64 bytes = 0;
  vmm_status status;

  if (done != NULL) *done = 0;
  if (pending != NULL) *pending = 0;
  status = start(pool, &work, "vmm_pool_trim_async", 0, error);
  if (status != VMM_OK) return status;
  if (work.status == VMM_OK) bytes = vmm__pool_trim(pool, &work, keep, UINT64_MAX, false);
  return report(pool, &work, bytes, done, pending, error);
}

/* What a poll sees to besides is for later calls' good: that it fails is counted, and no failure of the poll's. */
static vmm__u64 see_to_the_rest(vmm_pool *pool, const vmm__work *poll) {
  vmm__work work;
  vmm__u64 done;

  vmm__work_start(&work, pool->device, poll->function, 0);
  work.deadline = poll->deadline;
  done = vmm__ready_see_to(pool, &work);
  vmm__pool_count_work(pool, &work);
  (void)vmm__work_finish(&work, NULL);
  return done;
}

/* A poll is a trim that takes nothing more out of the index, unless more is idle than is to be. */
vmm_status vmm_pool_poll(vmm_pool *pool, unsigned long long *done, unsigned long long *pending, vmm_error *error) {
  vmm__work work;
  vmm__u64 bytes = 0;
  vmm_status status;

  if (done != NULL) *done = 0;
  if (pending != NULL) *pending = 0;
  status = start(pool, &work, "vmm_pool_poll", 0, error);
  if (status != VMM_OK) return status;
  if (work.status == VMM_OK && vmm__pending_bytes(pool) != 0)
    bytes = vmm__pool_trim(pool, &work, UINT64_MAX, UINT64_MAX, false);
  if (work.status == VMM_OK) bytes += see_to_the_rest(pool, &work);
  return report(pool, &work, bytes, done, pending, error);
}
