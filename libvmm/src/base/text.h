/* Building short texts without printf: error messages, driver names, record lines. */
#ifndef VMM_BASE_TEXT_H
#define VMM_BASE_TEXT_H

#include "base/checked.h"

typedef struct vmm__text {
  char *start;
  size_t capacity; /* with the final zero */
  size_t length;   /* what it would take; may exceed the capacity: then the text is cut */
} vmm__text;

vmm__text vmm__text_start(char *buffer, size_t capacity);
void vmm__text_add(vmm__text *text, const char *string);
void vmm__text_add_number(vmm__text *text, vmm__u64 number);
void vmm__text_add_signed(vmm__text *text, long long number);
void vmm__text_add_hex(vmm__text *text, vmm__u64 number);  /* 0x... */
void vmm__text_add_bytes(vmm__text *text, vmm__u64 bytes); /* 4194304 -> "4 MiB", 4194305 -> "4194305 bytes" */

/* Copies a string, cut to capacity, always ended. */
void vmm__text_copy(char *to, size_t capacity, const char *from);

#endif
