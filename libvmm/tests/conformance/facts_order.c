/* Facts about order: which calls wait for queued work and which do not (ORD). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "conformance.h"

static void expect_pending(conf *c, void *stream) {
  EXPECT(vmm_raw_stream_query(c->driver, stream), VMM_CODE_NOT_READY);
}

/* A stream is kept busy; no memory call fails or waits for it. */
static void grow_while_busy(conf *c, void *stream) {
  conf_range r = {0, 4 * c->granule, 0};
  u64 flags, next = r.size / 2;
  r.address = conf_reserve(c, r.size);
  u64 first = conf_create(c, next);
  if (!r.address || !first) return;
  EXPECT(vmm_raw_mem_map(c->driver, r.address, next, 0, first, 0), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, r.address, next, 3), VMM_CODE_SUCCESS);
  conf_spin(c, stream, 300);
  r.handle = conf_create(c, next);
  expect_pending(c, stream);
  EXPECT(vmm_raw_mem_map(c->driver, r.address + next, next, 0, r.handle, 0), VMM_CODE_SUCCESS);
  expect_pending(c, stream);
  EXPECT(conf_access(c, r.address + next, next, 3), VMM_CODE_SUCCESS);
  expect_pending(c, stream);
  EXPECT(conf_get_access(c, r.address + next, &flags), VMM_CODE_SUCCESS);
  expect_pending(c, stream);
  EXPECT(conf_access(c, r.address, r.size, 3), VMM_CODE_SUCCESS);
  expect_pending(c, stream);
  EXPECT(vmm_raw_mem_unmap(c->driver, r.address + next, next), VMM_CODE_SUCCESS);
  expect_pending(c, stream);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  expect_pending(c, stream);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_query(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_unmap(c->driver, r.address, next), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, first), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
}

FACT("ORD-1", 0, busy_legacy_stream) { grow_while_busy(c, NULL); }

FACT("ORD-2", 0, busy_non_blocking_stream) {
  void *stream = NULL;
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  grow_while_busy(c, stream);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
}

/* ---- growth under load ---- */

enum { LOADERS = 4, BATCH = 20 };

typedef struct load {
  conf *c;
  u64 buffer; /* what the thread's work writes; 0: memory of its own */
  size_t size;
  bool legacy; /* queue on the legacy stream */
  atomic_bool *stop;
  atomic_int *errors;
  pthread_t thread;
} load;

static void check(const load *l, int code) {
  if (code != VMM_CODE_SUCCESS) atomic_fetch_add(l->errors, 1);
}

/* Keeps a stream busy until told to stop. Errors are counted: the case's own notes belong to its thread. */
static void *load_main(void *data) {
  load *l = data;
  vmm_driver *driver = l->c->driver;
  void *stream = NULL, *host = malloc(l->size);
  u64 buffer = l->buffer;
  check(l, vmm_raw_ctx_set_current(driver, l->c->context));
  if (!buffer) check(l, vmm_raw_mem_alloc(driver, &buffer, l->size));
  if (!l->legacy) check(l, vmm_raw_stream_create(driver, &stream, CONF_NON_BLOCKING));
  for (u64 seed = 0; host && !atomic_load(l->stop); seed++) {
    for (int i = 0; i < BATCH; i++) {
      check(l, vmm_raw_kernel_fill(driver, stream, buffer, l->size, seed));
      check(l, vmm_raw_memcpy_dtoh_async(driver, host, buffer, l->size, stream));
    }
    check(l, vmm_raw_stream_synchronize(driver, stream));
  }
  if (!l->legacy) check(l, vmm_raw_stream_destroy(driver, stream));
  if (!l->buffer) check(l, vmm_raw_mem_free(driver, buffer));
  free(host);
  return NULL;
}

static void start_load(load *l) {
  if (pthread_create(&l->thread, NULL, load_main, l) != 0) abort();
}

/* One more mapping, held by nothing but itself. */
static int grow_one(conf *c, u64 address) {
  u64 handle = 0;
  vmm_raw_prop prop = conf_prop(c);
  int code = vmm_raw_mem_create(c->driver, &handle, c->granule, &prop, 0);
  if (code != VMM_CODE_SUCCESS) return code;
  code = vmm_raw_mem_map(c->driver, address, c->granule, 0, handle, 0);
  int released = vmm_raw_mem_release(c->driver, handle);
  if (code == VMM_CODE_SUCCESS) code = conf_access(c, address, c->granule, 3);
  return code != VMM_CODE_SUCCESS ? code : released;
}

FACT("ORD-3", CONF_SLOW, growth_under_load) {
  const int rounds = c->cuda ? 4 : 1, places = c->cuda ? 1024 : 100;
  u64 address = conf_reserve(c, (size_t)places * c->granule);
  atomic_bool stop = false;
  atomic_int errors = 0;
  load loads[LOADERS];
  if (!address) return;
  for (int i = 0; i < LOADERS; i++) {
    loads[i] = (load){c, 0, c->cuda ? 1u << 20 : 1u << 12, i == 0, &stop, &errors, 0};
    start_load(&loads[i]);
  }
  for (int round = 0; round < rounds && c->failures == 0; round++) {
    for (int i = 0; i < places && c->failures == 0; i++) {
      EXPECT(grow_one(c, address + (u64)i * c->granule), VMM_CODE_SUCCESS);
    }
    EXPECT(vmm_raw_mem_unmap(c->driver, address, (size_t)places * c->granule), VMM_CODE_SUCCESS);
  }
  atomic_store(&stop, true);
  for (int i = 0; i < LOADERS; i++) EXPECT_EQ(pthread_join(loads[i].thread, NULL), 0);
  EXPECT_EQ(atomic_load(&errors), 0);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, (size_t)places * c->granule), VMM_CODE_SUCCESS);
}

FACT("ORD-5", 0, other_granules_change) {
  const int cycles = c->cuda ? 5000 : 200, places = 64;
  u64 address = conf_reserve(c, (size_t)places * c->granule);
  atomic_bool stop = false;
  atomic_int errors = 0;
  if (!address || !EXPECT(grow_one(c, address), VMM_CODE_SUCCESS)) return;
  load worker = {c, address, c->cuda ? c->granule : 1u << 12, false, &stop, &errors, 0};
  start_load(&worker);
  for (int i = 0; i < cycles && c->failures == 0; i++) {
    u64 at = address + (u64)(1 + i % (places - 1)) * c->granule;
    EXPECT(grow_one(c, at), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_mem_unmap(c->driver, at, c->granule), VMM_CODE_SUCCESS);
  }
  atomic_store(&stop, true);
  EXPECT_EQ(pthread_join(worker.thread, NULL), 0);
  EXPECT_EQ(atomic_load(&errors), 0);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_unmap(c->driver, address, c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, (size_t)places * c->granule), VMM_CODE_SUCCESS);
}

/* ---- unmap, remap, regrant ---- */

FACT("ORD-4", CONF_CHILD | CONF_LEAVES | CONF_STRICTER, unmap_under_work) {
  conf_range r;
  if (!conf_make(c, &r, (c->cuda ? 32 : 2) * c->granule, 3)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_RACE);
  conf_expect_misuse(c, VMM_SIM_MISUSE_TOUCH);
  conf_spin(c, NULL, 100);
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, r.address, r.size, 9), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_unmap(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_ILLEGAL_ADDRESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_ILLEGAL_ADDRESS);
}

static void capture_fill(conf *c, void *stream, u64 address, size_t size, void **executable) {
  void *graph = NULL;
  EXPECT(vmm_raw_stream_begin_capture(c->driver, stream, 2), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_fill(c->driver, stream, address, size, 11), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_end_capture(c->driver, stream, &graph), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_graph_instantiate(c->driver, executable, graph, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_graph_destroy(c->driver, graph), VMM_CODE_SUCCESS);
}

FACT("ORD-6", 0, graph_after_remap) {
  conf_range r;
  void *stream = NULL, *executable = NULL;
  if (!conf_make(c, &r, c->granule, 3)) return;
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_fill(c->driver, stream, r.address, r.size, 5), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_synchronize(c->driver, stream), VMM_CODE_SUCCESS);
  capture_fill(c, stream, r.address, r.size, &executable);
  EXPECT(vmm_raw_graph_launch(c->driver, executable, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_synchronize(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_mismatches(c, r.address, r.size, 11), 0);
  EXPECT(vmm_raw_mem_unmap(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  r.handle = conf_create(c, r.size);
  EXPECT(vmm_raw_mem_map(c->driver, r.address, r.size, 0, r.handle, 0), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, r.address, r.size, 3), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_fill(c->driver, stream, r.address, r.size, 5), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_graph_launch(c->driver, executable, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_synchronize(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_mismatches(c, r.address, r.size, 11), 0);
  EXPECT(vmm_raw_graph_exec_destroy(c->driver, executable), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
  conf_unmake(c, &r);
}

FACT("ORD-7", 0, regrant_under_work) {
  const int rounds = c->cuda ? 300 : 20;
  conf_range r;
  void *stream = NULL;
  if (!conf_make(c, &r, (c->cuda ? 512 : 1) * c->granule, 3)) return;
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  for (int i = 0; i < rounds && c->failures == 0; i++) {
    EXPECT(vmm_raw_kernel_fill(c->driver, stream, r.address, r.size, (u64)i), VMM_CODE_SUCCESS);
    for (int k = 0; k < 5; k++) EXPECT(conf_access(c, r.address, r.size, 3), VMM_CODE_SUCCESS);
  }
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_mismatches(c, r.address, r.size, (u64)rounds - 1), 0);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
  conf_unmake(c, &r);
}
