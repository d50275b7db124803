/* Host memory through the caller's table, or malloc and free. */
#include "base/memory.h"

#include "base/hook.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Large tables are read at random places; on pages of 2 MiB that costs one miss where it else costs two and more. */
enum { HUGE_PAGE = 2 << 20, LARGE = 2 * HUGE_PAGE };

static void *allocate_large(size_t size) {
  size_t whole = (size + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
  void *pointer = aligned_alloc(HUGE_PAGE, whole);

  if (pointer != NULL) (void)madvise(pointer, whole, MADV_HUGEPAGE);
  return pointer;
}

static void *default_allocate(void *data, size_t size) {
  (void)data;
  return size >= LARGE ? allocate_large(size) : malloc(size);
}

static void default_release(void *data, void *pointer, size_t size) {
  (void)data;
  (void)size;
  free(pointer);
}

const vmm_host_memory vmm__memory_default = {sizeof(vmm_host_memory), default_allocate, default_release, NULL};

bool vmm__memory_valid(const vmm_host_memory *table) {
  return table == NULL ||
         (table->struct_size == sizeof(vmm_host_memory) && table->allocate != NULL && table->release != NULL);
}

vmm_host_memory vmm__memory_from(const vmm_host_memory *table) { return table != NULL ? *table : vmm__memory_default; }

void *vmm__memory_allocate_raw(const vmm_host_memory *table, vmm__u64 count, vmm__u64 size) {
  vmm__u64 bytes;

  if (!vmm__multiply(count, size, &bytes) || bytes > PTRDIFF_MAX) return NULL;
  if (bytes == 0) bytes = 1; /* NULL must mean failure */
  (void)vmm__hook_at(VMM__POINT_HOST_MEMORY, table, bytes, NULL);
  return table->allocate(table->data, (size_t)bytes);
}

void *vmm__memory_allocate(const vmm_host_memory *table, vmm__u64 count, vmm__u64 size) {
  void *pointer = vmm__memory_allocate_raw(table, count, size);

  if (pointer != NULL) memset(pointer, 0, (size_t)(count * size));
  return pointer;
}

void vmm__memory_release(const vmm_host_memory *table, void *pointer, vmm__u64 count, vmm__u64 size) {
  vmm__u64 bytes = count * size; /* did not overflow when it was allocated */

  if (pointer != NULL) table->release(table->data, pointer, (size_t)(bytes == 0 ? 1 : bytes));
}
