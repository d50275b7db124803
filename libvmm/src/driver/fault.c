/* The fault wrapper's public side: making one, adding rules, counts. */
#include "driver/fault.h"

#include <string.h>

static const char no_wrapper[] = "the driver is no fault wrapper and has none below";

vmm__fault *vmm__fault_of(vmm_driver *driver) {
  vmm_driver *found = vmm__driver_find(driver, VMM__DRIVER_FAULT);

  return found != NULL ? found->self : NULL;
}

vmm_status vmm_fault_create(vmm_driver **driver, vmm_driver *inner, unsigned long long seed, vmm_error *error) {
  vmm__fault *fault;

  if (driver != NULL) *driver = NULL;
  if (driver == NULL || inner == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_fault_create: driver or inner is NULL");
  fault = vmm__memory_allocate(&vmm__memory_default, 1, sizeof *fault);
  if (fault == NULL || !vmm__lock_init(&fault->lock, VMM__RANK_DRIVER)) {
    vmm__memory_release(&vmm__memory_default, fault, 1, sizeof *fault);
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_fault_create: no host memory");
  }
  fault->seed = seed;
  vmm__driver_init(&fault->base, VMM__DRIVER_FAULT, &vmm__fault_table, fault, inner);
  *driver = &fault->base;
  return VMM_OK;
}

vmm_status vmm_fault_rule_init(vmm_fault_rule *rule, size_t size) {
  return vmm__options_init(rule, size, sizeof(vmm_fault_rule));
}

static bool may_create(int op) { return op == VMM_OP_ANY || vmm__op_creates(op); }

const char *vmm__fault_rule_check(vmm__fault *fault, const vmm_fault_rule *rule) {
  if (rule->op < VMM_OP_ANY || rule->op >= VMM_OP_COUNT) return "unknown op";
  if (rule->phase < VMM_FAULT_BEFORE || rule->phase > VMM_FAULT_PARTIAL) return "unknown phase";
  if (rule->condition < VMM_FAULT_ALWAYS || rule->condition > VMM_FAULT_IF_AFTER_RELEASE) return "unknown condition";
  if (rule->code < 0) return "a code is not negative";
  if (rule->reserved != 0) return "reserved is not zero";
  if (rule->phase == VMM_FAULT_LIE && may_create(rule->op) &&
      vmm__driver_find(fault->base.inner, VMM__DRIVER_CUDA) != NULL)
    return "a lie about a call that creates something is not possible over the CUDA driver";
  if (rule->phase == VMM_FAULT_PARTIAL && rule->op != VMM_OP_mem_set_access && rule->op != VMM_OP_mem_unmap)
    return "only cuMemSetAccess and cuMemUnmap can be done in part";
  if (rule->sticky && (rule->code == 0 || rule->phase == VMM_FAULT_LIE)) return "a sticky rule needs a code to answer";
  if (rule->code == 0 && rule->phase != VMM_FAULT_LIE && rule->hook == NULL && rule->delay_ns == 0)
    return "code 0 without a hook or a delay does nothing";
  return NULL;
}

bool vmm__fault_rules_add(vmm__fault *fault, const vmm_fault_rule *rules, size_t count, int *ids) {
  size_t added;

  vmm__lock_acquire(&fault->lock);
  for (added = 0; added < count; added++) {
    vmm__fault_rule *rule;

    if (!vmm__fault_array_insert(&fault->rules, fault->rules.count, sizeof *rule)) break;
    rule = (vmm__fault_rule *)fault->rules.elements + fault->rules.count - 1;
    rule->rule = rules[added];
    rule->id = ++fault->last_id;
    if (ids != NULL) ids[added] = rule->id;
  }
  if (added < count) fault->rules.count -= added;
  vmm__lock_release(&fault->lock);
  return added == count;
}

vmm_status vmm_fault_add(vmm_driver *driver, const vmm_fault_rule *rule, int *id, vmm_error *error) {
  vmm__fault *fault = vmm__fault_of(driver);
  vmm_fault_rule known;
  vmm_status status;
  const char *why;

  if (fault == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, no_wrapper);
  if (rule == NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, "vmm_fault_add: rule is NULL");
  status = vmm__options_read(&known, sizeof known, sizeof known, rule, "vmm_fault_rule", error);
  if (status != VMM_OK) return status;
  why = vmm__fault_rule_check(fault, &known);
  if (why != NULL) return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, why);
  if (!vmm__fault_rules_add(fault, &known, 1, id))
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_fault_add: no host memory for another rule");
  return VMM_OK;
}

vmm_status vmm_fault_clear(vmm_driver *driver) {
  vmm__fault *fault = vmm__fault_of(driver);

  if (fault == NULL) return VMM_ERROR_INVALID_ARGUMENT;
  vmm__lock_acquire(&fault->lock);
  fault->rules.count = 0;
  fault->generation++;
  fault->sticky_code = 0;
  fault->releases = 0;
  memset(fault->opportunities, 0, sizeof fault->opportunities);
  vmm__lock_release(&fault->lock);
  return VMM_OK;
}

vmm_status vmm_fault_count(vmm_driver *driver, int id, unsigned long long *fired, unsigned long long *matched) {
  vmm__fault *fault = vmm__fault_of(driver);
  const vmm__fault_rule *rules;
  vmm_status status = VMM_ERROR_INVALID_ARGUMENT;
  size_t i;

  if (fault == NULL) return status;
  vmm__lock_acquire(&fault->lock);
  rules = fault->rules.elements;
  for (i = 0; i < fault->rules.count; i++) {
    if (rules[i].id != id) continue;
    if (fired != NULL) *fired = rules[i].fired;
    if (matched != NULL) *matched = rules[i].matched;
    status = VMM_OK;
  }
  vmm__lock_release(&fault->lock);
  return status;
}

unsigned long long vmm_fault_opportunities(vmm_driver *driver, int op) {
  vmm__fault *fault = vmm__fault_of(driver);
  vmm__u64 count = 0;
  int i;

  if (fault == NULL) return 0;
  vmm__lock_acquire(&fault->lock);
  for (i = 0; i < VMM_OP_COUNT; i++)
    if (op == VMM_OP_ANY || op == i) count += fault->opportunities[i];
  vmm__lock_release(&fault->lock);
  return count;
}

unsigned long long vmm_fault_thread(void) { return vmm__thread_number(); }

bool vmm__fault_array_insert(vmm__fault_array *array, size_t index, size_t element_size) {
  char *bytes;

  if (array->count == array->capacity) {
    size_t capacity = array->capacity == 0 ? 16 : array->capacity * 2;
    void *larger = vmm__memory_allocate(&vmm__memory_default, capacity, element_size);

    if (larger == NULL) return false;
    if (array->count > 0) memcpy(larger, array->elements, array->count * element_size);
    vmm__memory_release(&vmm__memory_default, array->elements, array->capacity, element_size);
    array->elements = larger;
    array->capacity = capacity;
  }
  bytes = (char *)array->elements + index * element_size;
  memmove(bytes + element_size, bytes, (array->count - index) * element_size);
  memset(bytes, 0, element_size);
  array->count++;
  return true;
}

void vmm__fault_array_remove(vmm__fault_array *array, size_t index, size_t element_size) {
  char *bytes = (char *)array->elements + index * element_size;

  memmove(bytes, bytes + element_size, (array->count - index - 1) * element_size);
  array->count--;
}

void vmm__fault_array_free(vmm__fault_array *array, size_t element_size) {
  vmm__memory_release(&vmm__memory_default, array->elements, array->capacity, element_size);
}
