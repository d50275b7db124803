/* One case of the conformance suite: its driver and context, what it must hold to, and what it may leave behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

static const char *base_name(const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? slash + 1 : file;
}

bool conf_expect_code(conf *c, const char *file, int line, const char *what, int actual, int wanted) {
  if (actual == wanted) return true;
  printf("FAIL %s %s:%d expected %s (%d) got %s (%d): %s\n", c->id, base_name(file), line, vmm_code_name(wanted),
         wanted, vmm_code_name(actual), actual, what);
  c->failures++;
  return false;
}

bool conf_expect_number(conf *c, const char *file, int line, const char *what, u64 actual, u64 wanted) {
  if (actual == wanted) return true;
  printf("FAIL %s %s:%d expected %llu (0x%llx) got %llu (0x%llx): %s\n", c->id, base_name(file), line, wanted, wanted,
         actual, actual, what);
  c->failures++;
  return false;
}

bool conf_expect_true(conf *c, const char *file, int line, const char *what, bool held) {
  if (held) return true;
  printf("FAIL %s %s:%d expected true got false: %s\n", c->id, base_name(file), line, what);
  c->failures++;
  return false;
}

void conf_expect_misuse(conf *c, int kind) { c->expected |= 1 << kind; }

static bool load_kernels(conf *c, const char *path) {
  FILE *file = fopen(path, "rb");
  long size = -1;
  void *image = NULL;
  vmm_error error = {0};
  if (file && fseek(file, 0, SEEK_END) == 0) size = ftell(file);
  if (size > 0 && fseek(file, 0, SEEK_SET) == 0) image = malloc((size_t)size);
  bool read = image && fread(image, 1, (size_t)size, file) == (size_t)size;
  if (file) fclose(file);
  bool loaded = read && vmm_cuda_set_kernels(c->driver, image, (size_t)size, &error) == VMM_OK;
  free(image);
  if (!loaded) printf("FAIL %s cannot load the kernels %s: %s\n", c->id, path, read ? error.message : "not readable");
  return loaded;
}

static bool open_driver(conf *c, const conf_fact *fact, const conf_setup *setup) {
  vmm_error error = {0};
  vmm_sim_options options;
  if (setup->cuda) {
    if (vmm_cuda_create(&c->driver, &error) == VMM_OK) return load_kernels(c, setup->kernels);
  } else if (vmm_sim_options_init(&options, sizeof options) == VMM_OK) {
    options.device_count = fact->flags & CONF_TWO_DEVICES ? 2 : 1;
    if (vmm_sim_create(&c->driver, &options, &error) == VMM_OK) return true;
  }
  printf("FAIL %s no driver: %s\n", c->id, error.message);
  return false;
}

/* The first launch of a kernel loads code, which is not what any case is about. */
static void warm_up(conf *c) {
  EXPECT(vmm_raw_kernel_spin(c->driver, NULL, 1000), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
}

static bool open_context(conf *c) {
  vmm_raw_prop prop = conf_prop(c);
  if (!EXPECT(vmm_raw_init(c->driver, 0), VMM_CODE_SUCCESS)) return false;
  if (!EXPECT(vmm_raw_device_get(c->driver, &c->device, 0), VMM_CODE_SUCCESS)) return false;
  if (!EXPECT(vmm_raw_primary_retain(c->driver, &c->context, c->device), VMM_CODE_SUCCESS)) return false;
  c->ready = true;
  if (!EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS)) return false;
  if (!EXPECT(vmm_raw_mem_granularity(c->driver, &c->granule, &prop, 0), VMM_CODE_SUCCESS)) return false;
  warm_up(c);
  return c->failures == 0;
}

/* The simulator knows what exists: a case that leaves something behind is wrong, or the simulator miscounts. */
static void check_ledger(conf *c) {
  vmm_sim_ledger ledger;
  memset(&ledger, 0, sizeof ledger);
  ledger.struct_size = sizeof ledger;
  EXPECT_EQ(vmm_sim_drain(c->driver), VMM_OK);
  if (!EXPECT_EQ(vmm_sim_get_ledger(c->driver, c->device, &ledger), VMM_OK)) return;
  EXPECT_EQ(ledger.reservations, 0);
  EXPECT_EQ(ledger.reserved_bytes, 0);
  EXPECT_EQ(ledger.handles, 0);
  EXPECT_EQ(ledger.handle_bytes, 0);
  EXPECT_EQ(ledger.references, 0);
  EXPECT_EQ(ledger.mappings, 0);
  EXPECT_EQ(ledger.mapped_bytes, 0);
  EXPECT_EQ(ledger.accessible_bytes, 0);
  EXPECT_EQ(ledger.plain_allocations, 0);
  EXPECT_EQ(ledger.host_bytes, 0);
  EXPECT_EQ(ledger.events, 0);
  EXPECT_EQ(ledger.streams, 0);
  EXPECT_EQ(ledger.pending, 0);
  EXPECT_EQ(ledger.primary_references, 1);
}

/* What was reported must be what the case announced: nothing missed, no false alarm. */
static void check_misuse(conf *c) {
  static vmm_sim_misuse entries[256];
  size_t count = 0;
  int seen = 0;
  if (!EXPECT_EQ(vmm_sim_get_misuse(c->driver, entries, 256, &count), VMM_OK)) return;
  for (size_t i = 0; i < count && i < 256; i++) {
    seen |= 1 << entries[i].kind;
    if (c->expected & 1 << entries[i].kind) continue;
    printf("FAIL %s expected no such misuse got kind %d: %s\n", c->id, entries[i].kind, entries[i].text);
    c->failures++;
  }
  for (int kind = 1; kind <= VMM_SIM_MISUSE_TOUCH; kind++) {
    if (!(c->expected & 1 << kind) || seen & 1 << kind) continue;
    printf("FAIL %s expected misuse kind %d got none\n", c->id, kind);
    c->failures++;
  }
}

static bool has_second_device(conf *c) {
  int count = 0, there = 0, back = 0;
  EXPECT(vmm_raw_device_count(c->driver, &count), VMM_CODE_SUCCESS);
  if (count < 2) return false;
  EXPECT(vmm_raw_device_can_access_peer(c->driver, &there, 0, 1), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_device_can_access_peer(c->driver, &back, 1, 0), VMM_CODE_SUCCESS);
  return there && back;
}

static void close_driver(conf *c, const conf_fact *fact) {
  if (c->ready && !c->cuda) {
    check_misuse(c);
    if (!(fact->flags & CONF_LEAVES)) check_ledger(c);
  }
  if (c->ready && !(fact->flags & CONF_LEAVES)) {
    EXPECT(vmm_raw_ctx_set_current(c->driver, NULL), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_primary_release(c->driver, c->device), VMM_CODE_SUCCESS);
  }
  vmm_driver_release(c->driver);
}

conf_outcome conf_run(const conf_fact *fact, const conf_setup *setup) {
  conf c = {NULL, fact->id, NULL, setup->cuda, false, 0, 0, 0, NULL, 0};
  if (!open_driver(&c, fact, setup)) {
    vmm_driver_release(c.driver);
    return CONF_FAILED;
  }
  if (open_context(&c)) {
    if (fact->flags & CONF_TWO_DEVICES && !has_second_device(&c)) {
      c.skipped = "no GPU here that is a second one and can be reached";
    } else {
      fact->run(&c);
    }
  } else {
    c.failures++;
  }
  close_driver(&c, fact);
  if (c.failures == 0 && c.skipped) printf("skip %s %s\n", fact->id, c.skipped);
  fflush(stdout);
  return c.failures ? CONF_FAILED : c.skipped ? CONF_SKIPPED : CONF_PASSED;
}
