/* Room in the index ahead of need: nothing asks for host memory once a lock is held or the driver was called. */
#include "pool/pool.h"

enum { OPERATIONS = 4 /* of the index besides what is promised */ };

/* 0, or what is missing. Quick blocks never make the pool ask for host memory. */
static vmm__u64 missing(vmm_pool *pool, vmm__u64 operations, unsigned arenas) {
  vmm__u64 all = vmm__saturating_add(vmm__saturating_add(pool->promised, operations), OPERATIONS);

  if (vmm__space_short(&pool->space, all, 0) != 0) vmm__space_settle(&pool->space);
  return vmm__space_short(&pool->space, all, arenas);
}

vmm_status vmm__pool_reserve(vmm_pool *pool, vmm__work *work, vmm__u64 operations, unsigned arenas) {
  const vmm_host_memory *memory = &pool->device->memory;

  for (;;) {
    vmm__space_spare *spare;
    vmm__u64 hint;

    vmm__lock_acquire(&pool->lock);
    hint = missing(pool, operations, arenas);
    if (hint == 0) return VMM_OK;
    vmm__lock_release(&pool->lock);
    spare = vmm__space_spare_make(memory, hint);
    if (spare == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    vmm__lock_acquire(&pool->lock);
    vmm__space_spare_adopt(&pool->space, spare);
    vmm__lock_release(&pool->lock);
    vmm__space_spare_release(memory, spare);
  }
}

vmm_status vmm__pool_promise(vmm_pool *pool, vmm__work *work, vmm__u64 adds) {
  if (vmm__pool_reserve(pool, work, adds, 0) != VMM_OK) return work->status;
  pool->promised += adds;
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

vmm__u64 vmm__pool_place_with_records(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  vmm__u64 placed;

  if (vmm__pool_reserve(pool, work, 0, 0) != VMM_OK) return 0;
  placed = vmm__pool_place(pool, request);
  vmm__lock_release(&pool->lock);
  return placed;
}
