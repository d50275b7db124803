/* What is free in one arena of a space (see space.h): its free ranges, in bins by size, and its quick blocks (see quick.h).
 *
 * Callers know an arena by its *id*. What lies here is its storage, which has a number of its own, the *label*: every free
 * range's record tells the label. So a merge may move the few ranges to the many, whichever way it was asked for, and let
 * the ids change places. */
#ifndef VMM_INDEX_ARENA_H
#define VMM_INDEX_ARENA_H

#include "base/checked.h"

#define VMM__ARENAS 1024u /* most there can be; labels must fit a free range's record */

/* Bins: sizes below 64 units each have their own, above there are 64 per power of two; one word of bits per power. */
#define VMM__BIN_WORDS 56u
#define VMM__BIN_BITS 6u
#define VMM__BINS_PER_WORD (1u << VMM__BIN_BITS)

#define VMM__QUICK_WORDS 14u /* of 64 bins, see space.h */
#define VMM__QUICK_BINS (VMM__QUICK_WORDS * VMM__BINS_PER_WORD)
#define VMM__QUICK_PER_BIN 32u

typedef struct vmm__quick_bin {
  uint32_t first; /* place of the slot of the block that is given next, if there is one */
  uint32_t count; /* quick blocks in it */
  uint32_t size;  /* of its blocks, in bytes: the same in every arena, as is */
  uint32_t near;  /* a bit for each bin from this one on of which a block may serve */
} vmm__quick_bin;

typedef struct vmm__arena {
  vmm__u64 quick_low;  /* the key below which a freed block may be kept; 0 for an arena that is sticky */
  unsigned quick_most; /* the highest bin of which blocks may be kept */
  vmm__u64 quick_bits[VMM__QUICK_WORDS + 1]; /* bit per bin that has quick blocks; the last word has none, ever */
  vmm__quick_bin kept[VMM__QUICK_BINS];
  vmm__u64 mark; /* what the records of its ranges carry: the label and VMM__RECORD_FREE */
  unsigned id;
  unsigned label;
  vmm__u64 range_bytes;
  vmm__u64 range_count;
  vmm__u64 words; /* bit per word of bins that is not 0 */
  vmm__u64 bins[VMM__BIN_WORDS];
  uint32_t heads[VMM__BIN_WORDS][VMM__BINS_PER_WORD];
  struct vmm__arena *next; /* of a list: spare ones, or all that were allocated */
} vmm__arena;

/* What the space knows of an id. */
typedef struct vmm__arena_id {
  uint32_t stuck; /* live blocks that tell this id */
  uint16_t next;  /* of the ids that can be opened; 0 ends */
  bool open;
  bool sticky; /* blocks cut from it tell the id, and are freed into it */
} vmm__arena_id;

#endif
