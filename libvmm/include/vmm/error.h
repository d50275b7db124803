/* libvmm: statuses, what an error tells, and the version. Conventions: vmm/vmm.h. */
#ifndef VMM_ERROR_H
#define VMM_ERROR_H

#ifndef VMM_CDEF
#include <stddef.h>
#if defined(__GNUC__)
#define VMM_API __attribute__((visibility("default")))
#else
#define VMM_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
#else
#define VMM_API
#endif

typedef enum vmm_status {
  VMM_OK = 0,
  VMM_ERROR_INVALID_ARGUMENT = 1,     /* refused before anything changed */
  VMM_ERROR_OUT_OF_HOST_MEMORY = 2,   /* the host allocator said no */
  VMM_ERROR_OUT_OF_DEVICE_MEMORY = 3, /* the driver has no physical memory left, after every rung of the ladder */
  VMM_ERROR_OUT_OF_ADDRESS_SPACE = 4, /* no address range: the reservation is full or was refused */
  VMM_ERROR_MAPPING_LIMIT = 5,        /* the driver has no room for another mapping */
  VMM_ERROR_LIMIT = 6,                /* the caller's own limit (of the pool or of the device) */
  VMM_ERROR_NOT_READY = 7,            /* the driver said NOT_READY until the retry budget was spent; all undone */
  VMM_ERROR_NOT_CONFIRMED = 8,        /* the driver said success but get-access denied it; all undone */
  VMM_ERROR_CAPTURE = 9,              /* a stream capture forbids the call */
  VMM_ERROR_UNKNOWN_ADDRESS = 10,     /* not the address of a live block of this pool */
  VMM_ERROR_BUSY = 11,                /* live blocks, pools or captures stand in the way, or no growth is allowed */
  VMM_ERROR_TIMEOUT = 12,             /* the deadline passed while waiting for a lock or a fence */
  VMM_ERROR_PARTIAL = 13,             /* some of it was done; the output says how much */
  VMM_ERROR_UNSUPPORTED = 14,         /* the device or the driver cannot do this */
  VMM_ERROR_NO_DRIVER = 15,           /* no usable CUDA driver on this machine */
  VMM_ERROR_DRIVER = 16,              /* any other driver code; vmm_error.code is the raw CUresult */
  VMM_ERROR_DEVICE_LOST = 17,         /* the context is dead; only teardown goes on */
  VMM_ERROR_FORKED = 18,              /* this process is a forked child of the one that used the library */
  VMM_ERROR_CALLBACK = 19,            /* a callback of the caller's failed */
  VMM_ERROR_VERSION = 20,             /* a struct of a size or content this version does not know */
  VMM_ERROR_BROKEN = 21               /* vmm_pool_check: an invariant does not hold; a bug of the library's */
} vmm_status;

/* What failed, in what state things are, what to do. One frozen struct: its layout never changes. Numbers that are not
 * known are 0; `device` is -1 where no device is meant. */
typedef struct vmm_error {
  int status;                        /* vmm_status */
  int code;                          /* raw CUresult of the failing call, 0 if no driver call failed */
  int attempt;                       /* which attempt failed last (1 = the first), 0 if no driver call failed */
  int device;                        /* device ordinal, or -1 */
  int undo_failures;                 /* undo steps that failed; what they hold is quarantined */
  int undo_code;                     /* the first code among them */
  unsigned long long address;        /* the address the call was about, or 0 */
  unsigned long long size;           /* the size the call was about, or 0 */
  unsigned long long gave_back;      /* idle bytes that were given back to the driver on the way */
  unsigned long long free_bytes;     /* device memory the driver called free, or 0 */
  unsigned long long total_bytes;    /* device memory in all, or 0 */
  unsigned long long reserved_bytes; /* address space this library holds reserved on the device, or 0 */
  unsigned long long reserved[4];    /* zero */
  char call[40];                     /* driver symbol that failed, e.g. "cuMemSetAccess", or "" */
  char code_name[48];                /* e.g. "CUDA_ERROR_NOT_READY", or "" */
  char message[256];                 /* one line: what failed, the state now, what to do */
} vmm_error;

/* The name of a status, e.g. "VMM_ERROR_NOT_READY"; "VMM_ERROR_?" for a value that is none. Static string, never NULL.
 * Never fails, calls no driver, any thread. */
VMM_API const char *vmm_status_name(int status);

/* One sentence that explains a status. Static string, never NULL. Never fails, calls no driver, any thread. */
VMM_API const char *vmm_status_text(int status);

/* The version of the library that is loaded: major * 10000 + minor * 100 + patch. Never fails, any thread. */
VMM_API int vmm_version(void);

/* The same as text, e.g. "0.1.0". Static string. */
VMM_API const char *vmm_version_string(void);

#ifndef VMM_CDEF
#ifdef __cplusplus
}
#endif
#endif

#endif
