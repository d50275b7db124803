/* A driver for the wrappers' tests: every operation counts its calls, remembers the last one, answers what the test set
 * (0 at first) and, on success, fills its outputs with fresh numbers. No state beyond that. */
#ifndef VMM_TESTS_STUB_DRIVER_H
#define VMM_TESTS_STUB_DRIVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "driver/call.h"

typedef struct stub_driver {
  vmm_driver base;
  atomic_uint count[VMM_OP_COUNT];
  atomic_int answer[VMM_OP_COUNT];
  atomic_uint fresh;     /* the number the next output gets */
  pthread_mutex_t mutex; /* for last */
  vmm__call last[VMM_OP_COUNT];
  atomic_ullong clock;
  int capturing; /* what is_capturing writes */
  int mode;      /* the capture mode as capture_mode exchanges it */
  bool destroyed;
} stub_driver;

static inline int stub_take(stub_driver *stub, const vmm__call *call) {
  int answer = atomic_load(&stub->answer[call->op]);
  unsigned i;

  atomic_fetch_add(&stub->count[call->op], 1);
  pthread_mutex_lock(&stub->mutex);
  stub->last[call->op] = *call;
  pthread_mutex_unlock(&stub->mutex);
  if (answer != 0) return answer;
  if (call->op == VMM_OP_capture_mode && call->outputs[0].where != NULL) {
    int old = stub->mode;

    memcpy(&stub->mode, call->outputs[0].where, sizeof stub->mode);
    memcpy(call->outputs[0].where, &old, sizeof old);
    return 0;
  }
  for (i = 0; i < 2; i++) {
    vmm__u64 value;

    if (call->outputs[i].where == NULL) continue;
    value = call->op == VMM_OP_stream_is_capturing ? (vmm__u64)stub->capturing : atomic_fetch_add(&stub->fresh, 1);
    memcpy(call->outputs[i].where, &value, call->outputs[i].size < sizeof value ? call->outputs[i].size : sizeof value);
  }
  return 0;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define VMM_SELF_PARAMETER void *self
#define VMM_SELF self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) \
  static int stub_op_##name parameters {                                                \
    vmm__call call = VMM__CALL_START(name, address, size, object);                      \
    VMM__CALL_DETAILS(name);                                                            \
    return stub_take(self, &call);                                                      \
  }
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER
#undef VMM_SELF
#pragma GCC diagnostic pop

static inline vmm__u64 stub_now(void *self) { return atomic_load(&((stub_driver *)self)->clock); }
static inline void stub_wait(void *self, vmm__u64 ns) { atomic_fetch_add(&((stub_driver *)self)->clock, ns); }
static inline bool stub_has(void *self, int op) {
  (void)self;
  return op != VMM_OP_ctx_record_event;
}
static inline bool stub_is_wsl(void *self) {
  (void)self;
  return true;
}
static inline void stub_destroy(void *self) { ((stub_driver *)self)->destroyed = true; }

static const vmm__driver_table stub_table = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) .name = stub_op_##name,
#include "vmm/ops.def"
    .now = stub_now,
    .wait = stub_wait,
    .has = stub_has,
    .is_wsl = stub_is_wsl,
    .destroy = stub_destroy,
};

/* The test owns the struct; the count starts at 1. `kind` lets it pass for the CUDA driver. */
static inline void stub_init(stub_driver *stub, vmm__driver_kind kind) {
  memset(stub, 0, sizeof *stub);
  pthread_mutex_init(&stub->mutex, NULL);
  atomic_store(&stub->fresh, 0x1000);
  vmm__driver_init(&stub->base, kind, &stub_table, stub, NULL);
}

#endif
