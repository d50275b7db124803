/* What the parts of bench_pair share: a pool on the simulated device with live blocks of lognormal sizes. */
#ifndef VMM_BENCH_PAIR_H
#define VMM_BENCH_PAIR_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "harness.h"
#include "vmm/driver.h"

enum { PAIR_SIZES = 1 << 14, PAIR_MOST = 1000000, PAIR_MOST_THREADS = 64 };

typedef struct bench_pool {
  vmm_driver *sim;
  vmm_device *device;
  vmm_pool *pool;
  void *(*mi_malloc)(size_t);
  void (*mi_free)(void *);
  u64 count, pairs; /* live blocks; pairs in one measurement */
  u64 *live;        /* addresses in the pool */
  void **small;     /* blocks of mimalloc */
  uint32_t sizes[PAIR_SIZES];
  uint32_t small_sizes[PAIR_SIZES];
  u64 random;
} bench_pool;

void pair_open(bench_pool *b, u64 pairs);
void pair_close(bench_pool *b);

/* A new pool with so many live blocks, and as many of mimalloc if it is there. */
void pair_fill(bench_pool *b, u64 live);
void pair_empty(bench_pool *b);

/* The total rate of 1, 2, 4, ... threads on one pool, and what single pairs take. */
void pair_threads(bench_report *report, bench_pool *b, int most, u64 pairs);

static inline u64 pool_take(vmm_pool *pool, u64 size) {
  vmm_error error;
  u64 address;

  if (vmm_pool_alloc(pool, size, &address, NULL) == VMM_OK) return address;
  bench_need(vmm_pool_alloc(pool, size, &address, &error), &error);
  return address;
}

static inline void pool_give(vmm_pool *pool, u64 address) {
  if (vmm_pool_free(pool, address, NULL) != VMM_OK) abort();
}

#endif
