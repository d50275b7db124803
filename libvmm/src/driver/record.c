/* The recorder: a wrapper that keeps the last calls with arguments, answer and time, and counts them per operation. */
#include <string.h>

#include "base/lock.h"
#include "base/memory.h"
#include "base/status.h"
#include "driver/call.h"
#include "driver/ops.h"

enum { DEFAULT_CAPACITY = 256 };

typedef struct record_totals {
  vmm__u64 count;
  vmm__u64 failures;
  vmm__u64 total_ns;
  vmm__u64 max_ns;
} record_totals;

typedef struct vmm__record {
  vmm_driver base;
  vmm__lock lock;
  vmm__u64 sequence; /* of the latest entry; also after a clear, so that "above `after`" keeps its meaning */
  size_t capacity;
  size_t used;
  vmm_record_entry *ring; /* the entry of sequence s is at (s - 1) % capacity */
  record_totals totals[VMM_OP_COUNT];
} vmm__record;

/* The entry is built outside the lock; only storing it is inside. */
static int note(vmm__record *record, const vmm__call *call, vmm__u64 start, int code) {
  vmm__u64 taken = vmm__saturating_sub(vmm__wrapper_now(record), start);
  vmm_record_entry entry = {0};
  record_totals *totals = &record->totals[call->op];

  entry.time_ns = start;
  entry.taken_ns = taken;
  entry.thread = vmm__thread_number();
  entry.address = call->address;
  entry.size = call->size;
  entry.object = call->object;
  entry.output = code == VMM_CODE_SUCCESS ? vmm__call_output_value(call) : 0;
  entry.op = call->op;
  entry.code = code;
  vmm__lock_acquire(&record->lock);
  entry.sequence = ++record->sequence;
  record->ring[(entry.sequence - 1) % record->capacity] = entry;
  if (record->used < record->capacity) record->used++;
  totals->count++;
  if (code != VMM_CODE_SUCCESS && !(code == VMM_CODE_NOT_READY && vmm__op_polls(call->op))) totals->failures++;
  totals->total_ns += taken;
  totals->max_ns = vmm__max(totals->max_ns, taken);
  vmm__lock_release(&record->lock);
  return code;
}

#define VMM_SELF_PARAMETER void *self
#define VMM_SELF wrapper->base.inner->self
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object)                   \
  static int call_##name parameters {                                                                     \
    vmm__record *wrapper = self;                                                                          \
    const vmm__driver_table *below = wrapper->base.inner->table;                                          \
    vmm__call call = VMM__CALL_START(name, address, size, object);                                        \
    vmm__u64 start = vmm__wrapper_now(wrapper);                                                           \
    VMM__CALL_DETAILS(name);                                                                              \
    return note(wrapper, &call, start, below->name != NULL ? below->name arguments : VMM_CODE_NOT_FOUND); \
  }
#include "vmm/ops.def"
#undef VMM_SELF_PARAMETER

static void destroy(void *self) {
  vmm__record *record = self;

  vmm__lock_destroy(&record->lock);
  vmm__memory_release(&vmm__memory_default, record->ring, record->capacity, sizeof *record->ring);
  vmm__memory_release(&vmm__memory_default, record, 1, sizeof *record);
}

static const vmm__driver_table table = {
#define VMM_OP(name, symbol, since, need, parameters, arguments, address, size, object) .name = call_##name,
#include "vmm/ops.def"
    .now = vmm__wrapper_now,
    .wait = vmm__wrapper_wait,
    .has = vmm__wrapper_has,
    .is_wsl = vmm__wrapper_is_wsl,
    .destroy = destroy,
};

vmm_status vmm_record_create(vmm_driver **driver, vmm_driver *inner, size_t capacity, vmm_error *error) {
  vmm__record *record;

  if (driver != NULL) *driver = NULL;
  if (driver == NULL || inner == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_record_create: driver or inner is NULL");
  if (capacity == 0) capacity = DEFAULT_CAPACITY;
  record = vmm__memory_allocate(&vmm__memory_default, 1, sizeof *record);
  if (record == NULL) return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_record_create: no host memory");
  record->capacity = capacity;
  record->ring = vmm__memory_allocate(&vmm__memory_default, capacity, sizeof *record->ring);
  if (record->ring == NULL || !vmm__lock_init(&record->lock, VMM__RANK_DRIVER)) {
    vmm__memory_release(&vmm__memory_default, record->ring, capacity, sizeof *record->ring);
    vmm__memory_release(&vmm__memory_default, record, 1, sizeof *record);
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_record_create: no host memory for that many entries");
  }
  vmm__driver_init(&record->base, VMM__DRIVER_RECORD, &table, record, inner);
  *driver = &record->base;
  return VMM_OK;
}

static vmm__record *record_of(vmm_driver *driver) {
  vmm_driver *found = vmm__driver_find(driver, VMM__DRIVER_RECORD);

  return found != NULL ? found->self : NULL;
}

vmm_status vmm_record_get(vmm_driver *driver, unsigned long long after, vmm_record_entry *array, size_t capacity,
                          size_t *count) {
  vmm__record *record = record_of(driver);
  vmm__u64 first;
  size_t written = 0;

  if (record == NULL || count == NULL || (array == NULL && capacity > 0)) return VMM_ERROR_INVALID_ARGUMENT;
  vmm__lock_acquire(&record->lock);
  first = vmm__max(record->sequence - record->used, after) + 1; /* `after` may lie anywhere, also above the latest */
  if (after >= record->sequence) first = record->sequence + 1;
  if (record->sequence + 1 - first > capacity) first = record->sequence + 1 - capacity;
  for (; first <= record->sequence; first++) array[written++] = record->ring[(first - 1) % record->capacity];
  vmm__lock_release(&record->lock);
  *count = written;
  return VMM_OK;
}

unsigned long long vmm_record_count(vmm_driver *driver, int op) {
  vmm__record *record = record_of(driver);
  vmm__u64 count = 0;
  int i;

  if (record == NULL) return 0;
  vmm__lock_acquire(&record->lock);
  for (i = 0; i < VMM_OP_COUNT; i++)
    if (op == VMM_OP_ANY || op == i) count += record->totals[i].count;
  vmm__lock_release(&record->lock);
  return count;
}

vmm_status vmm_record_get_calls(vmm_driver *driver, vmm_call_stats *array, size_t capacity, size_t *count) {
  vmm__record *record = record_of(driver);
  size_t found = 0;
  int op;

  if (record == NULL || count == NULL || (array == NULL && capacity > 0)) return VMM_ERROR_INVALID_ARGUMENT;
  vmm__lock_acquire(&record->lock);
  for (op = 0; op < VMM_OP_COUNT; op++) {
    const record_totals *totals = &record->totals[op];

    if (totals->count == 0) continue;
    if (found < capacity) {
      memset(&array[found], 0, sizeof array[found]);
      vmm__text_copy(array[found].call, sizeof array[found].call, vmm_op_symbol(op));
      array[found].count = totals->count;
      array[found].failures = totals->failures;
      array[found].total_ns = totals->total_ns;
      array[found].max_ns = totals->max_ns;
    }
    found++;
  }
  vmm__lock_release(&record->lock);
  *count = found;
  return VMM_OK;
}

vmm_status vmm_record_clear(vmm_driver *driver) {
  vmm__record *record = record_of(driver);

  if (record == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  vmm__lock_acquire(&record->lock);
  record->used = 0;
  memset(record->totals, 0, sizeof record->totals);
  vmm__lock_release(&record->lock);
  return VMM_OK;
}
