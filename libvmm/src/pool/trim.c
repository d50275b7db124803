/* Giving idle mappings back: out of the index, wait for queued work, unmap. Others allocate and grow during the wait. */
#include "base/status.h"
#include "device/streams.h"
#include "pool/pool.h"

enum { BATCH = 16, ADDS_PER_MAPPING = 2 };

typedef struct batch {
  size_t count;
  vmm__u64 address[BATCH], size[BATCH];
  vmm__u64 frees; /* ordered frees that may have been on these mappings */
  bool fence;     /* ... and that no fence has covered yet */
} batch;

/* Enters an idle mapping among the highest so far, which are kept by falling address. */
static void choose(batch *chosen, const vmm__mapping *mapping) {
  size_t i = chosen->count;

  if (i == BATCH && mapping->address < chosen->address[BATCH - 1]) return;
  if (i == BATCH) i--;
  else chosen->count++;
  for (; i > 0 && chosen->address[i - 1] < mapping->address; i--) {
    chosen->address[i] = chosen->address[i - 1];
    chosen->size[i] = chosen->size[i - 1];
  }
  chosen->address[i] = mapping->address;
  chosen->size[i] = mapping->size;
}

/* Takes wholly idle mappings out of the index, highest first: low addresses are where new blocks go. Pool lock. */
static void detach(vmm_pool *pool, vmm__u64 keep, vmm__u64 want, batch *taken) {
  vmm__u64 committed = pool->space.total_bytes + pool->held_bytes; /* what other trims detached is as good as gone */
  vmm__u64 spare = vmm__saturating_sub(committed, keep), bytes = 0;
  vmm__idle_walk walk = {{false, 0, 0, 0}, 0, 0};
  const vmm__mapping *mapping;
  batch chosen;
  size_t i;

  taken->count = chosen.count = 0;
  taken->frees = pool->ordered_frees;
  taken->fence = pool->ordered_frees != pool->fenced_frees;
  while ((mapping = vmm__idle_next(pool, &walk)) != NULL)
    if (mapping->size <= spare) choose(&chosen, mapping);
  for (i = 0; i < chosen.count && bytes < want; i++) {
    if (chosen.size[i] > spare || !vmm__space_take(&pool->space, chosen.address[i], chosen.size[i], NULL)) continue;
    vmm__mappings_find(&pool->region.mappings, chosen.address[i])->state = VMM__MAPPING_DETACHED;
    spare -= chosen.size[i];
    bytes += chosen.size[i];
    taken->address[taken->count] = chosen.address[i];
    taken->size[taken->count++] = chosen.size[i];
  }
}

/* Puts the mappings from number `from` on back into the index. */
static void attach(vmm_pool *pool, const batch *taken, size_t from) {
  size_t i;

  vmm__lock_acquire(&pool->lock);
  for (i = from; i < taken->count; i++) {
    vmm__mappings_find(&pool->region.mappings, taken->address[i])->state = VMM_MAPPING_LIVE;
    vmm__space_add(&pool->space, VMM__ARENA_IDLE, taken->address[i], taken->size[i]);
  }
  vmm__lock_release(&pool->lock);
}

/* The structure lock is let go while waiting: "never across a trim's wait". */
static vmm_status wait_for_work(vmm_pool *pool, vmm__work *work, const batch *taken) {
  if (!taken->fence || work->teardown) return VMM_OK;
  if (vmm__fence_record(work, pool->fence, pool->home_stream) != VMM_OK) return work->status;
  vmm__work_let_others(work);
  if (vmm__fence_wait(work, pool->fence) != VMM_OK || vmm__work_lock(work) != VMM_OK) return work->status;
  vmm__lock_acquire(&pool->lock);
  pool->fenced_frees = vmm__max(pool->fenced_frees, taken->frees);
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

/* Unmaps what was detached, until a step fails. Returns the bytes given back. */
static vmm__u64 decommit(vmm_pool *pool, vmm__work *work, const batch *taken) {
  vmm__u64 done = 0;
  size_t i;

  for (i = 0; i < taken->count; i++) {
    vmm__decommit_result result = vmm__region_decommit(&pool->region, work, taken->address[i]);

    if (result == VMM__DECOMMIT_GONE) {
      done += taken->size[i];
      continue;
    }
    if (result == VMM__DECOMMIT_QUARANTINED) {
      vmm__lock_acquire(&pool->lock);
      pool->counters.quarantined_bytes += taken->size[i];
      vmm__lock_release(&pool->lock);
    }
    attach(pool, taken, result == VMM__DECOMMIT_KEPT ? i : i + 1);
    break;
  }
  vmm__lock_acquire(&pool->lock);
  pool->counters.trim_bytes += done;
  vmm__lock_release(&pool->lock);
  return done;
}

static vmm__u64 trim_batch(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want) {
  const vmm__u64 adds = (vmm__u64)BATCH * ADDS_PER_MAPPING;
  vmm__u64 done = 0;
  batch taken;

  if (vmm__pool_promise(pool, work, adds) != VMM_OK) return 0;
  vmm__lock_acquire(&pool->lock);
  detach(pool, keep, want, &taken);
  vmm__lock_release(&pool->lock);
  if (taken.count != 0) {
    if (wait_for_work(pool, work, &taken) == VMM_OK) done = decommit(pool, work, &taken);
    else attach(pool, &taken, 0);
  }
  vmm__lock_acquire(&pool->lock);
  vmm__pool_fulfil(pool, adds);
  vmm__lock_release(&pool->lock);
  return done;
}

vmm__u64 vmm__pool_trim(vmm_pool *pool, vmm__work *work, vmm__u64 keep, vmm__u64 want) {
  vmm__u64 start = vmm__device_now(pool->device);
  vmm__u64 done = 0;

  if (vmm__work_lock(work) == VMM_OK) {
    vmm__region_recover(&pool->region, work);
    while (done < want && pool->region.mappings.count != 0) { /* without mappings it needs no host memory either */
      vmm__u64 step = trim_batch(pool, work, keep, want - done);
      if (step == 0) break;
      done += step;
      if (work->status != VMM_OK || vmm__work_lock(work) != VMM_OK) break;
    }
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

vmm_status vmm_pool_trim(vmm_pool *pool, unsigned long long keep, unsigned long long deadline_ns,
                         unsigned long long *done, vmm_error *error) {
  vmm__work work;
  vmm__u64 bytes = 0;
  vmm_status status;

  if (done != NULL) *done = 0;
  status = vmm__pool_refuse(pool, pool, "vmm_pool_trim", error);
  if (status != VMM_OK) return status;
  vmm__work_start(&work, pool->device, "vmm_pool_trim", deadline_ns);
  work.round_left = work.attempts_left;
  if (vmm__device_lost(pool->device)) (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
  else bytes = vmm__pool_trim(pool, &work, keep, UINT64_MAX);
  if (work.status != VMM_OK && work.status != VMM_ERROR_DEVICE_LOST && bytes != 0) work.status = VMM_ERROR_PARTIAL;
  if (done != NULL) *done = bytes;
  vmm__pool_count_work(pool, &work);
  return vmm__work_finish(&work, error);
}
