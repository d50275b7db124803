/* The real clock: monotonic ns, and letting time pass. A driver brings its own clock (the simulator's is virtual); this
 * one serves the CUDA driver and the waits for locks. */
#ifndef VMM_BASE_CLOCK_H
#define VMM_BASE_CLOCK_H

#include "base/checked.h"

vmm__u64 vmm__clock_now(void);
void vmm__clock_wait(vmm__u64 ns);

/* The same, past the hook. No thread is cancelled in it: it may hold a lock, or have the next turn at one. */
void vmm__clock_sleep(vmm__u64 ns);

#endif
