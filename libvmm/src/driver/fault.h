/* Inside the fault wrapper: rules, what a call is answered, what the wrapper has seen (streams, handles, mappings), and
 * orphans. The lock (rank DRIVER) is never held across a call of the inner driver or a hook. */
#ifndef VMM_DRIVER_FAULT_H
#define VMM_DRIVER_FAULT_H

#include "base/lock.h"
#include "base/memory.h"
#include "base/status.h"
#include "driver/call.h"
#include "driver/ops.h"

enum {
  VMM__FAULT_ORPHANS = 1024, /* more are counted, but neither listed nor given back */
  VMM__FAULT_STREAMS = 64,
  VMM__FAULT_CONTEXTS = 16
};

typedef struct vmm__fault_rule {
  vmm_fault_rule rule;
  int id;
  vmm__u64 matched;
  vmm__u64 fired;
  vmm__u64 releases_seen; /* releases when a call last matched; for IF_AFTER_RELEASE */
} vmm__fault_rule;

/* A growing array of plain elements. */
typedef struct vmm__fault_array {
  void *elements;
  size_t count;
  size_t capacity;
} vmm__fault_array;

/* Sorted by handle. A handle counts until no reference and no mapping of it is left. */
typedef struct vmm__fault_handle {
  vmm__u64 handle;
  vmm__u64 size; /* 0: not created through this wrapper */
  vmm__u64 references;
  vmm__u64 mappings;
} vmm__fault_handle;

/* Sorted by address. */
typedef struct vmm__fault_mapping {
  vmm__u64 address;
  vmm__u64 size;
  vmm__u64 handle;
} vmm__fault_mapping;

typedef struct vmm__fault_context {
  void *context;
  int device; /* of a primary context; -1: made by ctx_create */
  unsigned references;
} vmm__fault_context;

typedef struct vmm__fault {
  vmm_driver base;
  vmm__lock lock;
  vmm__u64 seed;
  vmm__fault_array rules; /* of vmm__fault_rule */
  int last_id;
  vmm__u64 generation; /* changes with each clear */
  int sticky_code;     /* 0: none */
  vmm__u64 opportunities[VMM_OP_COUNT];

  vmm__u64 releases; /* times that memory went back to the driver since the last clear */
  vmm__u64 bytes;    /* in handles that count */
  vmm__fault_array handles;
  vmm__fault_array mappings;
  size_t stream_count;
  void *streams[VMM__FAULT_STREAMS];
  size_t context_count;
  vmm__fault_context contexts[VMM__FAULT_CONTEXTS];

  size_t orphan_count; /* may exceed the array */
  vmm_fault_orphan orphans[VMM__FAULT_ORPHANS];
} vmm__fault;

/* What becomes of one call. */
typedef struct vmm__fault_decision {
  int id;     /* the rule that fired; 0: none, or sticky */
  int code;   /* the answer, if there is one */
  int phase;  /* vmm_fault_phase */
  bool fires; /* `code` and `phase` hold */
  bool made;  /* the inner call is made */
  bool sticky;
} vmm__fault_decision;

/* Counts the call, runs hooks and delays, and decides. Returns decision->made. */
bool vmm__fault_before(vmm__fault *fault, const vmm__call *call, vmm__fault_decision *decision);

/* Notes what the call did and returns what the caller is told. `answer` counts only if the call was made. */
int vmm__fault_after(vmm__fault *fault, const vmm__call *call, const vmm__fault_decision *decision, int answer);

/* Notes a call that succeeded. Takes the lock. */
void vmm__fault_track(vmm__fault *fault, const vmm__call *call);

/* Whether work is queued on a stream made through this wrapper or on a legacy stream; asks the inner driver. Without the
 * lock. Streams that are being captured are left alone. */
bool vmm__fault_pending(vmm__fault *fault);

/* Makes a set-access or unmap over the first half of the mappings of the call's range. Without the lock. */
void vmm__fault_partial(vmm__fault *fault, const vmm__call *call);

/* Remembers what a call made that its caller will not hear of. With the lock. */
void vmm__fault_orphan_add(vmm__fault *fault, const vmm__call *call);

/* NULL, or why a rule cannot be added over this wrapper's inner driver. */
const char *vmm__fault_rule_check(vmm__fault *fault, const vmm_fault_rule *rule);

/* Adds all rules or none; *ids may be NULL. False: no host memory. Takes the lock. */
bool vmm__fault_rules_add(vmm__fault *fault, const vmm_fault_rule *rules, size_t count, int *ids);

/* The outermost fault wrapper of a stack; NULL if there is none. */
vmm__fault *vmm__fault_of(vmm_driver *driver);

/* Room for one more element, with zeroes at `index`; false: no host memory. */
bool vmm__fault_array_insert(vmm__fault_array *array, size_t index, size_t element_size);
void vmm__fault_array_remove(vmm__fault_array *array, size_t index, size_t element_size);
void vmm__fault_array_free(vmm__fault_array *array, size_t element_size);

extern const vmm__driver_table vmm__fault_table;

#endif
