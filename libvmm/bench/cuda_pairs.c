/* bench_cuda: a block taken and given back, last in first out, on memory that is there already. */
#include "machine.h"

typedef struct pairs {
  bench_machine *machine;
  vmm_pool *pool;
  u64 size;
  int many, few; /* pairs in one measurement: of what takes nanoseconds, of what takes microseconds or more */
} pairs;

static const char *run_pool(void *world, int number, bench_series *found) {
  pairs *p = world;
  u64 address = 0;
  double start = bench_now();
  int bad = 0;

  (void)number;
  for (int i = 0; i < p->many; i++) {
    bad |= (int)vmm_pool_alloc(p->pool, p->size, &address, NULL);
    bad |= (int)vmm_pool_free(p->pool, address, NULL);
  }
  bench_add(found, (bench_now() - start) / p->many);
  return bad ? "a call failed" : NULL;
}

static const char *run_ordered(void *world, int number, bench_series *found) {
  pairs *p = world;
  const bench_allocators *cuda = &p->machine->cuda;
  void *pointer = NULL;
  double start = bench_now();
  int bad = 0;

  (void)number;
  if (cuda->ordered_alloc == NULL) return "not on the simulated device";
  for (int i = 0; i < p->many / 10; i++) {
    bad |= cuda->ordered_alloc(&pointer, (size_t)p->size, p->machine->stream);
    bad |= cuda->ordered_free(pointer, p->machine->stream);
  }
  bench_add(found, (bench_now() - start) / (p->many / 10));
  machine_drain(p->machine);
  return bad ? "a call failed" : NULL;
}

static const char *run_plain(void *world, int number, bench_series *found) {
  pairs *p = world;
  const bench_allocators *cuda = &p->machine->cuda;
  void *pointer = NULL;
  double start = bench_now();
  int bad = 0;

  (void)number;
  for (int i = 0; i < p->few; i++) {
    bad |= cuda->plain_alloc(&pointer, (size_t)p->size);
    bad |= cuda->plain_free(pointer);
  }
  bench_add(found, (bench_now() - start) / p->few);
  return bad ? "a call failed" : NULL;
}

void bench_pairs(bench_machine *machine) {
  static const u64 sizes[] = {KIB, 64 * KIB, 2 * MIB, 64 * MIB};
  pairs p = {.machine = machine, .pool = machine_pool(machine->device, machine->stream), .many = 20000, .few = 50};
  const bench_arm arms[] = {
      {"libvmm", run_pool, 0},
      {machine->cuda.ordered_name ? machine->cuda.ordered_name : "cudaMallocAsync", run_ordered, 0},
      {machine->cuda.plain_name, run_plain, 0}};
  vmm_error error;
  char text[32];

  if (machine->simulated) p.many = 100;
  if (machine->simulated) p.few = 5;
  bench_need(vmm_pool_grow(p.pool, 128 * MIB, NULL, &error), &error);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    p.size = sizes[i];
    bench_rounds(&machine->report, "pair", bench_size(text, p.size), "ns", arms, 3, machine_rounds(machine, 31), &p,
                 NULL);
  }
  machine_end_pool(p.pool);
}
