/* The hash of blocks: searches beyond the first line, insert, remove, and moving to a larger table. */
#include "index/slots.h"

vmm__slot *vmm__slots_search(const vmm__slots *slots, vmm__u64 home, vmm__u64 key, vmm__u64 mask) {
  for (vmm__u64 i = home;; i = (i + 1) & (slots->count - 1)) {
    vmm__slot *slot = &slots->lines[i];

    if (slot->key == 0) return NULL;
    if ((slot->key & ~mask) == key) return slot;
  }
}

void vmm__slots_init(vmm__slots *slots, vmm__arena *const *labels) {
  static vmm__slot none[2 * VMM__SLOTS_PER_LINE]; /* searched, never written */

  slots->lines = none;
  slots->count = 0;
  slots->shift = 63;
  slots->limit = 0;
  slots->used = 0;
  slots->labels = labels;
  atomic_init(&slots->hint_lines, (uintptr_t)none);
  atomic_init(&slots->hint_shift, 63);
}

/* Writes a slot into an empty place, and that place into the list if it is a quick block's. */
static void put(vmm__slots *slots, vmm__u64 i, vmm__slot slot) {
  slots->lines[i] = slot;
  if ((slot.key & VMM__SLOT_LIVE) == 0)
    slots->labels[vmm__slot_label(&slot)]->quick[vmm__slot_place(&slot)][vmm__slot_bin(&slot)] = (uint32_t)i;
}

static void insert(vmm__slots *slots, vmm__slot slot) {
  vmm__u64 i = vmm__slots_home(slots, vmm__slot_address(&slot));

  while (slots->lines[i].key != 0) i = (i + 1) & (slots->count - 1);
  put(slots, i, slot);
}

void vmm__slots_insert(vmm__slots *slots, vmm__slot slot) {
  insert(slots, slot);
  slots->used++;
}

/* Those behind move up, so that no search ever stops short and none gets longer with time. */
void vmm__slots_remove(vmm__slots *slots, vmm__slot *slot) {
  vmm__u64 mask = slots->count - 1;
  vmm__u64 i = (vmm__u64)(slot - slots->lines);
  vmm__u64 j = i;

  slots->used--;
  for (;;) {
    const vmm__slot *other;

    j = (j + 1) & mask;
    other = &slots->lines[j];
    if (other->key == 0) break;
    if (((j - vmm__slots_home(slots, vmm__slot_address(other))) & mask) >= ((j - i) & mask)) {
      put(slots, i, *other);
      i = j;
    }
  }
  slots->lines[i] = (vmm__slot){0, 0, 0};
}

void vmm__slots_move(vmm__slots *slots, vmm__slot *lines, vmm__u64 count) {
  const vmm__slot *old = slots->lines;
  vmm__u64 old_count = slots->count;

  slots->lines = lines;
  slots->count = count;
  slots->shift = 64 - vmm__lowest_bit(count / VMM__SLOTS_PER_LINE);
  slots->limit = vmm__slots_limit(count);
  atomic_store_explicit(&slots->hint_lines, (uintptr_t)lines, memory_order_relaxed);
  atomic_store_explicit(&slots->hint_shift, slots->shift, memory_order_relaxed);
  /* The place is the top of the hash, in both tables: they are walked from one end to the other. */
  for (vmm__u64 i = 0; i < old_count; i++) {
    if (old[i].key != 0) insert(slots, old[i]);
  }
}
