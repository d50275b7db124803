/* libvmm: the driver under the library. The CUDA driver, the simulated one, and two wrappers that stack over either:
 * faults and a recorder, e.g. record(fault(sim)). For tests, demonstrations and tools.
 *
 * This header is stable per minor version. Conventions are those of vmm/vmm.h. Codes are raw CUresult numbers; no CUDA
 * header is needed. Drivers are counted: each vmm_x_create gives one reference, a wrapper and a device hold one each.
 */
#ifndef VMM_DRIVER_H
#define VMM_DRIVER_H

#include "vmm/vmm.h"

#ifndef VMM_CDEF
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* ---- codes and flags of the driver's own interface ------------------------------------------------------------- */

/* The CUresult numbers that matter here. */
typedef enum vmm_code {
  VMM_CODE_SUCCESS = 0,
  VMM_CODE_INVALID_VALUE = 1,
  VMM_CODE_OUT_OF_MEMORY = 2,
  VMM_CODE_NOT_INITIALIZED = 3,
  VMM_CODE_DEINITIALIZED = 4,
  VMM_CODE_DEVICE_UNAVAILABLE = 46,
  VMM_CODE_NO_DEVICE = 100,
  VMM_CODE_INVALID_DEVICE = 101,
  VMM_CODE_INVALID_CONTEXT = 201,
  VMM_CODE_ECC_UNCORRECTABLE = 214,
  VMM_CODE_NVLINK_UNCORRECTABLE = 220,
  VMM_CODE_INVALID_HANDLE = 400,
  VMM_CODE_NOT_FOUND = 500,
  VMM_CODE_NOT_READY = 600,
  VMM_CODE_ILLEGAL_ADDRESS = 700,
  VMM_CODE_LAUNCH_TIMEOUT = 702,
  VMM_CODE_CONTEXT_IS_DESTROYED = 709,
  VMM_CODE_ASSERT = 710,
  VMM_CODE_LAUNCH_FAILED = 719,
  VMM_CODE_NOT_PERMITTED = 800,
  VMM_CODE_NOT_SUPPORTED = 801,
  VMM_CODE_STREAM_CAPTURE_UNSUPPORTED = 900,
  VMM_CODE_STREAM_CAPTURE_INVALIDATED = 901,
  VMM_CODE_STREAM_CAPTURE_ISOLATION = 905,
  VMM_CODE_STREAM_CAPTURE_IMPLICIT = 906,
  VMM_CODE_CAPTURED_EVENT = 907,
  VMM_CODE_UNKNOWN = 999
} vmm_code;

/* The name of a CUresult, e.g. "CUDA_ERROR_NOT_READY"; "CUDA_ERROR_?" for a number that is none. Static, never NULL. */
VMM_API const char *vmm_code_name(int code);

/* The CUresult of a name, with or without "CUDA_ERROR_", or of a decimal number as text; -1 if it is none. */
VMM_API int vmm_code_from_name(const char *name);

/* CUmemAllocationProp, neutral. */
typedef struct vmm_raw_prop {
  int type;          /* 1: pinned */
  int handle_types;  /* 0: none, 1: posix fd, 8: fabric */
  int location_type; /* 1: device, 3: host NUMA node */
  int location_id;
  int compression;    /* 1: compressible memory */
  int gpudirect_rdma; /* 1: capable */
} vmm_raw_prop;

/* CUmemLocation. */
typedef struct vmm_raw_location {
  int type; /* 1: device, 3: host NUMA node */
  int id;
} vmm_raw_location;

/* CUmemAccessDesc. */
typedef struct vmm_raw_access {
  int location_type;
  int location_id;
  int flags; /* 0: none, 1: read, 3: read and write */
} vmm_raw_access;

typedef void (*vmm_host_function)(void *data);

/* The number of an operation; also its index in statistics. */
typedef enum vmm_op {
  VMM_OP_ANY = -1,
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) VMM_OP_##name,
#include "vmm/ops.def"
  VMM_OP_COUNT
} vmm_op;

/* The driver symbol of an operation, e.g. "cuMemSetAccess"; "?" for a number that is none. Static, never NULL. */
VMM_API const char *vmm_op_symbol(int op);

/* The operation of a driver symbol ("cuMemSetAccess") or an operation's name ("mem_set_access"); -1 if it is none. */
VMM_API int vmm_op_from_name(const char *name);

/* ---- any driver ------------------------------------------------------------------------------------------------- */

/* The CUDA driver of this machine: libcuda.so.1, loaded once per process. Never reads the environment.
 * Status: NO_DRIVER (the message names the library, the missing symbol or cuInit's answer), OUT_OF_HOST_MEMORY, FORKED,
 * INVALID_ARGUMENT. After failure *driver is NULL. */
VMM_API vmm_status vmm_cuda_create(vmm_driver **driver, vmm_error *error);

/* GPU code for the vmm.kernel_* operations over CUDA: a fatbin or cubin with the kernels of libvmm/kernels. Copied. Without
 * it they answer NOT_SUPPORTED. Status: INVALID_ARGUMENT (not a CUDA driver, NULL, or set before), OUT_OF_HOST_MEMORY. */
VMM_API vmm_status vmm_cuda_set_kernels(vmm_driver *driver, const void *image, size_t size, vmm_error *error);

/* One more reference. Never fails. */
VMM_API void vmm_driver_retain(vmm_driver *driver);

/* One reference less; the last one ends the driver (a simulated one with all its memory). NULL is ignored. */
VMM_API void vmm_driver_release(vmm_driver *driver);

/* "cuda", "sim", "fault(sim)", ...: written to text, cut to capacity. Status: INVALID_ARGUMENT. */
VMM_API vmm_status vmm_driver_name(vmm_driver *driver, char *text, size_t capacity);

/* The driver's clock in ns: monotonic time for CUDA, virtual time for the simulator. */
VMM_API unsigned long long vmm_driver_now(vmm_driver *driver);

/* Lets `ns` pass on that clock: sleeps for CUDA, advances the simulator (whose queues then run). */
VMM_API void vmm_driver_wait(vmm_driver *driver, unsigned long long ns);

/* The operations, raw: no check, no lock, no interpretation; the answer is the CUresult. Call-only. A function whose
 * symbol is missing answers NOT_FOUND. Beyond the driver's own documentation:
 *   kernel_spin    occupies the stream for ns
 *   kernel_fill    writes word i (4 bytes) of the range as vmm_pattern_word(seed, i)
 *   kernel_verify  adds the number of words that differ from that pattern to the 8-byte word at device address
 *                  `mismatches`
 *   kernel_sum     adds the sum over i of (word i + 1) * (2 i + 1), modulo 2^64, to the 8-byte word at `sum`
 *   kernel_trap    ends the context with LAUNCH_FAILED
 */
#define VMM_SELF_PARAMETER vmm_driver *driver
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  VMM_API int vmm_raw_##name parameters;
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER

/* Word `index` of the fill pattern of `seed`: the upper 32 bits of the splitmix64 finaliser of
 * seed + (index + 1) * 0x9E3779B97F4A7C15. */
VMM_API unsigned int vmm_pattern_word(unsigned long long seed, unsigned long long index);

/* ---- fault: rules that make calls fail --------------------------------------------------------------------------- */

typedef enum vmm_fault_phase {
  VMM_FAULT_BEFORE = 0, /* refused: the call is not made */
  VMM_FAULT_AFTER = 1,  /* the call is made, then `code` is answered instead of success */
  VMM_FAULT_LIE = 2,    /* success is answered, the call is not made (not for create, over the CUDA driver) */
  VMM_FAULT_PARTIAL = 3 /* set-access and unmap only: done for the first half of the mappings in the range (of one: for
                            none), then `code` is answered */
} vmm_fault_phase;

typedef enum vmm_fault_condition {
  VMM_FAULT_ALWAYS = 0,
  VMM_FAULT_IF_PENDING = 1,      /* work is queued on some stream seen by this wrapper (or the legacy stream) */
  VMM_FAULT_IF_OVER_BUDGET = 2,  /* bytes in live handles created through this wrapper exceed `budget` */
  VMM_FAULT_IF_AFTER_RELEASE = 3 /* no call matched since memory last went back to the driver (a handle released, and
                                        mapped nowhere): the first map after an eviction */
} vmm_fault_condition;

typedef enum vmm_fault_times { VMM_FAULT_FOR_EVER = 2147483647 } vmm_fault_times; /* for vmm_fault_rule.times */

/* Called before each matching call (not only those that fail), in the calling thread, with no lock of this library's
 * drivers held; rules after it see what it did. May call the driver: no rule looks at the calls of a hook's own thread.
 * `opportunity` counts the matching calls, from 1. */
typedef void (*vmm_fault_hook)(void *data, int op, unsigned long long opportunity);

typedef struct vmm_fault_rule {
  size_t struct_size;
  int op;                        /* vmm_op; VMM_OP_ANY: every operation */
  int code;                      /* the CUresult answered; 0 with a hook or a delay: only that, other rules decide */
  int phase;                     /* vmm_fault_phase */
  int condition;                 /* vmm_fault_condition; a call counts as matching only if it holds */
  unsigned long long occurrence; /* the first matching call that fails, from 1; 0: 1 */
  unsigned long long times;      /* how many matching calls fail from there; 0: 1; VMM_FAULT_FOR_EVER */
  unsigned long long address;    /* with size: only calls whose range overlaps [address, address + size) */
  unsigned long long size;
  unsigned long long object; /* with match_object: only calls about this device, stream, handle or event */
  int match_object;
  int sticky;                  /* 1: once fired, the device is lost until cleared: every operation answers `code`. What
                                      gives something back is done all the same; what is about the thread or the driver
                                      (init, devices, attributes, current context, capture mode) goes on working */
  unsigned long long thread;   /* only calls of this thread (vmm_fault_thread()); 0: any */
  unsigned long long budget;   /* for VMM_FAULT_IF_OVER_BUDGET */
  unsigned long long delay_ns; /* time that passes on the driver's clock before a call that fails by this rule */
  unsigned int probability;    /* matching calls fail with probability / 2^32, seeded; 0: always */
  int reserved;
  vmm_fault_hook hook; /* or NULL */
  void *hook_data;
} vmm_fault_rule;

/* Wraps a driver so that rules can make its calls fail. Without rules it passes every call on. `seed` drives
 * probabilities. Status: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
VMM_API vmm_status vmm_fault_create(vmm_driver **driver, vmm_driver *inner, unsigned long long seed, vmm_error *error);

VMM_API vmm_status vmm_fault_rule_init(vmm_fault_rule *rule, size_t size);

/* Adds a rule; rules are asked in the order added, each counts its own matching calls, the first that fires decides. *id names it (may be NULL). Status: INVALID_ARGUMENT (not a fault
 * wrapper, an unknown op, phase or condition, a lie about create over CUDA), OUT_OF_HOST_MEMORY, VERSION. */
VMM_API vmm_status vmm_fault_add(vmm_driver *driver, const vmm_fault_rule *rule, int *id, vmm_error *error);

/* The same from text: CALL:CODE[@occurrence][xTIMES|x*][:after|:lie|:partial][:pending|:evicted|:budget=BYTES][:sticky]
 * [:p=0.25][:delay=NS], several joined by commas, e.g. "cuMemSetAccess:NOT_READY@3x2". CALL is what vmm_op_from_name
 * takes, or * for any; CODE what vmm_code_from_name takes; bytes may end in KiB, MiB, GiB or TiB, a delay in ns, us, ms or
 * s. All rules or none are added. Status: INVALID_ARGUMENT (the message says what and where), OUT_OF_HOST_MEMORY. */
VMM_API vmm_status vmm_fault_add_text(vmm_driver *driver, const char *text, vmm_error *error);

/* Removes all rules, clears a sticky state and restarts the counts of opportunities. */
VMM_API vmm_status vmm_fault_clear(vmm_driver *driver);

/* How often rule `id` fired (*fired) and how many matching calls it saw (*matched). Either may be NULL. A fault after the
 * call fires only if the call succeeded. */
VMM_API vmm_status vmm_fault_count(vmm_driver *driver, int id, unsigned long long *fired, unsigned long long *matched);

/* How many calls of `op` (VMM_OP_ANY: all) were seen since the last clear. */
VMM_API unsigned long long vmm_fault_opportunities(vmm_driver *driver, int op);

/* A number for the calling thread, as rules match it. Never 0. */
VMM_API unsigned long long vmm_fault_thread(void);

/* What a creating call made before it was told to have failed (VMM_FAULT_AFTER): nobody else can name it, for the
 * caller's output is set to zero. The first 1,024 are listed; more are only counted. */
typedef struct vmm_fault_orphan {
  int op; /* the creating operation */
  int reserved;
  unsigned long long value; /* handle, address, event, stream or host pointer; the device for primary_retain */
  unsigned long long size;
} vmm_fault_orphan;

/* Copies the orphans, oldest first. *count: how many there are (may exceed `capacity`). */
VMM_API vmm_status vmm_fault_get_orphans(vmm_driver *driver, vmm_fault_orphan *array, size_t capacity, size_t *count);

/* Gives the orphans back through the inner driver, youngest first, and forgets them. Status: INVALID_ARGUMENT, PARTIAL
 * (some could not be given back, or were not listed). */
VMM_API vmm_status vmm_fault_release_orphans(vmm_driver *driver);

/* ---- record: a ring of the last calls, counts and times ------------------------------------------------------------ */

typedef struct vmm_record_entry {
  unsigned long long sequence; /* from 1 */
  unsigned long long time_ns;  /* start, on the driver's clock */
  unsigned long long taken_ns;
  unsigned long long thread;
  unsigned long long address;
  unsigned long long size;
  unsigned long long object; /* the handle, stream, event or device it was about */
  unsigned long long output; /* what a creating call gave: address, handle, event; a query's value; or 0 */
  int op;                    /* vmm_op */
  int code;
} vmm_record_entry;

/* Wraps a driver and keeps the last `capacity` calls (0: 256). Status: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
VMM_API vmm_status vmm_record_create(vmm_driver **driver, vmm_driver *inner, size_t capacity, vmm_error *error);

/* Copies the latest entries, oldest first, with a sequence above `after`. *count: entries written. */
VMM_API vmm_status vmm_record_get(vmm_driver *driver, unsigned long long after, vmm_record_entry *array,
                                  size_t capacity, size_t *count);

/* Calls of `op` since creation or the last clear (VMM_OP_ANY: all). */
VMM_API unsigned long long vmm_record_count(vmm_driver *driver, int op);

/* Count, failures and times per operation, as vmm_device_get_calls. */
VMM_API vmm_status vmm_record_get_calls(vmm_driver *driver, vmm_call_stats *array, size_t capacity, size_t *count);

/* Forgets entries, counts and times. */
VMM_API vmm_status vmm_record_clear(vmm_driver *driver);

/* One entry as a line of text, e.g. "#12 cuMemMap(address=0x7f..., size=2097152, object=0x1) -> CUDA_SUCCESS 0.8 us".
 * Returns the length it would take, as snprintf does. */
VMM_API size_t vmm_record_format(const vmm_record_entry *entry, char *text, size_t capacity);

/* ---- sim: a simulated driver ------------------------------------------------------------------------------------------ */

/* What a kernel that touches memory without access does; copies and memsets are always refused with INVALID_VALUE. */
typedef enum vmm_sim_touch {
  VMM_SIM_TOUCH_LOST = 0,   /* ILLEGAL_ADDRESS, the context is lost (what an H200 does) */
  VMM_SIM_TOUCH_ZERO = 1,   /* reads zeroes, writes vanish, silently; copies too */
  VMM_SIM_TOUCH_REFUSED = 2 /* the launch itself answers INVALID_VALUE */
} vmm_sim_touch;

typedef enum vmm_sim_fresh {
  VMM_SIM_FRESH_ZERO = 0,
  VMM_SIM_FRESH_POISON = 1, /* every byte 0xA5 */
  VMM_SIM_FRESH_STALE = 2   /* what the last owner left */
} vmm_sim_fresh;

/* When create, map, set-access, unmap and release answer NOT_READY. */
typedef enum vmm_sim_not_ready {
  VMM_SIM_NOT_READY_NEVER = 0,
  VMM_SIM_NOT_READY_PENDING = 1,   /* set-access, while work is queued in the context */
  VMM_SIM_NOT_READY_INTRUDER = 2,  /* as PENDING, and after each wait that found the context idle, `value` (0: 1)
                                        pieces of 100 us of work appear from another thread before the next map */
  VMM_SIM_NOT_READY_RESIDENCY = 3, /* set-access, while bytes in handles exceed a budget of `value` */
  VMM_SIM_NOT_READY_EVICTED = 4,   /* the first set-access after any release or unmap */
  VMM_SIM_NOT_READY_FIRST = 5,     /* the first `value` set-accesses after switching it on */
  VMM_SIM_NOT_READY_RANDOM = 6     /* any of the five, with probability value / 2^32, seeded */
} vmm_sim_not_ready;

typedef struct vmm_sim_options {
  size_t struct_size;
  int device_count;                       /* 0: 1; at most 8 */
  int driver_version;                     /* 0: 13000; below 12050 there is no cuCtxRecordEvent */
  unsigned long long memory;              /* bytes per device; 0: 141 GiB less 1 GiB, as an H200 reports */
  unsigned long long minimum_granularity; /* 0: 2 MiB */
  unsigned long long granularity;         /* recommended; 0: the minimum */
  unsigned long long address_space;       /* bytes that can be reserved in all; 0: 124 TiB */
  unsigned long long address_space_used;  /* of those, already taken by others */
  unsigned long long mapping_limit;       /* live mappings per device; 0: 523,970 */
  unsigned long long peers;               /* bit 8 * a + b: device a can reach device b's memory; 0: all */
  unsigned long long seed;
  int touch;                          /* vmm_sim_touch */
  int fresh;                          /* vmm_sim_fresh */
  int no_vmm;                         /* 1: the attribute says virtual memory management is not supported */
  int wsl;                            /* 1: the platform says WSL2 */
  int no_fabric;                      /* 0: fabric handles are refused with NOT_PERMITTED (no IMEX channel) */
  int old_attributes;                 /* 1: attributes an older driver does not know answer INVALID_VALUE */
  unsigned long long call_ns;         /* virtual time a driver call takes; 0: 1,000 */
  const vmm_host_memory *host_memory; /* for the simulator's own records; NULL: malloc */
} vmm_sim_options;

VMM_API vmm_status vmm_sim_options_init(vmm_sim_options *options, size_t size);

/* A simulated driver. options may be NULL. Status: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY, VERSION. */
VMM_API vmm_status vmm_sim_create(vmm_driver **driver, const vmm_sim_options *options, vmm_error *error);

/* The functions below take a simulator or any stack of wrappers over one; INVALID_ARGUMENT if there is none below. */

VMM_API vmm_status vmm_sim_set_not_ready(vmm_driver *driver, int device, int mode, unsigned long long value);
VMM_API vmm_status vmm_sim_set_touch(vmm_driver *driver, int touch);
VMM_API vmm_status vmm_sim_set_fresh(vmm_driver *driver, int fresh);

/* Bytes of device memory that somebody else takes: they are no longer free. */
VMM_API vmm_status vmm_sim_set_used_by_others(vmm_driver *driver, int device, unsigned long long bytes);

/* Lets every queue run until it is empty, and moves the clock there. */
VMM_API vmm_status vmm_sim_drain(vmm_driver *driver);

/* What exists on a device now: the ledger that a pool's own counters are compared with. */
typedef struct vmm_sim_ledger {
  size_t struct_size;
  unsigned long long reservations;   /* all devices: address ranges belong to the process */
  unsigned long long reserved_bytes; /* likewise */
  unsigned long long handles;        /* physical handles that hold memory: referenced or mapped */
  unsigned long long handle_bytes;
  unsigned long long references; /* creating, retained and imported references not yet released */
  unsigned long long mappings;
  unsigned long long mapped_bytes;
  unsigned long long accessible_bytes;  /* mapped with read/write access for the owning device */
  unsigned long long plain_allocations; /* cuMemAlloc */
  unsigned long long plain_bytes;
  unsigned long long host_bytes; /* pinned host memory, all devices */
  unsigned long long free_bytes; /* what cuMemGetInfo says */
  unsigned long long events;
  unsigned long long streams;
  unsigned long long primary_references;
  unsigned long long captures_invalidated; /* ever, all devices */
  unsigned long long not_ready;            /* NOT_READY answered by create, map, set-access, unmap, release, ever */
  unsigned long long pending;              /* pieces of queued work that are not done */
  unsigned long long misuse;               /* entries below, ever, without DOUBLE_RELEASE */
  unsigned long long double_releases;      /* a handle, range or event given back that was given back before */
} vmm_sim_ledger;

VMM_API vmm_status vmm_sim_get_ledger(vmm_driver *driver, int device, vmm_sim_ledger *ledger);

/* Misuse the real driver would not catch, or answers with memory corruption. */
typedef enum vmm_sim_misuse_kind {
  VMM_SIM_MISUSE_MAP_PAST_END = 1, /* a mapping crosses the end of its reservation */
  VMM_SIM_MISUSE_UNMAP_HOLE = 2,   /* an unmap over something that is not mapped */
  VMM_SIM_MISUSE_FREE_MAPPED = 3,  /* an address range freed while something is mapped in it */
  VMM_SIM_MISUSE_DOUBLE_RELEASE = 4,
  VMM_SIM_MISUSE_DEAD_STREAM = 5,   /* a destroyed stream, event or context was used */
  VMM_SIM_MISUSE_FOREIGN = 6,       /* an event or stream of another context */
  VMM_SIM_MISUSE_BLOCKING_SYNC = 7, /* ctx, stream or event synchronise while `forbid blocking` is on */
  VMM_SIM_MISUSE_RACE = 8,          /* memory unmapped, or its access revoked, while queued work may touch it */
  VMM_SIM_MISUSE_REUSE = 9,         /* memory touched by work not ordered after work of the block's last owner */
  VMM_SIM_MISUSE_BOGUS_HANDLE = 10, /* what crashes a process on the real driver */
  VMM_SIM_MISUSE_CAPTURE = 11,      /* a call invalidated a capture */
  VMM_SIM_MISUSE_TOUCH = 12         /* queued work touched memory without access */
} vmm_sim_misuse_kind;

typedef struct vmm_sim_misuse {
  int kind;
  int op;
  unsigned long long time_ns;
  unsigned long long address;
  unsigned long long size;
  char text[160];
} vmm_sim_misuse;

/* Copies the first entries (the simulator keeps 256). *count: how many there ever were. */
VMM_API vmm_status vmm_sim_get_misuse(vmm_driver *driver, vmm_sim_misuse *array, size_t capacity, size_t *count);
VMM_API vmm_status vmm_sim_clear_misuse(vmm_driver *driver);

/* 1: blocking synchronises count as misuse. 0 at the start. */
VMM_API vmm_status vmm_sim_forbid_blocking(vmm_driver *driver, int forbid);

/* Tells the happens-before check that the range has a new owner: work that touches it from here on must be ordered after
 * all work queued before that touched it, unless it is on the same stream. Test code calls it when a block changes
 * hands. Work that breaks it is MISUSE_REUSE. */
VMM_API vmm_status vmm_sim_new_owner(vmm_driver *driver, unsigned long long address, unsigned long long size);

/* A host pointer to simulated device memory: valid while the range stays mapped; reads and writes are seen by the
 * device. Afterwards it shows memory of nobody's, until the driver ends. A test door: no access check, no order with
 * queued work. The range must be mapped throughout.
 * Status: INVALID_ARGUMENT, UNKNOWN_ADDRESS (not mapped throughout), OUT_OF_HOST_MEMORY. */
VMM_API vmm_status vmm_sim_view(vmm_driver *driver, unsigned long long address, unsigned long long size,
                                void **pointer);

#ifndef VMM_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
