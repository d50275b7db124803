/* One typed stream of what happened on a device: a ring of the last events, for logs, traces and tests. Counters are kept
 * where they are counted; the stream says in what order things went. */
#ifndef VMM_BASE_EVENTS_H
#define VMM_BASE_EVENTS_H

#include "base/lock.h"
#include "vmm/vmm.h"

enum { VMM__EVENTS_CAPACITY = 256 };

typedef struct vmm__events {
  vmm__lock lock; /* EVENTS rank: a leaf */
  vmm__u64 last;  /* sequence of the newest event, 0 if none */
  vmm_event ring[VMM__EVENTS_CAPACITY];
} vmm__events;

bool vmm__events_init(vmm__events *events);
void vmm__events_destroy(vmm__events *events);

/* Adds an event; its sequence is set here. Allocates nothing, never fails. */
void vmm__events_add(vmm__events *events, vmm_event event);

/* The events with a sequence above `after`, oldest first, at most `capacity` of the oldest of them. Returns how many. */
size_t vmm__events_get(vmm__events *events, vmm__u64 after, vmm_event *array, size_t capacity);

#endif
