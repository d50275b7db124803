/* The free space of a pool: beginning, end, and reserving records and hash slots ahead of need. */
#include <string.h>

#include "index/space_inner.h"

#define FIRST_SLOTS_LOG2 10u
#define MOST_SLOTS_LOG2 31u
#define RECORDS_PER_OPERATION 2u /* an aligned alloc out of the middle of a range takes two */
#define RECORDS_PER_BLOCK 2u     /* with the free range behind it */
#define RECORDS_BESIDES 64u      /* the sentinel, what ready asks for, and free ranges between holes */

struct vmm__space_spare {
  vmm__records_spare records;
  vmm__u64 *slots;
  vmm__u64 slot_count;
};

/* A hint is: chunks to add in bits 0-23, log2 of the slots to have in 24-31, length of the chunk table in 32-63. */
static vmm__u64 hint_of(uint32_t chunks, unsigned slots_log2, uint32_t table) {
  return chunks | ((vmm__u64)slots_log2 << 24) | ((vmm__u64)table << 32);
}

void vmm__space_init(vmm__space *space, const vmm_host_memory *memory, vmm__u64 base, vmm__u64 unit) {
  memset(space, 0, sizeof *space);
  vmm__records_init(&space->records);
  space->memory = *memory;
  space->base = base;
  space->unit_shift = vmm__highest_bit(unit);
}

void vmm__space_destroy(vmm__space *space) {
  vmm__records_destroy(&space->records, &space->memory);
  vmm__memory_release(&space->memory, space->slots, space->slot_count, sizeof *space->slots);
  space->slots = NULL;
  vmm__space_init(space, &space->memory, space->base, 1ull << space->unit_shift);
}

static vmm__u64 record_total(const vmm__space *space) {
  return (vmm__u64)space->records.chunk_count * VMM__RECORDS_PER_CHUNK;
}

/* Blocks there is room for in the hash, and in the records however fragmented the space becomes: so a number of blocks
 * that was reached once can be churned for ever without reserving anything. */
static void set_block_limit(vmm__space *space) {
  vmm__u64 blocks = vmm__saturating_sub(record_total(space), RECORDS_BESIDES) / RECORDS_PER_BLOCK;

  space->block_limit = vmm__min(space->slot_count / 2, blocks);
}

vmm__u64 vmm__space_short(const vmm__space *space, vmm__u64 operations) {
  vmm__u64 operate = vmm__min(vmm__max(operations, 1), 1ull << 40);
  vmm__u64 blocks = space->block_count + operate;
  vmm__u64 total = blocks * RECORDS_PER_BLOCK + RECORDS_BESIDES;
  vmm__u64 missing = vmm__saturating_sub(total, record_total(space));
  vmm__u64 records = VMM__SPACE_READY_RECORDS + operate * RECORDS_PER_OPERATION;
  uint32_t chunks = vmm__records_needed(&space->records, vmm__max(records, space->records.free_count + missing));
  unsigned slots_log2 = 0;

  if (blocks > space->slot_count / 2) {
    slots_log2 = FIRST_SLOTS_LOG2;
    while (slots_log2 < MOST_SLOTS_LOG2 && (1ull << slots_log2) / 2 < blocks) slots_log2++;
  }
  if (chunks == 0 && slots_log2 == 0) return 0;
  return hint_of(chunks, slots_log2, chunks == 0 ? 0 : vmm__records_table_needed(&space->records, chunks));
}

vmm__space_spare *vmm__space_spare_make(const vmm_host_memory *memory, vmm__u64 hint) {
  vmm__space_spare *spare = vmm__memory_allocate(memory, 1, sizeof *spare);
  uint32_t chunks = (uint32_t)(hint & 0xFFFFFF), table = (uint32_t)(hint >> 32);
  unsigned slots_log2 = (unsigned)(hint >> 24) & 0xFF;

  if (spare == NULL) return NULL;
  if (!vmm__records_prepare(&spare->records, memory, chunks, table)) goto fail;
  if (slots_log2 != 0) {
    spare->slot_count = 1ull << slots_log2;
    spare->slots = vmm__memory_allocate(memory, spare->slot_count, sizeof *spare->slots);
    if (spare->slots == NULL) goto fail;
  }
  return spare;
fail:
  vmm__space_spare_release(memory, spare);
  return NULL;
}

void vmm__space_spare_adopt(vmm__space *space, vmm__space_spare *spare) {
  vmm__records_adopt(&space->records, &spare->records);
  set_block_limit(space);
  if (spare->slot_count > space->slot_count) {
    vmm__u64 *old = space->slots;
    vmm__u64 old_count = space->slot_count;
    unsigned shift = 32 - vmm__lowest_bit(spare->slot_count);

    /* A slot holds its hash, whose top bits are the place: the records are not touched, and both tables are walked from
     * one end to the other. */
    for (vmm__u64 i = 0; i < old_count; i++) {
      if (old[i] != 0) vmm__slot_insert(spare->slots, spare->slot_count, shift, old[i]);
    }
    space->slots = spare->slots;
    space->slot_count = spare->slot_count;
    space->slot_shift = shift;
    spare->slots = old;
    spare->slot_count = old_count;
    set_block_limit(space);
  }
}

void vmm__space_spare_release(const vmm_host_memory *memory, vmm__space_spare *spare) {
  if (spare == NULL) return;
  vmm__records_release(&spare->records, memory);
  vmm__memory_release(memory, spare->slots, spare->slot_count, sizeof *spare->slots);
  vmm__memory_release(memory, spare, 1, sizeof *spare);
}
