/* libvmm: GPU memory that grows in place and is never handed out unless it is really there.
 *
 * This header is stable per major version. It is also the single source of the Python binding: preprocessed with
 * VMM_CDEF defined it is plain declarations, so there are no inline functions, no varargs and no bit-fields here.
 *
 * Conventions, once for all functions:
 *  - Every fallible function returns a vmm_status and takes a trailing vmm_error pointer, which may be NULL. Nothing is
 *    thread-local or global. On VMM_OK the error struct is not written.
 *  - A call that fails leaves live blocks, their bytes, addresses and accounting, the caller's current context, its
 *    capture mode and every announced capture as they were. Idle capacity or cached handles may have been given back;
 *    vmm_error.gave_back says how many bytes.
 *  - `address` is a device address (CUdeviceptr) as unsigned long long, a stream is a CUstream as void *: 0 and 1 are
 *    the legacy default stream, 2 the per-thread one. Sizes are bytes.
 *  - Options structs start with struct_size and are filled by vmm_x_options_init(&o, sizeof o); zero means default,
 *    trailing bytes this version does not know must be zero. Outputs with a struct_size write min(size) bytes and zero
 *    the rest.
 *  - Any thread may call any function at any time, with any or no context current. A forked child is answered
 *    VMM_ERROR_FORKED before any lock is taken or driver call made.
 */
#ifndef VMM_VMM_H
#define VMM_VMM_H

#ifndef VMM_CDEF
#include <stddef.h>
#if defined(__GNUC__)
#define VMM_API __attribute__((visibility("default")))
#else
#define VMM_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
#else
#define VMM_API
#endif

/* ---- status and error ---------------------------------------------------------------------------------------- */

typedef enum vmm_status {
  VMM_OK = 0,
  VMM_ERROR_INVALID_ARGUMENT = 1,     /* refused before anything changed */
  VMM_ERROR_OUT_OF_HOST_MEMORY = 2,   /* the host allocator said no */
  VMM_ERROR_OUT_OF_DEVICE_MEMORY = 3, /* the driver has no physical memory left, after every rung of the ladder */
  VMM_ERROR_OUT_OF_ADDRESS_SPACE = 4, /* no address range: the reservation is full or was refused */
  VMM_ERROR_MAPPING_LIMIT = 5,        /* the driver has no room for another mapping */
  VMM_ERROR_LIMIT = 6,                /* the caller's own limit (of the pool or of the device) */
  VMM_ERROR_NOT_READY = 7,            /* the driver said NOT_READY until the retry budget was spent; all undone */
  VMM_ERROR_NOT_CONFIRMED = 8,        /* the driver said success but get-access denied it; all undone */
  VMM_ERROR_CAPTURE = 9,              /* a stream capture forbids the call */
  VMM_ERROR_UNKNOWN_ADDRESS = 10,     /* not the address of a live block of this pool */
  VMM_ERROR_BUSY = 11,                /* live blocks, pools or captures stand in the way, or no growth is allowed */
  VMM_ERROR_TIMEOUT = 12,             /* the deadline passed while waiting for a lock or a fence */
  VMM_ERROR_PARTIAL = 13,             /* some of it was done; the output says how much */
  VMM_ERROR_UNSUPPORTED = 14,         /* the device or the driver cannot do this */
  VMM_ERROR_NO_DRIVER = 15,           /* no usable CUDA driver on this machine */
  VMM_ERROR_DRIVER = 16,              /* any other driver code; vmm_error.code is the raw CUresult */
  VMM_ERROR_DEVICE_LOST = 17,         /* the context is dead; only teardown goes on */
  VMM_ERROR_FORKED = 18,              /* this process is a forked child of the one that used the library */
  VMM_ERROR_CALLBACK = 19,            /* a callback of the caller's failed */
  VMM_ERROR_VERSION = 20,             /* a struct of a size or content this version does not know */
  VMM_ERROR_BROKEN = 21               /* vmm_pool_check: an invariant does not hold; a bug of the library's */
} vmm_status;

/* What failed, in what state things are, what to do. One frozen struct: its layout never changes. Numbers that are not
 * known are 0; `device` is -1 where no device is meant. */
typedef struct vmm_error {
  int status;                        /* vmm_status */
  int code;                          /* raw CUresult of the failing call, 0 if no driver call failed */
  int attempt;                       /* which attempt failed last (1 = the first), 0 if no driver call failed */
  int device;                        /* device ordinal, or -1 */
  int undo_failures;                 /* undo steps that failed; what they hold is quarantined */
  int undo_code;                     /* the first code among them */
  unsigned long long address;        /* the address the call was about, or 0 */
  unsigned long long size;           /* the size the call was about, or 0 */
  unsigned long long gave_back;      /* idle bytes that were given back to the driver on the way */
  unsigned long long free_bytes;     /* device memory the driver called free, or 0 */
  unsigned long long total_bytes;    /* device memory in all, or 0 */
  unsigned long long reserved_bytes; /* address space this library holds reserved on the device, or 0 */
  unsigned long long reserved[4];    /* zero */
  char call[40];                     /* driver symbol that failed, e.g. "cuMemSetAccess", or "" */
  char code_name[48];                /* e.g. "CUDA_ERROR_NOT_READY", or "" */
  char message[256];                 /* one line: what failed, the state now, what to do */
} vmm_error;

/* The name of a status, e.g. "VMM_ERROR_NOT_READY"; "VMM_ERROR_?" for a value that is none. Static string, never NULL.
 * Never fails, calls no driver, any thread. */
VMM_API const char *vmm_status_name(int status);

/* One sentence that explains a status. Static string, never NULL. Never fails, calls no driver, any thread. */
VMM_API const char *vmm_status_text(int status);

/* The version of the library that is loaded: major * 10000 + minor * 100 + patch. Never fails, any thread. */
VMM_API int vmm_version(void);

/* The same as text, e.g. "0.1.0". Static string. */
VMM_API const char *vmm_version_string(void);

/* ---- host memory --------------------------------------------------------------------------------------------- */

/* Where the library gets its own (host) memory. `allocate` returns zero-filled or not, aligned for any type, or NULL;
 * `release` gets the size that was asked for. Both may be called from any thread, never while a pool lock is held.
 * Neither may call the library. The table and what `data` points to must outlive every object made with it. */
typedef struct vmm_host_memory {
  size_t struct_size;
  void *(*allocate)(void *data, size_t size);
  void (*release)(void *data, void *pointer, size_t size);
  void *data;
} vmm_host_memory;

/* ---- device -------------------------------------------------------------------------------------------------- */

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
 * Status: INVALID_ARGUMENT (the legacy stream cannot be captured), BUSY (already announced), OUT_OF_HOST_MEMORY,
 * UNSUPPORTED (a pool of the device cannot hold more leases: about a thousand, less two for each stream that uses it),
 * TIMEOUT, DEVICE_LOST, FORKED. After failure nothing is announced. May call the driver. */
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
 * context so far is done; blocks of it that still live become blocks like others. Ends the lease, before its device is
 * closed. Status: INVALID_ARGUMENT (NULL), FORKED. No driver call. */
VMM_API vmm_status vmm_lease_release(vmm_lease *lease, vmm_error *error);

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

/* ---- pool ---------------------------------------------------------------------------------------------------- */

typedef enum vmm_verify {
  VMM_VERIFY_ACCESS = 0, /* one get-access per mapping and device before it is published */
  VMM_VERIFY_DATA = 1    /* that, and a word per granule written and read back on the library's own stream */
} vmm_verify;

/* When the event is recorded that tells when what a stream has freed is idle. */
typedef enum vmm_events {
  VMM_EVENTS_LAZY = 0, /* when somebody else wants the memory. A stream that was named to a pool must stay alive until
                          vmm_device_forget_stream */
  VMM_EVENTS_EAGER =
      1 /* in every free. The stream's handle is not touched after the call, and a later stream of the same
                          handle value is told apart; each alloc and free then makes driver calls */
} vmm_events;

/* How much a pool commits when a request does not fit. Whatever the policy says, a request larger than that is served,
 * and idle backing that lies in holes elsewhere in the pool is moved (unmapped, and mapped again where it is needed)
 * before the driver is asked for more than the policy would have committed anyway. */
typedef enum vmm_growth_policy {
  VMM_GROWTH_PROPORTIONAL = 0, /* up to the next power of two of live bytes while those are below a 32nd of the device's
                                  memory (at most 4 GiB), then a tenth above them */
  VMM_GROWTH_EXACT = 1,        /* what the request needs */
  VMM_GROWTH_FIXED = 2         /* growth_step at a time */
} vmm_growth_policy;

typedef struct vmm_pool_options {
  size_t struct_size;
  unsigned long long reservation; /* address space; 0: 4 x device memory, halved when refused down to
                                       max(initial, 1 GiB). A number given here is taken as it is or refused */
  unsigned long long initial;     /* bytes to commit at once; 0: none */
  unsigned long long limit;       /* bytes this pool may commit; 0: none */
  unsigned long long mapping_min; /* smallest mapping a growth makes; 0: 2 MiB (rounded up to the granularity) */
  unsigned long long
      mapping_max;   /* largest one made ahead of need; 0: 64 MiB. What vmm_pool_grow is asked for, and a request
                                     larger than the pool, get one mapping, others are made of eight or so */
  int growth_policy; /* vmm_growth_policy */
  unsigned long long growth_step; /* of VMM_GROWTH_FIXED; 0: 64 MiB */
  /* Bytes one growth may commit ahead of need; 0: mapping_max if that is given, else no bound but the policy's. */
  unsigned long long growth_ahead;
  /* What vmm_pool_poll and the pool's thread see to; failures are counted (background_failures) and tried again later. */
  unsigned long long headroom;       /* idle bytes to be kept ready; 0: none */
  unsigned long long trim_threshold; /* when more bytes than this are idle some are given back; 0: never ... */
  unsigned long long trim_keep;      /* ... and so many are left; 0: half of the threshold. At least headroom */
  int background;    /* 1: a thread does it, about every millisecond. It takes no lock that an allocation
                                        that fits needs across a driver call or a wait, and never waits for the GPU */
  void *home_stream; /* what alloc and free are ordered on; 0: the legacy default stream. It must outlive the
                                       pool; not 2, the per-thread one */
  int verify;        /* vmm_verify */
  int scrub;         /* 1: every block is filled with zero bytes on the home stream before it is given; CAPTURE while a
                        capture is announced in which that stream takes part, or any if it is the legacy stream */
  const int *peers;  /* ordinals of devices that get read/write access, besides the owner */
  size_t peer_count;
  int events;      /* vmm_events */
  int prefer_wait; /* 1: a stream is made to wait for what others have freed rather than the pool grows */
} vmm_pool_options;

/* As vmm_device_options_init. */
VMM_API vmm_status vmm_pool_options_init(vmm_pool_options *options, size_t size);

/* Makes a pool: reserves address space, and commits options->initial bytes. The device is counted by the pool.
 * Status: INVALID_ARGUMENT (sizes, unknown or duplicate peer, home stream), VERSION, OUT_OF_HOST_MEMORY,
 * OUT_OF_ADDRESS_SPACE, UNSUPPORTED (a peer that cannot reach the device), NOT_READY, TIMEOUT, DEVICE_LOST, DRIVER, FORKED,
 * and for `initial` all of vmm_pool_alloc's.
 * After failure *pool is NULL and nothing is held. May call the driver. */
VMM_API vmm_status vmm_pool_create(vmm_pool **pool, vmm_device *device, const vmm_pool_options *options,
                                   vmm_error *error);

typedef enum vmm_destroy_mode {
  VMM_DESTROY_IDLE = 0,  /* refuse with BUSY while blocks live */
  VMM_DESTROY_FORCED = 1 /* live blocks are dropped after a wait for all work of the device's context; BUSY if that does
                            not end in time. Work that peers have queued in theirs is the caller's to end first */
} vmm_destroy_mode;

/* Gives everything back and ends the pool. Status: INVALID_ARGUMENT, BUSY (vmm_error.size is the count of live blocks),
 * TIMEOUT, CAPTURE, OUT_OF_HOST_MEMORY, FORKED, or what a driver call answered: the pool then still stands (without what
 * was given back; after a forced one without its blocks) and destroy can be called again. Once the driver has refused to
 * free its address range, allocations are answered BUSY. PARTIAL: the pool is gone, but the driver kept its event. On a
 * lost device it always succeeds, live blocks or not. May call the driver. */
VMM_API vmm_status vmm_pool_destroy(vmm_pool *pool, int mode, vmm_error *error);

/* A block of `size` bytes, aligned to 256, ordered on the home stream: work queued there may use it, and may still be
 * using what stood there before. Size 0 gives a block of the smallest size, 256 bytes. Contents are undefined unless the
 * pool scrubs. What fits makes no driver call and no host allocation; otherwise the pool grows.
 * Status: INVALID_ARGUMENT (size too large to round), OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, OUT_OF_HOST_MEMORY,
 * MAPPING_LIMIT, LIMIT, NOT_READY, NOT_CONFIRMED, CAPTURE, BUSY (growth inside a pressure callback), TIMEOUT, CALLBACK,
 * DEVICE_LOST, DRIVER, FORKED. After failure *address is 0 and the pool is as before. */
VMM_API vmm_status vmm_pool_alloc(vmm_pool *pool, unsigned long long size, unsigned long long *address,
                                  vmm_error *error);

typedef enum vmm_request_flags {
  VMM_REQUEST_ONE_MAPPING = 1, /* the block lies within one mapping (for libraries that register one handle) */
  VMM_REQUEST_SCRUB = 2,       /* filled with zero bytes on the home stream before it is given */
  VMM_REQUEST_NO_GROWTH = 4,   /* answered OUT_OF_DEVICE_MEMORY rather than growing the pool */
  VMM_REQUEST_ON_STREAM = 8    /* ordered on `stream`, as vmm_pool_alloc_async; a scrub is queued there too */
} vmm_request_flags;

typedef struct vmm_request {
  size_t struct_size;
  unsigned long long size;
  unsigned long long alignment;   /* a power of two; 0: 256 */
  unsigned long long tag;         /* the caller's number, shown in listings */
  unsigned long long deadline_ns; /* for this call; 0: the device's */
  unsigned int flags;             /* vmm_request_flags */
  unsigned int reserved;          /* zero */
  void *stream;                   /* with VMM_REQUEST_ON_STREAM */
} vmm_request;

/* As vmm_device_options_init. */
VMM_API vmm_status vmm_request_init(vmm_request *request, size_t size);

/* vmm_pool_alloc with alignment, one-mapping blocks, scrub and tag. Status as there, and VERSION, INVALID_ARGUMENT for
 * an alignment that is no power of two or larger than the reservation, or an unknown flag. */
VMM_API vmm_status vmm_pool_alloc_with(vmm_pool *pool, const vmm_request *request, unsigned long long *address,
                                       vmm_error *error);

/* Frees a block, ordered on the home stream: it is reused by later allocations of that order at once. Makes no driver
 * call, allocates nothing, never fails for a live block. Status: INVALID_ARGUMENT (NULL pool), UNKNOWN_ADDRESS (not the
 * start of a live block: freed before, an inner address, another pool's), FORKED. */
VMM_API vmm_status vmm_pool_free(vmm_pool *pool, unsigned long long address, vmm_error *error);

/* The same, and the caller vouches that no queued or running work uses the block. */
VMM_API vmm_status vmm_pool_free_idle(vmm_pool *pool, unsigned long long address, vmm_error *error);

/* vmm_pool_alloc, ordered on `stream` (of the device's context; 0 or 1: the legacy stream, 2: the per-thread one): work
 * queued there afterwards may use the block. What the stream itself freed is used first, then what is idle, then what others
 * freed and the driver says is done, then what a trim has not unmapped yet; then the pool grows, and only then is the
 * stream made to wait for others (options->prefer_wait: before it grows). What fits makes no driver call with lazy events.
 * The first allocation on a stream registers it (vmm_device_register_stream), if events are lazy.
 * Status as vmm_pool_alloc, and UNSUPPORTED (lazy events, and the pool cannot tell more streams apart: about five hundred, fewer
 * by one for every two leases; forget those that ended). May call the driver. */
VMM_API vmm_status vmm_pool_alloc_async(vmm_pool *pool, unsigned long long size, void *stream,
                                        unsigned long long *address, vmm_error *error);

/* Frees a block when the work queued on `stream` so far is done: allocations on that stream may have it at once. The block
 * may come from any stream or order; all its other work must be done, or the stream be made to wait for it. Allocates
 * nothing and never fails for a live block: where no event can be recorded, or the stream was never named to the pool by
 * an allocation, the block waits for all work of the context (counted: stats.limbo_count, fence_failures).
 * Status: INVALID_ARGUMENT (NULL pool), UNKNOWN_ADDRESS, FORKED. No driver call with lazy events. */
VMM_API vmm_status vmm_pool_free_async(vmm_pool *pool, unsigned long long address, void *stream, vmm_error *error);

/* The same for a block that several streams use: it is free when the work queued on all of them is done; with count 0, where
 * nobody can say which, when all work of the context is. If captures are
 * announced on some of them, and that is not one stream alone, not even the captures are given it again: a graph would not
 * wait for the others. It is free once all their leases have ended. Status besides: INVALID_ARGUMENT (streams is NULL, but
 * count is not 0). */
VMM_API vmm_status vmm_pool_free_multi(vmm_pool *pool, unsigned long long address, void *const *streams, size_t count,
                                       vmm_error *error);

/* vmm_pool_alloc_async for callers who must not be kept waiting, because they hold a lock of an interpreter's, say: gives a
 * block only if that takes no wait for a lock, no driver call, no host allocation and no callback. With the home stream of
 * the pool it is vmm_pool_alloc. Status: BUSY (nothing happened; the other function does it or says what is wrong),
 * INVALID_ARGUMENT (NULL, size too large to round), FORKED. After failure *address is 0. */
VMM_API vmm_status vmm_pool_try_alloc(vmm_pool *pool, unsigned long long size, void *stream,
                                      unsigned long long *address);

/* vmm_pool_free_async likewise. Status: BUSY (nothing happened), INVALID_ARGUMENT (NULL pool), FORKED. */
VMM_API vmm_status vmm_pool_try_free(vmm_pool *pool, unsigned long long address, void *stream);

/* Commits at least `size` bytes more, contiguous, ahead of need. *grown: bytes committed (may be NULL). Status as
 * vmm_pool_alloc. All or nothing. May call the driver. */
VMM_API vmm_status vmm_pool_grow(vmm_pool *pool, unsigned long long size, unsigned long long *grown, vmm_error *error);

/* Creates physical memory for `size` bytes more and puts it aside, without holding up anybody else's growth. It is mapped
 * and becomes allocatable with the next poll, through the pool's thread, or with the next request that does not fit: that
 * takes what was put aside before it asks the driver. Trim, and a pool that runs out of memory, give it back. Where the sync
 * policy has a wait before growth only a request publishes it. All or nothing. Status: INVALID_ARGUMENT (0, too large),
 * LIMIT, OUT_OF_DEVICE_MEMORY, OUT_OF_ADDRESS_SPACE, OUT_OF_HOST_MEMORY, NOT_READY, BUSY (inside a pressure callback, pool
 * being destroyed), DEVICE_LOST, DRIVER, FORKED. May call the driver. */
VMM_API vmm_status vmm_pool_grow_async(vmm_pool *pool, unsigned long long size, vmm_error *error);

/* Whether `count` requests of these sizes, made in this order on the home stream, fit as things are. *grow: bytes that the
 * pool would have to commit for them at least, after moving what lies idle in mappings of its own; 0: they fit without
 * growth. VMM_OK also if growth is needed, as far as the limits and the memory that the driver calls free allow it; else
 * LIMIT, OUT_OF_DEVICE_MEMORY or OUT_OF_ADDRESS_SPACE (*grow is then what is placed of them until there). Changes nothing;
 * what other threads do meanwhile may change the answer. Holds the pool's lock for about as long as the allocations would.
 * Status besides: INVALID_ARGUMENT (NULL, a size above the reservation), OUT_OF_HOST_MEMORY, DEVICE_LOST, DRIVER, FORKED.
 * Asks the driver for its free memory if growth is needed. */
VMM_API vmm_status vmm_pool_would_fit(vmm_pool *pool, const unsigned long long *sizes, size_t count,
                                      unsigned long long *grow, vmm_error *error);

/* Gives idle mappings back, highest address first, as long as at least `keep` bytes stay committed. Waits for work
 * that may use them, at most `deadline_ns` (0: the device's deadline); what is not done by then stays pending, as after
 * vmm_pool_trim_async. Atomic per mapping. *done: bytes given back (may be NULL), also when it fails. Status: OK (also when
 * live blocks pin the rest), PARTIAL (a step failed or the deadline passed after some were given back), TIMEOUT (the
 * deadline passed, none given back), CAPTURE (a fence cannot be had before the announced captures end), DEVICE_LOST,
 * DRIVER, NOT_READY, OUT_OF_HOST_MEMORY, INVALID_ARGUMENT, FORKED. A mapping whose unmap failed stays in the pool, or is
 * quarantined if it lost its access. May call the driver. */
VMM_API vmm_status vmm_pool_trim(vmm_pool *pool, unsigned long long keep, unsigned long long deadline_ns,
                                 unsigned long long *done, vmm_error *error);

/* The same without waiting: what queued work may still use is left *pending* behind a fence, and is unmapped by a later
 * vmm_pool_poll, trim, growth or destroy. An allocation that would have to grow takes pending memory back first, without a
 * driver call. *done: bytes given back; *pending: bytes on their way in all (either may be NULL). Status as vmm_pool_trim,
 * but never TIMEOUT for the work's sake, nor CAPTURE. May call the driver. */
VMM_API vmm_status vmm_pool_trim_async(vmm_pool *pool, unsigned long long keep, unsigned long long *done,
                                       unsigned long long *pending, vmm_error *error);

/* Unmaps what earlier trims left pending and queued work no longer uses, publishes what vmm_pool_grow_async put aside, and
 * sees to head-room and the trim threshold; waits for nothing. Outputs and status as vmm_pool_trim_async; what fails of the
 * rest is counted instead. No driver call if there is nothing to do. */
VMM_API vmm_status vmm_pool_poll(vmm_pool *pool, unsigned long long *done, unsigned long long *pending,
                                 vmm_error *error);

/* Grants device `ordinal` read/write access to all of the pool's mappings, now and later. All or none: on failure the
 * grants are revoked. Status: INVALID_ARGUMENT (unknown, the owner, already a peer), UNSUPPORTED (cannot reach the
 * device, or needs a larger granularity), OUT_OF_HOST_MEMORY, NOT_READY, NOT_CONFIRMED, DEVICE_LOST, DRIVER, TIMEOUT,
 * FORKED. May call the driver. */
VMM_API vmm_status vmm_pool_add_peer(vmm_pool *pool, int ordinal, vmm_error *error);

/* Sets the bytes the pool may commit; 0: no limit. Below what is committed it only stops growth. Status:
 * INVALID_ARGUMENT, FORKED. No driver call. */
VMM_API vmm_status vmm_pool_set_limit(vmm_pool *pool, unsigned long long limit, vmm_error *error);

typedef struct vmm_block_info {
  unsigned long long address;   /* start of the block */
  unsigned long long size;      /* bytes it holds: up to 1/10 more than asked for, above 4 MiB 1/32 */
  unsigned long long requested; /* bytes asked for */
  unsigned long long tag;
} vmm_block_info;

/* The live block that holds `address` (its start or any byte in it). Status: INVALID_ARGUMENT, UNKNOWN_ADDRESS, FORKED.
 * No driver call. */
VMM_API vmm_status vmm_pool_find(vmm_pool *pool, unsigned long long address, vmm_block_info *block, vmm_error *error);

/* Which pool of the device owns the live block that holds `address`. `block` may be NULL. Status as vmm_pool_find. */
VMM_API vmm_status vmm_device_find(vmm_device *device, unsigned long long address, vmm_pool **pool,
                                   vmm_block_info *block, vmm_error *error);

/* Copies the live blocks, by rising address. *count: how many there are (may exceed `capacity`). array may be NULL with
 * capacity 0. Status: INVALID_ARGUMENT, FORKED. No driver call. */
VMM_API vmm_status vmm_pool_get_blocks(vmm_pool *pool, vmm_block_info *array, size_t capacity, size_t *count,
                                       vmm_error *error);

typedef enum vmm_mapping_state {
  VMM_MAPPING_LIVE = 1,        /* committed: blocks may lie on it */
  VMM_MAPPING_QUARANTINED = 2, /* an undo step failed: never handed out, its undo is tried again */
  VMM_MAPPING_PENDING = 3      /* given up by a trim, and waits for work that may use it; or is wanted again before */
} vmm_mapping_state;

typedef struct vmm_mapping_info {
  unsigned long long address;
  unsigned long long size;
  unsigned long long handle;      /* raw handle of the driver's */
  unsigned long long generation;  /* rises each time backing at this place changes */
  unsigned long long block_bytes; /* bytes of live blocks on it: what pins it; 0: trim can give it back */
  int state;                      /* vmm_mapping_state */
  int reserved;
} vmm_mapping_info;

/* Copies the mappings, by rising address. As vmm_pool_get_blocks. */
VMM_API vmm_status vmm_pool_get_mappings(vmm_pool *pool, vmm_mapping_info *array, size_t capacity, size_t *count,
                                         vmm_error *error);

/* Tells whether backing changed: the highest generation of the mappings that hold [address, address + size). It is the same as
 * before as long as none of them was unmapped or made anew, so whoever keeps something by address (a captured graph, a
 * registration for RDMA or NCCL) compares it. Status: INVALID_ARGUMENT (NULL, size 0), UNKNOWN_ADDRESS (part of the range is
 * not mapped), FORKED. No driver call. */
VMM_API vmm_status vmm_pool_get_generation(vmm_pool *pool, unsigned long long address, unsigned long long size,
                                           unsigned long long *generation, vmm_error *error);

typedef struct vmm_pool_stats {
  size_t struct_size;
  unsigned long long address;         /* start of the reservation */
  unsigned long long reserved_bytes;  /* address space */
  unsigned long long committed_bytes; /* physical memory mapped and published */
  unsigned long long committed_peak;
  unsigned long long block_count; /* live blocks */
  unsigned long long block_count_peak;
  unsigned long long block_bytes; /* bytes in live blocks, rounded */
  unsigned long long block_bytes_peak;
  unsigned long long requested_bytes; /* bytes asked for by live blocks; block_bytes - this = waste by rounding */
  unsigned long long idle_bytes;      /* committed_bytes - block_bytes */
  unsigned long long largest_idle;    /* longest contiguous idle range */
  unsigned long long trimmable_bytes; /* in mappings that hold no block: what trim(0) would give back */
  unsigned long long mapping_count;
  unsigned long long quarantined_bytes; /* address ranges never handed out until their undo succeeds */
  unsigned long long alloc_count;       /* totals since creation */
  unsigned long long alloc_bytes;
  unsigned long long alloc_failures;
  unsigned long long free_count;
  unsigned long long growth_count;
  unsigned long long growth_bytes;
  unsigned long long growth_failures;
  unsigned long long trim_count;
  unsigned long long trim_bytes;
  unsigned long long move_count;  /* requests that moving idle backing alone served: no growth */
  unsigned long long moved_bytes; /* idle backing taken out of holes for requests */
  unsigned long long retry_count;
  unsigned long long not_ready_count;
  unsigned long long quiesce_count;
  unsigned long long oom_rounds; /* times the out-of-memory ladder was climbed */
  unsigned long long limit;
  unsigned long long peer_count;
  unsigned long long
      pending_bytes; /* given up by trims, not yet unmapped; part of the committed, idle and trimmable ones */
  unsigned long long revived_bytes; /* total of those that were wanted again before that: no driver call was needed */
  unsigned long long stream_count;  /* streams that have used the pool, other than the home stream */
  unsigned long long
      ordered_bytes;             /* free, but still behind the work of streams; 0 while one stream has the pool alone */
  unsigned long long seal_count; /* total of events recorded behind what a stream had freed */
  unsigned long long wait_count; /* total of times a stream was made to wait for another */
  unsigned long long
      limbo_count; /* total of blocks freed behind a context-wide fence: used by several streams, or on one
                                        that the pool does not know */
  unsigned long long fence_failures; /* total of seals that could not be recorded: a context-wide fence stands in */
  unsigned long long lease_count;    /* captures whose memory is leased */
  unsigned long long lease_bytes;    /* free, but for their graphs alone */
  unsigned long long ready_bytes;    /* put aside: created, not yet mapped; not part of the committed ones */
  unsigned long long background_failures; /* total of failures of head-room and the like */
} vmm_pool_stats;

/* Fills *stats up to stats->struct_size. Status: INVALID_ARGUMENT, VERSION, FORKED. No driver call; does not wait for a
 * growth in progress. */
VMM_API vmm_status vmm_pool_get_stats(vmm_pool *pool, vmm_pool_stats *stats, vmm_error *error);

/* Checks every invariant of the pool's index, mapping table and counters against each other. VMM_OK, or
 * VMM_ERROR_BROKEN with a message that names the broken invariant; TIMEOUT if a growth does not end in time. Meant for
 * tests and for debugging: takes time in proportion to blocks and mappings. No driver call. */
VMM_API vmm_status vmm_pool_check(vmm_pool *pool, vmm_error *error);

#ifndef VMM_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
