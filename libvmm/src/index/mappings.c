/* The table of mappings: a sorted array. Lookups are a binary search; insert and remove move what lies behind, which is
 * nothing against the driver calls that go with them. */
#include "index/mappings.h"

#include <string.h>

#define FIRST_CAPACITY 16u

void vmm__mappings_init(vmm__mappings *table) { memset(table, 0, sizeof *table); }

void vmm__mappings_destroy(vmm__mappings *table, const vmm_host_memory *memory) {
  vmm__memory_release(memory, table->entries, table->capacity, sizeof *table->entries);
  vmm__mappings_init(table);
}

vmm__u64 vmm__mappings_short(const vmm__mappings *table, vmm__u64 inserts) {
  vmm__u64 needed = vmm__saturating_add(table->count, inserts);

  if (needed <= table->capacity) return 0;
  return vmm__max(vmm__max(needed, FIRST_CAPACITY), table->capacity + table->capacity / 2);
}

bool vmm__mappings_spare_make(vmm__mappings_spare *spare, const vmm_host_memory *memory, vmm__u64 hint) {
  spare->entries = vmm__memory_allocate(memory, hint, sizeof *spare->entries);
  spare->capacity = spare->entries == NULL ? 0 : (size_t)hint;
  return spare->entries != NULL;
}

void vmm__mappings_spare_adopt(vmm__mappings *table, vmm__mappings_spare *spare) {
  vmm__mappings_spare old = {table->entries, table->capacity};

  if (spare->capacity <= table->capacity) return;
  if (table->count != 0) memcpy(spare->entries, table->entries, table->count * sizeof *table->entries);
  table->entries = spare->entries;
  table->capacity = spare->capacity;
  *spare = old;
}

void vmm__mappings_spare_release(vmm__mappings_spare *spare, const vmm_host_memory *memory) {
  vmm__memory_release(memory, spare->entries, spare->capacity, sizeof *spare->entries);
  spare->entries = NULL;
  spare->capacity = 0;
}

size_t vmm__mappings_lower_bound(const vmm__mappings *table, vmm__u64 address) {
  size_t low = 0, high = table->count;

  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const vmm__mapping *entry = &table->entries[middle];

    if (entry->address <= address && address - entry->address >= entry->size) {
      low = middle + 1;
    } else if (entry->address > address) {
      high = middle;
    } else {
      return middle;
    }
  }
  return low;
}

static vmm__u64 end_of(const vmm__mapping *entry) { return entry->address + entry->size; }

/* After a change at number i. */
static void set_prefix(vmm__mappings *table, size_t i) {
  if (table->prefix > i) table->prefix = i;
  while (table->prefix < table->count &&
         (table->prefix == 0 || table->entries[table->prefix].address == end_of(&table->entries[table->prefix - 1])))
    table->prefix++;
}

vmm__mapping *vmm__mappings_insert(vmm__mappings *table, vmm__mapping mapping) {
  size_t i = vmm__mappings_lower_bound(table, mapping.address);

  memmove(&table->entries[i + 1], &table->entries[i], (table->count - i) * sizeof *table->entries);
  table->entries[i] = mapping;
  table->count++;
  table->bytes += mapping.size;
  set_prefix(table, i);
  return &table->entries[i];
}

vmm__mapping *vmm__mappings_find(const vmm__mappings *table, vmm__u64 address) {
  size_t i = vmm__mappings_lower_bound(table, address);

  return i < table->count && table->entries[i].address <= address ? &table->entries[i] : NULL;
}

bool vmm__mappings_remove(vmm__mappings *table, vmm__u64 address, vmm__mapping *out) {
  vmm__mapping *entry = vmm__mappings_find(table, address);
  size_t i;

  if (entry == NULL || entry->address != address) return false;
  if (out != NULL) *out = *entry;
  i = (size_t)(entry - table->entries);
  table->bytes -= entry->size;
  table->count--;
  memmove(entry, entry + 1, (table->count - i) * sizeof *entry);
  set_prefix(table, i);
  return true;
}

vmm__u64 vmm__mappings_first_unmapped(const vmm__mappings *table, vmm__u64 address) {
  size_t i = vmm__mappings_lower_bound(table, address);

  if (i == table->count || table->entries[i].address > address) return address;
  if (i < table->prefix) i = table->prefix - 1;
  while (i + 1 < table->count && table->entries[i + 1].address == end_of(&table->entries[i])) i++;
  return end_of(&table->entries[i]);
}

vmm__u64 vmm__mappings_lowest_gap(const vmm__mappings *table, vmm__u64 base, vmm__u64 limit_end, vmm__u64 size,
                                  vmm__u64 granularity) {
  size_t i = vmm__mappings_lower_bound(table, base);
  vmm__u64 start = base;

  if (i == 0 && table->prefix > 1 && table->entries[0].address == base) {
    i = table->prefix - 1;
    start = table->entries[i].address; /* up to here there is none */
  }
  for (; start < limit_end; i++) {
    const vmm__mapping *entry = i < table->count ? &table->entries[i] : NULL;
    vmm__u64 end = entry == NULL ? limit_end : vmm__min(entry->address, limit_end);
    vmm__u64 offset;

    if (start < end && end - start >= size) return start;
    if (entry == NULL) return 0;
    if (entry->address + entry->size <= base) continue;
    if (!vmm__round_up(entry->address + entry->size - base, granularity, &offset)) return 0;
    if (!vmm__add(base, offset, &start)) return 0;
  }
  return 0;
}

vmm__u64 vmm__mappings_gap_after(const vmm__mappings *table, vmm__u64 address, vmm__u64 limit_end) {
  size_t i = vmm__mappings_lower_bound(table, address);

  if (address >= limit_end) return 0;
  if (i == table->count) return limit_end - address;
  return vmm__saturating_sub(vmm__min(table->entries[i].address, limit_end), address);
}

bool vmm__mappings_check(const vmm__mappings *table, const char **what) {
  vmm__u64 end = 0, bytes = 0;

  *what = "mappings: more entries than room";
  if (table->count > table->capacity) return false;
  for (size_t i = 0; i < table->count; i++) {
    const vmm__mapping *entry = &table->entries[i];

    *what = "mappings: an entry is empty or wraps";
    if (entry->size == 0 || entry->address + (entry->size - 1) < entry->address) return false;
    *what = "mappings: entries overlap or are out of order";
    if (entry->address < end) return false;
    end = entry->address + entry->size;
    bytes += entry->size;
  }
  for (size_t i = 1; i < table->count; i++) {
    *what = "mappings: the prefix is not those side by side";
    if ((i < table->prefix || i == table->prefix) &&
        (table->entries[i].address == end_of(&table->entries[i - 1])) != (i < table->prefix))
      return false;
  }
  if (table->prefix > table->count || (table->prefix == 0) != (table->count == 0)) return false;
  *what = "mappings: the sum of sizes is wrong";
  if (bytes != table->bytes) return false;
  *what = "";
  return true;
}
