/* Where the driver has no virtual memory management: each growth is one plain allocation (cuMemAlloc), wherever the driver
 * puts it. There is no reservation and nothing to map; a mapping of the table is an allocation, its handle the address. */
#ifndef VMM_REGION_PLAIN_H
#define VMM_REGION_PLAIN_H

#include "region/region.h"

/* At the end of each allocation so much is left unused: then two that the driver puts side by side never look like one
 * range to the index, and no block spans two. It is what the plain allocations of drivers are aligned to at least. */
enum { VMM__PLAIN_GUARD = 256 };

/* Instead of a reservation: all addresses are allowed, none is held. UNSUPPORTED with peers. */
vmm_status vmm__plain_open(vmm__region *region, vmm__work *work, const vmm__region_request *request);

/* The body of a commit: one piece, whose address is known afterwards. Failure leaves what the undo of a commit expects. */
vmm_status vmm__plain_commit(vmm__region *region, vmm__work *work, vmm__commit *commit);

/* The bytes that can be used of allocations of whole granules that hold `size` bytes at least. False on overflow. */
bool vmm__plain_round(const vmm_device *device, vmm__u64 size, vmm__u64 *usable);

#endif
