/* Which streams use a pool: entries come with the first allocation on a stream and go when it is forgotten. */
#include "pool/streams.h"

#include "base/memory.h"
#include "device/streams.h"
#include "pool/pool.h"

enum { ARENAS_PER_STREAM = 2 };

static vmm__pool_stream *new_entry(vmm_pool *pool) {
  return vmm__memory_allocate(&pool->device->memory, 1, sizeof(vmm__pool_stream));
}

/* False if there are as many as there can be. */
static bool open_arenas(vmm_pool *pool, vmm__pool_stream *entry) {
  entry->open = vmm__space_arena_open(&pool->space);
  entry->sealed = vmm__space_arena_open(&pool->space);
  if (entry->sealed != VMM__ARENA_IDLE) return true;
  if (entry->open != VMM__ARENA_IDLE) vmm__space_arena_close(&pool->space, entry->open);
  return false;
}

static void be_alone(vmm_pool *pool, vmm__pool_stream *entry) {
  entry->own = entry->open;
  entry->open = VMM__ARENA_IDLE;
  pool->alone = entry;
}

/* Limbo is there from the start: a free on a stream that is not known must not need anything. */
vmm_status vmm__pool_streams_open(vmm_pool *pool, vmm__work *work) {
  if (vmm__pool_reserve(pool, work, 0, 2 * ARENAS_PER_STREAM + 1) != VMM_OK) return work->status;
  pool->home.stream = pool->home_stream;
  pool->limbo.whole = true;
  (void)open_arenas(pool, &pool->home);
  (void)open_arenas(pool, &pool->limbo);
  pool->shut = vmm__space_arena_open(&pool->space);
  vmm__space_arena_stick(&pool->space, pool->shut);
  pool->home.serial = ++pool->serials;
  pool->home.next = &pool->limbo;
  pool->streams = &pool->home;
  be_alone(pool, &pool->home);
  vmm__lock_release(&pool->lock);
  return VMM_OK;
}

static void end_events(vmm__work *work, const vmm__pool_stream *entry) {
  if (entry->event != NULL) (void)CU_UNDO(work, event_destroy, (work->device, entry->event));
  if (entry->next_event != NULL) (void)CU_UNDO(work, event_destroy, (work->device, entry->next_event));
}

void vmm__pool_streams_close(vmm_pool *pool, vmm__work *work) {
  while (pool->streams != NULL) {
    vmm__pool_stream *entry = pool->streams;

    pool->streams = entry->next;
    end_events(work, entry);
    if (entry != &pool->home && entry != &pool->limbo)
      vmm__memory_release(&pool->device->memory, entry, 1, sizeof *entry);
  }
}

vmm__pool_stream *vmm__pool_stream_find(vmm_pool *pool, const void *stream, vmm__u64 id) {
  vmm__pool_stream *entry;

  for (entry = pool->streams; entry != NULL; entry = entry->next) {
    if (entry->whole || entry->forgotten || entry->id != id) continue;
    if (id != 0 || vmm__stream_is_same(entry->stream, stream)) return entry;
  }
  return NULL;
}

vmm_status vmm__pool_stream_id(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 *id) {
  unsigned long long number = 0;

  *id = 0;
  if (vmm__pool_knows_by_handle(pool, stream)) return VMM_OK;
  if (vmm__work_enter(work) != VMM_OK) return work->status;
  CU_CHECK(work, 0, 0, stream_get_id, (pool->device, stream, &number));
  *id = vmm__saturating_add(number, 1); /* 0 is none */
undo:
  vmm__work_leave(work);
  return work->status;
}

/* ---- alone, and no more ---- */

void vmm__pool_share(vmm_pool *pool) {
  vmm__pool_stream *sole = pool->alone;

  if (sole == NULL) return;
  pool->alone = NULL;
  sole->open = sole->own;
  if (pool->ordered_frees != pool->fenced_frees) vmm__space_arena_merge(&pool->space, VMM__ARENA_IDLE, sole->open);
}

/* Whether nobody has used the pool yet, so that the next may have it alone. */
static bool unused(const vmm_pool *pool) {
  return pool->alone == &pool->home && pool->counters.alloc_count == 0 && pool->ordered_frees == 0;
}

/* Pool lock. The home stream stays the first of the list, so that its head never changes. */
static bool enter_list(vmm_pool *pool, vmm__pool_stream *entry) {
  bool first = unused(pool);

  if (!open_arenas(pool, entry)) return false;
  vmm__pool_share(pool);
  if (first) be_alone(pool, entry);
  entry->serial = ++pool->serials;
  entry->next = pool->home.next;
  pool->home.next = entry;
  pool->stream_count++;
  return true;
}

/* ---- admit ---- */

static vmm_status make_event(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry) {
  if (!entry->eager || vmm__work_enter(work) != VMM_OK) return work->status; /* stays inside, for discard */
  CU_CHECK(work, 0, 0, event_create, (pool->device, &entry->next_event, VMM__EVENT_NO_TIMING));
undo:
  return work->status;
}

static void discard(vmm_pool *pool, vmm__work *work, vmm__pool_stream *entry) {
  end_events(work, entry);
  vmm__memory_release(&pool->device->memory, entry, 1, sizeof *entry);
}

void vmm__pool_stream_let_go(vmm_pool *pool, vmm__pool_stream *entry) {
  vmm__lock_acquire(&pool->lock);
  entry->users--;
  vmm__lock_release(&pool->lock);
}

/* Pool lock. */
static vmm__pool_stream *find_and_hold(vmm_pool *pool, const void *stream, vmm__u64 id) {
  vmm__pool_stream *entry = vmm__pool_stream_find(pool, stream, id);

  if (entry != NULL) entry->users++;
  return entry;
}

/* Arenas for one more, with the pool lock held as vmm__pool_reserve leaves it. Nobody says when a stream with eager
 * events ends: where they take all arenas there are, they go. */
static vmm_status reserve_own(vmm_pool *pool, vmm__work *work) {
  if (vmm__pool_reserve(pool, work, 0, ARENAS_PER_STREAM) != VMM_OK) return work->status;
  if (pool->space.free_ids >= ARENAS_PER_STREAM) return VMM_OK;
  vmm__lock_release(&pool->lock);
  vmm__pool_give_up_eager(pool, work);
  return vmm__pool_reserve(pool, work, 0, ARENAS_PER_STREAM);
}

vmm_status vmm__pool_stream_admit(vmm_pool *pool, vmm__work *work, void *stream, vmm__u64 id, vmm__pool_stream **out) {
  vmm__pool_stream *entry;
  bool many;

  vmm__lock_acquire(&pool->lock);
  *out = find_and_hold(pool, stream, id);
  many = pool->stream_count > VMM__MANY_STREAMS;
  vmm__lock_release(&pool->lock);
  if (*out != NULL) return VMM_OK;
  if (many) vmm__pool_tidy(pool, work, false);
  entry = new_entry(pool);
  if (entry == NULL) return vmm__work_fail(work, VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
  entry->stream = id == 0 ? stream : NULL;
  entry->id = id;
  entry->eager = id != 0;
  if (make_event(pool, work, entry) != VMM_OK || reserve_own(pool, work) != VMM_OK) {
    discard(pool, work, entry);
    vmm__work_leave(work);
    return work->status;
  }
  *out = find_and_hold(pool, stream, id); /* another thread may have been first */
  if (*out == NULL && enter_list(pool, entry)) {
    *out = find_and_hold(pool, stream, id);
    entry = NULL;
  }
  vmm__lock_release(&pool->lock);
  if (entry != NULL) discard(pool, work, entry);
  vmm__work_leave(work);
  return *out != NULL
             ? VMM_OK
             : vmm__work_fail(
                   work, VMM_ERROR_UNSUPPORTED,
                   "the pool cannot tell more streams apart; forget those that ended, or release leases of graphs "
                   "that are gone");
}

/* ---- the end of entries ---- */

/* Whether an entry can go: its stream is forgotten, or it is one of many that nobody uses. Pool lock. */
static bool is_ended(const vmm_pool *pool, const vmm__pool_stream *entry) {
  if (entry->pending || entry == pool->alone || entry->users != 0) return false;
  if (entry->forgotten) return true;
  return entry->eager && pool->stream_count > VMM__MANY_STREAMS &&
         vmm__space_arena_bytes(&pool->space, entry->open) == 0;
}

/* Takes an entry out of the list that nothing is behind any more; NULL if there is none. */
static vmm__pool_stream *take_ended(vmm_pool *pool) {
  vmm__pool_stream **link, *entry = NULL;

  vmm__lock_acquire(&pool->lock);
  for (link = &pool->streams; *link != NULL; link = &(*link)->next) {
    if (!is_ended(pool, *link)) continue;
    entry = *link;
    *link = entry->next;
    /* What an allocation under way brought while the stream was forgotten. */
    vmm__space_arena_merge(&pool->space, entry->open, pool->limbo.open);
    vmm__space_arena_close(&pool->space, entry->open);
    vmm__space_arena_close(&pool->space, entry->sealed);
    pool->stream_count--;
    break;
  }
  vmm__lock_release(&pool->lock);
  return entry;
}

void vmm__pool_streams_sweep(vmm_pool *pool) {
  vmm__pool_stream *entry;

  while ((entry = take_ended(pool)) != NULL) {
    if (entry->event != NULL) (void)vmm__cu_event_destroy(pool->device, entry->event);
    if (entry->next_event != NULL) (void)vmm__cu_event_destroy(pool->device, entry->next_event);
    vmm__memory_release(&pool->device->memory, entry, 1, sizeof *entry);
  }
}

const char *vmm__pool_streams_check(vmm_pool *pool) {
  const vmm__pool_stream *entry;
  const vmm__pool_lease *lease;
  vmm__u64 bytes = vmm__space_arena_bytes(&pool->space, VMM__ARENA_IDLE), count = 0, leases = 0;

  for (entry = pool->streams; entry != NULL; entry = entry->next) {
    if (entry != &pool->home && entry != &pool->limbo) count++;
    if (entry == pool->alone) {
      if (entry->open != VMM__ARENA_IDLE || entry->pending || vmm__space_arena_bytes(&pool->space, entry->own) != 0)
        return "a stream that is alone has memory of its own";
      continue;
    }
    if (entry->open == VMM__ARENA_IDLE || entry->open == entry->sealed) return "a stream has no arena of its own";
    if (!entry->pending && vmm__space_arena_bytes(&pool->space, entry->sealed) != 0)
      return "memory lies behind a seal that is none";
    bytes += vmm__space_arena_bytes(&pool->space, entry->open) + vmm__space_arena_bytes(&pool->space, entry->sealed);
  }
  for (lease = pool->leases; lease != NULL; lease = lease->next) {
    bytes += vmm__space_arena_bytes(&pool->space, lease->entry.open);
    leases += lease->id != 0;
    if (lease->id == 0 && vmm__space_arena_bytes(&pool->space, lease->entry.open) != 0)
      return "a spare lease holds memory";
  }
  bytes += vmm__space_arena_bytes(&pool->space, pool->shut);
  if (leases != pool->lease_count) return "the leases are not as many as counted";
  if (count != pool->stream_count) return "the streams are not as many as counted";
  if (bytes != vmm__space_free_bytes(&pool->space)) return "free memory lies in an arena of nobody's";
  return NULL;
}
