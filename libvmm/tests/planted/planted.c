/* One fault of each kind, planted for the sanitizers: an instrument that does not report these proves nothing.
 *   planted race | overflow | signed        ends with 0 if nobody stopped it */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shared;

static void *add(void *data) {
  (void)data;
  for (int i = 0; i < 1000; i++) shared++;
  return NULL;
}

static int race(void) {
  pthread_t threads[16];
  for (int i = 0; i < 16; i++) {
    if (pthread_create(&threads[i], NULL, add, NULL) != 0) return 0;
  }
  for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
  return shared < 0;
}

static int overflow(size_t size) {
  char *block = malloc(size);
  if (block == NULL) return 0;
  volatile char *place = block;
  place[size] = 1;
  free(block);
  return 0;
}

static int signed_overflow(int start) {
  volatile int sum = INT_MAX;
  sum = sum + start;
  return sum == 0;
}

int main(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "";
  int result = 2;
  if (strcmp(kind, "race") == 0) result = race();
  if (strcmp(kind, "overflow") == 0) result = overflow((size_t)argc + 6);
  if (strcmp(kind, "signed") == 0) result = signed_overflow(argc);
  printf("%s: nobody stopped it\n", kind);
  return result;
}
