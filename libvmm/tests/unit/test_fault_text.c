/* Fault rules from text: what each part means, and what is said about a wrong one. */
#include "check.h"
#include "driver/fault.h"
#include "stub_driver.h"

static stub_driver stub;

static vmm_driver *make(void) {
  vmm_driver *fault = NULL;
  stub_init(&stub, VMM__DRIVER_SIM);
  CHECK_OK_RETURN(vmm_fault_create(&fault, &stub.base, 7, NULL), NULL);
  vmm_driver_release(&stub.base);
  return fault;
}

/* The rules of a text, as the wrapper keeps them; NULL if it did not take the text or their number is another. */
static const vmm__fault_rule *parse(vmm_driver *fault, const char *text, size_t count) {
  vmm__fault *wrapper = fault->self;
  vmm_error error;
  CHECK_OK_RETURN(vmm_fault_clear(fault), NULL);
  CHECK_RETURN(check_status(__FILE__, __LINE__, text, (int)vmm_fault_add_text(fault, text, &error), VMM_OK, &error),
               NULL);
  CHECK_EQ_RETURN(wrapper->rules.count, count, NULL);
  return wrapper->rules.elements;
}

TEST(the_plain_form) {
  vmm_driver *fault = make();
  const vmm__fault_rule *rules = parse(fault, "cuMemSetAccess:NOT_READY@3x2", 1);
  CHECK(rules != NULL);
  CHECK_EQ(rules->rule.op, VMM_OP_mem_set_access);
  CHECK_EQ(rules->rule.code, 600);
  CHECK_EQ(rules->rule.occurrence, 3);
  CHECK_EQ(rules->rule.times, 2);
  CHECK_EQ(rules->rule.phase, VMM_FAULT_BEFORE);
  CHECK_EQ(rules->rule.condition, VMM_FAULT_ALWAYS);
  for (int i = 1; i <= 6; i++) CHECK_EQ(vmm_raw_mem_set_access(fault, 1, 1, NULL, 0), i == 3 || i == 4 ? 600 : 0);
  vmm_driver_release(fault);
}

TEST(calls_and_codes_in_all_their_spellings) {
  vmm_driver *fault = make();
  const vmm__fault_rule *rules = parse(fault, "mem_map:CUDA_ERROR_OUT_OF_MEMORY , *:4242x* ,\n cuMemUnmap:1", 3);
  CHECK(rules != NULL);
  CHECK_EQ(rules[0].rule.op, VMM_OP_mem_map);
  CHECK_EQ(rules[0].rule.code, 2);
  CHECK_EQ(rules[0].rule.times, 0);
  CHECK_EQ(rules[1].rule.op, VMM_OP_ANY);
  CHECK_EQ(rules[1].rule.code, 4242);
  CHECK_EQ(rules[1].rule.times, VMM_FAULT_FOR_EVER);
  CHECK_EQ(rules[2].rule.op, VMM_OP_mem_unmap);
  CHECK_EQ(rules[2].rule.code, 1);
  vmm_driver_release(fault);
}

TEST(phases_and_conditions) {
  vmm_driver *fault = make();
  const vmm__fault_rule *rules =
      parse(fault,
            "cuMemMap:999:after:sticky,cuMemSetAccess:0:lie,cuMemSetAccess:2:partial:pending,"
            "cuMemMap:600:evicted,cuMemMap:600:budget=12345,cuMemMap:600:budget=3GiB:after",
            6);
  CHECK(rules != NULL);
  CHECK_EQ(rules[0].rule.phase, VMM_FAULT_AFTER);
  CHECK_EQ(rules[0].rule.sticky, 1);
  CHECK_EQ(rules[1].rule.phase, VMM_FAULT_LIE);
  CHECK_EQ(rules[2].rule.phase, VMM_FAULT_PARTIAL);
  CHECK_EQ(rules[2].rule.condition, VMM_FAULT_IF_PENDING);
  CHECK_EQ(rules[3].rule.condition, VMM_FAULT_IF_AFTER_RELEASE);
  CHECK_EQ(rules[4].rule.condition, VMM_FAULT_IF_OVER_BUDGET);
  CHECK_EQ(rules[4].rule.budget, 12345);
  CHECK_EQ(rules[5].rule.budget, 3ull << 30);
  CHECK_EQ(rules[5].rule.phase, VMM_FAULT_AFTER);
  vmm_driver_release(fault);
}

TEST(probabilities_and_delays) {
  vmm_driver *fault = make();
  const vmm__fault_rule *rules = parse(fault,
                                       "cuMemMap:1:p=0.25,cuMemMap:1:p=1,cuMemMap:1:p=.5:delay=7,cuMemMap:1:delay=2ms,"
                                       "cuMemMap:1:p=0.00000000000001:delay=3s,cuMemMap:1:delay=4us:after",
                                       6);
  CHECK_EQ(rules != NULL, 1);
  CHECK_EQ(rules[0].rule.probability, 0x40000000);
  CHECK_EQ(rules[1].rule.probability, 0);
  CHECK_EQ(rules[2].rule.probability, 0x80000000u);
  CHECK_EQ(rules[2].rule.delay_ns, 7);
  CHECK_EQ(rules[3].rule.delay_ns, 2000000);
  CHECK_EQ(rules[4].rule.delay_ns, 3000000000u);
  CHECK_EQ(rules[5].rule.delay_ns, 4000);
  vmm_driver_release(fault);
}

TEST(what_is_wrong_is_said_and_where) {
  static const struct {
    const char *text;
    const char *why;
    unsigned at;
  } cases[] = {
      {"", "a call is missing", 1},
      {"cuMemMap", "':' and a code are missing", 9},
      {"cuMemMap:", "a code is missing", 10},
      {"cuMemMaps:1", "unknown call", 1},
      {"cuMemMap:1,", "a call is missing", 12},
      {"cuMemMap:1,,cuMemMap:1", "a call is missing", 12},
      {"cuMemMap:NOT_REDDY", "unknown code", 10},
      {"cuMemMap:99999999999", "unknown code", 10},
      {"cuMemMap:1@", "a number is missing", 12},
      {"cuMemMap:1@0", "occurrences count from 1", 13},
      {"cuMemMap:1x", "a number is missing", 12},
      {"cuMemMap:1x0", "times count from 1", 13},
      {"cuMemMap:1x-1", "a number is missing", 12},
      {"cuMemMap:1@99999999999999999999999", "too large", 0},
      {"cuMemMap:1:", "unknown option", 12},
      {"cuMemMap:1:aftermath", "unknown option", 12},
      {"cuMemMap:1:after:lie", "exclude each other", 0},
      {"cuMemMap:1:pending:evicted", "exclude each other", 0},
      {"cuMemMap:1:budget=", "a number is missing", 19},
      {"cuMemMap:1:budget=1MB", "unexpected text", 20},
      {"cuMemMap:1:budget=99999999999TiB", "too large", 0},
      {"cuMemMap:1:p=0", "p must be", 0},
      {"cuMemMap:1:p=1.5", "p must be", 0},
      {"cuMemMap:1:p=", "p must be", 0},
      {"cuMemMap:1:delay=1min", "unexpected text", 19},
      {"cuMemMap:1 @2", "unexpected text", 12},
      {"cuMemMap:0", "does nothing", 1},
      {"cuMemMap:1:partial", "in part", 1},
  };
  vmm_driver *fault = make();
  vmm__fault *wrapper = fault->self;
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    vmm_error error;
    char where[32];
    CHECK_STATUS(vmm_fault_add_text(fault, cases[i].text, &error), VMM_ERROR_INVALID_ARGUMENT);
    if (strstr(error.message, cases[i].why) == NULL) CHECK_STR(error.message, cases[i].why);
    (void)snprintf(where, sizeof where, "at character %u", cases[i].at);
    if (cases[i].at != 0 && strstr(error.message, where) == NULL) CHECK_STR(error.message, where);
    CHECK_EQ(wrapper->rules.count, 0);
  }
  CHECK_STATUS(vmm_fault_add_text(fault, NULL, NULL), VMM_ERROR_INVALID_ARGUMENT);
  vmm_driver_release(fault);
}

TEST(all_rules_or_none) {
  vmm_driver *fault = make();
  char many[1024] = "cuMemMap:600";
  CHECK_STATUS(vmm_fault_add_text(fault, "cuMemMap:600x*,cuMemUnmap:bad", NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(vmm_raw_mem_map(fault, 1, 1, 0, 1, 0), 0);
  for (int i = 1; i < 32; i++) strcat(many, ",cuMemMap:600");
  CHECK_OK(vmm_fault_add_text(fault, many, NULL));
  CHECK_EQ(((vmm__fault *)fault->self)->rules.count, 32);
  strcat(many, ",cuMemMap:600");
  CHECK_STATUS(vmm_fault_add_text(fault, many, NULL), VMM_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(((vmm__fault *)fault->self)->rules.count, 32);
  vmm_driver_release(fault);
}

RUN_TESTS()
