/* The list of what the program did wrong although the driver would have let it pass (or crashed). */
#include "base/text.h"
#include "sim/sim.h"

void vmm__sim_misused(vmm__sim *sim, vmm_sim_misuse_kind kind, int op, vmm__u64 address, vmm__u64 size,
                      const char *text) {
  vmm_sim_misuse *entry;

  if (kind == VMM_SIM_MISUSE_DOUBLE_RELEASE) sim->double_releases++;
  sim->misuse_count++;
  if (sim->misuse_count > VMM__SIM_MISUSES) return;
  if (sim->misuse == NULL) sim->misuse = vmm__sim_allocate(sim, VMM__SIM_MISUSES, sizeof *sim->misuse);
  if (sim->misuse == NULL) return; /* counted all the same */
  entry = &sim->misuse[sim->misuse_count - 1];
  entry->kind = (int)kind;
  entry->op = op;
  entry->time_ns = sim->now;
  entry->address = address;
  entry->size = size;
  vmm__text_copy(entry->text, sizeof entry->text, text);
}

void vmm__sim_misuse_here(vmm__sim *sim, vmm_sim_misuse_kind kind, vmm__u64 address, vmm__u64 size, const char *text) {
  vmm__sim_misused(sim, kind, sim->op, address, size, text);
}
