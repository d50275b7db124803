/* bench_cuda: what giving back costs the caller while the memory's last work is still queued. */
#include "machine.h"

enum { MOST_PIECES = 256 };

typedef struct trimming {
  bench_machine *machine;
  vmm_pool *pool;
  u64 size, piece, queue_ns;
  raw_memory raw;
} trimming;

/* Blocks are taken, work is queued, the blocks are freed behind it: idle to the caller, not yet to the GPU. */
static void prepare(trimming *t) {
  u64 blocks[MOST_PIECES];
  size_t count = 0;
  vmm_error error;

  for (u64 size = 0; size < t->size; size += t->piece)
    bench_need(vmm_pool_alloc(t->pool, t->piece, &blocks[count++], &error), &error);
  if (t->queue_ns != 0) machine_spin(t->machine, t->queue_ns);
  for (size_t i = 0; i < count; i++) bench_need(vmm_pool_free(t->pool, blocks[i], &error), &error);
}

/* 0: without waiting. 1: what ends that, once the work is done. 2: waiting for the work. */
static const char *trim_pool(void *world, int number, bench_series *found) {
  trimming *t = world;
  vmm_error error;
  vmm_status status;
  double start;

  prepare(t);
  start = bench_now();
  if (number == 2) status = vmm_pool_trim(t->pool, 0, 0, NULL, &error);
  else status = vmm_pool_trim_async(t->pool, 0, NULL, NULL, &error);
  if (number == 1) {
    machine_drain(t->machine);
    start = bench_now();
    status = vmm_pool_poll(t->pool, NULL, NULL, &error);
  }
  bench_add(found, (bench_now() - start) / 1e3);
  bench_need(status, &error);
  machine_empty(t->machine, t->machine->device, t->pool);
  return NULL;
}

static const char *trim_raw(void *world, int number, bench_series *found) {
  trimming *t = world;
  double start;

  (void)number;
  bench_need_code(raw_map(&t->raw), "create, map or set-access");
  if (t->queue_ns != 0) machine_spin(t->machine, t->queue_ns);
  start = bench_now();
  raw_unmap(&t->raw);
  bench_add(found, (bench_now() - start) / 1e3);
  machine_drain(t->machine);
  return NULL;
}

static const char *trim_plain(void *world, int number, bench_series *found) {
  trimming *t = world;
  void *pointer = NULL;
  double start;

  (void)number;
  bench_need_code(t->machine->cuda.plain_alloc(&pointer, (size_t)t->size), "cudaMalloc");
  if (t->queue_ns != 0) machine_spin(t->machine, t->queue_ns);
  start = bench_now();
  bench_need_code(t->machine->cuda.plain_free(pointer), "cudaFree");
  bench_add(found, (bench_now() - start) / 1e3);
  machine_drain(t->machine);
  return NULL;
}

void bench_trim(bench_machine *machine) {
  const bench_arm arms[] = {{"libvmm", trim_pool, 0},
                            {"raw calls", trim_raw, 0},
                            {"cudaFree", trim_plain, 0},
                            {"libvmm, the poll that ends it", trim_pool, 1},
                            {"libvmm, waiting", trim_pool, 2}};
  trimming t = {.machine = machine, .size = machine_size(machine, 8 * GIB), .piece = machine_size(machine, 128 * MIB)};
  static u64 shape[MACHINE_MOST_MAPPINGS];
  char text[64], size[32];

  t.pool = machine_anchored_pool(machine, machine->device, machine->stream);
  prepare(&t);
  raw_open(&t.raw, machine, shape, machine_shape(t.pool, shape));
  machine_empty(machine, machine->device, t.pool);
  for (int i = 0; i < 3; i++) {
    int ms = i == 0 ? 0 : i == 1 ? 10 : 100;

    t.queue_ns = (u64)ms * 1000000;
    snprintf(text, sizeof text, "%s, %d ms queued", bench_size(size, t.size), ms);
    bench_rounds(&machine->report, "trim under load", text, "us", arms, 5, machine_rounds(machine, 15), &t, NULL);
  }
  raw_close(&t.raw);
  machine_end_pool(t.pool);
}
