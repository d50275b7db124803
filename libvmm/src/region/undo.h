/* The undo steps commit, decommit and recover share. */
#ifndef VMM_REGION_UNDO_H
#define VMM_REGION_UNDO_H

#include "region/region.h"

/* Unmaps what may be mapped there: a needless unmap does no harm (measured), a missing one would. True if nothing is mapped
 * there afterwards, whatever the call answered (or the device is lost: then it goes with the context). A failure is an
 * undo failure of the work. */
bool vmm__unmap(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size);

/* Enters a range that could not be unmapped. There must be room in the table. */
void vmm__quarantine(vmm__region *region, vmm__mapping stuck);

/* Under the structure lock. A trim that gives up its wait makes its DETACHED mappings LIVE again under the owner's lock
 * alone, so the state is read under that. */
bool vmm__is_quarantined(vmm__region *region, const vmm__mapping *mapping);

/* Whether all devices have the access that the mapping at `address` was published with; when in doubt, false. */
bool vmm__has_access(vmm__region *region, vmm__u64 address);

/* Takes a device's access away from every mapping. False if a step failed: an undo failure of the work. */
bool vmm__revoke(vmm__region *region, vmm__work *work, int raw_device);

#endif
