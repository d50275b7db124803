/* Records that are set aside for what must not fail are nobody else's: not an alloc's that fits, nor another's to promise. */
#include "support/fixture.h"

enum { OTHERS = 2 };

typedef struct hoarder {
  fixture *f;
  void *streams[OTHERS];
  u64 known[OTHERS]; /* a block on each, so that the pool knows the stream */
  int taken;
  vmm_status last;
} hoarder;

static void start_hoarding(hoarder *h, fixture *f) {
  int i;

  memset(h, 0, sizeof *h);
  h->f = f;
  for (i = 0; i < OTHERS; i++) {
    OK(vmm_raw_stream_create(f->sim, &h->streams[i], 1));
    CHECK_OK_ERROR(vmm_pool_alloc_async(f->pool, 256, h->streams[i], &h->known[i], &f->error), &f->error);
  }
}

/* Free ranges that touch, but belong to two streams by turns, are no one range: each takes a record. The calls never make
 * any. */
static void hoard(hoarder *h) {
  u64 address;

  while ((h->last = vmm_pool_try_alloc(h->f->pool, 256, NULL, &address)) == VMM_OK)
    CHECK_OK(vmm_pool_try_free(h->f->pool, address, h->streams[h->taken++ % OTHERS]));
  CHECK_STATUS(h->last, VMM_ERROR_BUSY);
}

static void end_hoarding(hoarder *h) {
  int i;

  for (i = 0; i < OTHERS; i++) {
    CHECK_OK(vmm_pool_free_async(h->f->pool, h->known[i], h->streams[i], NULL));
    CHECK_OK(vmm_device_forget_stream(h->f->device, h->streams[i], NULL));
    OK(vmm_raw_stream_destroy(h->f->sim, h->streams[i]));
  }
}

/* A pool with 4 MiB in one mapping, whose streams are known, and behind it mappings of 64 KiB with a block each. */
static void open_with_blocks(fixture *f, hoarder *h, u64 *hog, u64 *blocks, int count) {
  fixture_options options;
  int i;

  fixture_defaults(&options);
  options.pool.growth_policy = VMM_GROWTH_EXACT;
  options.pool.mapping_min = 64 * KIB;
  options.pool.mapping_max = 4 * MIB;
  CHECK_CALL(fixture_open(f, &options));
  CHECK_OK(vmm_pool_grow(f->pool, 4 * MIB, NULL, NULL));
  CHECK_CALL(start_hoarding(h, f));
  CHECK_CALL(*hog = fixture_alloc(f, 4 * MIB - OTHERS * 256));
  for (i = 0; i < count; i++) CHECK_CALL(blocks[i] = fixture_alloc(f, 64 * KIB));
  CHECK_EQ(fixture_stats(f->pool).mapping_count, count + 1);
}

/* Records that run out are made, those promised left alone: the driver has no part in that. */
TEST(what_is_promised_to_pending_mappings_is_not_counted_on_by_an_alloc) {
  enum { COUNT = 32 };
  u64 blocks[COUNT], hog = 0, address = 0, pending = 0;
  vmm_request request;
  hoarder h;
  fixture f;
  int i;

  CHECK_CALL(open_with_blocks(&f, &h, &hog, blocks, COUNT));
  OK(vmm_raw_kernel_spin(f.sim, NULL, 30 * MS));
  for (i = 1; i < COUNT; i++) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_OK(vmm_pool_trim_async(f.pool, 0, NULL, &pending, &f.error));
  CHECK_EQ(pending, (COUNT - 1) * 64 * KIB);
  CHECK_CALL(fixture_free(&f, hog));
  CHECK_CALL(hoard(&h));
  CHECK(h.taken < (int)(3 * MIB / 256)); /* it was not memory that ran out */
  CHECK_OK(vmm_request_init(&request, sizeof request));
  request.size = 256;
  request.flags = VMM_REQUEST_NO_GROWTH;
  CHECK_CALL(fixture_forget_calls(&f));
  CHECK_OK_ERROR(vmm_pool_alloc_with(f.pool, &request, &address, &f.error), &f.error);
  CHECK_EQ(fixture_calls(&f, VMM_OP_ANY), 0);
  CHECK_EQ(fixture_stats(f.pool).pending_bytes, pending);
  CHECK_CALL(fixture_check(&f));
  CHECK_CALL(fixture_free(&f, address));
  CHECK_CALL(fixture_free(&f, blocks[0]));
  CHECK_CALL(end_hoarding(&h));
  CHECK_CALL(fixture_close(&f));
}

static void hoard_in_call(void *data, int op, unsigned long long opportunity) {
  (void)op;
  (void)opportunity;
  hoard(data);
}

/* Each mapping that was to be moved needs a record when it comes back. */
TEST(what_is_promised_to_a_growth_is_there_when_it_puts_back_what_it_took) {
  enum { COUNT = 81 };
  u64 blocks[COUNT], hog = 0, address = 0, committed;
  vmm_fault_rule rule;
  hoarder h;
  fixture f;
  int i;

  CHECK_CALL(open_with_blocks(&f, &h, &hog, blocks, COUNT));
  CHECK_OK(vmm_pool_free_idle(f.pool, hog, NULL));
  for (i = 1; i < COUNT; i += 2) CHECK_OK(vmm_pool_free_idle(f.pool, blocks[i], NULL));
  committed = fixture_stats(f.pool).committed_bytes;
  CHECK_OK(vmm_fault_rule_init(&rule, sizeof rule));
  rule.op = VMM_OP_mem_unmap;
  rule.times = VMM_FAULT_FOR_EVER;
  rule.code = VMM_CODE_UNKNOWN;
  rule.hook = hoard_in_call;
  rule.hook_data = &h;
  CHECK_OK(vmm_fault_add(f.fault, &rule, NULL, NULL));
  CHECK_CALL(address = fixture_alloc(&f, 5 * MIB));
  CHECK_STATUS(h.last, VMM_ERROR_BUSY);
  CHECK(h.taken > 0);
  CHECK(h.taken < (int)(3 * MIB / 256)); /* it was not memory that ran out */
  CHECK_EQ(fixture_stats(f.pool).moved_bytes, 0);
  CHECK_EQ(fixture_stats(f.pool).committed_bytes, committed + 5 * MIB);
  CHECK_CALL(fixture_clear(&f));
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, address));
  for (i = 0; i < COUNT; i += 2) CHECK_CALL(fixture_free(&f, blocks[i]));
  CHECK_CALL(end_hoarding(&h));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
