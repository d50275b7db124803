/* Facts about events and streams (EVT). */
#include "conformance.h"

FACT("EVT-1", 0, context_wide_event) {
  void *stream = NULL, *event = NULL;
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_event_create(c->driver, &event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  conf_spin(c, stream, 300);
  EXPECT(vmm_raw_ctx_record_event(c->driver, c->context, event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_query(c->driver, event), VMM_CODE_NOT_READY);
  EXPECT(vmm_raw_stream_query(c->driver, stream), VMM_CODE_NOT_READY);
  EXPECT(vmm_raw_stream_synchronize(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_synchronize(c->driver, event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_query(c->driver, event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_destroy(c->driver, event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
}

FACT("EVT-2", 0, event_follows_stream) {
  void *first = NULL, *second = NULL, *event = NULL;
  REQUIRE(vmm_raw_stream_create(c->driver, &first, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_stream_create(c->driver, &second, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_event_create(c->driver, &event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  conf_spin(c, first, 200);
  EXPECT(vmm_raw_event_record(c->driver, event, first), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_wait_event(c->driver, second, event, 0), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_query(c->driver, event), VMM_CODE_NOT_READY);
  EXPECT(vmm_raw_stream_query(c->driver, second), VMM_CODE_NOT_READY);
  EXPECT(vmm_raw_stream_synchronize(c->driver, second), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_query(c->driver, event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_query(c->driver, first), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_destroy(c->driver, event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, first), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, second), VMM_CODE_SUCCESS);
}

static void *make_dead_stream(conf *c) {
  void *stream = NULL;
  EXPECT(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
  conf_expect_misuse(c, VMM_SIM_MISUSE_DEAD_STREAM);
  return stream;
}

FACT("EVT-3", CONF_CHILD | CONF_SEGFAULTS | CONF_STRICTER, record_on_dead_stream) {
  void *event = NULL, *dead;
  EXPECT(vmm_raw_event_create(c->driver, &event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  dead = make_dead_stream(c);
  EXPECT(vmm_raw_event_record(c->driver, event, dead), VMM_CODE_INVALID_HANDLE);
  EXPECT(vmm_raw_event_destroy(c->driver, event), VMM_CODE_SUCCESS);
}

FACT("EVT-4", CONF_CHILD | CONF_SEGFAULTS | CONF_STRICTER, query_dead_stream) {
  EXPECT(vmm_raw_stream_query(c->driver, make_dead_stream(c)), VMM_CODE_INVALID_HANDLE);
}

FACT("EVT-5", CONF_CHILD | CONF_SEGFAULTS | CONF_STRICTER, id_of_dead_stream) {
  u64 id = 0;
  EXPECT(vmm_raw_stream_get_id(c->driver, make_dead_stream(c), &id), VMM_CODE_INVALID_HANDLE);
}

FACT("EVT-6", 0, stream_handle_reused) {
  void *first = NULL, *second = NULL;
  REQUIRE(vmm_raw_stream_create(c->driver, &first, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  conf_spin(c, first, 100);
  EXPECT(vmm_raw_stream_destroy(c->driver, first), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_stream_create(c->driver, &second, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT_TRUE(second == first);
  EXPECT(vmm_raw_stream_destroy(c->driver, second), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
}

static void read_id(conf *c, void *data) {
  EXPECT(vmm_raw_stream_get_id(c->driver, CONF_STREAM_PER_THREAD, data), VMM_CODE_SUCCESS);
}

FACT("EVT-7", 0, per_thread_stream_ids) {
  u64 here = 0, again = 0, there = 0;
  read_id(c, &here);
  conf_on_thread(c, read_id, &there);
  read_id(c, &again);
  EXPECT_TRUE(here != there);
  EXPECT_EQ(here, again);
}
