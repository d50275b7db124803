/* Ending a pool: idle or by force, on a living device or a lost one. */
#include "base/status.h"
#include "device/streams.h"
#include "pool/ready.h"

/* Forced: the caller gives the blocks up. Each is freed once the next is known: what is freed may stay a range of its own,
 * and would otherwise be walked over again and again. Pool lock. */
static void drop_blocks(vmm_pool *pool) {
  vmm__block block, next;
  bool more = vmm__space_next_block(&pool->space, pool->region.base, &block);

  for (; more; block = next) {
    more = vmm__space_next_block(&pool->space, block.address + 1, &next);
    (void)vmm__space_free(&pool->space, block.address, VMM__ARENA_IDLE, NULL);
    pool->counters.free_count++;
    pool->ordered_frees++;
  }
}

/* Refuses while blocks live, unless forced. With `close` nothing is allocated from then on. */
static vmm_status begin(vmm_pool *pool, vmm__work *work, int mode, bool close) {
  vmm__lock_acquire(&pool->lock);
  if (pool->space.block_count != 0 && mode != VMM_DESTROY_FORCED && !work->teardown) {
    work->size = pool->space.block_count;
    (void)vmm__work_fail(work, VMM_ERROR_BUSY, "blocks are still live: free them or destroy by force");
  } else if (close) {
    pool->closing = true;
  }
  vmm__lock_release(&pool->lock);
  return work->status;
}

/* Work on live blocks and launches of graphs may be queued anywhere, so their end needs a context-wide fence, whatever was
 * freed in order. Only then are blocks and leases given up: a destroy that fails before leaves graphs their memory. */
static vmm_status end_blocks(vmm_pool *pool, vmm__work *work) {
  bool blocks, leases;

  vmm__lock_acquire(&pool->lock);
  blocks = pool->space.block_count != 0;
  leases = pool->lease_count != 0;
  vmm__lock_release(&pool->lock);
  if (!blocks && !leases) return VMM_OK;
  if (!work->teardown && vmm__wait_context(work) != VMM_OK) {
    if (blocks && work->status == VMM_ERROR_TIMEOUT) work->status = VMM_ERROR_BUSY;
    return work->status;
  }
  vmm__pool_end_leases(pool);
  vmm__lock_acquire(&pool->lock);
  drop_blocks(pool);
  pool->fenced_frees = pool->ordered_frees;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

/* All mappings, then the address range. */
static vmm_status give_back(vmm_pool *pool, vmm__work *work) {
  (void)vmm__pool_trim(pool, work, 0, UINT64_MAX, true);
  if (work->status != VMM_OK) return work->status;
  if (vmm__work_lock(work) != VMM_OK) return work->status;
  if (pool->region.mappings.count != 0)
    return vmm__work_fail(work, VMM_ERROR_BUSY, "quarantined memory could not be unmapped; destroy again later");
  return vmm__region_close(&pool->region, work);
}

static vmm_status tear_down(vmm_pool *pool, vmm__work *work, int mode) {
  if (vmm__work_lock(work) != VMM_OK || begin(pool, work, mode, true) != VMM_OK) return work->status;
  if (end_blocks(pool, work) == VMM_OK) (void)give_back(pool, work);
  if (work->status == VMM_OK) return VMM_OK;
  vmm__work_probe(work);
  if (vmm__device_lost(pool->device)) return work->status;
  vmm__lock_acquire(&pool->lock);
  /* The pool still stands, without what was given back. If its address range may be free already, and be another's by now,
   * nothing is mapped there again. */
  pool->closing = pool->region.free_code != 0;
  vmm__lock_release(&pool->lock);
  return work->status;
}

/* A device that is lost, or gets lost on the way, must not keep the pool: what the driver answers is then ignored. */
static vmm_status end(vmm_pool *pool, vmm__work *work, int mode) {
  work->teardown = vmm__device_lost(pool->device);
  if (tear_down(pool, work, mode) != VMM_OK && work->status != VMM_ERROR_BUSY && vmm__device_lost(pool->device) &&
      !work->teardown) {
    vmm__work_unlock(work);
    work->status = VMM_OK;
    work->teardown = true;
    (void)tear_down(pool, work, mode);
  }
  return work->status;
}

/* Frees the struct of a pool whose region is closed. The fence's destruction is not tried again: see device/open.c. */
static void end_struct(vmm_pool *pool, vmm__work *work) {
  vmm_device *device = pool->device;
  int failures = work->undo_failures;

  (void)CU_UNDO(work, event_destroy, (device, pool->fence));
  vmm__pool_streams_close(pool, work);
  if (work->undo_failures != failures && !vmm__device_lost(device))
    (void)vmm__work_fail(work, VMM_ERROR_PARTIAL, "the pool is gone, but the driver kept its event");
  vmm__device_remove_client(device, &pool->client);
  vmm__pool_end_leases(pool); /* the spares, which a capture that was announced meanwhile needed until now */
  vmm__pool_release(pool);
}

vmm_status vmm_pool_destroy(vmm_pool *pool, int mode, vmm_error *error) {
  vmm__work work;
  vmm_status status = vmm__pool_refuse(pool, pool, "vmm_pool_destroy", error);

  if (status != VMM_OK) return status;
  if (mode != VMM_DESTROY_IDLE && mode != VMM_DESTROY_FORCED)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_destroy: the mode is unknown");
  vmm__work_start(&work, pool->device, "vmm_pool_destroy", 0);
  work.round_left = work.attempts_left;
  work.teardown = vmm__device_lost(pool->device);
  if (begin(pool, &work, mode, false) != VMM_OK)
    return vmm__work_finish(&work, error); /* others use it, and its thread */
  vmm__thread_stop(&pool->thread);
  if (end(pool, &work, mode) == VMM_OK) end_struct(pool, &work);
  else (void)vmm__ready_start(pool, &work); /* the pool still stands; without its thread, if none can be had */
  return vmm__work_finish(&work, error);
}

static bool end_abandoned(vmm__client *client, vmm__u64 deadline) {
  vmm_pool *pool = client->owner;
  vmm__work work;
  bool done;

  vmm__work_start(&work, pool->device, "vmm_device_close", 0);
  work.deadline = deadline;
  work.round_left = work.attempts_left;
  done = end(pool, &work, VMM_DESTROY_FORCED) == VMM_OK;
  if (done) end_struct(pool, &work);
  (void)vmm__work_finish(&work, NULL);
  return done;
}

vmm_status vmm__pool_abandon(vmm_pool *pool, vmm__work *work) {
  vmm_device *device = pool->device;

  if (end_abandoned(&pool->client, work->deadline)) return work->status;
  (void)vmm__work_undone(work, VMM_CODE_UNKNOWN);
  vmm__lock_acquire(&device->lock);
  pool->client.end_abandoned = end_abandoned;
  vmm__lock_release(&device->lock);
  return work->status;
}
