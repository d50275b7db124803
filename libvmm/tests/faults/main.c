/* faults: runs all of it in a few processes, prints a table and the last line. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults.h"

enum { MAX_SCENARIOS = 128, MAX_JOBS = 16, LEAST_RUNS = 20000, LEAST_SAMPLED = 1000 };

settings global = {.jobs = 2};

static int usage(const char *why) {
  fprintf(stderr,
          "faults: %s\n"
          "usage: faults [--sample] [--part] [--singles] [--first] [--only OPERATION] [--run TEXT] [--jobs N] "
          "[--verbose] [--driver "
          "sim|cuda]\n"
          "              [--kernels FILE]\n"
          "  --sample   about one run in twenty, always the same ones\n"
          "  --part     one in six of the second faults inside the undo, always the same ones\n"
          "  --singles  without the second fault inside the undo\n"
          "  --first    stop at the first broken promise\n"
          "  --only     one operation, or all whose name starts with it\n"
          "  --run      only runs whose name (as printed when a promise breaks) holds this text\n"
          "  --verbose  the driver calls of each run that breaks a promise\n"
          "  --driver   cuda: refusals only, over a real GPU; needs the GPU code of the test kernels\n",
          why);
  return 2;
}

static int read_settings(int count, char **arguments) {
  int i;

  for (i = 1; i < count; i++) {
    const char *name = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;

    if (strcmp(name, "--sample") == 0) {
      global.sample = true;
      continue;
    }
    if (strcmp(name, "--part") == 0) {
      global.part = true;
      continue;
    }
    if (strcmp(name, "--singles") == 0) {
      global.singles = true;
      continue;
    }
    if (strcmp(name, "--first") == 0) {
      global.first = true;
      continue;
    }
    if (strcmp(name, "--verbose") == 0) {
      global.verbose = true;
      continue;
    }
    if (value == NULL) return usage(name);
    i++;
    if (strcmp(name, "--only") == 0) global.only = value;
    else if (strcmp(name, "--run") == 0) global.key = value;
    else if (strcmp(name, "--kernels") == 0) global.kernels = value;
    else if (strcmp(name, "--jobs") == 0) global.jobs = atoi(value);
    else if (strcmp(name, "--driver") == 0 && strcmp(value, "cuda") == 0) global.cuda = true;
    else if (strcmp(name, "--driver") != 0 || strcmp(value, "sim") != 0) return usage(name);
  }
  if (global.cuda && global.kernels == NULL) return usage("--driver cuda needs --kernels");
  if (global.cuda) global.jobs = 1;
  if (global.jobs < 1 || global.jobs > MAX_JOBS) return usage("--jobs");
  return 0;
}

static bool is_chosen(const scenario *s) {
  if (global.cuda && !s->gpu) return false;
  return global.only == NULL || strncmp(s->name, global.only, strlen(global.only)) == 0;
}

static size_t all_scenarios(void) { return scenario_count + stream_scenario_count + capture_scenario_count; }

static const scenario *scenario_at(size_t i) {
  if (i < scenario_count) return &scenarios[i];
  i -= scenario_count;
  return i < stream_scenario_count ? &stream_scenarios[i] : &capture_scenarios[i - stream_scenario_count];
}

/* A process of its own, made before the library is used: it does not work in a forked child of its user. */
static int work(int worker, tally *tallies) {
  u64 number = 0;
  size_t i;

#ifdef M_TRIM_THRESHOLD /* every run allocates and frees the same: the pages may stay */
  (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
  (void)mallopt(M_MMAP_THRESHOLD, 64 << 20);
#endif
  for (i = 0; i < all_scenarios(); i++)
    if (is_chosen(scenario_at(i))) loop_scenario(scenario_at(i), worker, global.jobs, &number, &tallies[i]);
  fflush(stdout);
  return 0;
}

extern void __gcov_dump(void) __attribute__((weak)); /* there only in a build that measures coverage */

static bool run_jobs(tally *tallies, size_t stride) {
  pid_t children[MAX_JOBS];
  bool good = true;
  int i, status;
  size_t k;

  for (i = 0; i < global.jobs; i++) {
    fflush(stdout);
    children[i] = fork();
    if (children[i] < 0) return false;
    if (children[i] == 0) {
      int code = work(i, tallies + (size_t)i * stride);

      if (__gcov_dump != NULL) __gcov_dump(); /* _exit would lose what this process covered */
      _exit(code);
    }
  }
  for (i = 0; i < global.jobs; i++) {
    if (waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    good = false;
    printf("a process ended with signal %d, in", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    for (k = stride; k-- > 0;)
      if (tallies[(size_t)i * stride + k].key[0] != 0) {
        printf(" %s\n", tallies[(size_t)i * stride + k].key);
        break;
      }
  }
  return good;
}

int main(int count, char **arguments) {
  tally *tallies, sum = {0};
  int refused = read_settings(count, arguments), i;
  u64 least = global.sample ? LEAST_SAMPLED : LEAST_RUNS;
  bool good;
  size_t k;

  if (refused != 0) return refused;
  tallies =
      mmap(NULL, sizeof *tallies * MAX_SCENARIOS * MAX_JOBS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tallies == MAP_FAILED || all_scenarios() > MAX_SCENARIOS) return 2;
  good = run_jobs(tallies, MAX_SCENARIOS);
  printf("%-18s %8s %8s %8s %8s %8s\n", "operation", "points", "runs", "broken", "apart", "orphans");
  for (k = 0; k < all_scenarios(); k++) {
    tally one = {0};

    for (i = 0; i < global.jobs; i++) {
      const tally *t = &tallies[(size_t)i * MAX_SCENARIOS + k];
      one.points += t->points;
      one.runs += t->runs;
      one.broken += t->broken;
      one.apart += t->apart;
      one.orphans += t->orphans;
    }
    if (!is_chosen(scenario_at(k))) continue;
    printf("%-18s %8llu %8llu %8llu %8llu %8llu\n", scenario_at(k)->name, one.points, one.runs, one.broken, one.apart,
           one.orphans);
    sum.runs += one.runs;
    sum.broken += one.broken;
  }
  if (!good) sum.broken++;
  printf("faults: %llu run, %llu promises broken\n", sum.runs, sum.broken);
  if (global.only == NULL && global.key == NULL && !global.cuda && sum.runs < least) return 1;
  return sum.broken == 0 ? 0 : 1;
}
