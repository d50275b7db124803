/* Memory ahead of need, off everyone's path: handles are created without a lock and put aside; a request that does not fit
 * takes them first, and a poll or the pool's own thread publishes the rest. The same two see to head-room and to the
 * threshold above which idle memory goes back. */
#include "pool/ready.h"

#include "base/fork.h"
#include "base/status.h"
#include "device/handles.h"
#include "pool/plan.h"
#include "region/plain.h"

enum { SHORTEST_SLEEP_NS = 1000000, LONGEST_SLEEP_NS = 16000000 };

/* ---- put aside ---- */

void vmm__ready_push(vmm_pool *pool, vmm__handle *handle) {
  handle->next = pool->ready;
  handle->fresh = false;
  pool->ready = handle;
  pool->ready_bytes += handle->size;
}

vmm__handle *vmm__ready_pop(vmm_pool *pool, vmm__u64 size) {
  vmm__handle **link, *handle;

  for (link = &pool->ready; *link != NULL && size != 0 && (*link)->size != size; link = &(*link)->next) {
  }
  handle = *link;
  if (handle == NULL) return NULL;
  *link = handle->next;
  pool->ready_bytes -= handle->size;
  return handle;
}

size_t vmm__ready_sizes(const vmm_pool *pool, vmm__u64 least, vmm__u64 *sizes, size_t capacity) {
  const vmm__handle *handle;
  size_t count = 0, i;

  for (handle = pool->ready; handle != NULL; handle = handle->next) {
    if (handle->size < least || (count == capacity && handle->size <= sizes[capacity - 1])) continue;
    for (i = count == capacity ? capacity - 1 : count++; i > 0 && sizes[i - 1] < handle->size; i--)
      sizes[i] = sizes[i - 1];
    sizes[i] = handle->size;
  }
  return count;
}

vmm__u64 vmm__ready_give(vmm_pool *pool, vmm__work *work, vmm__u64 want) {
  vmm__u64 done = 0;

  while (done < want) {
    vmm__handle *handle;

    vmm__lock_acquire(&pool->lock);
    handle = vmm__ready_pop(pool, 0);
    vmm__lock_release(&pool->lock);
    if (handle == NULL) break;
    done += vmm__handle_give(work, handle);
  }
  return done;
}

/* The chain's handles one by one, without a lock. All or none. */
static vmm_status make(vmm_pool *pool, vmm__work *work, vmm__u64 size, vmm__handle **chain) {
  while (size != 0) {
    vmm__u64 piece = pool->region.plain ? size : vmm__min(size, pool->mapping_max);
    vmm__handle *handle = vmm__handle_record(pool->device);

    if (handle == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    if (vmm__handle_take(work, handle, piece) != VMM_OK) {
      vmm__handle_record_free(pool->device, handle);
      return work->status;
    }
    handle->next = *chain;
    *chain = handle;
    size -= piece;
  }
  return VMM_OK;
}

/* Whether the pool's limit and its address space allow so much more; they are asked again when it is published. */
static vmm_status check_room(vmm_pool *pool, vmm__work *work, vmm__u64 size) {
  vmm__u64 held;
  bool limited, full;

  vmm__lock_acquire(&pool->lock);
  held = pool->region.live_bytes + pool->region.quarantined_bytes + pool->ready_bytes;
  limited = pool->limit != 0 && vmm__saturating_add(held, size) > pool->limit;
  full = vmm__saturating_add(held, size) > pool->region.size;
  vmm__lock_release(&pool->lock);
  work->size = size;
  if (limited) return vmm__work_fail(work, VMM_ERROR_LIMIT, "the pool's limit is reached");
  if (full) return vmm__work_fail(work, VMM_ERROR_OUT_OF_ADDRESS_SPACE, "the pool's reservation is too small for it");
  work->size = 0;
  return VMM_OK;
}

static bool round_size(const vmm_pool *pool, vmm__u64 *size) {
  if (!pool->region.plain) return vmm__round_up(*size, pool->region.granularity, size);
  if (!vmm__plain_round(pool->device, *size, size)) return false;
  *size += VMM__PLAIN_GUARD; /* of the allocation, no more than that was rounded to */
  return true;
}

static vmm_status put_aside(vmm_pool *pool, vmm__work *work, vmm__u64 size) {
  vmm__handle *chain = NULL, *next;
  bool good;

  if (!round_size(pool, &size))
    return vmm__work_fail(work, VMM_ERROR_INVALID_ARGUMENT, "the size is too large to round up");
  if (check_room(pool, work, size) != VMM_OK || vmm__work_enter(work) != VMM_OK) return work->status;
  (void)make(pool, work, size, &chain);
  if (work->status != VMM_OK) {
    vmm__work_probe(work);
    vmm__work_measure(work);
  }
  vmm__lock_acquire(&pool->lock);
  good = work->status == VMM_OK && !pool->closing;
  for (; good && chain != NULL; chain = next) {
    next = chain->next;
    vmm__ready_push(pool, chain);
  }
  vmm__lock_release(&pool->lock);
  for (; chain != NULL; chain = next) {
    next = chain->next;
    (void)vmm__handle_give(work, chain);
  }
  vmm__work_leave(work);
  if (!good) (void)vmm__work_fail(work, VMM_ERROR_BUSY, "the pool is being destroyed");
  return work->status;
}

vmm_status vmm_pool_grow_async(vmm_pool *pool, unsigned long long size, vmm_error *error) {
  vmm__work work;
  vmm_status status = vmm__pool_refuse(pool, pool, "vmm_pool_grow_async", error);

  if (status != VMM_OK) return status;
  if (size == 0) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_grow_async: size is 0");
  vmm__work_start(&work, pool->device, "vmm_pool_grow_async", 0);
  work.round_left = work.attempts_left;
  if (vmm__device_lost(pool->device)) (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
  else if (vmm__in_pressure())
    (void)vmm__work_fail(&work, VMM_ERROR_BUSY, "inside a pressure callback nothing may grow");
  else if (put_aside(pool, &work, size) == VMM_OK) vmm__thread_wake(&pool->thread);
  vmm__pool_count_work(pool, &work);
  return vmm__work_finish(&work, error);
}

/* ---- what poll and the thread see to ---- */

/* Bytes that are free or put aside; the second: in blocks. */
static vmm__u64 spare_bytes(vmm_pool *pool, vmm__u64 *blocks) {
  vmm__u64 spare;

  vmm__lock_acquire(&pool->lock);
  spare = vmm__space_free_bytes(&pool->space) + pool->held_bytes + pool->ready_bytes;
  *blocks = pool->space.block_bytes;
  vmm__lock_release(&pool->lock);
  return spare;
}

/* Whether there is something to publish, and it can be without a wait. */
static bool can_publish(vmm_pool *pool) {
  bool can;

  vmm__lock_acquire(&pool->lock);
  can = pool->ready != NULL && !pool->closing;
  vmm__lock_release(&pool->lock);
  return can && pool->device->info.sync_policy == VMM_SYNC_ON_DEMAND;
}

static bool above_threshold(const vmm_pool *pool, vmm__u64 spare) {
  return pool->trim_threshold != 0 && spare > pool->trim_threshold;
}

vmm__u64 vmm__ready_see_to(vmm_pool *pool, vmm__work *work) {
  vmm__u64 blocks = 0, spare = spare_bytes(pool, &blocks), done = 0;

  work->attempts_left = 0;
  if (spare < pool->headroom) (void)put_aside(pool, work, pool->headroom - spare);
  while (work->status == VMM_OK && can_publish(pool))
    if (vmm__pool_publish_ready(pool, work) == 0) break;
  if (work->status == VMM_OK && above_threshold(pool, spare))
    done = vmm__pool_trim(pool, work, vmm__saturating_add(blocks, pool->trim_keep), spare - pool->trim_keep, false);
  if (work->status == VMM_OK) return done;
  vmm__lock_acquire(&pool->lock);
  pool->counters.background_failures++;
  vmm__lock_release(&pool->lock);
  return done;
}

/* ---- the thread ---- */

/* One round; what fails is tried again in the next. Nothing in it waits for the GPU. True if there was something to do. */
static bool background(vmm_pool *pool) {
  vmm__u64 blocks, spare = spare_bytes(pool, &blocks);
  bool pending = vmm__pending_bytes(pool) != 0;
  vmm__work work;

  if (spare >= pool->headroom && !can_publish(pool) && !pending && !above_threshold(pool, spare)) return false;
  if (vmm__device_lost(pool->device)) return false;
  vmm__work_start(&work, pool->device, "the pool's thread", 0);
  (void)vmm__ready_see_to(pool, &work);
  if (work.status == VMM_OK && pending) (void)vmm__pool_trim(pool, &work, UINT64_MAX, UINT64_MAX, false);
  vmm__pool_count_work(pool, &work);
  return vmm__work_finish(&work, NULL) == VMM_OK && !pending;
}

static void run(void *data) {
  vmm_pool *pool = data;
  vmm__u64 pause = SHORTEST_SLEEP_NS;

  while (vmm__thread_sleep(&pool->thread, pause))
    pause = background(pool) ? SHORTEST_SLEEP_NS : vmm__min(2 * pause, LONGEST_SLEEP_NS);
}

vmm_status vmm__ready_start(vmm_pool *pool, vmm__work *work) {
  if (!pool->background || vmm__thread_start(&pool->thread, run, pool)) return VMM_OK;
  return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, "the system has no room for the pool's thread");
}
