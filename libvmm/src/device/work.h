/* One public call that may call the driver: its deadline and retry budget, the context and capture mode it borrows, the
 * first error, and what its undo could not do. Every function below the public ones that can fail takes the work and
 * returns a status; the error stays in the work until the public function reports it. */
#ifndef VMM_DEVICE_WORK_H
#define VMM_DEVICE_WORK_H

#include "device/calls.h"
#include "device/device.h"

typedef struct vmm__work {
  vmm_device *device;
  const char *function; /* the public one, for messages */

  vmm__u64 deadline; /* on the driver's clock */
  vmm__u64 backoff_ns;
  int attempts_left; /* of the whole call */
  int round_left;    /* of this round: the rest is for after the next rung of the memory ladder */
  int attempt;       /* retries of the step under way */

  bool locked, entered, relaxed;
  bool teardown; /* of a lost device: what the driver answers no longer matters */
  void *previous_context;
  int previous_mode;

  vmm_status status;   /* VMM_OK, or the first error; what follows describes it */
  const char *message; /* instead of a driver call's failure, or NULL */
  int op, code, failed_attempt;
  vmm__u64 address, size;
  int undo_failures, undo_code;
  vmm__u64 gave_back, free_bytes, total_bytes;

  vmm__u64 retries, not_ready, quiesces, rounds; /* for the pool's counters */
} vmm__work;

/* `deadline_ns` 0: the device's. */
void vmm__work_start(vmm__work *work, vmm_device *device, const char *function, vmm__u64 deadline_ns);

/* Takes the structure lock, makes the device's context current and the thread's capture mode relaxed. On failure none of
 * it is held; does nothing if it is held already. Unlock undoes it; safe to call when nothing is held. */
vmm_status vmm__work_lock(vmm__work *work);
void vmm__work_unlock(vmm__work *work);

/* Releases the structure lock only, for a wait in which others may grow; the next lock takes it again. */
void vmm__work_let_others(vmm__work *work);

/* The same without the structure lock, for calls that do not edit address ranges. */
vmm_status vmm__work_enter(vmm__work *work);
void vmm__work_leave(vmm__work *work);

vmm__u64 vmm__work_time_left(const vmm__work *work);

/* Records the first error; later ones are ignored. Returns the status the work has. */
vmm_status vmm__work_fail(vmm__work *work, vmm_status status, const char *message);
vmm_status vmm__work_call_failed(vmm__work *work, int op, int code, vmm__u64 address, vmm__u64 size);

/* An undo step failed: counted, never an error of its own. Returns the code. */
int vmm__work_undone(vmm__work *work, int code);

/* After a NOT_READY: waits for queued work and backs off; true if the step may be tried again. */
bool vmm__work_again(vmm__work *work, int op, int code, vmm__u64 address, vmm__u64 size);

/* Starts a new round after memory was given back: forgets the error and allows a few of the attempts, in the last round
 * all that are left. */
void vmm__work_next_round(vmm__work *work, bool last);

/* Forgets the first error: what failed was not needed after all. */
void vmm__work_forget(vmm__work *work);

/* After a failed call: asks the sentinel whether the context is dead; the status then becomes DEVICE_LOST. */
void vmm__work_probe(vmm__work *work);

/* Asks the driver for free and total memory, for the message; a failure of that is ignored. Needs the context. */
void vmm__work_measure(vmm__work *work);

/* Leaves, unlocks, fills *error (if there was one and it is not NULL) and returns the status. */
vmm_status vmm__work_finish(vmm__work *work, vmm_error *error);

/* What a failed call means. */
vmm_status vmm__status_of(int op, int code);

/* A driver call on the way forward: tried again while it answers NOT_READY and the budget lasts; a failure is recorded
 * and control goes to the function's `undo` label. `where` and `length` are the address and size for the error. */
#define CU_CHECK(work, where, length, name, arguments)                                                         \
  do {                                                                                                         \
    int cu_code_;                                                                                              \
    do {                                                                                                       \
      cu_code_ = vmm__cu_##name arguments;                                                                     \
    } while (cu_code_ == VMM_CODE_NOT_READY && vmm__work_again(work, VMM_OP_##name, cu_code_, where, length)); \
    if (cu_code_ != VMM_CODE_SUCCESS) {                                                                        \
      (void)vmm__work_call_failed(work, VMM_OP_##name, cu_code_, where, length);                               \
      goto undo;                                                                                               \
    }                                                                                                          \
    (work)->attempt = 0;                                                                                       \
  } while (0)

/* A driver call in undo or teardown: a failure is recorded, and the undo goes on. Gives the code. */
#define CU_UNDO(work, name, arguments) vmm__work_undone(work, vmm__cu_##name arguments)

#endif
