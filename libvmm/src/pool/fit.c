/* Would these requests fit? They are placed in the index as if the memory that is missing were there, under one hold of
 * the lock, and taken out again: so the answer knows of fragmentation, and nobody sees anything of it. */
#include "base/memory.h"
#include "base/status.h"
#include "pool/plan.h"
#include "region/plain.h"

enum { OPERATIONS_PER_REQUEST = 3 }; /* placed, room added for it, and that taken out again */

typedef struct fit {
  vmm_pool *pool;
  const unsigned long long *sizes;
  size_t count, placed;
  vmm__u64 *addresses; /* of those placed; the lowest bit says that the block is of the stream's own arena */
  vmm__u64 apart;      /* bytes of plain allocations that would be made */
  unsigned idle;       /* arena of what others than the home stream left idle */
  vmm__u64 start, end; /* of the memory that is only thought of: behind the highest mapping */
} fit;

static vmm__u64 rounded(vmm__u64 size) {
  vmm__u64 result = 0;

  (void)vmm__round_up(size == 0 ? 1 : size, VMM__BLOCK_UNIT, &result);
  return result;
}

static vmm__u64 place(fit *f, vmm__u64 size) {
  vmm__space *space = &f->pool->space;
  unsigned own = f->pool->home.open;
  vmm__u64 address = vmm__space_alloc(space, own, size, VMM__BLOCK_UNIT, size, 0);

  if (address != 0) return address | (own != VMM__ARENA_IDLE);
  return own == f->idle ? 0 : vmm__space_alloc(space, f->idle, size, VMM__BLOCK_UNIT, size, 0);
}

/* What a stream that has the pool alone has freed is its own as soon as the home stream asks, unless nothing is queued. Then
 * there is nothing idle but what is the home stream's. */
static unsigned idle_arena(const vmm_pool *pool) {
  bool others = pool->alone != NULL && pool->alone != &pool->home && pool->ordered_frees != pool->fenced_frees;

  return others ? pool->home.open : VMM__ARENA_IDLE;
}

/* As much more as the request needs with what is free before it. False: the reservation ends. A plain allocation is for
 * this request alone: what others could have of it is not reckoned. */
static bool extend(fit *f, vmm__u64 size) {
  vmm__region *region = &f->pool->region;
  vmm__u64 tail = vmm__space_free_before(&f->pool->space, f->end, f->idle, f->idle), more, end;

  if (!vmm__round_up(vmm__saturating_sub(size, tail), region->granularity, &more)) return false;
  if (!vmm__add(f->end, more, &end) || end > region->base + region->size) return false;
  vmm__space_add(&f->pool->space, f->idle, f->end, more);
  f->end = end;
  return true;
}

/* What lies idle in mappings of its own, and can be moved instead of creating. */
static vmm__u64 movable(fit *f) {
  vmm__idle_walk walk = {{0, 0, 0, 0}, 0, 0};
  const vmm__mapping *mapping;
  vmm__u64 bytes = 0;

  while ((mapping = vmm__idle_next(f->pool, &walk)) != NULL)
    if (vmm__idle_is_proven(f->pool, mapping)) bytes += mapping->size;
  return bytes;
}

/* Pool lock. False: the address space ends before all are placed. */
static bool try_all(fit *f, vmm__u64 *grow) {
  vmm_pool *pool = f->pool;
  const vmm__mappings *table = &pool->region.mappings;
  bool all = true;

  f->idle = idle_arena(pool);
  f->start = pool->region.base;
  if (table->count != 0) {
    const vmm__mapping *last = vmm__mappings_at(table, table->count - 1);
    f->start = last->address + last->size;
  }
  f->end = f->start;
  for (f->placed = 0; f->placed < f->count && all; f->placed++) {
    vmm__u64 size = rounded(f->sizes[f->placed]), address = place(f, size);

    if (address == 0 && pool->region.plain) {
      all = vmm__plain_round(pool->device, size, &size);
      f->apart = vmm__saturating_add(f->apart, size);
      f->addresses[f->placed] = 0;
      continue;
    }
    if (address == 0 && extend(f, size)) address = place(f, size);
    all = address != 0;
    if (!all) break;
    f->addresses[f->placed] = address;
  }
  *grow = vmm__saturating_add(f->apart, vmm__saturating_sub(f->end - f->start, f->end != f->start ? movable(f) : 0));
  return all;
}

/* Everything as it was. */
static void take_out(fit *f) {
  vmm_pool *pool = f->pool;

  while (f->placed-- > 0) {
    vmm__u64 address = f->addresses[f->placed];
    unsigned arena = (address & 1) != 0 ? pool->home.open : VMM__ARENA_IDLE;

    if (address != 0) (void)vmm__space_free(&pool->space, vmm__round_down(address, VMM__BLOCK_UNIT), arena, NULL);
  }
  if (f->end != f->start) (void)vmm__space_take(&pool->space, f->start, f->end - f->start, NULL);
}

static vmm_status check_limits(vmm_pool *pool, vmm__work *work, vmm__u64 committed, vmm__u64 limit, vmm__u64 grow) {
  vmm_device *device = pool->device;
  vmm__u64 held, idle, device_limit, more;

  vmm__lock_acquire(&device->lock);
  held = device->counters.handle_bytes;
  idle = device->counters.idle_bytes;
  device_limit = device->limit;
  vmm__lock_release(&device->lock);
  work->size = grow;
  more = vmm__saturating_sub(grow, idle);
  if (limit != 0 && vmm__saturating_add(committed, grow) > limit)
    return vmm__work_fail(work, VMM_ERROR_LIMIT, "the requests need more than the pool's limit allows");
  if (device_limit != 0 && vmm__saturating_add(held, more) > device_limit)
    return vmm__work_fail(work, VMM_ERROR_LIMIT, "the requests need more than the device's limit allows");
  if (more == 0 || vmm__work_enter(work) != VMM_OK) return work->status;
  vmm__work_measure(work);
  if (work->total_bytes != 0 && more > work->free_bytes)
    (void)vmm__work_fail(work, VMM_ERROR_OUT_OF_DEVICE_MEMORY, "the requests need more than the driver says is free");
  vmm__work_leave(work);
  return work->status;
}

static vmm_status would_fit(fit *f, vmm__work *work, unsigned long long *grow) {
  vmm_pool *pool = f->pool;
  vmm__u64 committed, limit, bytes = 0, operations = vmm__saturating_multiply(f->count, OPERATIONS_PER_REQUEST);
  bool all;

  if (vmm__pool_reserve(pool, work, operations, 0) != VMM_OK) return work->status;
  all = try_all(f, &bytes);
  take_out(f);
  committed = pool->region.live_bytes + pool->region.quarantined_bytes;
  limit = pool->limit;
  vmm__lock_release(&pool->lock);
  *grow = bytes;
  if (!all)
    return vmm__work_fail(work, VMM_ERROR_OUT_OF_ADDRESS_SPACE,
                          "the requests need more than the pool's reservation has");
  return bytes == 0 ? VMM_OK : check_limits(pool, work, committed, limit, bytes);
}

static vmm_status refuse(vmm_pool *pool, const unsigned long long *sizes, size_t count, const void *output,
                         vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, output, "vmm_pool_would_fit", error);
  size_t i;

  if (status != VMM_OK) return status;
  if (sizes == NULL && count != 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_pool_would_fit: the array is NULL, but its count is not 0");
  for (i = 0; i < count; i++)
    if (rounded(sizes[i]) == 0 || rounded(sizes[i]) > pool->region.size)
      return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                       "vmm_pool_would_fit: a size exceeds the pool's reservation, or is too large to round up");
  return VMM_OK;
}

vmm_status vmm_pool_would_fit(vmm_pool *pool, const unsigned long long *sizes, size_t count, unsigned long long *grow,
                              vmm_error *error) {
  vmm_status status;
  vmm__work work;
  fit f = {0};

  if (grow != NULL) *grow = 0;
  status = refuse(pool, sizes, count, grow, error);
  if (status != VMM_OK || count == 0) return status;
  vmm__work_start(&work, pool->device, "vmm_pool_would_fit", 0);
  f.pool = pool;
  f.sizes = sizes;
  f.count = count;
  f.addresses = vmm__memory_allocate(&pool->device->memory, count, sizeof *f.addresses);
  if (vmm__device_lost(pool->device)) (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
  else if (f.addresses == NULL) (void)vmm__work_fail(&work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  else (void)would_fit(&f, &work, grow);
  vmm__memory_release(&pool->device->memory, f.addresses, count, sizeof *f.addresses);
  return vmm__work_finish(&work, error);
}
