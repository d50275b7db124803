/* Blocks: the path that fits and the path back. Neither makes a driver call nor allocates. */
#include "base/fork.h"
#include "base/status.h"
#include "index/quick.h"
#include "pool/pending.h"

vmm_status vmm__pool_refuse(const vmm_pool *pool, const void *output, const char *function, vmm_error *error) {
  if (vmm__forked()) return vmm__fail_forked(error, function);
  if (pool != NULL && output != NULL) return VMM_OK;
  return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function,
                      pool == NULL ? "pool is NULL" : "the output pointer is NULL");
}

static inline void count_alloc(vmm_pool *pool, vmm__u64 size) {
  vmm__pool_counters *counters = &pool->counters;
  const vmm__space *space = &pool->space;

  counters->alloc_count++;
  counters->alloc_bytes += size;
  if (space->block_count > counters->block_count_peak) counters->block_count_peak = space->block_count;
  if (space->block_bytes > counters->block_bytes_peak) counters->block_bytes_peak = space->block_bytes;
}

static inline void count_free(vmm_pool *pool, bool ordered) {
  pool->counters.free_count++;
  if (ordered) pool->ordered_frees++;
}

static bool ready(const vmm_pool *pool) {
  return vmm__space_ready(&pool->space) && pool->space.records.free_count >= VMM__SPACE_READY_RECORDS + pool->promised;
}

static vmm__u64 cut(vmm_pool *pool, unsigned arena, const vmm__pool_request *request) {
  bool plain = (request->flags & VMM_REQUEST_ONE_MAPPING) == 0 && request->tag == 0 &&
               request->alignment == VMM__BLOCK_UNIT && request->size / VMM__BLOCK_UNIT <= VMM__QUICK_LARGEST_UNITS;
  vmm__u64 address =
      plain ? vmm__quick_alloc(&pool->space, arena, request->size / VMM__BLOCK_UNIT, request->requested) : 0;

  if (address != 0) return address;
  if ((request->flags & VMM_REQUEST_ONE_MAPPING) != 0)
    return vmm__space_alloc_within(&pool->space, arena, request->size, request->alignment, request->requested,
                                   request->tag, &pool->region.mappings);
  return vmm__space_alloc(&pool->space, arena, request->size, request->alignment, request->requested, request->tag);
}

/* What a capture takes becomes its lease's first, so that it sticks to it. */
static vmm__u64 cut_idle(vmm_pool *pool, const vmm__pool_request *request) {
  vmm__u64 address = cut(pool, VMM__ARENA_IDLE, request);

  if (address == 0 || !request->stream->leased) return address;
  (void)vmm__space_free(&pool->space, address, request->stream->open, NULL);
  return cut(pool, request->stream->open, request);
}

vmm__u64 vmm__pool_place(vmm_pool *pool, const vmm__pool_request *request) {
  vmm__space *space = &pool->space;
  vmm__u64 address;

  if (pool->closing || request->stream == NULL) return 0;
  /* Quick blocks never make the pool ask for host memory. */
  while (!ready(pool))
    if (!vmm__space_settle_some(space)) return 0;
  if (pool->alone != NULL && pool->alone != request->stream) vmm__pool_share(pool);
  address = cut(pool, request->stream->open, request);
  if (address == 0 && request->stream->open != VMM__ARENA_IDLE) address = cut_idle(pool, request);
  if (address != 0) count_alloc(pool, request->size);
  return address;
}

/* The part that the block needs is taken out of both arenas and put back as one. */
vmm__u64 vmm__pool_place_joined(vmm_pool *pool, const vmm__pool_request *request) {
  vmm__space *space = &pool->space;
  vmm__u64 address = vmm__pool_place(pool, request), start;
  unsigned own;

  if (address != 0 || pool->closing || request->stream == NULL || !ready(pool)) return address;
  own = request->stream->open;
  if (own == VMM__ARENA_IDLE || (request->flags & VMM_REQUEST_ONE_MAPPING) != 0) return 0;
  start = vmm__space_find_joined(space, own, VMM__ARENA_IDLE, request->size, request->alignment);
  if (start == 0) return 0;
  (void)vmm__space_take(space, start, request->size, NULL);
  vmm__space_add(space, own, start, request->size);
  return vmm__pool_place(pool, request);
}

vmm__u64 vmm__pool_revive(vmm_pool *pool, const vmm__pool_request *request) {
  vmm__u64 address = 0;

  vmm__lock_acquire(&pool->lock);
  if (vmm__pending_revive(pool, request)) address = vmm__pool_place(pool, request);
  vmm__lock_release(&pool->lock);
  return address;
}

void vmm__pool_count_failure(vmm_pool *pool) {
  vmm__lock_acquire(&pool->lock);
  pool->counters.alloc_failures++;
  vmm__lock_release(&pool->lock);
}

/* It may be a little more than was asked for. */
static vmm__u64 size_of_block(vmm_pool *pool, vmm__u64 address) {
  vmm__block block = {0, 0, 0, 0, VMM__ARENA_IDLE};

  vmm__lock_acquire(&pool->lock);
  (void)vmm__space_find(&pool->space, address, &block);
  vmm__lock_release(&pool->lock);
  return block.size;
}

/* The order of preference: what the stream freed itself and what is idle, what others freed and can be proven idle by now,
 * what a trim has not unmapped yet, growth, waiting for others. */
static vmm__u64 find_or_grow(vmm_pool *pool, vmm__work *work, const vmm__pool_request *request) {
  bool may_grow = (request->flags & VMM_REQUEST_NO_GROWTH) == 0;
  vmm__u64 placed = vmm__pool_place_with_records(pool, work, request);

  if (placed == 0 && work->status == VMM_OK) placed = vmm__pool_place_awaited(pool, request);
  if (placed == 0 && work->status == VMM_OK) placed = vmm__pool_gather(pool, work, request);
  if (placed == 0 && work->status == VMM_OK) placed = vmm__pool_revive(pool, request);
  if (placed == 0 && work->status == VMM_OK && (pool->prefer_wait || !may_grow))
    placed = vmm__pool_wait_for_streams(pool, work, request);
  if (placed != 0 || work->status != VMM_OK) return placed;
  if (may_grow) {
    (void)vmm__pool_grow_for(pool, work, request, &placed);
  } else {
    work->size = request->size;
    (void)vmm__work_fail(work, VMM_ERROR_OUT_OF_DEVICE_MEMORY, "nothing idle fits, and the request forbids growth");
  }
  return placed;
}

/* What did not fit, or must be scrubbed. */
static vmm_status slow(vmm_pool *pool, const vmm__pool_request *request, vmm__u64 placed, unsigned long long *address,
                       const char *function, vmm_error *error) {
  vmm__work work;

  vmm__work_start(&work, pool->device, function, request->deadline_ns);
  if (placed == 0 && vmm__device_lost(pool->device)) (void)vmm__work_fail(&work, VMM_ERROR_DEVICE_LOST, NULL);
  else if (placed == 0) placed = find_or_grow(pool, &work, request);
  if (work.status == VMM_OK && ((request->flags & VMM_REQUEST_SCRUB) != 0 || pool->scrub) &&
      vmm__pool_scrub(pool, &work, request->handle, placed, size_of_block(pool, placed)) != VMM_OK) {
    unsigned arena;

    vmm__lock_acquire(&pool->lock);
    /* The fill may be queued all the same, and an eager event is not behind it. */
    arena = request->stream->eager ? pool->limbo.open : request->stream->open;
    (void)vmm__space_free(&pool->space, placed, arena, NULL);
    pool->counters.alloc_count--;
    pool->counters.alloc_bytes -= request->size;
    vmm__lock_release(&pool->lock);
  }
  if (work.status == VMM_OK) *address = placed;
  else vmm__pool_count_failure(pool);
  vmm__pool_count_work(pool, &work);
  return vmm__work_finish(&work, error);
}

static vmm_status serve(vmm_pool *pool, const vmm__pool_request *request, unsigned long long *address,
                        const char *function, vmm_error *error) {
  vmm__u64 placed = 0;

  if (!vmm__device_lost(pool->device)) { /* the slow path says so */
    vmm__lock_acquire(&pool->lock);
    placed = vmm__pool_place(pool, request);
    vmm__lock_release(&pool->lock);
  }
  if (placed == 0 || pool->scrub || (request->flags & VMM_REQUEST_SCRUB) != 0)
    return slow(pool, request, placed, address, function, error);
  *address = placed;
  return VMM_OK;
}

vmm_status vmm__pool_alloc(vmm_pool *pool, vmm__pool_request *request, unsigned long long *address,
                           const char *function, vmm_error *error) {
  vmm_status status;

  if (vmm__captures_possible(pool->device)) {
    status = vmm__pool_join_capture(pool, request, function, error);
    if (status != VMM_OK) {
      vmm__pool_count_failure(pool);
      return status;
    }
  }
  status = serve(pool, request, address, function, error);
  vmm__pool_leave_capture(pool, request);
  return status;
}

static bool round_size(vmm__u64 requested, vmm__u64 *size) {
  return vmm__round_up(requested == 0 ? 1 : requested, VMM__BLOCK_UNIT, size);
}

static vmm_status too_large(const char *function, vmm_error *error) {
  return vmm__fail_in(error, VMM_ERROR_INVALID_ARGUMENT, function, "the size is too large to round up");
}

/* All of vmm_pool_alloc that its first try does not do. `placed`: what that found, or 0. */
static __attribute__((noinline)) vmm_status alloc_rest(vmm_pool *pool, vmm__u64 requested, vmm__u64 placed,
                                                       unsigned long long *address, vmm_error *error) {
  vmm__pool_request request = {0,
                               requested,
                               VMM__BLOCK_UNIT,
                               0,
                               0,
                               0,
                               pool == NULL ? NULL : pool->home_stream,
                               pool == NULL ? NULL : &pool->home};
  vmm_status status;

  if (address != NULL) *address = 0;
  status = vmm__pool_refuse(pool, address, "vmm_pool_alloc", error);
  if (status != VMM_OK) return status;
  if (!round_size(requested, &request.size)) return too_large("vmm_pool_alloc", error);
  if (placed != 0) return slow(pool, &request, placed, address, "vmm_pool_alloc", error);
  return vmm__pool_alloc(pool, &request, address, "vmm_pool_alloc", error);
}

/* The first try: the lock is free and a quick block serves. Most calls end here, so nothing is prepared for the others. */
vmm_status vmm_pool_alloc(vmm_pool *pool, unsigned long long size, unsigned long long *address, vmm_error *error) {
  vmm__u64 units = (size + (VMM__BLOCK_UNIT - 1)) / VMM__BLOCK_UNIT;
  vmm__u64 placed = 0;

  /* Size 0 and sizes that wrap give 0 units. */
  if (!vmm__forked() && pool != NULL && address != NULL && units - 1 < VMM__QUICK_LARGEST_UNITS &&
      !vmm__device_lost(pool->device) && !vmm__captures_possible(pool->device) && vmm__lock_try(&pool->lock)) {
    if (__builtin_expect(!pool->closing, 1)) placed = vmm__quick_alloc(&pool->space, pool->home.open, units, size);
    if (__builtin_expect(placed != 0, 1)) count_alloc(pool, units * VMM__BLOCK_UNIT);
    vmm__lock_untry(&pool->lock);
    if (__builtin_expect(placed != 0 && !pool->scrub, 1)) {
      *address = placed;
      return VMM_OK;
    }
  }
  return alloc_rest(pool, size, placed, address, error);
}

vmm_status vmm_request_init(vmm_request *request, size_t size) {
  return vmm__options_init(request, size, sizeof(vmm_request));
}

vmm_status vmm_pool_alloc_with(vmm_pool *pool, const vmm_request *given, unsigned long long *address,
                               vmm_error *error) {
  const unsigned known_flags =
      VMM_REQUEST_ONE_MAPPING | VMM_REQUEST_SCRUB | VMM_REQUEST_NO_GROWTH | VMM_REQUEST_ON_STREAM;
  vmm__pool_request request;
  vmm_request known;
  vmm_status status;

  if (address != NULL) *address = 0;
  status = vmm__pool_refuse(pool, address, "vmm_pool_alloc_with", error);
  if (status != VMM_OK) return status;
  if (given == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_alloc_with: request is NULL");
  status = vmm__options_read(&known, sizeof known, sizeof known, given, "vmm_request", error);
  if (status != VMM_OK) return status;
  request.requested = known.size;
  request.tag = known.tag;
  request.deadline_ns = known.deadline_ns;
  request.flags = known.flags;
  request.alignment = vmm__max(known.alignment, VMM__BLOCK_UNIT);
  if (!round_size(known.size, &request.size)) return too_large("vmm_pool_alloc_with", error);
  if ((known.alignment != 0 && !vmm__is_power_of_two(known.alignment)) || known.alignment > pool->region.size)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_pool_alloc_with: the alignment is no power of two, or larger than the reservation");
  if (known.reserved != 0)
    return vmm__fail(error, VMM_ERROR_VERSION, "vmm_request sets a field this version of the library does not know");
  if ((known.flags & ~known_flags) != 0)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_pool_alloc_with: unknown flag");
  if ((known.flags & VMM_REQUEST_ON_STREAM) == 0 && known.stream != NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_pool_alloc_with: a stream is given, but not the flag VMM_REQUEST_ON_STREAM");
  request.handle = (known.flags & VMM_REQUEST_ON_STREAM) != 0 ? known.stream : pool->home_stream;
  return vmm__pool_alloc_on(pool, &request, address, "vmm_pool_alloc_with", error);
}

vmm_status vmm__pool_not_a_block(vmm__u64 address, const char *function, vmm_error *error) {
  vmm_status status =
      vmm__fail_in(error, VMM_ERROR_UNKNOWN_ADDRESS, function,
                   "not the start of a live block of this pool: freed before, an inner address, or another pool's");

  if (error != NULL) error->address = address;
  return status;
}

bool vmm__pool_give(vmm_pool *pool, vmm__u64 address, const void *stream, unsigned arena, bool ordered) {
  if (ordered && vmm__captures_possible(pool->device)) {
    if (vmm__pool_shut_anothers(pool, address, stream)) return true;
    arena = vmm__pool_captured_arena(pool, stream, arena);
  }
  if (arena == VMM__ARENA_MIXED) {
    vmm__block block;

    pool->counters.fence_failures++;
    return vmm__space_find(&pool->space, address, &block) && block.address == address;
  }
  if (!vmm__quick_free(&pool->space, address, arena) && !vmm__space_free(&pool->space, address, arena, NULL))
    return false;
  count_free(pool, ordered);
  return true;
}

static inline unsigned arena_of_free(const vmm_pool *pool, bool ordered) {
  return ordered ? pool->home.open : vmm__pool_vouched_arena(pool);
}

/* All of a free that its first try does not do. */
static __attribute__((noinline)) vmm_status free_rest(vmm_pool *pool, vmm__u64 address, bool ordered,
                                                      const char *function, vmm_error *error) {
  vmm_status status = vmm__pool_refuse(pool, pool, function, error);
  bool found, captured;

  if (status != VMM_OK) return status;
  captured = ordered && vmm__captured_unannounced(pool->device, pool->home_stream);
  vmm__lock_acquire(&pool->lock);
  found = vmm__pool_give(pool, address, pool->home_stream, captured ? VMM__ARENA_MIXED : arena_of_free(pool, ordered),
                         ordered);
  vmm__lock_release(&pool->lock);
  return found ? VMM_OK : vmm__pool_not_a_block(address, function, error);
}

__attribute__((always_inline)) static inline bool free_quickly(vmm_pool *pool, vmm__u64 address, bool ordered) {
  vmm__slots_sought sought;
  bool found;

  if (vmm__forked() || pool == NULL || vmm__captures_possible(pool->device)) return false;
  sought = vmm__slots_seek(&pool->space.slots, address);
  vmm__slots_prefetch(&pool->space.slots, sought); /* on its way while the lock is taken */
  if (!vmm__lock_try(&pool->lock)) return false;
  found = vmm__quick_free_sought(&pool->space, sought, arena_of_free(pool, ordered));
  if (__builtin_expect(found, 1)) count_free(pool, ordered);
  vmm__lock_untry(&pool->lock);
  return __builtin_expect(found, 1);
}

vmm_status vmm_pool_free(vmm_pool *pool, unsigned long long address, vmm_error *error) {
  return free_quickly(pool, address, true) ? VMM_OK : free_rest(pool, address, true, "vmm_pool_free", error);
}

vmm_status vmm_pool_free_idle(vmm_pool *pool, unsigned long long address, vmm_error *error) {
  return free_quickly(pool, address, false) ? VMM_OK : free_rest(pool, address, false, "vmm_pool_free_idle", error);
}

static vmm_status fill(vmm__work *work, void *stream, vmm__u64 address, vmm__u64 size) {
  CU_CHECK(work, address, size, memset_d8_async, (work->device, address, 0, (size_t)size, stream));
undo:
  return work->status;
}

vmm_status vmm__pool_scrub(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 address, vmm__u64 size) {
  vmm__work_unlock(work);
  if (vmm__work_enter(work) != VMM_OK) return work->status;
  if (vmm__stream_use(work, stream) == VMM_OK) {
    (void)fill(work, stream, address, size);
    vmm__stream_unuse(pool->device);
    /* Whatever it answered the fill may be queued. */
    vmm__lock_acquire(&pool->lock);
    pool->scrubbed = ++pool->ordered_frees;
    vmm__lock_release(&pool->lock);
  }
  vmm__work_leave(work);
  return work->status;
}
