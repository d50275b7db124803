/* Record storage: one record per range of address space (a live block or a free range), named by a u32 id; 0 is none.
 * Records never move. It grows in slabs that are made outside any lock (prepare) and taken in under one (adopt), so
 * nothing here allocates while a lock is held. */
#ifndef VMM_INDEX_RECORDS_H
#define VMM_INDEX_RECORDS_H

#include "base/memory.h"

/* 32 bytes, so two lie in a cache line and none straddles one. Addresses and sizes are multiples of 256, and sizes are
 * below 2^48: the low bits of `size_flags` hold the flags below; the high ones hold the label of a free range's arena, or
 * the id of the arena an odd block sticks to. A record in nobody's use has size_flags 0 and is chained through `next`. */
typedef struct vmm__record {
  vmm__u64 address;
  vmm__u64 size_flags;
  uint32_t prev; /* neighbours in address order; adjacent only if the addresses say so */
  uint32_t next;
  union {
    vmm__u64 requested; /* block whose slot says it is odd */
    struct {
      uint32_t bin_prev; /* free range: its bin's list */
      uint32_t bin_next;
    };
  };
} vmm__record;

#define VMM__RECORD_FREE 1u /* a free range; else a block, and its slot says more */
#define VMM__RECORD_FLAGS 255u
#define VMM__RECORD_ARENA_SHIFT 48u

#define VMM__RECORDS_SHIFT 11u
#define VMM__RECORDS_PER_CHUNK (1u << VMM__RECORDS_SHIFT)

/* Tags lie apart: few blocks have one, and they are not needed to allocate or free. */
typedef struct vmm__records_chunk {
  vmm__record records[VMM__RECORDS_PER_CHUNK];
  vmm__u64 tags[VMM__RECORDS_PER_CHUNK];
} vmm__records_chunk;

typedef struct vmm__records_slab vmm__records_slab; /* one host allocation that holds chunks */

typedef struct vmm__records {
  vmm__records_chunk **chunks; /* chunk_capacity places */
  uint32_t chunk_count;
  uint32_t chunk_capacity;
  uint32_t free_head;
  uint32_t free_count; /* records in nobody's use */
  uint32_t used;       /* highest id ever given + 1: those above are free but not chained */
  vmm__records_slab *slabs;
} vmm__records;

/* What prepare made, and after adopt what is left to release. */
typedef struct vmm__records_spare {
  vmm__records_slab *slab;
  uint32_t chunk_count;        /* in the slab */
  vmm__records_chunk **chunks; /* a longer table, or NULL: the one there is long enough */
  uint32_t chunk_capacity;
} vmm__records_spare;

void vmm__records_init(vmm__records *records);
void vmm__records_destroy(vmm__records *records, const vmm_host_memory *memory);

/* Under the lock: how many chunks are missing until `count` records are free; 0 for none. Grows by at least half. */
uint32_t vmm__records_needed(const vmm__records *records, vmm__u64 count);
/* Under the lock: length of the chunk table it takes to add `chunks`; 0 if the one there is long enough. */
uint32_t vmm__records_table_needed(const vmm__records *records, uint32_t chunks);

/* No lock: makes `chunks` chunks and, if table is not 0, a table of that length. False: host out of memory, spare empty. */
bool vmm__records_prepare(vmm__records_spare *spare, const vmm_host_memory *memory, uint32_t chunks, uint32_t table);
/* Under the lock: takes in what prepare made; cannot fail. If another thread was first and the table no longer fits, the
 * spare stays as it is. What is left in it is released after unlock. */
void vmm__records_adopt(vmm__records *records, vmm__records_spare *spare);
void vmm__records_release(vmm__records_spare *spare, const vmm_host_memory *memory);

static inline vmm__record *vmm__record_at(const vmm__records *records, uint32_t id) {
  return &records->chunks[id >> VMM__RECORDS_SHIFT]->records[id & (VMM__RECORDS_PER_CHUNK - 1)];
}
static inline vmm__u64 *vmm__record_tag(const vmm__records *records, uint32_t id) {
  return &records->chunks[id >> VMM__RECORDS_SHIFT]->tags[id & (VMM__RECORDS_PER_CHUNK - 1)];
}
static inline vmm__u64 vmm__record_size(const vmm__record *record) {
  return record->size_flags & ((1ull << VMM__RECORD_ARENA_SHIFT) - 1) & ~(vmm__u64)VMM__RECORD_FLAGS;
}
static inline unsigned vmm__record_arena(const vmm__record *record) {
  return (unsigned)(record->size_flags >> VMM__RECORD_ARENA_SHIFT);
}
static inline bool vmm__record_is_free(const vmm__record *record) {
  return (record->size_flags & VMM__RECORD_FREE) != 0;
}

/* A record, not cleared. Precondition: free_count > 0. */
static inline uint32_t vmm__record_take(vmm__records *records) {
  uint32_t id = records->free_head;

  records->free_count--;
  if (id == 0) return records->used++;
  records->free_head = vmm__record_at(records, id)->next;
  return id;
}
static inline void vmm__record_give(vmm__records *records, uint32_t id) {
  vmm__record *record = vmm__record_at(records, id);

  record->size_flags = 0;
  record->next = records->free_head;
  records->free_head = id;
  records->free_count++;
}

#endif
