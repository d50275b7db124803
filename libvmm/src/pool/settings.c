/* What can be changed on a pool: its limit, its peers. */
#include "base/status.h"
#include "pool/pool.h"

vmm_status vmm_pool_set_limit(vmm_pool *pool, unsigned long long limit, vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, pool, "vmm_pool_set_limit", error);

  if (status != VMM_OK) return status;
  vmm__lock_acquire(&pool->lock);
  pool->limit = limit;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

static vmm_status add_peer(vmm_pool *pool, vmm__work *work, int ordinal) {
  int raw = -1;
  size_t i;

  if (vmm__device_lost(pool->device)) return vmm__work_fail(work, VMM_ERROR_DEVICE_LOST, NULL);
  if (vmm__work_lock(work) != VMM_OK || vmm__pool_find_peer(work, ordinal, &raw) != VMM_OK) return work->status;
  for (i = 0; i < pool->region.access_count; i++)
    if (pool->region.access[i].location_id == raw)
      return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the device is a peer of the pool already");
  return vmm__region_add_peer(&pool->region, work, raw);
}

vmm_status vmm_pool_add_peer(vmm_pool *pool, int ordinal, vmm_error *error) {
  vmm__work work;
  vmm_status status = vmm__pool_refuse(pool, pool, "vmm_pool_add_peer", error);

  if (status != VMM_OK) return status;
  vmm__work_start(&work, pool->device, "vmm_pool_add_peer", 0);
  work.round_left = work.attempts_left;
  (void)add_peer(pool, &work, ordinal);
  vmm__pool_count_work(pool, &work);
  return vmm__work_finish(&work, error);
}
