/* Monotonic time, and sleeping; both go through the hook. */
#include "base/clock.h"

#include <pthread.h>
#include <time.h>

#include "base/hook.h"

vmm__u64 vmm__clock_now(void) {
  struct timespec now;
  vmm__u64 result;

  if (vmm__hook_at(VMM__POINT_NOW, NULL, 0, &result)) return result;
  if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
  return (vmm__u64)now.tv_sec * 1000000000u + (vmm__u64)now.tv_nsec;
}

void vmm__clock_sleep(vmm__u64 ns) {
  struct timespec rest = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  int before = PTHREAD_CANCEL_ENABLE;

  (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  while (nanosleep(&rest, &rest) != 0) {
    /* interrupted by a signal: the rest is slept */
  }
  (void)pthread_setcancelstate(before, NULL);
}

void vmm__clock_wait(vmm__u64 ns) {
  if (!vmm__hook_at(VMM__POINT_WAIT, NULL, ns, NULL)) vmm__clock_sleep(ns);
}
