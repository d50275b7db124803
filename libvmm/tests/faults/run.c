/* One run: a world, the faults, the call under test, the promises, the same call again, the end of it all. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

static const char *const phases[] = {"", ":after", ":lie", ":partial"};

/* The text form of a rule, so that a run can be made again anywhere; host memory has a form of its own. */
void fault_text(const fault *f, char *text, size_t capacity) {
  char times[32] = "";

  if (f->times == VMM_FAULT_FOR_EVER) (void)snprintf(times, sizeof times, "x*");
  else if (f->times > 1) (void)snprintf(times, sizeof times, "x%llu", f->times);
  if (f->op == NO_FAULT) (void)snprintf(text, capacity, "no fault");
  else if (f->op == HOST_MEMORY) (void)snprintf(text, capacity, "host-memory@%llu%s", f->occurrence, times);
  else
    (void)snprintf(text, capacity, "%s:%d@%llu%s%s%s", vmm_op_symbol(f->op), f->code, f->occurrence, times,
                   phases[f->phase], f->sticky ? ":sticky" : "");
}

void run_key(const run *r, char *text, size_t capacity) {
  char one[96], two[96];

  fault_text(&r->fault[0], one, sizeof one);
  fault_text(&r->fault[1], two, sizeof two);
  if (r->fault[1].op == NO_FAULT) (void)snprintf(text, capacity, "%s %s", r->s->name, one);
  else (void)snprintf(text, capacity, "%s %s,%s", r->s->name, one, two);
}

bool faulted_as(const run *r, int op, int phase) {
  int i;

  for (i = 0; i < 2; i++)
    if (r->fault[i].op == op && (phase < 0 || r->fault[i].phase == phase)) return true;
  return false;
}

bool faulted(const run *r, int op) { return faulted_as(r, op, -1); }

bool code_given(const run *r, int code) {
  return (r->fired[0] && r->fault[0].op >= 0 && r->fault[0].code == code && r->fault[0].phase != VMM_FAULT_LIE) ||
         (r->fired[1] && r->fault[1].op >= 0 && r->fault[1].code == code && r->fault[1].phase != VMM_FAULT_LIE);
}

void apart(run *r) { r->apart = 1; }

void broken(run *r, const char *format, ...) {
  static unsigned printed;
  char key[256], text[512], line[256];
  va_list list;
  size_t i;

  if (r->quiet) return;
  r->broken++;
  if (printed++ >= 60 && !global.verbose) return;
  run_key(r, key, sizeof key);
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  (void)printf("BROKEN %s: %s [status %s, %s]\n", key, text, vmm_status_name((int)r->status),
               r->status != VMM_OK ? r->error.message : "");
  if (global.verbose && r->broken == 1)
    for (i = 0; i < r->call_count; i++) {
      (void)vmm_record_format(&r->calls[i], line, sizeof line);
      (void)printf("    %s%s\n", line, i == r->fired_at ? "   <- the fault" : "");
    }
  (void)fflush(stdout);
  if (global.first) _exit(1);
}

static void arm(world *w, const fault *f, int *id) {
  vmm_fault_rule rule;

  *id = 0;
  if (f->op == NO_FAULT) return;
  if (f->op == HOST_MEMORY) {
    w->host.fail_at = w->host.calls + f->occurrence;
    w->host.for_ever = f->times == VMM_FAULT_FOR_EVER;
    w->host.fired = 0;
    return;
  }
  (void)vmm_fault_rule_init(&rule, sizeof rule);
  rule.op = f->op;
  rule.code = f->code;
  rule.phase = f->phase;
  rule.occurrence = f->occurrence;
  rule.times = f->times;
  rule.sticky = f->sticky;
  (void)vmm_fault_add(w->driver, &rule, id, NULL);
}

static bool has_fired(world *w, const fault *f, int id) {
  u64 fired = 0;

  if (f->op == NO_FAULT) return false;
  if (f->op == HOST_MEMORY) return w->host.fired != 0;
  return vmm_fault_count(w->driver, id, &fired, NULL) == VMM_OK && fired != 0;
}

static u64 last_sequence(world *w) {
  vmm_record_entry entry;
  size_t count = 0;

  return vmm_record_get(w->driver, 0, &entry, 1, &count) == VMM_OK && count == 1 ? entry.sequence : 0;
}

/* Which of the calls the first fault fell on; behind the last one if it did not fire. */
static size_t find_fault(const run *r, u64 calls_before) {
  u64 seen = 0;
  size_t i;

  if (!r->fired[0]) return r->call_count;
  if (r->fault[0].op == HOST_MEMORY) return (size_t)calls_before;
  for (i = 0; i < r->call_count; i++)
    if (r->calls[i].op == r->fault[0].op && ++seen == r->fault[0].occurrence) return i;
  return r->call_count;
}

static void call(world *w, run *r) {
  static vmm_record_entry entries[MAX_CALLS];
  u64 before = last_sequence(w), host_before = w->host.calls, made = vmm_record_count(w->driver, VMM_OP_ANY), started;
  int id[2], i;

  for (i = 0; i < 2; i++) arm(w, &r->fault[i], &id[i]);
  memset(&r->error, 0xEE, sizeof r->error);
  started = vmm_driver_now(w->base);
  r->status = w->s->call(w, &r->error);
  r->elapsed = vmm_driver_now(w->base) - started;
  for (i = 0; i < 2; i++) r->fired[i] = has_fired(w, &r->fault[i], id[i]);
  r->calls = entries;
  (void)vmm_record_get(w->driver, before, entries, MAX_CALLS, &r->call_count);
  r->host_calls = w->host.calls - host_before;
  r->fired_at = find_fault(r, w->host.calls_before - made);
}

static void disarm(world *w, const run *r) {
  w->host.fail_at = 0;
  if (!r->fault[0].sticky && !r->fault[1].sticky) (void)vmm_fault_clear(w->driver);
}

/* Code 700 and its like lose the device: then a second one must not notice. */
static bool loses(const fault *f) { return f->op >= 0 && f->code == VMM_CODE_ILLEGAL_ADDRESS; }

void run_make(run *r) {
  world w;

  r->broken = r->apart = 0;
  world_make(&w, r->s, !global.cuda && (loses(&r->fault[0]) || loses(&r->fault[1])));
  if (w.failed) {
    broken(r, "the world could not be made");
    world_end(&w);
    return;
  }
  /* The device will be told to be lost, and then nobody waits for its work any more. But this one lives: unmapped under
   * running work its context would really die, and with it all runs to come. */
  if (global.cuda && loses(&r->fault[0])) {
    world_enter(&w, w.context);
    (void)vmm_raw_ctx_synchronize(w.base);
    world_leave(&w);
  }
  world_state(&w, &r->before);
  call(&w, r);
  w.lost = code_given(r, VMM_CODE_ILLEGAL_ADDRESS);
  world_state(&w, &r->after);
  promises_after(&w, r);
  disarm(&w, r);
  promises_again(&w, r);
  promises_end(&w, r);
  world_end(&w);
}
