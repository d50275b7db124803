/* The machine of bench_cuda: opening and closing, CUDA's allocators, raw memory. See machine.h. */
#include "machine.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- CUDA's allocators ---- */

enum { ATTRIBUTE_RELEASE_THRESHOLD = 4 };

static void *open_any(const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++) {
    void *library = names[i] != NULL ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;

    if (library != NULL) return library;
  }
  return NULL;
}

/* Memory that was freed stays with CUDA's pool, as users who care for speed set it. */
static void keep_pool(void *library, const char *get_name, const char *set_name) {
  int (*get)(void **, int);
  int (*set)(void *, int, void *);
  u64 all = ~0ull;
  void *pool;

  *(void **)&get = dlsym(library, get_name);
  *(void **)&set = dlsym(library, set_name);
  if (get == NULL || set == NULL || get(&pool, 0) != 0 || set(pool, ATTRIBUTE_RELEASE_THRESHOLD, &all) != 0)
    fprintf(stderr, "%s: the release threshold could not be set\n", set_name);
}

static void find_allocators(bench_machine *machine, const char *cudart) {
  const char *runtimes[] = {cudart, "libcudart.so.13", "libcudart.so.12", "libcudart.so",
                            "/usr/local/cuda/lib64/libcudart.so"};
  const char *drivers[] = {"libcuda.so.1"};
  bench_allocators *cuda = &machine->cuda;
  void *library = open_any(runtimes, sizeof runtimes / sizeof *runtimes);
  bool runtime = library != NULL;

  if (!runtime) library = open_any(drivers, 1);
  if (library == NULL) return;
  cuda->plain_name = runtime ? "cudaMalloc" : "cuMemAlloc";
  cuda->ordered_name = runtime ? "cudaMallocAsync" : "cuMemAllocAsync";
  *(void **)&cuda->plain_alloc = dlsym(library, runtime ? "cudaMalloc" : "cuMemAlloc_v2");
  *(void **)&cuda->plain_free = dlsym(library, runtime ? "cudaFree" : "cuMemFree_v2");
  *(void **)&cuda->ordered_alloc = dlsym(library, runtime ? "cudaMallocAsync" : "cuMemAllocAsync");
  *(void **)&cuda->ordered_free = dlsym(library, runtime ? "cudaFreeAsync" : "cuMemFreeAsync");
  if (cuda->plain_free == NULL) cuda->plain_alloc = NULL;
  if (cuda->ordered_free == NULL) cuda->ordered_alloc = NULL;
  if (cuda->ordered_alloc != NULL)
    keep_pool(library, runtime ? "cudaDeviceGetDefaultMemPool" : "cuDeviceGetDefaultMemPool",
              runtime ? "cudaMemPoolSetAttribute" : "cuMemPoolSetAttribute");
}

/* On the simulated device only cuMemAlloc is there to compare with. */
static vmm_driver *sim_of_allocators;

static int sim_alloc(void **pointer, size_t size) {
  u64 address = 0;
  int code = vmm_raw_mem_alloc(sim_of_allocators, &address, size);

  *pointer = (void *)(size_t)address;
  return code;
}

static int sim_free(void *pointer) { return vmm_raw_mem_free(sim_of_allocators, (u64)(size_t)pointer); }

/* ---- open and close ---- */

static void open_driver(bench_machine *machine, const char *driver, const char *kernels) {
  vmm_error error;

  machine->simulated = strcmp(driver, "sim") == 0;
  if (machine->simulated) {
    bench_need(vmm_sim_create(&machine->driver, NULL, &error), &error);
    sim_of_allocators = machine->driver;
    return;
  }
  bench_need(vmm_cuda_create(&machine->driver, &error), &error);
  if (kernels != NULL) {
    FILE *file = fopen(kernels, "rb");
    static char image[4 << 20];
    size_t size = file != NULL ? fread(image, 1, sizeof image, file) : 0;

    if (size == 0) {
      fprintf(stderr, "%s: no GPU code could be read\n", kernels);
      exit(1);
    }
    fclose(file);
    bench_need(vmm_cuda_set_kernels(machine->driver, image, size, &error), &error);
  }
}

void machine_open(bench_machine *machine, const char *driver, const char *kernels, const char *cudart) {
  vmm_device_options options;
  vmm_device_info info;
  vmm_error error;
  size_t free, total;
  int device;

  open_driver(machine, driver, kernels);
  bench_need(vmm_device_options_init(&options, sizeof options), &error);
  options.driver = machine->driver;
  bench_need(vmm_device_open(&machine->device, 0, &options, &error), &error);
  info.struct_size = sizeof info;
  bench_need(vmm_device_get_info(machine->device, &info, &error), &error);
  machine->granularity = info.granularity;
  bench_need_code(vmm_raw_device_get(machine->driver, &device, 0), "cuDeviceGet");
  bench_need_code(vmm_raw_primary_retain(machine->driver, &machine->context, device), "cuDevicePrimaryCtxRetain");
  bench_need_code(vmm_raw_ctx_set_current(machine->driver, machine->context), "cuCtxSetCurrent");
  bench_need_code(vmm_raw_stream_create(machine->driver, &machine->stream, 1), "cuStreamCreate");
  bench_need_code(vmm_raw_mem_get_info(machine->driver, &free, &total), "cuMemGetInfo");
  machine->free_bytes = free;
  machine->total_bytes = total;
  machine->prop = (vmm_raw_prop){1, 0, 1, device, 0, 0};
  machine->access = (vmm_raw_access){1, device, 3};
  if (machine->simulated) {
    machine->cuda.plain_name = "cuMemAlloc";
    machine->cuda.plain_alloc = sim_alloc;
    machine->cuda.plain_free = sim_free;
  } else {
    find_allocators(machine, cudart);
  }
  printf("%s, driver %d (%s), granularity %llu MiB, libvmm %s\n", info.name, info.driver_version, info.driver_name,
         info.granularity >> 20, vmm_version_string());
  if (machine->report.json != NULL)
    fprintf(machine->report.json,
            "{\"about\": {\"device\": \"%s\", \"cuda\": %d, \"driver\": \"%s\", \"libvmm\": \"%s\"}}\n", info.name,
            info.driver_version, info.driver_name, vmm_version_string());
}

void machine_close(bench_machine *machine) {
  vmm_error error;

  machine_drain(machine);
  bench_need_code(vmm_raw_stream_destroy(machine->driver, machine->stream), "cuStreamDestroy");
  bench_need(vmm_device_close(machine->device, &error), &error);
  bench_need_code(vmm_raw_primary_release(machine->driver, machine->prop.location_id), "cuDevicePrimaryCtxRelease");
  vmm_driver_release(machine->driver);
}

vmm_device *machine_device(bench_machine *machine, int policy) {
  vmm_device_options options;
  vmm_driver *wrapper;
  vmm_device *device;
  vmm_error error;

  bench_need(vmm_fault_create(&wrapper, machine->driver, 0, &error), &error);
  bench_need(vmm_device_options_init(&options, sizeof options), &error);
  options.driver = wrapper;
  options.sync_policy = policy;
  bench_need(vmm_device_open(&device, 0, &options, &error), &error);
  vmm_driver_release(wrapper); /* the device holds it */
  bench_need(vmm_device_register_stream(device, machine->stream, &error), &error);
  return device;
}

u64 machine_size(const bench_machine *machine, u64 size) {
  u64 small = size / 64;

  if (!machine->simulated) return size;
  return small < machine->granularity ? machine->granularity : small;
}

int machine_rounds(const bench_machine *machine, int rounds) {
  int fewer = machine->simulated ? 2 : rounds / machine->divide;

  return fewer < 2 ? 2 : fewer;
}

void machine_spin(bench_machine *machine, u64 ns) {
  int code = vmm_raw_kernel_spin(machine->driver, machine->stream, ns);

  if (code == VMM_CODE_NOT_SUPPORTED) fprintf(stderr, "no GPU-side kernels: --kernels FILE names them\n");
  bench_need_code(code, "kernel_spin");
}

void machine_drain(bench_machine *machine) {
  bench_need_code(vmm_raw_ctx_synchronize(machine->driver), "cuCtxSynchronize");
}

vmm_pool *machine_pool(vmm_device *device, void *home_stream) {
  vmm_pool_options options;
  vmm_error error;
  vmm_pool *pool;

  bench_need(vmm_pool_options_init(&options, sizeof options), &error);
  options.home_stream = home_stream;
  bench_need(vmm_pool_create(&pool, device, &options, &error), &error);
  return pool;
}

vmm_pool *machine_anchored_pool(bench_machine *machine, vmm_device *device, void *home_stream) {
  vmm_pool *pool = machine_pool(device, home_stream);
  u64 anchor;
  vmm_error error;

  bench_need(vmm_pool_alloc(pool, machine->granularity, &anchor, &error), &error);
  return pool;
}

void machine_end_pool(vmm_pool *pool) {
  vmm_error error;

  bench_need(vmm_pool_destroy(pool, VMM_DESTROY_FORCED, &error), &error);
}

void machine_empty(bench_machine *machine, vmm_device *device, vmm_pool *pool) {
  vmm_pool_stats stats = {.struct_size = sizeof stats};
  vmm_error error;

  for (int i = 0; i < 100; i++) {
    machine_drain(machine);
    bench_need(vmm_pool_trim(pool, 0, 0, NULL, &error), &error);
    bench_need(vmm_device_trim(device, 0, NULL, &error), &error);
    bench_need(vmm_pool_get_stats(pool, &stats, &error), &error);
    if (stats.committed_bytes < stats.block_bytes + machine->granularity) return;
  }
  fprintf(stderr, "a pool could not be emptied: %llu bytes stay\n", stats.committed_bytes);
  exit(1);
}

/* ---- raw memory ---- */

size_t machine_shape(vmm_pool *pool, u64 sizes[MACHINE_MOST_MAPPINGS]) {
  vmm_mapping_info *mappings = bench_memory(MACHINE_MOST_MAPPINGS, sizeof *mappings);
  vmm_error error;
  size_t count;

  bench_need(vmm_pool_get_mappings(pool, mappings, MACHINE_MOST_MAPPINGS, &count, &error), &error);
  if (count > MACHINE_MOST_MAPPINGS) bench_need(VMM_ERROR_MAPPING_LIMIT, NULL);
  for (size_t i = 1; i < count; i++) sizes[i - 1] = mappings[i].size;
  free(mappings);
  return count - 1;
}

enum { RANGE_FACTOR = 4 }; /* of the device's memory, as the pool's default */

void raw_open(raw_memory *raw, bench_machine *machine, const u64 *sizes, size_t count) {
  vmm_driver *driver = machine->driver;
  u64 granule = machine->granularity, all = granule;

  memset(raw, 0, sizeof *raw);
  raw->machine = machine;
  raw->count = count;
  raw->sizes = bench_memory(count, sizeof *raw->sizes);
  raw->handles = bench_memory(count, sizeof *raw->handles);
  for (size_t i = 0; i < count; i++) {
    raw->sizes[i] = (size_t)sizes[i];
    all += sizes[i];
  }
  raw->reserved = machine->total_bytes * RANGE_FACTOR / granule * granule;
  if (raw->reserved < all) raw->reserved = all;
  bench_need_code(vmm_raw_mem_reserve(driver, &raw->range, (size_t)raw->reserved, 0, 0, 0), "cuMemAddressReserve");
  raw->address = raw->range + granule;
  bench_need_code(vmm_raw_mem_create(driver, &raw->anchor, granule, &machine->prop, 0), "cuMemCreate");
  bench_need_code(vmm_raw_mem_map(driver, raw->range, granule, 0, raw->anchor, 0), "cuMemMap");
  bench_need_code(vmm_raw_mem_set_access(driver, raw->range, granule, &machine->access, 1), "cuMemSetAccess");
}

void raw_open_even(raw_memory *raw, bench_machine *machine, u64 size, size_t pieces) {
  u64 *sizes = bench_memory(pieces, sizeof *sizes);

  for (size_t i = 0; i < pieces; i++) sizes[i] = size;
  raw_open(raw, machine, sizes, pieces);
  free(sizes);
}

int raw_map_part(raw_memory *raw, size_t first, size_t count) {
  vmm_driver *driver = raw->machine->driver;
  u64 start = raw->address, at;
  int code = 0;

  for (size_t i = 0; i < first; i++) start += raw->sizes[i];
  at = start;
  for (size_t i = first; i < first + count && code == 0; i++) {
    code = vmm_raw_mem_create(driver, &raw->handles[i], raw->sizes[i], &raw->machine->prop, 0);
    if (code == 0) code = vmm_raw_mem_map(driver, at, raw->sizes[i], 0, raw->handles[i], 0);
    at += raw->sizes[i];
  }
  return code ? code : vmm_raw_mem_set_access(driver, start, (size_t)(at - start), &raw->machine->access, 1);
}

int raw_map(raw_memory *raw) { return raw_map_part(raw, 0, raw->count); }

void raw_unmap(raw_memory *raw) {
  vmm_driver *driver = raw->machine->driver;
  u64 at = raw->address;

  for (size_t i = 0; i < raw->count; i++) {
    bench_need_code(vmm_raw_mem_unmap(driver, at, raw->sizes[i]), "cuMemUnmap");
    bench_need_code(vmm_raw_mem_release(driver, raw->handles[i]), "cuMemRelease");
    at += raw->sizes[i];
  }
}

void raw_close(raw_memory *raw) {
  vmm_driver *driver = raw->machine->driver;

  bench_need_code(vmm_raw_mem_unmap(driver, raw->range, raw->machine->granularity), "cuMemUnmap");
  bench_need_code(vmm_raw_mem_release(driver, raw->anchor), "cuMemRelease");
  bench_need_code(vmm_raw_mem_address_free(driver, raw->range, (size_t)raw->reserved), "cuMemAddressFree");
  free(raw->handles);
  free(raw->sizes);
}
