/* The conformance suite's main program: chooses cases, runs each here or in a child, and counts. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

typedef struct options {
  conf_setup setup;
  const char *only;
  const char *child;
  const char *document;
  bool list;
} options;

static conf_fact *facts;

static bool is_before(const char *a, const char *b) {
  size_t la = strcspn(a, "-"), lb = strcspn(b, "-");
  int order = strncmp(a, b, la < lb ? la : lb);
  if (order != 0 || la != lb) return order != 0 ? order < 0 : la < lb;
  return atoi(a + la + 1) < atoi(b + lb + 1);
}

void conf_register(conf_fact *fact) {
  conf_fact **at = &facts;
  while (*at && is_before((*at)->id, fact->id)) at = &(*at)->next;
  fact->next = *at;
  *at = fact;
}

static int usage(const char *why) {
  fprintf(stderr,
          "conformance: %s\n"
          "usage: conformance [--driver sim|cuda] [--kernels FILE] [--only ID] [--list] [--check-docs FILE]\n"
          "  --driver      which driver to run the cases over (default sim)\n"
          "  --kernels     GPU code of the test kernels; needed for cuda\n"
          "  --only        one case, or all whose id starts with it (\"MAP-\")\n"
          "  --list        print the ids\n"
          "  --check-docs  compare the ids with the document's\n",
          why);
  return 2;
}

static int read_options(int count, char **arguments, options *o) {
  for (int i = 1; i < count; i++) {
    const char *name = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
    if (strcmp(name, "--list") == 0) {
      o->list = true;
      continue;
    }
    if (!value) return usage(name);
    i++;
    if (strcmp(name, "--driver") == 0) {
      if (strcmp(value, "sim") != 0 && strcmp(value, "cuda") != 0) return usage("--driver takes sim or cuda");
      o->setup.cuda = strcmp(value, "cuda") == 0;
    } else if (strcmp(name, "--kernels") == 0) {
      o->setup.kernels = value;
    } else if (strcmp(name, "--only") == 0) {
      o->only = value;
    } else if (strcmp(name, "--child") == 0) {
      o->child = value;
    } else if (strcmp(name, "--check-docs") == 0) {
      o->document = value;
    } else {
      return usage(name);
    }
  }
  if (o->setup.cuda && !o->setup.kernels && !o->list && !o->document) return usage("cuda needs --kernels");
  return 0;
}

/* A whole id, or the beginning of several if it ends with '-'. */
static bool is_chosen(const char *id, const char *only) {
  size_t length = only ? strlen(only) : 0;
  if (length == 0) return true;
  return only[length - 1] == '-' ? strncmp(id, only, length) == 0 : strcmp(id, only) == 0;
}

/* A stuck case must not stop the others: its child is ended by an alarm. */
static int run_as_child(const options *o) {
  for (const conf_fact *fact = facts; fact; fact = fact->next) {
    if (strcmp(fact->id, o->child) != 0) continue;
    alarm(fact->flags & CONF_SLOW ? 300 : 60);
    int outcome = (int)conf_run(fact, &o->setup);
    fflush(stdout);
    _exit(outcome); /* without a driver's own exit handlers: after a lost context they may hang */
  }
  return usage("no such case");
}

static void start_child(const conf_fact *fact, const conf_setup *setup) {
  char path[4096], child[] = "--child", driver[] = "--driver", kernels[] = "--kernels", sim[] = "sim", cuda[] = "cuda";
  char id[32], *file = setup->kernels ? strdup(setup->kernels) : NULL;
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) _exit(126);
  path[length] = 0;
  snprintf(id, sizeof id, "%s", fact->id);
  char *arguments[] = {path, child, id, driver, setup->cuda ? cuda : sim, file ? kernels : NULL, file, NULL};
  execv(path, arguments);
  _exit(126);
}

static conf_outcome run_in_child(const conf_fact *fact, const conf_setup *setup) {
  int status = 0;
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) start_child(fact, setup);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  bool may_die = setup->cuda && (fact->flags & CONF_SEGFAULTS);
  if (pid < 0) {
    printf("FAIL %s %s:%d expected a child got %s\n", fact->id, __FILE__, __LINE__, strerror(errno));
  } else if (WIFSIGNALED(status) && may_die && WTERMSIG(status) == SIGSEGV) {
    return CONF_PASSED;
  } else if (WIFSIGNALED(status)) {
    printf("FAIL %s %s:%d expected %s got signal %d%s\n", fact->id, __FILE__, __LINE__,
           may_die ? "signal 11" : "an exit", WTERMSIG(status), WTERMSIG(status) == SIGALRM ? " (stuck)" : "");
  } else if (may_die) {
    printf("FAIL %s %s:%d expected signal 11 got exit %d\n", fact->id, __FILE__, __LINE__, WEXITSTATUS(status));
  } else if (WEXITSTATUS(status) == CONF_PASSED || WEXITSTATUS(status) == CONF_SKIPPED) {
    return (conf_outcome)WEXITSTATUS(status);
  } else if (WEXITSTATUS(status) != CONF_FAILED) {
    printf("FAIL %s %s:%d expected exit 0 got exit %d\n", fact->id, __FILE__, __LINE__, WEXITSTATUS(status));
  }
  return CONF_FAILED;
}

static conf_outcome run_one(const conf_fact *fact, const conf_setup *setup) {
  if (SANITIZED && fact->not_sanitized) {
    printf("skip %s not under this sanitizer because %s\n", fact->id, fact->not_sanitized);
    return CONF_SKIPPED;
  }
  /* Over CUDA each case has a process of its own: a context that one case spoils must not fail the next. */
  bool in_child = setup->cuda || (fact->flags & CONF_CHILD);
  return in_child ? run_in_child(fact, setup) : conf_run(fact, setup);
}

int main(int count, char **arguments) {
  options o = {{false, NULL}, NULL, NULL, NULL, false};
  int passed = 0, failed = 0, skipped = 0, wrong = read_options(count, arguments, &o);
  if (wrong) return wrong;
  if (o.child) return run_as_child(&o);
  if (o.document) {
    int differences = conf_check_docs(facts, o.document);
    printf("%d differences\n", differences);
    return differences != 0;
  }
  for (const conf_fact *fact = facts; fact; fact = fact->next) {
    if (!is_chosen(fact->id, o.only)) continue;
    if (o.list) {
      printf("%s%s\n", fact->id, fact->flags & CONF_SLOW ? " slow" : "");
      continue;
    }
    conf_outcome outcome = run_one(fact, &o.setup);
    if (outcome == CONF_PASSED) printf("ok %s\n", fact->id);
    passed += outcome == CONF_PASSED;
    failed += outcome == CONF_FAILED;
    skipped += outcome == CONF_SKIPPED;
    fflush(stdout);
  }
  if (o.list) return 0;
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed != 0 || passed + skipped == 0;
}
