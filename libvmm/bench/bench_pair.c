/* Cost of an alloc+free pair through the public interface, thread-safe and by address, on the simulated device (neither
 * call reaches the driver once memory is there): lognormal sizes (median 60 KB, 256 B to 4 MB), a random victim, at 10^2
 * to 10^6 live blocks. Beside it, in the same run and in shuffled order, mimalloc on small sizes (16 to 512 bytes, even
 * odds), which hands out what a thread owns, without a lock. Also pairs of one size, last in first out, and the total
 * rate of several threads on one pool.
 *
 * Memory is grown ahead: a quarter more than the live blocks need, and 256 MiB. Times of one thread are its CPU time, so
 * that a busy machine disturbs them less; rates of threads are by the wall clock. The last lines are
 *   pair live=N: X ns, mimalloc Y ns, ratio Z
 * with medians over the rounds. Options: --rounds N, --pairs N (per round), --live N (only that), --most N (live blocks),
 * --threads N (most; 0: none), --json FILE. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

typedef struct settings {
  u64 pairs, live, most;
  int rounds, threads;
  const char *json;
} settings;

static void pairs_pool(bench_pool *b, u64 count) {
  for (u64 i = 0; i < count; i++) {
    u64 r = bench_random(&b->random);
    u64 *victim = &b->live[((r >> 32) * b->count) >> 32];

    pool_give(b->pool, *victim);
    *victim = pool_take(b->pool, b->sizes[r & (PAIR_SIZES - 1)]);
  }
}

static void pairs_mimalloc(bench_pool *b, u64 count) {
  for (u64 i = 0; i < count; i++) {
    u64 r = bench_random(&b->random);
    void **victim = &b->small[((r >> 32) * b->count) >> 32];

    b->mi_free(*victim);
    *victim = b->mi_malloc(b->small_sizes[r & (PAIR_SIZES - 1)]);
  }
}

static void pairs_lifo(bench_pool *b, u64 count) {
  for (u64 i = 0; i < count; i++) pool_give(b->pool, pool_take(b->pool, 65536));
}

static void measure(bench_pool *b, void (*pairs)(bench_pool *, u64), u64 warm, bench_series *found) {
  double start;

  pairs(b, warm); /* the other arm had the caches */
  start = bench_cpu_now();
  pairs(b, b->pairs);
  bench_add(found, (bench_cpu_now() - start) / (double)b->pairs);
}

static const char *run_pool(void *world, int number, bench_series *found) {
  bench_pool *b = world;

  (void)number;
  measure(b, pairs_pool, b->pairs / 8 + b->count * 2, found);
  return NULL;
}

static const char *run_mimalloc(void *world, int number, bench_series *found) {
  bench_pool *b = world;

  (void)number;
  if (b->mi_malloc == NULL) return "mimalloc is not installed";
  measure(b, pairs_mimalloc, b->pairs / 8 + b->count * 2, found);
  return NULL;
}

static const char *run_lifo(void *world, int number, bench_series *found) {
  bench_pool *b = world;

  (void)number;
  measure(b, pairs_lifo, b->pairs / 8, found);
  return NULL;
}

/* The line that is printed last is kept until then. */
static void run_pairs(bench_report *report, bench_pool *b, const settings *set, u64 live, char line[128]) {
  const bench_arm arms[] = {{"libvmm", run_pool, 0}, {"mimalloc", run_mimalloc, 0}};
  double medians[2];
  vmm_error error;
  char text[32];

  pair_fill(b, live);
  pairs_pool(b, live * 3 + b->pairs * 2); /* to the steady state */
  if (b->mi_malloc != NULL) pairs_mimalloc(b, live * 3 + b->pairs * 2);
  snprintf(text, sizeof text, "live=%llu", live);
  bench_rounds(report, "CPU pair", text, "ns", arms, 2, set->rounds, b, medians);
  bench_need(vmm_pool_check(b->pool, &error), &error);
  pair_empty(b);
  if (b->mi_malloc != NULL)
    snprintf(line, 128, "pair live=%llu: %.1f ns, mimalloc %.1f ns, ratio %.2f", live, medians[0], medians[1],
             medians[0] / medians[1]);
  else snprintf(line, 128, "pair live=%llu: %.1f ns, mimalloc is not installed", live, medians[0]);
}

static void find_mimalloc(bench_pool *b) {
  void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);

  if (library == NULL) library = dlopen("libmimalloc.so", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("mimalloc is not installed (Debian: libmimalloc-dev), so there are no ratios\n");
    return;
  }
  *(void **)&b->mi_malloc = dlsym(library, "mi_malloc");
  *(void **)&b->mi_free = dlsym(library, "mi_free");
  if (b->mi_free == NULL) b->mi_malloc = NULL;
}

/* Does nothing, but while it is there nobody may take this for a program of one thread. */
static void *bystander(void *mutex) {
  pthread_mutex_lock(mutex);
  pthread_mutex_unlock(mutex);
  return NULL;
}

static settings read_settings(int argc, char **argv) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  settings set = {100000, 0, PAIR_MOST, 21, cores >= 16 ? 16 : cores > 1 ? (int)cores * 2 : 2, NULL};

  for (int i = 1; i < argc; i += 2) {
    const char *text = i + 1 < argc ? argv[i + 1] : "";
    u64 value = strtoull(text, NULL, 10);

    if (strcmp(argv[i], "--json") == 0 && *text) set.json = text;
    else if (strcmp(argv[i], "--rounds") == 0 && value >= 1 && value <= 10000) set.rounds = (int)value;
    else if (strcmp(argv[i], "--pairs") == 0 && value >= 100) set.pairs = value;
    else if (strcmp(argv[i], "--live") == 0 && value >= 1 && value <= PAIR_MOST) set.live = value;
    else if (strcmp(argv[i], "--most") == 0 && value >= 1 && value <= PAIR_MOST) set.most = value;
    else if (strcmp(argv[i], "--threads") == 0 && *text && value <= PAIR_MOST_THREADS) set.threads = (int)value;
    else {
      fprintf(stderr, "%s %s: not understood; see the head of libvmm/bench/bench_pair.c\n", argv[i], text);
      exit(2);
    }
  }
  return set;
}

int main(int argc, char **argv) {
  static bench_pool b;
  static const u64 lives[] = {100, 10000, 100000, 1000000};
  const bench_arm lifo[] = {{"libvmm", run_lifo, 0}};
  settings set = read_settings(argc, argv);
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  bench_report report = {NULL, false};
  char lines[8][128];
  int count = 0;
  pthread_t thread;

  if (!bench_open_report(&report, set.json)) return 1;
  pthread_mutex_lock(&gate);
  if (pthread_create(&thread, NULL, bystander, &gate) != 0) return 1;
  pair_open(&b, set.pairs);
  find_mimalloc(&b);
  if (set.live == 0) {
    if (set.threads > 0) pair_threads(&report, &b, set.threads, set.pairs);
    pair_fill(&b, 10000);
    bench_rounds(&report, "CPU pair", "last in, first out", "ns", lifo, 1, set.rounds, &b, NULL);
    pair_empty(&b);
    for (size_t i = 0; i < sizeof lives / sizeof *lives && lives[i] <= set.most; i++)
      run_pairs(&report, &b, &set, lives[i], lines[count++]);
  } else run_pairs(&report, &b, &set, set.live, lines[count++]);
  for (int i = 0; i < count; i++) puts(lines[i]);
  pair_close(&b);
  pthread_mutex_unlock(&gate);
  pthread_join(thread, NULL);
  return bench_close_report(&report) ? 0 : 1;
}
