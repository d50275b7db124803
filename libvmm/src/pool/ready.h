/* Handles that a pool has put aside: created, not mapped yet; and its thread. */
#ifndef VMM_POOL_READY_H
#define VMM_POOL_READY_H

#include "pool/pending.h"

/* Under the pool lock. Pop: one of exactly that size, or any if `size` is 0; NULL if there is none. */
void vmm__ready_push(vmm_pool *pool, vmm__handle *handle);
vmm__handle *vmm__ready_pop(vmm_pool *pool, vmm__u64 size);

/* The largest sizes of at least `least` bytes, by falling size. Under the pool lock. */
size_t vmm__ready_sizes(const vmm_pool *pool, vmm__u64 least, vmm__u64 *sizes, size_t capacity);

/* Gives up to `want` bytes away, or all: to the idle handles or the driver. Returns what went to the driver. Needs the
 * structure lock. */
vmm__u64 vmm__ready_give(vmm_pool *pool, vmm__work *work, vmm__u64 want);

/* Head-room is created, what is put aside is published, and what is idle above the threshold is given back, as far as that
 * needs no wait. No lock held. Returns the bytes given back. */
vmm__u64 vmm__ready_see_to(vmm_pool *pool, vmm__work *work);

/* Maps and publishes what is put aside. Returns the bytes; 0 if there is nothing, or it failed. No lock held. grow.c */
vmm__u64 vmm__pool_publish_ready(vmm_pool *pool, vmm__work *work);

/* Starts the thread, if the pool is to have one. */
vmm_status vmm__ready_start(vmm_pool *pool, vmm__work *work);

#endif
