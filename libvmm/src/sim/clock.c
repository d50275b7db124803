/* Virtual time and the queue of all work, ordered by when it is done. Work's end is known when it is queued, because all
 * it can wait for was queued before; so one heap plays all streams. */
#include "base/clock.h"

#include "sim/sim.h"

static const vmm__u64 HOST_POLL_NS = 20000; /* real time between looks whether another thread's host function is done */

static bool earlier(const vmm__sim_work *a, const vmm__sim_work *b) {
  return a->done != b->done ? a->done < b->done : a->sequence < b->sequence;
}

static void sift_down(vmm__sim *sim, vmm__u64 at) {
  for (;;) {
    vmm__u64 child = 2 * at + 1;
    vmm__sim_work *work = sim->queue[at];

    if (child >= sim->queue_count) return;
    if (child + 1 < sim->queue_count && earlier(sim->queue[child + 1], sim->queue[child])) child++;
    if (!earlier(sim->queue[child], work)) return;
    sim->queue[at] = sim->queue[child];
    sim->queue[child] = work;
    at = child;
  }
}

bool vmm__sim_queue_reserve(vmm__sim *sim, vmm__u64 more) {
  return vmm__sim_grow(sim, (void **)&sim->queue, sim->queue_count, &sim->queue_capacity, more, sizeof *sim->queue);
}

void vmm__sim_queue_push(vmm__sim *sim, vmm__sim_work *work) {
  vmm__u64 at = sim->queue_count++;

  work->sequence = ++sim->work_sequence;
  work->context->pending++;
  sim->devices[work->context->device].ledger.pending++;
  while (at != 0 && earlier(work, sim->queue[(at - 1) / 2])) {
    sim->queue[at] = sim->queue[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  sim->queue[at] = work;
}

static vmm__sim_work *pop(vmm__sim *sim) {
  vmm__sim_work *work = sim->queue[0];

  sim->queue[0] = sim->queue[--sim->queue_count];
  if (sim->queue_count != 0) sift_down(sim, 0);
  return work;
}

void vmm__sim_queue_drop(vmm__sim *sim, const vmm__sim_context *context) {
  vmm__u64 kept = 0;
  vmm__u64 i;

  for (i = 0; i < sim->queue_count; i++) {
    vmm__sim_work *work = sim->queue[i];

    if (context != NULL && work->context != context) {
      sim->queue[kept++] = work;
      continue;
    }
    if (work->context->lost == 0) {
      work->context->pending--;
      sim->devices[work->context->device].ledger.pending--;
    }
    vmm__sim_work_free(sim, work);
  }
  sim->queue_count = kept;
  for (i = kept / 2; i-- > 0;) sift_down(sim, i);
}

/* The user's function is called without the lock; what belongs to the operation under way is put back after it. */
static void call_host(vmm__sim *sim, const vmm__sim_work *work) {
  vmm__sim_thread *thread = sim->thread;
  int op = sim->op;

  sim->host_running = vmm__sim_thread_number();
  vmm__lock_release(&sim->lock);
  work->function(work->data);
  vmm__lock_acquire(&sim->lock);
  sim->host_running = 0;
  sim->thread = thread;
  sim->op = op;
}

void vmm__sim_run_due(vmm__sim *sim) {
  while (sim->host_running == 0 && sim->queue_count != 0 && sim->queue[0]->done <= sim->now) {
    vmm__sim_work *work = pop(sim);

    if (work->context->lost == 0) {
      work->context->pending--;
      sim->devices[work->context->device].ledger.pending--;
      if (work->kind == VMM__SIM_HOST) call_host(sim, work);
      else vmm__sim_execute(sim, work);
    }
    vmm__sim_work_free(sim, work);
  }
}

void vmm__sim_run_to(vmm__sim *sim, vmm__u64 time) {
  /* Piece by piece, so that what runs sees its own time. */
  while (sim->host_running == 0 && sim->queue_count != 0 && sim->queue[0]->done <= time) {
    sim->now = vmm__max(sim->now, sim->queue[0]->done);
    vmm__sim_run_due(sim);
  }
  sim->now = vmm__max(sim->now, time);
  while (sim->host_running != 0) { /* another thread is inside a host function: what follows it must wait */
    vmm__sim_thread *thread = sim->thread;
    int op = sim->op;

    vmm__lock_release(&sim->lock);
    vmm__clock_wait(HOST_POLL_NS);
    vmm__lock_acquire(&sim->lock);
    sim->thread = thread;
    sim->op = op;
    vmm__sim_run_due(sim);
  }
}

void vmm__sim_run_all(vmm__sim *sim) {
  while (sim->queue_count != 0) vmm__sim_run_to(sim, vmm__max(sim->now, sim->queue[0]->done));
}

bool vmm__sim_race(vmm__sim *sim, int device, vmm__u64 address, vmm__u64 size, const char *text) {
  vmm__u64 i;

  for (i = 0; i < sim->queue_count; i++) {
    const vmm__sim_work *work = sim->queue[i];

    if (work->context->lost != 0 || (device >= 0 && work->context->device != device)) continue;
    if (vmm__sim_overlap(work->address, work->size, address, size) ||
        vmm__sim_overlap(work->other, work->other_size, address, size)) {
      vmm__sim_misuse_here(sim, VMM_SIM_MISUSE_RACE, address, size, text);
      return true;
    }
  }
  return false;
}
