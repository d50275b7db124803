/* The simulated driver's insides. One struct, one lock: every operation runs with the lock held (sim_table.c takes it), so
 * the files of this room call each other freely. What is and is not modelled: sim.c. */
#ifndef VMM_SIM_SIM_H
#define VMM_SIM_SIM_H

#include "base/checked.h"
#include "base/lock.h"
#include "driver/driver.h"
#include "sim/tree.h"
#include "vmm/driver.h"

enum {
  VMM__SIM_DEVICES = 8,
  VMM__SIM_SLOTS = 64, /* streams the happens-before check tells apart at a time; others go unchecked */
  VMM__SIM_STACK = 64, /* contexts pushed by one thread */
  VMM__SIM_MISUSES = 256,
  VMM__SIM_SCRATCH = 65536
};

/* CUresults only the simulator's captures answer. */
enum {
  VMM__CODE_ILLEGAL_STATE = 401,
  VMM__CODE_CAPTURE_MERGE = 902,
  VMM__CODE_CAPTURE_UNMATCHED = 903,
  VMM__CODE_CAPTURE_UNJOINED = 904,
  VMM__CODE_CAPTURE_WRONG_THREAD = 908
};

typedef struct vmm__sim vmm__sim;

/* What happened before a point: for every slot the sequence number up to which its work is known to be done there. */
typedef struct vmm__sim_order {
  vmm__u64 upto[VMM__SIM_SLOTS];
} vmm__sim_order;

typedef struct vmm__sim_reservation {
  vmm__sim_node node; /* key: address */
  vmm__u64 size;
} vmm__sim_reservation;

/* Physical memory: an extent of its device's memfd, or a memfd of its own if it can be exported. */
typedef struct vmm__sim_handle {
  vmm__sim_node node; /* key: the handle's value */
  int device;
  bool host;    /* on a host NUMA node: takes no device memory */
  bool own;     /* has a memfd of its own */
  bool touched; /* there may be pages */
  bool plain;   /* behind cuMemAlloc: no handle anybody can name */
  int types;
  int fd; /* own: -1 until it is needed */
  vmm__u64 size;
  vmm__u64 offset;
  vmm__u64 references;
  vmm__u64 mappings;
  unsigned char *poisoned; /* per granule: 1 once 0xA5 was written; NULL: nothing to poison */
} vmm__sim_handle;

typedef struct vmm__sim_mapping {
  vmm__sim_node node; /* key: address */
  vmm__u64 size;
  vmm__sim_handle *handle;
  vmm__u64 context; /* plain memory: the key of its context */
  unsigned char access[VMM__SIM_DEVICES];
} vmm__sim_mapping;

typedef struct vmm__sim_context vmm__sim_context;
typedef struct vmm__sim_capture vmm__sim_capture;

typedef struct vmm__sim_stream {
  vmm__sim_node node;           /* key: the handle's value; not in the tree for legacy, per-thread and hidden ones */
  struct vmm__sim_stream *next; /* the streams of its context */
  struct vmm__sim_stream *previous;
  vmm__sim_context *context;
  vmm__u64 id;
  vmm__u64 thread; /* the thread whose default stream it is, else 0 */
  vmm__u64 done;   /* when all that was queued is done */
  vmm__sim_order order;
  int slot; /* in the happens-before check; -1: none yet, or none free */
  bool legacy;
  bool blocking;
  bool unjoined;     /* drawn into a capture and not joined back since */
  vmm__u64 captured; /* counts what was captured on it */
  vmm__sim_capture *capture;
} vmm__sim_stream;

typedef struct vmm__sim_event {
  vmm__sim_node node;
  vmm__sim_context *context;
  vmm__u64 done;
  vmm__u64 capture; /* key of the capture its last record belongs to; 0: none */
  vmm__u64 stream;  /* of that record: the stream's id and how much was captured there */
  vmm__u64 captured;
  vmm__sim_order order;
} vmm__sim_event;

struct vmm__sim_context {
  vmm__sim_node node;
  int device;
  int lost; /* the sticky code; 0: alive */
  bool primary;
  vmm__u64 pending;
  vmm__u64 blocking_done; /* latest end of work on blocking streams; all_done: on any */
  vmm__u64 all_done;
  vmm__sim_order blocking_order;
  vmm__sim_order all_order;
  vmm__sim_stream *streams;
  vmm__sim_stream *intruder; /* NULL until another thread's work is played */
  vmm__sim_stream legacy;
};

typedef enum vmm__sim_work_kind {
  VMM__SIM_SPIN = 1,
  VMM__SIM_FILL,
  VMM__SIM_VERIFY,
  VMM__SIM_SUM,
  VMM__SIM_TRAP,
  VMM__SIM_HTOD,
  VMM__SIM_DTOH,
  VMM__SIM_DTOD,
  VMM__SIM_SET8,
  VMM__SIM_SET32,
  VMM__SIM_HOST
} vmm__sim_work_kind;

/* A piece of queued work. It touches memory all at once, when it is done. */
typedef struct vmm__sim_work {
  vmm__sim_work_kind kind;
  int op;
  vmm__sim_context *context;
  vmm__u64 done;
  vmm__u64 sequence;
  vmm__u64 duration;
  vmm__u64 address; /* the range it works on; 0 bytes: none */
  vmm__u64 size;
  vmm__u64 other; /* a second range: the source of a copy, the word a kernel adds to */
  vmm__u64 other_size;
  vmm__u64 value; /* seed, byte or word */
  vmm__u64 pitch;
  vmm__u64 width;
  vmm__u64 height;
  const void *from;
  void *to;
  void *staged; /* a copy of pageable host memory; `size` bytes */
  vmm_host_function function;
  void *data;
} vmm__sim_work;

/* Captured work in the order it was captured; a graph and the executables made from it share one. */
typedef struct vmm__sim_nodes {
  vmm__sim_work *work;
  vmm__u64 count;
  vmm__u64 capacity;
  vmm__u64 references;
} vmm__sim_nodes;

typedef struct vmm__sim_graph {
  vmm__sim_node node;
  vmm__sim_nodes *nodes;
  bool executable;
} vmm__sim_graph;

struct vmm__sim_capture {
  vmm__sim_node node;
  vmm__sim_context *context;
  vmm__sim_stream *origin;
  vmm__u64 thread;
  int mode; /* 0 global, 1 thread-local, 2 relaxed */
  bool valid;
  vmm__sim_nodes *nodes;
};

typedef struct vmm__sim_thread {
  vmm__sim_node node; /* key: the thread's number */
  int mode;           /* capture mode */
  int depth;
  vmm__u64 stack[VMM__SIM_STACK]; /* keys of contexts: they may die while they are current */
} vmm__sim_thread;

typedef struct vmm__sim_stale {
  struct vmm__sim_stale *next;
  vmm__u64 offset;
  vmm__u64 size;
} vmm__sim_stale;

typedef struct vmm__sim_device {
  int fd; /* -1 until the first byte is touched */
  vmm__u64 next_offset;
  vmm__sim_stale *stale; /* extents given back with their bytes in them, latest first */
  int stale_count;
  vmm__u64 used;
  vmm__u64 others;
  vmm_sim_ledger ledger; /* the counters kept as they change */
  int not_ready;
  vmm__u64 not_ready_value;
  bool evicted;
  bool armed; /* a wait found the device idle: the intruder comes before the next map */
  vmm__u64 armed_context;
  vmm__u64 primary_references;
} vmm__sim_device;

typedef struct vmm__sim_pinned {
  vmm__sim_node node; /* key: the host address */
  vmm__u64 size;
  void *pointer;
} vmm__sim_pinned;

typedef struct vmm__sim_view {
  struct vmm__sim_view *next;
  vmm__u64 address;
  vmm__u64 size;
  unsigned char *pointer;
} vmm__sim_view;

/* A touch by queued work, or what a new owner's work must come after. */
typedef struct vmm__sim_touch {
  vmm__u64 address;
  vmm__u64 size;
  vmm__u64 sequence;
  int slot;
} vmm__sim_touch;

typedef struct vmm__sim_touches {
  vmm__sim_touch *array;
  vmm__u64 count;
  vmm__u64 capacity;
} vmm__sim_touches;

struct vmm__sim {
  vmm_driver driver;
  vmm_host_memory memory;
  vmm__lock lock;
  vmm__u64 serial; /* of this simulator in the process, for the threads' cached records */
  vmm_sim_options options;
  bool initialized;
  vmm__u64 now;
  vmm__u64 random;
  int op; /* the operation that runs, and the thread it runs in */
  vmm__sim_thread *thread;
  vmm__sim_device devices[VMM__SIM_DEVICES];
  vmm__sim_tree threads;
  vmm__sim_tree contexts;
  vmm__sim_tree streams;
  vmm__sim_tree events;
  vmm__sim_tree graphs;
  vmm__sim_tree captures;
  vmm__sim_tree handles;
  vmm__sim_tree reservations;
  vmm__sim_tree mappings;
  vmm__sim_tree pinned;
  vmm__sim_view *views, *old_views; /* the latter: what they showed is unmapped */
  vmm__u64 next_value;              /* handle values of all kinds: never given twice, streams excepted */
  vmm__u64 next_stream_id;
  vmm__u64 reserve_cursor; /* where the next range is looked for; 0: at the start */
  vmm__u64 reserve_top;    /* the end of the highest range ever given */
  vmm__u64 plain_cursor;
  vmm__u64 reserved_bytes;
  vmm__u64 pinned_bytes;
  vmm__u64 *dead_streams; /* values to give again, latest last */
  vmm__u64 dead_count;
  vmm__u64 dead_capacity;
  vmm__sim_work **queue; /* a heap by (done, sequence) */
  vmm__u64 queue_count;
  vmm__u64 queue_capacity;
  vmm__u64 work_sequence;
  vmm__u64 host_running; /* number of the thread that runs a host function now; 0: none */
  unsigned char *scratch;
  bool forbid_blocking;
  vmm__u64 captures_invalidated;
  vmm_sim_misuse *misuse;
  vmm__u64 misuse_count;
  vmm__u64 double_releases;
  vmm__u64 slot_sequence[VMM__SIM_SLOTS];
  bool slot_taken[VMM__SIM_SLOTS];
  vmm__sim_order host_knows;
  vmm__sim_touches touches;
  vmm__sim_touches owners;
};

/* ---- the operations: vmm__sim_op_mem_create, ... The lock is held, sim->op and sim->thread are set. ---- */
#define VMM_SELF_PARAMETER vmm__sim *sim
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  int vmm__sim_op_##name parameters;
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER

/* ---- sim_table.c ---- */
extern const vmm__driver_table vmm__sim_table;
int vmm__sim_enter(vmm__sim *sim, int op, int since);
void vmm__sim_leave(vmm__sim *sim);

/* ---- sim.c ---- */
void vmm__sim_destroy(void *self);
void *vmm__sim_allocate(vmm__sim *sim, vmm__u64 count, vmm__u64 size);
void vmm__sim_free(vmm__sim *sim, void *pointer, vmm__u64 count, vmm__u64 size);
vmm__u64 vmm__sim_value(vmm__sim *sim);                       /* a new handle value: a multiple of 16 */
bool vmm__sim_was_given(const vmm__sim *sim, vmm__u64 value); /* a handle value of some time */
vmm__u64 vmm__sim_random(vmm__sim *sim);
/* Makes room for `more` elements behind `count`; false without memory. */
bool vmm__sim_grow(vmm__sim *sim, void **array, vmm__u64 count, vmm__u64 *capacity, vmm__u64 more, vmm__u64 size);

/* ---- misuse.c ---- */
void vmm__sim_misused(vmm__sim *sim, vmm_sim_misuse_kind kind, int op, vmm__u64 address, vmm__u64 size,
                      const char *text);
/* The same for the operation that runs. */
void vmm__sim_misuse_here(vmm__sim *sim, vmm_sim_misuse_kind kind, vmm__u64 address, vmm__u64 size, const char *text);

/* ---- clock.c ---- */
void vmm__sim_run_due(vmm__sim *sim); /* runs what is done by now; may let the lock go for host functions */
void vmm__sim_run_to(vmm__sim *sim,
                     vmm__u64 time); /* advances to a time, if it is later, and runs what is done by then */
bool vmm__sim_queue_reserve(vmm__sim *sim, vmm__u64 more);
void vmm__sim_queue_push(vmm__sim *sim, vmm__sim_work *work);             /* room was reserved */
void vmm__sim_queue_drop(vmm__sim *sim, const vmm__sim_context *context); /* forgets a context's work; NULL: all */
void vmm__sim_run_all(vmm__sim *sim);                                     /* until nothing is queued */
/* Reports queued work that may touch the range as a race, and whether there is some; `device` -1: of any device. */
bool vmm__sim_race(vmm__sim *sim, int device, vmm__u64 address, vmm__u64 size, const char *text);

/* ---- work.c ---- */
/* A launch by the caller: checks the stream, captures and access, then queues or captures a copy of *work. */
int vmm__sim_launch(vmm__sim *sim, const void *stream, vmm__sim_work *work);
/* Queues copies of several pieces, all or none. Into no capture, without a check. */
int vmm__sim_submit(vmm__sim *sim, vmm__sim_stream *stream, const vmm__sim_work *work, vmm__u64 count);
void vmm__sim_work_free(vmm__sim *sim, vmm__sim_work *work);
void vmm__sim_lose(vmm__sim *sim, vmm__sim_context *context, int code);
/* Whether all the memory a piece of work touches may be touched by it. */
bool vmm__sim_work_allowed(vmm__sim *sim, const vmm__sim_work *work);

/* ---- execute.c ---- */
void vmm__sim_execute(vmm__sim *sim, vmm__sim_work *work);

/* ---- bytes.c ---- */
enum { VMM__SIM_READ = 1, VMM__SIM_WRITE = 3 };
/* Whether `device` has `need` access to the whole range. */
bool vmm__sim_allowed(vmm__sim *sim, int device, vmm__u64 address, vmm__u64 size, int need);
/* Where there is no access, reading gives zeroes and writing does nothing. False if the machine has no room, or the host
 * pointer is bad. */
bool vmm__sim_read(vmm__sim *sim, int device, void *to, vmm__u64 address, vmm__u64 size);
bool vmm__sim_write(vmm__sim *sim, int device, vmm__u64 address, const void *from, vmm__u64 size);
unsigned char *vmm__sim_scratch(vmm__sim *sim); /* VMM__SIM_SCRATCH bytes; NULL without memory */
bool vmm__sim_is_pinned(const vmm__sim *sim, const void *pointer, vmm__u64 size);

/* ---- physical.c ---- */
int vmm__sim_physical_create(vmm__sim *sim, vmm__sim_handle **handle, int device, vmm__u64 size, bool own, bool host,
                             bool plain);
void vmm__sim_physical_drop(vmm__sim *sim, vmm__sim_handle *handle); /* frees it if nothing holds it any more */
int vmm__sim_physical_file(vmm__sim *sim, vmm__sim_handle *handle);  /* the memfd, made if needed; -1 without */
bool vmm__sim_physical_poison(vmm__sim *sim, vmm__sim_handle *handle, vmm__u64 offset, vmm__u64 size);

/* ---- address.c, mapping.c, view.c, notready.c, plain.c ---- */
vmm__sim_reservation *vmm__sim_reservation_at(const vmm__sim *sim, vmm__u64 address); /* that holds it, or NULL */
/* The mapping that holds the address, plain memory included; NULL if there is none. */
vmm__sim_mapping *vmm__sim_mapping_at(vmm__sim *sim, vmm__u64 address);
void vmm__sim_mapping_remove(vmm__sim *sim, vmm__sim_mapping *mapping);
void vmm__sim_views_drop(vmm__sim *sim, vmm__u64 address, vmm__u64 size);
void vmm__sim_views_end(vmm__sim *sim);
bool vmm__sim_not_ready(vmm__sim *sim, int device); /* whether the operation that runs answers NOT_READY */
void vmm__sim_waited(vmm__sim *sim, const vmm__sim_context *context); /* the host found work done */
void vmm__sim_intrude(vmm__sim *sim, int device);                     /* before a map */
void vmm__sim_plain_drop(vmm__sim *sim, vmm__u64 context);

/* ---- context.c ---- */
vmm__sim_context *vmm__sim_context_find(vmm__sim *sim, vmm__u64 key);
int vmm__sim_current(vmm__sim *sim, vmm__sim_context **context);
int vmm__sim_context_code(vmm__sim *sim, vmm__u64 key); /* the sticky code of a context that may be gone by now */
/* The calling thread's record in this simulator; NULL without memory. */
vmm__sim_thread *vmm__sim_thread_find(vmm__sim *sim);
vmm__u64 vmm__sim_thread_number(void);
void vmm__sim_context_end(vmm__sim *sim, vmm__sim_context *context);

/* ---- stream.c ---- */
void vmm__sim_stream_init(vmm__sim *sim, vmm__sim_stream *stream, vmm__sim_context *context, bool blocking);
void vmm__sim_stream_end(vmm__sim *sim, vmm__sim_stream *stream); /* frees it, unless it is a legacy one */
int vmm__sim_stream_find(vmm__sim *sim, const void *handle, vmm__sim_stream **stream);
/* The same for work: the stream must be one of the current context. */
int vmm__sim_stream_for_work(vmm__sim *sim, const void *handle, vmm__sim_stream **stream);
vmm__u64 vmm__sim_stream_done(const vmm__sim_stream *stream); /* with what it is implicitly ordered after */
void vmm__sim_stream_advance(vmm__sim_stream *stream, vmm__u64 done);

/* ---- event.c ---- */
int vmm__sim_event_find(vmm__sim *sim, const void *handle, vmm__sim_event **event);
void vmm__sim_events_end(vmm__sim *sim, const vmm__sim_context *context);

/* ---- capture.c, graph.c ---- */
/* A call that is unsafe under a capture, per the thread's mode: invalidates the captures that forbid it. 0 or the code. */
int vmm__sim_capture_unsafe(vmm__sim *sim);
/* A call about the whole context. */
int vmm__sim_capture_context(vmm__sim *sim, const vmm__sim_context *context);
/* A use of the legacy stream: implicit order with a blocking stream that is being captured. */
int vmm__sim_capture_legacy(vmm__sim *sim, const vmm__sim_stream *stream);
bool vmm__sim_capture_blocking(vmm__sim *sim, const vmm__sim_context *context);
void vmm__sim_capture_invalidate(vmm__sim *sim, vmm__sim_capture *capture, const char *text);
void vmm__sim_capture_end(vmm__sim *sim, vmm__sim_capture *capture);
void vmm__sim_captures_end(vmm__sim *sim, const vmm__sim_context *context);
bool vmm__sim_nodes_add(vmm__sim *sim, vmm__sim_nodes *nodes, const vmm__sim_work *work, vmm__u64 count);
void vmm__sim_nodes_release(vmm__sim *sim, vmm__sim_nodes *nodes);
void vmm__sim_graph_free(vmm__sim *sim, vmm__sim_graph *graph);

/* ---- order.c: happens-before ---- */
void vmm__sim_order_merge(vmm__sim_order *to, const vmm__sim_order *from);
/* Work, a record or a wait enters a stream: implicit order, and its own place in it. */
void vmm__sim_order_enter(vmm__sim *sim, vmm__sim_stream *stream);
void vmm__sim_order_wait(vmm__sim_stream *stream, const vmm__sim_order *order);
void vmm__sim_order_touch(vmm__sim *sim, vmm__sim_stream *stream, const vmm__sim_work *work);
void vmm__sim_order_owner(vmm__sim *sim, vmm__u64 address, vmm__u64 size);
void vmm__sim_order_host(vmm__sim *sim, const vmm__sim_order *order); /* the host has seen that all of it is done */

static inline bool vmm__sim_overlap(vmm__u64 a, vmm__u64 a_size, vmm__u64 b, vmm__u64 b_size) {
  return a_size != 0 && b_size != 0 && a < b + b_size && b < a + a_size;
}

static inline void *vmm__sim_pointer(vmm__u64 value) { return (void *)(uintptr_t)value; }

#endif
