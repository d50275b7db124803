/* How much to grow: bytes and history in, sizes out. Pure functions. */
#ifndef VMM_INDEX_GROWTH_H
#define VMM_INDEX_GROWTH_H

#include "base/checked.h"

/* What a growth starts from. `granularity` is not 0; limit_left and room are the bytes the limits still allow and the
 * address space still holds (UINT64_MAX: no bound). */
typedef struct vmm__growth {
  vmm__u64 committed;   /* bytes the pool has now */
  vmm__u64 request;     /* bytes that must come, not 0 */
  vmm__u64 mapping_min; /* smallest mapping made ahead of need */
  vmm__u64 mapping_max; /* largest one made ahead of need */
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

/* *size = clamp(committed / 8, mapping_min, mapping_max) or the request if that is larger, rounded up to granularity, cut
 * to limit_left and room but never below the rounded request. *size is 0 unless the answer is OK. */
vmm__growth_answer vmm__growth_size(const vmm__growth *growth, vmm__u64 *size);

/* The next smaller size to try when the driver is out of memory: half, rounded up to granularity, not below the rounded
 * request; 0 if `size` is that already. */
vmm__u64 vmm__growth_smaller(vmm__u64 size, vmm__u64 request, vmm__u64 granularity);

/* The address space to reserve first: 4 x total, rounded up to granularity, at least `first`; 0 on overflow. */
vmm__u64 vmm__growth_reservation(vmm__u64 total, vmm__u64 first, vmm__u64 granularity);
/* The next one when that is refused: half, not below max(first, 1 GiB) rounded up; 0 if `size` is that or less. */
vmm__u64 vmm__growth_reservation_smaller(vmm__u64 size, vmm__u64 first, vmm__u64 granularity);

#endif
