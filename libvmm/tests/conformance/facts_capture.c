/* Facts about what may be called while a stream is captured, as a table (CAP-1 to CAP-24): every call in 24 situations.
 * The measured answers are one letter each:
 *   s  SUCCESS                     n  NOT_READY
 *   u  STREAM_CAPTURE_UNSUPPORTED  i  STREAM_CAPTURE_IMPLICIT
 * in capitals if the capture was invalidated, and '.' where nothing was measured. The groups of a row: the captured
 * stream is non-blocking (three groups) or blocking (three); capture mode global, thread-local, relaxed; in each group:
 * called by the capturing thread, the same with its mode exchanged for relaxed, another thread, that one relaxed. */
#include <stdio.h>
#include <string.h>

#include "conformance.h"

typedef struct scene {
  void *captured;
  void *other; /* a non-blocking stream, busy for a while */
  void *event; /* recorded on it; or, with nothing queued, done */
  u64 plain[2];
  conf_range range; /* of the memory calls */
  bool mapped;
  bool exchange; /* the caller makes itself relaxed */
  int code;
  int status; /* of is-capturing */
  int (*call)(conf *c, struct scene *s);
} scene;

static int legacy_is_capturing(conf *c, scene *s) {
  return vmm_raw_stream_is_capturing(c->driver, CONF_STREAM_LEGACY, &s->status);
}

static int per_thread_is_capturing(conf *c, scene *s) {
  return vmm_raw_stream_is_capturing(c->driver, CONF_STREAM_PER_THREAD, &s->status);
}

static int ctx_synchronize(conf *c, scene *s) {
  (void)s;
  return vmm_raw_ctx_synchronize(c->driver);
}

static int stream_synchronize(conf *c, scene *s) { return vmm_raw_stream_synchronize(c->driver, s->other); }

static int stream_query(conf *c, scene *s) { return vmm_raw_stream_query(c->driver, s->other); }

static int event_synchronize(conf *c, scene *s) { return vmm_raw_event_synchronize(c->driver, s->event); }

static int event_query(conf *c, scene *s) { return vmm_raw_event_query(c->driver, s->event); }

static int event_record(conf *c, scene *s) { return vmm_raw_event_record(c->driver, s->event, s->other); }

static void do_nothing(void *data) { (void)data; }

static int launch_host_func(conf *c, scene *s) {
  return vmm_raw_launch_host_func(c->driver, s->other, do_nothing, NULL);
}

static int copy_on_legacy(conf *c, scene *s) {
  return vmm_raw_memcpy_dtod_async(c->driver, s->plain[0], s->plain[1], 4096, NULL);
}

static int mem_free(conf *c, scene *s) {
  int code = vmm_raw_mem_free(c->driver, s->plain[0]);
  if (code == VMM_CODE_SUCCESS) s->plain[0] = 0;
  return code;
}

static int mem_alloc(conf *c, scene *s) { return vmm_raw_mem_alloc(c->driver, &s->range.address, 4096); }

static int stream_create(conf *c, scene *s) {
  void *stream = NULL;
  int code = vmm_raw_stream_create(c->driver, &stream, CONF_BLOCKING);
  s->range.handle = (u64)(uintptr_t)stream;
  return code;
}

static int stream_wait_event(conf *c, scene *s) { return vmm_raw_stream_wait_event(c->driver, s->other, s->event, 0); }

static int mem_create(conf *c, scene *s) {
  vmm_raw_prop prop = conf_prop(c);
  u64 handle = 0;
  (void)s;
  int code = vmm_raw_mem_create(c->driver, &handle, c->granule, &prop, 0);
  return code ? code : vmm_raw_mem_release(c->driver, handle);
}

static int mem_map(conf *c, scene *s) {
  int code = vmm_raw_mem_map(c->driver, s->range.address, s->range.size, 0, s->range.handle, 0);
  s->mapped = s->mapped || code == VMM_CODE_SUCCESS;
  return code;
}

static int mem_set_access(conf *c, scene *s) { return conf_access(c, s->range.address, s->range.size, 3); }

static int mem_unmap(conf *c, scene *s) {
  int code = vmm_raw_mem_unmap(c->driver, s->range.address, s->range.size);
  s->mapped = s->mapped && code != VMM_CODE_SUCCESS;
  return code;
}

static int mem_release(conf *c, scene *s) {
  int code = vmm_raw_mem_release(c->driver, s->range.handle);
  if (code == VMM_CODE_SUCCESS) s->range.handle = 0;
  return code;
}

static int legacy_query(conf *c, scene *s) {
  (void)s;
  return vmm_raw_stream_query(c->driver, NULL);
}

static int mem_reserve(conf *c, scene *s) {
  u64 address = 0;
  (void)s;
  int code = vmm_raw_mem_reserve(c->driver, &address, c->granule, 0, 0, 0);
  return code ? code : vmm_raw_mem_address_free(c->driver, address, c->granule);
}

static int mem_get_info(conf *c, scene *s) {
  size_t bytes = 0, total = 0;
  (void)s;
  return vmm_raw_mem_get_info(c->driver, &bytes, &total);
}

/* ---- one situation ---- */

enum { MEMORY = 1, NEEDS_MAPPED = 2 }; /* kinds of rows: a piece of memory instead of queued work */

static void do_call(conf *c, void *data) {
  scene *s = data;
  int old = s->exchange ? conf_capture_mode(c, 2) : 0;
  s->code = s->call(c, s);
  if (s->exchange) conf_capture_mode(c, old);
}

static bool set_scene(conf *c, scene *s, bool blocking, int kind) {
  EXPECT(vmm_raw_stream_create(c->driver, &s->captured, blocking ? CONF_BLOCKING : CONF_NON_BLOCKING),
         VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_create(c->driver, &s->other, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_create(c->driver, &s->event, 0), VMM_CODE_SUCCESS);
  if (kind & MEMORY) {
    s->range.size = c->granule;
    s->range.address = conf_reserve(c, s->range.size);
    s->range.handle = conf_create(c, s->range.size);
    if (kind & NEEDS_MAPPED) EXPECT(mem_map(c, s), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_event_record(c->driver, s->event, NULL), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  } else {
    EXPECT(vmm_raw_mem_alloc(c->driver, &s->plain[0], 4096), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_mem_alloc(c->driver, &s->plain[1], 4096), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
    conf_spin(c, s->other, 20);
    EXPECT(vmm_raw_event_record(c->driver, s->event, s->other), VMM_CODE_SUCCESS);
  }
  return c->failures == 0;
}

static void clear_scene(conf *c, scene *s, int kind) {
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  if (kind & MEMORY) {
    if (s->mapped) EXPECT(mem_unmap(c, s), VMM_CODE_SUCCESS);
    if (s->range.handle) EXPECT(mem_release(c, s), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_mem_address_free(c->driver, s->range.address, s->range.size), VMM_CODE_SUCCESS);
  } else {
    void *created = (void *)(uintptr_t)s->range.handle;
    if (created) EXPECT(vmm_raw_stream_destroy(c->driver, created), VMM_CODE_SUCCESS);
    if (s->call == mem_alloc && s->range.address) {
      EXPECT(vmm_raw_mem_free(c->driver, s->range.address), VMM_CODE_SUCCESS);
    }
    if (s->plain[0]) EXPECT(vmm_raw_mem_free(c->driver, s->plain[0]), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_mem_free(c->driver, s->plain[1]), VMM_CODE_SUCCESS);
  }
  EXPECT(vmm_raw_event_destroy(c->driver, s->event), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, s->captured), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, s->other), VMM_CODE_SUCCESS);
}

/* The letter of an answer; '?' for one that no row has. */
static char letter_of(int code, int ended) {
  char letter = code == VMM_CODE_SUCCESS                      ? 's'
                : code == VMM_CODE_NOT_READY                  ? 'n'
                : code == VMM_CODE_STREAM_CAPTURE_UNSUPPORTED ? 'u'
                : code == VMM_CODE_STREAM_CAPTURE_IMPLICIT    ? 'i'
                                                              : '?';
  if (ended == VMM_CODE_SUCCESS) return letter;
  return ended == VMM_CODE_STREAM_CAPTURE_INVALIDATED && letter != '?' ? (char)(letter - 'a' + 'A') : '?';
}

static void run_situation(conf *c, int (*call)(conf *, scene *), int kind, int at, char wanted) {
  bool blocking = at >= 12, other = at / 2 % 2;
  int mode = at / 4 % 3;
  static const char *const modes[] = {"global", "thread-local", "relaxed"};
  scene s;
  memset(&s, 0, sizeof s);
  s.call = call;
  s.exchange = at % 2;
  if (set_scene(c, &s, blocking, kind)) {
    EXPECT(vmm_raw_stream_begin_capture(c->driver, s.captured, mode), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_kernel_spin(c->driver, s.captured, 1000), VMM_CODE_SUCCESS);
    if (other) conf_on_thread(c, do_call, &s);
    if (!other) do_call(c, &s);
    int ended = conf_end_capture(c, s.captured);
    char letter = letter_of(s.code, ended);
    if (letter != wanted || (letter == 's' && s.status != 0)) {
      printf("FAIL %s %s:%d expected '%c' got '%c' (%s, end-capture %s, status %d): %s stream, %s, %s thread%s\n",
             c->id, "facts_capture.c", __LINE__, wanted, letter, vmm_code_name(s.code), vmm_code_name(ended), s.status,
             blocking ? "blocking" : "non-blocking", modes[mode], other ? "other" : "same",
             s.exchange ? " relaxed" : "");
      c->failures++;
    }
  }
  clear_scene(c, &s, kind);
}

static void run_row(conf *c, int (*call)(conf *, scene *), int kind, const char *row) {
  int at = 0;
  for (const char *p = row; *p; p++) {
    if (*p == ' ') continue;
    if (*p >= 'A' && *p <= 'Z') conf_expect_misuse(c, VMM_SIM_MISUSE_CAPTURE);
    if (*p != '.') run_situation(c, call, kind, at, *p);
    at++;
  }
  EXPECT_EQ(at, 24);
}

#define CAPTURE_FACT(id, kind, call, row) \
  FACT(id, 0, call##_captured) { run_row(c, call, kind, row); }

/* clang-format off */
/*                                                         non-blocking stream  blocking stream
 *                                                         glob thrd relx  glob thrd relx */
CAPTURE_FACT("CAP-1", 0, legacy_is_capturing,              "ssss ssss ssss iiii iiii iiii")
CAPTURE_FACT("CAP-2", 0, per_thread_is_capturing,          "ssss ssss ssss ssss ssss ssss")
CAPTURE_FACT("CAP-3", 0, ctx_synchronize,                  "UUUU UUUU UUUU UUUU UUUU UUUU")
CAPTURE_FACT("CAP-4", 0, stream_synchronize,               "UsUs Usss ssss UsUs Usss ssss")
CAPTURE_FACT("CAP-5", 0, stream_query,                     "UnUn Unnn nnnn UnUn Unnn nnnn")
CAPTURE_FACT("CAP-6", 0, event_synchronize,                "UsUs Usss ssss UsUs Usss ssss")
CAPTURE_FACT("CAP-7", 0, event_query,                      "UnUn Unnn nnnn UnUn Unnn nnnn")
CAPTURE_FACT("CAP-8", 0, event_record,                     "ssss ssss ssss ssss ssss ssss")
CAPTURE_FACT("CAP-9", 0, launch_host_func,                 "ssss ssss ssss ssss ssss ssss")
CAPTURE_FACT("CAP-10", 0, copy_on_legacy,                  "ssss ssss ssss IIII IIII IIII")
CAPTURE_FACT("CAP-11", 0, mem_free,                        "UsUs Usss ssss UsUs Usss ssss")
CAPTURE_FACT("CAP-12", 0, mem_alloc,                       "UsUs Usss ssss UsUs Usss ssss")
CAPTURE_FACT("CAP-13", 0, stream_create,                   "ssss ssss ssss ssss ssss ssss")
CAPTURE_FACT("CAP-14", 0, stream_wait_event,               "ssss ssss ssss ssss ssss ssss")
CAPTURE_FACT("CAP-15", MEMORY, mem_create,                 "s.s. s.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-16", MEMORY, mem_map,                    "s.s. s.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-17", MEMORY | NEEDS_MAPPED, mem_set_access, "s.s. s.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-18", MEMORY | NEEDS_MAPPED, mem_unmap,   "s.s. s.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-19", MEMORY, mem_release,                "s.s. s.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-20", MEMORY, legacy_query,               "U.U. U.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-21", MEMORY, mem_reserve,                "s.s. s.s. s.s. .... .... ....")
CAPTURE_FACT("CAP-22", MEMORY, mem_get_info,               "s.s. s.s. s.s. .... .... ....")
FACT("CAP-23", 0, done_event_query_captured) { run_row(c, event_query, MEMORY, "U.U. U.s. s.s. .... .... ...."); }
/* clang-format on */
