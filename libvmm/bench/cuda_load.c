/* bench_cuda: what growing costs the caller while work is queued, under each sync policy. */
#include "machine.h"

enum { PIECES = 8 };

typedef struct load {
  bench_machine *machine;
  vmm_device *devices[3];
  vmm_pool *pools[3];
  u64 queue_ns, size;
  raw_memory raw; /* the pieces one behind the other, as the pool's */
  size_t shape;   /* handles of one */
} load;

static const int POLICIES[3] = {VMM_SYNC_ON_DEMAND, VMM_SYNC_STREAMS, VMM_SYNC_DEVICE};

/* A policy that waits finds the queue empty after its first growth, so only that one counts. */
static const char *run_pool(void *world, int number, bench_series *found) {
  load *l = world;
  int pieces = POLICIES[number] == VMM_SYNC_ON_DEMAND ? PIECES : 1;
  vmm_error error;

  machine_spin(l->machine, l->queue_ns);
  for (int i = 0; i < pieces; i++) {
    double start = bench_now();
    vmm_status status = vmm_pool_grow(l->pools[number], l->size, NULL, &error);

    bench_add(found, (bench_now() - start) / 1e3);
    bench_need(status, &error);
  }
  machine_empty(l->machine, l->devices[number], l->pools[number]);
  return NULL;
}

static const char *run_raw(void *world, int number, bench_series *found) {
  load *l = world;

  (void)number;
  machine_spin(l->machine, l->queue_ns);
  for (int i = 0; i < PIECES; i++) {
    double start = bench_now();
    int code = raw_map_part(&l->raw, (size_t)i * l->shape, l->shape);

    bench_add(found, (bench_now() - start) / 1e3);
    bench_need_code(code, "create, map or set-access");
  }
  machine_drain(l->machine);
  raw_unmap(&l->raw);
  return NULL;
}

static const char *run_plain(void *world, int number, bench_series *found) {
  load *l = world;
  void *pointer[PIECES];

  (void)number;
  machine_spin(l->machine, l->queue_ns);
  for (int i = 0; i < PIECES; i++) {
    double start = bench_now();
    int code = l->machine->cuda.plain_alloc(&pointer[i], (size_t)l->size);

    bench_add(found, (bench_now() - start) / 1e3);
    bench_need_code(code, "cudaMalloc");
  }
  machine_drain(l->machine);
  for (int i = 0; i < PIECES; i++) bench_need_code(l->machine->cuda.plain_free(pointer[i]), "cudaFree");
  return NULL;
}

void bench_load(bench_machine *machine) {
  const bench_arm arms[] = {{"libvmm, on_demand", run_pool, 0},
                            {"raw calls", run_raw, 0},
                            {machine->cuda.plain_name, run_plain, 0},
                            {"libvmm, streams", run_pool, 1},
                            {"libvmm, device", run_pool, 2}};
  load l = {.machine = machine, .size = machine_size(machine, 256 * MIB)};
  static u64 shape[MACHINE_MOST_MAPPINGS];
  vmm_error error;
  char text[64], size[32];
  size_t count;

  for (int i = 0; i < 3; i++) {
    l.devices[i] = machine_device(machine, POLICIES[i]);
    l.pools[i] = machine_anchored_pool(machine, l.devices[i], machine->stream);
  }
  for (int i = 0; i < PIECES; i++) bench_need(vmm_pool_grow(l.pools[0], l.size, NULL, &error), &error);
  count = machine_shape(l.pools[0], shape);
  l.shape = count / PIECES;
  machine_empty(machine, l.devices[0], l.pools[0]);
  raw_open(&l.raw, machine, shape, count);
  for (int i = 0; i < 2; i++) {
    l.queue_ns = i ? 100000000 : 10000000;
    snprintf(text, sizeof text, "%s, %d ms queued", bench_size(size, l.size), i ? 100 : 10);
    bench_rounds(&machine->report, "growth under load", text, "us", arms, 5, machine_rounds(machine, i ? 20 : 60), &l,
                 NULL);
  }
  raw_close(&l.raw);
  for (int i = 0; i < 3; i++) {
    machine_end_pool(l.pools[i]);
    bench_need(vmm_device_forget_stream(l.devices[i], machine->stream, &error), &error);
    bench_need(vmm_device_close(l.devices[i], &error), &error);
  }
}
