/* Arenas: opening and closing, merging, and those that blocks stick to. */
#include "index/space_inner.h"

void vmm__arena_enter(vmm__space *space, vmm__arena *arena) {
  unsigned number = space->arena_count++;

  arena->id = arena->label = number;
  arena->mark = (vmm__u64)number << VMM__RECORD_ARENA_SHIFT | VMM__RECORD_FREE;
  space->arenas[number] = space->labels[number] = arena;
  vmm__quick_init(arena);
}

static void give_id(vmm__space *space, unsigned id) {
  space->ids[id] = (vmm__arena_id){0, space->free_id, false, false};
  space->free_id = (uint16_t)id;
  space->free_ids++;
}

void vmm__arena_adopt(vmm__space *space, vmm__arena *arena) {
  arena->next = space->allocated;
  space->allocated = arena;
  vmm__arena_enter(space, arena);
  give_id(space, arena->id);
}

unsigned vmm__space_arena_open(vmm__space *space) {
  unsigned id = space->free_id;

  if (id == 0) return VMM__ARENA_IDLE;
  space->free_id = space->ids[id].next;
  space->free_ids--;
  space->ids[id].open = true;
  space->arenas[id]->quick_low = 0; /* until it is reckoned */
  return id;
}

void vmm__space_arena_close(vmm__space *space, unsigned id) {
  space->ids[id].open = space->ids[id].sticky = false;
  if (space->ids[id].stuck == 0) give_id(space, id);
}

void vmm__arena_unstuck(vmm__space *space, unsigned id) {
  vmm__arena_id *known = &space->ids[id];

  if (--known->stuck == 0 && !known->open) give_id(space, id);
}

vmm__u64 vmm__space_arena_bytes(const vmm__space *space, unsigned id) {
  const vmm__arena *arena = space->arenas[id];
  vmm__u64 bytes = arena->range_bytes;

  for (unsigned bin = 0; vmm__quick_bin_from(arena, &bin); bin++)
    bytes += (vmm__u64)arena->kept[bin].count * arena->kept[bin].size;
  return bytes;
}

void vmm__space_arena_merge(vmm__space *space, unsigned from_id, unsigned into_id) {
  vmm__arena *from = space->arenas[from_id], *into = space->arenas[into_id];
  vmm__bin bin = {0, 0};

  if (from_id == into_id) return;
  if (from->range_count > into->range_count) { /* the few move to the many, and the ids change places */
    vmm__arena *other = from;

    from = into;
    into = other;
    from->id = from_id;
    into->id = into_id;
    space->arenas[from_id] = from;
    space->arenas[into_id] = into;
  }
  if (space->ids[into_id].sticky) {
    vmm__quick_settle(space, into);
    into->quick_low = 0;
  }
  vmm__quick_move(space, from, into);
  from->quick_low = 0;
  while (vmm__bin_from(from, &bin, false)) {
    uint32_t id = from->heads[bin.word][bin.bit];
    vmm__record *record = vmm__space_record(space, id);
    vmm__u64 size = vmm__record_size(record);

    vmm__bin_remove(space, from, bin, record);
    from->range_bytes -= size;
    vmm__space_release(space, into, id, record, size);
  }
}

void vmm__space_arena_stick(vmm__space *space, unsigned id) {
  vmm__quick_settle(space, space->arenas[id]);
  space->arenas[id]->quick_low = 0;
  space->ids[id].sticky = true;
}

void vmm__space_arena_unstick(vmm__space *space, unsigned id) { space->ids[id].sticky = false; }
