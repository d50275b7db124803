/* bench_cuda: growth by 2 MiB to 8 GiB against raw calls of the same shape, of the best shape, cudaMalloc, 2 MiB granules;
 * and a vector that grows from 64 MiB to 8 GiB in place, against allocating anew and copying. */
#include "machine.h"

/* ---- growth ---- */

/* What is measured is done once before it counts: else it would be measured how much of it the arm before has displaced
 * from the caches. What that costs is a case of its own. */
typedef struct growth {
  bench_machine *machine;
  vmm_pool *pool;
  u64 size;
  bool cold;         /* behind other calls, and not done before */
  raw_memory raw[3]; /* the same shape, the best one, the smallest handles */
} growth;

enum { SAME_SHAPE, ONE_HANDLE, GRANULES };

static double time_pool(growth *g) {
  vmm_error error;
  double start = bench_now(), taken;
  vmm_status status = vmm_pool_grow(g->pool, g->size, NULL, &error);

  taken = bench_now() - start;
  bench_need(status, &error);
  machine_empty(g->machine, g->machine->device, g->pool);
  return taken;
}

static double time_raw(raw_memory *raw) {
  double start = bench_now(), taken;
  int code = raw_map(raw);

  taken = bench_now() - start;
  bench_need_code(code, "create, map or set-access");
  raw_unmap(raw);
  return taken;
}

static double time_plain(growth *g) {
  void *pointer = NULL;
  double start = bench_now(), taken;
  int code = g->machine->cuda.plain_alloc(&pointer, (size_t)g->size);

  taken = bench_now() - start;
  bench_need_code(code, "cudaMalloc");
  bench_need_code(g->machine->cuda.plain_free(pointer), "cudaFree");
  return taken;
}

static void disturb(growth *g) { (void)time_raw(&g->raw[GRANULES]); }

static const char *run_pool(void *world, int number, bench_series *found) {
  growth *g = world;

  (void)number;
  if (g->cold) disturb(g);
  else (void)time_pool(g);
  bench_add(found, time_pool(g) / 1e3);
  return NULL;
}

static const char *run_raw(void *world, int number, bench_series *found) {
  growth *g = world;

  if (g->cold) disturb(g);
  else if (number != GRANULES) (void)time_raw(&g->raw[number]);
  bench_add(found, time_raw(&g->raw[number]) / 1e3);
  return NULL;
}

static const char *run_plain(void *world, int number, bench_series *found) {
  growth *g = world;

  (void)number;
  (void)time_plain(g);
  bench_add(found, time_plain(g) / 1e3);
  return NULL;
}

/* The mappings that the pool makes for this size. */
static size_t shape_of(growth *g, u64 sizes[MACHINE_MOST_MAPPINGS]) {
  vmm_error error;
  size_t count;

  bench_need(vmm_pool_grow(g->pool, g->size, NULL, &error), &error);
  count = machine_shape(g->pool, sizes);
  machine_empty(g->machine, g->machine->device, g->pool);
  return count;
}

/* Below 1 GiB handles of 2 MiB are apart, and in fewer rounds: their thousands of calls would disturb the others. From there
 * on they are among them, for while they go on the driver clears what the others released, or these would wait for that. */
static void measure(growth *g, const char *size, int rounds) {
  bench_machine *machine = g->machine;
  const bench_arm arms[] = {{"libvmm", run_pool, 0},
                            {"raw calls, same shape", run_raw, SAME_SHAPE},
                            {"raw calls, one handle", run_raw, ONE_HANDLE},
                            {machine->cuda.plain_name, run_plain, 0},
                            {"raw calls, 2 MiB handles", run_raw, GRANULES}};
  bool together = g->size >= GIB;

  rounds = machine_rounds(machine, rounds);
  bench_rounds(&machine->report, "growth", size, "us", arms, together ? 5 : 4, rounds, g, NULL);
  if (!together) bench_rounds(&machine->report, "growth", size, "us", &arms[4], 1, rounds / 4 + 1, g, NULL);
  if (g->size != 128 * MIB && !machine->simulated) return;
  g->cold = true;
  bench_rounds(&machine->report, "growth behind other calls", size, "us", arms, 2, rounds / 2 + 1, g, NULL);
  g->cold = false;
}

void bench_growth(bench_machine *machine) {
  static const u64 sizes[] = {2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB, GIB, 2 * GIB, 4 * GIB, 8 * GIB};
  static u64 shape[MACHINE_MOST_MAPPINGS];
  growth g = {.machine = machine, .pool = machine_anchored_pool(machine, machine->device, machine->stream)};
  char text[32];

  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    u64 size = sizes[i];
    size_t count;

    if (machine->simulated && size > 64 * MIB) break;
    g.size = size;
    count = shape_of(&g, shape);
    raw_open(&g.raw[SAME_SHAPE], machine, shape, count);
    raw_open(&g.raw[ONE_HANDLE], machine, &size, 1);
    raw_open_even(&g.raw[GRANULES], machine, machine->granularity, (size_t)(size / machine->granularity));
    measure(&g, bench_size(text, size), size < GIB ? 201 : 31);
    for (int k = 0; k < 3; k++) raw_close(&g.raw[k]);
  }
  machine_end_pool(g.pool);
}

/* ---- the vector ---- */

typedef struct vector {
  bench_machine *machine;
  u64 first, last;
} vector;

static void settle(bench_machine *machine) {
  bench_need_code(vmm_raw_stream_synchronize(machine->driver, machine->stream), "cuStreamSynchronize");
}

/* In place: what is missing is taken behind what is there. */
static const char *vector_pool(void *world, int number, bench_series *found) {
  vector *v = world;
  vmm_pool *pool = machine_pool(v->machine->device, v->machine->stream);
  u64 address, end = 0, more = v->first;
  bool moved = false;
  vmm_error error;
  double start;

  (void)number;
  start = bench_now();
  for (u64 size = v->first; size <= v->last; size += more) {
    bench_need(vmm_pool_alloc(pool, more, &address, &error), &error);
    moved = moved || (end != 0 && address != end);
    end = address + more;
    more = size;
  }
  settle(v->machine);
  bench_add(found, (bench_now() - start) / 1e3);
  machine_end_pool(pool);
  return moved ? "it did not grow in place" : NULL;
}

/* Anew, with a copy: number 1 by the stream-ordered allocator, 0 by the plain one. */
static const char *vector_copied(void *world, int number, bench_series *found) {
  vector *v = world;
  bool ordered = number != 0;
  const bench_allocators *cuda = &v->machine->cuda;
  void *old = NULL, *now = NULL, *stream = v->machine->stream;
  double start;

  if (ordered && cuda->ordered_alloc == NULL) return "not on the simulated device";
  start = bench_now();
  for (u64 size = v->first; size <= v->last; size *= 2) {
    int code = ordered ? cuda->ordered_alloc(&now, (size_t)size, stream) : cuda->plain_alloc(&now, (size_t)size);

    bench_need_code(code, "allocating");
    if (old != NULL) {
      code =
          vmm_raw_memcpy_dtod_async(v->machine->driver, (u64)(size_t)now, (u64)(size_t)old, (size_t)size / 2, stream);
      bench_need_code(code, "cuMemcpyDtoDAsync");
      if (!ordered) settle(v->machine);
      bench_need_code(ordered ? cuda->ordered_free(old, stream) : cuda->plain_free(old), "freeing");
    }
    old = now;
  }
  settle(v->machine);
  bench_add(found, (bench_now() - start) / 1e3);
  bench_need_code(ordered ? cuda->ordered_free(old, stream) : cuda->plain_free(old), "freeing");
  settle(v->machine);
  return NULL;
}

void bench_vector(bench_machine *machine) {
  vector v = {machine, machine_size(machine, 64 * MIB), machine_size(machine, 8 * GIB)};
  const bench_arm arms[] = {{"libvmm, in place", vector_pool, 0},
                            {"cudaMalloc and copy", vector_copied, 0},
                            {"cudaMallocAsync and copy", vector_copied, 1}};

  bench_rounds(&machine->report, "vector", "64 MiB to 8 GiB, doubled", "us", arms, 3, machine_rounds(machine, 31), &v,
               NULL);
}
