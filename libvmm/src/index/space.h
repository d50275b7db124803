/* The free space of one pool: which ranges of its address space are live blocks, which are free, whose queued work may
 * still touch them, and where a block of a given size goes. Pure bookkeeping: no driver, no lock (the caller holds the pool lock), and no host memory except in
 * the functions that say "no lock".
 *
 * Every range is a record, linked with its neighbours in address order; free ranges hang in bins by size, live blocks
 * in a hash by address. Alloc and free are O(1).
 *
 * Every free range belongs to an *arena*: the caller's word for "whose queued work may still touch it". Arena
 * VMM__ARENA_IDLE is always there and means nobody's; the others are opened and closed by the caller, who gives them their
 * meaning. Two free ranges that touch are one, across mappings too, if and only if they are in the same arena.
 *
 * A freed block need not become a free range at once: up to a bound it is kept whole, with its record and its place in
 * the hash, and the next block of its bin is it (a *quick* block, see quick.h). To everyone else it is free memory: it
 * counts as free bytes, is no live block, and becomes a free range before any answer depends on that. So that the blocks
 * of a bin can stand for each other, a block holds its size rounded up to the bin's smallest: at most 1/64 more, and no
 * more at all up to 32 KiB (units of 256) and above 64 MiB. A quick block may come from the next bin, or up to 4 MiB from
 * one near: 1/32 or 1/10 more. Where only the size itself fits, it holds that.
 * Addresses are never 0. Sizes and addresses are multiples of the unit, 256, unless said otherwise. */
#ifndef VMM_INDEX_SPACE_H
#define VMM_INDEX_SPACE_H

#include "index/mappings.h"
#include "index/records.h"
#include "index/slots.h"

/* The largest block that can be kept whole, 64 MiB; its bin begins the last word of those that have a list. */
#define VMM__QUICK_LARGEST_UNITS (1u << (VMM__QUICK_WORDS + VMM__BIN_BITS - 2))

/* The bin that 4 MiB begin, see vmm__quick_init. */
#define VMM__QUICK_NEAR_LAST (9u * VMM__BINS_PER_WORD)

/* A slot holds the bin and what the block has beyond what was asked for. Up to 4 MiB that is less than six bins are apart,
 * above less than two; they are furthest apart, a 64th of 32 MiB, in the last word before the largest. */
_Static_assert((VMM__QUICK_LARGEST_UNITS / 64) << VMM__UNIT_SHIFT <= 1u << VMM__SLOT_WASTE_BITS,
               "a slot holds what a block may waste");

typedef struct vmm__block {
  vmm__u64 address;
  vmm__u64 size;      /* bytes it holds */
  vmm__u64 requested; /* bytes asked for */
  vmm__u64 tag;
  unsigned arena; /* the one it was cut from, if it sticks to it; else VMM__ARENA_IDLE */
} vmm__block;

#define VMM__ARENA_IDLE 0u          /* no queued work may touch it */
#define VMM__ARENA_MIXED UINT32_MAX /* an answer: more than one */

typedef struct vmm__space {
  vmm__records records;
  vmm__u64 block_limit; /* live blocks there is room for, see space_reserve.c */
  vmm__u64 total_bytes; /* free and in blocks: read these four freely, write none */
  vmm__u64 block_bytes;
  vmm__u64 requested_bytes;
  vmm__u64 block_count;
  vmm__u64 base;
  vmm__u64 whole_bytes;            /* in blocks, live or quick */
  vmm__u64 quick_limit;            /* bytes that may be quick */
  vmm__u64 quick_floor;            /* block bytes below which they would be more */
  uint32_t cursor;                 /* record where the last search by address ended: a hint, may be in nobody's use */
  uint16_t free_id;                /* first of the ids that can be opened; 0: none */
  uint16_t free_ids;               /* how many there are */
  unsigned arena_count;            /* ids, and labels */
  vmm__slots slots;                /* blocks, live or quick, by address */
  vmm__arena *arenas[VMM__ARENAS]; /* by id */
  vmm__arena *labels[VMM__ARENAS]; /* by label */
  vmm__arena_id ids[VMM__ARENAS];
  vmm__arena *allocated; /* those that are not `first` */
  void *slots_memory;
  vmm_host_memory memory;
  vmm__arena first; /* its label is 0 */
} vmm__space;

/* Cannot fail and allocates nothing; before the first add a spare must have been adopted. No address is below `base`, which
 * is not 0. */
void vmm__space_init(vmm__space *space, const vmm_host_memory *memory, vmm__u64 base);
void vmm__space_destroy(vmm__space *space); /* no lock */

/* Reserving, so that nothing below ever runs out:
 *   while ((hint = vmm__space_short(space, operations, arenas)) != 0) {
 *     unlock; spare = vmm__space_spare_make(memory, hint); if NULL: host out of memory;
 *     lock; vmm__space_spare_adopt(space, spare); later, unlocked: vmm__space_spare_release(memory, spare); }
 * It is a loop because another thread may have reserved, or used up, meanwhile. */
typedef struct vmm__space_spare vmm__space_spare;

/* 0 if `operations` further operations (alloc, free, add, take, in any order) cannot run out and `arenas` arenas can be
 * opened, or as many as there can ever be; else a hint for make. */
vmm__u64 vmm__space_short(const vmm__space *space, vmm__u64 operations, unsigned arenas);
vmm__space_spare *vmm__space_spare_make(const vmm_host_memory *memory, vmm__u64 hint); /* no lock; NULL: no memory */
void vmm__space_spare_adopt(vmm__space *space, vmm__space_spare *spare);
void vmm__space_spare_release(const vmm_host_memory *memory, vmm__space_spare *spare); /* no lock; NULL is ignored */

/* Whether one more alloc, free, add and take can run. O(1); the precondition of all that change something but free. */
#define VMM__SPACE_READY_RECORDS 8u
static inline bool vmm__space_ready(const vmm__space *space) {
  return space->records.free_count >= VMM__SPACE_READY_RECORDS && space->block_count < space->block_limit &&
         space->slots.used < space->slots.limit;
}

static inline vmm__u64 vmm__space_free_bytes(const vmm__space *space) {
  return space->total_bytes - space->block_bytes;
}

/* Quick blocks, and their bytes. */
static inline vmm__u64 vmm__space_quick_count(const vmm__space *space) {
  return space->slots.used - space->block_count;
}
static inline vmm__u64 vmm__space_quick_bytes(const vmm__space *space) {
  return space->whole_bytes - space->block_bytes;
}

/* Makes free ranges of all quick blocks. Gives records and room in the hash back. */
void vmm__space_settle(vmm__space *space);
/* The same with some of them; false if there are none. Who is not ready for lack of room calls it until they are: all at once
 * would be slow for many allocs to come, and soon to be done again. */
bool vmm__space_settle_some(vmm__space *space);

/* Takes a block of `size` bytes (a multiple of the unit, not 0) at `alignment` (a power of two, at least the unit) out of an
 * arena and returns its address; 0 if no contiguous free range of it holds it: then no block changed. It may hold a little
 * more: see above. Precondition: ready. */
vmm__u64 vmm__space_alloc(vmm__space *space, unsigned arena, vmm__u64 size, vmm__u64 alignment, vmm__u64 requested,
                          vmm__u64 tag);

/* The same, and the block lies within one entry of `mappings`. Not for the hot path. */
vmm__u64 vmm__space_alloc_within(vmm__space *space, unsigned arena, vmm__u64 size, vmm__u64 alignment,
                                 vmm__u64 requested, vmm__u64 tag, const vmm__mappings *mappings);

/* Frees the block that starts at `address` (any number) into an arena, or into the one it sticks to. False if no block
 * does: nothing changed. *out: what was freed; may be NULL. Never needs a record. */
bool vmm__space_free(vmm__space *space, vmm__u64 address, unsigned arena, vmm__block *out);

/* A range becomes free, in an arena. Precondition: ready, no byte of it is known to the space, and it does not wrap. */
void vmm__space_add(vmm__space *space, unsigned arena, vmm__u64 address, vmm__u64 size);

/* Removes a range that is wholly free, of whatever arenas. False if it is not (or size is 0): nothing changed. *arena: the
 * one it was in, or VMM__ARENA_MIXED; may be NULL. Precondition: ready. */
bool vmm__space_take(vmm__space *space, vmm__u64 address, vmm__u64 size, unsigned *arena);

/* ---- arenas: O(1) but for merge ---- */

/* A new arena, empty; VMM__ARENA_IDLE if none was prepared (see short). Numbers are used again. */
unsigned vmm__space_arena_open(vmm__space *space);
/* Ends an arena, not the idle one, that is empty. If blocks stick to it its number stays taken until they are freed. */
void vmm__space_arena_close(vmm__space *space, unsigned arena);
/* Free bytes in it. */
vmm__u64 vmm__space_arena_bytes(const vmm__space *space, unsigned arena);
/* Moves all that is free in one arena into another; `from` is then empty. Linear in the free ranges of the one that has
 * fewer. */
void vmm__space_arena_merge(vmm__space *space, unsigned from, unsigned into);
/* From now on blocks cut from this arena stick to it: they tell its number, and are freed into it whatever arena the caller
 * names. It is not the idle one. Quick blocks are neither given by it nor kept for it. */
void vmm__space_arena_stick(vmm__space *space, unsigned arena);
/* ... and now they do not any more, those that live included. */
void vmm__space_arena_unstick(vmm__space *space, unsigned arena);

/* ---- questions: any address is allowed; not for the hot path. They may move the cursor and settle, so hold the lock.
 * ---- */

/* Where a block would start that lies in two arenas, or in one of them; 0 if there is no place. Linear in the free ranges of
 * the one that has fewer. */
vmm__u64 vmm__space_find_joined(vmm__space *space, unsigned arena_a, unsigned arena_b, vmm__u64 size,
                                vmm__u64 alignment);
/* The live block that holds `address`. O(1) for its start, else a scan unless the cursor is near. */
bool vmm__space_find(vmm__space *space, vmm__u64 address, vmm__block *out);
/* The live block with the lowest start that is not below `address`; go on with block.address + block.size. */
bool vmm__space_next_block(vmm__space *space, vmm__u64 address, vmm__block *out);
/* Length of the contiguous bytes, free in one of two arenas, that end exactly at `address`; 0 if there are none. An address
 * inside a free range counts: what lies below it. */
vmm__u64 vmm__space_free_before(vmm__space *space, vmm__u64 address, unsigned arena_a, unsigned arena_b);
/* Whether a range is wholly free (size not 0), and in which arena; VMM__ARENA_MIXED for several. `arena` may be NULL. */
bool vmm__space_arena_of(vmm__space *space, vmm__u64 address, vmm__u64 size, unsigned *arena);
/* Whether any of a range that is wholly free lies in an arena that blocks stick to. */
bool vmm__space_sticks(vmm__space *space, vmm__u64 address, vmm__u64 size);
/* The contiguous free runs, of whatever arenas, of at least `size` bytes (a unit or more), each once, in no order: start
 * from a zeroed walk. False at the end. The space must not change meanwhile. */
typedef struct vmm__space_walk {
  unsigned most; /* label of the arena with most ranges, and 1: comes last; 0: not started */
  unsigned label;
  unsigned bin; /* the next to look at */
  uint32_t next;
} vmm__space_walk;
bool vmm__space_next_free(vmm__space *space, vmm__space_walk *walk, vmm__u64 size, vmm__u64 *address, vmm__u64 *length);
/* Longest contiguous free run, of whatever arenas, exact. */
vmm__u64 vmm__space_largest(vmm__space *space);
/* Bytes of live blocks within a range. Asked for one range after the other by rising address it is one walk in all. */
vmm__u64 vmm__space_bytes_in(vmm__space *space, vmm__u64 address, vmm__u64 size);

/* Every invariant: links, order, overlap, no two free neighbours, bins, bits, hash, counters, records. On false *what
 * says in a few words what is broken. */
bool vmm__space_check(const vmm__space *space, const char **what);

#endif
