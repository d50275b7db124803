/* The wipe-on-fork word. */
#include "base/fork.h"

#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { PAGE = 4096 };

/* The word is 1 in the process that armed it, and 0 in a child. Unarmed it stays 1. */
static atomic_uint unarmed = 1;

_Atomic(atomic_uint *) vmm__fork_word = &unarmed;

bool vmm__fork_guard(void) {
  atomic_uint *none = &unarmed;
  void *page;

  if (atomic_load_explicit(&vmm__fork_word, memory_order_acquire) != &unarmed) return true;
  page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  (void)madvise(page, PAGE, MADV_WIPEONFORK);
  atomic_store_explicit((atomic_uint *)page, 1, memory_order_relaxed);
  if (!atomic_compare_exchange_strong(&vmm__fork_word, &none, (atomic_uint *)page)) (void)munmap(page, PAGE);
  return true;
}
