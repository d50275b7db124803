/* What stands before an operation: drivers, device, pool, blocks with known bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"

enum { SIM_GRANULE = 65536, CUDA_GRANULE = 2 << 20, LARGEST_BLOCK = CUDA_GRANULE * 2, THREAD_LOCAL = 1, RELAXED = 2 };

/* Made once: a CUDA context costs far more than a run. */
static vmm_driver *cuda;
static void *cuda_context, *cuda_guest;
static u64 cuda_counter;

static bool must(world *w, bool good, const char *what) {
  if (!good && !w->failed) fprintf(stderr, "faults: %s: the world cannot be made: %s\n", w->s->name, what);
  if (!good) w->failed = true;
  return good;
}

/* ---- host memory ---- */

static void *host_allocate(void *data, size_t size) {
  host *h = data;
  u64 call = ++h->calls;
  size_t *memory;

  if (h->fail_at != 0 && (call == h->fail_at || (h->for_ever && call > h->fail_at))) {
    if (h->fired++ == 0) h->calls_before = vmm_record_count(h->driver, VMM_OP_ANY);
    return NULL;
  }
  memory = malloc(size + 16);
  if (memory == NULL) return NULL;
  memset(memory, 0xA5, size + 16);
  memory[0] = size;
  h->live++;
  return memory + 2;
}

static void host_release(void *data, void *pointer, size_t size) {
  host *h = data;
  size_t *memory = (size_t *)pointer - 2;

  if (memory[0] != size) h->wrong_size = true;
  h->live--;
  free(memory);
}

/* ---- drivers ---- */

static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  long length = 0;
  void *bytes = NULL;

  if (file == NULL) return NULL;
  if (fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) > 0 && fseek(file, 0, SEEK_SET) == 0) {
    bytes = malloc((size_t)length);
    if (bytes != NULL && fread(bytes, 1, (size_t)length, file) != (size_t)length) {
      free(bytes);
      bytes = NULL;
    }
  }
  (void)fclose(file);
  *size = (size_t)length;
  return bytes;
}

static bool open_cuda(void) {
  vmm_error error;
  size_t size = 0;
  void *image;
  void *popped;

  if (cuda != NULL) return true;
  if (vmm_cuda_create(&cuda, &error) != VMM_OK) {
    fprintf(stderr, "faults: %s\n", error.message);
    return false;
  }
  image = read_file(global.kernels, &size);
  if (image == NULL || vmm_cuda_set_kernels(cuda, image, size, &error) != VMM_OK) {
    fprintf(stderr, "faults: the kernels of %s cannot be used\n", global.kernels);
    return false;
  }
  free(image);
  return vmm_raw_init(cuda, 0) == 0 && vmm_raw_primary_retain(cuda, &cuda_context, 0) == 0 &&
         vmm_raw_ctx_create(cuda, &cuda_guest, 0, 0) == 0 && vmm_raw_ctx_push(cuda, cuda_context) == 0 &&
         vmm_raw_mem_alloc(cuda, &cuda_counter, 4096) == 0 && vmm_raw_ctx_pop(cuda, &popped) == 0;
}

static void make_sim(world *w) {
  vmm_sim_options options;

  (void)vmm_sim_options_init(&options, sizeof options);
  options.device_count = 2;
  options.memory = w->s->plain ? 64u << 20 : 16u << 20; /* what ten creations leave behind must not be all of it */
  options.minimum_granularity = options.granularity = SIM_GRANULE;
  options.driver_version = w->s->driver_version;
  options.no_vmm = w->s->plain;
  options.fresh = w->s->scrub ? VMM_SIM_FRESH_POISON : VMM_SIM_FRESH_ZERO;
  if (!must(w, vmm_sim_create(&w->base, &options, NULL) == VMM_OK, "simulator")) return;
  (void)vmm_sim_forbid_blocking(w->base, w->s->driver_version == 0);
  must(w, vmm_raw_init(w->base, 0) == 0 && vmm_raw_primary_retain(w->base, &w->context, 0) == 0, "context");
  if (w->s->given_context) must(w, vmm_raw_ctx_create(w->base, &w->own, 0, 0) == 0, "own context");
  must(w, vmm_raw_ctx_create(w->base, &w->guest, 0, 1) == 0, "guest");
}

static void make_drivers(world *w) {
  vmm_driver *wrapper = NULL;
  int mode = THREAD_LOCAL;

  w->granule = global.cuda ? CUDA_GRANULE : SIM_GRANULE;
  if (global.cuda) {
    if (!must(w, open_cuda(), "CUDA")) return;
    vmm_driver_retain(cuda);
    w->base = cuda;
    w->context = cuda_context;
    w->guest = cuda_guest;
    w->counter = cuda_counter;
  } else {
    make_sim(w);
  }
  must(w, !w->failed && vmm_fault_create(&wrapper, w->base, 1, NULL) == VMM_OK, "fault wrapper");
  must(w, wrapper != NULL && vmm_record_create(&w->driver, wrapper, MAX_CALLS, NULL) == VMM_OK, "recorder");
  vmm_driver_release(wrapper);
  /* What every call must leave as it is: another context is current, and the mode is not the default. */
  if (!w->failed)
    must(w, vmm_raw_ctx_set_current(w->base, w->guest) == 0 && vmm_raw_capture_mode(w->base, &mode) == 0, "thread");
}

/* ---- device and pool ---- */

void world_device_options(world *w, vmm_device_options *options) {
  (void)vmm_device_options_init(options, sizeof *options);
  options->driver = w->driver;
  options->context = w->own;
  options->sync_policy = w->s->policy != 0 ? w->s->policy : VMM_SYNC_ON_DEMAND;
  options->idle_limit = w->s->idle ? 16 * w->granule : 0;
  options->host_memory = &w->host.table;
  options->fallback = w->s->plain ? VMM_FALLBACK_ALLOWED : VMM_FALLBACK_NEVER;
  options->deadline_ns = global.cuda ? DEADLINE_NS / 2 : DEADLINE_NS;
}

void world_pool_options(world *w, vmm_pool_options *options) {
  static const int peer[] = {1};

  (void)vmm_pool_options_init(options, sizeof *options);
  options->reservation = 64 * w->granule;
  options->initial = w->s->initial * w->granule;
  options->mapping_min = w->granule;
  options->mapping_max = 2 * w->granule;
  options->growth_policy = w->s->exact ? VMM_GROWTH_EXACT : VMM_GROWTH_PROPORTIONAL;
  options->verify = w->s->verify;
  options->scrub = w->s->scrub;
  options->home_stream = w->s->home ? w->stream : NULL;
  options->limit = w->s->limit * w->granule;
  options->events = w->s->eager ? VMM_EVENTS_EAGER : VMM_EVENTS_LAZY;
  options->prefer_wait = w->s->wait;
  if (w->s->peer) {
    options->peers = peer;
    options->peer_count = 1;
  }
}

static void make_streams(world *w) {
  if (!w->s->capture && !w->s->home && !w->s->streams) return;
  world_enter(w, w->context);
  if (w->s->streams) must(w, vmm_raw_stream_create(w->base, &w->second, 1) == 0, "stream");
  must(w, vmm_raw_stream_create(w->base, &w->stream, 1) == 0, "stream");
  if (w->s->capture) must(w, vmm_raw_stream_create(w->base, &w->captured, 1) == 0, "stream");
  world_leave(w);
}

/* A second device, to be left alone when the first is lost. */
static void make_other(world *w) {
  vmm_device_options options;
  vmm_pool_options pool;
  vmm_pool *first = w->pool;

  world_device_options(w, &options);
  options.context = NULL;
  world_pool_options(w, &pool);
  pool.peer_count = 0;
  pool.home_stream = NULL;
  pool.initial = 0;
  must(w, vmm_device_open(&w->other, 1, &options, NULL) == VMM_OK, "other device");
  if (!w->failed) must(w, vmm_pool_create(&w->other_pool, w->other, &pool, NULL) == VMM_OK, "other pool");
  if (w->failed) return;
  w->other_block.size = 5120;
  w->other_block.seed = 99;
  must(w, vmm_pool_alloc(w->other_pool, w->other_block.size, &w->other_block.address, NULL) == VMM_OK, "other block");
  world_enter(w, w->guest);
  must(w, world_fill(w, w->base, &w->other_block), "other block's bytes");
  world_leave(w);
  w->pool = first;
}

/* The usual pool: one granule, three blocks, some of it left free. */
static void make_pool(world *w) {
  vmm_pool_options options;
  scenario usual = *w->s;
  const scenario *real = w->s;

  usual.initial = 1;
  w->s = &usual;
  world_pool_options(w, &options);
  w->s = real;
  if (!must(w, vmm_pool_create(&w->pool, w->device, &options, NULL) == VMM_OK, "pool")) return;
  (void)world_block(w, 256);
  (void)world_block(w, 5120);
  (void)world_block(w, w->granule / 2);
  if (real->full) (void)world_block(w, w->granule / 2 - 256 - 5120);
}

void world_make(world *w, const scenario *s, bool other) {
  vmm_device_options options;

  memset(w, 0, sizeof *w);
  w->s = s;
  w->host.table.struct_size = sizeof w->host.table;
  w->host.table.allocate = host_allocate;
  w->host.table.release = host_release;
  w->host.table.data = &w->host;
  make_drivers(w);
  w->host.driver = w->driver;
  if (w->failed) return;
  world_state(w, &w->start);
  make_streams(w);
  world_device_options(w, &options);
  if (s->stands >= DEVICE && !w->failed) must(w, vmm_device_open(&w->device, 0, &options, NULL) == VMM_OK, "device");
  if (s->stands >= POOL && !w->failed) make_pool(w);
  if (!w->failed && other) make_other(w); /* first, for queued work must not end meanwhile */
  if (!w->failed && s->prepare != NULL) s->prepare(w);
  if (!w->failed && s->capture && !s->later) must(w, world_capture(w, NULL) == VMM_OK, "announcement");
}

void world_end(world *w) {
  void *popped;

  if (global.cuda && w->base != NULL) (void)vmm_raw_ctx_pop(w->base, &popped);
  vmm_driver_release(w->driver);
  vmm_driver_release(w->base);
}

/* ---- looking ---- */

void world_enter(world *w, void *context) {
  int mode = RELAXED;

  must(w, vmm_raw_ctx_push(w->base, context) == 0 && vmm_raw_capture_mode(w->base, &mode) == 0, "enter");
}

void world_leave(world *w) {
  int mode = THREAD_LOCAL;
  void *popped;

  must(w, vmm_raw_ctx_pop(w->base, &popped) == 0 && vmm_raw_capture_mode(w->base, &mode) == 0, "leave");
}

u64 world_free_bytes(world *w) {
  size_t free_bytes = 0, total = 0;

  world_enter(w, w->context);
  (void)vmm_raw_mem_get_info(w->base, &free_bytes, &total);
  world_leave(w);
  return free_bytes;
}

void world_state(world *w, state *now) {
  vmm_fault_orphan orphans[256];
  vmm_device_info info;
  int mode = RELAXED;
  size_t i;

  memset(now, 0, sizeof *now);
  now->ledger.struct_size = sizeof now->ledger;
  now->device.struct_size = sizeof now->device;
  now->pool.struct_size = sizeof now->pool;
  info.struct_size = sizeof info;
  if (!global.cuda) (void)vmm_sim_get_ledger(w->base, 0, &now->ledger);
  now->has_device = w->device != NULL && vmm_device_get_stats(w->device, &now->device, NULL) == VMM_OK;
  now->lost = w->device != NULL && vmm_device_get_info(w->device, &info, NULL) == VMM_OK && info.lost != 0;
  now->has_pool = w->pool != NULL && vmm_pool_get_stats(w->pool, &now->pool, NULL) == VMM_OK;
  (void)vmm_fault_get_orphans(w->driver, orphans, 256, &now->orphan_count);
  for (i = 0; i < now->orphan_count && i < 256; i++) now->orphans[orphans[i].op]++;
  (void)vmm_raw_ctx_get_current(w->base, &now->current);
  (void)vmm_raw_capture_mode(w->base, &mode);
  now->mode = mode;
  (void)vmm_raw_capture_mode(w->base, &mode);
}

/* ---- blocks ---- */

static const unsigned *pattern(u64 seed, u64 size) {
  static struct {
    u64 seed, size;
    unsigned *words;
  } known[64];
  size_t i, k;

  for (i = 0; i < 64 && known[i].words != NULL; i++)
    if (known[i].seed == seed && known[i].size == size) return known[i].words;
  if (i == 64) {
    free(known[--i].words);
    known[i].words = NULL;
  }
  known[i].words = malloc(size);
  if (known[i].words == NULL) return NULL;
  known[i].seed = seed;
  known[i].size = size;
  for (k = 0; k < size / sizeof(unsigned); k++) known[i].words[k] = vmm_pattern_word(seed, k);
  return known[i].words;
}

/* Every second block by a kernel, the others by a copy. Needs a context. */
bool world_fill(world *w, vmm_driver *driver, const block *of) {
  const unsigned *words = pattern(of->seed, of->size);

  (void)w;
  if (words == NULL) return false;
  if (of->seed % 2 != 0) return vmm_raw_memcpy_htod(driver, of->address, words, of->size) == 0;
  return vmm_raw_kernel_fill(driver, NULL, of->address, of->size, of->seed) == 0;
}

u64 world_block(world *w, u64 size) {
  block *fresh = &w->blocks[w->block_count];

  if (w->failed || !must(w, w->block_count < MAX_BLOCKS, "room for a block")) return 0;
  fresh->size = size;
  fresh->seed = w->block_count + 1;
  if (!must(w, vmm_pool_alloc(w->pool, size, &fresh->address, NULL) == VMM_OK, "block")) return 0;
  w->block_count++;
  world_enter(w, w->context);
  must(w, world_fill(w, w->base, fresh), "block's bytes");
  world_leave(w);
  return fresh->address;
}

void world_drop(world *w, size_t i, bool idle) {
  u64 address = w->blocks[i].address;

  if (idle) { /* who frees so vouches that nothing queued uses the block: its fill is one such thing */
    world_enter(w, w->context);
    must(w, global.cuda ? vmm_raw_ctx_synchronize(w->base) == 0 : vmm_sim_drain(w->base) == VMM_OK, "the block's work");
    world_leave(w);
  }
  must(w, (idle ? vmm_pool_free_idle(w->pool, address, NULL) : vmm_pool_free(w->pool, address, NULL)) == VMM_OK,
       "free");
  memmove(&w->blocks[i], &w->blocks[i + 1], (--w->block_count - i) * sizeof w->blocks[0]);
}

/* Needs a context. Over CUDA a kernel looks, as the blocks' users would. */
bool world_intact(world *w, const block *of) {
  static unsigned char bytes[LARGEST_BLOCK];
  const unsigned *words;
  u64 mismatches = 0;

  if (of->size > sizeof bytes) return false;
  if (global.cuda) {
    if (vmm_raw_memcpy_htod(w->base, w->counter, &mismatches, sizeof mismatches) != 0 ||
        vmm_raw_kernel_verify(w->base, NULL, of->address, of->size, of->seed, w->counter) != 0)
      return false;
    mismatches = ~0ull;
    return vmm_raw_memcpy_dtoh(w->base, &mismatches, w->counter, sizeof mismatches) == 0 && mismatches == 0;
  }
  words = pattern(of->seed, of->size);
  memset(bytes, 0x5A, of->size);
  if (w->lost) { /* a dead context copies nothing; the memory can still be looked at */
    void *view = NULL;

    return words != NULL && vmm_sim_view(w->base, of->address, of->size, &view) == VMM_OK &&
           memcmp(view, words, of->size) == 0;
  }
  return words != NULL && vmm_raw_memcpy_dtoh(w->base, bytes, of->address, of->size) == 0 &&
         memcmp(bytes, words, of->size) == 0;
}

bool world_is_zero(world *w, u64 address, u64 size) {
  static unsigned char bytes[LARGEST_BLOCK];
  u64 i;

  if (size > sizeof bytes) return false;
  memset(bytes, 0x5A, size);
  if (vmm_raw_memcpy_dtoh(w->base, bytes, address, size) != 0) return false;
  for (i = 0; i < size; i++)
    if (bytes[i] != 0) return false;
  return true;
}
