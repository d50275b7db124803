/* bench_pair: the total rate of several threads on one pool, each with live blocks of its own, and how long single pairs
 * take the while; also where threads do other work in between. */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "pair.h"

enum { MOST_SAMPLES = 1 << 16, LIVE = 10000, PACE_NS = 2000 };

typedef struct worker {
  bench_pool *b;
  pthread_t thread;
  u64 random, live, done;
  double pace;     /* ns of other work between two pairs */
  double *samples; /* ns of a pair, when latency is measured */
  u64 sample_count;
  u64 *blocks;
} worker;

typedef struct threads {
  bench_pool *b;
  double ms;
} threads;

static atomic_int go; /* 0: wait, 1: run, 2: stop */

static inline void pair(worker *w) {
  u64 r = bench_random(&w->random);
  u64 *victim = &w->blocks[((r >> 32) * w->live) >> 32];

  pool_give(w->b->pool, *victim);
  *victim = pool_take(w->b->pool, w->b->sizes[r & (PAIR_SIZES - 1)]);
}

static void *work(void *data) {
  worker *w = data;
  u64 done = 0;

  while (atomic_load_explicit(&go, memory_order_acquire) == 0) sched_yield();
  while (atomic_load_explicit(&go, memory_order_relaxed) == 1) {
    double start = w->samples != NULL ? bench_now() : 0;

    pair(w);
    done++;
    if (w->samples != NULL) {
      double took = bench_now() - start;
      u64 at = w->sample_count++;

      /* Each pair has the same chance to be kept. */
      if (at >= MOST_SAMPLES) at = bench_random(&w->random) % w->sample_count;
      if (at < MOST_SAMPLES) w->samples[at] = took;
      for (start = bench_now(); bench_now() - start < w->pace;) continue;
    }
  }
  w->done = done;
  return NULL;
}

/* Runs the threads for a while: pairs per second of all. With `samples`: the times of single pairs too, `pace` apart. */
static double run(threads *t, int count, double pace, bench_series *samples) {
  static worker workers[PAIR_MOST_THREADS];
  struct timespec nap = {(time_t)(t->ms / 1e3), (long)(t->ms * 1e6) % 1000000000};
  double start;
  u64 done = 0;

  atomic_store(&go, 0);
  for (int i = 0; i < count; i++) {
    worker *w = &workers[i];

    *w = (worker){.b = t->b, .pace = pace, .random = bench_random(&t->b->random), .live = LIVE / (u64)count};
    w->blocks = &t->b->live[(u64)i * w->live];
    if (samples != NULL) w->samples = bench_memory(MOST_SAMPLES, sizeof *w->samples);
    if (pthread_create(&w->thread, NULL, work, w) != 0) exit(1);
  }
  start = bench_now();
  atomic_store(&go, 1);
  nanosleep(&nap, NULL);
  atomic_store(&go, 2);
  for (int i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    done += workers[i].done;
  }
  start = bench_now() - start;
  for (int i = 0; i < count && samples != NULL; i++) {
    u64 kept = workers[i].sample_count < MOST_SAMPLES ? workers[i].sample_count : MOST_SAMPLES;

    for (u64 k = 0; k < kept; k++) bench_add(samples, workers[i].samples[k]);
    free(workers[i].samples);
  }
  return (double)done / start * 1e9;
}

static const char *run_rate(void *world, int number, bench_series *found) {
  bench_add(found, run(world, number, 0, NULL) / 1e6);
  return NULL;
}

void pair_threads(bench_report *report, bench_pool *b, int most, u64 pairs) {
  static const bench_arm arms[] = {{"1 thread", run_rate, 1},    {"2 threads", run_rate, 2},
                                   {"4 threads", run_rate, 4},   {"8 threads", run_rate, 8},
                                   {"16 threads", run_rate, 16}, {"32 threads", run_rate, 32},
                                   {"64 threads", run_rate, 64}};
  threads t = {b, pairs < 10000 ? 5 : 100};
  size_t count = 0;

  while (count < sizeof arms / sizeof *arms && arms[count].number <= most) count++;
  pair_fill(b, LIVE);
  bench_rounds(report, "CPU threads", "rate of all", "M pairs/s", arms, count, 11, &t, NULL);
  for (int busy = 1; busy >= 0; busy--)
    for (size_t i = 0; i < count; i++) {
      bench_series samples = {NULL, 0, 0}, rate = {NULL, 0, 0};

      bench_add(&rate, run(&t, arms[i].number, busy ? 0 : PACE_NS, &samples) / 1e6);
      if (!busy)
        bench_result(report, "CPU threads", "rate of all, a pair each 2 us", arms[i].name, "M pairs/s", &rate, NULL);
      bench_clear(&rate);
      bench_result(report, "CPU pair among threads", busy ? "one pair behind the other" : "a pair each 2 us",
                   arms[i].name, "ns", &samples, NULL);
      bench_clear(&samples);
    }
  pair_empty(b);
}
