/* Arithmetic on sizes that says when it overflows, and the few bit tricks the index needs. Every size computation in the
 * library goes through here. Sizes and addresses are unsigned 64-bit throughout (vmm__u64). */
#ifndef VMM_BASE_CHECKED_H
#define VMM_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long long vmm__u64;

/* Each writes *result and returns true, or returns false if the true result does not fit. */
static inline bool vmm__add(vmm__u64 a, vmm__u64 b, vmm__u64 *result) { return !__builtin_add_overflow(a, b, result); }
static inline bool vmm__multiply(vmm__u64 a, vmm__u64 b, vmm__u64 *result) {
  return !__builtin_mul_overflow(a, b, result);
}

static inline bool vmm__is_power_of_two(vmm__u64 value) { return value != 0 && (value & (value - 1)) == 0; }

static inline vmm__u64 vmm__round_down(vmm__u64 value, vmm__u64 step) { return value - value % step; }

/* `step` need not be a power of two, but must not be 0. */
static inline bool vmm__round_up(vmm__u64 value, vmm__u64 step, vmm__u64 *result) {
  vmm__u64 rest = value % step;
  if (rest == 0) {
    *result = value;
    return true;
  }
  return vmm__add(value, step - rest, result);
}

/* Index of the lowest / highest bit set; the value must not be 0. */
static inline unsigned vmm__lowest_bit(vmm__u64 value) { return (unsigned)__builtin_ctzll(value); }
static inline unsigned vmm__highest_bit(vmm__u64 value) { return 63u - (unsigned)__builtin_clzll(value); }

static inline vmm__u64 vmm__min(vmm__u64 a, vmm__u64 b) { return a < b ? a : b; }
static inline vmm__u64 vmm__max(vmm__u64 a, vmm__u64 b) { return a > b ? a : b; }

/* a - b, or 0 if that is negative. */
static inline vmm__u64 vmm__saturating_sub(vmm__u64 a, vmm__u64 b) { return a > b ? a - b : 0; }
/* a + b and a * b, or the largest value if that does not fit; for bounds and deadlines. */
static inline vmm__u64 vmm__saturating_add(vmm__u64 a, vmm__u64 b) {
  vmm__u64 sum;
  return vmm__add(a, b, &sum) ? sum : UINT64_MAX;
}
static inline vmm__u64 vmm__saturating_multiply(vmm__u64 a, vmm__u64 b) {
  vmm__u64 product;
  return vmm__multiply(a, b, &product) ? product : UINT64_MAX;
}

#endif
