/* Short texts, cut to a buffer. */
#include "base/text.h"

vmm__text vmm__text_start(char *buffer, size_t capacity) {
  vmm__text text = {buffer, capacity, 0};

  if (capacity > 0) buffer[0] = '\0';
  return text;
}

static void add_char(vmm__text *text, char c) {
  if (text->length + 1 < text->capacity) {
    text->start[text->length] = c;
    text->start[text->length + 1] = '\0';
  }
  text->length++;
}

void vmm__text_add(vmm__text *text, const char *string) {
  while (*string != '\0') add_char(text, *string++);
}

static void add_digits(vmm__text *text, vmm__u64 number, unsigned base) {
  char digits[24];
  unsigned count = 0;

  do {
    digits[count++] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number != 0);
  while (count > 0) add_char(text, digits[--count]);
}

void vmm__text_add_number(vmm__text *text, vmm__u64 number) { add_digits(text, number, 10); }

void vmm__text_add_signed(vmm__text *text, long long number) {
  if (number < 0) add_char(text, '-');
  add_digits(text, number < 0 ? 0 - (vmm__u64)number : (vmm__u64)number, 10);
}

void vmm__text_add_hex(vmm__text *text, vmm__u64 number) {
  vmm__text_add(text, "0x");
  add_digits(text, number, 16);
}

void vmm__text_add_bytes(vmm__text *text, vmm__u64 bytes) {
  static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  unsigned unit = 0;

  while (bytes != 0 && bytes % 1024 == 0 && unit < 6) {
    bytes /= 1024;
    unit++;
  }
  vmm__text_add_number(text, bytes);
  vmm__text_add(text, units[unit]);
}

void vmm__text_copy(char *to, size_t capacity, const char *from) {
  vmm__text text = vmm__text_start(to, capacity);

  vmm__text_add(&text, from);
}
