/* Any sequence of pool operations with any faults in between. After each the pool's own check holds and no block
 * overlaps another; at the end, with the faults gone, nothing is left on the device. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCKS = 64, STREAMS = 3, GRANULE = 65536 };

typedef struct state {
  const uint8_t *data;
  size_t size;
  vmm_driver *sim, *faulty;
  vmm_device *device;
  vmm_pool *pool;
  void *streams[STREAMS];
  int eager;
  unsigned long long address[BLOCKS], length[BLOCKS];
  int scrubbed[BLOCKS]; /* a fill may be queued on the stream it was allocated on, which may be gone */
} state;

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "fuzz_pool: %s\n", what);
  abort();
}

static unsigned take(state *s) {
  if (s->size == 0) return 0;
  s->size--;
  return *s->data++;
}

static unsigned long long take_size(state *s) {
  static const unsigned long long edges[] = {
      0, 1, 255, 256, 257, GRANULE - 1, GRANULE, GRANULE + 1, ~0ull, ~0ull - GRANULE, 1ull << 40, 3 * GRANULE};
  unsigned kind = take(s);

  if (kind % 8 == 0) return edges[kind / 8 % (sizeof edges / sizeof edges[0])];
  return ((unsigned long long)kind << (take(s) % 14)) + take(s);
}

static void no_overlap(const state *s, int slot) {
  int i;

  for (i = 0; i < BLOCKS; i++)
    if (i != slot && s->length[i] != 0)
      require(s->address[slot] + s->length[slot] <= s->address[i] || s->address[i] + s->length[i] <= s->address[slot],
              "two live blocks overlap");
}

static void alloc(state *s, int flags) {
  int slot = (int)(take(s) % BLOCKS);
  vmm_request request;
  vmm_block_info info;
  vmm_error error;

  if (s->length[slot] != 0) return;
  require(vmm_request_init(&request, sizeof request) == VMM_OK, "request init");
  request.size = take_size(s);
  request.alignment = 256ull << (take(s) % 10);
  request.flags = (unsigned)flags;
  if ((flags & VMM_REQUEST_ON_STREAM) != 0) request.stream = s->streams[take(s) % STREAMS];
  request.tag = (unsigned long long)slot;
  memset(&error, 0, sizeof error);
  if (vmm_pool_alloc_with(s->pool, &request, &s->address[slot], &error) != VMM_OK) {
    require(s->address[slot] == 0 && error.message[0] != '\0', "a failed alloc gave an address or no message");
    return;
  }
  require(s->address[slot] % request.alignment == 0, "alignment");
  require(vmm_pool_find(s->pool, s->address[slot], &info, NULL) == VMM_OK && info.tag == (unsigned long long)slot &&
              info.size >= request.size,
          "a block cannot be found");
  s->length[slot] = info.size;
  s->scrubbed[slot] = (flags & VMM_REQUEST_SCRUB) != 0;
  no_overlap(s, slot);
}

static vmm_status give(state *s, int slot) {
  unsigned long long address = s->address[slot];
  unsigned how = take(s);

  if (s->scrubbed[slot] && how % 4 != 1) return vmm_pool_free_multi(s->pool, address, s->streams, STREAMS, NULL);
  switch (how % 4) {
    case 0:
      return vmm_pool_free(s->pool, address, NULL);
    case 1:
      return vmm_pool_free_idle(s->pool, address, NULL);
    case 2:
      return vmm_pool_free_multi(s->pool, address, s->streams, 1 + how / 4 % STREAMS, NULL);
    default:
      return vmm_pool_free_async(s->pool, address, s->streams[how / 4 % STREAMS], NULL);
  }
}

static void new_stream(state *s, int i) {
  require(vmm_raw_stream_create(s->sim, &s->streams[i], 1) == 0, "stream");
  if (!s->eager) (void)vmm_device_register_stream(s->device, s->streams[i], NULL);
}

/* One that is to be forgotten and was not known is; else its handle stays. */
static void end_stream(state *s, int i) {
  vmm_status status = s->eager ? VMM_OK : vmm_device_forget_stream(s->device, s->streams[i], NULL);

  if (status == VMM_OK || status == VMM_ERROR_INVALID_ARGUMENT)
    require(vmm_raw_stream_destroy(s->sim, s->streams[i]) == 0, "stream end");
  else s->streams[i] = NULL;
}

static void queue_work(state *s) {
  unsigned which = take(s);

  (void)vmm_raw_kernel_spin(s->sim, s->streams[which % STREAMS], 1000ull << (which / STREAMS % 12));
  vmm_driver_wait(s->sim, 100ull << (take(s) % 12));
}

static void free_one(state *s) {
  int slot = (int)(take(s) % BLOCKS);

  if (s->length[slot] == 0) {
    require(vmm_pool_free(s->pool, take_size(s), NULL) == VMM_ERROR_UNKNOWN_ADDRESS, "a small number was freed");
    return;
  }
  require(vmm_pool_free(s->pool, s->address[slot] + 1, NULL) == VMM_ERROR_UNKNOWN_ADDRESS,
          "an inner address was freed");
  require(give(s, slot) == VMM_OK, "a live block could not be freed");
  require(vmm_pool_free(s->pool, s->address[slot], NULL) == VMM_ERROR_UNKNOWN_ADDRESS, "freed twice");
  s->length[slot] = 0;
}

static void add_fault(state *s) {
  static const int ops[] = {VMM_OP_mem_create,       VMM_OP_mem_map,      VMM_OP_mem_set_access,
                            VMM_OP_mem_get_access,   VMM_OP_mem_unmap,    VMM_OP_mem_release,
                            VMM_OP_ctx_record_event, VMM_OP_event_query,  VMM_OP_ctx_set_current,
                            VMM_OP_event_record,     VMM_OP_event_create, VMM_OP_stream_wait_event};
  static const int codes[] = {1, 2, 600, 801, 999, 4242};
  vmm_fault_rule rule;

  require(vmm_fault_rule_init(&rule, sizeof rule) == VMM_OK, "rule init");
  rule.op = ops[take(s) % (sizeof ops / sizeof ops[0])];
  rule.code = codes[take(s) % (sizeof codes / sizeof codes[0])];
  /* INVALID_VALUE is how the driver says "not mapped" and "no such handle": the library has to believe that. */
  if (rule.code == 1 && (rule.op == VMM_OP_mem_get_access || rule.op == VMM_OP_mem_release)) rule.code = 999;
  rule.phase = VMM_FAULT_BEFORE; /* an answer after the fact leaks what nobody can name: the fault loops count those */
  rule.occurrence = 1 + take(s) % 4;
  rule.times = take(s) % 4 == 0 ? VMM_FAULT_FOR_EVER : 1;
  require(vmm_fault_add(s->faulty, &rule, NULL, NULL) == VMM_OK, "a rule was refused");
}

static void step(state *s) {
  unsigned long long bytes;

  switch (take(s) % 20) {
    case 0:
    case 1:
    case 2:
      alloc(s, 0);
      break;
    case 3:
      alloc(s, VMM_REQUEST_ONE_MAPPING);
      break;
    case 4:
      alloc(s, VMM_REQUEST_SCRUB);
      break;
    case 5:
    case 6:
    case 7:
      free_one(s);
      break;
    case 8:
      (void)vmm_pool_trim(s->pool, (unsigned long long)take(s) * GRANULE, 0, &bytes, NULL);
      break;
    case 9:
      (void)vmm_pool_grow(s->pool, take_size(s), &bytes, NULL);
      break;
    case 10:
      add_fault(s);
      break;
    case 11:
    case 12:
    case 13:
    case 14:
      alloc(s, VMM_REQUEST_ON_STREAM | (int)(take(s) & (VMM_REQUEST_NO_GROWTH | VMM_REQUEST_SCRUB)));
      break;
    case 15:
      (void)vmm_pool_trim_async(s->pool, (unsigned long long)take(s) * GRANULE, NULL, &bytes, NULL);
      break;
    case 16:
      (void)vmm_pool_poll(s->pool, NULL, &bytes, NULL);
      break;
    case 17:
      bytes = take(s) % STREAMS;
      end_stream(s, (int)bytes);
      new_stream(s, (int)bytes);
      break;
    case 18:
      queue_work(s);
      break;
    default:
      require(vmm_fault_clear(s->faulty) == VMM_OK, "clear");
      break;
  }
}

static int open_all(state *s) {
  vmm_sim_options sim;
  vmm_device_options device;
  vmm_pool_options pool;
  void *context;
  int i;

  require(vmm_sim_options_init(&sim, sizeof sim) == VMM_OK, "sim options");
  sim.minimum_granularity = GRANULE;
  sim.memory = 64ull << 20;
  if (vmm_sim_create(&s->sim, &sim, NULL) != VMM_OK || vmm_fault_create(&s->faulty, s->sim, 1, NULL) != VMM_OK)
    return 0;
  require(vmm_device_options_init(&device, sizeof device) == VMM_OK, "device options");
  device.driver = s->faulty;
  require(vmm_device_open(&s->device, 0, &device, NULL) == VMM_OK, "open");
  require(vmm_pool_options_init(&pool, sizeof pool) == VMM_OK, "pool options");
  pool.mapping_min = GRANULE;
  pool.mapping_max = 8 * GRANULE;
  s->eager = (int)(take(s) % 2);
  pool.events = s->eager ? VMM_EVENTS_EAGER : VMM_EVENTS_LAZY;
  pool.prefer_wait = (int)(take(s) % 2);
  require(vmm_pool_create(&s->pool, s->device, &pool, NULL) == VMM_OK, "create");
  require(vmm_raw_primary_retain(s->sim, &context, 0) == 0 && vmm_raw_ctx_set_current(s->sim, context) == 0, "context");
  for (i = 0; i < STREAMS; i++) new_stream(s, i);
  return 1;
}

/* An unmap where nothing is mapped is no harm (measured: the driver answers SUCCESS), and what the library does when a
 * failed map is followed by a failing question whether it was done. */
static void no_misuse(state *s) {
  vmm_sim_misuse seen[64];
  size_t count = 0, i;

  memset(seen, 0, sizeof seen);
  require(vmm_sim_get_misuse(s->faulty, seen, 64, &count) == VMM_OK, "misuse");
  for (i = 0; i < count && i < 64; i++) require(seen[i].kind == VMM_SIM_MISUSE_UNMAP_HOLE, seen[i].text);
}

static void close_all(state *s) {
  vmm_sim_ledger ledger;
  vmm_error error;

  require(vmm_fault_clear(s->faulty) == VMM_OK, "clear");
  error.message[0] = '\0';
  require(vmm_pool_destroy(s->pool, VMM_DESTROY_FORCED, &error) == VMM_OK, error.message);
  require(vmm_device_close(s->device, &error) == VMM_OK, error.message);
  memset(&ledger, 0, sizeof ledger);
  ledger.struct_size = sizeof ledger;
  require(vmm_sim_get_ledger(s->faulty, 0, &ledger) == VMM_OK, "ledger");
  (void)vmm_raw_primary_release(s->sim, 0);
  require(ledger.handles == 0 && ledger.mappings == 0 && ledger.reservations == 0, "something is left on the device");
  no_misuse(s);
  vmm_driver_release(s->faulty);
  vmm_driver_release(s->sim);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  state s;
  vmm_error error;

  memset(&s, 0, sizeof s);
  s.data = data;
  s.size = size;
  if (!open_all(&s)) return 0;
  while (s.size != 0) {
    step(&s);
    if (s.size % 4 == 0) require(vmm_pool_check(s.pool, &error) == VMM_OK, error.message);
  }
  close_all(&s);
  return 0;
}
