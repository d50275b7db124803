/* What many cases of the conformance suite need: ranges, rights, reading back, queued work, threads. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "conformance.h"

vmm_raw_prop conf_prop(const conf *c) {
  vmm_raw_prop prop;
  memset(&prop, 0, sizeof prop);
  prop.type = 1;
  prop.location_type = 1;
  prop.location_id = c->device;
  return prop;
}

vmm_raw_access conf_rights(const conf *c, int flags) {
  vmm_raw_access rights = {1, c->device, flags};
  return rights;
}

u64 conf_reserve(conf *c, size_t size) {
  u64 address = 0;
  return EXPECT(vmm_raw_mem_reserve(c->driver, &address, size, 0, 0, 0), VMM_CODE_SUCCESS) ? address : 0;
}

u64 conf_create(conf *c, size_t size) {
  u64 handle = 0;
  vmm_raw_prop prop = conf_prop(c);
  return EXPECT(vmm_raw_mem_create(c->driver, &handle, size, &prop, 0), VMM_CODE_SUCCESS) ? handle : 0;
}

int conf_access(conf *c, u64 address, size_t size, int flags) {
  vmm_raw_access rights = conf_rights(c, flags);
  return vmm_raw_mem_set_access(c->driver, address, size, &rights, 1);
}

int conf_get_access(conf *c, u64 address, u64 *flags) {
  vmm_raw_location location = {1, c->device};
  *flags = CONF_POISON;
  return vmm_raw_mem_get_access(c->driver, flags, &location, address);
}

bool conf_make(conf *c, conf_range *range, size_t size, int flags) {
  memset(range, 0, sizeof *range);
  range->size = size;
  range->address = conf_reserve(c, size);
  range->handle = conf_create(c, size);
  if (!range->address || !range->handle) return false;
  if (!EXPECT(vmm_raw_mem_map(c->driver, range->address, size, 0, range->handle, 0), VMM_CODE_SUCCESS)) return false;
  return !flags || EXPECT(conf_access(c, range->address, size, flags), VMM_CODE_SUCCESS);
}

void conf_unmake(conf *c, conf_range *range) {
  EXPECT(vmm_raw_mem_unmap(c->driver, range->address, range->size), VMM_CODE_SUCCESS);
  if (range->handle) EXPECT(vmm_raw_mem_release(c->driver, range->handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, range->address, range->size), VMM_CODE_SUCCESS);
}

unsigned int conf_read_word(conf *c, u64 address) {
  unsigned int word = CONF_POISON;
  EXPECT(vmm_raw_memcpy_dtoh(c->driver, &word, address, sizeof word), VMM_CODE_SUCCESS);
  return word;
}

u64 conf_mismatches(conf *c, u64 address, size_t size, u64 seed) {
  u64 counter = 0, zero = 0, result = ~0ull;
  if (!EXPECT(vmm_raw_mem_alloc(c->driver, &counter, 4096), VMM_CODE_SUCCESS)) return result;
  EXPECT(vmm_raw_memcpy_htod(c->driver, counter, &zero, sizeof zero), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_verify(c->driver, NULL, address, size, seed, counter), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_memcpy_dtoh(c->driver, &result, counter, sizeof result), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_free(c->driver, counter), VMM_CODE_SUCCESS);
  return result;
}

void conf_spin(conf *c, void *stream, unsigned int milliseconds) {
  EXPECT(vmm_raw_kernel_spin(c->driver, stream, milliseconds * 1000000ull), VMM_CODE_SUCCESS);
}

void conf_wait(conf *c, unsigned int milliseconds) { vmm_driver_wait(c->driver, milliseconds * 1000000ull); }

typedef struct thread_call {
  conf *c;
  void (*function)(conf *c, void *data);
  void *data;
} thread_call;

static void *thread_main(void *data) {
  const thread_call *call = data;
  conf *c = call->c;
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
  call->function(c, call->data);
  return NULL;
}

void conf_on_thread(conf *c, void (*function)(conf *c, void *data), void *data) {
  thread_call call = {c, function, data};
  pthread_t thread;
  if (EXPECT_EQ(pthread_create(&thread, NULL, thread_main, &call), 0)) EXPECT_EQ(pthread_join(thread, NULL), 0);
}

int conf_capture_mode(conf *c, int mode) {
  int old = mode;
  EXPECT(vmm_raw_capture_mode(c->driver, &old), VMM_CODE_SUCCESS);
  return old;
}

int conf_end_capture(conf *c, void *stream) {
  void *graph = NULL;
  int code = vmm_raw_stream_end_capture(c->driver, stream, &graph);
  if (graph) EXPECT(vmm_raw_graph_destroy(c->driver, graph), VMM_CODE_SUCCESS);
  return code;
}
