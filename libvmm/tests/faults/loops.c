/* Which runs there are: every point of a clean run times codes, phases and times; then, for some of them, every call made
 * after the first fault again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"

enum { MAX_POINTS = 512, RETRY_LIMIT = 10 };

static const int codes[] = {2, 600, 1, 801, 999, 700, 4242};

/* Of the pairs: how the first fails, and how what is called after it does. */
typedef struct manner {
  int code, phase;
  u64 times;
} manner;

static const manner firsts[] = {
    {999, VMM_FAULT_BEFORE, 1}, {999, VMM_FAULT_BEFORE, VMM_FAULT_FOR_EVER},
    {999, VMM_FAULT_AFTER, 1},  {999, VMM_FAULT_AFTER, VMM_FAULT_FOR_EVER},
    {600, VMM_FAULT_BEFORE, 1}, {600, VMM_FAULT_BEFORE, VMM_FAULT_FOR_EVER},
};
static const manner seconds[] = {
    {999, VMM_FAULT_BEFORE, 1}, {999, VMM_FAULT_BEFORE, VMM_FAULT_FOR_EVER},
    {999, VMM_FAULT_AFTER, 1},  {999, VMM_FAULT_AFTER, VMM_FAULT_FOR_EVER},
    {1, VMM_FAULT_BEFORE, 1},   {1, VMM_FAULT_BEFORE, VMM_FAULT_FOR_EVER},
    {1, VMM_FAULT_AFTER, 1},    {600, VMM_FAULT_BEFORE, 1},
    {600, VMM_FAULT_AFTER, 1},  {700, VMM_FAULT_BEFORE, 1},
};

enum {
  CODES = sizeof codes / sizeof codes[0],
  FIRSTS = sizeof firsts / sizeof firsts[0],
  SECONDS = sizeof seconds / sizeof seconds[0]
};

typedef struct point {
  int op;
  u64 occurrence;
} point;

typedef struct loop {
  const scenario *s;
  tally *t;
  int worker, workers;
  u64 *number; /* of first faults so far: what the processes share out */
  state clean[2];
  point points[MAX_POINTS];
  size_t point_count;
  u64 host_calls;
} loop;

static const fault none = {.op = NO_FAULT};

static unsigned hash(const char *text) {
  unsigned h = 2166136261u;

  for (; *text != 0; text++) h = (h ^ (unsigned char)*text) * 16777619u;
  return h;
}

enum { PART = 6 }; /* with --part one in so many pairs is made */

/* In a sample one in `parts` is made. */
static bool chosen(const run *r, unsigned parts) {
  char key[256];

  if (!global.sample && !(global.part && r->fault[1].op != NO_FAULT) && global.key == NULL) return true;
  run_key(r, key, sizeof key);
  if (global.key != NULL && strstr(key, global.key) == NULL) return false;
  if (!global.sample && global.part && r->fault[1].op != NO_FAULT) parts = PART;
  else if (!global.sample) return true;
  return hash(key) / 7 % parts == 0;
}

static void start(loop *l, run *r, fault first, fault second) {
  memset(r, 0, sizeof *r);
  r->s = l->s;
  r->fault[0] = first;
  r->fault[1] = second;
  r->clean = l->clean;
}

static void make(loop *l, run *r) {
  run_key(r, l->t->key, sizeof l->t->key);
  run_make(r);
}

/* Counts a run that was made. Only what fired counts. */
static void count(loop *l, const run *r, bool expected) {
  bool fired = r->fired[0] && (r->fault[1].op == NO_FAULT || r->fired[1]);

  l->t->broken += (u64)r->broken;
  if (!fired) {
    l->t->unfired++;
    /* On a GPU how often a fence is polled is a matter of time: a later poll need not come. */
    if (expected && !(global.cuda && r->fault[0].op == VMM_OP_event_query)) {
      printf("BROKEN %s: the fault did not fire\n", l->t->key);
      l->t->broken++;
    }
    return;
  }
  l->t->runs++;
  l->t->apart += (u64)r->apart;
  l->t->orphans += r->after.orphan_count;
}

/* ---- the second fault: whatever is called after the first ---- */

static size_t later_points(const run *r, point *points) {
  u64 seen[VMM_OP_COUNT] = {0};
  size_t from = r->fired_at + (r->fault[0].op == HOST_MEMORY ? 0 : 1), i, count = 0;

  for (i = 0; i < r->call_count && count < MAX_POINTS; i++) {
    seen[r->calls[i].op]++;
    if (i < from) continue;
    if (r->calls[i].op == r->fault[0].op && r->fault[0].times == VMM_FAULT_FOR_EVER) continue;
    if (seen[r->calls[i].op] > 40) continue; /* a long wait's polls are all the same */
    points[count].op = r->calls[i].op;
    points[count++].occurrence = seen[r->calls[i].op];
  }
  return count;
}

static void pairs(loop *l, const run *first) {
  point points[MAX_POINTS];
  fault one = first->fault[0];
  size_t count_of = later_points(first, points), i, k;
  run r;

  for (i = 0; i < count_of; i++)
    for (k = 0; k < SECONDS; k++) {
      fault two = {points[i].op, seconds[k].code, seconds[k].phase, points[i].occurrence, seconds[k].times, false};

      start(l, &r, one, two);
      if (!chosen(&r, 4)) continue;
      make(l, &r);
      count(l, &r, false);
    }
}

/* ---- the first fault ---- */

static bool wants_pairs(const fault *f) {
  size_t i;

  if (global.cuda || global.singles) return false;
  if (f->op == HOST_MEMORY) return true;
  for (i = 0; i < FIRSTS && !f->sticky; i++)
    if (f->code == firsts[i].code && f->phase == firsts[i].phase && f->times == firsts[i].times) return true;
  return false;
}

/* A loss that is only told lets the library unmap under work that runs on: over CUDA that would be a real one. */
static bool would_be_real(const scenario *s, const fault *f) {
  return global.cuda && f->code == VMM_CODE_ILLEGAL_ADDRESS &&
         (s->verify != 0 || s->scrub != 0 || s->what == TRIM || s->what == DESTROY);
}

/* How often a real device is asked whether it is done varies from run to run. */
static bool polls(int op) { return global.cuda && op == VMM_OP_event_query; }

static void single(loop *l, fault f, bool expected) {
  bool wanted;
  run r;

  if (would_be_real(l->s, &f)) return;
  if (polls(f.op) && f.occurrence > 1) expected = false;
  if ((*l->number)++ % (u64)l->workers != (u64)l->worker) return;
  start(l, &r, f, none);
  wanted = chosen(&r, 8);
  if (wanted) {
    make(l, &r);
    count(l, &r, expected);
  }
  if (!wants_pairs(&f) || (global.sample && hash(l->t->key) / 7 % 4 != 0)) return;
  if (!wanted) {
    if (global.sample) return;
    r.quiet = true;
    make(l, &r);
  }
  if (r.fired[0]) pairs(l, &r);
}

static bool answers_success(const loop *l, const point *at, const int *answers) { return answers[at - l->points] == 0; }

static void matrix(loop *l, const point *at, bool succeeds) {
  size_t c;
  int phase, ever;
  u64 times;

  for (c = 0; c < CODES; c++)
    for (phase = VMM_FAULT_BEFORE; phase <= (global.cuda ? VMM_FAULT_BEFORE : VMM_FAULT_AFTER); phase++) {
      for (ever = 0; ever < 2; ever++) {
        fault f = {at->op, codes[c], phase, at->occurrence, ever ? VMM_FAULT_FOR_EVER : 1, false};
        single(l, f, phase == VMM_FAULT_BEFORE || succeeds);
      }
      if (codes[c] == VMM_CODE_ILLEGAL_ADDRESS && !global.cuda) {
        fault f = {at->op, codes[c], phase, at->occurrence, 1, true};
        single(l, f, phase == VMM_FAULT_BEFORE || succeeds);
      }
    }
  for (times = 2; times <= RETRY_LIMIT; times++) {
    fault f = {at->op, VMM_CODE_NOT_READY, VMM_FAULT_BEFORE, at->occurrence, times, false};
    single(l, f, true);
  }
}

/* Success that is none, and work half done: of calls on ranges. */
static void lies(loop *l, const point *at) {
  static const int halves[] = {2, 600, 999};
  bool access = at->op == VMM_OP_mem_set_access, unmap = at->op == VMM_OP_mem_unmap;
  size_t i;
  int ever;

  for (ever = 0; ever < 2; ever++) {
    fault lie = {at->op, 0, VMM_FAULT_LIE, at->occurrence, ever ? VMM_FAULT_FOR_EVER : 1, false};

    if (access || unmap || at->op == VMM_OP_mem_map) single(l, lie, true);
    for (i = 0; i < 3 && (access || unmap); i++) {
      fault half = {at->op, halves[i], VMM_FAULT_PARTIAL, at->occurrence, lie.times, false};
      single(l, half, true);
    }
  }
}

static void host_memory(loop *l) {
  u64 n;
  int ever;

  for (n = 1; n <= l->host_calls; n++)
    for (ever = 0; ever < 2; ever++) {
      fault f = {HOST_MEMORY, 0, 0, n, ever ? VMM_FAULT_FOR_EVER : 1, false};
      single(l, f, true);
    }
}

/* n = 1, 2, ... until none fires: the points must be those of the clean run. */
static void check_points(loop *l, const u64 *recorded) {
  run r;
  int op;

  for (op = 0; op < VMM_OP_COUNT && l->worker == 0; op++) {
    fault next = {op, 999, VMM_FAULT_BEFORE, recorded[op] + 1, 1, false};

    start(l, &r, next, none);
    make(l, &r);
    if (!r.fired[0] || (global.cuda && op == VMM_OP_event_query)) continue; /* polls: a matter of time */
    printf("BROKEN %s: reached, but not in the clean run\n", l->t->key);
    l->t->broken++;
  }
}

void loop_scenario(const scenario *s, int worker, int workers, u64 *number, tally *t) {
  static loop l;
  static int answers[MAX_POINTS];
  u64 recorded[VMM_OP_COUNT] = {0};
  run r;
  size_t i;

  memset(&l, 0, sizeof l);
  l.s = s;
  l.t = t;
  l.worker = worker;
  l.workers = workers;
  l.number = number;
  start(&l, &r, none, none);
  r.clean = NULL;
  make(&l, &r);
  if (worker == 0) t->broken += (u64)r.broken;
  if (r.status != VMM_OK) broken(&r, "the clean run fails: %s", r.error.message);
  l.clean[0] = r.before;
  l.clean[1] = r.after;
  l.host_calls = r.host_calls;
  for (i = 0; i < r.call_count && i < MAX_POINTS; i++) {
    l.points[i].op = r.calls[i].op;
    l.points[i].occurrence = ++recorded[r.calls[i].op];
    answers[i] = r.calls[i].code;
  }
  l.point_count = i;
  if (worker == 0) t->points = l.point_count + l.host_calls;
  if (!global.sample && global.key == NULL) check_points(&l, recorded);
  for (i = 0; i < l.point_count; i++) {
    matrix(&l, &l.points[i], answers_success(&l, &l.points[i], answers));
    if (!global.cuda) lies(&l, &l.points[i]);
  }
  host_memory(&l);
}
