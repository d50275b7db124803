/* One thread of the library's own, that sleeps, is woken and is stopped. It takes no signals of the process's, and in a
 * forked child there is none: nobody touches it there. */
#ifndef VMM_BASE_THREAD_H
#define VMM_BASE_THREAD_H

#include <pthread.h>

#include "base/checked.h"

typedef struct vmm__thread {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  pthread_t id;
  void (*body)(void *data);
  void *data;
  bool started, stopping, woken; /* the last two under the mutex */
} vmm__thread;

/* Starts body(data). False: the system has no room for a thread, or the hook said so (it answers true). */
bool vmm__thread_start(vmm__thread *thread, void (*body)(void *data), void *data);

/* Called by the body: sleeps for `ns` of real time or until it is woken. False: it is to end. */
bool vmm__thread_sleep(vmm__thread *thread, vmm__u64 ns);

/* Wakes it early. Any thread; nothing happens if there is none. */
void vmm__thread_wake(vmm__thread *thread);

/* Ends it and waits for that; fine if it was never started. Not from inside the body, and no other call meanwhile. */
void vmm__thread_stop(vmm__thread *thread);

#endif
