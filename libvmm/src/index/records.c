/* Record storage: slabs of chunks, made outside the lock and taken in under it. */
#include "index/records.h"

#include <string.h>

/* Lies at the start of its allocation; the chunks follow, aligned to a cache line. */
struct vmm__records_slab {
  vmm__records_slab *next;
  vmm__u64 bytes;
  vmm__records_chunk *chunks;
};

#define LINE 64u
#define LARGEST_CHUNK_COUNT ((1u << 31) >> VMM__RECORDS_SHIFT)

void vmm__records_init(vmm__records *records) {
  memset(records, 0, sizeof *records);
  records->used = 1; /* id 0 is none */
}

void vmm__records_destroy(vmm__records *records, const vmm_host_memory *memory) {
  while (records->slabs != NULL) {
    vmm__records_slab *slab = records->slabs;

    records->slabs = slab->next;
    vmm__memory_release(memory, slab, slab->bytes, 1);
  }
  vmm__memory_release(memory, records->chunks, records->chunk_capacity, sizeof *records->chunks);
  vmm__records_init(records);
}

uint32_t vmm__records_needed(const vmm__records *records, vmm__u64 count) {
  vmm__u64 chunks;

  if (records->free_count >= count) return 0;
  /* Id 0 costs one in the first chunk. */
  chunks = (count - records->free_count) / VMM__RECORDS_PER_CHUNK + 1;
  chunks = vmm__max(chunks, records->chunk_count / 2);
  return (uint32_t)vmm__min(chunks, LARGEST_CHUNK_COUNT);
}

uint32_t vmm__records_table_needed(const vmm__records *records, uint32_t chunks) {
  uint32_t needed = records->chunk_count + chunks;
  uint32_t capacity = records->chunk_capacity == 0 ? 16 : records->chunk_capacity;

  if (needed <= records->chunk_capacity) return 0;
  while (capacity < needed) capacity *= 2;
  return capacity;
}

bool vmm__records_prepare(vmm__records_spare *spare, const vmm_host_memory *memory, uint32_t chunks, uint32_t table) {
  memset(spare, 0, sizeof *spare);
  if (chunks > LARGEST_CHUNK_COUNT) return false;
  if (chunks != 0) {
    vmm__u64 bytes = LINE + LINE + (vmm__u64)chunks * sizeof(vmm__records_chunk);
    vmm__records_slab *slab = vmm__memory_allocate(memory, bytes, 1);
    uintptr_t start = (uintptr_t)slab + sizeof *slab;

    if (slab == NULL) return false;
    slab->bytes = bytes;
    slab->chunks = (vmm__records_chunk *)(void *)((char *)(slab + 1) + (LINE - start % LINE) % LINE);
    spare->slab = slab;
    spare->chunk_count = chunks;
  }
  if (table != 0) {
    spare->chunks = vmm__memory_allocate(memory, table, sizeof *spare->chunks);
    spare->chunk_capacity = table;
    if (spare->chunks == NULL) {
      vmm__records_release(spare, memory);
      return false;
    }
  }
  return true;
}

void vmm__records_adopt(vmm__records *records, vmm__records_spare *spare) {
  vmm__records_slab *slab = spare->slab;

  if (spare->chunk_capacity > records->chunk_capacity) {
    vmm__records_chunk **chunks = records->chunks;
    uint32_t capacity = records->chunk_capacity;

    if (records->chunk_count != 0) memcpy(spare->chunks, chunks, records->chunk_count * sizeof *chunks);
    records->chunks = spare->chunks;
    records->chunk_capacity = spare->chunk_capacity;
    spare->chunks = chunks;
    spare->chunk_capacity = capacity;
  }
  if (slab == NULL || spare->chunk_count > records->chunk_capacity - records->chunk_count ||
      spare->chunk_count > LARGEST_CHUNK_COUNT - records->chunk_count) {
    return;
  }
  records->free_count += spare->chunk_count * VMM__RECORDS_PER_CHUNK - (records->chunk_count == 0 ? 1 : 0);
  for (uint32_t i = 0; i < spare->chunk_count; i++) records->chunks[records->chunk_count++] = &slab->chunks[i];
  slab->next = records->slabs;
  records->slabs = slab;
  spare->slab = NULL;
  spare->chunk_count = 0;
}

void vmm__records_release(vmm__records_spare *spare, const vmm_host_memory *memory) {
  if (spare->slab != NULL) vmm__memory_release(memory, spare->slab, spare->slab->bytes, 1);
  vmm__memory_release(memory, spare->chunks, spare->chunk_capacity, sizeof *spare->chunks);
  memset(spare, 0, sizeof *spare);
}
