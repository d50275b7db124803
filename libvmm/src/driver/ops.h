/* What the library knows about each operation of the driver table, beyond its number: names, version, need, and the few
 * properties the wrappers ask for. */
#ifndef VMM_DRIVER_OPS_H
#define VMM_DRIVER_OPS_H

#include <stdbool.h>

typedef enum vmm__need { VMM__NEED_REQUIRED = 1, VMM__NEED_OPTIONAL, VMM__NEED_TEST } vmm__need;

typedef struct vmm__op_info {
  const char *name;   /* "mem_create" */
  const char *symbol; /* "cuMemCreate" */
  int since;          /* the CUDA version whose ABI is asked for; 0: not a driver symbol */
  vmm__need need;
} vmm__op_info;

/* NULL for a number that is no operation. */
const vmm__op_info *vmm__op_info_of(int op);

/* Whether success makes something that must be given back: its first output names it. */
bool vmm__op_creates(int op);

/* Whether it gives something back: unmap, release, free, destroy. */
bool vmm__op_gives_back(int op);

/* Whether it is about the calling thread or the driver as a whole, so that it goes on working when a context is lost. */
bool vmm__op_outside_context(int op);

/* Whether NOT_READY is a plain answer of it and no failure. */
bool vmm__op_polls(int op);

#endif
