/* What is free in one arena of a space (see space.h): its free ranges, in bins by size, and its quick blocks (see quick.h).
 *
 * Callers know an arena by its *id*. What lies here is its storage, which has a number of its own, the *label*: every free
 * range's record and every quick block's slot tells the label. So a merge may move the few ranges to the many, whichever
 * way it was asked for, and let the ids change places. */
#ifndef VMM_INDEX_ARENA_H
#define VMM_INDEX_ARENA_H

#include "base/checked.h"

#define VMM__ARENAS 1024u /* most there can be; labels must fit a quick block's slot */

/* Bins: sizes below 64 units each have their own, above there are 64 per power of two; one word of bits per power. */
#define VMM__BIN_WORDS 56u
#define VMM__BIN_BITS 6u
#define VMM__BINS_PER_WORD (1u << VMM__BIN_BITS)

#define VMM__QUICK_WORDS 14u /* of 64 bins, see space.h */
#define VMM__QUICK_BINS (VMM__QUICK_WORDS * VMM__BINS_PER_WORD)
#define VMM__QUICK_ROW 1024u /* longer than needed, so that a place is found by shifting */
#define VMM__QUICK_PLACE_BITS 5u
#define VMM__QUICK_PER_BIN (1u << VMM__QUICK_PLACE_BITS)

typedef struct vmm__quick_bin {
  uint32_t count; /* quick blocks in it */
  uint32_t size;  /* of its blocks, in bytes: the same in every arena */
} vmm__quick_bin;

typedef struct vmm__arena {
  vmm__u64 quick_low;  /* address below which a freed block may be kept; 0 for an arena that is sticky */
  unsigned quick_most; /* the highest bin of which blocks may be kept */
  uint32_t slot_mark;  /* what the slots of its quick blocks carry: the label above the place */
  uint32_t top;        /* no bin above has quick blocks */
  vmm__u64 mark;       /* what the records of its ranges carry: the label and VMM__RECORD_FREE */
  unsigned id;
  unsigned label;
  vmm__u64 range_bytes;
  vmm__u64 range_count;
  vmm__u64 words; /* bit per word of bins that is not 0 */
  vmm__u64 bins[VMM__BIN_WORDS];
  uint32_t heads[VMM__BIN_WORDS][VMM__BINS_PER_WORD];
  vmm__quick_bin kept[VMM__QUICK_BINS + 1]; /* the last has none, ever */
  struct vmm__arena *next;                  /* of a list: spare ones, or all that were allocated */
  /* Slots; the last of a bin is the next to be given. Beyond the counts it was never written. */
  uint32_t quick[VMM__QUICK_PER_BIN][VMM__QUICK_ROW];
} vmm__arena;

/* What the space knows of an id. */
typedef struct vmm__arena_id {
  uint32_t stuck; /* live blocks that tell this id */
  uint16_t next;  /* of the ids that can be opened; 0 ends */
  bool open;
  bool sticky; /* blocks cut from it tell the id, and are freed into it */
} vmm__arena_id;

#endif
