/* libvmm: a device, and what all pools of it share: sync policy, retries, limits, streams, captures, events. Conventions:
 * vmm/vmm.h. */
#ifndef VMM_DEVICE_H
#define VMM_DEVICE_H

#include "vmm/error.h"

#ifndef VMM_CDEF
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* Where the library gets its own (host) memory. `allocate` returns zero-filled or not, aligned for any type, or NULL;
 * `release` gets the size that was asked for. Both may be called from any thread, never while a pool lock is held.
 * Neither may call the library. The table and what `data` points to must outlive every object made with it. */
typedef struct vmm_host_memory {
  size_t struct_size;
  void *(*allocate)(void *data, size_t size);
  void (*release)(void *data, void *pointer, size_t size);
  void *data;
} vmm_host_memory;

typedef struct vmm_driver vmm_driver; /* vmm/driver.h */
typedef struct vmm_device vmm_device;
typedef struct vmm_pool vmm_pool;
typedef struct vmm_lease vmm_lease;

/* What is waited for before the address range is edited, in the growth branch only. */
typedef enum vmm_sync_policy {
  VMM_SYNC_AUTO = 0,     /* DEVICE where the platform is WSL2/WDDM, ON_DEMAND elsewhere */
  VMM_SYNC_DEVICE = 1,   /* a context-wide fence of the owning device */
  VMM_SYNC_STREAMS = 2,  /* fences on the streams the device was told of */
  VMM_SYNC_ON_DEMAND = 3 /* nothing, unless the driver answers NOT_READY */
} vmm_sync_policy;

/* Memory is short: give back what you can. Called with no lock held and the attempt fully undone. Free and trim of any
 * pool are allowed in it; whatever would grow a pool is answered VMM_ERROR_BUSY. Returns bytes it believes it freed,
 * 0 for none (the ladder goes on either way), or a negative number: the request then fails with VMM_ERROR_CALLBACK. */
typedef long long (*vmm_pressure_callback)(void *data, vmm_device *device, unsigned long long size);

/* What to do where the device has no virtual memory management (vGPU, Tegra, some containers). */
typedef enum vmm_fallback {
  VMM_FALLBACK_NEVER = 0,   /* opening it is answered UNSUPPORTED */
  VMM_FALLBACK_ALLOWED = 1, /* pools take plain allocations (cuMemAlloc) there; vmm_device_info.fallback says so. Each
                               growth is an allocation of its own, of whole 2 MiB: a pool does not grow in place, no block
                               spans two, and one goes back when nothing in it is live. No peers; giving back makes
                               the driver wait for the device */
  VMM_FALLBACK_ALWAYS = 2   /* the same, also where the device has it */
} vmm_fallback;

typedef struct vmm_device_options {
  size_t struct_size;
  vmm_driver *driver;                /* NULL: the CUDA driver of this machine */
  void *context;                     /* a CUcontext the caller keeps alive; NULL: the primary context is retained */
  int sync_policy;                   /* vmm_sync_policy */
  int retry_attempts;                /* attempts at a step the driver answers NOT_READY; 0: 10 */
  unsigned long long retry_first_ns; /* first back-off; 0: 50 us, doubling */
  unsigned long long retry_max_ns;   /* longest back-off; 0: 50 ms */
  unsigned long long deadline_ns;    /* bound on one public call that may grow or wait; 0: 1 s */
  unsigned long long limit;          /* bytes of physical memory over all pools of the device; 0: none */
  unsigned long long idle_limit;     /* bytes of unmapped handles kept for reuse; 0: none */
  vmm_pressure_callback pressure;    /* or NULL */
  void *pressure_data;
  const vmm_host_memory *host_memory; /* NULL: malloc and free */
  /* 1: streams are asked whether they are captured, on each alloc and free and before context-wide calls, so that captures
   * nobody announced are noticed. Allocations on such a stream are answered CAPTURE, and blocks freed on one stay until the
   * pool is destroyed by force. The context is left alone as far as that can be asked: while a blocking stream is captured, or
   * one that is registered or that a pool with lazy events has met. */
  int detect_captures;
  int fallback; /* vmm_fallback */
} vmm_device_options;

/* Zeroes *options and sets its struct_size. VMM_ERROR_VERSION if `size` is smaller than the first version of the struct
 * or unreasonably large, VMM_ERROR_INVALID_ARGUMENT if options is NULL. No driver call, any thread. */
VMM_API vmm_status vmm_device_options_init(vmm_device_options *options, size_t size);

/* Opens GPU `ordinal` (CUDA's numbering) on a driver and binds a context to it. Opening the same ordinal, driver and
 * context again gives the same device and counts; `options` must then be NULL or equal.
 * Status: INVALID_ARGUMENT (ordinal, context of another device, other options than those it is open with), VERSION,
 * OUT_OF_HOST_MEMORY, NO_DRIVER, UNSUPPORTED (no virtual memory management on this device; the message says why),
 * OUT_OF_DEVICE_MEMORY, DEVICE_LOST, DRIVER, FORKED. After failure *device is NULL and nothing is held.
 * May call the driver. Any thread. */
VMM_API vmm_status vmm_device_open(vmm_device **device, int ordinal, const vmm_device_options *options,
                                   vmm_error *error);

/* Takes one count away; the last one gives back the idle handles, the events and the context.
 * Status: INVALID_ARGUMENT (NULL), BUSY (this is the last count, and pools still stand on it or captures are announced;
 * vmm_error.size is how many), TIMEOUT, FORKED, or what the driver answered to giving memory back (then the device stays
 * open and close can be called again), PARTIAL (the device is closed, but an event, stream or context could not be given
 * back; that is never tried twice, since a second try would crash if the first was done after all). On a lost device
 * without pools it always succeeds. May call the driver. Any thread, but not while another thread uses its last
 * reference. Opening and closing wait for each other without a deadline, over all devices of the process. */
VMM_API vmm_status vmm_device_close(vmm_device *device, vmm_error *error);

/* Tells the device of a stream that work on its memory is queued on. Needed for VMM_SYNC_STREAMS, and for waits while a
 * capture is announced. The stream must stay alive until vmm_device_forget_stream. Registering twice counts once.
 * Status: INVALID_ARGUMENT (NULL device, the per-thread default stream), OUT_OF_HOST_MEMORY, TIMEOUT, DEVICE_LOST, DRIVER,
 * FORKED. After failure the stream is not known. */
VMM_API vmm_status vmm_device_register_stream(vmm_device *device, void *stream, vmm_error *error);

/* Forgets a stream; its last fence is recorded first, so work it had queued is still waited for. The handle is never
 * touched again. Status: INVALID_ARGUMENT (not registered), CAPTURE (it takes part in a known capture), TIMEOUT,
 * FORKED: then it is still registered. Forgotten even if recording fails: a context-wide fence stands in, where one can be
 * had. May call the driver. */
VMM_API vmm_status vmm_device_forget_stream(vmm_device *device, void *stream, vmm_error *error);

typedef enum vmm_capture_end {
  VMM_CAPTURE_COMMITTED = 0, /* the graph is kept */
  VMM_CAPTURE_ABORTED = 1    /* the capture was given up */
} vmm_capture_end;

/* Announces that `stream` is about to be captured; call it before cuStreamBeginCapture. Until it is ended, no
 * context-wide call is made on the device, and neither the capturing stream, nor one that an event draws into the
 * capture, nor the legacy stream is touched, so no announced capture is invalidated. Captures that are not announced are
 * outside the promise. Waits for a growth or scrub in progress.
 * Status: INVALID_ARGUMENT (the legacy stream cannot be captured; the per-thread one is another in every thread), BUSY
 * (already announced), OUT_OF_HOST_MEMORY, UNSUPPORTED (a pool of the device cannot hold more leases: about a thousand,
 * less two for each stream that uses it), TIMEOUT, DEVICE_LOST, FORKED. After failure nothing is announced. May call the
 * driver. */
VMM_API vmm_status vmm_device_capture_begin(vmm_device *device, void *stream, vmm_error *error);

/* Ends an announced capture; call it after cuStreamEndCapture. `how` is a vmm_capture_end.
 * What was allocated or freed on the stream meanwhile, in all pools of the device, belongs to the capture's lease: a graph
 * uses those addresses each time it is launched. Such memory is reused within the capture only, and is neither trimmed nor
 * moved until the lease is released. *lease: to be released when the graph is gone; NULL after VMM_CAPTURE_ABORTED, which ends
 * the lease at once. Where `lease` is NULL the lease lasts as long as each pool. A
 * stream that an event draws into the capture is announced too if memory is allocated or freed on it.
 * Status: INVALID_ARGUMENT (not announced, unknown `how`), FORKED. No driver call. */
VMM_API vmm_status vmm_device_capture_end(vmm_device *device, void *stream, int how, vmm_lease **lease,
                                          vmm_error *error);

/* The graph is gone: no further launch of it is to come. What it used is free for others once all work queued on the
 * context so far is done; blocks of it that still live become blocks like others. What that takes cannot be recorded while
 * captures are announced: it is made up for at the first moment at which none is. Ends the lease, before its device is
 * closed. Status: INVALID_ARGUMENT (NULL), FORKED. No driver call. */
VMM_API vmm_status vmm_lease_release(vmm_lease *lease, vmm_error *error);

/* The same, and the caller vouches that nothing which is queued or running uses what was allocated or freed in the capture:
 * no launch of the graph, no work from before it. It is free for others at once, whatever captures are announced. */
VMM_API vmm_status vmm_lease_release_idle(vmm_lease *lease, vmm_error *error);

/* Sets the bytes of physical memory that all pools of the device may hold together; 0: no limit. A limit below what is
 * held now only stops growth. Status: INVALID_ARGUMENT, FORKED. No driver call. */
VMM_API vmm_status vmm_device_set_limit(vmm_device *device, unsigned long long limit, vmm_error *error);

/* Sets or clears (NULL) the pressure callback. A call of the old one that is under way is waited for, except when called
 * from inside it. Status: INVALID_ARGUMENT, TIMEOUT (the new one is set, but the old one is still running), FORKED. No
 * driver call. */
VMM_API vmm_status vmm_device_set_pressure(vmm_device *device, vmm_pressure_callback pressure, void *data,
                                           vmm_error *error);

/* Gives idle (unmapped) handles back to the driver until at most `keep` bytes of them are left, and tries the undo of
 * quarantined handles again. *done: bytes given back (may be NULL). Status: INVALID_ARGUMENT, TIMEOUT, FORKED, PARTIAL,
 * or what the driver answered. Each handle is given back or stays whole. May call the driver. */
VMM_API vmm_status vmm_device_trim(vmm_device *device, unsigned long long keep, unsigned long long *done,
                                   vmm_error *error);

typedef struct vmm_device_info {
  size_t struct_size;
  int ordinal;
  int driver_version;             /* e.g. 13000 */
  int sync_policy;                /* the policy in force, never AUTO */
  int wsl;                        /* 1: WSL2/WDDM was recognised */
  int lost;                       /* 1: the context is dead */
  int context_fence;              /* 1: cuCtxRecordEvent is there; 0: cuCtxSynchronize stands in, unbounded */
  int fallback;                   /* 1: pools take plain allocations, see vmm_fallback */
  int reserved;                   /* zero */
  unsigned long long granularity; /* what mappings are rounded to: the recommended granularity */
  unsigned long long minimum_granularity;
  unsigned long long total_bytes; /* device memory */
  char name[96];
  char driver_name[32]; /* "cuda", "sim", "fault(sim)", "record(fault(cuda))", ... */
} vmm_device_info;

/* Fills *info up to info->struct_size (set it before). Status: INVALID_ARGUMENT, VERSION, FORKED. No driver call. */
VMM_API vmm_status vmm_device_get_info(vmm_device *device, vmm_device_info *info, vmm_error *error);

typedef struct vmm_device_stats {
  size_t struct_size;
  unsigned long long handle_count; /* physical handles held, mapped and idle (quarantined ones apart) */
  unsigned long long handle_bytes;
  unsigned long long handle_bytes_peak;
  unsigned long long idle_count; /* of those, unmapped and kept for reuse */
  unsigned long long idle_bytes;
  unsigned long long reserved_bytes; /* address space held reserved */
  unsigned long long limit;
  unsigned long long created_count; /* handles ever created */
  unsigned long long created_bytes;
  unsigned long long released_count;
  unsigned long long released_bytes;
  unsigned long long quarantined_count; /* handles and address ranges whose giving back failed */
  unsigned long long quarantined_bytes;
  unsigned long long retry_count;         /* steps tried again */
  unsigned long long not_ready_count;     /* NOT_READY answers seen */
  unsigned long long not_confirmed_count; /* "success" that get-access denied */
  unsigned long long quiesce_count;       /* context-wide or stream waits made */
  unsigned long long pressure_count;      /* pressure callbacks made */
  unsigned long long pool_count;
  unsigned long long stream_count;  /* registered streams */
  unsigned long long capture_count; /* captures announced now */
} vmm_device_stats;

/* Fills *stats up to stats->struct_size. Status: INVALID_ARGUMENT, VERSION, FORKED. No driver call. */
VMM_API vmm_status vmm_device_get_stats(vmm_device *device, vmm_device_stats *stats, vmm_error *error);

typedef struct vmm_call_stats {
  char call[40]; /* driver symbol */
  unsigned long long count;
  unsigned long long failures; /* answers other than 0; a NOT_READY of a poll is none */
  unsigned long long total_ns;
  unsigned long long max_ns;
} vmm_call_stats;

/* Copies one entry per driver call the device ever made, into the caller's array. *count: entries there are (may exceed
 * `capacity`; the first `capacity` are written). array may be NULL with capacity 0. Status: INVALID_ARGUMENT, FORKED. */
VMM_API vmm_status vmm_device_get_calls(vmm_device *device, vmm_call_stats *array, size_t capacity, size_t *count,
                                        vmm_error *error);

typedef enum vmm_event_kind {
  VMM_EVENT_CALL_FAILED = 1,   /* a driver call answered an error: op, code, attempt, address, size */
  VMM_EVENT_RETRY = 2,         /* a step is tried again: op, code, attempt, value = back-off ns */
  VMM_EVENT_GROWTH = 3,        /* a growth was published: address, size, value = ns */
  VMM_EVENT_GROWTH_FAILED = 4, /* a growth was undone: size, code */
  VMM_EVENT_TRIM = 5,          /* mappings were given back: size, value = ns */
  VMM_EVENT_QUARANTINE = 6,    /* something could not be undone: address, size, code */
  VMM_EVENT_RECOVERED = 7,     /* ... and now was: address, size */
  VMM_EVENT_QUIESCE = 8,       /* a wait before the address range is edited: value = ns */
  VMM_EVENT_PRESSURE = 9,      /* pressure callback: size = asked, value = said freed */
  VMM_EVENT_LOST = 10          /* the device was lost: op, code */
} vmm_event_kind;

typedef struct vmm_event {
  unsigned long long sequence; /* 1, 2, 3, ...: a gap means the ring wrapped */
  unsigned long long time_ns;  /* the driver's clock */
  unsigned long long address;
  unsigned long long size;
  unsigned long long value;
  int kind; /* vmm_event_kind */
  int code; /* raw CUresult */
  int attempt;
  int reserved;
  char call[40];
} vmm_event;

/* Copies the latest events (at most the ring's 256), oldest first, that have a sequence above `after`. *count: entries
 * written. Status: INVALID_ARGUMENT, FORKED. No driver call; takes no lock a growth holds. */
VMM_API vmm_status vmm_device_get_events(vmm_device *device, unsigned long long after, vmm_event *array,
                                         size_t capacity, size_t *count, vmm_error *error);

#ifndef VMM_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
