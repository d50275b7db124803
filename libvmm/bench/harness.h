/* What the benchmarks share: a clock, series of numbers with median and spread, rounds in which the order of what is
 * compared is shuffled, and results as JSON lines beside a readable line on stdout.
 *
 * A benchmark compares *arms* on a *case*; every round measures each arm once. One JSON line per arm and case:
 *   {"bench": "growth", "case": "1 GiB", "arm": "libvmm", "unit": "us", "n": 15, "median": ..., "p5": ..., "p95": ...,
 *    "p99": ..., "p99.9": ..., "min": ..., "max": ...}        or, for what cannot be measured here, with "skip": "why"
 */
#ifndef VMM_BENCH_HARNESS_H
#define VMM_BENCH_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "vmm/vmm.h"

typedef unsigned long long u64;

enum { BENCH_MOST_ARMS = 16 };

#define KIB ((u64)1 << 10)
#define MIB ((u64)1 << 20)
#define GIB ((u64)1 << 30)

/* Monotonic time, and the CPU time of the calling thread, in ns. */
double bench_now(void);
double bench_cpu_now(void);

/* xorshift64: good enough to shuffle and to choose victims, and cheap. */
static inline u64 bench_random(u64 *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

/* Memory, or the end of the program. */
void *bench_memory(size_t count, size_t size);

/* Ends the program with the library's own words if a call failed. */
void bench_need(vmm_status status, const vmm_error *error);

/* Ends the program if a raw driver call failed. */
void bench_need_code(int code, const char *call);

typedef struct bench_series {
  double *values;
  size_t count, room;
} bench_series;

void bench_add(bench_series *series, double value);
void bench_clear(bench_series *series);

typedef struct bench_spread {
  size_t n;
  double median, p5, p25, p75, p95, p99, p999, min, max;
} bench_spread;

/* Sorts the series. */
bench_spread bench_spread_of(bench_series *series);

typedef struct bench_report {
  FILE *json; /* or NULL */
  bool quiet; /* nothing on stdout */
} bench_report;

/* `path` NULL: no JSON. False with a message if the file cannot be written. */
bool bench_open_report(bench_report *report, const char *path);
bool bench_close_report(bench_report *report);

/* One result: its median. `note` may be NULL. */
double bench_result(bench_report *report, const char *bench, const char *what, const char *arm, const char *unit,
                    bench_series *series, const char *note);
void bench_skip(bench_report *report, const char *bench, const char *what, const char *arm, const char *why);

/* Measures one arm once and adds what it found: one value or several. Answers why (a static text) if it cannot. `number`
 * tells arms that share a function apart. */
typedef struct bench_arm {
  const char *name;
  const char *(*run)(void *world, int number, bench_series *found);
  int number;
} bench_arm;

/* `rounds` rounds over the arms, each in an order of its own, after one that does not count. `medians` may be NULL. */
void bench_rounds(bench_report *report, const char *bench, const char *what, const char *unit, const bench_arm *arms,
                  size_t count, int rounds, void *world, double *medians);

/* "2 MiB", "8 GiB": into `text`, which is returned. */
const char *bench_size(char text[32], u64 size);

#endif
