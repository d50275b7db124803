/* The simulator under a host allocator that says no, under many threads, and its own cost; and the ordered map. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "sim/tree.h"
#include "sim_world.h"

typedef struct allocator {
  long left;  /* allocations until one fails; negative: none fails */
  long bytes; /* live */
} allocator;

static void *allocate(void *data, size_t size) {
  allocator *a = data;
  void *pointer;

  if (a->left >= 0 && a->left-- == 0) return NULL;
  pointer = malloc(size);
  if (pointer != NULL) a->bytes += (long)size;
  return pointer;
}

static void release(void *data, void *pointer, size_t size) {
  allocator *a = data;
  a->bytes -= (long)size;
  free(pointer);
}

static void noop(void *data) { (void)data; }

/* Each step says what came back; a step that depends on a failed one is answered with some error, never a crash. */
static void all_operations(vmm_driver *driver, int *codes, int *count) {
  void *context = NULL, *stream = NULL, *event = NULL, *graph = NULL, *executable = NULL, *pinned = NULL;
  u64 address = 0, handle = 0, plain = 0;
  vmm_raw_prop prop = sim_prop(0);
  unsigned int word = 0;
  int n = 0;

  codes[n++] = vmm_raw_init(driver, 0);
  codes[n++] = vmm_raw_primary_retain(driver, &context, 0);
  codes[n++] = vmm_raw_ctx_push(driver, context);
  codes[n++] = vmm_raw_mem_reserve(driver, &address, GRANULE, 0, 0, 0);
  codes[n++] = vmm_raw_mem_create(driver, &handle, GRANULE, &prop, 0);
  codes[n++] = vmm_raw_mem_map(driver, address, GRANULE, 0, handle, 0);
  codes[n++] = sim_access(driver, address, GRANULE, 0, 3);
  codes[n++] = vmm_raw_mem_alloc(driver, &plain, 64);
  codes[n++] = vmm_raw_mem_host_alloc(driver, &pinned, 64, 0);
  codes[n++] = vmm_raw_stream_create(driver, &stream, 1);
  codes[n++] = vmm_raw_event_create(driver, &event, 2);
  codes[n++] = vmm_raw_kernel_fill(driver, stream, address, 64, 1);
  codes[n++] = vmm_raw_memcpy_htod(driver, address, &word, 4);
  codes[n++] = vmm_raw_kernel_spin(driver, (void *)2, 5);
  codes[n++] = vmm_raw_stream_begin_capture(driver, stream, 2);
  codes[n++] = vmm_raw_kernel_verify(driver, stream, address, 64, 1, plain);
  codes[n++] = vmm_raw_launch_host_func(driver, stream, noop, NULL);
  codes[n++] = vmm_raw_stream_end_capture(driver, stream, &graph);
  codes[n++] = vmm_raw_graph_instantiate(driver, &executable, graph, 0);
  codes[n++] = vmm_raw_graph_launch(driver, executable, stream);
  codes[n++] = vmm_raw_event_record(driver, event, stream);
  codes[n++] = vmm_raw_event_synchronize(driver, event);
  codes[n++] = vmm_raw_ctx_synchronize(driver);
  codes[n++] = vmm_raw_stream_destroy(driver, stream);
  *count = n;
}

TEST(every_host_allocation_may_fail_and_nothing_leaks) {
  allocator a = {-1, 0};
  vmm_host_memory table = {sizeof table, allocate, release, &a};
  vmm_sim_options options = sim_defaults();
  int fresh, runs = 0;

  options.host_memory = &table;
  for (fresh = VMM_SIM_FRESH_ZERO; fresh <= VMM_SIM_FRESH_STALE; fresh++) {
    long n;

    options.fresh = fresh;
    for (n = 0;; n++) {
      int codes[32], count = 0, refused = 0, other = 0;
      vmm_driver *driver = NULL;
      vmm_status status;

      a.left = n;
      status = vmm_sim_create(&driver, &options, NULL);
      CHECK_EQ(status, n == 0 ? VMM_ERROR_OUT_OF_HOST_MEMORY : VMM_OK);
      if (driver != NULL) all_operations(driver, codes, &count);
      for (int i = 0; i < count; i++) {
        refused += codes[i] == VMM_CODE_OUT_OF_MEMORY;
        other += codes[i] != VMM_CODE_OUT_OF_MEMORY && codes[i] != VMM_CODE_SUCCESS;
      }
      runs++;
      if (a.left >= 0) { /* it did not get that far: a run without a failure */
        CHECK_EQ(refused + other, 0);
        vmm_driver_release(driver);
        break;
      }
      CHECK(refused <= 2);
      CHECK(refused == 1 || other == 0);
      vmm_driver_release(driver);
      CHECK_EQ(a.bytes, 0);
    }
    CHECK_EQ(a.bytes, 0);
  }
  CHECK(runs > 60);
}

enum { THREADS = 8, ROUNDS = 200 };

typedef struct worker {
  vmm_driver *driver;
  void *context;
  unsigned int number;
} worker;

static void work(const worker *w) {
  void *stream, *event;

  OK(vmm_raw_ctx_set_current(w->driver, w->context));
  stream = sim_stream(w->driver, w->number % 2);
  event = sim_event(w->driver);
  for (unsigned int i = 0; i < ROUNDS; i++) {
    unsigned int word = w->number * 1000 + i, seen = 0;
    sim_range range;

    CHECK_CALL(range = sim_make(w->driver, GRANULE));
    OK(vmm_raw_memcpy_htod_async(w->driver, range.address + 64, &word, 4, stream));
    OK(vmm_raw_memcpy_dtoh_async(w->driver, &seen, range.address + 64, 4, stream));
    OK(vmm_raw_event_record(w->driver, event, stream));
    while (vmm_raw_event_query(w->driver, event) == VMM_CODE_NOT_READY) vmm_driver_wait(w->driver, 10000);
    CHECK_EQ(seen, word);
    CHECK_CALL(sim_unmake(w->driver, &range));
  }
  OK(vmm_raw_event_destroy(w->driver, event));
  OK(vmm_raw_stream_destroy(w->driver, stream));
}

static void *thread_main(void *data) {
  work(data);
  return NULL;
}

TEST(many_threads_share_one_simulator) {
  vmm_driver *driver = sim_open(NULL);
  pthread_t threads[THREADS];
  worker workers[THREADS];
  void *context = NULL;
  vmm_sim_ledger ledger;

  OK(vmm_raw_ctx_get_current(driver, &context));
  for (unsigned int i = 0; i < THREADS; i++) {
    workers[i] = (worker){driver, context, i};
    CHECK_EQ(pthread_create(&threads[i], NULL, thread_main, &workers[i]), 0);
  }
  for (unsigned int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  ledger = sim_ledger(driver, 0);
  CHECK_EQ(ledger.handles + ledger.mappings + ledger.reservations + ledger.events + ledger.streams, 0);
  CHECK_EQ(ledger.misuse, 0);
  vmm_driver_release(driver);
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* The bound is loose: it has to hold under sanitizers on a busy machine. */
TEST(making_and_ending_a_simulator_is_cheap) {
  double best = 1e9;

  for (int i = 0; i < 200; i++) {
    double start = now_us();
    vmm_driver *driver = sim_open(NULL);
    sim_range range;

    CHECK_CALL(range = sim_make(driver, GRANULE));
    CHECK_CALL(sim_unmake(driver, &range));
    vmm_driver_release(driver);
    best = now_us() - start < best ? now_us() - start : best;
  }
  CHECK(best < 300);
}

TEST(the_ordered_map_agrees_with_a_table) {
  enum { KEYS = 512 };
  static vmm__sim_node nodes[KEYS];
  static int present[KEYS];
  vmm__sim_tree tree = {NULL, 0};
  unsigned long long random = 12345;

  for (int step = 0; step < 20000; step++) {
    unsigned int key, probe;
    int below = -1, above = -1;

    random = random * 6364136223846793005ull + 1442695040888963407ull;
    key = (unsigned int)(random >> 40) % KEYS;
    probe = (unsigned int)(random >> 50) % KEYS;
    if (present[key]) {
      vmm__sim_tree_remove(&tree, &nodes[key]);
    } else {
      nodes[key].key = 3 * key;
      vmm__sim_tree_insert(&tree, &nodes[key]);
    }
    present[key] = !present[key];
    for (int i = (int)probe; i >= 0 && below < 0; i--)
      if (present[i]) below = i;
    for (int i = (int)probe; i < KEYS && above < 0; i++)
      if (present[i]) above = i;
    CHECK(vmm__sim_tree_find(&tree, 3 * probe) == (present[probe] ? &nodes[probe] : NULL));
    CHECK(vmm__sim_tree_find(&tree, 3 * probe + 1) == NULL);
    CHECK(vmm__sim_tree_at_or_below(&tree, 3 * probe + 1) == (below < 0 ? NULL : &nodes[below]));
    CHECK(vmm__sim_tree_at_or_above(&tree, 3 * probe) == (above < 0 ? NULL : &nodes[above]));
  }
  for (int i = 0; i < KEYS; i++)
    if (present[i]) tree.count--;
  CHECK_EQ(tree.count, 0);
}

RUN_TESTS()
