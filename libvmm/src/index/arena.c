/* Arenas of free memory: not there yet but for the idle one. */
#include "index/space_inner.h"

unsigned vmm__space_arena_open(vmm__space *space) {
  (void)space;
  return VMM__ARENA_IDLE;
}

void vmm__space_arena_close(vmm__space *space, unsigned arena) {
  (void)space;
  (void)arena;
}

vmm__u64 vmm__space_arena_bytes(const vmm__space *space, unsigned arena) {
  return arena == VMM__ARENA_IDLE ? vmm__space_free_bytes(space) : 0;
}

void vmm__space_arena_merge(vmm__space *space, unsigned from, unsigned into) {
  (void)space;
  (void)from;
  (void)into;
}

void vmm__space_arena_stick(vmm__space *space, unsigned arena) {
  (void)space;
  (void)arena;
}

void vmm__space_arena_unstick(vmm__space *space, unsigned arena) {
  (void)space;
  (void)arena;
}
