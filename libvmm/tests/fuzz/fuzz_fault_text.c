/* Any text as fault rules: refused with a message, or taken; never half of it, never a crash. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Words the grammar knows, so that random bytes get past the first letter. */
static const char *const words[] = {"cuMemSetAccess",
                                    "cuMemMap",
                                    "mem_create",
                                    ":",
                                    "NOT_READY",
                                    "600",
                                    "@",
                                    "3",
                                    "x",
                                    "*",
                                    ",",
                                    ":after",
                                    ":lie",
                                    "2",
                                    ":p=",
                                    "0.25",
                                    ":pending",
                                    ":sticky",
                                    ":delay=",
                                    "1000",
                                    ":budget=",
                                    ":partial",
                                    "18446744073709551616"};

static size_t spell(const uint8_t *data, size_t size, char *text, size_t capacity) {
  size_t length = 0, i;

  for (i = 0; i < size; i++) {
    size_t word = data[i] % (sizeof words / sizeof words[0] + 4);
    char letter[2] = {(char)data[i], '\0'};
    const char *add = word < sizeof words / sizeof words[0] ? words[word] : letter;
    size_t more = strlen(add);

    if (length + more + 1 > capacity) break;
    memcpy(text + length, add, more);
    length += more;
  }
  text[length] = '\0';
  return length;
}

static void require(int condition, const char *text) {
  if (condition) return;
  fprintf(stderr, "fault text \"%s\" broke its promise\n", text);
  abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char text[512];
  vmm_driver *sim, *faulty;
  vmm_error error;
  vmm_status status;
  int id;
  vmm_fault_rule rule;

  (void)spell(data, size, text, sizeof text);
  if (vmm_sim_create(&sim, NULL, NULL) != VMM_OK) return 0;
  if (vmm_fault_create(&faulty, sim, 1, NULL) == VMM_OK) {
    memset(&error, 0x5A, sizeof error);
    status = vmm_fault_add_text(faulty, text, &error);
    require(status == VMM_OK || (error.status == (int)status && error.message[0] != '\0' &&
                                 memchr(error.message, '\0', sizeof error.message) != NULL),
            text);
    /* All or none: after a refusal the first rule added is the first there is. */
    require(vmm_fault_rule_init(&rule, sizeof rule) == VMM_OK, text);
    rule.op = VMM_OP_mem_map;
    rule.code = 1;
    require(vmm_fault_add(faulty, &rule, &id, NULL) == VMM_OK, text);
    if (status != VMM_OK) require(vmm_raw_mem_map(faulty, 0, 0, 0, 0, 0) == 1, text);
    vmm_driver_release(faulty);
  }
  vmm_driver_release(sim);
  return 0;
}
