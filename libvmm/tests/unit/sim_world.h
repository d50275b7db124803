/* What the simulator's own tests share: a simulated driver with a current context, and memory on it in one step. */
#ifndef VMM_TESTS_UNIT_SIM_WORLD_H
#define VMM_TESTS_UNIT_SIM_WORLD_H

#include "check.h"
#include "vmm/driver.h"

typedef unsigned long long u64;

#define OK(call) CHECK_EQ((call), VMM_CODE_SUCCESS)

static const size_t GRANULE = 2u << 20;

typedef struct sim_range {
  u64 address;
  u64 handle;
  size_t size;
} sim_range;

static inline vmm_sim_options sim_defaults(void) {
  vmm_sim_options options;
  CHECK_OK_RETURN(vmm_sim_options_init(&options, sizeof options), options);
  return options;
}

/* Device 0's primary context is current. */
static inline vmm_driver *sim_open(const vmm_sim_options *options) {
  vmm_driver *driver = NULL;
  void *context = NULL;
  CHECK_OK_RETURN(vmm_sim_create(&driver, options, NULL), driver);
  CHECK_EQ_RETURN(vmm_raw_init(driver, 0), VMM_CODE_SUCCESS, driver);
  CHECK_EQ_RETURN(vmm_raw_primary_retain(driver, &context, 0), VMM_CODE_SUCCESS, driver);
  CHECK_EQ_RETURN(vmm_raw_ctx_push(driver, context), VMM_CODE_SUCCESS, driver);
  return driver;
}

static inline vmm_raw_prop sim_prop(int device) {
  vmm_raw_prop prop = {1, 0, 1, device, 0, 0};
  return prop;
}

static inline int sim_access(vmm_driver *driver, u64 address, size_t size, int device, int flags) {
  vmm_raw_access access = {1, device, flags};
  return vmm_raw_mem_set_access(driver, address, size, &access, 1);
}

static inline u64 sim_handle(vmm_driver *driver, size_t size) {
  vmm_raw_prop prop = sim_prop(0);
  u64 handle = 0;
  CHECK_EQ_RETURN(vmm_raw_mem_create(driver, &handle, size, &prop, 0), VMM_CODE_SUCCESS, 0);
  return handle;
}

static inline u64 sim_reserve(vmm_driver *driver, size_t size) {
  u64 address = 0;
  CHECK_EQ_RETURN(vmm_raw_mem_reserve(driver, &address, size, 0, 0, 0), VMM_CODE_SUCCESS, 0);
  return address;
}

/* Memory on device 0, mapped and accessible. */
static inline sim_range sim_make(vmm_driver *driver, size_t size) {
  sim_range range = {sim_reserve(driver, size), sim_handle(driver, size), size};
  CHECK_EQ_RETURN(vmm_raw_mem_map(driver, range.address, size, 0, range.handle, 0), VMM_CODE_SUCCESS, range);
  CHECK_EQ_RETURN(sim_access(driver, range.address, size, 0, 3), VMM_CODE_SUCCESS, range);
  return range;
}

static inline void sim_unmake(vmm_driver *driver, const sim_range *range) {
  OK(vmm_raw_mem_unmap(driver, range->address, range->size));
  OK(vmm_raw_mem_release(driver, range->handle));
  OK(vmm_raw_mem_address_free(driver, range->address, range->size));
}

static inline vmm_sim_ledger sim_ledger(vmm_driver *driver, int device) {
  vmm_sim_ledger ledger;
  memset(&ledger, 0xEE, sizeof ledger);
  ledger.struct_size = sizeof ledger;
  CHECK_OK_RETURN(vmm_sim_get_ledger(driver, device, &ledger), ledger);
  return ledger;
}

/* How many entries of misuse of a kind there are among the kept ones. */
static inline int sim_misuses(vmm_driver *driver, int kind) {
  static vmm_sim_misuse array[256];
  size_t count = 0;
  int found = 0;
  CHECK_OK_RETURN(vmm_sim_get_misuse(driver, array, 256, &count), -1);
  for (size_t i = 0; i < count && i < 256; i++) found += array[i].kind == kind;
  return found;
}

static inline void *sim_stream(vmm_driver *driver, unsigned int flags) {
  void *stream = NULL;
  CHECK_EQ_RETURN(vmm_raw_stream_create(driver, &stream, flags), VMM_CODE_SUCCESS, NULL);
  return stream;
}

static inline void *sim_event(vmm_driver *driver) {
  void *event = NULL;
  CHECK_EQ_RETURN(vmm_raw_event_create(driver, &event, 2), VMM_CODE_SUCCESS, NULL);
  return event;
}

static inline unsigned int sim_word(vmm_driver *driver, u64 address) {
  unsigned int word = 0xBAD0BAD0u;
  CHECK_EQ_RETURN(vmm_raw_memcpy_dtoh(driver, &word, address, sizeof word), VMM_CODE_SUCCESS, word);
  return word;
}

#endif
