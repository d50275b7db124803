/* The common part of the benchmarks: see harness.h. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vmm/driver.h"

static double clock_ns(clockid_t id) {
  struct timespec t;

  clock_gettime(id, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double bench_now(void) { return clock_ns(CLOCK_MONOTONIC); }

double bench_cpu_now(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

void *bench_memory(size_t count, size_t size) {
  void *pointer = calloc(count ? count : 1, size);

  if (pointer != NULL) return pointer;
  fprintf(stderr, "out of memory\n");
  exit(1);
}

void bench_need(vmm_status status, const vmm_error *error) {
  if (status == VMM_OK) return;
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", vmm_status_name((int)status), error != NULL ? error->message : "");
  exit(1);
}

void bench_need_code(int code, const char *call) {
  if (code == VMM_CODE_SUCCESS) return;
  fflush(stdout);
  fprintf(stderr, "%s answered %s\n", call, vmm_code_name(code));
  exit(1);
}

/* ---- series ---- */

void bench_add(bench_series *series, double value) {
  if (series->count == series->room) {
    size_t room = series->room ? series->room * 2 : 64;
    double *values = realloc(series->values, room * sizeof *values);

    if (values == NULL) bench_need(VMM_ERROR_OUT_OF_HOST_MEMORY, NULL);
    series->values = values;
    series->room = room;
  }
  series->values[series->count++] = value;
}

void bench_clear(bench_series *series) {
  free(series->values);
  memset(series, 0, sizeof *series);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

/* The smallest value that at least this share of the values does not exceed. */
static double quantile(const bench_series *series, double share) {
  size_t at = (size_t)(share * (double)series->count);

  return series->values[at < series->count ? at : series->count - 1];
}

bench_spread bench_spread_of(bench_series *series) {
  bench_spread s;

  memset(&s, 0, sizeof s);
  if (series->count == 0) return s;
  qsort(series->values, series->count, sizeof *series->values, by_value);
  s.n = series->count;
  s.median = quantile(series, 0.5);
  s.p5 = quantile(series, 0.05);
  s.p25 = quantile(series, 0.25);
  s.p75 = quantile(series, 0.75);
  s.p95 = quantile(series, 0.95);
  s.p99 = quantile(series, 0.99);
  s.p999 = quantile(series, 0.999);
  s.min = series->values[0];
  s.max = series->values[series->count - 1];
  return s;
}

/* ---- results ---- */

bool bench_open_report(bench_report *report, const char *path) {
  report->json = path != NULL ? fopen(path, "w") : NULL;
  if (path == NULL || report->json != NULL) return true;
  perror(path);
  return false;
}

bool bench_close_report(bench_report *report) {
  if (report->json == NULL || fclose(report->json) == 0) return true;
  perror("writing the results");
  return false;
}

static void head(FILE *out, const char *bench, const char *what, const char *arm) {
  fprintf(out, "{\"bench\": \"%s\", \"case\": \"%s\", \"arm\": \"%s\"", bench, what, arm);
}

double bench_result(bench_report *report, const char *bench, const char *what, const char *arm, const char *unit,
                    bench_series *series, const char *note) {
  bench_spread s = bench_spread_of(series);

  if (!report->quiet)
    printf("%s, %s: %s: %.5g %s (5 %% %.5g, 95 %% %.5g, 99 %% %.5g, n %zu)%s%s\n", bench, what, arm, s.median, unit,
           s.p5, s.p95, s.p99, s.n, note != NULL ? "; " : "", note != NULL ? note : "");
  fflush(stdout);
  if (report->json == NULL) return s.median;
  head(report->json, bench, what, arm);
  fprintf(report->json,
          ", \"unit\": \"%s\", \"n\": %zu, \"median\": %.6g, \"p5\": %.6g, \"p25\": %.6g, \"p75\": %.6g, "
          "\"p95\": %.6g, \"p99\": %.6g, \"p99.9\": %.6g, \"min\": %.6g, \"max\": %.6g",
          unit, s.n, s.median, s.p5, s.p25, s.p75, s.p95, s.p99, s.p999, s.min, s.max);
  if (note != NULL) fprintf(report->json, ", \"note\": \"%s\"", note);
  fprintf(report->json, "}\n");
  fflush(report->json);
  return s.median;
}

void bench_skip(bench_report *report, const char *bench, const char *what, const char *arm, const char *why) {
  if (!report->quiet) printf("%s, %s: %s: skipped: %s\n", bench, what, arm, why);
  if (report->json == NULL) return;
  head(report->json, bench, what, arm);
  fprintf(report->json, ", \"skip\": \"%s\"}\n", why);
  fflush(report->json);
}

/* ---- rounds ---- */

static void shuffle(size_t *order, size_t count, u64 *state) {
  for (size_t i = count; i > 1; i--) {
    size_t j = (size_t)(bench_random(state) % i), kept = order[i - 1];

    order[i - 1] = order[j];
    order[j] = kept;
  }
}

void bench_rounds(bench_report *report, const char *bench, const char *what, const char *unit, const bench_arm *arms,
                  size_t count, int rounds, void *world, double *medians) {
  static u64 state = 88172645463325252ull;
  bench_series found[BENCH_MOST_ARMS] = {{NULL, 0, 0}};
  const char *why[BENCH_MOST_ARMS] = {NULL};
  size_t order[BENCH_MOST_ARMS];

  for (size_t i = 0; i < count; i++) order[i] = i;
  for (int round = -1; round < rounds; round++) {
    shuffle(order, count, &state);
    for (size_t i = 0; i < count; i++) {
      size_t arm = order[i];

      if (why[arm] == NULL) why[arm] = arms[arm].run(world, arms[arm].number, &found[arm]);
      if (round < 0) found[arm].count = 0;
    }
  }
  for (size_t i = 0; i < count; i++) {
    double median = 0;

    if (why[i] != NULL) bench_skip(report, bench, what, arms[i].name, why[i]);
    else median = bench_result(report, bench, what, arms[i].name, unit, &found[i], NULL);
    if (medians != NULL) medians[i] = median;
    bench_clear(&found[i]);
  }
}

const char *bench_size(char text[32], u64 size) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double number = (double)size;

  while (number >= 1024 && unit + 1 < sizeof names / sizeof *names) {
    number /= 1024;
    unit++;
  }
  snprintf(text, 32, "%.4g %s", number, names[unit]);
  return text;
}
