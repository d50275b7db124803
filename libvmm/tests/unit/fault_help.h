/* A fault wrapper over the counting stub, and rules for it: what the fault wrapper's tests share. */
#ifndef VMM_TESTS_FAULT_HELP_H
#define VMM_TESTS_FAULT_HELP_H

#include "check.h"
#include "stub_driver.h"

static stub_driver stub; /* the one of the running test */

static inline vmm_driver *make_over(vmm__driver_kind kind) {
  vmm_driver *fault = NULL;
  stub_init(&stub, kind);
  CHECK_OK_RETURN(vmm_fault_create(&fault, &stub.base, 7, NULL), NULL);
  vmm_driver_release(&stub.base);
  return fault;
}

static inline vmm_driver *make(void) { return make_over(VMM__DRIVER_SIM); }

static inline vmm_fault_rule rule_for(int op, int code) {
  vmm_fault_rule rule;
  (void)vmm_fault_rule_init(&rule, sizeof rule);
  rule.op = op;
  rule.code = code;
  return rule;
}

static inline int add(vmm_driver *fault, const vmm_fault_rule *rule) {
  vmm_error error;
  int id = -1;
  CHECK_RETURN(vmm_fault_add(fault, rule, &id, &error) == VMM_OK, -1);
  return id;
}

static inline void expect_counts(vmm_driver *fault, int id, unsigned long long fired, unsigned long long matched) {
  unsigned long long f = 77, m = 77;
  CHECK_OK(vmm_fault_count(fault, id, &f, &m));
  CHECK_EQ(f, fired);
  CHECK_EQ(m, matched);
}

#endif
