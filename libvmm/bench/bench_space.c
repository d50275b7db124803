/* Cost of an alloc+free pair in the index alone, by address and under a mutex: lognormal sizes (median 60 KB, 256 B to
 * 4 MB), a random victim, at 10^2 to 10^6 live blocks. The space grows by 128 MiB when nothing fits, as a pool would, so
 * the last column is what placement wastes. Arguments: pairs per run, runs. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "index/space.h"

#define UNIT 256ull
#define STEP (128ull << 20)
#define SIZES (1u << 14) /* small enough to leave the cache to the index */

typedef struct bench {
  pthread_mutex_t mutex;
  vmm__space space;
  vmm__u64 end;
  vmm__u64 random;
  vmm__u64 *live;
  uint32_t *sizes;
} bench;

static vmm__u64 next_random(bench *b) {
  b->random ^= b->random << 13;
  b->random ^= b->random >> 7;
  b->random ^= b->random << 17;
  return b->random;
}

static double now_ns(void) {
  struct timespec t;

  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void make_sizes(bench *b) {
  for (unsigned i = 0; i < SIZES; i++) {
    double u = ((double)(next_random(b) >> 11) + 1) / 9007199254740993.0;
    double v = (double)(next_random(b) >> 11) / 9007199254740992.0;
    double size = 60e3 * exp(1.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));

    b->sizes[i] = size < 256 ? 256 : size > 4194304 ? 4194304 : (uint32_t)size;
  }
}

/* What a pool does when it is not ready. */
static void reserve(bench *b, vmm__u64 operations) {
  vmm__u64 hint;

  while ((hint = vmm__space_short(&b->space, operations, 0)) != 0) {
    vmm__space_spare *spare = vmm__space_spare_make(&vmm__memory_default, hint);

    if (spare == NULL) exit(1);
    vmm__space_spare_adopt(&b->space, spare);
    vmm__space_spare_release(&vmm__memory_default, spare);
  }
}

static inline vmm__u64 take(bench *b, vmm__u64 requested) {
  vmm__u64 size = (requested + UNIT - 1) & ~(UNIT - 1), address;

  pthread_mutex_lock(&b->mutex);
  if (!vmm__space_ready(&b->space)) reserve(b, 1);
  while ((address = vmm__space_alloc(&b->space, VMM__ARENA_IDLE, size, UNIT, requested, 0)) == 0) {
    vmm__space_add(&b->space, VMM__ARENA_IDLE, b->end, STEP);
    b->end += STEP;
  }
  pthread_mutex_unlock(&b->mutex);
  return address;
}

static inline void give(bench *b, vmm__u64 address) {
  pthread_mutex_lock(&b->mutex);
  if (!vmm__space_free(&b->space, address, VMM__ARENA_IDLE, NULL)) exit(2);
  pthread_mutex_unlock(&b->mutex);
}

static double pairs(bench *b, vmm__u64 live, vmm__u64 count) {
  double start = now_ns();

  for (vmm__u64 i = 0; i < count; i++) {
    vmm__u64 r = next_random(b);
    vmm__u64 *victim = &b->live[((r >> 32) * live) >> 32];

    give(b, *victim);
    *victim = take(b, b->sizes[r & (SIZES - 1)]);
  }
  return (now_ns() - start) / (double)count;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;

  return (x > y) - (x < y);
}

static void run(bench *b, vmm__u64 live, vmm__u64 count, int runs) {
  double ns[64];
  const char *what = "";

  vmm__space_init(&b->space, &vmm__memory_default, 1ull << 40);
  b->end = 1ull << 40;
  reserve(b, 1);
  for (vmm__u64 i = 0; i < live; i++) b->live[i] = take(b, b->sizes[next_random(b) & (SIZES - 1)]);
  (void)pairs(b, live, live * 2); /* to the steady state */
  for (int i = 0; i < runs; i++) ns[i] = pairs(b, live, count);
  qsort(ns, (size_t)runs, sizeof *ns, by_value);
  printf("pair live=%llu: %.1f ns (best %.1f, of %d runs), committed/live %.3f%s\n", live, ns[runs / 2], ns[0], runs,
         (double)b->space.total_bytes / (double)b->space.block_bytes,
         vmm__space_check(&b->space, &what) ? "" : " BROKEN");
  vmm__space_destroy(&b->space);
}

/* One size, last in first out. */
static void run_lifo(bench *b, vmm__u64 count) {
  double start;

  vmm__space_init(&b->space, &vmm__memory_default, 1ull << 40);
  b->end = 1ull << 40;
  reserve(b, 1);
  start = now_ns();
  for (vmm__u64 i = 0; i < count; i++) give(b, take(b, 65536));
  printf("pair lifo: %.1f ns\n", (now_ns() - start) / (double)count);
  vmm__space_destroy(&b->space);
}

/* Does nothing, but while it is there the C library takes its locks with atomic operations. */
static void *bystander(void *mutex) {
  pthread_mutex_lock(mutex);
  pthread_mutex_unlock(mutex);
  return NULL;
}

int main(int argc, char **argv) {
  static bench b = {.mutex = PTHREAD_MUTEX_INITIALIZER, .random = 88172645463325252ull};
  vmm__u64 count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
  int runs = argc > 2 ? atoi(argv[2]) : 5;
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_t thread;

  if (runs < 1 || runs > 64) return 1;
  pthread_mutex_lock(&gate);
  if (pthread_create(&thread, NULL, bystander, &gate) != 0) return 1;
  b.live = calloc(1000000, sizeof *b.live);
  b.sizes = calloc(SIZES, sizeof *b.sizes);
  if (b.live == NULL || b.sizes == NULL) return 1;
  make_sizes(&b);
  for (vmm__u64 live = 100; live <= 1000000; live *= live == 100 ? 100 : 10) run(&b, live, count, runs);
  run_lifo(&b, count);
  pthread_mutex_unlock(&gate);
  pthread_join(thread, NULL);
  free(b.live);
  free(b.sizes);
  return 0;
}
