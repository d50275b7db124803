/* Random work on several streams against a model: each block is filled and verified by kernels on its streams, blocks are
 * freed in every way there is, streams come and go, and the driver says no now and then. The simulator's happens-before
 * check sees each block that changes hands too early, and kernels count the words that are not what they should be. */
#include "support/fixture.h"

enum { STREAMS = 5, BLOCKS = 48, STEPS = 1200, SMALLEST = 16 };

typedef struct block {
  u64 address, size, seed;
  int stream;
} block;

typedef struct model {
  fixture f;
  void *streams[STREAMS];
  block blocks[BLOCKS];
  u64 random, counter; /* the latter: device memory, words that differed */
  bool faulty, per_handle;
} model;

static u64 roll(model *m, u64 below) { return fixture_random(&m->random) % below; }

static void new_stream(model *m, int i) {
  OK(vmm_raw_stream_create(m->f.sim, &m->streams[i], 1));
  /* named once, so that lazy frees know it */
  if (m->per_handle) (void)vmm_device_register_stream(m->f.device, m->streams[i], NULL);
}

static void verify(model *m, const block *b, int stream) {
  OK(vmm_raw_kernel_verify(m->f.sim, m->streams[stream], b->address, (size_t)b->size, b->seed, m->counter));
}

static void alloc(model *m, block *b) {
  vmm_request request;
  vmm_status status;

  CHECK_OK(vmm_request_init(&request, sizeof request));
  b->stream = (int)roll(m, STREAMS);
  request.size = roll(m, 8) == 0 ? roll(m, 1536) * KIB : 256 * (SMALLEST + roll(m, 512));
  request.alignment = roll(m, 4) == 0 ? 256ull << roll(m, 8) : 0;
  request.flags = VMM_REQUEST_ON_STREAM;
  request.stream = m->streams[b->stream];
  if (roll(m, 8) == 0) request.flags |= VMM_REQUEST_ONE_MAPPING;
  if (roll(m, 8) == 0) request.flags |= VMM_REQUEST_SCRUB;
  if (roll(m, 8) == 0) request.flags |= VMM_REQUEST_NO_GROWTH;
  b->address = 0;
  status = vmm_pool_alloc_with(m->f.pool, &request, &b->address, &m->f.error);
  CHECK(status == VMM_OK || b->address == 0);
  if (b->address == 0) {
    CHECK(m->faulty || status == VMM_ERROR_LIMIT || status == VMM_ERROR_OUT_OF_DEVICE_MEMORY);
    return;
  }
  b->size = request.size < 256 ? 256 : request.size;
  b->seed = fixture_random(&m->random);
  CHECK_OK(vmm_sim_new_owner(m->f.sim, b->address, b->size));
  if (roll(m, 4) == 0) OK(vmm_raw_kernel_spin(m->f.sim, m->streams[b->stream], roll(m, 300) * 1000));
  OK(vmm_raw_kernel_fill(m->f.sim, m->streams[b->stream], b->address, (size_t)b->size, b->seed));
  if (roll(m, 2) == 0) CHECK_CALL(verify(m, b, b->stream));
}

/* `other` comes after what `stream` has queued. */
static void order(model *m, int stream, int other) {
  void *event = NULL;

  OK(vmm_raw_event_create(m->f.sim, &event, 2));
  OK(vmm_raw_event_record(m->f.sim, event, m->streams[stream]));
  OK(vmm_raw_stream_wait_event(m->f.sim, m->streams[other], event, 0));
  OK(vmm_raw_event_destroy(m->f.sim, event));
}

static void free_one(model *m, block *b) {
  int other = (int)roll(m, STREAMS);
  void *both[2] = {m->streams[b->stream], m->streams[other]};
  u64 address = b->address;
  vmm_status status;

  CHECK_CALL(verify(m, b, b->stream));
  switch (roll(m, 8)) {
    case 0: /* used on another one, which comes after */
      CHECK_CALL(order(m, b->stream, other));
      CHECK_CALL(verify(m, b, other));
      status = vmm_pool_free_async(m->f.pool, address, m->streams[other], NULL);
      break;
    case 1:
      CHECK_CALL(order(m, b->stream, other));
      CHECK_CALL(verify(m, b, other));
      CHECK_CALL(verify(m, b, b->stream));
      status = vmm_pool_free_multi(m->f.pool, address, both, 2, NULL);
      break;
    case 2: { /* the home stream is the legacy one, which these are not ordered with by themselves */
      void *event = NULL;

      OK(vmm_raw_event_create(m->f.sim, &event, 2));
      OK(vmm_raw_event_record(m->f.sim, event, m->streams[b->stream]));
      OK(vmm_raw_stream_wait_event(m->f.sim, NULL, event, 0));
      OK(vmm_raw_event_destroy(m->f.sim, event));
      status = vmm_pool_free(m->f.pool, address, NULL);
      break;
    }
    case 3:
      if (roll(m, 4) == 0) {
        CHECK_OK(vmm_sim_drain(m->f.sim));
        OK(vmm_raw_ctx_synchronize(m->f.sim)); /* now the host knows */
        status = vmm_pool_free_idle(m->f.pool, address, NULL);
        break;
      } /* fall through */
    default:
      status = vmm_pool_free_async(m->f.pool, address, m->streams[b->stream], NULL);
  }
  CHECK_OK(status);
  b->address = 0;
}

/* A stream ends, whatever of its memory is still in flight; its live blocks are freed on it first. */
static void replace_stream(model *m) {
  int i = (int)roll(m, STREAMS), k;

  for (k = 0; k < BLOCKS; k++) {
    if (m->blocks[k].address == 0 || m->blocks[k].stream != i) continue;
    CHECK_OK(vmm_pool_free_async(m->f.pool, m->blocks[k].address, m->streams[i], NULL));
    m->blocks[k].address = 0;
  }
  if (m->per_handle && vmm_device_forget_stream(m->f.device, m->streams[i], NULL) != VMM_OK) {
    CHECK(m->faulty);
    return;
  }
  OK(vmm_raw_stream_destroy(m->f.sim, m->streams[i]));
  CHECK_CALL(new_stream(m, i));
}

static void fault(model *m) {
  static const char *const rules[] = {
      "cuEventRecord:UNKNOWN",  "cuEventCreate:UNKNOWN", "cuEventQuery:UNKNOWNx2", "cuStreamWaitEvent:UNKNOWN",
      "cuMemCreate:2",          "cuMemSetAccess:600x2",  "cuMemUnmap:600",         "cuCtxRecordEvent:UNKNOWN",
      "cuCtxGetCurrent:UNKNOWN"};

  CHECK_CALL(fixture_rule(&m->f, rules[roll(m, sizeof rules / sizeof *rules)]));
}

static void step(model *m) {
  block *b = &m->blocks[roll(m, BLOCKS)];

  switch (roll(m, 64)) {
    case 0:
      (void)vmm_pool_trim_async(m->f.pool, roll(m, 4) * MIB, NULL, NULL, NULL);
      break;
    case 1:
    case 2:
      (void)vmm_pool_poll(m->f.pool, NULL, NULL, NULL);
      break;
    case 3:
      CHECK_CALL(replace_stream(m));
      break;
    case 4:
      if (roll(m, 8) == 0) (void)vmm_pool_trim(m->f.pool, 0, 0, NULL, NULL);
      break;
    case 5:
      if (m->faulty) CHECK_CALL(fault(m));
      break;
    case 6:
      CHECK_CALL(fixture_clear(&m->f));
      break;
    case 7:
    case 8:
    case 9:
      vmm_driver_wait(m->f.driver, roll(m, 400) * 1000);
      break;
    default:
      if (b->address == 0) CHECK_CALL(alloc(m, b));
      else CHECK_CALL(free_one(m, b));
  }
}

static void run(int events, int prefer_wait, bool faulty, u64 seed) {
  fixture_options options;
  model *m = calloc(1, sizeof *m);
  u64 differ = 1;
  int i;

  CHECK(m != NULL);
  fixture_defaults(&options);
  options.pool.limit = 6 * MIB;
  options.pool.events = events;
  options.pool.prefer_wait = prefer_wait;
  options.pool.mapping_max = MIB;
  CHECK_CALL(fixture_open(&m->f, &options));
  CHECK_OK(vmm_sim_forbid_blocking(m->f.sim, 0)); /* the test's own */
  m->random = seed;
  m->faulty = faulty;
  m->per_handle = events == VMM_EVENTS_LAZY;
  OK(vmm_raw_mem_alloc(m->f.sim, &m->counter, 256));
  OK(vmm_raw_memset_d8_async(m->f.sim, m->counter, 0, 256, NULL));
  for (i = 0; i < STREAMS; i++) CHECK_CALL(new_stream(m, i));
  for (i = 0; i < STEPS && atomic_load(&check_failures) == 0; i++) {
    step(m);
    if (i % 64 == 0) CHECK_OK_ERROR(vmm_pool_check(m->f.pool, &m->f.error), &m->f.error);
  }
  if (atomic_load(&check_failures) != 0)
    printf("events %d, prefer_wait %d, seed %llu, step %d\n", events, prefer_wait, seed, i);
  CHECK(atomic_load(&check_failures) == 0);
  CHECK_CALL(fixture_clear(&m->f));
  for (i = 0; i < BLOCKS; i++)
    if (m->blocks[i].address != 0) CHECK_CALL(free_one(m, &m->blocks[i]));
  CHECK_OK(vmm_sim_drain(m->f.sim));
  OK(vmm_raw_memcpy_dtoh(m->f.sim, &differ, m->counter, sizeof differ));
  CHECK_EQ(differ, 0);
  OK(vmm_raw_mem_free(m->f.sim, m->counter));
  CHECK_CALL(fixture_compare(&m->f));
  for (i = 0; i < STREAMS; i++) {
    if (m->per_handle) (void)vmm_device_forget_stream(m->f.device, m->streams[i], NULL);
    OK(vmm_raw_stream_destroy(m->f.sim, m->streams[i]));
  }
  CHECK_OK(vmm_pool_trim(m->f.pool, 0, 0, NULL, NULL)); /* quarantined handles too */
  CHECK_OK(vmm_device_trim(m->f.device, 0, NULL, NULL));
  CHECK_CALL(fixture_close(&m->f));
  free(m);
}

#define VARIANT(name, events, prefer)                                                       \
  TEST(name) {                                                                              \
    int faulty;                                                                             \
    u64 seed;                                                                               \
    for (faulty = 0; faulty < 2; faulty++)                                                  \
      for (seed = 1; seed <= 1; seed++) CHECK_CALL(run(events, prefer, faulty != 0, seed)); \
  }

VARIANT(lazy_events, VMM_EVENTS_LAZY, 0)
VARIANT(lazy_events_preferring_to_wait, VMM_EVENTS_LAZY, 1)
VARIANT(eager_events, VMM_EVENTS_EAGER, 0)
VARIANT(eager_events_preferring_to_wait, VMM_EVENTS_EAGER, 1)

RUN_TESTS()
