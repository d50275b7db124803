/* For the tests of free space: one on counted memory, which is locked while the index works. */
#ifndef VMM_TESTS_SPACE_WORLD_H
#define VMM_TESTS_SPACE_WORLD_H

#include "check.h"
#include "index_memory.h"

#define UNIT 256ull
#define BASE (1ull << 40)
#define MIB (1ull << 20)

static index_memory memory;
static vmm__space space;

/* Empty, with records for `operations` and `arenas`. */
static inline void space_open(vmm__u64 operations, unsigned arenas) {
  index_memory_init(&memory);
  vmm__space_init(&space, &memory.table, BASE);
  CHECK(index_memory_reserve_arenas(&memory, &space, operations, arenas));
  memory.locked = true;
}

static inline void space_check(void) {
  const char *what = "";

  if (!vmm__space_check(&space, &what)) check_fail(__FILE__, __LINE__, what);
}

/* Nothing was asked for while it was locked, and all is given back. */
static inline void space_close(void) {
  CHECK_CALL(space_check());
  CHECK_EQ(memory.locked_calls, 0);
  memory.locked = false;
  vmm__space_destroy(&space);
  CHECK_EQ(memory.out, 0);
}

#endif
