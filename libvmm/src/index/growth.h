/* How much to grow: bytes in, sizes out. Pure functions. */
#ifndef VMM_INDEX_GROWTH_H
#define VMM_INDEX_GROWTH_H

#include "base/checked.h"

/* What a growth starts from. `granularity` is not 0; limit_left and room are the bytes the limits still allow and the
 * address space still holds (UINT64_MAX: no bound). */
typedef struct vmm__growth {
  int policy;           /* vmm_growth_policy */
  vmm__u64 step;        /* of the fixed policy */
  vmm__u64 committed;   /* bytes the pool has now, with the idle handles it will take */
  vmm__u64 live;        /* bytes in blocks once the request is served */
  vmm__u64 request;     /* bytes that must come, not 0 */
  vmm__u64 at_hand;     /* ... and what is there for them without asking the driver */
  vmm__u64 mapping_min; /* smallest mapping made */
  vmm__u64 mapping_max; /* largest one, if the pool is not large, but see vmm__growth_piece */
  vmm__u64 ahead_max;   /* bytes made ahead of need at most; UINT64_MAX: what the policy says */
  vmm__u64 small;       /* up to so many bytes a pool doubles, and up to a 32nd of that quadruples */
  vmm__u64 scattered;   /* the mean size of a block, where free memory lies scattered; 0: it does not */
  bool in_shreds;       /* the request would fit if what is free were one range, and that is much */
  vmm__u64 granularity;
  vmm__u64 limit_left;
  vmm__u64 room;
} vmm__growth;

typedef enum vmm__growth_answer {
  VMM__GROWTH_OK = 0,
  VMM__GROWTH_OVERFLOW = 1, /* the request cannot be rounded */
  VMM__GROWTH_LIMIT = 2,    /* more than limit_left */
  VMM__GROWTH_ROOM = 3      /* more than room */
} vmm__growth_answer;

/* Bytes that the policy would have created now, whatever the request; a multiple of the granularity.
 * exact: none. fixed: the step. proportional: while committed bytes with the request are at most `small`, what is missing to
 * the next power of two of them (in shreds half-way there, if that is enough; else four times what is committed while that
 * is at most a 32nd of `small`); then what is missing to a tenth above the live bytes, an eleventh where free memory lies
 * scattered. At most ahead_max. */
vmm__u64 vmm__growth_allowance(const vmm__growth *growth);

/* *size: at_hand if that serves the request. Else the rounded request, or at_hand and the allowance (at least mapping_min)
 * if that is more, cut to limit_left and room but never below the rounded request. *size is 0 unless the answer is OK. */
vmm__growth_answer vmm__growth_size(const vmm__growth *growth, vmm__u64 *size);

/* The largest mapping to make of `size` bytes that are created. One, if the request alone is as large as the pool: then
 * its cost counts. Else an eighth, so that what gets idle can be moved or given back in parts; between four times
 * mapping_min and mapping_max (in a large pool, a 128th of it: the number of mappings stays in bounds). Where free memory
 * lies scattered they are smaller: a 1024th of the pool, an eighth of the mean block, twice mapping_min or a 256th of the
 * growth, whichever is most. */
vmm__u64 vmm__growth_piece(const vmm__growth *growth, vmm__u64 size);

/* How scattered free memory is: the share that was free when nothing of it served, in 65,536ths, as a moving average over
 * such misses. The next from the last and what was committed and free. */
uint32_t vmm__growth_scatter(uint32_t scatter, vmm__u64 committed, vmm__u64 free_bytes);
/* Whether that is much: a twentieth. */
bool vmm__growth_is_scattered(uint32_t scatter);
/* Whether a pool with so much free, of which nothing serves a block of `size`, is in shreds: it would fit, and a fifth is
 * free. */
bool vmm__growth_is_in_shreds(vmm__u64 size, vmm__u64 committed, vmm__u64 free_bytes);

/* The next smaller size to try when the driver is out of memory: half, rounded up to granularity, not below the rounded
 * request; 0 if `size` is that already. */
vmm__u64 vmm__growth_smaller(vmm__u64 size, vmm__u64 request, vmm__u64 granularity);

/* Up to how many bytes a pool doubles on a device of `total` bytes: a 32nd of it, at most 4 GiB. */
vmm__u64 vmm__growth_small(vmm__u64 total);

/* The address space to reserve first: 4 x total, rounded up to granularity, at least `first`; 0 on overflow. */
vmm__u64 vmm__growth_reservation(vmm__u64 total, vmm__u64 first, vmm__u64 granularity);
/* The next one when that is refused: half, not below max(first, 1 GiB) rounded up; 0 if `size` is that or less. */
vmm__u64 vmm__growth_reservation_smaller(vmm__u64 size, vmm__u64 first, vmm__u64 granularity);

#endif
