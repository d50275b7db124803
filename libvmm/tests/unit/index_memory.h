/* For the tests of the index: a host memory table that counts what is out, can run out, and notes a call made while the
 * index is at work (when a pool lock would be held). And a seeded generator. */
#ifndef VMM_TESTS_INDEX_MEMORY_H
#define VMM_TESTS_INDEX_MEMORY_H

#include <stdlib.h>

#include "index/space.h"

typedef struct index_memory {
  vmm_host_memory table;
  bool locked;       /* set while the index works */
  long locked_calls; /* must stay 0 */
  long long out;     /* bytes given and not taken back */
  long fail_in;      /* the n-th allocation from now fails; 0: none */
  long calls;
} index_memory;

static inline void *index_memory_allocate(void *data, size_t size) {
  index_memory *memory = data;
  void *pointer;

  memory->calls++;
  if (memory->locked) memory->locked_calls++;
  if (memory->fail_in > 0 && --memory->fail_in == 0) return NULL;
  pointer = malloc(size);
  if (pointer != NULL) {
    memory->out += (long long)size;
    memset(pointer, 0xA5, size);
  }
  return pointer;
}

static inline void index_memory_release(void *data, void *pointer, size_t size) {
  index_memory *memory = data;

  if (memory->locked) memory->locked_calls++;
  memory->out -= (long long)size;
  free(pointer);
}

static inline void index_memory_init(index_memory *memory) {
  memset(memory, 0, sizeof *memory);
  memory->table.struct_size = sizeof memory->table;
  memory->table.allocate = index_memory_allocate;
  memory->table.release = index_memory_release;
  memory->table.data = memory;
}

/* What a pool does: reserves for `operations` more, and `arenas`. The flag is down while memory is made. False: no host
 * memory. */
static inline bool index_memory_reserve_arenas(index_memory *memory, vmm__space *space, vmm__u64 operations,
                                               unsigned arenas) {
  vmm__u64 hint;
  bool locked = memory->locked;

  while ((hint = vmm__space_short(space, operations, arenas)) != 0) {
    vmm__space_spare *spare;

    memory->locked = false;
    spare = vmm__space_spare_make(&memory->table, hint);
    memory->locked = locked;
    if (spare == NULL) return false;
    memory->locked = true;
    vmm__space_spare_adopt(space, spare);
    memory->locked = false;
    vmm__space_spare_release(&memory->table, spare);
    memory->locked = locked;
  }
  return true;
}
static inline bool index_memory_reserve(index_memory *memory, vmm__space *space, vmm__u64 operations) {
  return index_memory_reserve_arenas(memory, space, operations, 0);
}

static inline vmm__u64 index_random(vmm__u64 *state) {
  *state += 0x9E3779B97F4A7C15ull;
  vmm__u64 z = *state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

#endif
