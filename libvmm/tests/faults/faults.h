/* The fault loops: every driver call an operation makes is made to fail, one after the other, and after each the promises
 * are looked at. Public headers only: what the library says of itself is compared with what the simulator counted.
 *
 *   scenarios.c  the operations, and what stands before each; scenarios_streams.c those in the order of streams
 *   world.c      a driver stack, a device, a pool with filled blocks; reading them back
 *   run.c        one run: a world, one or two faults, the call, the promises, the call again, the end
 *   promises.c   what must hold right after the call
 *   ledger.c     ... by the simulator's own count
 *   ending.c     what must hold once the fault is gone, and once all is closed
 *   loops.c      which runs there are
 *   main.c       two processes, the table, the last line
 */
#ifndef VMM_TESTS_FAULTS_H
#define VMM_TESTS_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/driver.h"

typedef unsigned long long u64;

#define DEADLINE_NS 100000000ull /* of a device under test, on the driver's clock; over CUDA half of it */

enum { MAX_BLOCKS = 12, MAX_CALLS = 1024, NO_FAULT = -3, HOST_MEMORY = -2 };

/* One fault. `op` is a vmm_op, HOST_MEMORY (an allocation of the library's fails) or NO_FAULT. */
typedef struct fault {
  int op, code, phase;
  u64 occurrence, times;
  bool sticky;
} fault;

/* The library's host memory: counts, and says no when told to. */
typedef struct host {
  vmm_host_memory table;
  u64 calls, live, fail_at, fired, calls_before; /* the last: driver calls made before the first failure */
  bool for_ever, wrong_size;
  vmm_driver *driver;
} host;

typedef struct block {
  u64 address, size, seed;
} block;

/* What exists, by three accounts: the simulator's, the device's and the pool's. */
typedef struct state {
  vmm_sim_ledger ledger;
  vmm_device_stats device;
  vmm_pool_stats pool;
  bool has_device, has_pool, lost;
  u64 orphans[VMM_OP_COUNT];
  size_t orphan_count;
  void *current;
  int mode;
} state;

typedef struct world world;

enum { NOTHING, DEVICE, POOL }; /* what stands before the call */

typedef enum kind {
  OPEN,
  CREATE,
  ALLOC,
  GROW,
  FREE,
  TRIM,
  PEER,
  DESTROY,
  CLOSE,
  DEVICE_TRIM,
  STREAM,
  FIT,
  READY,
  CAPTURE
} kind;

/* An operation, and how the world before it differs from the usual one. */
typedef struct scenario {
  const char *name;
  kind what;
  int stands;
  void (*prepare)(world *w);
  vmm_status (*call)(world *w, vmm_error *error);
  int policy, verify, scrub, driver_version;
  bool peer, capture, given_context, home, idle, full, exact, plain, gpu; /* the last: also over the CUDA driver */
  u64 initial, limit;        /* granules a pool is made with, and may have */
  bool eager, wait, streams; /* events, prefer_wait; two streams besides the home stream */
  bool later;                /* the captured stream is not captured when the call is made, but by it or before */
  u64 events;                /* made on the way, and kept whatever the call answers */
} scenario;

extern const scenario scenarios[];
extern const size_t scenario_count;
extern const scenario stream_scenarios[]; /* scenarios_streams.c */
extern const size_t stream_scenario_count;
extern const scenario capture_scenarios[]; /* scenarios_captures.c */
extern const size_t capture_scenario_count;

struct world {
  const scenario *s;
  bool failed; /* it could not be made */
  bool lost;   /* the driver said so */
  vmm_driver *base, *driver;
  host host;
  void *context, *guest, *own; /* of the device; of the calling thread; made by the caller for the device */
  void *stream, *second, *captured;
  bool announced; /* the capture of the last of them */
  vmm_lease *lease;
  void *executable; /* of its graph */
  vmm_device *device, *other;
  vmm_pool *pool, *other_pool;
  u64 granule;
  block blocks[MAX_BLOCKS], other_block;
  size_t block_count;
  u64 address, size; /* of a block the call made */
  u64 counter;       /* device memory that kernels count mismatches in; CUDA only */
  state start;       /* before anything of the library's */
};

/* One run, its key and its outcome. */
typedef struct run {
  const scenario *s;
  fault fault[2];
  vmm_status status;
  vmm_error error;
  bool fired[2];
  u64 elapsed;
  vmm_record_entry *calls; /* of the call under test */
  size_t call_count, fired_at;
  u64 host_calls;
  bool quiet; /* its outcome is not reported: it only finds out which calls there are */
  int broken, apart;
  state before, after;
  const state *clean; /* before and after the same call without a fault; NULL in that run itself */
} run;

/* How all runs are made. */
typedef struct settings {
  bool cuda, verbose, sample, first, part, singles; /* the last two: not all second faults, and none */
  const char *kernels, *only, *key;
  int jobs;
} settings;

extern settings global;

/* world.c */
void world_make(world *w, const scenario *s, bool other);
void world_end(world *w); /* the drivers; device and pool are closed by then, or dropped */
void world_state(world *w, state *now);
void world_enter(world *w, void *context); /* the thread's context and mode are the harness's own until leave */
void world_leave(world *w);
void world_device_options(world *w, vmm_device_options *options);
void world_pool_options(world *w, vmm_pool_options *options);
u64 world_block(world *w, u64 size); /* allocates and fills a block */
void world_drop(world *w, size_t i, bool idle);
bool world_fill(world *w, vmm_driver *driver, const block *of);
bool world_intact(world *w, const block *of);
bool world_is_zero(world *w, u64 address, u64 size);
u64 world_free_bytes(world *w);

/* In the order of streams; the world has failed if they do. world_queue: a kernel of 0.2 ms and one that writes there. */
u64 world_take(world *w, u64 size, void *stream);
void world_give(world *w, u64 address, void *stream);
void world_queue(world *w, void *stream, u64 address, u64 size);

/* Announces the capture and begins it; ends it, which answers false if it is not valid any more. */
vmm_status world_capture(world *w, vmm_error *error);
bool world_end_capture(world *w, int how);

/* run.c */
void run_make(run *r);
void run_key(const run *r, char *text, size_t capacity);
void fault_text(const fault *f, char *text, size_t capacity);
bool faulted(const run *r, int op);               /* by either fault */
bool faulted_as(const run *r, int op, int phase); /* phase < 0: any */
bool code_given(const run *r, int code);          /* by a fault that fired */
void broken(run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void apart(run *r); /* a promise that cannot hold here: docs/faults.md says why */

/* ledger.c */
void check_ledger(run *r);
void check_peers(world *w, run *r, bool undone);
bool deceived(const run *r);

/* promises.c, ending.c */
void promises_after(world *w, run *r);
void check_misuse(world *w, run *r, u64 known); /* without the first `known` entries */
void touch_in_order(world *w, const run *r, const block *fresh);
void promises_again(world *w, run *r);
void promises_end(world *w, run *r);

/* loops.c */
typedef struct tally {
  u64 points, runs, broken, apart, orphans, unfired;
  char key[256]; /* of the run under way */
} tally;
void loop_scenario(const scenario *s, int worker, int workers, u64 *number, tally *t);

#endif
