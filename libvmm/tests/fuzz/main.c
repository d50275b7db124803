/* Runs a fuzz target without a fuzzer: over the files given, or else over a fixed set of pseudo-random inputs, so that
 * every build exercises the target. With -DVMM_FUZZ=ON (clang) libFuzzer takes this file's place.
 *   fuzz_thing [FILE ...] | [-n COUNT] [-s SEED]      last line: "N passed, 0 failed" */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 4096 };

static uint64_t next(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* The input is copied to a block of exactly its size, so that a sanitizer sees a read past its end. */
static int run_exact(const uint8_t *data, size_t size) {
  uint8_t *block = malloc(size ? size : 1);
  if (block == NULL) return 1;
  if (size != 0) memcpy(block, data, size);
  LLVMFuzzerTestOneInput(block, size);
  free(block);
  return 0;
}

static int run_file(const char *path) {
  static uint8_t data[1 << 20];
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    printf("%s cannot be opened\n", path);
    return 1;
  }
  size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  return run_exact(data, size);
}

/* Three kinds in turn: any bytes, small bytes (likely opcodes), and long runs of one byte. */
static int run_random(uint64_t seed, unsigned long index) {
  static uint8_t data[LONGEST];
  uint64_t state = seed + index * 0x632BE59BD9B4E019u;
  size_t size = (size_t)(next(&state) % (index % 8 == 0 ? LONGEST : 256));
  uint8_t run = 0;
  for (size_t i = 0; i < size; i++) {
    uint64_t word = next(&state);
    if (i % 16 == 0) run = (uint8_t)word;
    data[i] = index % 3 == 0 ? (uint8_t)word : index % 3 == 1 ? (uint8_t)(word & 15) : run;
  }
  return run_exact(data, size);
}

int main(int argc, char **argv) {
  unsigned long count = 2000, done = 0;
  uint64_t seed = 1;
  int files = 0, failed = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
      count = strtoul(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) {
      seed = strtoull(argv[++i], NULL, 10);
    } else {
      files++, done++;
      failed += run_file(argv[i]);
    }
  }
  for (unsigned long i = 0; files == 0 && i < count; i++, done++) failed += run_random(seed, i);
  printf("%lu passed, %d failed\n", done - (unsigned long)failed, failed);
  return failed != 0;
}
