/* One GPU as all regions share it: its context, locks, streams, physical handles, and whether it is lost. */
#ifndef VMM_DEVICE_DEVICE_H
#define VMM_DEVICE_DEVICE_H

#include <stdatomic.h>

#include "base/checked.h"
#include "base/events.h"
#include "base/lock.h"
#include "driver/driver.h"
#include "vmm/vmm.h"

typedef struct vmm__handle vmm__handle;
struct vmm__work;

/* Per driver operation. */
typedef struct vmm__call_counter {
  _Atomic(vmm__u64) count, failures, total_ns, max_ns;
} vmm__call_counter;

/* A stream the device was told of. The handle is touched only while `known`; once forgotten only its last fence is left. */
typedef struct vmm__stream {
  struct vmm__stream *next;
  void *stream;
  void *event;      /* made at registration, so that a fence needs no creation; NULL for a stream only announced */
  bool known;       /* registered by the caller */
  bool capturing;   /* announced */
  vmm_lease *lease; /* of that capture */
  bool fenced;      /* forgotten: `event` is recorded and not yet seen done */
  bool awaited;     /* `event` was recorded by the wait under way; under the structure lock */
} vmm__stream;

/* Whoever owns an address range on the device: a pool. The list serves lookup by address. */
typedef struct vmm__client {
  struct vmm__client *next;
  vmm__u64 base, size;
  void *owner;
  unsigned pins; /* lookups that look at the owner now */
  /* An owner that nobody can name any more: true if it is ended; tries until `deadline`. */
  bool (*end_abandoned)(struct vmm__client *client, vmm__u64 deadline);
  /* A stream is forgotten: what waits for its work records the last fence now. TIMEOUT: it is not. Under the structure
   * lock. */
  vmm_status (*forget_stream)(struct vmm__client *client, struct vmm__work *work, const void *stream);
  /* A capture is announced: whatever it takes to lease memory to one more. Under the structure lock. */
  vmm_status (*prepare_lease)(struct vmm__client *client, struct vmm__work *work);
  /* A lease is over: no graph uses its memory any more; `idle`: nor does anything that is queued. Makes no driver call. */
  void (*end_lease)(struct vmm__client *client, vmm__u64 lease, bool idle);
} vmm__client;

typedef struct vmm__device_counters {
  vmm__u64 handle_count, handle_bytes, handle_bytes_peak; /* held, mapped or idle; not the quarantined ones */
  vmm__u64 idle_count, idle_bytes;
  vmm__u64 created_count, created_bytes, released_count, released_bytes;
  vmm__u64 quarantined_count, quarantined_bytes;
  vmm__u64 retry_count, not_ready_count, not_confirmed_count, quiesce_count, pressure_count;
  vmm__u64 client_count, stream_count;
} vmm__device_counters;

struct vmm_device {
  struct vmm_device *next; /* registry */
  unsigned count;          /* opens; under the registry lock */
  vmm_driver *driver;      /* counted */
  vmm_host_memory memory;
  vmm_device_options options; /* as it was opened */

  /* constant after open */
  int ordinal;
  int raw; /* CUdevice */
  void *context;
  bool owns_primary;
  vmm_device_info info; /* info.sync_policy is the one in force */
  bool detect_captures;
  vmm__u64 deadline_ns, retry_first_ns, retry_max_ns;
  int retry_attempts;
  void *stream;   /* the library's own, non-blocking */
  void *sentinel; /* an event that has finished: querying it tells whether the context lives */

  vmm__lock structure; /* whoever edits address ranges; held across driver calls. Guards the next three */
  void *context_event; /* for context-wide fences */
  void *stream_event;  /* for fences on single streams */
  void *staging;       /* pinned host memory for verify=data, made at its first use */

  vmm__lock lock; /* all below but the atomics */
  vmm__stream *streams;
  vmm__client *clients;
  vmm_lease *leases;
  vmm__u64 lease_count; /* ever made */
  vmm__handle *idle, *quarantined;
  vmm__device_counters counters;
  vmm__u64 limit, idle_limit;
  vmm_pressure_callback pressure;
  void *pressure_data;
  unsigned pressure_running;
  unsigned queueing; /* threads that queue work of the library's on a stream of the caller's now */

  _Atomic(vmm__u64) reserved_bytes;
  atomic_int captures; /* announced; changed under the lock */
  atomic_int lost;     /* 0, or the code that told */
  vmm__events events;
  vmm__call_counter calls[VMM_OP_COUNT];
};

enum { VMM__STAGING_BYTES = 65536 };

/* Codes after which the context answers nothing but errors. */
bool vmm__code_is_sticky(int code);

void vmm__device_set_lost(vmm_device *device, int op, int code);
static inline bool vmm__device_lost(vmm_device *device) {
  return atomic_load_explicit(&device->lost, memory_order_acquire) != 0;
}

vmm__u64 vmm__device_now(vmm_device *device);
void vmm__device_wait(vmm_device *device, vmm__u64 ns);

/* Adds an event with the device's clock; op < 0 for none. */
void vmm__device_event(vmm_device *device, int kind, int op, int code, int attempt, vmm__u64 address, vmm__u64 size,
                       vmm__u64 value);

/* The list of owners of address ranges. `client` is the caller's memory. */
void vmm__device_add_client(vmm_device *device, vmm__client *client);
void vmm__device_remove_client(vmm_device *device, vmm__client *client);

/* Each client once, pinned while it is looked at: NULL gives the first, and each call unpins the one it is given; NULL at
 * the end. Those that come meanwhile are left out. Any number of threads may walk at the same time. */
vmm__client *vmm__device_next_client(vmm_device *device, vmm__client *client);

/* Tells every client that a stream is forgotten. TIMEOUT: not all of them could be told in time, and it may be told again.
 * Under the structure lock. */
vmm_status vmm__device_forget_in_clients(struct vmm__work *work, const void *stream);

/* The owner of the range that holds an address, or NULL. It is not ended while pinned. Remove waits for that: without the
 * structure lock a pin is never held across a driver call or a wait. */
vmm__client *vmm__device_pin_client(vmm_device *device, vmm__u64 address);
void vmm__device_unpin_client(vmm_device *device, vmm__client *client);

#endif
