/* The streams a device was told of, announced captures, and fences: waiting for queued work without a blocking call and
 * without disturbing a capture. */
#ifndef VMM_DEVICE_STREAMS_H
#define VMM_DEVICE_STREAMS_H

#include "device/work.h"

/* Waits before an address range is edited, as the device's policy says. Needs the structure lock and the context. A fence
 * that does not pass by the deadline is TIMEOUT. */
vmm_status vmm__quiesce(vmm__work *work);

/* Waits after a NOT_READY: context-wide, or on the known streams while a capture is announced or if the policy says so.
 * False if the wait failed or the deadline passed; records nothing: the NOT_READY is the error. */
bool vmm__quiesce_after_not_ready(vmm__work *work);

/* Waits for all work of the context, with the structure lock held. CAPTURE while a capture is announced. Where the driver
 * lacks cuCtxRecordEvent it blocks without bound. */
vmm_status vmm__wait_context(vmm__work *work);

/* A fence behind all work queued now, on the home stream and wherever else work on the memory may be: context-wide unless
 * a capture is announced. `event` is the caller's and gets recorded. Needs the context; CAPTURE if no fence can be had
 * without touching a capture. */
vmm_status vmm__fence_record(vmm__work *work, void *event, void *home_stream);

/* Polls an event until it is done: VMM_OK, TIMEOUT or what the query answered (recorded in the work). */
vmm_status vmm__fence_wait(vmm__work *work, void *event);

/* Makes a stream known, as vmm_device_register_stream does. Needs the structure lock and the context. */
vmm_status vmm__stream_register(vmm__work *work, void *stream);

/* Announced captures that have not ended. */
static inline bool vmm__captures_announced(vmm_device *device) {
  return atomic_load_explicit(&device->captures, memory_order_acquire) != 0;
}

/* Whether a stream may be captured: announced, or it has to be asked. */
static inline bool vmm__captures_possible(vmm_device *device) {
  return vmm__captures_announced(device) || device->detect_captures;
}

/* Whether a context-wide call would touch a capture, as far as the library was told, or is to ask: the legacy stream and
 * those that are known. Needs the structure lock and the context. */
bool vmm__context_is_captured(vmm__work *work);

/* With detect_captures: whether the stream takes part in a capture that was not announced. */
bool vmm__captured_unannounced(vmm_device *device, void *stream);

enum { VMM__EVENT_NO_TIMING = 2 }; /* a flag of event-create: events that are fences are asked for no time */

/* A handle that stands for another stream in every thread. */
static inline bool vmm__stream_is_per_thread(const void *stream) { return stream == (void *)(size_t)2; }
/* The legacy stream has two values. */
static inline bool vmm__stream_is_legacy(const void *stream) { return stream == NULL || stream == (void *)(size_t)1; }
static inline bool vmm__stream_is_same(const void *a, const void *b) {
  return a == b || (vmm__stream_is_legacy(a) && vmm__stream_is_legacy(b));
}

/* Records an event on a stream of the caller's, unless that could touch an announced capture: the stream is captured, or
 * was drawn into a capture by an event, or is the legacy stream. *recorded says whether it is a fence now; an event that is
 * none must not be queried. Needs the structure lock and the context. */
vmm_status vmm__stream_record(vmm__work *work, void *event, void *stream, bool *recorded);

/* Around a call that queues work on a stream of the caller's without the structure lock: no capture is announced between
 * the two. CAPTURE if the work would touch an announced one; then there is nothing to end. Needs the context. */
vmm_status vmm__stream_use(vmm__work *work, void *stream);
void vmm__stream_unuse(vmm_device *device);

/* The entry of a stream that is known or announced, or NULL; and the counters of both. Under the device lock. */
vmm__stream *vmm__stream_find(vmm_device *device, const void *stream);
void vmm__streams_count(vmm_device *device, int streams, int captures);

/* The lease of the announced capture that the stream takes part in; 0 if it takes part in none. */
vmm__u64 vmm__stream_lease(vmm_device *device, const void *stream);

/* What an entry of the list says now. */
typedef struct vmm__stream_view {
  void *stream;
  bool named;     /* registered or announced */
  bool fenceable; /* registered and not being captured */
  bool fenced;    /* forgotten; its last fence is recorded */
} vmm__stream_view;

vmm__stream_view vmm__stream_look(vmm_device *device, const vmm__stream *entry);

/* Ends forgotten streams whose last fence has passed. Needs the structure lock and the context. */
void vmm__streams_sweep(vmm__work *work);

/* Forgets leases that nobody released; for close. */
void vmm__leases_close(vmm_device *device);

/* Ends all streams the device still knows; for close. */
void vmm__streams_close(vmm__work *work);

#endif
