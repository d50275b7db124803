/* The table of mappings of one reservation, sorted by address, no two of them overlapping. The caller holds the pool
 * lock; host memory only in make and release. Pointers to entries hold until the next insert, remove or adopt. */
#ifndef VMM_INDEX_MAPPINGS_H
#define VMM_INDEX_MAPPINGS_H

#include "base/memory.h"

typedef struct vmm__mapping {
  vmm__u64 address;
  vmm__u64 size;
  vmm__u64 generation;
  void *handle; /* whatever the caller keeps for it */
  int state;    /* these three are the caller's */
  unsigned arena;
  vmm__u64 frees;
} vmm__mapping;

typedef struct vmm__mappings {
  vmm__mapping *entries;
  size_t count;
  size_t capacity;
  size_t prefix;  /* entries from the first on that lie side by side: a pool that only grew has no other */
  vmm__u64 bytes; /* sum of the sizes */
} vmm__mappings;

void vmm__mappings_init(vmm__mappings *table);
void vmm__mappings_destroy(vmm__mappings *table, const vmm_host_memory *memory); /* no lock */

/* Room, as in space.h: while ((hint = short(table, n)) != 0) { unlock; make; lock; adopt; later, unlocked: release }. */
typedef struct vmm__mappings_spare {
  vmm__mapping *entries;
  size_t capacity;
} vmm__mappings_spare;

/* 0 if `inserts` more entries fit, else a hint for make. */
vmm__u64 vmm__mappings_short(const vmm__mappings *table, vmm__u64 inserts);
bool vmm__mappings_spare_make(vmm__mappings_spare *spare, const vmm_host_memory *memory, vmm__u64 hint); /* no lock */
void vmm__mappings_spare_adopt(vmm__mappings *table, vmm__mappings_spare *spare); /* cannot fail; swaps if larger */
void vmm__mappings_spare_release(vmm__mappings_spare *spare,
                                 const vmm_host_memory *memory); /* no lock; empty is fine */

/* Puts an entry in its place. Precondition: there is room (short answered 0), size not 0, it overlaps none. */
vmm__mapping *vmm__mappings_insert(vmm__mappings *table, vmm__mapping mapping);
/* Removes the entry that starts at `address` and copies it to *out (may be NULL). False if none does. */
bool vmm__mappings_remove(vmm__mappings *table, vmm__u64 address, vmm__mapping *out);
/* The entry that holds `address`, or NULL. */
vmm__mapping *vmm__mappings_find(const vmm__mappings *table, vmm__u64 address);
/* Number of the first entry that ends above `address`: the one that holds it or the next; count if there is none. */
size_t vmm__mappings_lower_bound(const vmm__mappings *table, vmm__u64 address);
static inline vmm__mapping *vmm__mappings_at(const vmm__mappings *table, size_t i) { return &table->entries[i]; }

/* The lowest address in [base, limit_end), a multiple of granularity from base, where `size` bytes are unmapped; 0 if
 * there is none. First fit. */
vmm__u64 vmm__mappings_lowest_gap(const vmm__mappings *table, vmm__u64 base, vmm__u64 limit_end, vmm__u64 size,
                                  vmm__u64 granularity);
/* The first address at or above `address` that is not mapped. */
vmm__u64 vmm__mappings_first_unmapped(const vmm__mappings *table, vmm__u64 address);
/* Unmapped bytes from `address` up to the next mapping or limit_end; 0 if it is mapped or not below limit_end. */
vmm__u64 vmm__mappings_gap_after(const vmm__mappings *table, vmm__u64 address, vmm__u64 limit_end);

/* Sorted, no overlap, no empty entry, sum right. On false *what says what is broken. */
bool vmm__mappings_check(const vmm__mappings *table, const char **what);

#endif
