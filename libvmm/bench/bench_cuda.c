/* The pool on a GPU, against the driver's own calls and CUDA's allocators. On the simulated device, with tiny sizes, it
 * shows only that it runs: there is no work to wait for, and times mean nothing.
 *
 *   bench_cuda [--driver cuda|sim] [--kernels FILE] [--cudart FILE] [--only PART] [--divide N] [--json FILE]
 *
 * PART: pair, streams, growth, vector, load, trim, bandwidth. --divide: so many times fewer rounds. */
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#ifndef VMM_BENCH_FATBIN
#define VMM_BENCH_FATBIN ""
#endif

typedef struct part {
  const char *name;
  void (*run)(bench_machine *machine);
} part;

static const part PARTS[] = {{"pair", bench_pairs},         {"streams", bench_streams}, {"growth", bench_growth},
                             {"vector", bench_vector},      {"load", bench_load},       {"trim", bench_trim},
                             {"bandwidth", bench_bandwidth}};

enum { PART_COUNT = sizeof PARTS / sizeof *PARTS };

static int usage(const char *word) {
  fprintf(stderr, "%s: not understood; see the head of libvmm/bench/bench_cuda.c\n", word);
  return 2;
}

int main(int argc, char **argv) {
  static bench_machine machine = {.divide = 1};
  const char *driver = "cuda", *kernels = VMM_BENCH_FATBIN, *cudart = NULL, *only = NULL, *json = NULL;

  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;

    if (value == NULL) return usage(argv[i]);
    if (strcmp(argv[i], "--driver") == 0) driver = value;
    else if (strcmp(argv[i], "--kernels") == 0) kernels = value;
    else if (strcmp(argv[i], "--cudart") == 0) cudart = value;
    else if (strcmp(argv[i], "--only") == 0) only = value;
    else if (strcmp(argv[i], "--json") == 0) json = value;
    else if (strcmp(argv[i], "--divide") == 0 && atoi(value) > 0) machine.divide = atoi(value);
    else return usage(argv[i]);
  }
  if (strcmp(driver, "cuda") != 0 && strcmp(driver, "sim") != 0) return usage(driver);
  if (!bench_open_report(&machine.report, json)) return 1;
  machine_open(&machine, driver, *kernels ? kernels : NULL, cudart);
  for (int i = 0; i < PART_COUNT; i++)
    if (only == NULL || strcmp(only, PARTS[i].name) == 0) PARTS[i].run(&machine);
  machine_close(&machine);
  return bench_close_report(&machine.report) ? 0 : 1;
}
