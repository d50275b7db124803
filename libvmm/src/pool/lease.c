/* Leases: one arena per capture that uses the pool. */
#include "pool/lease.h"

#include "base/memory.h"
#include "pool/pool.h"

enum { SHUT_OPERATIONS = 4 };

/* Captures run side by side: a spare for each that is announced, and the one to come. */
static bool has_spares(vmm_pool *pool) {
  const vmm__pool_lease *lease;
  int missing = atomic_load(&pool->device->captures) + 1;

  vmm__lock_acquire(&pool->lock);
  for (lease = pool->leases; lease != NULL; lease = lease->next) missing -= lease->id == 0;
  vmm__lock_release(&pool->lock);
  return missing <= 0;
}

/* Pool lock, with an arena reserved. */
static vmm_status enter_list(vmm_pool *pool, vmm__work *work, vmm__pool_lease *lease) {
  lease->entry.leased = true;
  lease->entry.open = vmm__space_arena_open(&pool->space);
  if (lease->entry.open == VMM__ARENA_IDLE)
    return vmm__work_fail(work, VMM_ERROR_UNSUPPORTED,
                          "the pool cannot hold more leases; release those of graphs that are gone");
  vmm__space_arena_stick(&pool->space, lease->entry.open);
  lease->next = pool->leases;
  pool->leases = lease;
  return VMM_OK;
}

vmm_status vmm__pool_prepare_lease(vmm_pool *pool, vmm__work *work) {
  while (!has_spares(pool)) {
    vmm__pool_lease *lease = vmm__memory_allocate(&pool->device->memory, 1, sizeof *lease);

    if (lease == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    if (vmm__pool_reserve(pool, work, 0, 1) == VMM_OK) { /* and holds the pool lock */
      (void)enter_list(pool, work, lease);
      vmm__lock_release(&pool->lock);
    }
    if (work->status == VMM_OK) continue;
    vmm__memory_release(&pool->device->memory, lease, 1, sizeof *lease);
    return work->status;
  }
  return VMM_OK;
}

vmm__pool_lease *vmm__pool_lease_find(vmm_pool *pool, vmm__u64 id) {
  vmm__pool_lease *lease, *spare = NULL;

  for (lease = pool->leases; lease != NULL; lease = lease->next) {
    if (lease->id == id) return lease;
    if (lease->id == 0) spare = lease;
  }
  if (spare == NULL) return NULL;
  spare->id = id;
  pool->others = true;
  pool->lease_count++;
  return spare;
}

/* The last lease that shut memory away is over. Pool lock. */
static void open_shut(vmm_pool *pool) {
  const vmm__pool_lease *lease;

  for (lease = pool->leases; lease != NULL; lease = lease->next)
    if (lease->shuts) return;
  if (vmm__space_arena_bytes(&pool->space, pool->shut) == 0) return;
  pool->ordered_frees++;
  vmm__space_arena_merge(&pool->space, pool->shut, pool->limbo.open);
}

/* It is out of the list. Pool lock. */
static void dissolve(vmm_pool *pool, const vmm__pool_lease *lease) {
  unsigned into = lease->idle ? vmm__pool_vouched_arena(pool) : pool->limbo.open;

  vmm__space_arena_unstick(&pool->space, lease->entry.open);
  if (into != VMM__ARENA_IDLE && vmm__space_arena_bytes(&pool->space, lease->entry.open) != 0)
    pool->ordered_frees++; /* a fence is due */
  vmm__space_arena_merge(&pool->space, lease->entry.open, into);
  vmm__space_arena_close(&pool->space, lease->entry.open);
  if (lease->id != 0) pool->lease_count--;
  if (lease->shuts) open_shut(pool);
}

/* Takes a lease out: the one with this id, or any. */
static vmm__pool_lease *take(vmm_pool *pool, bool any, vmm__u64 id, bool idle) {
  vmm__pool_lease **link, *lease = NULL;

  vmm__lock_acquire(&pool->lock);
  for (link = &pool->leases; *link != NULL; link = &(*link)->next) {
    if (!any && (*link)->id != id) continue;
    (*link)->idle = idle;
    if (!any && (*link)->entry.users != 0) { /* another thread allocates in it still */
      (*link)->ended = true;
      break;
    }
    lease = *link;
    *link = lease->next;
    dissolve(pool, lease);
    break;
  }
  vmm__lock_release(&pool->lock);
  return lease;
}

void vmm__pool_end_lease(vmm_pool *pool, vmm__u64 id, bool idle) {
  vmm__pool_lease *lease = take(pool, false, id, idle);

  if (lease != NULL) vmm__memory_release(&pool->device->memory, lease, 1, sizeof *lease);
}

void vmm__pool_end_leases(vmm_pool *pool) {
  vmm__pool_lease *lease;

  while ((lease = take(pool, true, 0, false)) != NULL)
    vmm__memory_release(&pool->device->memory, lease, 1, sizeof *lease);
}

/* ---- captures ---- */

/* The lease of the capture that the stream takes part in; *id 0: it takes part in none. Under one hold of the lock: else the
 * capture could end in between, and a lease would begin that nobody ends. */
static vmm__pool_lease *join(vmm_pool *pool, const void *stream, vmm__u64 *id) {
  vmm__pool_lease *lease;

  vmm__lock_acquire(&pool->lock);
  *id = vmm__stream_lease(pool->device, stream);
  lease = *id != 0 ? vmm__pool_lease_find(pool, *id) : NULL;
  if (lease != NULL) lease->entry.users++;
  vmm__lock_release(&pool->lock);
  return lease;
}

vmm_status vmm__pool_join_capture(vmm_pool *pool, vmm__pool_request *request, const char *function, vmm_error *error) {
  vmm__u64 id;
  vmm__pool_lease *lease = join(pool, request->handle, &id);
  vmm__work work;

  if (lease != NULL) request->stream = &lease->entry;
  if (lease != NULL) return VMM_OK;
  if (id == 0 && !vmm__captured_unannounced(pool->device, request->handle)) return VMM_OK;
  vmm__work_start(&work, pool->device, function, request->deadline_ns);
  if (id == 0) {
    (void)vmm__work_fail(&work, VMM_ERROR_CAPTURE,
                         "the stream is being captured, which was not announced: see vmm_device_capture_begin");
    return vmm__work_finish(&work, error);
  }
  while (id != 0 && lease == NULL && vmm__pool_prepare_lease(pool, &work) == VMM_OK)
    lease = join(pool, request->handle, &id);
  if (lease != NULL) request->stream = &lease->entry;
  return vmm__work_finish(&work, error);
}

void vmm__pool_leave_capture(vmm_pool *pool, const vmm__pool_request *request) {
  const vmm__pool_lease *lease;
  vmm__u64 ended = 0;
  bool idle;

  if (request->stream == NULL || !request->stream->leased) return;
  vmm__lock_acquire(&pool->lock);
  for (lease = pool->leases; &lease->entry != request->stream; lease = lease->next) {
  }
  request->stream->users--;
  idle = lease->idle;
  if (lease->ended && lease->entry.users == 0) ended = lease->id;
  vmm__lock_release(&pool->lock);
  if (ended != 0) vmm__pool_end_lease(pool, ended, idle);
}

unsigned vmm__pool_captured_arena(vmm_pool *pool, const void *stream, unsigned arena) {
  vmm__u64 id = vmm__stream_lease(pool->device, stream);
  const vmm__pool_lease *lease;

  if (id == 0) return arena;
  lease = vmm__pool_lease_find(pool, id);
  return lease != NULL ? lease->entry.open : VMM__ARENA_MIXED;
}

/* Whether captures are among the streams; their leases are marked. *all: each of them has one. Pool lock. */
static bool mark(vmm_pool *pool, void *const *streams, size_t count, bool *all) {
  bool any = false;
  size_t i;

  *all = true;
  for (i = 0; i < count; i++) {
    vmm__u64 id = vmm__stream_lease(pool->device, streams[i]);
    vmm__pool_lease *lease = id != 0 ? vmm__pool_lease_find(pool, id) : NULL;

    if (id == 0) continue;
    any = true;
    if (lease != NULL) lease->shuts = true;
    else *all = false;
  }
  return any;
}

/* Frees a block into the shut arena, unless not `all` of its leases could be marked: then it stays. Pool lock. */
static void put_away(vmm_pool *pool, vmm__block block, bool all) {
  vmm__space *space = &pool->space;
  vmm__u64 address = block.address;
  vmm__pool_lease *lease;

  vmm__space_settle(space);
  if (!all || vmm__space_short(space, pool->promised + SHUT_OPERATIONS, 0) != 0) {
    pool->counters.fence_failures++;
    return;
  }
  for (lease = pool->leases; lease != NULL; lease = lease->next)
    if (lease->entry.open == block.arena) lease->shuts = true;
  (void)vmm__space_free(space, address, pool->shut, &block);
  (void)vmm__space_take(space, address, block.size, NULL); /* it may have stuck to a lease */
  vmm__space_add(space, pool->shut, address, block.size);
  pool->counters.free_count++;
  pool->ordered_frees++;
}

static bool find_block(vmm_pool *pool, vmm__u64 address, vmm__block *block) {
  return vmm__space_find(&pool->space, address, block) && block->address == address;
}

bool vmm__pool_shut(vmm_pool *pool, vmm__u64 address, void *const *streams, size_t count, bool *found) {
  vmm__block block;
  bool all;

  *found = find_block(pool, address, &block);
  if (!mark(pool, streams, count, &all)) return false;
  if (*found) put_away(pool, block, all);
  return true;
}

bool vmm__pool_shut_anothers(vmm_pool *pool, vmm__u64 address, const void *stream) {
  vmm__u64 id = vmm__stream_lease(pool->device, stream);
  vmm__pool_lease *lease;
  vmm__block block;

  if (id == 0 || !find_block(pool, address, &block) || !pool->space.ids[block.arena].sticky) return false;
  lease = vmm__pool_lease_find(pool, id);
  if (lease != NULL && lease->entry.open == block.arena) return false;
  if (lease != NULL) lease->shuts = true;
  put_away(pool, block, lease != NULL);
  return true;
}
