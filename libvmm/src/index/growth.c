/* How much to grow. Two wishes pull against each other: few growths, and little that is held and not used. A step in
 * proportion to what is live bounds both; what is live, and not what is committed, because memory in pieces nobody can
 * use is no reason to hold more. A small pool doubles, a tiny one quadruples, since what they waste is small too; a large
 * one stays within a tenth, which is seven growths per doubling. */
#include "index/growth.h"

#include "vmm/vmm.h"

#define AHEAD_FRACTION 10u
#define SCATTERED_AHEAD_FRACTION 11u /* for some of what is scattered is never used */
#define PIECES 8u
#define LEAST_PIECE 4u /* x mapping_min */
#define MOST_PIECES 128u
#define MOST_FINE_PIECES 1024u
#define LEAST_FINE_PIECE 2u     /* x mapping_min */
#define GROWTH_FINE_PIECES 256u /* of one growth: so that it takes some 10 ms at most */
#define BLOCK_PIECES 8u
#define WHOLE (1u << 16) /* a scatter */
#define SCATTERED (WHOLE / 20)
#define SHREDS_FRACTION 5u
#define SMALL_FRACTION 32u
#define TINY_FRACTION 32u /* of what is small */
#define SHREDS_LEAST_FRACTION 128u
#define SMALL_MOST (4ull << 30)
#define RESERVATION_FACTOR 4u
#define RESERVATION_LEAST (1ull << 30)

/* The next power of two, or more than any size. */
static vmm__u64 power_of_two(vmm__u64 size) {
  if (size <= 1 || vmm__is_power_of_two(size)) return size;
  return vmm__highest_bit(size) == 63 ? UINT64_MAX : 2ull << vmm__highest_bit(size);
}

/* What is committed and of no use to the request counts as used while the pool is small: it doubles all the same, and a
 * tiny one is quadrupled. But not at once if all of it would do, were it not in shreds: then half-way, which is two growths
 * per doubling. (In a very small one that would save nothing.) */
static vmm__u64 small_pool(const vmm__growth *growth, vmm__u64 used) {
  vmm__u64 wanted = power_of_two(used), quarter = wanted / 4;

  if (growth->in_shreds && used > growth->small / SHREDS_LEAST_FRACTION && used <= wanted - quarter) wanted -= quarter;
  else
    wanted = vmm__max(wanted, vmm__min(vmm__saturating_multiply(growth->committed, 4), growth->small / TINY_FRACTION));
  return vmm__min(wanted, growth->small);
}

static vmm__u64 proportional(const vmm__growth *growth) {
  vmm__u64 used = vmm__max(growth->live, vmm__saturating_add(growth->committed, growth->request)), wanted;

  if (used <= growth->small) wanted = small_pool(growth, used);
  else if (growth->scattered != 0) wanted = vmm__saturating_add(growth->live, growth->live / SCATTERED_AHEAD_FRACTION);
  else wanted = vmm__saturating_add(growth->live, growth->live / AHEAD_FRACTION);
  return vmm__saturating_sub(wanted, growth->committed);
}

vmm__u64 vmm__growth_allowance(const vmm__growth *growth) {
  vmm__u64 bytes = 0;

  if (growth->policy == VMM_GROWTH_FIXED) bytes = growth->step;
  else if (growth->policy == VMM_GROWTH_PROPORTIONAL) bytes = proportional(growth);
  return vmm__round_down(vmm__min(bytes, growth->ahead_max), growth->granularity);
}

vmm__growth_answer vmm__growth_size(const vmm__growth *growth, vmm__u64 *size) {
  vmm__u64 request, wanted, bound;

  *size = 0;
  if (!vmm__round_up(growth->request, growth->granularity, &request)) return VMM__GROWTH_OVERFLOW;
  if (request > growth->limit_left) return VMM__GROWTH_LIMIT;
  if (request > growth->room) return VMM__GROWTH_ROOM;
  if (growth->at_hand >= request) {
    *size = growth->at_hand;
    return VMM__GROWTH_OK;
  }
  wanted = vmm__saturating_add(growth->at_hand, vmm__max(vmm__growth_allowance(growth), growth->mapping_min));
  bound = vmm__min(growth->limit_left, growth->room);
  if (wanted > bound || !vmm__round_up(wanted, growth->granularity, &wanted) || wanted > bound) {
    wanted = vmm__round_down(bound, growth->granularity);
  }
  *size = vmm__max(wanted, request);
  return VMM__GROWTH_OK;
}

static vmm__u64 fine_piece(const vmm__growth *growth, vmm__u64 size, vmm__u64 most) {
  vmm__u64 piece = vmm__max(growth->committed / MOST_FINE_PIECES, growth->scattered / BLOCK_PIECES);

  piece = vmm__max(piece, vmm__min(vmm__saturating_multiply(growth->mapping_min, LEAST_FINE_PIECE), most));
  return vmm__max(piece, size / GROWTH_FINE_PIECES);
}

vmm__u64 vmm__growth_piece(const vmm__growth *growth, vmm__u64 size) {
  vmm__u64 most = vmm__max(growth->mapping_max, growth->committed / MOST_PIECES), piece;

  if (growth->request >= growth->committed) return size;
  piece = vmm__max(vmm__min(size / PIECES, most),
                   vmm__min(vmm__saturating_multiply(growth->mapping_min, LEAST_PIECE), most));
  if (growth->scattered != 0) piece = vmm__min(piece, fine_piece(growth, size, most));
  piece = vmm__max(vmm__round_down(vmm__min(piece, size), growth->granularity), growth->granularity);
  return piece;
}

uint32_t vmm__growth_scatter(uint32_t scatter, vmm__u64 committed, vmm__u64 free_bytes) {
  vmm__u64 share = vmm__min(free_bytes / vmm__max(committed / WHOLE, 1), WHOLE);

  return (uint32_t)((3 * (vmm__u64)scatter + share) / 4);
}

bool vmm__growth_is_scattered(uint32_t scatter) { return scatter >= SCATTERED; }

bool vmm__growth_is_in_shreds(vmm__u64 size, vmm__u64 committed, vmm__u64 free_bytes) {
  return free_bytes >= size && free_bytes >= committed / SHREDS_FRACTION;
}

vmm__u64 vmm__growth_small(vmm__u64 total) { return vmm__min(total / SMALL_FRACTION, SMALL_MOST); }

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
