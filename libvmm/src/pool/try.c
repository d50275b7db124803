/* Alloc and free for callers who must not be kept waiting: done at once, or not at all. */
#include "base/fork.h"
#include "pool/pool.h"

/* Whether the call may end without a look at the driver. Then the lock is held. */
static bool lock_at_once(vmm_pool *pool, const void *stream) {
  return vmm__pool_knows_by_handle(pool, stream) && !vmm__captures_possible(pool->device) && vmm__lock_try(&pool->lock);
}

static vmm__pool_stream *entry_of(vmm_pool *pool, const void *stream) {
  if (vmm__stream_is_same(stream, pool->home_stream)) return &pool->home;
  return vmm__pool_stream_find(pool, stream, 0);
}

vmm_status vmm_pool_try_alloc(vmm_pool *pool, unsigned long long size, void *stream, unsigned long long *address) {
  vmm__pool_request request = {0, size, VMM__BLOCK_UNIT, 0, 0, 0, stream, NULL};
  vmm__u64 placed;

  if (address != NULL) *address = 0;
  if (vmm__forked()) return VMM_ERROR_FORKED;
  if (pool == NULL || address == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  if (!vmm__round_up(vmm__max(size, 1), VMM__BLOCK_UNIT, &request.size)) return VMM_ERROR_INVALID_ARGUMENT;
  if (pool->scrub || vmm__device_lost(pool->device) || !lock_at_once(pool, stream)) return VMM_ERROR_BUSY;
  request.stream = entry_of(pool, stream);
  placed = vmm__pool_place(pool, &request); /* 0 without an entry */
  vmm__lock_untry(&pool->lock);
  *address = placed;
  return placed != 0 ? VMM_OK : VMM_ERROR_BUSY;
}

vmm_status vmm_pool_try_free(vmm_pool *pool, unsigned long long address, void *stream) {
  const vmm__pool_stream *entry;
  bool found;

  if (vmm__forked()) return VMM_ERROR_FORKED;
  if (pool == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  if (!lock_at_once(pool, stream)) return VMM_ERROR_BUSY;
  entry = entry_of(pool, stream);
  found = entry != NULL && vmm__pool_give(pool, address, stream, entry->open, true);
  vmm__lock_untry(&pool->lock);
  return found ? VMM_OK : VMM_ERROR_BUSY;
}
