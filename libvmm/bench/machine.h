/* The machine of bench_cuda: a GPU or the simulated device, the library's device on it, streams, and what is compared
 * with: the driver's own calls, and CUDA's allocators, loaded at run time where they are there. */
#ifndef VMM_BENCH_MACHINE_H
#define VMM_BENCH_MACHINE_H

#include "harness.h"
#include "vmm/driver.h"

/* CUDA's allocators, of the runtime (libcudart) or of the driver if there is no runtime. */
typedef struct bench_allocators {
  const char *plain_name, *ordered_name; /* "cudaMalloc" or "cuMemAlloc", "cudaMallocAsync" or "cuMemAllocAsync" */
  int (*plain_alloc)(void **, size_t);
  int (*plain_free)(void *);
  int (*ordered_alloc)(void **, size_t, void *);
  int (*ordered_free)(void *, void *);
} bench_allocators;

typedef struct bench_machine {
  bench_report report;
  vmm_driver *driver;
  vmm_device *device;
  void *context;
  void *stream; /* for work; does not wait for the legacy stream */
  u64 granularity;
  u64 free_bytes, total_bytes;
  bool simulated;
  int divide; /* rounds are divided by it, for a quick look */
  bench_allocators cuda;
  vmm_raw_prop prop;
  vmm_raw_access access;
} bench_machine;

/* `driver`: "cuda", "sim". `kernels`: the file of the GPU-side kernels, or NULL. `cudart`: a path, or NULL. */
void machine_open(bench_machine *machine, const char *driver, const char *kernels, const char *cudart);
void machine_close(bench_machine *machine);

/* The library's device under this sync policy, to be closed by the caller. Devices with other options than the
 * machine's own stand on a wrapper around its driver, which costs a call some 50 ns more. */
vmm_device *machine_device(bench_machine *machine, int policy);

/* A size for this machine: the simulated device takes a fraction of it, so that a smoke test is quick. */
u64 machine_size(const bench_machine *machine, u64 size);
int machine_rounds(const bench_machine *machine, int rounds);

/* Occupies the stream. */
void machine_spin(bench_machine *machine, u64 ns);
void machine_drain(bench_machine *machine);

vmm_pool *machine_pool(vmm_device *device, void *home_stream);
/* The same with a block of a granule that lives as long as the pool: the first mapping of a region costs the driver some
 * 20 us more (measured), and a pool that grows in place is not empty. */
vmm_pool *machine_anchored_pool(bench_machine *machine, vmm_device *device, void *home_stream);
void machine_end_pool(vmm_pool *pool);
/* Gives all that is idle in the pool back to the driver, so that the next growth starts from nothing but what blocks lie
 * in. */
void machine_empty(bench_machine *machine, vmm_device *device, vmm_pool *pool);

/* The parts of bench_cuda. */
void bench_pairs(bench_machine *machine);
void bench_streams(bench_machine *machine);
void bench_growth(bench_machine *machine);
void bench_vector(bench_machine *machine);
void bench_load(bench_machine *machine);
void bench_trim(bench_machine *machine);
void bench_bandwidth(bench_machine *machine);

/* ---- raw memory: handles mapped one behind the other in a range, as an engine of its own would. The range is as long as a
 * pool's and begins with a granule that stays mapped, as an anchored pool's does: what a mapping costs depends on which page
 * directories are there already ---- */

typedef struct raw_memory {
  bench_machine *machine;
  u64 range, reserved;
  u64 anchor;  /* handle of the first granule */
  u64 address; /* behind it */
  u64 *handles;
  size_t *sizes;
  size_t count;
} raw_memory;

/* The sizes of an anchored pool's mappings behind its anchor: what to do the same with. */
enum { MACHINE_MOST_MAPPINGS = 8192 };
size_t machine_shape(vmm_pool *pool, u64 sizes[MACHINE_MOST_MAPPINGS]);

/* Reserves; the shape is `count` handles of these sizes. */
void raw_open(raw_memory *raw, bench_machine *machine, const u64 *sizes, size_t count);
/* `pieces` handles of one size. */
void raw_open_even(raw_memory *raw, bench_machine *machine, u64 size, size_t pieces);
/* Creates, maps, gives access in one call: all of it, or `count` handles from number `first`. Answers the code of the first
 * call that failed. */
int raw_map(raw_memory *raw);
int raw_map_part(raw_memory *raw, size_t first, size_t count);
/* Unmaps and releases all, handle by handle. */
void raw_unmap(raw_memory *raw);
void raw_close(raw_memory *raw);

#endif
