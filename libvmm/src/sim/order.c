/* Happens-before: what work is known to be done before which other work, by stream order, events, the legacy stream and
 * what the host waited for. Independent of time: a block reused without an order is reported even if the clock was kind.
 * The host counts as one: what one thread has seen done, all know. Work on more than VMM__SIM_SLOTS streams at a time is
 * not told apart and not checked. */
#include "sim/sim.h"

enum { RECENT = 16 };                      /* repeated touches are looked for this far back */
static const vmm__u64 TOUCH_LIMIT = 16384; /* touches kept; beyond it the older half is forgotten */

void vmm__sim_order_merge(vmm__sim_order *to, const vmm__sim_order *from) {
  int i;

  for (i = 0; i < VMM__SIM_SLOTS; i++)
    if (from->upto[i] > to->upto[i]) to->upto[i] = from->upto[i];
}

void vmm__sim_order_enter(vmm__sim *sim, vmm__sim_stream *stream) {
  vmm__sim_context *context = stream->context;
  int i;

  for (i = 0; stream->slot < 0 && i < VMM__SIM_SLOTS; i++)
    if (!sim->slot_taken[i] && sim->slot_sequence[i] <= sim->host_knows.upto[i]) {
      sim->slot_taken[i] = true;
      stream->slot = i;
    }
  if (stream->legacy) vmm__sim_order_merge(&stream->order, &context->blocking_order);
  else if (stream->blocking) vmm__sim_order_merge(&stream->order, &context->legacy.order);
  if (stream->slot < 0) return;
  stream->order.upto[stream->slot] = ++sim->slot_sequence[stream->slot];
  context->all_order.upto[stream->slot] = sim->slot_sequence[stream->slot];
  if (stream->blocking) context->blocking_order.upto[stream->slot] = sim->slot_sequence[stream->slot];
}

void vmm__sim_order_wait(vmm__sim_stream *stream, const vmm__sim_order *order) {
  vmm__sim_order_merge(&stream->order, order);
  vmm__sim_order_merge(&stream->context->all_order, order);
  if (stream->blocking) vmm__sim_order_merge(&stream->context->blocking_order, order);
}

static bool known(const vmm__sim *sim, const vmm__sim_touch *touch) {
  return touch->sequence <= sim->host_knows.upto[touch->slot];
}

static void prune(vmm__sim *sim, vmm__sim_touches *touches) {
  vmm__u64 kept = 0;
  vmm__u64 i;

  for (i = 0; i < touches->count; i++)
    if (!known(sim, &touches->array[i])) touches->array[kept++] = touches->array[i];
  touches->count = kept;
}

void vmm__sim_order_host(vmm__sim *sim, const vmm__sim_order *order) {
  vmm__sim_order_merge(&sim->host_knows, order);
  if (sim->touches.count != 0) prune(sim, &sim->touches);
  if (sim->owners.count != 0) prune(sim, &sim->owners);
}

/* Without memory for the record the check sees less; the work is not refused for it. */
static void add(vmm__sim *sim, vmm__sim_touches *touches, const vmm__sim_touch *touch) {
  if (touches->count >= TOUCH_LIMIT) {
    vmm__u64 half = touches->count / 2;
    vmm__u64 i;

    for (i = half; i < touches->count; i++) touches->array[i - half] = touches->array[i];
    touches->count -= half;
  }
  if (!vmm__sim_grow(sim, (void **)&touches->array, touches->count, &touches->capacity, 1, sizeof *touches->array))
    return;
  touches->array[touches->count++] = *touch;
}

static void remember(vmm__sim *sim, const vmm__sim_touch *touch) {
  vmm__sim_touches *touches = &sim->touches;
  vmm__u64 i;

  for (i = touches->count; i > 0 && touches->count - i < RECENT; i--) {
    vmm__sim_touch *old = &touches->array[i - 1];

    if (old->slot == touch->slot && old->address == touch->address && old->size == touch->size) {
      old->sequence = touch->sequence;
      return;
    }
  }
  add(sim, touches, touch);
}

static bool unordered(const vmm__sim *sim, const vmm__sim_stream *stream, vmm__u64 address, vmm__u64 size) {
  vmm__u64 i;

  for (i = 0; i < sim->owners.count; i++) {
    const vmm__sim_touch *owner = &sim->owners.array[i];

    if (owner->slot != stream->slot && vmm__sim_overlap(owner->address, owner->size, address, size) &&
        owner->sequence > stream->order.upto[owner->slot] && !known(sim, owner))
      return true;
  }
  return false;
}

void vmm__sim_order_touch(vmm__sim *sim, vmm__sim_stream *stream, const vmm__sim_work *work) {
  const vmm__u64 ranges[2][2] = {{work->address, work->size}, {work->other, work->other_size}};
  int i;

  for (i = 0; i < 2; i++) {
    vmm__sim_touch touch = {ranges[i][0], ranges[i][1], 0, stream->slot};

    if (touch.size == 0) continue;
    if (sim->owners.count != 0 && unordered(sim, stream, touch.address, touch.size))
      vmm__sim_misused(sim, VMM_SIM_MISUSE_REUSE, work->op, touch.address, touch.size,
                       "work touches memory that changed hands, and is not ordered after its last owner's work");
    if (stream->slot < 0) continue;
    touch.sequence = stream->order.upto[stream->slot];
    remember(sim, &touch);
  }
}

void vmm__sim_order_owner(vmm__sim *sim, vmm__u64 address, vmm__u64 size) {
  vmm__u64 latest[VMM__SIM_SLOTS] = {0};
  vmm__u64 kept = 0;
  vmm__u64 i;
  int slot;

  for (i = 0; i < sim->touches.count; i++) {
    const vmm__sim_touch *touch = &sim->touches.array[i];

    if (vmm__sim_overlap(touch->address, touch->size, address, size))
      latest[touch->slot] = vmm__max(latest[touch->slot], touch->sequence);
  }
  for (i = 0; i < sim->owners.count; i++) { /* what lies inside is told anew */
    const vmm__sim_touch *owner = &sim->owners.array[i];

    if (owner->address < address || owner->address + owner->size > address + size) sim->owners.array[kept++] = *owner;
    else latest[owner->slot] = vmm__max(latest[owner->slot], owner->sequence);
  }
  sim->owners.count = kept;
  for (slot = 0; slot < VMM__SIM_SLOTS; slot++) {
    vmm__sim_touch owner = {address, size, latest[slot], slot};

    if (latest[slot] != 0 && !known(sim, &owner)) add(sim, &sim->owners, &owner);
  }
}
