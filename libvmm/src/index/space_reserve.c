/* The free space of a pool: beginning, end, and reserving records, hash slots and arenas ahead of need. */
#include <string.h>

#include "index/space_inner.h"

#define FIRST_SLOTS_LOG2 11u     /* also a few blocks leave some hundred quick ones */
#define RECORDS_PER_OPERATION 2u /* an aligned alloc out of the middle of a range takes two */
#define RECORDS_PER_BLOCK 2u     /* with the free range behind it */
#define RECORDS_BESIDES 64u      /* the sentinel, what ready asks for, and free ranges between holes */

#define TABLE_BITS 22u /* of a hint: log2 of the longest chunk table, and 1 */

struct vmm__space_spare {
  vmm__records_spare records;
  void *slots_memory;
  vmm__u64 slot_count;
  vmm__arena *arenas;
};

/* A hint is: chunks to add in bits 0-23, log2 of the slots to have in 24-31, length of the chunk table in 32-53, arenas to
 * add in 54-63. */
static vmm__u64 hint_of(uint32_t chunks, unsigned slots_log2, uint32_t table, unsigned arenas) {
  return chunks | ((vmm__u64)slots_log2 << 24) | ((vmm__u64)table << 32) | ((vmm__u64)arenas << (32 + TABLE_BITS));
}

void vmm__space_init(vmm__space *space, const vmm_host_memory *memory, vmm__u64 base) {
  memset(space, 0, sizeof *space);
  vmm__records_init(&space->records);
  space->memory = *memory;
  space->base = base;
  vmm__slots_init(&space->slots, base, &space->records);
  vmm__arena_enter(space, &space->first);
  space->ids[VMM__ARENA_IDLE].open = true;
}

static void release_arenas(const vmm_host_memory *memory, vmm__arena *arena) {
  while (arena != NULL) {
    vmm__arena *next = arena->next;

    vmm__memory_release(memory, arena, 1, sizeof *arena);
    arena = next;
  }
}

void vmm__space_destroy(vmm__space *space) {
  release_arenas(&space->memory, space->allocated);
  vmm__records_destroy(&space->records, &space->memory);
  vmm__memory_release(&space->memory, space->slots_memory, vmm__slots_bytes(space->slots.table.count), 1);
  vmm__space_init(space, &space->memory, space->base);
}

static vmm__u64 record_total(const vmm__space *space) {
  return (vmm__u64)space->records.chunk_count * VMM__RECORDS_PER_CHUNK;
}

/* Blocks there is room for in the hash, and in the records however fragmented the space becomes: so a number of blocks
 * that was reached once can be churned for ever without reserving anything. */
static void set_block_limit(vmm__space *space) {
  vmm__u64 blocks = vmm__saturating_sub(record_total(space), RECORDS_BESIDES) / RECORDS_PER_BLOCK;

  space->block_limit = vmm__min(vmm__slots_room(space->slots.table.count), blocks);
}

/* Arenas that are missing until `arenas` can be opened, or until there are all there can be. */
static unsigned arenas_needed(const vmm__space *space, unsigned arenas) {
  unsigned missing = arenas <= space->free_ids ? 0 : arenas - space->free_ids;

  return missing < VMM__ARENAS - space->arena_count ? missing : VMM__ARENAS - space->arena_count;
}

vmm__u64 vmm__space_short(const vmm__space *space, vmm__u64 operations, unsigned arenas) {
  vmm__u64 operate = vmm__min(vmm__max(operations, 1), 1ull << 40);
  vmm__u64 blocks = space->block_count + operate;
  vmm__u64 total = blocks * RECORDS_PER_BLOCK + RECORDS_BESIDES;
  vmm__u64 missing = vmm__saturating_sub(total, record_total(space));
  vmm__u64 records = VMM__SPACE_READY_RECORDS + operate * RECORDS_PER_OPERATION;
  uint32_t chunks = vmm__records_needed(&space->records, vmm__max(records, space->records.free_count + missing));
  unsigned slots_log2 = 0, more = arenas_needed(space, arenas);

  if (blocks > vmm__slots_room(space->slots.table.count)) {
    slots_log2 = FIRST_SLOTS_LOG2;
    while (slots_log2 <= VMM__MOST_SLOTS_LOG2 && vmm__slots_room(1ull << slots_log2) < blocks) slots_log2++;
  }
  if (chunks == 0 && slots_log2 == 0 && more == 0) return 0;
  return hint_of(chunks, slots_log2, chunks == 0 ? 0 : vmm__records_table_needed(&space->records, chunks), more);
}

static bool make_arenas(vmm__space_spare *spare, const vmm_host_memory *memory, unsigned count) {
  for (; count != 0; count--) {
    vmm__arena *arena = vmm__memory_allocate(memory, 1, sizeof *arena);

    if (arena == NULL) return false;
    arena->next = spare->arenas;
    spare->arenas = arena;
  }
  return true;
}

vmm__space_spare *vmm__space_spare_make(const vmm_host_memory *memory, vmm__u64 hint) {
  vmm__space_spare *spare = vmm__memory_allocate(memory, 1, sizeof *spare);
  uint32_t chunks = (uint32_t)(hint & 0xFFFFFF), table = (uint32_t)(hint >> 32) & ((1u << TABLE_BITS) - 1);
  unsigned slots_log2 = (unsigned)(hint >> 24) & 0xFF, arenas = (unsigned)(hint >> (32 + TABLE_BITS));

  if (spare == NULL) return NULL;
  if (!vmm__records_prepare(&spare->records, memory, chunks, table)) goto fail;
  if (!make_arenas(spare, memory, arenas)) goto fail;
  if (slots_log2 > VMM__MOST_SLOTS_LOG2) goto fail; /* places end there */
  if (slots_log2 != 0) {
    spare->slot_count = 1ull << slots_log2;
    spare->slots_memory = vmm__memory_allocate(memory, vmm__slots_bytes(spare->slot_count), 1);
    if (spare->slots_memory == NULL) goto fail;
  }
  return spare;
fail:
  vmm__space_spare_release(memory, spare);
  return NULL;
}

void vmm__space_spare_adopt(vmm__space *space, vmm__space_spare *spare) {
  vmm__records_adopt(&space->records, &spare->records);
  set_block_limit(space);
  if (spare->slot_count > space->slots.table.count) {
    void *memory = spare->slots_memory;
    vmm__slot_table old = vmm__slots_renew(&space->slots, memory, spare->slot_count);

    for (unsigned label = 0; label < space->arena_count; label++) vmm__quick_bring(space, space->labels[label], &old);
    spare->slots_memory = space->slots_memory;
    spare->slot_count = old.count;
    space->slots_memory = memory;
    set_block_limit(space);
  }
  while (spare->arenas != NULL && space->arena_count < VMM__ARENAS) {
    vmm__arena *arena = spare->arenas;

    spare->arenas = arena->next;
    vmm__arena_adopt(space, arena);
  }
}

void vmm__space_spare_release(const vmm_host_memory *memory, vmm__space_spare *spare) {
  if (spare == NULL) return;
  vmm__records_release(&spare->records, memory);
  release_arenas(memory, spare->arenas);
  vmm__memory_release(memory, spare->slots_memory, vmm__slots_bytes(spare->slot_count), 1);
  vmm__memory_release(memory, spare, 1, sizeof *spare);
}
