/* Physical memory: handles are created, counted against the limit, kept idle for reuse, and given back. */
#ifndef VMM_DEVICE_HANDLES_H
#define VMM_DEVICE_HANDLES_H

#include "device/work.h"

struct vmm__handle {
  struct vmm__handle *next; /* in the idle or the quarantine list */
  vmm__u64 raw;             /* the driver's; 0 while there is none */
  vmm__u64 size;
  int first_code; /* what the first failed release answered; 0: none failed */
  bool fresh;     /* created by the commit under way: if that fails it is no idle handle, but goes back to the driver */
};

/* A record without memory behind it, so that nothing is allocated once the driver was called. NULL: no host memory. */
vmm__handle *vmm__handle_record(vmm_device *device);
void vmm__handle_record_free(vmm_device *device, vmm__handle *record);

/* Puts physical memory of `size` bytes behind a record: an idle handle of that size, or a new one. LIMIT if the device's
 * limit forbids it, or what create answered; the record is then still empty. Needs the context for messages only. */
vmm_status vmm__handle_take(vmm__work *work, vmm__handle *record, vmm__u64 size);

/* Gives the memory behind a record away, and the record with it: to the idle list as far as its limit goes and if it
 * is not fresh, else back to the driver. Never fails for the caller: what cannot be released is quarantined, and counted in the work. Returns the
 * bytes that went back to the driver. */
vmm__u64 vmm__handle_give(vmm__work *work, vmm__handle *handle);

/* The sizes of idle handles of at least `least` and at most `most` bytes, multiples of `granularity`, largest first: at
 * most `capacity` of the largest. Returns how many. Takes the device lock. */
size_t vmm__handles_sizes(vmm_device *device, vmm__u64 least, vmm__u64 most, vmm__u64 granularity, vmm__u64 *sizes,
                          size_t capacity);

/* Releases idle handles until at most `keep` bytes of them are left, and tries quarantined ones again. Returns the bytes
 * given back; failures are undo failures of the work. */
vmm__u64 vmm__handles_trim(vmm__work *work, vmm__u64 keep);

/* Tries the release of quarantined handles again; what is back is added to the work's gave_back. `last_chance`: at close, where INVALID_VALUE from a second release always
 * counts as done. */
void vmm__handles_recover(vmm__work *work, bool last_chance);

#endif
