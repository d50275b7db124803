/* The conformance suite: every fact of docs/driver-facts.md as a case with exact codes, run over any driver. A case is
 * written FACT("MAP-3", flags, function) { ... } and registers itself; main.c runs it, here or in a child process. */
#ifndef VMM_TESTS_CONFORMANCE_H
#define VMM_TESTS_CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/driver.h"

typedef unsigned long long u64;

enum {
  CONF_CHILD = 1,       /* ends a context or the process: runs in a child over any driver */
  CONF_SEGFAULTS = 2,   /* over CUDA the process ends with SIGSEGV: that is the fact */
  CONF_SLOW = 4,        /* may take a minute over CUDA */
  CONF_LEAVES = 8,      /* things are left: a dead context's cannot all be given back */
  CONF_STRICTER = 16,   /* the simulator answers or reports more than the driver; listed in the document */
  CONF_TWO_DEVICES = 32 /* needs a second device that can be reached; the simulator gets two */
};

/* What a case gets: a driver with a current context on device 0. */
typedef struct conf {
  vmm_driver *driver;
  const char *id;
  void *context;
  bool cuda;  /* the real driver; false: a fresh simulator of the case's own */
  bool ready; /* the context is there */
  int device;
  int failures;
  int expected;        /* bits: kinds of misuse the simulator must have reported, and no other */
  const char *skipped; /* why, or NULL */
  size_t granule;
} conf;

typedef struct conf_fact {
  const char *id;
  int flags;
  void (*run)(conf *c);
  const char *not_sanitized; /* why it is not run under a sanitizer, or NULL */
  struct conf_fact *next;
} conf_fact;

void conf_register(conf_fact *fact);

/* A case too large for a sanitizer says why. */
#define FACT_HEAVY(name, bits, function, why)                                                             \
  static void function(conf *c);                                                                          \
  static conf_fact function##_fact = {name, bits, function, why, NULL};                                   \
  __attribute__((constructor)) static void function##_register(void) { conf_register(&function##_fact); } \
  static void function(conf *c)

#define FACT(name, bits, function) FACT_HEAVY(name, bits, function, NULL)

/* Codes, numbers and truths. Each notes a failure and goes on, so that a case cleans up; each is true if it held. */
#define EXPECT(call, wanted) conf_expect_code(c, __FILE__, __LINE__, #call, (call), (wanted))
#define EXPECT_EQ(actual, wanted) conf_expect_number(c, __FILE__, __LINE__, #actual, (u64)(actual), (u64)(wanted))
#define EXPECT_TRUE(condition) conf_expect_true(c, __FILE__, __LINE__, #condition, (condition))
/* The case cannot go on without it. */
#define REQUIRE(call, wanted)              \
  do {                                     \
    if (!EXPECT((call), (wanted))) return; \
  } while (0)

bool conf_expect_code(conf *c, const char *file, int line, const char *what, int actual, int wanted);
bool conf_expect_number(conf *c, const char *file, int line, const char *what, u64 actual, u64 wanted);
bool conf_expect_true(conf *c, const char *file, int line, const char *what, bool held);

/* The simulator must have reported this kind of misuse when the case ends. Nothing over CUDA. */
void conf_expect_misuse(conf *c, int kind);

/* ---- run.c: one case ---- */

typedef struct conf_setup {
  bool cuda;
  const char *kernels; /* file with the GPU code, or NULL */
} conf_setup;

typedef enum conf_outcome { CONF_PASSED = 0, CONF_FAILED = 1, CONF_SKIPPED = 77 } conf_outcome;

/* Runs a case here, with a driver of its own, and looks at what it left behind. Prints failures and the skip. */
conf_outcome conf_run(const conf_fact *fact, const conf_setup *setup);

/* ---- docs.c ---- */

/* Compares the ids of the document with the cases. Prints the differences; returns how many there are. */
int conf_check_docs(const conf_fact *facts, const char *path);

/* ---- world.c: what many cases need ---- */

/* A piece of address space with, perhaps, memory in it. */
typedef struct conf_range {
  u64 address;
  size_t size;
  u64 handle;
} conf_range;

vmm_raw_prop conf_prop(const conf *c);
vmm_raw_access conf_rights(const conf *c, int flags);

/* 0 after a failure, which is noted. */
u64 conf_reserve(conf *c, size_t size);
u64 conf_create(conf *c, size_t size);

/* set-access for device 0: 0 none, 1 read, 3 read and write. */
int conf_access(conf *c, u64 address, size_t size, int flags);

/* get-access for device 0; *flags is poisoned first. */
int conf_get_access(conf *c, u64 address, u64 *flags);

/* Reserves, creates and maps `size` bytes; with `flags` != 0 access follows. False after a failure, which is noted. */
bool conf_make(conf *c, conf_range *range, size_t size, int flags);

/* Unmaps, releases and frees; each must succeed. */
void conf_unmake(conf *c, conf_range *range);

/* Reads 4 bytes into a poisoned buffer; the poison after a failure, which is noted. */
unsigned int conf_read_word(conf *c, u64 address);

/* Runs a kernel that compares the range with the fill pattern; the number of words that differ. */
u64 conf_mismatches(conf *c, u64 address, size_t size, u64 seed);

/* Occupies a stream. */
void conf_spin(conf *c, void *stream, unsigned int milliseconds);

/* Lets time pass on the driver's clock. */
void conf_wait(conf *c, unsigned int milliseconds);

/* Calls function(c, data) in a thread of its own with the case's context current, and waits for it. */
void conf_on_thread(conf *c, void (*function)(conf *c, void *data), void *data);

/* Exchanges the calling thread's capture mode; returns the old one. 0: global, 1: thread-local, 2: relaxed. */
int conf_capture_mode(conf *c, int mode);

/* Ends the capture of a stream, drops the graph, and returns the code. */
int conf_end_capture(conf *c, void *stream);

enum { CONF_POISON_BYTE = 0xC3, CONF_BLOCKING = 0, CONF_NON_BLOCKING = 1, CONF_NO_TIMING = 2 };
#define CONF_POISON 0xC3C3C3C3u
#define CONF_WILD 0x7f0000000000ull /* an address in no reservation */
#define CONF_STREAM_LEGACY ((void *)1)
#define CONF_STREAM_PER_THREAD ((void *)2)

#endif
