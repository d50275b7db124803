/* Fault rules from text: CALL:CODE[@occurrence][xTIMES|x*][:option...], several joined by commas. */
#include <string.h>

#include "driver/fault.h"

enum { MOST_RULES = 32, WORD = 64 };

typedef struct parser {
  const char *at;
  const char *why; /* the first thing that is wrong */
} parser;

static bool fail(parser *p, const char *why) {
  if (p->why == NULL) p->why = why;
  return false;
}

static void skip_spaces(parser *p) {
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n') p->at++;
}

static bool accept(parser *p, char c) {
  if (*p->at != c) return false;
  p->at++;
  return true;
}

/* Accepts a whole word: what follows it is not part of a longer one. */
static bool accept_word(parser *p, const char *word) {
  size_t length = strlen(word);

  if (strncmp(p->at, word, length) != 0) return false;
  if (strchr(":, \t\n", p->at[length]) == NULL) return false; /* the end of the text counts as found */
  p->at += length;
  return true;
}

static bool accept_prefix(parser *p, const char *prefix) {
  size_t length = strlen(prefix);

  if (strncmp(p->at, prefix, length) != 0) return false;
  p->at += length;
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool parse_number(parser *p, vmm__u64 *number) {
  if (!is_digit(*p->at)) return fail(p, "a number is missing");
  for (*number = 0; is_digit(*p->at); p->at++)
    if (!vmm__multiply(*number, 10, number) || !vmm__add(*number, (vmm__u64)(*p->at - '0'), number))
      return fail(p, "the number is too large");
  return true;
}

/* A number with a unit behind it; none: 1. */
static bool parse_scaled(parser *p, const char *const *units, const vmm__u64 *factors, vmm__u64 *number) {
  unsigned i;

  if (!parse_number(p, number)) return false;
  for (i = 0; units[i] != NULL; i++)
    if (accept_word(p, units[i]))
      return vmm__multiply(*number, factors[i], number) || fail(p, "the number is too large");
  return true;
}

/* 0 < p <= 1 as a fraction of 2^32; 1 is "always", which a rule writes as 0. */
static bool parse_probability(parser *p, unsigned *probability) {
  vmm__u64 whole = 0;
  vmm__u64 digits = 0;
  vmm__u64 scale = 1;
  bool positive = false;

  if (is_digit(*p->at) && !parse_number(p, &whole)) return false;
  if (accept(p, '.'))
    for (; is_digit(*p->at); p->at++) {
      positive = positive || *p->at != '0';
      if (scale == 1000000000u) continue; /* finer than 2^-32 */
      digits = digits * 10 + (vmm__u64)(*p->at - '0');
      scale *= 10;
    }
  if (whole > 1 || (whole == 1) == positive) return fail(p, "p must be in (0, 1]");
  digits = (digits << 32) / scale;
  *probability = whole == 1 ? 0 : (unsigned)vmm__max(digits, 1);
  return true;
}

/* The characters up to one of `ends`, or the end of the text. */
static bool parse_word(parser *p, const char *ends, char word[WORD]) {
  size_t length = strcspn(p->at, ends);

  if (length == 0 || length >= WORD) return false;
  memcpy(word, p->at, length);
  word[length] = '\0';
  p->at += length;
  return true;
}

static bool parse_call(parser *p, vmm_fault_rule *rule) {
  const char *start = p->at;
  char word[WORD];

  if (!parse_word(p, ":, \t\n", word)) return fail(p, "a call is missing");
  if (strcmp(word, "*") == 0) {
    rule->op = VMM_OP_ANY;
  } else {
    rule->op = vmm_op_from_name(word);
    if (rule->op < 0) {
      p->at = start;
      return fail(p, "unknown call");
    }
  }
  return accept(p, ':') || fail(p, "':' and a code are missing");
}

static bool parse_code(parser *p, vmm_fault_rule *rule) {
  const char *start = p->at;
  char word[WORD];

  if (!parse_word(p, "@x:, \t\n", word)) return fail(p, "a code is missing");
  rule->code = vmm_code_from_name(word);
  if (rule->code < 0) {
    p->at = start;
    return fail(p, "unknown code");
  }
  if (accept(p, '@')) {
    if (!parse_number(p, &rule->occurrence)) return false;
    if (rule->occurrence == 0) return fail(p, "occurrences count from 1");
  }
  if (!accept(p, 'x')) return true;
  if (accept(p, '*')) {
    rule->times = VMM_FAULT_FOR_EVER;
    return true;
  }
  if (!parse_number(p, &rule->times)) return false;
  return rule->times != 0 || fail(p, "times count from 1");
}

static bool set_once(parser *p, int *field, int value) {
  if (*field != 0) return fail(p, "two options exclude each other");
  *field = value;
  return true;
}

static bool parse_option(parser *p, vmm_fault_rule *rule) {
  static const char *const bytes[] = {"KiB", "MiB", "GiB", "TiB", NULL};
  static const vmm__u64 byte_factors[] = {1ull << 10, 1ull << 20, 1ull << 30, 1ull << 40};
  static const char *const times[] = {"ns", "us", "ms", "s", NULL};
  static const vmm__u64 time_factors[] = {1, 1000, 1000000, 1000000000};

  if (accept_word(p, "after")) return set_once(p, &rule->phase, VMM_FAULT_AFTER);
  if (accept_word(p, "lie")) return set_once(p, &rule->phase, VMM_FAULT_LIE);
  if (accept_word(p, "partial")) return set_once(p, &rule->phase, VMM_FAULT_PARTIAL);
  if (accept_word(p, "pending")) return set_once(p, &rule->condition, VMM_FAULT_IF_PENDING);
  if (accept_word(p, "evicted")) return set_once(p, &rule->condition, VMM_FAULT_IF_AFTER_RELEASE);
  if (accept_word(p, "sticky")) return set_once(p, &rule->sticky, 1);
  if (accept_prefix(p, "budget="))
    return set_once(p, &rule->condition, VMM_FAULT_IF_OVER_BUDGET) &&
           parse_scaled(p, bytes, byte_factors, &rule->budget);
  if (accept_prefix(p, "p=")) return parse_probability(p, &rule->probability);
  if (accept_prefix(p, "delay=")) return parse_scaled(p, times, time_factors, &rule->delay_ns);
  return fail(p, "unknown option");
}

static bool parse_rule(parser *p, vmm__fault *fault, vmm_fault_rule *rule) {
  const char *start;
  const char *why;

  skip_spaces(p);
  start = p->at;
  if (!parse_call(p, rule) || !parse_code(p, rule)) return false;
  while (accept(p, ':'))
    if (!parse_option(p, rule)) return false;
  skip_spaces(p);
  if (*p->at != ',' && *p->at != '\0') return fail(p, "unexpected text");
  why = vmm__fault_rule_check(fault, rule);
  if (why == NULL) return true;
  p->at = start;
  return fail(p, why);
}

static vmm_status fail_text(vmm_error *error, const char *text, const parser *p) {
  char message[256];
  vmm__text line = vmm__text_start(message, sizeof message);

  vmm__text_add(&line, "fault rules: ");
  vmm__text_add(&line, p->why);
  vmm__text_add(&line, " at character ");
  vmm__text_add_number(&line, (vmm__u64)(p->at - text) + 1);
  vmm__text_add(&line, *p->at == '\0' ? " (the end)" : ": ");
  vmm__text_add(&line, p->at);
  return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT, message);
}

vmm_status vmm_fault_add_text(vmm_driver *driver, const char *text, vmm_error *error) {
  vmm__fault *fault = vmm__fault_of(driver);
  vmm_fault_rule rules[MOST_RULES];
  parser p = {text, NULL};
  size_t count = 0;

  if (fault == NULL || text == NULL)
    return vmm__fail(error, VMM_ERROR_INVALID_ARGUMENT,
                     "vmm_fault_add_text: text is NULL, or the driver is no fault wrapper");
  do {
    if (count == MOST_RULES) {
      (void)fail(&p, "more than 32 rules in one text");
      break;
    }
    memset(&rules[count], 0, sizeof rules[count]);
    rules[count].struct_size = sizeof rules[count];
    if (!parse_rule(&p, fault, &rules[count])) break;
    count++;
  } while (accept(&p, ','));
  if (p.why != NULL) return fail_text(error, text, &p);
  if (!vmm__fault_rules_add(fault, rules, count, NULL))
    return vmm__fail(error, VMM_ERROR_OUT_OF_HOST_MEMORY, "vmm_fault_add_text: no host memory for the rules");
  return VMM_OK;
}
