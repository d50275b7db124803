/* A thread over pthreads. */
#include "base/thread.h"

#include <signal.h>
#include <time.h>

#include "base/hook.h"

static void *run(void *data) {
  vmm__thread *thread = data;

  thread->body(thread->data);
  return NULL;
}

/* The clock that nobody sets. */
static bool make_wake(vmm__thread *thread) {
  pthread_condattr_t attributes;
  bool good;

  if (pthread_condattr_init(&attributes) != 0) return false;
  good = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
         pthread_cond_init(&thread->wake, &attributes) == 0;
  (void)pthread_condattr_destroy(&attributes);
  return good;
}

/* The new thread has the mask of its maker: no signal of the caller's is handled on it. */
static bool spawn(vmm__thread *thread) {
  sigset_t all, before;
  bool good;

  (void)sigfillset(&all);
  if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
  good = pthread_create(&thread->id, NULL, run, thread) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return good;
}

bool vmm__thread_start(vmm__thread *thread, void (*body)(void *data), void *data) {
  thread->body = body;
  thread->data = data;
  thread->stopping = thread->woken = false;
  if (vmm__hook_at(VMM__POINT_THREAD, thread, 0, NULL)) return false;
  if (pthread_mutex_init(&thread->mutex, NULL) != 0) return false;
  if (make_wake(thread)) {
    thread->started = spawn(thread);
    if (thread->started) return true;
    (void)pthread_cond_destroy(&thread->wake);
  }
  (void)pthread_mutex_destroy(&thread->mutex);
  return false;
}

bool vmm__thread_sleep(vmm__thread *thread, vmm__u64 ns) {
  struct timespec until;
  bool stopping;

  if (clock_gettime(CLOCK_MONOTONIC, &until) != 0) return false;
  ns += (vmm__u64)until.tv_nsec;
  until.tv_sec += (time_t)(ns / 1000000000u);
  until.tv_nsec = (long)(ns % 1000000000u);
  (void)pthread_mutex_lock(&thread->mutex);
  while (!thread->stopping && !thread->woken)
    if (pthread_cond_timedwait(&thread->wake, &thread->mutex, &until) != 0) break;
  thread->woken = false;
  stopping = thread->stopping;
  (void)pthread_mutex_unlock(&thread->mutex);
  return !stopping;
}

static void tell(vmm__thread *thread, bool *what) {
  (void)pthread_mutex_lock(&thread->mutex);
  *what = true;
  (void)pthread_cond_signal(&thread->wake);
  (void)pthread_mutex_unlock(&thread->mutex);
}

void vmm__thread_wake(vmm__thread *thread) {
  if (thread->started) tell(thread, &thread->woken);
}

void vmm__thread_stop(vmm__thread *thread) {
  if (!thread->started) return;
  tell(thread, &thread->stopping);
  (void)pthread_join(thread->id, NULL);
  (void)pthread_cond_destroy(&thread->wake);
  (void)pthread_mutex_destroy(&thread->mutex);
  thread->started = false;
}
