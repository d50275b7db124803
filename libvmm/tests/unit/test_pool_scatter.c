/* Where free memory lies scattered a growth comes in finer pieces, so that more of it can be moved later, and a small pool
 * that is in shreds does not double at once. */
#include "support/fixture.h"

enum { PAGES = 512 };
static const u64 PAGE = 2 * MIB; /* 1 GiB of them: the next growth doubles that */

typedef struct world {
  fixture f;
  u64 pages[PAGES];
} world;

static void open_full(world *w, void *stream) {
  fixture_options options;
  int i;

  fixture_large(&options);
  CHECK_CALL(fixture_open(&w->f, &options));
  for (i = 0; i < PAGES; i++) CHECK_OK(vmm_pool_alloc_async(w->f.pool, PAGE, stream, &w->pages[i], NULL));
  CHECK_EQ(fixture_stats(w->f.pool).committed_bytes, GIB);
  CHECK_CALL(fixture_forget_calls(&w->f));
}

/* Nothing larger than a page fits then. */
static void free_every_second(world *w, int first) {
  int i;

  for (i = first; i < PAGES; i += 2) CHECK_CALL(fixture_free(&w->f, w->pages[i]));
}

/* Pieces of the growth that a request makes, which leads to so many bytes. */
static u64 pieces_for(world *w, u64 size, u64 committed) {
  u64 block, pieces;

  CHECK_CALL_RETURN(block = fixture_alloc(&w->f, size), 0);
  CHECK_EQ_RETURN(fixture_stats(w->f.pool).committed_bytes, committed, 0);
  pieces = fixture_calls(&w->f, VMM_OP_mem_create);
  CHECK_CALL_RETURN(fixture_compare(&w->f), 0);
  CHECK_CALL_RETURN(fixture_free(&w->f, block), 0);
  return pieces;
}

TEST(a_full_pool_doubles_in_few_pieces) {
  world w;

  CHECK_CALL(open_full(&w, NULL));
  CHECK_EQ(pieces_for(&w, PAGE, 2 * GIB), 16);
  CHECK_CALL(free_every_second(&w, 0));
  CHECK_CALL(free_every_second(&w, 1));
  CHECK_CALL(fixture_close(&w.f));
}

TEST(a_pool_in_shreds_grows_half_as_much_in_many) {
  world w;

  CHECK_CALL(open_full(&w, NULL));
  CHECK_CALL(free_every_second(&w, 0));
  CHECK_EQ(pieces_for(&w, 100 * MIB, GIB + GIB / 2), 128);
  CHECK_CALL(free_every_second(&w, 1));
  CHECK_CALL(fixture_close(&w.f));
}

/* What is free but for queued work will be of use as it is. */
TEST(memory_that_others_have_freed_and_still_use_is_not_scattered) {
  void *stream;
  world w;
  int i;

  CHECK_CALL(open_full(&w, NULL));
  CHECK_CALL(stream = fixture_new_stream(&w.f, NON_BLOCKING));
  CHECK_CALL(free_every_second(&w, 0));
  for (i = 0; i < PAGES; i += 2) CHECK_OK(vmm_pool_alloc_async(w.f.pool, PAGE, stream, &w.pages[i], NULL));
  OK(vmm_raw_kernel_spin(w.f.sim, stream, 50 * MS));
  for (i = 0; i < PAGES; i += 2) CHECK_OK(vmm_pool_free_async(w.f.pool, w.pages[i], stream, NULL));
  CHECK_CALL(fixture_forget_calls(&w.f));
  CHECK_EQ(pieces_for(&w, 100 * MIB, 2 * GIB), 16);
  CHECK_CALL(free_every_second(&w, 1));
  CHECK_OK(vmm_sim_drain(w.f.sim));
  CHECK_CALL(fixture_end_stream(&w.f, stream));
  CHECK_CALL(fixture_close(&w.f));
}

/* Takes pages until the pool grows; pieces of that growth. */
static u64 pieces_when_full(world *w, u64 *more, int *count) {
  u64 committed = fixture_stats(w->f.pool).committed_bytes;

  CHECK_CALL_RETURN(fixture_forget_calls(&w->f), 0);
  while (fixture_stats(w->f.pool).committed_bytes == committed)
    CHECK_CALL_RETURN(more[(*count)++] = fixture_alloc(&w->f, PAGE), 0);
  return fixture_calls(&w->f, VMM_OP_mem_create);
}

TEST(a_pool_that_was_scattered_is_full_several_times_before_its_growths_are_in_few_pieces_again) {
  static u64 more[8 * PAGES];
  int count = 1, i;
  world w;

  CHECK_CALL(open_full(&w, NULL));
  CHECK_CALL(free_every_second(&w, 0));
  CHECK_CALL(more[0] = fixture_alloc(&w.f, 100 * MIB));
  CHECK_EQ(fixture_calls(&w.f, VMM_OP_mem_create), 128);
  CHECK_EQ(pieces_when_full(&w, more, &count), 128); /* to 2 GiB */
  CHECK_EQ(pieces_when_full(&w, more, &count), 256); /* to 4 GiB */
  CHECK(pieces_when_full(&w, more, &count) > 80);    /* an eleventh of that, by 4 MiB */
  CHECK(pieces_when_full(&w, more, &count) < 10);
  for (i = 0; i < count; i++) CHECK_CALL(fixture_free(&w.f, more[i]));
  CHECK_CALL(free_every_second(&w, 1));
  CHECK_CALL(fixture_close(&w.f));
}

RUN_TESTS()
