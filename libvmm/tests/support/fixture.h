/* What the tests of device, region and pool share: record(fault(sim)) with a device and pools on it, host memory that is
 * counted and can run out, blocks filled and read back, and the simulator's ledger against the library's own counters.
 *
 *   fixture f;
 *   CHECK_CALL(fixture_open(&f, NULL));   ...   CHECK_CALL(fixture_close(&f));
 *
 * The test's own driver calls go through f.sim, so that the recorder and the fault rules see the library's alone. The
 * primary context of device 0 is current in the thread that opened the fixture. After a failed check the last driver
 * calls are shown. */
#ifndef VMM_TESTS_SUPPORT_FIXTURE_H
#define VMM_TESTS_SUPPORT_FIXTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "vmm/driver.h"

typedef unsigned long long u64;

enum { FIXTURE_POOLS = 4 };
enum { BLOCKING = 0, NON_BLOCKING = 1 }; /* kinds of streams */

#define KIB ((u64)1 << 10)
#define MIB ((u64)1 << 20)
#define GIB ((u64)1 << 30)
#define MS ((u64)1000000)
#define OK(call) CHECK_EQ((call), VMM_CODE_SUCCESS)

typedef struct fixture_options {
  vmm_sim_options sim;
  vmm_device_options device; /* driver and host_memory are the fixture's */
  vmm_pool_options pool;
  bool no_pool;
  bool no_device;
} fixture_options;

typedef struct fixture_memory {
  vmm_host_memory table;
  atomic_llong out;     /* bytes given and not taken back */
  atomic_llong calls;   /* allocations */
  atomic_llong fail_in; /* the n-th allocation from now fails; 0: none */
} fixture_memory;

typedef struct fixture {
  vmm_driver *sim, *fault, *driver;
  vmm_device *device;
  vmm_pool *pool; /* the first of the pools */
  vmm_pool *pools[FIXTURE_POOLS];
  void *context; /* device 0's primary one */
  fixture_memory memory;
  vmm_error error; /* for the test's use */
} fixture;

/* 256 MiB of device memory in granules of 64 KiB, poisoned; mappings of 256 KiB to 2 MiB. */
void fixture_defaults(fixture_options *options);
/* As an H200: 140 GiB in granules of 2 MiB. */
void fixture_large(fixture_options *options);

/* `options` NULL: fixture_defaults. */
void fixture_open(fixture *f, const fixture_options *options);
/* With mappings of one size, which the options then tell. */
void fixture_open_pieces(fixture *f, fixture_options *options, u64 size);
/* As well, and the pool grows by what is asked for, no more. */
void fixture_open_exact(fixture *f, fixture_options *options, u64 size);

/* Destroys the pools, which must be without blocks, and closes the device; each pool's check must pass, and nothing may be
 * left: on the device, of host memory, in the list of misuse. */
void fixture_close(fixture *f);

/* The last part of it, after the test has closed the device itself: nothing is left. */
void fixture_end(fixture *f);

/* One more pool; it is destroyed by fixture_close. */
vmm_pool *fixture_add_pool(fixture *f, const vmm_pool_options *options);
vmm_pool_options fixture_pool_options(void);

u64 fixture_alloc(fixture *f, u64 size);
void fixture_free(fixture *f, u64 address);
/* n blocks that are the only mappings of the first pool, each one of `size`; number i is filled with seed i. */
void fixture_alloc_pieces(fixture *f, u64 size, u64 *addresses, int n);

/* In the order of a stream. The simulator is told that the memory has a new owner. */
u64 fixture_alloc_on(fixture *f, u64 size, void *stream);
void fixture_free_on(fixture *f, u64 address, void *stream);
void *fixture_new_stream(fixture *f, unsigned kind);
/* The library forgets it first, which must know it. */
void fixture_end_stream(fixture *f, void *stream);
/* Announced first. */
void fixture_begin_capture(fixture *f, void *stream, int mode);

/* Fills with a pattern by a kernel on the legacy stream; reads back into a poisoned buffer and compares. */
void fixture_fill(fixture *f, u64 address, u64 size, u64 seed);
void fixture_expect(fixture *f, u64 address, u64 size, u64 seed);
/* All of it is `byte`. */
void fixture_expect_bytes(fixture *f, u64 address, u64 size, int byte);

void fixture_rule(fixture *f, const char *text); /* a fault, as vmm_fault_add_text takes it */
/* Calls back at the next driver call of this kind, once. */
void fixture_hook(fixture *f, int op, vmm_fault_hook hook, void *data);
void fixture_clear(fixture *f);        /* no faults any more */
u64 fixture_calls(fixture *f, int op); /* recorded since the last fixture_forget_calls */
void fixture_forget_calls(fixture *f);

vmm_pool_stats fixture_stats(vmm_pool *pool);
vmm_device_stats fixture_device_stats(vmm_device *device);
vmm_sim_ledger fixture_ledger(fixture *f, int device);

/* The ledger equals what pools and device say, and the listings add up to the statistics. For moments at which no fault
 * has left open what the driver did. */
void fixture_compare(fixture *f);

/* Every invariant of every pool. */
void fixture_check(fixture *f);

/* splitmix64 */
u64 fixture_random(u64 *state);
/* A size of a lognormal distribution: median 60 KB, 256 bytes to 4 MiB. */
u64 fixture_lognormal(u64 *state);

#endif
