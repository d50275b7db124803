/* Which mappings are idle: what trim may take, and what statistics call trimmable. */
#include "pool/pool.h"

vmm__mapping *vmm__idle_next(vmm_pool *pool, vmm__idle_walk *walk) {
  vmm__mappings *table = &pool->region.mappings;
  vmm__u64 address, length;

  for (;;) {
    while (walk->i < table->count) {
      vmm__mapping *mapping = vmm__mappings_at(table, walk->i);

      if (mapping->address >= walk->end || walk->end - mapping->address < mapping->size) break;
      walk->i++;
      if (mapping->state != VMM_MAPPING_LIVE) continue;
      if (pool->lease_count != 0 && vmm__space_sticks(&pool->space, mapping->address, mapping->size)) continue;
      return mapping;
    }
    if (!vmm__space_next_free(&pool->space, &walk->ranges, pool->region.granularity, &address, &length)) return NULL;
    walk->i = vmm__mappings_lower_bound(table, address);
    if (walk->i < table->count && vmm__mappings_at(table, walk->i)->address < address)
      walk->i++; /* free from its middle */
    walk->end = address + length;
  }
}

/* While one stream is alone the idle arena is its own. */
bool vmm__idle_is_proven(vmm_pool *pool, const vmm__mapping *mapping) {
  unsigned arena = VMM__ARENA_MIXED;

  if (pool->ordered_frees == pool->fenced_frees) return true;
  return pool->alone == NULL && vmm__space_arena_of(&pool->space, mapping->address, mapping->size, &arena) &&
         arena == VMM__ARENA_IDLE;
}
