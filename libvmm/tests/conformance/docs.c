/* Compares docs/driver-facts.md with the cases: a fact without a case, or a case without a fact, is a difference. A
 * fact is a table row that starts with its id: "| MAP-3 | ...". Two lists of lines "- `MAP-8`: ..." must name exactly
 * the cases where the simulator is stricter and those not run under a sanitizer. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"

enum { ID_SIZE = 16, ID_LIMIT = 512 };

typedef struct id_set {
  char ids[ID_LIMIT][ID_SIZE];
  int count;
} id_set;

/* Reads "MAP-3" at `text`; its length, or 0 if there is none. */
static size_t id_length(const char *text) {
  size_t letters = 0, digits = 0;
  while (isupper((unsigned char)text[letters])) letters++;
  if (letters < 2 || text[letters] != '-') return 0;
  while (isdigit((unsigned char)text[letters + 1 + digits])) digits++;
  size_t length = letters + 1 + digits;
  return digits && length < ID_SIZE ? length : 0;
}

static bool holds(const id_set *set, const char *id) {
  for (int i = 0; i < set->count; i++) {
    if (strcmp(set->ids[i], id) == 0) return true;
  }
  return false;
}

/* Returns 1 if the id was there before. */
static int put(id_set *set, const char *text, size_t length) {
  char id[ID_SIZE] = {0};
  memcpy(id, text, length);
  if (holds(set, id)) {
    printf("%s is in the document twice\n", id);
    return 1;
  }
  if (set->count < ID_LIMIT) memcpy(set->ids[set->count++], id, ID_SIZE);
  return 0;
}

static int read_line(const char *line, id_set *rows, id_set *list) {
  size_t length;
  if (strncmp(line, "| ", 2) == 0 && (length = id_length(line + 2)) > 0 && line[2 + length] == ' ') {
    return put(rows, line + 2, length);
  }
  if (list && strncmp(line, "- `", 3) == 0 && (length = id_length(line + 3)) > 0 && line[3 + length] == '`') {
    return put(list, line + 3, length);
  }
  return 0;
}

static int compare(const conf_fact *facts, const id_set *set, const char *what, bool (*belongs)(const conf_fact *)) {
  int differences = 0;
  for (int i = 0; i < set->count; i++) {
    const conf_fact *fact = facts;
    while (fact && !(belongs(fact) && strcmp(fact->id, set->ids[i]) == 0)) fact = fact->next;
    if (fact) continue;
    printf("%s is in the document's %s, but no case says so\n", set->ids[i], what);
    differences++;
  }
  for (const conf_fact *fact = facts; fact; fact = fact->next) {
    if (!belongs(fact) || holds(set, fact->id)) continue;
    printf("%s has a case, but is not in the document's %s\n", fact->id, what);
    differences++;
  }
  return differences;
}

static bool is_any(const conf_fact *fact) { return fact->id != NULL; }
static bool is_stricter(const conf_fact *fact) { return (fact->flags & CONF_STRICTER) != 0; }
static bool is_not_sanitized(const conf_fact *fact) { return fact->not_sanitized != NULL; }

int conf_check_docs(const conf_fact *facts, const char *path) {
  static id_set rows, stricter, unsanitized;
  static char line[16384];
  id_set *list = NULL;
  int differences = 0;
  FILE *file = fopen(path, "r");
  if (!file) {
    printf("cannot read %s\n", path);
    return 1;
  }
  while (fgets(line, sizeof line, file)) {
    if (strncmp(line, "## ", 3) == 0) {
      list = strstr(line, "stricter") ? &stricter : strstr(line, "sanitizer") ? &unsanitized : NULL;
    }
    differences += read_line(line, &rows, list);
  }
  fclose(file);
  differences += compare(facts, &rows, "tables", is_any);
  differences += compare(facts, &stricter, "list of stricter answers", is_stricter);
  differences += compare(facts, &unsanitized, "list of cases not run under a sanitizer", is_not_sanitized);
  for (const conf_fact *fact = facts; fact && fact->next; fact = fact->next) {
    if (strcmp(fact->id, fact->next->id) != 0) continue;
    printf("%s has two cases\n", fact->id);
    differences++;
  }
  return differences;
}
