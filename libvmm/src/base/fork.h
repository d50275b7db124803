/* Notices a forked child before it touches a lock or the driver: a word on a page the kernel wipes on fork. getpid would
 * cost a system call on the hot path. */
#ifndef VMM_BASE_FORK_H
#define VMM_BASE_FORK_H

#include "base/checked.h"

/* Arms the word; called whenever a driver is made or a device opened. False if there is no memory for the page. Any
 * thread. Where the kernel cannot wipe pages (before Linux 4.14) a fork is not noticed. */
bool vmm__fork_guard(void);

/* Whether this process is a forked child of one that had armed the word. */
bool vmm__forked(void);

#endif
