/* Opening and closing what the tests stand on; blocks, faults and records. */
#include "support/fixture.h"

#include <math.h>

enum { SHOWN = 24 };

/* ---- host memory ---- */

static void *allocate(void *data, size_t size) {
  fixture_memory *memory = data;
  void *pointer;

  (void)atomic_fetch_add(&memory->calls, 1);
  if (atomic_load(&memory->fail_in) > 0 && atomic_fetch_sub(&memory->fail_in, 1) == 1) return NULL;
  pointer = malloc(size);
  if (pointer == NULL) return NULL;
  memset(pointer, 0xA5, size);
  (void)atomic_fetch_add(&memory->out, (long long)size);
  return pointer;
}

static void *(*const volatile wipe)(void *, int, size_t) = memset; /* one that is not left out before a free */

static void release(void *data, void *pointer, size_t size) {
  fixture_memory *memory = data;

  (void)atomic_fetch_sub(&memory->out, (long long)size);
  if (pointer != NULL) wipe(pointer, 0x5A, size); /* who uses it still finds nothing */
  free(pointer);
}

/* ---- options ---- */

void fixture_defaults(fixture_options *options) {
  memset(options, 0, sizeof *options);
  CHECK_OK(vmm_sim_options_init(&options->sim, sizeof options->sim));
  CHECK_OK(vmm_device_options_init(&options->device, sizeof options->device));
  options->sim.memory = 256 * MIB;
  options->sim.minimum_granularity = 64 * KIB;
  options->sim.fresh = VMM_SIM_FRESH_POISON;
  options->pool = fixture_pool_options();
}

vmm_pool_options fixture_pool_options(void) {
  vmm_pool_options options;

  CHECK_OK_RETURN(vmm_pool_options_init(&options, sizeof options), options);
  options.mapping_min = 256 * KIB;
  options.mapping_max = 2 * MIB;
  return options;
}

void fixture_large(fixture_options *options) {
  fixture_defaults(options);
  options->sim.memory = 0;
  options->sim.minimum_granularity = 0;
  options->sim.fresh = VMM_SIM_FRESH_ZERO;
  options->pool.mapping_min = options->pool.mapping_max = 0;
}

/* ---- open and close ---- */

static void show_calls(void *data) {
  fixture *f = data;
  vmm_record_entry entries[256];
  char line[256];
  size_t count = 0, i;

  if (f->driver == NULL || vmm_record_get(f->driver, 0, entries, 256, &count) != VMM_OK) return;
  printf("the last driver calls:\n");
  for (i = count > SHOWN ? count - SHOWN : 0; i < count; i++) {
    (void)vmm_record_format(&entries[i], line, sizeof line);
    printf("  %s\n", line);
  }
}

void fixture_open(fixture *f, const fixture_options *given) {
  fixture_options options;

  memset(f, 0, sizeof *f);
  if (given != NULL) options = *given;
  else fixture_defaults(&options);
  f->memory.table = (vmm_host_memory){sizeof f->memory.table, allocate, release, &f->memory};
  CHECK_OK(vmm_sim_create(&f->sim, &options.sim, NULL));
  CHECK_OK(vmm_fault_create(&f->fault, f->sim, 1, NULL));
  CHECK_OK(vmm_record_create(&f->driver, f->fault, 256, NULL));
  CHECK_OK(vmm_sim_forbid_blocking(f->sim, 1));
  OK(vmm_raw_init(f->sim, 0));
  OK(vmm_raw_primary_retain(f->sim, &f->context, 0));
  OK(vmm_raw_ctx_set_current(f->sim, f->context));
  check_on_failure(show_calls, f);
  if (options.no_device) return;
  options.device.driver = f->driver;
  options.device.host_memory = &f->memory.table;
  CHECK_OK_ERROR(vmm_device_open(&f->device, 0, &options.device, &f->error), &f->error);
  if (options.no_pool) return;
  CHECK_OK_ERROR(vmm_pool_create(&f->pool, f->device, &options.pool, &f->error), &f->error);
  f->pools[0] = f->pool;
}

void fixture_open_pieces(fixture *f, fixture_options *given, u64 size) {
  fixture_options usual, *options = given != NULL ? given : &usual;

  if (given == NULL) fixture_defaults(&usual);
  options->pool.mapping_min = options->pool.mapping_max = size;
  fixture_open(f, options);
}

void fixture_open_exact(fixture *f, fixture_options *given, u64 size) {
  fixture_options usual, *options = given != NULL ? given : &usual;

  if (given == NULL) fixture_defaults(&usual);
  options->pool.growth_policy = VMM_GROWTH_EXACT;
  fixture_open_pieces(f, options, size);
}

vmm_pool *fixture_add_pool(fixture *f, const vmm_pool_options *options) {
  vmm_pool *pool = NULL;
  int i = 0;

  while (i < FIXTURE_POOLS && f->pools[i] != NULL) i++;
  CHECK_RETURN(i < FIXTURE_POOLS, NULL);
  CHECK_OK_RETURN(vmm_pool_create(&pool, f->device, options, &f->error), NULL);
  f->pools[i] = pool;
  return pool;
}

static void check_misuse(fixture *f) {
  vmm_sim_misuse first;
  size_t count = 0;

  memset(&first, 0, sizeof first);
  CHECK_OK(vmm_sim_get_misuse(f->sim, &first, 1, &count));
  CHECK_STR(first.text, "");
  CHECK_EQ(count, 0);
}

void fixture_end(fixture *f) {
  vmm_sim_ledger ledger = fixture_ledger(f, 0);

  CHECK_EQ(ledger.reservations, 0);
  CHECK_EQ(ledger.handles, 0);
  CHECK_EQ(ledger.references, 0);
  CHECK_EQ(ledger.mappings, 0);
  CHECK_EQ(ledger.events, 0);
  CHECK_EQ(ledger.streams, 0);
  CHECK_EQ(ledger.host_bytes, 0);
  CHECK_EQ(ledger.captures_invalidated, 0);
  CHECK_EQ(ledger.primary_references, 1); /* the fixture's own */
  CHECK_CALL(check_misuse(f));
  CHECK_EQ(f->memory.out, 0);
  OK(vmm_raw_ctx_set_current(f->sim, NULL));
  OK(vmm_raw_primary_release(f->sim, 0));
  check_on_failure(NULL, NULL);
  vmm_driver_release(f->driver);
  vmm_driver_release(f->fault);
  vmm_driver_release(f->sim);
}

void fixture_close(fixture *f) {
  int i;

  CHECK_CALL(fixture_clear(f));
  CHECK_OK(vmm_sim_drain(f->sim));
  CHECK_CALL(fixture_check(f));
  for (i = 0; i < FIXTURE_POOLS; i++) {
    if (f->pools[i] == NULL) continue;
    CHECK_OK_ERROR(vmm_pool_destroy(f->pools[i], VMM_DESTROY_IDLE, &f->error), &f->error);
    f->pools[i] = NULL;
  }
  CHECK_OK_ERROR(vmm_device_close(f->device, &f->error), &f->error);
  CHECK_CALL(fixture_end(f));
}

/* ---- blocks ---- */

u64 fixture_alloc(fixture *f, u64 size) {
  u64 address = 0;

  if (!check_status(__FILE__, __LINE__, "vmm_pool_alloc", (int)vmm_pool_alloc(f->pool, size, &address, &f->error),
                    VMM_OK, &f->error))
    return 0;
  return address;
}

void fixture_free(fixture *f, u64 address) { CHECK_OK(vmm_pool_free(f->pool, address, NULL)); }

void fixture_alloc_pieces(fixture *f, u64 size, u64 *addresses, int n) {
  int i;

  for (i = 0; i < n; i++) {
    CHECK_CALL(addresses[i] = fixture_alloc(f, size));
    CHECK_CALL(fixture_fill(f, addresses[i], size, (u64)i));
  }
  CHECK_EQ(fixture_stats(f->pool).mapping_count, n);
}

void fixture_fill(fixture *f, u64 address, u64 size, u64 seed) {
  OK(vmm_raw_kernel_fill(f->sim, NULL, address, (size_t)size, seed));
}

/* The bytes, in a buffer that was poisoned before. */
static unsigned char *read_back(fixture *f, u64 address, u64 size) {
  unsigned char *bytes = malloc((size_t)size);

  CHECK_RETURN(bytes != NULL, NULL);
  memset(bytes, 0xDB, (size_t)size);
  if (vmm_raw_memcpy_dtoh(f->sim, bytes, address, (size_t)size) == VMM_CODE_SUCCESS) return bytes;
  check_fail(__FILE__, __LINE__, "the copy back was refused");
  free(bytes);
  return NULL;
}

void fixture_expect(fixture *f, u64 address, u64 size, u64 seed) {
  unsigned char *bytes = read_back(f, address, size);
  u64 i, wrong = 0;

  CHECK(bytes != NULL);
  for (i = 0; i < size / 4; i++) {
    unsigned int word;

    memcpy(&word, bytes + 4 * i, sizeof word);
    wrong += word != vmm_pattern_word(seed, i);
  }
  free(bytes);
  CHECK_EQ(wrong, 0);
}

void fixture_expect_bytes(fixture *f, u64 address, u64 size, int byte) {
  unsigned char *bytes = read_back(f, address, size);
  u64 i, wrong = 0;

  CHECK(bytes != NULL);
  for (i = 0; i < size; i++) wrong += bytes[i] != byte;
  free(bytes);
  CHECK_EQ(wrong, 0);
}

/* ---- streams ---- */

u64 fixture_alloc_on(fixture *f, u64 size, void *stream) {
  u64 address = 0;

  if (!check_status(__FILE__, __LINE__, "vmm_pool_alloc_async",
                    (int)vmm_pool_alloc_async(f->pool, size, stream, &address, &f->error), VMM_OK, &f->error))
    return 0;
  CHECK_OK_RETURN(vmm_sim_new_owner(f->sim, address, size), 0);
  return address;
}

void fixture_free_on(fixture *f, u64 address, void *stream) {
  CHECK_OK(vmm_pool_free_async(f->pool, address, stream, NULL));
}

void *fixture_new_stream(fixture *f, unsigned kind) {
  void *stream = NULL;

  CHECK_EQ_RETURN(vmm_raw_stream_create(f->sim, &stream, kind), VMM_CODE_SUCCESS, NULL);
  return stream;
}

void fixture_end_stream(fixture *f, void *stream) {
  CHECK_OK(vmm_device_forget_stream(f->device, stream, NULL));
  OK(vmm_raw_stream_destroy(f->sim, stream));
}

void fixture_begin_capture(fixture *f, void *stream, int mode) {
  CHECK_OK_ERROR(vmm_device_capture_begin(f->device, stream, &f->error), &f->error);
  OK(vmm_raw_stream_begin_capture(f->sim, stream, mode));
}

/* ---- faults and records ---- */

void fixture_rule(fixture *f, const char *text) {
  CHECK_OK_ERROR(vmm_fault_add_text(f->fault, text, &f->error), &f->error);
}

void fixture_hook(fixture *f, int op, vmm_fault_hook hook, void *data) {
  vmm_fault_rule rule;

  CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
  rule.op = op;
  rule.hook = hook;
  rule.hook_data = data;
  CHECK_OK(vmm_fault_add(f->fault, &rule, NULL, NULL));
}

void fixture_clear(fixture *f) { CHECK_OK(vmm_fault_clear(f->fault)); }

u64 fixture_calls(fixture *f, int op) { return vmm_record_count(f->driver, op); }

void fixture_forget_calls(fixture *f) { CHECK_OK(vmm_record_clear(f->driver)); }

/* ---- numbers ---- */

u64 fixture_random(u64 *state) {
  u64 z = *state += 0x9E3779B97F4A7C15ull;

  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

u64 fixture_lognormal(u64 *state) {
  double one = ((double)(fixture_random(state) >> 11) + 1) / 9007199254740993.0;
  double two = (double)(fixture_random(state) >> 11) / 9007199254740992.0;
  double normal = sqrt(-2 * log(one)) * cos(6.283185307179586 * two);
  double size = exp(log(60000.0) + 1.5 * normal);

  if (size < 256) return 256;
  return size > 4194304 ? 4 * MIB : (u64)size;
}
