/* What a growth is made of before the driver is asked for more: handles that lie idle on the device, and idle mappings of
 * the pool's own that lie in holes too small for the request. A handle maps whole, so the growth takes their sizes. */
#include "device/handles.h"
#include "pool/plan.h"
#include "pool/ready.h"

/* Mappings that may be moved, the largest first, the higher of two that are equal: low addresses are where new blocks go. */
static size_t find_mappings(vmm_pool *pool, const vmm__plan *plan, vmm__part *found) {
  vmm__idle_walk walk = {{0, 0, 0, 0}, 0, 0};
  const vmm__mapping *mapping;
  size_t count = 0, i;

  while ((mapping = vmm__idle_next(pool, &walk)) != NULL) {
    const vmm__u64 size = mapping->size, end = mapping->address + size;

    if (mapping->address < plan->address && end > plan->address - plan->tail) continue;
    if (!vmm__idle_is_proven(pool, mapping)) continue;
    if (count == VMM__PARTS_MOST && size <= found[VMM__PARTS_MOST - 1].size) continue;
    for (i = count == VMM__PARTS_MOST ? VMM__PARTS_MOST - 1 : count++; i > 0; i--) {
      if (found[i - 1].size > size || (found[i - 1].size == size && found[i - 1].from > mapping->address)) break;
      found[i] = found[i - 1];
    }
    found[i] = (vmm__part){VMM__PART_MAPPING, size, mapping->address, NULL};
  }
  return count;
}

/* Adds parts until `rest` bytes more are there, of what was found, the largest first: always the smallest that is enough
 * alone, else the largest. Returns the bytes added, at most `room`. */
static vmm__u64 pick(const vmm__part *found, size_t count, vmm__u64 rest, vmm__u64 room, vmm__parts *parts) {
  vmm__u64 bytes = 0;
  size_t first = 0, i;

  while (bytes < rest && first < count && parts->count < VMM__PARTS_MOST) {
    for (i = first; i + 1 < count && found[i + 1].size >= rest - bytes; i++) {
    }
    if (found[i].size <= room - bytes) {
      parts->part[parts->count++] = found[i];
      bytes += found[i].size;
    }
    first = i + 1;
  }
  parts->bytes += bytes;
  return bytes;
}

static void pick_handles(vmm__part_kind kind, const vmm__u64 *sizes, size_t count, vmm__u64 most, vmm__plan *plan) {
  vmm__part found[VMM__PARTS_MOST];
  size_t i;

  for (i = 0; i < count; i++) found[i] = (vmm__part){kind, sizes[i], 0, NULL};
  (void)pick(found, count, vmm__saturating_sub(plan->need, plan->parts.bytes), most - plan->parts.bytes, &plan->parts);
}

void vmm__plan_handles(vmm_pool *pool, const vmm__pool_request *request, vmm__u64 most, vmm__plan *plan) {
  vmm__u64 sizes[VMM__PARTS_MOST], smallest = vmm__min(pool->mapping_min, plan->need), largest = pool->mapping_max;

  plan->parts.count = 0;
  plan->parts.bytes = 0;
  if (request != NULL) largest = vmm__max(largest, plan->need);
  if (request != NULL && (request->flags & VMM_REQUEST_ONE_MAPPING) != 0) smallest = plan->need;
  pick_handles(VMM__PART_READY, sizes, vmm__ready_sizes(pool, smallest, sizes, VMM__PARTS_MOST), most, plan);
  if (plan->parts.bytes >= plan->need) return;
  pick_handles(VMM__PART_IDLE, sizes,
               vmm__handles_sizes(pool->device, smallest, largest, pool->region.granularity, sizes, VMM__PARTS_MOST),
               most, plan);
}

void vmm__plan_idle_mappings(vmm_pool *pool, vmm__u64 room, vmm__plan *plan) {
  vmm__part found[VMM__PARTS_MOST];
  vmm__parts *parts = &plan->parts;

  plan->moved = pick(found, find_mappings(pool, plan, found), plan->need - parts->bytes, room - parts->bytes, parts);
}
