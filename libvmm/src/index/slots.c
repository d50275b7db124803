/* The hash of blocks: searches beyond the first line, insert, remove, and a new table. */
#include "index/slots.h"

#define LINE_WORDS (2 * VMM__SLOTS_PER_LINE)
#define LINE_BYTES sizeof(uint32_t[LINE_WORDS])

static vmm__u64 line_mask(const vmm__slot_table *table) { return table->count / VMM__SLOTS_PER_LINE - 1; }
static vmm__u64 home_line(const vmm__slot_table *table, uint32_t key) { return vmm__slots_hash(key) >> table->shift; }

void vmm__slots_init(vmm__slots *slots, vmm__u64 base, const vmm__records *records) {
  static _Alignas(64) uint32_t none[2 * LINE_WORDS]; /* searched, never written */
  static uint32_t none_spilt[2];

  slots->table = (vmm__slot_table){none, NULL, none_spilt, 0, 63};
  slots->origin = base - (1u << VMM__UNIT_SHIFT);
  slots->limit = 0;
  slots->used = 0;
  slots->records = records;
  atomic_init(&slots->hint_words, (uintptr_t)none);
  atomic_init(&slots->hint_shift, 63);
}

uint32_t vmm__slots_at(const vmm__slots *slots, vmm__u64 address) {
  const vmm__slot_table *table = &slots->table;
  vmm__u64 whole = vmm__slots_key(slots, address);
  uint32_t key = (uint32_t)whole;
  uint32_t far = whole >> 32 != 0 ? VMM__SLOT_FAR : 0;

  if (address % (1u << VMM__UNIT_SHIFT) != 0) return VMM__SLOT_NONE;
  for (vmm__u64 line = home_line(table, key);; line = (line + 1) & line_mask(table)) {
    for (unsigned i = 0; i < VMM__SLOTS_PER_LINE; i++) {
      uint32_t place = (uint32_t)(line * LINE_WORDS + i);
      uint32_t info = *vmm__slots_info(slots, place);

      if (table->words[place] != key || info == 0) continue;
      if ((info >= VMM__SLOT_QUICK ? 0 : info & VMM__SLOT_FAR) != far) continue;
      if (far == 0 || vmm__record_at(slots->records, vmm__slots_id(slots, place))->address == address) return place;
    }
    if (table->spilt[line] == 0) return VMM__SLOT_NONE;
  }
}

uint32_t vmm__slots_look_on(const vmm__slots *slots, vmm__slots_sought sought) {
  const vmm__slot_table *table = &slots->table;
  uint32_t line = vmm__slots_line(slots, sought);

  while (table->spilt[line / LINE_WORDS] != 0) {
    uint32_t place;

    line = (uint32_t)((line / LINE_WORDS + 1) & line_mask(table)) * LINE_WORDS;
    place = vmm__slots_look(slots, line, (uint32_t)sought.key);
    if (vmm__slots_confirm(slots, place, (uint32_t)sought.key)) return place;
  }
  return VMM__SLOT_NONE;
}

/* The next empty slot for a key, which becomes its. */
static uint32_t put(vmm__slots *slots, uint32_t key, uint32_t info, uint32_t id) {
  const vmm__slot_table *table = &slots->table;
  vmm__u64 line = home_line(table, key);
  uint32_t place;

  for (unsigned i = 0;; i++) {
    if (i == VMM__SLOTS_PER_LINE) {
      table->spilt[line]++;
      line = (line + 1) & line_mask(table);
      i = 0;
    }
    place = (uint32_t)(line * LINE_WORDS + i);
    if (*vmm__slots_info(slots, place) == 0) break;
  }
  table->words[place] = key;
  *vmm__slots_info(slots, place) = info;
  table->ids[vmm__slot_number(place)] = id;
  return place;
}

void vmm__slots_insert(vmm__slots *slots, vmm__u64 address, uint32_t info, uint32_t id) {
  (void)put(slots, (uint32_t)vmm__slots_key(slots, address), info, id);
  slots->used++;
}

void vmm__slots_remove(vmm__slots *slots, uint32_t place) {
  const vmm__slot_table *table = &slots->table;

  for (vmm__u64 line = home_line(table, table->words[place]); line != place / LINE_WORDS;
       line = (line + 1) & line_mask(table))
    table->spilt[line]--;
  table->words[place] = 0;
  *vmm__slots_info(slots, place) = 0;
  slots->used--;
}

vmm__u64 vmm__slots_bytes(vmm__u64 count) {
  return count * sizeof(uint32_t[3]) + count / VMM__SLOTS_PER_LINE * sizeof(uint32_t) + LINE_BYTES;
}

vmm__slot_table vmm__slots_renew(vmm__slots *slots, void *memory, vmm__u64 count) {
  vmm__slot_table old = slots->table;
  char *lines = (char *)memory + (LINE_BYTES - (uintptr_t)memory % LINE_BYTES) % LINE_BYTES;
  uint32_t *words = (uint32_t *)(void *)lines;

  slots->table = (vmm__slot_table){words, words + count * 2, words + count * 3, count,
                                   64 - vmm__lowest_bit(count / VMM__SLOTS_PER_LINE)};
  slots->limit = vmm__slots_limit(count);
  atomic_store_explicit(&slots->hint_words, (uintptr_t)words, memory_order_relaxed);
  atomic_store_explicit(&slots->hint_shift, slots->table.shift, memory_order_relaxed);
  /* A line is the top of the hash, in both tables: they are walked from one end to the other. */
  for (vmm__u64 i = 0; i < old.count; i++) {
    const uint32_t *slot = &old.words[i / VMM__SLOTS_PER_LINE * LINE_WORDS + i % VMM__SLOTS_PER_LINE];

    if (vmm__slot_is_live(slot[VMM__SLOTS_PER_LINE])) (void)put(slots, slot[0], slot[VMM__SLOTS_PER_LINE], old.ids[i]);
  }
  return old;
}

uint32_t vmm__slots_bring(vmm__slots *slots, const vmm__slot_table *old, uint32_t place) {
  return put(slots, old->words[place], VMM__SLOT_QUICK, old->ids[vmm__slot_number(place)]);
}
