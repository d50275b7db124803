/* A driver: a table of operations, a clock, and a count. What cuda, sim, fault and record fill in, and everybody calls. */
#ifndef VMM_DRIVER_DRIVER_H
#define VMM_DRIVER_DRIVER_H

#include <stdatomic.h>

#include "base/checked.h"
#include "base/hook.h"
#include "vmm/driver.h"

typedef struct vmm__driver_table {
#define VMM_SELF_PARAMETER void *self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) int(*name) parameters;
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER
  vmm__u64 (*now)(void *self);
  void (*wait)(void *self, vmm__u64 ns);
  bool (*has)(void *self, int op); /* whether the operation is there; a missing one answers NOT_FOUND */
  bool (*is_wsl)(void *self);
  void (*destroy)(void *self); /* ends and frees self, without the inner driver */
} vmm__driver_table;

typedef enum vmm__driver_kind {
  VMM__DRIVER_CUDA = 1,
  VMM__DRIVER_SIM,
  VMM__DRIVER_FAULT,
  VMM__DRIVER_RECORD
} vmm__driver_kind;

/* The first member of every driver's own struct. */
struct vmm_driver {
  const vmm__driver_table *table;
  void *self;        /* what the table's functions get; the struct this one begins */
  vmm_driver *inner; /* wrappers: the driver below, counted; else NULL */
  vmm__driver_kind kind;
  atomic_uint count;
};

/* Fills the common part; count 1. A wrapper retains `inner`. */
void vmm__driver_init(vmm_driver *driver, vmm__driver_kind kind, const vmm__driver_table *table, void *self,
                      vmm_driver *inner);

/* The driver of a kind in a stack, outermost first; NULL if there is none. */
vmm_driver *vmm__driver_find(vmm_driver *driver, vmm__driver_kind kind);

bool vmm__driver_has(vmm_driver *driver, int op);

/* A test's library-wide look at each call before it is made (which locks are held?) belongs to the hook: the device's
 * wrappers (device/calls.c) tell it. */

#endif
