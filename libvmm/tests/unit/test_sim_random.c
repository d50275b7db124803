/* Random calls: the memory operations against a naive model, granule by granule; and everything at once with values good
 * and bad, after which nothing may be left. */
#include <stdbool.h>
#include <stdlib.h>

#include "sim_world.h"

static u64 state;

static unsigned int roll(unsigned int limit) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned int)(state >> 33) % limit;
}

/* ---- a model of one reservation ---- */

enum { CELLS = 24, HANDLES = 6, STEPS = 20000 };

typedef struct cell {
  int start; /* the first cell of the mapping it is in; -1: none */
  int size;
  int handle;
  int rights;
} cell;

typedef struct model {
  vmm_driver *driver;
  u64 base;
  u64 values[HANDLES]; /* 0: released */
  int sizes[HANDLES];
  int maps[HANDLES];
  cell cells[CELLS];
} model;

static void model_handle(model *m) {
  int i = (int)roll(HANDLES);
  vmm_raw_prop prop = sim_prop(0);

  if (m->values[i] != 0) {
    if (m->maps[i] != 0) return; /* what is mapped and released cannot be named any more: not modelled */
    OK(vmm_raw_mem_release(m->driver, m->values[i]));
    m->values[i] = 0;
    return;
  }
  m->sizes[i] = 1 + (int)roll(3);
  OK(vmm_raw_mem_create(m->driver, &m->values[i], (size_t)m->sizes[i] * GRANULE, &prop, 0));
}

static void model_map(model *m) {
  int i = (int)roll(HANDLES), at = (int)roll(CELLS), size = 1 + (int)roll(3), expected = VMM_CODE_SUCCESS;

  if (m->values[i] == 0) return;
  if (at + m->sizes[i] > CELLS) at = CELLS - m->sizes[i];
  for (int k = at; k < at + m->sizes[i]; k++)
    if (m->cells[k].start >= 0) expected = VMM_CODE_INVALID_VALUE;
  if (size != m->sizes[i]) expected = VMM_CODE_NOT_SUPPORTED;
  CHECK_EQ(vmm_raw_mem_map(m->driver, m->base + (u64)at * GRANULE, (size_t)size * GRANULE, 0, m->values[i], 0),
           expected);
  if (expected != VMM_CODE_SUCCESS) return;
  m->maps[i]++;
  for (int k = at; k < at + size; k++) m->cells[k] = (cell){at, size, i, 0};
}

/* Whether [from, to) cuts a mapping. */
static bool cuts(const model *m, int from, int to) {
  return (m->cells[from].start >= 0 && m->cells[from].start != from) ||
         (m->cells[to - 1].start >= 0 && m->cells[to - 1].start + m->cells[to - 1].size != to);
}

static void model_unmap(model *m) {
  int from = (int)roll(CELLS), to = from + 1 + (int)roll((unsigned int)(CELLS - from));
  int expected = cuts(m, from, to) ? VMM_CODE_INVALID_VALUE : VMM_CODE_SUCCESS;

  CHECK_EQ(vmm_raw_mem_unmap(m->driver, m->base + (u64)from * GRANULE, (size_t)(to - from) * GRANULE), expected);
  if (expected != VMM_CODE_SUCCESS) return;
  for (int k = from; k < to; k++) {
    if (m->cells[k].start == k) m->maps[m->cells[k].handle]--;
    m->cells[k].start = -1;
  }
}

static void model_access(model *m) {
  int from = (int)roll(CELLS), to = from + 1 + (int)roll((unsigned int)(CELLS - from)), rights = (int)roll(4);
  int expected = rights == 2 || cuts(m, from, to) ? VMM_CODE_INVALID_VALUE : VMM_CODE_SUCCESS;

  for (int k = from; k < to; k++)
    if (m->cells[k].start < 0) expected = VMM_CODE_INVALID_VALUE;
  CHECK_EQ(sim_access(m->driver, m->base + (u64)from * GRANULE, (size_t)(to - from) * GRANULE, 0, rights), expected);
  for (int k = from; expected == VMM_CODE_SUCCESS && k < to; k++) m->cells[k].rights = rights;
}

static void model_compare(model *m) {
  vmm_sim_ledger ledger = sim_ledger(m->driver, 0);
  u64 mapped = 0, accessible = 0, handles = 0, bytes = 0;

  for (int k = 0; k < CELLS; k++) {
    vmm_raw_location here = {1, 0};
    u64 flags = 99;
    int code = vmm_raw_mem_get_access(m->driver, &flags, &here, m->base + (u64)k * GRANULE + roll(2u << 20));

    CHECK_EQ(code, m->cells[k].start < 0 ? VMM_CODE_INVALID_VALUE : VMM_CODE_SUCCESS);
    if (code == VMM_CODE_SUCCESS) CHECK_EQ(flags, m->cells[k].rights);
    mapped += m->cells[k].start >= 0;
    accessible += m->cells[k].start >= 0 && m->cells[k].rights == 3;
  }
  for (int i = 0; i < HANDLES; i++) {
    handles += m->values[i] != 0;
    bytes += m->values[i] != 0 ? (u64)m->sizes[i] * GRANULE : 0;
  }
  CHECK_EQ(ledger.mapped_bytes, mapped * GRANULE);
  CHECK_EQ(ledger.accessible_bytes, accessible * GRANULE);
  CHECK_EQ(ledger.handles, handles);
  CHECK_EQ(ledger.handle_bytes, bytes);
}

TEST(memory_operations_agree_with_a_naive_model) {
  static model m;

  state = 4711;
  memset(&m, 0, sizeof m);
  m.driver = sim_open(NULL);
  m.base = sim_reserve(m.driver, CELLS * GRANULE);
  for (int k = 0; k < CELLS; k++) m.cells[k].start = -1;
  for (int step = 0; step < STEPS; step++) {
    unsigned int what = roll(10);

    if (what < 2) CHECK_CALL(model_handle(&m));
    else if (what < 6) CHECK_CALL(model_map(&m));
    else if (what < 8) CHECK_CALL(model_access(&m));
    else CHECK_CALL(model_unmap(&m));
    if (step % 16 == 0) CHECK_CALL(model_compare(&m));
  }
  vmm_driver_release(m.driver);
}

/* ---- everything at once ---- */

static void *counted(void *data, size_t size) {
  *(long *)data += (long)size;
  return malloc(size);
}

static void uncounted(void *data, void *pointer, size_t size) {
  *(long *)data -= (long)size;
  free(pointer);
}

enum { KEPT = 8 };

typedef struct chaos {
  vmm_driver *driver;
  u64 ranges[KEPT], handles[KEPT], plain[KEPT];
  void *streams[KEPT], *events[KEPT], *graphs[KEPT], *executables[KEPT], *contexts[KEPT];
  unsigned char host[4096];
} chaos;

static void nothing(void *data) { (void)data; }

static void chaos_memory(chaos *c, unsigned int what) {
  u64 *range = &c->ranges[roll(KEPT)], *handle = &c->handles[roll(KEPT)], *plain = &c->plain[roll(KEPT)];
  size_t size = (1 + roll(3)) * GRANULE;
  u64 at = *range + roll(3) * GRANULE;
  vmm_raw_prop prop = sim_prop((int)roll(3));

  switch (what) {
    case 0:
      (void)vmm_raw_mem_reserve(c->driver, range, 4 * GRANULE, 0, roll(2) ? at : 0, 0);
      break;
    case 1:
      (void)vmm_raw_mem_address_free(c->driver, *range, 4 * GRANULE);
      break;
    case 2:
      (void)vmm_raw_mem_create(c->driver, handle, size, &prop, 0);
      break;
    case 3:
      (void)vmm_raw_mem_release(c->driver, *handle);
      break;
    case 4:
    case 5:
      (void)vmm_raw_mem_map(c->driver, at, size, 0, *handle, 0);
      break;
    case 6:
      (void)vmm_raw_mem_unmap(c->driver, at, size);
      break;
    case 7:
    case 8:
      (void)sim_access(c->driver, at, size, (int)roll(2), 3 * (int)roll(2));
      break;
    case 9:
      (void)vmm_raw_mem_alloc(c->driver, plain, 1 + roll(5000));
      break;
    case 10:
      (void)vmm_raw_mem_free(c->driver, *plain);
      break;
    case 11:
      (void)vmm_raw_mem_retain_handle(c->driver, handle, at);
      break;
    case 12:
      (void)vmm_sim_new_owner(c->driver, at, size);
      break;
    default:
      (void)vmm_sim_view(c->driver, at, size, &c->graphs[KEPT - 1]);
  }
}

static void chaos_work(chaos *c, unsigned int what) {
  void *stream = c->streams[roll(KEPT)];
  u64 at = c->ranges[roll(KEPT)] + roll(3) * GRANULE, plain = c->plain[roll(KEPT)];

  switch (what) {
    case 0:
      (void)vmm_raw_kernel_fill(c->driver, stream, at, 256, 1);
      break;
    case 1:
      (void)vmm_raw_kernel_verify(c->driver, stream, at, 256, 1, plain);
      break;
    case 2:
      (void)vmm_raw_memcpy_dtoh_async(c->driver, c->host, plain, 64, stream);
      break;
    case 3:
      (void)vmm_raw_memcpy_htod_async(c->driver, at, c->host, 64, stream);
      break;
    case 4:
      (void)vmm_raw_launch_host_func(c->driver, stream, nothing, NULL);
      break;
    case 5:
      (void)vmm_raw_stream_query(c->driver, stream);
      break;
    case 6:
      (void)vmm_raw_stream_synchronize(c->driver, stream);
      break;
    case 7:
      if (roll(20) == 0) (void)vmm_raw_kernel_trap(c->driver, stream);
      break;
    default:
      vmm_driver_wait(c->driver, roll(5000));
  }
}

static void chaos_graph(chaos *c, unsigned int what) {
  void *stream = c->streams[roll(KEPT)], **graph = &c->graphs[roll(KEPT - 1)];
  void **executable = &c->executables[roll(KEPT)];
  int mode = (int)roll(3);

  switch (what) {
    case 0:
    case 1:
      (void)vmm_raw_stream_begin_capture(c->driver, stream, mode);
      break;
    case 2:
      (void)vmm_raw_stream_end_capture(c->driver, stream, graph);
      break;
    case 3:
      (void)vmm_raw_graph_instantiate(c->driver, executable, *graph, 0);
      break;
    case 4:
    case 5:
      (void)vmm_raw_graph_launch(c->driver, *executable, stream);
      break;
    case 6:
      (void)vmm_raw_graph_exec_destroy(c->driver, *executable);
      break;
    case 7:
      (void)vmm_raw_graph_destroy(c->driver, *graph);
      break;
    default:
      (void)vmm_raw_capture_mode(c->driver, &mode);
  }
}

static void chaos_objects(chaos *c, unsigned int what) {
  void **stream = &c->streams[roll(KEPT)], **event = &c->events[roll(KEPT)], **context = &c->contexts[roll(KEPT)];

  switch (what) {
    case 0:
    case 1:
      (void)vmm_raw_stream_create(c->driver, stream, roll(2));
      break;
    case 2:
      (void)vmm_raw_stream_destroy(c->driver, *stream);
      break;
    case 3:
    case 4:
      (void)vmm_raw_event_create(c->driver, event, 2);
      break;
    case 5:
      (void)vmm_raw_event_destroy(c->driver, *event);
      break;
    case 6:
      (void)vmm_raw_event_record(c->driver, *event, *stream);
      break;
    case 7:
      (void)vmm_raw_stream_wait_event(c->driver, *stream, *event, roll(2));
      break;
    case 8:
      (void)vmm_raw_event_query(c->driver, *event);
      break;
    case 9:
      (void)vmm_raw_ctx_create(c->driver, context, 0, (int)roll(2));
      break;
    case 10:
      if (roll(4) == 0) (void)vmm_raw_ctx_destroy(c->driver, *context);
      break;
    case 11:
      (void)vmm_raw_ctx_set_current(c->driver, *context);
      break;
    case 12:
      (void)vmm_raw_primary_retain(c->driver, context, (int)roll(2));
      break;
    case 13:
      (void)vmm_raw_primary_release(c->driver, (int)roll(2));
      break;
    default:
      (void)vmm_raw_ctx_record_event(c->driver, *context, *event);
  }
}

static void chaos_step(chaos *c) {
  switch (roll(8)) {
    case 0:
    case 1:
      chaos_objects(c, roll(15));
      break;
    case 2:
      chaos_graph(c, roll(9));
      break;
    case 3:
    case 4:
    case 5:
      chaos_work(c, roll(9));
      break;
    default:
      chaos_memory(c, roll(14));
  }
}

TEST(any_calls_in_any_order_leave_nothing_behind) {
  static chaos c;
  long bytes = 0;
  vmm_host_memory table = {sizeof table, counted, uncounted, &bytes};
  vmm_sim_options options = sim_defaults();

  options.host_memory = &table;
  options.device_count = 2;
  for (int round = 0; round < 40; round++) {
    state = (u64)round;
    memset(&c, 0, sizeof c);
    options.fresh = round % 3;
    options.touch = round / 3 % 3;
    c.driver = sim_open(&options);
    for (int step = 0; step < 3000; step++) chaos_step(&c);
    CHECK_OK(vmm_sim_drain(c.driver));
    for (int device = 0; device < 2; device++) {
      vmm_sim_ledger ledger = sim_ledger(c.driver, device);

      CHECK_EQ(ledger.pending, 0);
      CHECK(ledger.accessible_bytes <= ledger.mapped_bytes);
      CHECK(ledger.handles * GRANULE <= ledger.handle_bytes);
    }
    vmm_driver_release(c.driver);
    CHECK_EQ(bytes, 0);
  }
}

RUN_TESTS()
