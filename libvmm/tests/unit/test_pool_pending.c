/* Trims that do not wait: what is pending, polled, revived, and finished by others. */
#include <pthread.h>

#include "support/fixture.h"

/* ---- without waiting ---- */

static vmm_status trim_async(fixture *f, u64 *done, u64 *pending) {
  return vmm_pool_trim_async(f->pool, 0, done, pending, &f->error);
}

TEST(a_trim_that_does_not_wait_leaves_pending_what_work_still_uses) {
  u64 address, start, done = 1, pending = 0;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS));
  CHECK_CALL(fixture_fill(&f, address, MIB, 1));
  CHECK_CALL(fixture_free(&f, address));
  start = vmm_driver_now(f.driver);
  CHECK_OK_ERROR(trim_async(&f, &done, &pending), &f.error);
  CHECK(vmm_driver_now(f.driver) - start < MS);
  CHECK_EQ(done, 0);
  CHECK_EQ(pending, MIB);
  CHECK_EQ(fixture_stats(f.pool).pending_bytes, MIB);
  CHECK_CALL(fixture_compare(&f));
  CHECK_OK(vmm_pool_poll(f.pool, &done, &pending, NULL)); /* too early */
  CHECK_EQ(done, 0);
  CHECK_EQ(pending, MIB);
  vmm_driver_wait(f.driver, 40 * MS);
  CHECK_OK(vmm_pool_poll(f.pool, &done, &pending, NULL));
  CHECK_EQ(done, MIB);
  CHECK_EQ(pending, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_OK(vmm_pool_poll(f.pool, &done, &pending, NULL));
  CHECK_EQ(done, 0);
  CHECK_CALL(fixture_close(&f)); /* no race was seen */
}

/* What changes the address range. */
static u64 edits(fixture *f) {
  static const int ops[] = {VMM_OP_mem_create, VMM_OP_mem_map, VMM_OP_mem_unmap, VMM_OP_mem_set_access,
                            VMM_OP_mem_release};
  u64 sum = 0;
  size_t i;

  for (i = 0; i < sizeof ops / sizeof *ops; i++) sum += fixture_calls(f, ops[i]);
  return sum;
}

TEST(pending_memory_that_is_wanted_again_comes_back_without_an_edit) {
  u64 addresses[4], again, before, done = 1, pending = 0;
  fixture f;
  int i;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 4));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS));
  for (i = 1; i < 4; i++) CHECK_CALL(fixture_free(&f, addresses[i]));
  CHECK_OK(trim_async(&f, &done, &pending));
  CHECK_EQ(pending, 3 * MIB);
  before = edits(&f);
  CHECK_CALL(again = fixture_alloc(&f, 2 * MIB)); /* spans two of the three */
  CHECK_EQ(edits(&f), before);
  CHECK_EQ(again, addresses[1]);
  CHECK_EQ(fixture_stats(f.pool).revived_bytes, 2 * MIB);
  CHECK_EQ(fixture_stats(f.pool).pending_bytes, MIB);
  CHECK_CALL(fixture_fill(&f, again, 2 * MIB, 9));
  CHECK_CALL(fixture_compare(&f));
  vmm_driver_wait(f.driver, 40 * MS);
  CHECK_OK(vmm_pool_poll(f.pool, &done, &pending, NULL));
  CHECK_EQ(done, MIB);
  CHECK_CALL(fixture_expect(&f, again, 2 * MIB, 9));
  CHECK_CALL(fixture_free(&f, again));
  CHECK_CALL(fixture_free(&f, addresses[0]));
  CHECK_CALL(fixture_close(&f));
}

typedef struct wanting {
  fixture *f;
  vmm_status status;
  u64 address;
  int asked;
} wanting;

static void want_it_back(void *data, int op, unsigned long long opportunity) {
  wanting *w = data;
  vmm_request request;

  (void)op;
  (void)opportunity;
  w->asked++;
  w->status = vmm_request_init(&request, sizeof request);
  request.size = MIB;
  request.flags = VMM_REQUEST_NO_GROWTH;
  if (w->status == VMM_OK) w->status = vmm_pool_alloc_with(w->f->pool, &request, &w->address, NULL);
}

/* Whoever asks in the middle of the unmap is not given what is about to go. */
TEST(pending_memory_does_not_come_back_while_it_is_unmapped) {
  wanting w = {NULL, VMM_OK, 1, 0};
  u64 address, pending = 0, done = 0;
  fixture f;

  CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
  CHECK_CALL(address = fixture_alloc(&f, MIB));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_OK(trim_async(&f, NULL, &pending));
  CHECK_EQ(pending, MIB);
  vmm_driver_wait(f.driver, 40 * MS);
  w.f = &f;
  CHECK_CALL(fixture_hook(&f, VMM_OP_mem_unmap, want_it_back, &w));
  CHECK_OK(vmm_pool_poll(f.pool, &done, &pending, NULL));
  CHECK_EQ(w.asked, 1);
  CHECK_STATUS(w.status, VMM_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(w.address, 0);
  CHECK_EQ(done, MIB);
  CHECK_EQ(pending, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, 0);
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_close(&f));
}

TEST(a_growth_and_a_destroy_finish_what_is_pending) {
  u64 addresses[2], done = 1, pending = 0;
  fixture f;
  int how;

  for (how = 0; how < 2; how++) {
    CHECK_CALL(fixture_open_pieces(&f, NULL, MIB));
    CHECK_CALL(fixture_alloc_pieces(&f, MIB, addresses, 2));
    OK(vmm_raw_kernel_spin(f.sim, NULL, 5 * MS));
    CHECK_CALL(fixture_free(&f, addresses[1]));
    CHECK_OK(trim_async(&f, &done, &pending));
    CHECK_EQ(pending, MIB);
    if (how == 0) {
      vmm_driver_wait(f.driver, 10 * MS);
      CHECK_CALL(addresses[1] = fixture_alloc(&f, 8 * MIB));
      CHECK_EQ(fixture_stats(f.pool).pending_bytes, 0);
      CHECK_CALL(fixture_free(&f, addresses[1]));
    }
    CHECK_CALL(fixture_free(&f, addresses[0]));
    CHECK_CALL(fixture_close(&f));
  }
}

RUN_TESTS()
