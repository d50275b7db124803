/* A test harness in one header: tests that register themselves, checks that say what they saw, and a main.
 *
 *   TEST(name) { CHECK(cond); CHECK_EQ(actual, expected); CHECK_STR(a, b); CHECK_MEM(a, b, size); CHECK_OK(call); }
 *   RUN_TESTS()
 *
 * A failed check prints file, line and values, marks the running test failed and returns from the function it stands in.
 * In a helper that returns void the plain checks do; the caller goes on with CHECK_CALL(helper(...)), which returns too
 * if a check has failed. In one that returns a value (a thread's function, say) use CHECK_RETURN(cond, value). The mark
 * is atomic: any thread may fail the test.
 *
 * Several files may make one program; RUN_TESTS() stands in one of them. Arguments: substrings of the names to run (none:
 * all), -l lists the names, -v says which test runs. SKIP(reason) leaves a test, printed with its reason; with CI in the
 * environment a reason must be one of the two kinds that check_skip_allowed knows, or the test fails.
 * The last line printed is "N passed, M failed".
 */
#ifndef VMM_TESTS_CHECK_H
#define VMM_TESTS_CHECK_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/vmm.h"

#define CHECK_WEAK __attribute__((weak))

typedef struct check_test {
  const char *name;
  const char *file;
  void (*function)(void);
  struct check_test *next;
} check_test;

/* Shared by all files of a program: weak, so that each may bring its own copy. */
extern check_test *check_tests;
extern _Atomic int check_failures; /* of the running test */
extern const char *_Atomic check_skip_reason;
extern void (*check_failure_hook)(void *data); /* see check_on_failure */
extern void *check_failure_data;
CHECK_WEAK check_test *check_tests;
CHECK_WEAK _Atomic int check_failures;
CHECK_WEAK const char *_Atomic check_skip_reason;
CHECK_WEAK void (*check_failure_hook)(void *data);
CHECK_WEAK void *check_failure_data;

void check_register(check_test *test);
void check_fail(const char *file, int line, const char *what);
int check_eq(const char *file, int line, const char *a_text, const char *b_text, long long a, long long b);
int check_str(const char *file, int line, const char *a_text, const char *a, const char *b);
int check_mem(const char *file, int line, const char *a_text, const void *a, const void *b, size_t size);
int check_status(const char *file, int line, const char *text, int actual, int expected, const vmm_error *error);
int check_skip_allowed(const char *reason);
void check_on_failure(void (*hook)(void *data), void *data);
int check_main(int argc, char **argv);

/* ---- what tests use ---------------------------------------------------------------------------------------------- */

#define TEST(name)                                                                    \
  static void test_##name(void);                                                      \
  static check_test check_entry_##name = {#name, __FILE__, test_##name, NULL};        \
  __attribute__((constructor)) static void check_constructor_##name(void);            \
  static void check_constructor_##name(void) { check_register(&check_entry_##name); } \
  static void test_##name(void)

#define CHECK_RETURN(condition, ...)              \
  do {                                            \
    if (!(condition)) {                           \
      check_fail(__FILE__, __LINE__, #condition); \
      return __VA_ARGS__;                         \
    }                                             \
  } while (0)

#define CHECK(condition) CHECK_RETURN(condition, )

/* Integers (and pointers), compared as long long; both are printed. The _RETURN forms return the given value. */
#define CHECK_EQ_RETURN(actual, expected, ...)                                                         \
  do {                                                                                                 \
    if (!check_eq(__FILE__, __LINE__, #actual, #expected, (long long)(actual), (long long)(expected))) \
      return __VA_ARGS__;                                                                              \
  } while (0)
#define CHECK_EQ(actual, expected) CHECK_EQ_RETURN(actual, expected, )

#define CHECK_STR(actual, expected)                                            \
  do {                                                                         \
    if (!check_str(__FILE__, __LINE__, #actual, (actual), (expected))) return; \
  } while (0)

#define CHECK_MEM(actual, expected, size)                                              \
  do {                                                                                 \
    if (!check_mem(__FILE__, __LINE__, #actual, (actual), (expected), (size))) return; \
  } while (0)

/* A vmm_status, printed by name; the _ERROR forms print the message of a vmm_error too. */
#define CHECK_STATUS_ERROR(call, expected, error)                                                \
  do {                                                                                           \
    if (!check_status(__FILE__, __LINE__, #call, (int)(call), (int)(expected), (error))) return; \
  } while (0)
#define CHECK_STATUS(call, expected) CHECK_STATUS_ERROR(call, expected, NULL)
#define CHECK_OK_ERROR(call, error) CHECK_STATUS_ERROR(call, VMM_OK, error)
#define CHECK_OK(call) CHECK_STATUS_ERROR(call, VMM_OK, NULL)
#define CHECK_OK_RETURN(call, ...)                                                               \
  do {                                                                                           \
    if (!check_status(__FILE__, __LINE__, #call, (int)(call), VMM_OK, NULL)) return __VA_ARGS__; \
  } while (0)

/* Runs a helper and returns if it (or anything before it) failed a check. */
#define CHECK_CALL_RETURN(call, ...)                           \
  do {                                                         \
    call;                                                      \
    if (atomic_load(&check_failures) != 0) return __VA_ARGS__; \
  } while (0)
#define CHECK_CALL(call) CHECK_CALL_RETURN(call, )

#define SKIP(reason)                            \
  do {                                          \
    atomic_store(&check_skip_reason, (reason)); \
    return;                                     \
  } while (0)

#define RUN_TESTS() \
  int main(int argc, char **argv) { return check_main(argc, argv); }

/* ---- how it is done ---------------------------------------------------------------------------------------------- */

/* Keeps the order of the files and of the tests in them. */
CHECK_WEAK void check_register(check_test *test) {
  check_test **end = &check_tests;
  while (*end != NULL) end = &(*end)->next;
  *end = test;
}

CHECK_WEAK void check_fail(const char *file, int line, const char *what) {
  atomic_fetch_add(&check_failures, 1);
  printf("%s:%d: failed: %s\n", file, line, what);
  fflush(stdout);
}

CHECK_WEAK int check_eq(const char *file, int line, const char *a_text, const char *b_text, long long a, long long b) {
  if (a == b) return 1;
  atomic_fetch_add(&check_failures, 1);
  printf("%s:%d: failed: %s == %s: %lld (0x%llx), expected %lld (0x%llx)\n", file, line, a_text, b_text, a,
         (unsigned long long)a, b, (unsigned long long)b);
  fflush(stdout);
  return 0;
}

CHECK_WEAK int check_str(const char *file, int line, const char *a_text, const char *a, const char *b) {
  if (a != NULL && b != NULL && strcmp(a, b) == 0) return 1;
  atomic_fetch_add(&check_failures, 1);
  printf("%s:%d: failed: %s: \"%s\", expected \"%s\"\n", file, line, a_text, a ? a : "(null)", b ? b : "(null)");
  fflush(stdout);
  return 0;
}

CHECK_WEAK int check_mem(const char *file, int line, const char *a_text, const void *a, const void *b, size_t size) {
  const unsigned char *x = a, *y = b;
  for (size_t i = 0; i < size; i++) {
    if (x[i] == y[i]) continue;
    atomic_fetch_add(&check_failures, 1);
    printf("%s:%d: failed: %s: byte %zu of %zu is 0x%02x, expected 0x%02x\n", file, line, a_text, i, size,
           (unsigned)x[i], (unsigned)y[i]);
    fflush(stdout);
    return 0;
  }
  return 1;
}

CHECK_WEAK int check_status(const char *file, int line, const char *text, int actual, int expected,
                            const vmm_error *error) {
  if (actual == expected) return 1;
  atomic_fetch_add(&check_failures, 1);
  printf("%s:%d: failed: %s: %s, expected %s%s%s\n", file, line, text, vmm_status_name(actual),
         vmm_status_name(expected), error ? ": " : "", error ? error->message : "");
  fflush(stdout);
  return 0;
}

/* Called once, with `data`, when the test that sets it has failed: to show the last driver calls, say. */
CHECK_WEAK void check_on_failure(void (*hook)(void *data), void *data) {
  check_failure_hook = hook;
  check_failure_data = data;
}

CHECK_WEAK int check_skip_allowed(const char *reason) {
  static const char under[] = "not under this sanitizer because";
  return strcmp(reason, "no GPU here") == 0 || strncmp(reason, under, sizeof under - 1) == 0;
}

/* 0: passed, 1: failed, 2: skipped. */
static inline int check_run_one(const check_test *test) {
  atomic_store(&check_failures, 0);
  atomic_store(&check_skip_reason, NULL);
  check_on_failure(NULL, NULL);
  test->function();
  const char *reason = atomic_load(&check_skip_reason);
  int failed = atomic_load(&check_failures) != 0;
  if (!failed && reason != NULL) {
    printf("SKIP %s: %s\n", test->name, reason);
    if (getenv("CI") == NULL || check_skip_allowed(reason)) return 2;
    printf("this reason is not allowed in CI\n");
    failed = 1;
  }
  if (failed && check_failure_hook != NULL) check_failure_hook(check_failure_data);
  if (failed) printf("FAILED %s (%s)\n", test->name, test->file);
  return failed;
}

CHECK_WEAK int check_main(int argc, char **argv) {
  int count[3] = {0, 0, 0}, verbose = 0, list = 0, names = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-v") == 0) verbose = 1;
    else if (strcmp(argv[i], "-l") == 0) list = 1;
    else names++;
  }
  for (const check_test *test = check_tests; test != NULL; test = test->next) {
    int wanted = names == 0;
    for (int i = 1; i < argc && !wanted; i++) wanted = argv[i][0] != '-' && strstr(test->name, argv[i]) != NULL;
    if (!wanted) continue;
    if (verbose || list) printf("%s\n", test->name);
    fflush(stdout); /* a child or a crash must not lose or repeat what was said */
    if (!list) count[check_run_one(test)]++;
  }
  if (list) return 0;
  if (count[2] != 0) printf("%d skipped\n", count[2]);
  printf("%d passed, %d failed\n", count[0], count[1]);
  if (count[0] + count[1] + count[2] == 0) printf("no test of that name\n0 passed, 1 failed\n");
  return count[1] != 0 || count[0] + count[2] == 0;
}

#endif
