/* The event ring. */
#include "base/events.h"

bool vmm__events_init(vmm__events *events) {
  events->last = 0;
  return vmm__lock_init(&events->lock, VMM__RANK_EVENTS);
}

void vmm__events_destroy(vmm__events *events) { vmm__lock_destroy(&events->lock); }

void vmm__events_add(vmm__events *events, vmm_event event) {
  vmm__lock_acquire(&events->lock);
  event.sequence = ++events->last;
  events->ring[event.sequence % VMM__EVENTS_CAPACITY] = event;
  vmm__lock_release(&events->lock);
}

size_t vmm__events_get(vmm__events *events, vmm__u64 after, vmm_event *array, size_t capacity) {
  size_t count = 0;
  vmm__u64 next;

  vmm__lock_acquire(&events->lock);
  next = vmm__max(vmm__saturating_add(after, 1), vmm__saturating_sub(events->last, VMM__EVENTS_CAPACITY - 1));
  if (next == 0) next = 1;
  for (; next <= events->last && count < capacity; next++) array[count++] = events->ring[next % VMM__EVENTS_CAPACITY];
  vmm__lock_release(&events->lock);
  return count;
}
