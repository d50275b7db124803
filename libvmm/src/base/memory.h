/* Host memory through the caller's table. Never called while a pool lock is held. */
#ifndef VMM_BASE_MEMORY_H
#define VMM_BASE_MEMORY_H

#include "base/checked.h"
#include "vmm/vmm.h"

/* The table with malloc and free. */
extern const vmm_host_memory vmm__memory_default;

/* Whether a caller's table can be used: right size, both functions there. NULL means the default and is fine. */
bool vmm__memory_valid(const vmm_host_memory *table);

/* A copy of the caller's table, or of the default for NULL. */
vmm_host_memory vmm__memory_from(const vmm_host_memory *table);

/* `count` elements of `size` bytes, zero-filled; NULL if the table says no or the product overflows. */
void *vmm__memory_allocate(const vmm_host_memory *table, vmm__u64 count, vmm__u64 size);
/* The same, not cleared. */
void *vmm__memory_allocate_raw(const vmm_host_memory *table, vmm__u64 count, vmm__u64 size);

/* Gives back what vmm__memory_allocate gave for the same count and size. NULL is ignored. */
void vmm__memory_release(const vmm_host_memory *table, void *pointer, vmm__u64 count, vmm__u64 size);

#endif
