/* Cost of an alloc+free pair through the public interface, thread-safe and by address, on the simulated device (neither
 * call reaches the driver once memory is there): lognormal sizes (median 60 KB, 256 B to 4 MB), a random victim, at 10^2
 * to 10^6 live blocks. Beside it, in the same run and in shuffled order, mimalloc on small sizes (16 to 512 bytes, even
 * odds), which hands out what a thread owns, without a lock. Also pairs of one size, last in first out, and the total
 * rate of several threads on one pool.
 *
 * Memory is grown ahead: a quarter more than the live blocks need, and 256 MiB. Times of one thread are its CPU time, so
 * that a busy machine disturbs them less; rates of threads are by the wall clock. The last lines are
 *   pair live=N: X ns, mimalloc Y ns, ratio Z
 * with medians over the rounds. Options: --rounds N, --pairs N (per round), --live N (only that), --threads N (most; 0:
 * none), --json FILE. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "vmm/driver.h"

enum { SIZES = 1 << 14, MOST_ROUNDS = 255, MOST_THREADS = 64, MOST_SAMPLES = 1 << 16 };

typedef unsigned long long u64;

typedef struct spread {
  double median, low, high, best; /* low and high: quartiles */
} spread;

typedef struct bench {
  vmm_driver *sim;
  vmm_device *device;
  vmm_pool *pool;
  void *(*mi_malloc)(size_t);
  void (*mi_free)(void *);
  u64 *live;    /* addresses in the pool */
  void **small; /* blocks of mimalloc */
  uint32_t sizes[SIZES];
  uint32_t small_sizes[SIZES];
  u64 random;
  FILE *json;
} bench;

typedef struct settings {
  u64 pairs, live;
  int rounds, threads;
} settings;

static inline u64 next_random(u64 *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static double clock_ns(clockid_t id) {
  struct timespec t;

  clock_gettime(id, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void need(vmm_status status, const vmm_error *error) {
  if (status == VMM_OK) return;
  fprintf(stderr, "%s\n", error->message);
  exit(1);
}

static void *need_memory(size_t count, size_t size) {
  void *pointer = calloc(count, size);

  if (pointer != NULL) return pointer;
  fprintf(stderr, "out of memory\n");
  exit(1);
}

static void make_sizes(bench *b) {
  for (unsigned i = 0; i < SIZES; i++) {
    double u = ((double)(next_random(&b->random) >> 11) + 1) / 9007199254740993.0;
    double v = (double)(next_random(&b->random) >> 11) / 9007199254740992.0;
    double size = 60e3 * exp(1.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));

    b->small_sizes[i] = 16 + (uint32_t)(next_random(&b->random) % 497);
    b->sizes[i] = size < 256 ? 256 : size > 4194304 ? 4194304 : (uint32_t)size;
  }
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

static spread spread_of(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return (spread){values[count / 2], values[count / 4], values[count - 1 - count / 4], values[0]};
}

/* ---- the pool ---- */

static void open_pool(bench *b, u64 live) {
  vmm_pool_options options;
  vmm_error error;
  u64 mean = 0;

  for (unsigned i = 0; i < SIZES; i++) mean += b->sizes[i];
  mean /= SIZES;
  need(vmm_pool_options_init(&options, sizeof options), &error);
  options.reservation = 1ull << 40;
  need(vmm_pool_create(&b->pool, b->device, &options, &error), &error);
  need(vmm_pool_grow(b->pool, live * mean * 5 / 4 + (256 << 20), NULL, &error), &error);
}

static void close_pool(bench *b) {
  vmm_error error;

  need(vmm_pool_destroy(b->pool, VMM_DESTROY_FORCED, &error), &error);
}

static inline u64 take(vmm_pool *pool, u64 size) {
  vmm_error error;
  u64 address;

  if (vmm_pool_alloc(pool, size, &address, NULL) == VMM_OK) return address;
  need(vmm_pool_alloc(pool, size, &address, &error), &error);
  return address;
}

static inline void give(vmm_pool *pool, u64 address) {
  if (vmm_pool_free(pool, address, NULL) != VMM_OK) abort();
}

static void pairs_pool(bench *b, u64 live, u64 count) {
  for (u64 i = 0; i < count; i++) {
    u64 r = next_random(&b->random);
    u64 *victim = &b->live[((r >> 32) * live) >> 32];

    give(b->pool, *victim);
    *victim = take(b->pool, b->sizes[r & (SIZES - 1)]);
  }
}

static void pairs_mimalloc(bench *b, u64 live, u64 count) {
  for (u64 i = 0; i < count; i++) {
    u64 r = next_random(&b->random);
    void **victim = &b->small[((r >> 32) * live) >> 32];

    b->mi_free(*victim);
    *victim = b->mi_malloc(b->small_sizes[r & (SIZES - 1)]);
  }
}

static void pairs_lifo(bench *b, u64 live, u64 count) {
  (void)live;
  for (u64 i = 0; i < count; i++) give(b->pool, take(b->pool, 65536));
}

static double measure(bench *b, void (*pairs)(bench *, u64, u64), u64 live, u64 count) {
  double start;

  pairs(b, live, count / 8 + live * 2); /* the other arm had the caches */
  start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
  pairs(b, live, count);
  return (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start) / (double)count;
}

/* ---- one thread ---- */

static void fill(bench *b, u64 live) {
  open_pool(b, live);
  for (u64 i = 0; i < live; i++) {
    uint32_t size = b->sizes[next_random(&b->random) & (SIZES - 1)];

    b->live[i] = take(b->pool, size);
    if (b->mi_malloc != NULL) b->small[i] = b->mi_malloc(b->small_sizes[i & (SIZES - 1)]);
  }
  /* To the steady state. */
  pairs_pool(b, live, live * 3 + 200000);
  if (b->mi_malloc != NULL) pairs_mimalloc(b, live, live * 3 + 200000);
}

static void empty(bench *b, u64 live) {
  for (u64 i = 0; i < live && b->mi_malloc != NULL; i++) b->mi_free(b->small[i]);
  close_pool(b);
}

/* The line that is printed last is kept until then. */
static void run_pairs(bench *b, const settings *set, u64 live, char *line, size_t room, bool first) {
  double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
  spread a, m = {0, 0, 0, 0};
  vmm_pool_stats stats;
  vmm_error error;

  fill(b, live);
  for (int i = 0; i < set->rounds; i++) {
    bool swap = (next_random(&b->random) >> 20 & 1) != 0;

    if (swap && b->mi_malloc != NULL) theirs[i] = measure(b, pairs_mimalloc, live, set->pairs);
    ours[i] = measure(b, pairs_pool, live, set->pairs);
    if (!swap && b->mi_malloc != NULL) theirs[i] = measure(b, pairs_mimalloc, live, set->pairs);
  }
  stats.struct_size = sizeof stats;
  need(vmm_pool_get_stats(b->pool, &stats, &error), &error);
  need(vmm_pool_check(b->pool, &error), &error);
  a = spread_of(ours, set->rounds);
  if (b->mi_malloc != NULL) m = spread_of(theirs, set->rounds);
  printf(
      "live=%llu: pool %.1f ns (quartiles %.1f to %.1f, best %.1f), mimalloc %.1f ns (%.1f to %.1f, best %.1f), "
      "%llu growths, block/requested bytes %.4f\n",
      live, a.median, a.low, a.high, a.best, m.median, m.low, m.high, m.best, stats.growth_count,
      (double)stats.block_bytes / (double)stats.requested_bytes);
  if (b->mi_malloc != NULL)
    snprintf(line, room, "pair live=%llu: %.1f ns, mimalloc %.1f ns, ratio %.2f", live, a.median, m.median,
             a.median / m.median);
  else snprintf(line, room, "pair live=%llu: %.1f ns, mimalloc is not installed", live, a.median);
  if (b->json != NULL)
    fprintf(b->json,
            "%s\n    {\"live\": %llu, \"rounds\": %d, \"pool\": {\"median\": %.2f, \"low\": %.2f, \"high\": %.2f, "
            "\"best\": %.2f}, \"mimalloc\": {\"median\": %.2f, \"low\": %.2f, \"high\": %.2f, \"best\": %.2f}, "
            "\"ratio\": %.3f}",
            first ? "" : ",", live, set->rounds, a.median, a.low, a.high, a.best, m.median, m.low, m.high, m.best,
            m.median > 0 ? a.median / m.median : 0.0);
  empty(b, live);
}

static void run_lifo(bench *b, const settings *set) {
  double ns[MOST_ROUNDS];
  spread s;

  fill(b, 10000);
  for (int i = 0; i < set->rounds; i++) ns[i] = measure(b, pairs_lifo, 0, set->pairs);
  s = spread_of(ns, set->rounds);
  printf("lifo pair: %.1f ns (quartiles %.1f to %.1f, best %.1f)\n", s.median, s.low, s.high, s.best);
  if (b->json != NULL)
    fprintf(b->json, "\n  \"lifo\": {\"median\": %.2f, \"low\": %.2f, \"high\": %.2f, \"best\": %.2f},", s.median,
            s.low, s.high, s.best);
  empty(b, 10000);
}

/* ---- several threads ---- */

typedef struct worker {
  bench *b;
  pthread_t thread;
  u64 random, live, done;
  double *samples; /* ns of a pair, when latency is measured */
  u64 sample_count;
  u64 *blocks;
} worker;

static atomic_int go; /* 0: wait, 1: run, 2: stop */

static void *work(void *data) {
  worker *w = data;
  vmm_pool *pool = w->b->pool;
  u64 done = 0;

  while (atomic_load_explicit(&go, memory_order_acquire) == 0) sched_yield();
  while (atomic_load_explicit(&go, memory_order_relaxed) == 1) {
    double start = w->samples != NULL ? clock_ns(CLOCK_MONOTONIC) : 0;
    u64 r = next_random(&w->random);
    u64 *victim = &w->blocks[((r >> 32) * w->live) >> 32];

    give(pool, *victim);
    *victim = take(pool, w->b->sizes[r & (SIZES - 1)]);
    if (w->samples != NULL) {
      double took = clock_ns(CLOCK_MONOTONIC) - start;
      u64 at = w->sample_count++;

      /* Each pair has the same chance to be kept. */
      if (at >= MOST_SAMPLES) at = next_random(&w->random) % w->sample_count;
      if (at < MOST_SAMPLES) w->samples[at] = took;
    }
    done++;
  }
  w->done = done;
  return NULL;
}

/* Pairs per second of `count` threads in all. With `samples`: the times of single pairs, of all threads. */
static double run_threads(bench *b, int count, double ms, double *samples, u64 *sample_count) {
  static worker workers[MOST_THREADS];
  struct timespec nap = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000};
  double start, took;
  u64 done = 0;

  atomic_store(&go, 0);
  for (int i = 0; i < count; i++) {
    worker *w = &workers[i];

    *w = (worker){.b = b, .random = next_random(&b->random), .live = 10000 / (u64)count};
    w->blocks = &b->live[(u64)i * w->live];
    if (samples != NULL) w->samples = need_memory(MOST_SAMPLES, sizeof *w->samples);
    if (pthread_create(&w->thread, NULL, work, w) != 0) exit(1);
  }
  start = clock_ns(CLOCK_MONOTONIC);
  atomic_store(&go, 1);
  nanosleep(&nap, NULL);
  atomic_store(&go, 2);
  for (int i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    done += workers[i].done;
  }
  took = clock_ns(CLOCK_MONOTONIC) - start;
  for (int i = 0; i < count && samples != NULL; i++) {
    u64 kept = workers[i].sample_count < MOST_SAMPLES ? workers[i].sample_count : MOST_SAMPLES;

    memcpy(samples + *sample_count, workers[i].samples, kept * sizeof *samples);
    *sample_count += kept;
    free(workers[i].samples);
  }
  return (double)done / took * 1e9;
}

static void run_scaling(bench *b, const settings *set) {
  enum { REPEATS = 5 };
  double *samples = need_memory((size_t)MOST_THREADS * MOST_SAMPLES, sizeof *samples);
  double rate[8][REPEATS], one = 0;

  fill(b, 10000);
  for (int i = 0; i < REPEATS; i++)
    for (int k = 0; 1 << k <= set->threads; k++) rate[k][i] = run_threads(b, 1 << k, 100, NULL, NULL);
  if (b->json != NULL) fprintf(b->json, "\n  \"threads\": [");
  for (int k = 0; 1 << k <= set->threads; k++) {
    spread s = spread_of(rate[k], REPEATS);
    u64 count = 0;

    (void)run_threads(b, 1 << k, 200, samples, &count);
    qsort(samples, count, sizeof *samples, by_value);
    if (k == 0) one = s.median;
    printf(
        "threads=%d: %.2f M pairs/s in all (%.2f to %.2f), %.2f of one thread's; a pair takes %.0f ns at the "
        "median, %.0f ns at 99 %%, %.0f ns at 99.9 %%\n",
        1 << k, s.median / 1e6, s.low / 1e6, s.high / 1e6, s.median / one, samples[count / 2],
        samples[count / 100 * 99], samples[count / 1000 * 999]);
    if (b->json != NULL)
      fprintf(
          b->json,
          "%s\n    {\"threads\": %d, \"rate\": %.0f, \"of_one\": %.3f, \"p50\": %.0f, \"p99\": %.0f, \"p99.9\": %.0f}",
          k == 0 ? "" : ",", 1 << k, s.median, s.median / one, samples[count / 2], samples[count / 100 * 99],
          samples[count / 1000 * 999]);
  }
  if (b->json != NULL) fprintf(b->json, "\n  ],");
  free(samples);
  empty(b, 10000);
}

/* ---- all of it ---- */

static void open_device(bench *b) {
  vmm_sim_options sim;
  vmm_device_options options;
  vmm_error error;

  need(vmm_sim_options_init(&sim, sizeof sim), &error);
  sim.memory = 1ull << 40;
  need(vmm_sim_create(&b->sim, &sim, &error), &error);
  need(vmm_device_options_init(&options, sizeof options), &error);
  options.driver = b->sim;
  need(vmm_device_open(&b->device, 0, &options, &error), &error);
}

static void find_mimalloc(bench *b) {
  void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);

  if (library == NULL) library = dlopen("libmimalloc.so", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
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

static const char *read_settings(settings *set, int argc, char **argv) {
  const char *json = NULL;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);

  *set = (settings){100000, 0, 21, cores >= 16 ? 16 : cores > 1 ? (int)cores * 2 : 2};
  for (int i = 1; i + 1 < argc; i += 2) {
    u64 value = strtoull(argv[i + 1], NULL, 10);

    if (strcmp(argv[i], "--json") == 0) json = argv[i + 1];
    else if (strcmp(argv[i], "--rounds") == 0 && value >= 1 && value <= MOST_ROUNDS) set->rounds = (int)value;
    else if (strcmp(argv[i], "--pairs") == 0 && value >= 100) set->pairs = value;
    else if (strcmp(argv[i], "--live") == 0 && value >= 1 && value <= 1000000) set->live = value;
    else if (strcmp(argv[i], "--threads") == 0 && value <= MOST_THREADS) set->threads = (int)value;
    else {
      fprintf(stderr, "%s %s: not understood\n", argv[i], argv[i + 1]);
      exit(2);
    }
  }
  return json;
}

int main(int argc, char **argv) {
  static bench b = {.random = 88172645463325252ull};
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  char lines[8][128];
  int count = 0;
  pthread_t thread;
  settings set;
  const char *json = read_settings(&set, argc, argv);

  if (json != NULL && (b.json = fopen(json, "w")) == NULL) {
    perror(json);
    return 1;
  }
  pthread_mutex_lock(&gate);
  if (pthread_create(&thread, NULL, bystander, &gate) != 0) return 1;
  b.live = need_memory(1000000, sizeof *b.live);
  b.small = need_memory(1000000, sizeof *b.small);
  make_sizes(&b);
  open_device(&b);
  find_mimalloc(&b);
  if (b.json != NULL) fprintf(b.json, "{\n  \"version\": \"%s\",", vmm_version_string());
  if (set.live == 0) {
    if (set.threads > 0) run_scaling(&b, &set);
    run_lifo(&b, &set);
  }
  if (b.json != NULL) fprintf(b.json, "\n  \"pairs\": [");
  for (u64 live = 100; live <= 1000000; live *= live == 100 ? 100 : 10) {
    if (set.live != 0) live = set.live;
    run_pairs(&b, &set, live, lines[count], sizeof lines[count], count == 0);
    count++;
    if (set.live != 0) break;
  }
  if (b.json != NULL) fprintf(b.json, "\n  ]\n}\n");
  if (b.json != NULL && fclose(b.json) != 0) return 1;
  for (int i = 0; i < count; i++) puts(lines[i]);
  pthread_mutex_unlock(&gate);
  pthread_join(thread, NULL);
  return 0;
}
