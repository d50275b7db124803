/* Facts about memory without access (TCH) and about a context that is lost (LOST). */
#include <string.h>

#include "conformance.h"

/* Two granules of address space; with `mapped`, memory in them, but no access. And plain memory beside. */
static u64 prepare(conf *c, bool mapped, conf_range *r) {
  u64 plain = 0;
  r->size = 2 * c->granule;
  r->handle = 0;
  if (mapped ? !conf_make(c, r, r->size, 0) : !(r->address = conf_reserve(c, r->size))) return 0;
  return EXPECT(vmm_raw_mem_alloc(c->driver, &plain, 4096), VMM_CODE_SUCCESS) ? plain : 0;
}

static void touched_by_kernel(conf *c, bool mapped) {
  conf_range r;
  u64 plain = prepare(c, mapped, &r), more = 0;
  if (!plain) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_TOUCH);
  EXPECT(vmm_raw_kernel_sum(c->driver, NULL, r.address, 4096, plain), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_ILLEGAL_ADDRESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_ILLEGAL_ADDRESS);
  EXPECT(vmm_raw_mem_alloc(c->driver, &more, 4096), VMM_CODE_ILLEGAL_ADDRESS);
}

FACT("TCH-1", CONF_CHILD | CONF_LEAVES, kernel_without_access) { touched_by_kernel(c, true); }

FACT("TCH-2", CONF_CHILD | CONF_LEAVES, kernel_without_memory) { touched_by_kernel(c, false); }

/* The call is refused and the context lives. */
static void finish(conf *c, conf_range *r, u64 plain) {
  u64 more = 0;
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  if (EXPECT(vmm_raw_mem_alloc(c->driver, &more, 4096), VMM_CODE_SUCCESS)) {
    EXPECT(vmm_raw_mem_free(c->driver, more), VMM_CODE_SUCCESS);
  }
  EXPECT(vmm_raw_mem_free(c->driver, plain), VMM_CODE_SUCCESS);
  conf_unmake(c, r);
}

FACT("TCH-3", 0, copy_to_host_without_access) {
  conf_range r;
  unsigned char buffer[64];
  u64 plain = prepare(c, true, &r);
  if (!plain) return;
  memset(buffer, CONF_POISON_BYTE, sizeof buffer);
  EXPECT(vmm_raw_memcpy_dtoh(c->driver, buffer, r.address, sizeof buffer), VMM_CODE_INVALID_VALUE);
  for (size_t i = 0; i < sizeof buffer; i++) EXPECT_EQ(buffer[i], CONF_POISON_BYTE);
  finish(c, &r, plain);
}

FACT("TCH-4", 0, copy_without_access) {
  conf_range r;
  u64 plain = prepare(c, true, &r);
  if (!plain) return;
  EXPECT(vmm_raw_memcpy_dtod_async(c->driver, plain, r.address, 64, NULL), VMM_CODE_INVALID_VALUE);
  finish(c, &r, plain);
}

FACT("TCH-5", 0, memset_without_access) {
  conf_range r;
  u64 plain = prepare(c, true, &r);
  if (!plain) return;
  EXPECT(vmm_raw_memset_d8_async(c->driver, r.address, 1, 64, NULL), VMM_CODE_INVALID_VALUE);
  finish(c, &r, plain);
}

/* ---- after a kernel trap ---- */

/* A stream and an event that is done; then a trap on `stream`, and the time to run into it. */
typedef struct lost {
  void *stream;
  void *other;
  void *event;
} lost;

static bool lose(conf *c, lost *l) {
  memset(l, 0, sizeof *l);
  EXPECT(vmm_raw_stream_create(c->driver, &l->stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_create(c->driver, &l->other, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_create(c->driver, &l->event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_record(c->driver, l->event, l->other), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_query(c->driver, l->event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_kernel_trap(c->driver, l->stream), VMM_CODE_SUCCESS);
  conf_wait(c, 200);
  return c->failures == 0;
}

FACT("LOST-1", CONF_CHILD | CONF_LEAVES, lost_memory_calls) {
  conf_range r;
  lost l;
  u64 flags, handle = 0, address = 0;
  size_t bytes = 0, total = 0;
  int value = 0;
  vmm_raw_prop prop = conf_prop(c);
  if (!conf_make(c, &r, c->granule, 0) || !lose(c, &l)) return;
  EXPECT(vmm_raw_device_attribute(c->driver, &value, 102, c->device), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_reserve(c->driver, &address, c->granule, 0, 0, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_create(c->driver, &handle, c->granule, &prop, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_map(c->driver, address, c->granule, 0, handle, 0), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, r.address, r.size, 3), VMM_CODE_SUCCESS);
  EXPECT(conf_get_access(c, r.address, &flags), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_unmap(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_get_info(c->driver, &bytes, &total), VMM_CODE_SUCCESS);
}

FACT("LOST-2", CONF_CHILD | CONF_LEAVES, lost_is_told) {
  lost l;
  u64 plain = 0, handle = 0;
  vmm_raw_prop prop = conf_prop(c);
  if (!lose(c, &l)) return;
  EXPECT(vmm_raw_stream_query(c->driver, NULL), VMM_CODE_LAUNCH_FAILED);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_LAUNCH_FAILED);
  EXPECT(vmm_raw_mem_create(c->driver, &handle, c->granule, &prop, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_alloc(c->driver, &plain, 4096), VMM_CODE_LAUNCH_FAILED);
}

FACT("LOST-3", CONF_CHILD | CONF_LEAVES, lost_sentinel) {
  lost l;
  if (!lose(c, &l)) return;
  EXPECT(vmm_raw_event_query(c->driver, l.event), VMM_CODE_LAUNCH_FAILED);
  EXPECT(vmm_raw_event_query(c->driver, l.event), VMM_CODE_LAUNCH_FAILED);
}

FACT("LOST-4", CONF_CHILD | CONF_LEAVES, lost_is_not_told) {
  lost l;
  void *event = NULL;
  u64 plain = 0;
  int status = -1;
  if (!EXPECT(vmm_raw_mem_alloc(c->driver, &plain, 4096), VMM_CODE_SUCCESS) || !lose(c, &l)) return;
  EXPECT(vmm_raw_stream_is_capturing(c->driver, CONF_STREAM_LEGACY, &status), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_is_capturing(c->driver, l.stream, &status), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_record(c->driver, l.event, l.stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_wait_event(c->driver, l.stream, l.event, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_create(c->driver, &event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_record_event(c->driver, c->context, l.event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_memset_d8_async(c->driver, plain, 0, 8, l.stream), VMM_CODE_SUCCESS);
}
