/* What a piece of work does to memory, at the moment it is done. */
#include <string.h>

#include "sim/sim.h"

static unsigned int pattern_word(vmm__u64 seed, vmm__u64 index) {
  vmm__u64 z = seed + (index + 1) * 0x9E3779B97F4A7C15u;

  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (unsigned int)((z ^ (z >> 31)) >> 32);
}

/* Handles one buffer of words of a kernel, `first` being the index of its first word; what it adds to the result word. */
static vmm__u64 kernel_words(const vmm__sim_work *work, unsigned char *bytes, vmm__u64 first, vmm__u64 count) {
  vmm__u64 total = 0;
  vmm__u64 i;

  for (i = 0; i < count; i++) {
    unsigned int word = pattern_word(work->value, first + i);
    unsigned int there;

    if (work->kind == VMM__SIM_FILL) {
      memcpy(bytes + 4 * i, &word, 4);
      continue;
    }
    memcpy(&there, bytes + 4 * i, 4);
    if (work->kind == VMM__SIM_VERIFY) total += there != word;
    else total += ((vmm__u64)there + 1) * (2 * (first + i) + 1);
  }
  return total;
}

static bool kernel(vmm__sim *sim, const vmm__sim_work *work) {
  int device = work->context->device;
  vmm__u64 words = work->size / 4;
  vmm__u64 total = 0;
  vmm__u64 result;
  vmm__u64 at;

  for (at = 0; at < words; at += VMM__SIM_SCRATCH / 4) {
    vmm__u64 count = vmm__min(words - at, VMM__SIM_SCRATCH / 4);
    bool fill = work->kind == VMM__SIM_FILL;

    if (!fill && !vmm__sim_read(sim, device, sim->scratch, work->address + 4 * at, 4 * count)) return false;
    total += kernel_words(work, sim->scratch, at, count);
    if (fill && !vmm__sim_write(sim, device, work->address + 4 * at, sim->scratch, 4 * count)) return false;
  }
  if (work->kind == VMM__SIM_FILL) return true;
  if (!vmm__sim_read(sim, device, &result, work->other, sizeof result)) return false;
  result += total;
  return vmm__sim_write(sim, device, work->other, &result, sizeof result);
}

static bool copy(vmm__sim *sim, const vmm__sim_work *work) {
  int device = work->context->device;
  vmm__u64 at;

  for (at = 0; at < work->size; at += VMM__SIM_SCRATCH) {
    vmm__u64 length = vmm__min(work->size - at, VMM__SIM_SCRATCH);

    if (!vmm__sim_read(sim, device, sim->scratch, work->other + at, length) ||
        !vmm__sim_write(sim, device, work->address + at, sim->scratch, length))
      return false;
  }
  return true;
}

static bool set_bytes(vmm__sim *sim, const vmm__sim_work *work) {
  vmm__u64 at;

  memset(sim->scratch, (int)work->value, (size_t)vmm__min(work->size, VMM__SIM_SCRATCH));
  for (at = 0; at < work->size; at += VMM__SIM_SCRATCH)
    if (!vmm__sim_write(sim, work->context->device, work->address + at, sim->scratch,
                        vmm__min(work->size - at, VMM__SIM_SCRATCH)))
      return false;
  return true;
}

static bool set_words(vmm__sim *sim, const vmm__sim_work *work) {
  unsigned int word = (unsigned int)work->value;
  vmm__u64 row;
  vmm__u64 at;

  for (at = 0; at < VMM__SIM_SCRATCH && at < 4 * work->width; at += 4) memcpy(sim->scratch + at, &word, 4);
  for (row = 0; row < work->height; row++)
    for (at = 0; at < 4 * work->width; at += VMM__SIM_SCRATCH)
      if (!vmm__sim_write(sim, work->context->device, work->address + row * work->pitch + at, sim->scratch,
                          vmm__min(4 * work->width - at, VMM__SIM_SCRATCH)))
        return false;
  return true;
}

static bool perform(vmm__sim *sim, const vmm__sim_work *work) {
  int device = work->context->device;

  switch (work->kind) {
    case VMM__SIM_FILL:
    case VMM__SIM_VERIFY:
    case VMM__SIM_SUM:
      return kernel(sim, work);
    case VMM__SIM_HTOD:
      return vmm__sim_write(sim, device, work->address, work->staged != NULL ? work->staged : work->from, work->size);
    case VMM__SIM_DTOH:
      return vmm__sim_read(sim, device, work->to, work->address, work->size);
    case VMM__SIM_DTOD:
      return copy(sim, work);
    case VMM__SIM_SET8:
      return set_bytes(sim, work);
    case VMM__SIM_SET32:
      return set_words(sim, work);
    default:
      return true;
  }
}

void vmm__sim_execute(vmm__sim *sim, vmm__sim_work *work) {
  if (work->kind == VMM__SIM_TRAP) {
    vmm__sim_lose(sim, work->context, VMM_CODE_LAUNCH_FAILED);
    return;
  }
  if (!vmm__sim_work_allowed(sim, work)) {
    vmm__sim_misused(sim, VMM_SIM_MISUSE_TOUCH, work->op, work->address, work->size,
                     "queued work touched memory it has no access to");
    if (sim->options.touch != VMM_SIM_TOUCH_ZERO) {
      vmm__sim_lose(sim, work->context, VMM_CODE_ILLEGAL_ADDRESS);
      return;
    }
  }
  if (!perform(sim, work))
    vmm__sim_lose(sim, work->context, VMM_CODE_ECC_UNCORRECTABLE); /* no memory on this machine */
}
