/* A recorded call as a line of text. */
#include "base/text.h"
#include "driver/driver.h"

/* "name=" and the separator before it. */
static void start_field(vmm__text *text, bool *any, const char *name) {
  if (*any) vmm__text_add(text, ", ");
  *any = true;
  vmm__text_add(text, name);
  vmm__text_add(text, "=");
}

size_t vmm_record_format(const vmm_record_entry *entry, char *text, size_t capacity) {
  vmm__text line = vmm__text_start(text, text != NULL ? capacity : 0);
  bool any = false;

  if (entry == NULL) return 0;
  vmm__text_add(&line, "#");
  vmm__text_add_number(&line, entry->sequence);
  vmm__text_add(&line, " ");
  vmm__text_add(&line, vmm_op_symbol(entry->op));
  vmm__text_add(&line, "(");
  if (entry->address != 0) {
    start_field(&line, &any, "address");
    vmm__text_add_hex(&line, entry->address);
  }
  if (entry->size != 0) {
    start_field(&line, &any, "size");
    vmm__text_add_number(&line, entry->size);
  }
  if (entry->object != 0) {
    start_field(&line, &any, "object");
    vmm__text_add_hex(&line, entry->object);
  }
  vmm__text_add(&line, ") -> ");
  vmm__text_add(&line, vmm_code_name(entry->code));
  if (entry->code != 0 && vmm_code_name(entry->code)[sizeof "CUDA_ERROR_" - 1] == '?')
    vmm__text_add_signed(&line, entry->code);
  if (entry->output != 0) {
    vmm__text_add(&line, " output=");
    vmm__text_add_hex(&line, entry->output);
  }
  vmm__text_add(&line, " ");
  vmm__text_add_number(&line, entry->taken_ns / 1000);
  vmm__text_add(&line, ".");
  vmm__text_add_number(&line, entry->taken_ns % 1000 / 100);
  vmm__text_add(&line, " us");
  return line.length;
}
