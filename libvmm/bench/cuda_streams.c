/* bench_cuda: blocks ordered on streams: pairs on one stream, batches handed from one stream to another, and the driver
 * calls that either takes, by the recorder. */
#include "machine.h"

enum { BATCH = 64 };

typedef struct streams {
  bench_machine *machine;
  vmm_driver *recorder;
  vmm_device *devices[2]; /* the machine's own, and one over the recorder, which slows it down */
  vmm_pool *pools[2];
  void *streams[2];
  int many;
} streams;

static const char *pairs_pool(void *world, int number, bench_series *found) {
  streams *s = world;
  double start = bench_now();
  u64 address = 0;
  int bad = 0;

  for (int i = 0; i < s->many; i++) {
    bad |= (int)vmm_pool_alloc_async(s->pools[number], 64 * KIB, s->streams[0], &address, NULL);
    bad |= (int)vmm_pool_free_async(s->pools[number], address, s->streams[0], NULL);
  }
  bench_add(found, (bench_now() - start) / s->many);
  return bad ? "a call failed" : NULL;
}

static const char *pairs_cuda(void *world, int number, bench_series *found) {
  streams *s = world;
  const bench_allocators *cuda = &s->machine->cuda;
  double start = bench_now();
  void *pointer = NULL;
  int bad = 0, many = s->many / 10;

  (void)number;
  if (cuda->ordered_alloc == NULL) return "not on the simulated device";
  for (int i = 0; i < many; i++) {
    bad |= cuda->ordered_alloc(&pointer, (size_t)(64 * KIB), s->streams[0]);
    bad |= cuda->ordered_free(pointer, s->streams[0]);
  }
  bench_add(found, (bench_now() - start) / many);
  machine_drain(s->machine);
  return bad ? "a call failed" : NULL;
}

/* What one stream has freed the other takes, to and fro. The pool has no room for both. */
static const char *batches_pool(void *world, int number, bench_series *found) {
  streams *s = world;
  u64 addresses[BATCH];
  int bad = 0, rounds = s->machine->simulated ? 2 : 50;
  double start;

  machine_drain(s->machine);
  start = bench_now();
  for (int round = 0; round < rounds; round++) {
    void *stream = s->streams[round & 1];

    for (int i = 0; i < BATCH; i++)
      bad |= (int)vmm_pool_alloc_async(s->pools[number], MIB, stream, &addresses[i], NULL);
    for (int i = 0; i < BATCH; i++) bad |= (int)vmm_pool_free_async(s->pools[number], addresses[i], stream, NULL);
  }
  bench_add(found, (bench_now() - start) / (rounds * BATCH));
  return bad ? "a call failed" : NULL;
}

static const char *batches_cuda(void *world, int number, bench_series *found) {
  streams *s = world;
  const bench_allocators *cuda = &s->machine->cuda;
  void *pointers[BATCH];
  int bad = 0, rounds = 50;
  double start;

  (void)number;
  if (cuda->ordered_alloc == NULL) return "not on the simulated device";
  machine_drain(s->machine);
  start = bench_now();
  for (int round = 0; round < rounds; round++) {
    void *stream = s->streams[round & 1];

    for (int i = 0; i < BATCH; i++) bad |= cuda->ordered_alloc(&pointers[i], (size_t)MIB, stream);
    for (int i = 0; i < BATCH; i++) bad |= cuda->ordered_free(pointers[i], stream);
  }
  bench_add(found, (bench_now() - start) / (rounds * BATCH));
  machine_drain(s->machine);
  return bad ? "a call failed" : NULL;
}

static u64 fences(vmm_driver *recorder) {
  static const int ops[] = {VMM_OP_event_record, VMM_OP_ctx_record_event, VMM_OP_event_query, VMM_OP_stream_wait_event};
  u64 count = 0;

  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) count += vmm_record_count(recorder, ops[i]);
  return count;
}

/* Counted, not timed. */
static void count_calls(streams *s) {
  bench_series ignored = {NULL, 0, 0}, calls = {NULL, 0, 0};
  u64 before;

  (void)pairs_pool(s, 1, &ignored);
  before = vmm_record_count(s->recorder, VMM_OP_ANY);
  (void)pairs_pool(s, 1, &ignored);
  bench_add(&calls, (double)(vmm_record_count(s->recorder, VMM_OP_ANY) - before));
  bench_result(&s->machine->report, "driver calls", "pairs on one stream, in all", "libvmm", "calls", &calls, NULL);
  bench_clear(&calls);
  (void)batches_pool(s, 1, &ignored);
  for (int i = 0; i < 10; i++) {
    before = fences(s->recorder);
    (void)batches_pool(s, 1, &ignored);
    bench_add(&calls, (double)(fences(s->recorder) - before) / (s->machine->simulated ? 2 : 50));
  }
  bench_result(&s->machine->report, "driver calls", "batch handed over, records, queries and waits", "libvmm", "calls",
               &calls, NULL);
  bench_clear(&calls);
  bench_clear(&ignored);
}

static void open_pools(streams *s) {
  vmm_device_options device;
  vmm_pool_options options;
  vmm_error error;

  bench_need(vmm_record_create(&s->recorder, s->machine->driver, 0, &error), &error);
  bench_need(vmm_device_options_init(&device, sizeof device), &error);
  device.driver = s->recorder;
  s->devices[0] = s->machine->device;
  bench_need(vmm_device_open(&s->devices[1], 0, &device, &error), &error);
  bench_need(vmm_pool_options_init(&options, sizeof options), &error);
  options.home_stream = s->machine->stream;
  options.initial = options.limit = (BATCH + 2) * MIB; /* the pairs leave small blocks behind */
  for (int i = 0; i < 2; i++) {
    bench_need(vmm_pool_create(&s->pools[i], s->devices[i], &options, &error), &error);
    bench_need_code(vmm_raw_stream_create(s->machine->driver, &s->streams[i], 1), "cuStreamCreate");
  }
}

static void close_pools(streams *s) {
  vmm_error error;

  machine_drain(s->machine);
  for (int i = 0; i < 2; i++) {
    machine_end_pool(s->pools[i]);
    for (int k = 0; k < 2; k++) (void)vmm_device_forget_stream(s->devices[i], s->streams[k], NULL);
  }
  for (int i = 0; i < 2; i++)
    bench_need_code(vmm_raw_stream_destroy(s->machine->driver, s->streams[i]), "cuStreamDestroy");
  bench_need(vmm_device_close(s->devices[1], &error), &error);
  vmm_driver_release(s->recorder);
}

void bench_streams(bench_machine *machine) {
  const char *ordered = machine->cuda.ordered_name ? machine->cuda.ordered_name : "cudaMallocAsync";
  const bench_arm pairs[] = {{"libvmm", pairs_pool, 0}, {ordered, pairs_cuda, 0}};
  const bench_arm batches[] = {{"libvmm", batches_pool, 0}, {ordered, batches_cuda, 0}};
  streams s = {.machine = machine, .many = machine->simulated ? 100 : 20000};
  int rounds = machine_rounds(machine, 31);

  open_pools(&s);
  bench_rounds(&machine->report, "pair on a stream", "64 KiB", "ns", pairs, 2, rounds, &s, NULL);
  bench_rounds(&machine->report, "pair on a stream", "64 of 1 MiB, handed from stream to stream", "ns", batches, 2,
               rounds, &s, NULL);
  count_calls(&s);
  close_pools(&s);
}
