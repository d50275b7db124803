/* Facts about events and captures (CAP-30 and on): which fences join a capture, and which end it. In all of them
 * another thread acts, with its own mode exchanged for relaxed, as a memory pool does. */
#include <string.h>

#include "conformance.h"

typedef struct scene {
  void *captured;
  void *other;
  void *event;
  int codes[3];
  int status;
} scene;

static bool set_scene(conf *c, scene *s) {
  memset(s, 0, sizeof *s);
  EXPECT(vmm_raw_stream_create(c->driver, &s->captured, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_create(c->driver, &s->other, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_create(c->driver, &s->event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  return c->failures == 0;
}

static void begin(conf *c, scene *s, int mode) {
  EXPECT(vmm_raw_stream_begin_capture(c->driver, s->captured, mode), VMM_CODE_SUCCESS);
}

static void clear_scene(conf *c, scene *s) {
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_destroy(c->driver, s->event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, s->captured), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, s->other), VMM_CODE_SUCCESS);
}

static void record_context(conf *c, void *data) {
  scene *s = data;
  conf_capture_mode(c, 2);
  s->codes[0] = vmm_raw_ctx_record_event(c->driver, c->context, s->event);
}

FACT("CAP-30", 0, context_event_in_capture) {
  for (int mode = 0; mode < 3; mode++) {
    scene s;
    if (!set_scene(c, &s)) return;
    conf_expect_misuse(c, VMM_SIM_MISUSE_CAPTURE);
    begin(c, &s, mode);
    conf_on_thread(c, record_context, &s);
    EXPECT(s.codes[0], VMM_CODE_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT(conf_end_capture(c, s.captured), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
    clear_scene(c, &s);
  }
}

static void record_and_query(conf *c, void *data) {
  scene *s = data;
  conf_capture_mode(c, 2);
  s->codes[0] = vmm_raw_event_record(c->driver, s->event, s->captured);
  s->codes[1] = vmm_raw_event_query(c->driver, s->event);
}

FACT("CAP-31", 0, captured_event_queried) {
  scene s;
  if (!set_scene(c, &s)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_CAPTURE);
  begin(c, &s, 2);
  conf_on_thread(c, record_and_query, &s);
  EXPECT(s.codes[0], VMM_CODE_SUCCESS);
  EXPECT(s.codes[1], VMM_CODE_CAPTURED_EVENT);
  EXPECT(conf_end_capture(c, s.captured), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
  clear_scene(c, &s);
}

static void record_and_wait(conf *c, void *data) {
  scene *s = data;
  conf_capture_mode(c, 2);
  s->codes[0] = vmm_raw_event_record(c->driver, s->event, s->captured);
  s->codes[1] = vmm_raw_stream_wait_event(c->driver, s->other, s->event, 0);
  s->codes[2] = vmm_raw_stream_is_capturing(c->driver, s->other, &s->status);
}

FACT("CAP-32", 0, waiting_stream_is_drawn_in) {
  scene s;
  if (!set_scene(c, &s)) return;
  begin(c, &s, 2);
  conf_on_thread(c, record_and_wait, &s);
  EXPECT(s.codes[0], VMM_CODE_SUCCESS);
  EXPECT(s.codes[1], VMM_CODE_SUCCESS);
  EXPECT(s.codes[2], VMM_CODE_SUCCESS);
  EXPECT_EQ(s.status, 1);
  /* How a capture ends whose second stream was never joined was not measured, only that it ends. */
  conf_end_capture(c, s.captured);
  EXPECT(vmm_raw_stream_is_capturing(c->driver, s.captured, &s.status), VMM_CODE_SUCCESS);
  EXPECT_EQ(s.status, 0);
  clear_scene(c, &s);
}

static void query_captured(conf *c, void *data) {
  scene *s = data;
  conf_capture_mode(c, 2);
  s->codes[0] = vmm_raw_stream_query(c->driver, s->captured);
}

FACT("CAP-33", 0, captured_stream_queried) {
  scene s;
  if (!set_scene(c, &s)) return;
  conf_expect_misuse(c, VMM_SIM_MISUSE_CAPTURE);
  begin(c, &s, 2);
  conf_on_thread(c, query_captured, &s);
  EXPECT(s.codes[0], VMM_CODE_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT(conf_end_capture(c, s.captured), VMM_CODE_STREAM_CAPTURE_INVALIDATED);
  clear_scene(c, &s);
}

static void query_event(conf *c, void *data) {
  scene *s = data;
  conf_capture_mode(c, 2);
  s->codes[0] = vmm_raw_event_query(c->driver, s->event);
}

FACT("CAP-34", 0, earlier_event_queried) {
  scene s;
  if (!set_scene(c, &s)) return;
  EXPECT(vmm_raw_event_record(c->driver, s.event, s.captured), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_synchronize(c->driver, s.captured), VMM_CODE_SUCCESS);
  begin(c, &s, 2);
  conf_on_thread(c, query_event, &s);
  EXPECT(s.codes[0], VMM_CODE_SUCCESS);
  EXPECT(conf_end_capture(c, s.captured), VMM_CODE_SUCCESS);
  clear_scene(c, &s);
}

static void wait_for_outside(conf *c, unsigned int flags, int wanted, int ended) {
  scene s;
  if (!set_scene(c, &s)) return;
  EXPECT(vmm_raw_event_record(c->driver, s.event, s.other), VMM_CODE_SUCCESS);
  begin(c, &s, 2);
  EXPECT(vmm_raw_stream_wait_event(c->driver, s.captured, s.event, flags), wanted);
  EXPECT(conf_end_capture(c, s.captured), ended);
  clear_scene(c, &s);
}

FACT("CAP-35", 0, captured_stream_waits) {
  conf_expect_misuse(c, VMM_SIM_MISUSE_CAPTURE);
  wait_for_outside(c, 0, VMM_CODE_STREAM_CAPTURE_ISOLATION, VMM_CODE_STREAM_CAPTURE_INVALIDATED);
}

FACT("CAP-36", 0, captured_stream_waits_external) { wait_for_outside(c, 1, VMM_CODE_SUCCESS, VMM_CODE_SUCCESS); }

FACT("CAP-37", 0, capture_mode_exchanged) {
  EXPECT_EQ(conf_capture_mode(c, 2), 0);
  EXPECT_EQ(conf_capture_mode(c, 1), 2);
  EXPECT_EQ(conf_capture_mode(c, 0), 1);
}

static void ask_captured(conf *c, void *data) {
  scene *s = data;
  conf_capture_mode(c, s->status); /* what it is to be for this question */
  s->codes[0] = vmm_raw_stream_is_capturing(c->driver, s->captured, &s->status);
}

FACT("CAP-38", 0, captured_stream_asked) {
  for (int mode = 0; mode < 3; mode++) {
    for (int own = 0; own < 3; own++) {
      scene s;
      if (!set_scene(c, &s)) return;
      begin(c, &s, mode);
      s.status = own;
      conf_on_thread(c, ask_captured, &s);
      EXPECT(s.codes[0], VMM_CODE_SUCCESS);
      EXPECT_EQ(s.status, 1);
      s.status = 0;
      EXPECT(vmm_raw_stream_is_capturing(c->driver, s.captured, &s.status), VMM_CODE_SUCCESS);
      EXPECT_EQ(s.status, 1);
      EXPECT(conf_end_capture(c, s.captured), VMM_CODE_SUCCESS);
      clear_scene(c, &s);
    }
  }
}
