/* The blocks of a space by address: a hash with open addressing, eight slots to a cache line. Its memory is handed in and
 * out by the space; nothing here allocates.
 *
 * A slot tells all that a block of a whole bin's size needs to be freed, kept and given again, so that the usual free and
 * alloc look at one line and at no record. Half of a line are keys, half are infos, so that eight keys are compared at
 * once and a table of 10^5 blocks fits into a core's own cache. What only other calls need lies apart: the record of each
 * slot, and how many blocks found their line full.
 *
 * A key is the number of the block's 256 bytes within the space, from 1 on, in 32 bits. What lies above the first TiB is *far*:
 * its key is cut off, its record tells it from others, and it is odd, so no quick path ever takes one for another.
 *
 * No slot moves while the table lasts: whoever finds a line full goes on to the next and is counted there, and searches
 * go on as long as there is somebody to be found. So slots can be named by their place: blocks that are kept (quick
 * blocks, see quick.h) are in lists that run through their slots. */
#ifndef VMM_INDEX_SLOTS_H
#define VMM_INDEX_SLOTS_H

#include <stdatomic.h>

#include "index/arena.h"
#include "index/records.h"

#define VMM__UNIT_SHIFT 8u

#define VMM__SLOTS_PER_LINE 8u
#define VMM__SLOT_NONE UINT32_MAX /* no place */
#define VMM__SLOT_PLACE_BITS 30u
#define VMM__MOST_SLOTS_LOG2 (VMM__SLOT_PLACE_BITS - 1)

/* An info is 0 where a slot is empty, or one of these: */
#define VMM__SLOT_PLAIN (1u << 31) /* live; bits 20-29: its bin; below: the bytes it holds more than asked for */
#define VMM__SLOT_QUICK (1u << 30) /* a freed block that is kept whole; below: the place of the next in its list */
#define VMM__SLOT_ODD (15u << 26)  /* live, and its size and the bytes asked for are the record's; with these: */
#define VMM__SLOT_TAGGED 1u        /* its tag is not 0: see vmm__record_tag */
#define VMM__SLOT_FAR 2u
#define VMM__SLOT_WASTE_BITS 20u
#define VMM__SLOT_MOST_WASTE ((1u << VMM__SLOT_WASTE_BITS) - 1)

_Static_assert(VMM__QUICK_BINS <= 1u << (30 - VMM__SLOT_WASTE_BITS), "a slot holds every bin");

typedef struct vmm__slot_table {
  uint32_t *words; /* lines of eight keys and eight infos. A slot's place is the word its key is in */
  uint32_t *ids;   /* of the records, by vmm__slot_number */
  uint32_t *spilt; /* by line: blocks that would lie in this line or one before, and lie behind it */
  vmm__u64 count;  /* slots, a power of two */
  unsigned shift;  /* 64-bit hash to line */
} vmm__slot_table;

typedef struct vmm__slots {
  vmm__slot_table table;
  vmm__u64 origin; /* the address a unit below the lowest */
  vmm__u64 limit;  /* slots that may be in use */
  vmm__u64 used;
  const vmm__records *records; /* they know far blocks' addresses */
  /* As words and shift, for who does not hold the lock and wants no answer. */
  _Atomic(uintptr_t) hint_words;
  atomic_uint hint_shift;
} vmm__slots;

static inline bool vmm__slot_is_live(uint32_t info) { return info != 0 && (info & VMM__SLOT_QUICK) == 0; }
static inline unsigned vmm__slot_bin(uint32_t info) { return (info & ~VMM__SLOT_PLAIN) >> VMM__SLOT_WASTE_BITS; }
static inline uint32_t vmm__slot_waste(uint32_t info) { return info & VMM__SLOT_MOST_WASTE; }
static inline uint32_t vmm__slot_plain(unsigned bin, uint32_t waste) {
  return VMM__SLOT_PLAIN | (uint32_t)bin << VMM__SLOT_WASTE_BITS | waste;
}
/* Of a quick block: the place of the next one in its list, if that one is not the last. */
static inline uint32_t vmm__slot_next(uint32_t info) { return info & (VMM__SLOT_QUICK - 1); }

static inline uint32_t *vmm__slots_info(const vmm__slots *slots, uint32_t place) {
  return &slots->table.words[place + VMM__SLOTS_PER_LINE];
}
static inline uint32_t vmm__slot_number(uint32_t place) {
  return place / (2 * VMM__SLOTS_PER_LINE) * VMM__SLOTS_PER_LINE + place % VMM__SLOTS_PER_LINE;
}
static inline uint32_t vmm__slots_id(const vmm__slots *slots, uint32_t place) {
  return slots->table.ids[vmm__slot_number(place)];
}

/* The key of a block that starts at `address` (any number). Of what is far, or no block's address, one above UINT32_MAX, or 0. */
static inline vmm__u64 vmm__slots_key(const vmm__slots *slots, vmm__u64 address) {
  vmm__u64 offset = address - slots->origin;

  return offset >> VMM__UNIT_SHIFT | offset << (64 - VMM__UNIT_SHIFT);
}
/* The address of a block that is not far. */
static inline vmm__u64 vmm__slots_address(const vmm__slots *slots, uint32_t place) {
  return slots->origin + ((vmm__u64)slots->table.words[place] << VMM__UNIT_SHIFT);
}

/* Its highest bits tell the line. */
static inline vmm__u64 vmm__slots_hash(uint32_t key) { return key * 0x9E3779B97F4A7C15ull; }

/* All that can be told of an address (any number) without the lock, to be told once. */
typedef struct vmm__slots_sought {
  vmm__u64 key;
  vmm__u64 hash;
} vmm__slots_sought;
static inline vmm__slots_sought vmm__slots_seek(const vmm__slots *slots, vmm__u64 address) {
  vmm__u64 key = vmm__slots_key(slots, address);

  return (vmm__slots_sought){key, vmm__slots_hash((uint32_t)key)};
}

/* Begins to fetch its line. May be called without the lock. */
static inline void vmm__slots_prefetch(vmm__slots *slots, vmm__slots_sought sought) {
  uintptr_t words = atomic_load_explicit(&slots->hint_words, memory_order_relaxed);
  vmm__u64 line = sought.hash >> atomic_load_explicit(&slots->hint_shift, memory_order_relaxed);

  __builtin_prefetch((const void *)(words + line * sizeof(uint32_t[2 * VMM__SLOTS_PER_LINE])));
}

/* The line it is in, unless that was full, by its first word. */
static inline uint32_t vmm__slots_line(const vmm__slots *slots, vmm__slots_sought sought) {
  return (uint32_t)(sought.hash >> slots->table.shift) * (2 * VMM__SLOTS_PER_LINE);
}

/* Four words at once: the compiler makes of it what the processor has. */
typedef uint32_t vmm__lanes __attribute__((vector_size(16), may_alias));
typedef vmm__u64 vmm__wide_lanes __attribute__((vector_size(16)));

/* All four, or-ed. */
static inline uint32_t vmm__lanes_merge(vmm__lanes lanes) {
  vmm__wide_lanes wide = (vmm__wide_lanes)lanes;
  vmm__u64 both = wide[0] | wide[1];

  return (uint32_t)(both | both >> 32);
}

/* The place of the slot in a line that has this key, which is to be confirmed. Which it is cannot be predicted, so there is
 * no branch for it: those that do not match count as 0. If several do (far ones share keys) it may be any. The infos are
 * not read along with the keys: the one that matters was often just written, and must be read the way it was. */
static inline uint32_t vmm__slots_look(const vmm__slots *slots, uint32_t line, uint32_t key) {
  const vmm__lanes *lanes = (const vmm__lanes *)(const void *)&slots->table.words[line];
  const vmm__lanes keys = {key, key, key, key}, low = {0, 1, 2, 3}, high = {4, 5, 6, 7};

  return line + vmm__lanes_merge(((vmm__lanes)(lanes[0] == keys) & low) | ((vmm__lanes)(lanes[1] == keys) & high));
}
/* Whether it is a plain block's. */
static inline bool vmm__slots_confirm(const vmm__slots *slots, uint32_t place, uint32_t key) {
  return slots->table.words[place] == key && (*vmm__slots_info(slots, place) & VMM__SLOT_PLAIN) != 0;
}

/* The place of the plain block with this key behind its own line, which has it not; SLOT_NONE if there is none. */
uint32_t vmm__slots_look_on(const vmm__slots *slots, vmm__slots_sought sought);

/* The place of the block in whatever state that starts at `address` (any number); SLOT_NONE if there is none. */
uint32_t vmm__slots_at(const vmm__slots *slots, vmm__u64 address);

/* A table without room for a space that begins at `base`. */
void vmm__slots_init(vmm__slots *slots, vmm__u64 base, const vmm__records *records);
/* A live block's slot. Precondition: fewer than `limit` are used, and the address is not there. */
void vmm__slots_insert(vmm__slots *slots, vmm__u64 address, uint32_t info, uint32_t id);
/* Empties a slot. No other moves. */
void vmm__slots_remove(vmm__slots *slots, uint32_t place);

/* Bytes of a table, what it takes to begin at a line included. */
vmm__u64 vmm__slots_bytes(vmm__u64 count);
/* From now on the table is a new one, in memory that is all zero: `count` slots, a power of two, not above 2^MOST_SLOTS_LOG2.
 * Returns the old one. All but quick blocks are in the new one too; those are put there one by one: the place in the new
 * table of the block that has this place in the old one, not yet in a list. */
vmm__slot_table vmm__slots_renew(vmm__slots *slots, void *memory, vmm__u64 count);
uint32_t vmm__slots_bring(vmm__slots *slots, const vmm__slot_table *old, uint32_t place);

/* Slots that may be in use of `count`: beyond that searches get long. */
static inline vmm__u64 vmm__slots_limit(vmm__u64 count) { return count - count / 8; }
/* ... and those that live blocks may use: the others are for quick ones, of which there are some thousands at most in one
 * arena. With fewer of them, allocs and frees of a pool that happens to hold almost as many blocks as the table would bear
 * cost many times as much (measured: eight times); with more, the table is larger than a core's own cache sooner. */
static inline vmm__u64 vmm__slots_room(vmm__u64 count) {
  return vmm__slots_limit(count) - vmm__min(count * 3 / 8, 8192);
}

#endif
