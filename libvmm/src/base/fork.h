/* Notices a forked child before it touches a lock or the driver: a word on a page the kernel wipes on fork. getpid would
 * cost a system call on the hot path. */
#ifndef VMM_BASE_FORK_H
#define VMM_BASE_FORK_H

#include <stdatomic.h>

#include "base/checked.h"

/* Arms the word; called whenever a driver is made or a device opened. False if there is no memory for the page. Any
 * thread. Where the kernel cannot wipe pages (before Linux 4.14) a fork is not noticed. */
bool vmm__fork_guard(void);

/* Where the word is; read by the function below alone. Before it is armed that is no page of its own. Hidden, so that the
 * shared library reads it without a detour. */
extern __attribute__((visibility("hidden"))) _Atomic(atomic_uint *) vmm__fork_word;

/* Whether this process is a forked child of one that had armed the word. */
static inline bool vmm__forked(void) {
  atomic_uint *word = atomic_load_explicit(&vmm__fork_word, memory_order_acquire);

  return __builtin_expect(atomic_load_explicit(word, memory_order_relaxed) == 0, 0);
}

#endif
