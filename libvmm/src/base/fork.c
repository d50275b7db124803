/* The wipe-on-fork word. */
#include "base/fork.h"

#include <stdatomic.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { PAGE = 4096 };

static _Atomic(_Atomic(unsigned) *) word; /* NULL: never armed; 1: this is the process that armed it; 0: a child */

bool vmm__fork_guard(void) {
  _Atomic(unsigned) *none = NULL;
  void *page;

  if (atomic_load_explicit(&word, memory_order_acquire) != NULL) return true;
  page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  (void)madvise(page, PAGE, MADV_WIPEONFORK);
  atomic_store_explicit((_Atomic(unsigned) *)page, 1, memory_order_relaxed);
  if (!atomic_compare_exchange_strong(&word, &none, (_Atomic(unsigned) *)page)) (void)munmap(page, PAGE);
  return true;
}

bool vmm__forked(void) {
  _Atomic(unsigned) *armed = atomic_load_explicit(&word, memory_order_acquire);

  return armed != NULL && atomic_load_explicit(armed, memory_order_relaxed) == 0;
}
