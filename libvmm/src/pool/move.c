/* Idle backing in holes is moved, without a copy, to where a growth needs it: out of the index, unmapped, and its handles
 * mapped again as parts of the new range. So a pool whose free memory is scattered does not hold more than it needs. */
#include "device/handles.h"
#include "device/streams.h"
#include "pool/pending.h"
#include "pool/plan.h"
#include "pool/ready.h"
#include "region/plain.h"

static bool has_idle(vmm_pool *pool) {
  vmm__idle_walk walk = {{0, 0, 0, 0}, 0, 0};

  return vmm__idle_next(pool, &walk) != NULL;
}

/* Whether work may still use what is free, and moving it would help. */
static bool in_doubt(vmm_pool *pool, vmm__u64 *frees, bool *outstanding) {
  bool doubt;

  vmm__lock_acquire(&pool->lock);
  *frees = pool->ordered_frees;
  *outstanding = pool->fence_frees != 0;
  doubt = pool->ordered_frees != pool->fenced_frees && has_idle(pool);
  vmm__lock_release(&pool->lock);
  return doubt;
}

/* Its own NOT_READYs must not cost the budget of the growth, which goes on without. A fence on its way is asked first: it
 * must not be moved later for those who wait for it. */
void vmm__pool_prove_idle(vmm_pool *pool, vmm__work *work) {
  vmm__work ask = *work;
  vmm__u64 frees;
  bool outstanding;

  ask.attempts_left = 0;
  if (!in_doubt(pool, &frees, &outstanding)) return;
  if (outstanding && vmm__pending_look(pool, &ask) != VMM_OK) return;
  if (outstanding && (!in_doubt(pool, &frees, &outstanding) || outstanding)) return;
  if (vmm__pending_record(pool, &ask, frees) == VMM_OK) (void)vmm__pending_look(pool, &ask);
}

void vmm__parts_detach(vmm_pool *pool, vmm__parts *parts) {
  const vmm__u64 guard = pool->region.plain ? VMM__PLAIN_GUARD : 0;
  size_t i;

  for (i = 0; i < parts->count; i++) {
    const vmm__part *part = &parts->part[i];

    if (part->kind == VMM__PART_READY) parts->part[i].handle = vmm__ready_pop(pool, part->size + guard);
    if (part->kind != VMM__PART_MAPPING) continue;
    (void)vmm__space_take(&pool->space, part->from, part->size, NULL);
    vmm__mappings_find(&pool->region.mappings, part->from)->state = VMM__MAPPING_LEAVING;
  }
}

bool vmm__parts_take_down(vmm_pool *pool, vmm__work *work, vmm__parts *parts) {
  size_t i;

  for (i = 0; i < parts->count; i++) {
    vmm__part *part = &parts->part[i];
    vmm__decommit_result result;

    if (part->kind != VMM__PART_MAPPING || part->handle != NULL) continue;
    result = vmm__region_take_down(&pool->region, work, part->from, &part->handle);
    if (result == VMM__DECOMMIT_KEPT) break;
    vmm__lock_acquire(&pool->lock);
    if (result == VMM__DECOMMIT_GONE) pool->counters.moved_bytes += part->size;
    else pool->counters.quarantined_bytes += part->size;
    vmm__lock_release(&pool->lock);
    if (result == VMM__DECOMMIT_GONE) continue;
    (void)vmm__work_undone(work, work->code != 0 ? work->code : VMM_CODE_UNKNOWN);
    break;
  }
  if (vmm__device_lost(pool->device)) vmm__work_probe(work); /* the status says so */
  else if (i == parts->count) return true;
  else vmm__work_forget(work);
  return false;
}

void vmm__parts_put_back(vmm_pool *pool, vmm__parts *parts) {
  size_t i;

  for (i = 0; i < parts->count; i++) {
    vmm__part *part = &parts->part[i];
    vmm__mapping *mapping = NULL;

    if (part->kind == VMM__PART_READY && part->handle != NULL) {
      vmm__ready_push(pool, part->handle);
      part->handle = NULL;
    }
    if (part->kind == VMM__PART_MAPPING && part->handle == NULL)
      mapping = vmm__mappings_find(&pool->region.mappings, part->from);
    if (mapping == NULL || mapping->state != VMM__MAPPING_LEAVING) continue;
    mapping->state = VMM_MAPPING_LIVE;
    vmm__space_add(&pool->space, VMM__ARENA_IDLE, part->from, part->size);
  }
}

void vmm__parts_give(vmm__work *work, vmm__parts *parts) {
  size_t i;

  for (i = 0; i < parts->count; i++) {
    vmm__part *part = &parts->part[i];

    if (part->handle != NULL) work->gave_back += vmm__handle_give(work, part->handle);
    part->handle = NULL;
  }
}
