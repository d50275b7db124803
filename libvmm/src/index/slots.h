/* The blocks of a space by address: a hash with open addressing, four slots to a cache line. Its memory is handed in and
 * out by the space; nothing here allocates.
 *
 * A slot tells all that a block of a whole bin's size needs to be freed, kept and given again, so that the usual free and
 * alloc look at one line and at no record. The key is the block's address with its state in the low bits: a live block
 * is found by one comparison per slot. Blocks that are kept (quick blocks, see quick.h) are listed by their arenas, as
 * places in the table. */
#ifndef VMM_INDEX_SLOTS_H
#define VMM_INDEX_SLOTS_H

#include <stdatomic.h>

#include "index/arena.h"

typedef struct vmm__slot {
  vmm__u64 key; /* address and state; 0: empty */
  uint32_t id;  /* of its record */
  /* Not ODD: the bin in bits 20-31. Below, the bytes it holds more than asked for; QUICK: label and place in the list. */
  uint32_t bin_waste;
} vmm__slot;

/* States. A key is an address plus one of them, so that only the address of a block, and no number near it, makes the key
 * of a live one. */
#define VMM__SLOT_LIVE 128u
#define VMM__SLOT_QUICK 1u /* a freed block that is kept whole */
/* These two may be added to LIVE. */
#define VMM__SLOT_ODD 2u    /* its size is no bin's: size and bytes asked for are the record's */
#define VMM__SLOT_TAGGED 4u /* its tag is not 0: see vmm__record_tag */
#define VMM__SLOT_STATES 255u
#define VMM__SLOT_WASTE_BITS 22u
#define VMM__SLOT_MOST_WASTE ((1u << VMM__SLOT_WASTE_BITS) - 1)
#define VMM__SLOTS_PER_LINE 4u

typedef struct vmm__slots {
  vmm__slot *lines; /* aligned to a line */
  vmm__u64 count;   /* a power of two */
  unsigned shift;   /* 64-bit hash to line */
  vmm__u64 limit;   /* slots that may be in use */
  vmm__u64 used;
  /* As lines and shift, for who does not hold the lock and wants no answer. */
  _Atomic(uintptr_t) hint_lines;
  atomic_uint hint_shift;
  vmm__arena *const *labels; /* arenas by label: they list the quick blocks' slots */
} vmm__slots;

static inline vmm__u64 vmm__slot_address(const vmm__slot *slot) { return slot->key & ~(vmm__u64)VMM__SLOT_STATES; }
static inline unsigned vmm__slot_bin(const vmm__slot *slot) { return slot->bin_waste >> VMM__SLOT_WASTE_BITS; }
static inline uint32_t vmm__slot_waste(const vmm__slot *slot) { return slot->bin_waste & VMM__SLOT_MOST_WASTE; }
static inline uint32_t vmm__slot_bin_waste(unsigned bin, vmm__u64 waste) {
  return (uint32_t)bin << VMM__SLOT_WASTE_BITS | (uint32_t)waste;
}
/* Of a quick block. */
static inline unsigned vmm__slot_place(const vmm__slot *slot) { return slot->bin_waste & (VMM__QUICK_PER_BIN - 1); }
static inline unsigned vmm__slot_label(const vmm__slot *slot) { return vmm__slot_waste(slot) >> VMM__QUICK_PLACE_BITS; }

/* Its highest bits tell the line. */
static inline vmm__u64 vmm__slots_hash(vmm__u64 address) { return address * 0x9E3779B97F4A7C15ull; }

/* The first slot an address may stand in; it is the first of a line. */
static inline vmm__u64 vmm__slots_home(const vmm__slots *slots, vmm__u64 address) {
  return (vmm__slots_hash(address) >> slots->shift) * VMM__SLOTS_PER_LINE;
}

/* Begins to fetch the line of an address. May be called without the lock. */
static inline void vmm__slots_prefetch(vmm__slots *slots, vmm__u64 address) {
  uintptr_t lines = atomic_load_explicit(&slots->hint_lines, memory_order_relaxed);
  vmm__u64 line = vmm__slots_hash(address) >> atomic_load_explicit(&slots->hint_shift, memory_order_relaxed);

  __builtin_prefetch((const void *)(lines + line * sizeof(vmm__slot[VMM__SLOTS_PER_LINE])));
}

/* The slot whose key, less `mask`, is `key`, looked for from `home` on; NULL if there is none or the key is 0. slots.c */
vmm__slot *vmm__slots_search(const vmm__slots *slots, vmm__u64 home, vmm__u64 key, vmm__u64 mask);

/* The slot of the live block, neither odd nor tagged, that starts at `address` (any number below 2^64 - 256); NULL if there
 * is none. Which slot of the line it is cannot be predicted, so there is no branch for it. */
static inline vmm__slot *vmm__slots_find(const vmm__slots *slots, vmm__u64 address) {
  vmm__u64 home = vmm__slots_home(slots, address), key = address + VMM__SLOT_LIVE;
  vmm__slot *line = &slots->lines[home];
  unsigned i;

  i = (unsigned)(line[1].key == key) | (unsigned)(line[2].key == key) << 1 | (-(unsigned)(line[3].key == key) & 3);
  if (__builtin_expect(line[i].key == key, 1)) return &line[i];
  return vmm__slots_search(slots, home, key, 0);
}

/* The slot of the block in whatever state that starts at `address` (any number); NULL if there is none. */
static inline vmm__slot *vmm__slots_at(const vmm__slots *slots, vmm__u64 address) {
  vmm__slot *slot;

  if ((address & VMM__SLOT_STATES) != 0 || address == 0) return NULL;
  slot = vmm__slots_find(slots, address);
  if (slot != NULL) return slot;
  return vmm__slots_search(slots, vmm__slots_home(slots, address), address, VMM__SLOT_STATES);
}

/* A table without room. */
void vmm__slots_init(vmm__slots *slots, vmm__arena *const *labels);
/* Precondition: fewer than `limit` are used, and the address is not there. */
void vmm__slots_insert(vmm__slots *slots, vmm__slot slot);
/* Empties a slot. Others may move. */
void vmm__slots_remove(vmm__slots *slots, vmm__slot *slot);
/* Moves all into a new table: `count` slots, a power of two, all of them empty, aligned to a line. The old one may then be
 * released. */
void vmm__slots_move(vmm__slots *slots, vmm__slot *lines, vmm__u64 count);

/* Slots that may be in use of `count`: beyond that searches get long. */
static inline vmm__u64 vmm__slots_limit(vmm__u64 count) { return count - count / 8; }
/* ... and those that live blocks may use: the others are for quick ones. With fewer of them, allocs and frees of a pool
 * that happens to hold almost as many blocks as the table would bear cost many times as much (measured: eight times). */
static inline vmm__u64 vmm__slots_room(vmm__u64 count) { return count / 2; }

#endif
