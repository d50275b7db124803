/* bench_pair: the pool on the simulated device, its sizes and its live blocks. */
#include <math.h>

#include "pair.h"

static void make_sizes(bench_pool *b) {
  for (unsigned i = 0; i < PAIR_SIZES; i++) {
    double u = ((double)(bench_random(&b->random) >> 11) + 1) / 9007199254740993.0;
    double v = (double)(bench_random(&b->random) >> 11) / 9007199254740992.0;
    double size = 60e3 * exp(1.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));

    b->small_sizes[i] = 16 + (uint32_t)(bench_random(&b->random) % 497);
    b->sizes[i] = size < 256 ? 256 : size > 4194304 ? 4194304 : (uint32_t)size;
  }
}

void pair_open(bench_pool *b, u64 pairs) {
  vmm_sim_options sim;
  vmm_device_options options;
  vmm_error error;

  b->random = 88172645463325252ull;
  b->pairs = pairs;
  b->live = bench_memory(PAIR_MOST, sizeof *b->live);
  b->small = bench_memory(PAIR_MOST, sizeof *b->small);
  make_sizes(b);
  bench_need(vmm_sim_options_init(&sim, sizeof sim), &error);
  sim.memory = 1ull << 40;
  bench_need(vmm_sim_create(&b->sim, &sim, &error), &error);
  bench_need(vmm_device_options_init(&options, sizeof options), &error);
  options.driver = b->sim;
  bench_need(vmm_device_open(&b->device, 0, &options, &error), &error);
}

void pair_close(bench_pool *b) {
  vmm_error error;

  bench_need(vmm_device_close(b->device, &error), &error);
  vmm_driver_release(b->sim);
  free(b->live);
  free(b->small);
}

void pair_fill(bench_pool *b, u64 live) {
  vmm_pool_options options;
  vmm_error error;
  u64 mean = 0;

  for (unsigned i = 0; i < PAIR_SIZES; i++) mean += b->sizes[i];
  mean /= PAIR_SIZES;
  bench_need(vmm_pool_options_init(&options, sizeof options), &error);
  options.reservation = 1ull << 40;
  bench_need(vmm_pool_create(&b->pool, b->device, &options, &error), &error);
  bench_need(vmm_pool_grow(b->pool, live * mean * 5 / 4 + (256 << 20), NULL, &error), &error);
  b->count = live;
  for (u64 i = 0; i < live; i++) {
    b->live[i] = pool_take(b->pool, b->sizes[bench_random(&b->random) & (PAIR_SIZES - 1)]);
    if (b->mi_malloc != NULL) b->small[i] = b->mi_malloc(b->small_sizes[i & (PAIR_SIZES - 1)]);
  }
}

void pair_empty(bench_pool *b) {
  vmm_error error;

  for (u64 i = 0; i < b->count && b->mi_malloc != NULL; i++) b->mi_free(b->small[i]);
  bench_need(vmm_pool_destroy(b->pool, VMM_DESTROY_FORCED, &error), &error);
}
