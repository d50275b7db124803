/* Which rule decides about a call, and what the caller is told. */
#include <string.h>

#include "driver/fault.h"

/* Calls that a hook makes are its own affair: no rule looks at them, or a hook on every operation would never end. */
static _Thread_local unsigned inside_hook;

static vmm__fault_rule *rule_at(vmm__fault *fault, size_t index) {
  return (vmm__fault_rule *)fault->rules.elements + index;
}

static bool overlaps(const vmm_fault_rule *rule, const vmm__call *call) {
  vmm__u64 rule_end = vmm__saturating_add(rule->address, rule->size);
  vmm__u64 call_end = vmm__saturating_add(call->address, vmm__max(call->size, 1));

  return call->address != 0 && call->address < rule_end && rule->address < call_end;
}

static bool concerns(const vmm_fault_rule *rule, const vmm__call *call) {
  if (rule->op != VMM_OP_ANY && rule->op != call->op) return false;
  if (rule->size != 0 && !overlaps(rule, call)) return false;
  if (rule->match_object && rule->object != call->object) return false;
  return rule->thread == 0 || rule->thread == vmm__thread_number();
}

/* With the lock, which is let go while the inner driver is asked: the rule may be gone by then, so the caller looks at the
 * generation. */
static bool condition_holds(vmm__fault *fault, const vmm__fault_rule *rule) {
  bool pending;

  switch (rule->rule.condition) {
    case VMM_FAULT_IF_PENDING:
      vmm__lock_release(&fault->lock);
      pending = vmm__fault_pending(fault);
      vmm__lock_acquire(&fault->lock);
      return pending;
    case VMM_FAULT_IF_OVER_BUDGET:
      return fault->bytes > rule->rule.budget;
    case VMM_FAULT_IF_AFTER_RELEASE:
      return fault->releases > rule->releases_seen;
    default:
      return true;
  }
}

/* Whether the matching call just counted is one of those that fail. */
static bool in_turn(const vmm__fault *fault, const vmm__fault_rule *rule) {
  vmm__u64 first = vmm__max(rule->rule.occurrence, 1);
  vmm__u64 times = vmm__max(rule->rule.times, 1);

  if (rule->matched < first) return false;
  if (times < VMM_FAULT_FOR_EVER && rule->matched - first >= times) return false;
  if (rule->rule.probability == 0) return true;
  return vmm_pattern_word(fault->seed + (vmm__u64)rule->id * 0x2545F4914F6CDD1Du, rule->matched) <
         rule->rule.probability;
}

static void run_hook(vmm__fault *fault, const vmm_fault_rule *rule, int op, vmm__u64 opportunity) {
  vmm_fault_hook hook = rule->hook;
  void *data = rule->hook_data;

  vmm__lock_release(&fault->lock);
  inside_hook++;
  hook(data, op, opportunity);
  inside_hook--;
  vmm__lock_acquire(&fault->lock);
}

/* With the lock. Only what really happens to a call counts as fired: a fault after the call does only if it succeeded. */
static void count_fired(vmm__fault *fault, const vmm__fault_decision *decision) {
  size_t i;

  for (i = 0; i < fault->rules.count; i++)
    if (rule_at(fault, i)->id == decision->id) {
      rule_at(fault, i)->fired++;
      if (decision->sticky) fault->sticky_code = decision->code;
    }
}

/* With the lock: what a lost device answers. What gives something back is done, so that nothing leaks below. */
static void decide_lost(vmm__fault *fault, const vmm__call *call, vmm__fault_decision *decision) {
  if (vmm__op_outside_context(call->op)) return;
  decision->fires = true;
  decision->code = fault->sticky_code;
  decision->made = vmm__op_gives_back(call->op);
  decision->phase = decision->made ? VMM_FAULT_AFTER : VMM_FAULT_BEFORE;
}

/* With the lock, which hooks and conditions let go. Returns the time to let pass. */
static vmm__u64 try_rules(vmm__fault *fault, const vmm__call *call, vmm__fault_decision *decision) {
  vmm__u64 generation = fault->generation;
  vmm__u64 delay = 0;
  size_t i;

  for (i = 0; i < fault->rules.count; i++) {
    vmm__fault_rule *rule = rule_at(fault, i);
    bool fires;

    if (!concerns(&rule->rule, call)) continue;
    if (!condition_holds(fault, rule)) {
      if (fault->generation != generation) break;
      continue;
    }
    if (fault->generation != generation) break;
    rule = rule_at(fault, i); /* the array may have moved meanwhile */
    rule->matched++;
    rule->releases_seen = fault->releases;
    fires = in_turn(fault, rule);
    if (rule->rule.hook != NULL) {
      run_hook(fault, &rule->rule, call->op, rule->matched);
      if (fault->generation != generation) break;
      rule = rule_at(fault, i);
    }
    if (!fires || decision->fires) continue;
    delay = vmm__saturating_add(delay, rule->rule.delay_ns);
    if (rule->rule.code == 0 && rule->rule.phase != VMM_FAULT_LIE) {
      rule->fired++;
      continue;
    }
    decision->fires = true;
    decision->id = rule->id;
    decision->code = rule->rule.phase == VMM_FAULT_LIE ? VMM_CODE_SUCCESS : rule->rule.code;
    decision->phase = rule->rule.phase;
    decision->sticky = rule->rule.sticky != 0;
    decision->made = rule->rule.phase == VMM_FAULT_AFTER;
    if (!decision->made) count_fired(fault, decision);
  }
  return delay;
}

bool vmm__fault_before(vmm__fault *fault, const vmm__call *call, vmm__fault_decision *decision) {
  vmm__u64 delay = 0;

  memset(decision, 0, sizeof *decision);
  decision->made = true;
  if (inside_hook > 0) return true;
  vmm__lock_acquire(&fault->lock);
  fault->opportunities[call->op]++;
  if (fault->sticky_code != 0) decide_lost(fault, call, decision);
  else if (fault->rules.count > 0) delay = try_rules(fault, call, decision);
  vmm__lock_release(&fault->lock);
  if (delay > 0) vmm__wrapper_wait(fault, delay);
  if (decision->fires && decision->phase == VMM_FAULT_PARTIAL) vmm__fault_partial(fault, call);
  return decision->made;
}

/* A lie: what the call would have written is zero. The capture mode goes in and out; it stays the caller's. */
static void clear_outputs(const vmm__call *call) {
  size_t i;

  if (call->op == VMM_OP_capture_mode) return;
  for (i = 0; i < 2; i++)
    if (call->outputs[i].where != NULL) memset(call->outputs[i].where, 0, call->outputs[i].size);
}

int vmm__fault_after(vmm__fault *fault, const vmm__call *call, const vmm__fault_decision *decision, int answer) {
  if (!decision->made) {
    if (decision->phase == VMM_FAULT_LIE) clear_outputs(call);
    return decision->code;
  }
  if (answer == VMM_CODE_SUCCESS) vmm__fault_track(fault, call);
  if (!decision->fires) return answer;
  if (decision->id == 0) return decision->code; /* a lost device says so whatever happened below */
  if (answer != VMM_CODE_SUCCESS) return answer;
  vmm__lock_acquire(&fault->lock);
  count_fired(fault, decision);
  if (vmm__op_creates(call->op)) vmm__fault_orphan_add(fault, call);
  vmm__lock_release(&fault->lock);
  if (vmm__op_creates(call->op)) clear_outputs(call);
  return decision->code;
}
