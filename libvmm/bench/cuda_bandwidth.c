/* bench_cuda: how fast kernels read memory of the pool, against memory of cudaMalloc. */
#include "machine.h"

typedef struct reading {
  bench_machine *machine;
  vmm_pool *pool;
  u64 size, sum; /* bytes read, and the device address of the kernel's result */
  u64 pooled;
  void *plain;
} reading;

enum { LAUNCHES = 8 };

static const char *read_all(void *world, int number, bench_series *found) {
  reading *r = world;
  double start;

  machine_drain(r->machine);
  start = bench_now();
  for (int i = 0; i < LAUNCHES; i++) {
    u64 address = number ? (u64)(size_t)r->plain : r->pooled;

    bench_need_code(vmm_raw_kernel_sum(r->machine->driver, r->machine->stream, address, (size_t)r->size, r->sum),
                    "kernel_sum");
  }
  machine_drain(r->machine);
  bench_add(found, (double)r->size * LAUNCHES / (bench_now() - start));
  return NULL;
}

void bench_bandwidth(bench_machine *machine) {
  const bench_arm arms[] = {{"libvmm", read_all, 0}, {machine->cuda.plain_name, read_all, 1}};
  reading r = {.machine = machine, .size = machine->simulated ? MIB : 4 * GIB};
  vmm_error error;
  char text[32];

  r.pool = machine_pool(machine->device, machine->stream);
  /* In pieces, so that many mappings are read; they lie one behind the other. */
  for (u64 size = 0; size < r.size; size += 128 * MIB)
    bench_need(vmm_pool_grow(r.pool, 128 * MIB, NULL, &error), &error);
  bench_need(vmm_pool_alloc(r.pool, r.size, &r.pooled, &error), &error);
  bench_need(vmm_pool_alloc(r.pool, 256, &r.sum, &error), &error);
  bench_need_code(machine->cuda.plain_alloc(&r.plain, (size_t)r.size), "cudaMalloc");
  bench_need_code(vmm_raw_kernel_fill(machine->driver, machine->stream, r.pooled, (size_t)r.size, 1), "kernel_fill");
  bench_need_code(vmm_raw_kernel_fill(machine->driver, machine->stream, (u64)(size_t)r.plain, (size_t)r.size, 1),
                  "kernel_fill");
  bench_rounds(&machine->report, "read bandwidth", bench_size(text, r.size), "GB/s", arms, 2,
               machine_rounds(machine, 31), &r, NULL);
  bench_need_code(machine->cuda.plain_free(r.plain), "cudaFree");
  machine_end_pool(r.pool);
}
