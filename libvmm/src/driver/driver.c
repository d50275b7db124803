/* What all drivers have in common: the count, the name, the clock, and finding one in a stack of wrappers. */
#include "driver/driver.h"

#include "base/text.h"

void vmm__driver_init(vmm_driver *driver, vmm__driver_kind kind, const vmm__driver_table *table, void *self,
                      vmm_driver *inner) {
  driver->table = table;
  driver->self = self;
  driver->inner = inner;
  driver->kind = kind;
  atomic_store_explicit(&driver->count, 1, memory_order_release);
  vmm_driver_retain(inner);
}

void vmm_driver_retain(vmm_driver *driver) {
  if (driver != NULL) (void)atomic_fetch_add_explicit(&driver->count, 1, memory_order_relaxed);
}

void vmm_driver_release(vmm_driver *driver) {
  while (driver != NULL && atomic_fetch_sub_explicit(&driver->count, 1, memory_order_acq_rel) == 1) {
    vmm_driver *inner = driver->inner; /* destroy frees the struct */

    driver->table->destroy(driver->self);
    driver = inner;
  }
}

vmm_driver *vmm__driver_find(vmm_driver *driver, vmm__driver_kind kind) {
  while (driver != NULL && driver->kind != kind) driver = driver->inner;
  return driver;
}

bool vmm__driver_has(vmm_driver *driver, int op) {
  return op >= 0 && op < VMM_OP_COUNT && driver->table->has(driver->self, op);
}

vmm_status vmm_driver_name(vmm_driver *driver, char *text, size_t capacity) {
  static const char *const names[] = {"?", "cuda", "sim", "fault", "record"};
  vmm__text name;
  unsigned depth = 0;

  if (driver == NULL || text == NULL || capacity == 0) return VMM_ERROR_INVALID_ARGUMENT;
  name = vmm__text_start(text, capacity);
  for (; driver != NULL; driver = driver->inner) {
    vmm__text_add(&name, names[driver->kind]);
    if (driver->inner == NULL) break;
    vmm__text_add(&name, "(");
    depth++;
  }
  while (depth-- > 0) vmm__text_add(&name, ")");
  return VMM_OK;
}

unsigned long long vmm_driver_now(vmm_driver *driver) { return driver != NULL ? driver->table->now(driver->self) : 0; }

void vmm_driver_wait(vmm_driver *driver, unsigned long long ns) {
  if (driver != NULL) driver->table->wait(driver->self, ns);
}

unsigned int vmm_pattern_word(unsigned long long seed, unsigned long long index) {
  vmm__u64 mixed = seed + (index + 1) * 0x9E3779B97F4A7C15u;

  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
  return (unsigned)((mixed ^ (mixed >> 31)) >> 32);
}
