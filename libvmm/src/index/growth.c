/* How much to grow. A fraction of what is there, so that the number of growths stays logarithmic; bounded, so that a
 * large pool does not overshoot by gigabytes. */
#include "index/growth.h"

#define GROWTH_FRACTION 8u
#define RESERVATION_FACTOR 4u
#define RESERVATION_LEAST (1ull << 30)

vmm__growth_answer vmm__growth_size(const vmm__growth *growth, vmm__u64 *size) {
  vmm__u64 request, wanted, bound;

  *size = 0;
  if (!vmm__round_up(growth->request, growth->granularity, &request)) return VMM__GROWTH_OVERFLOW;
  if (request > growth->limit_left) return VMM__GROWTH_LIMIT;
  if (request > growth->room) return VMM__GROWTH_ROOM;
  /* The upper bound wins if a caller's bounds contradict each other. */
  wanted = vmm__min(vmm__max(growth->committed / GROWTH_FRACTION, growth->mapping_min), growth->mapping_max);
  bound = vmm__min(growth->limit_left, growth->room);
  if (wanted > bound || !vmm__round_up(wanted, growth->granularity, &wanted) || wanted > bound) {
    wanted = vmm__round_down(bound, growth->granularity);
  }
  *size = vmm__max(wanted, request);
  return VMM__GROWTH_OK;
}

/* Half of `size`, rounded up, but not below `floor`; 0 if that is no progress. */
static vmm__u64 halve(vmm__u64 size, vmm__u64 floor, vmm__u64 granularity) {
  vmm__u64 half;

  if (!vmm__round_up(size / 2, granularity, &half) || !vmm__round_up(floor, granularity, &floor)) return 0;
  half = vmm__max(half, floor);
  return half < size ? half : 0;
}

vmm__u64 vmm__growth_smaller(vmm__u64 size, vmm__u64 request, vmm__u64 granularity) {
  return halve(size, vmm__max(request, 1), granularity);
}

vmm__u64 vmm__growth_reservation(vmm__u64 total, vmm__u64 first, vmm__u64 granularity) {
  vmm__u64 size;

  if (!vmm__multiply(total, RESERVATION_FACTOR, &size)) return 0;
  if (!vmm__round_up(vmm__max(vmm__max(size, first), 1), granularity, &size)) return 0;
  return size;
}

vmm__u64 vmm__growth_reservation_smaller(vmm__u64 size, vmm__u64 first, vmm__u64 granularity) {
  return halve(size, vmm__max(first, RESERVATION_LEAST), granularity);
}
