/* A forked child is answered FORKED by every function, before any lock is taken or driver call made, whatever the parent
 * was doing; the parent goes on. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/lock.h"
#include "device/device.h"
#include "support/fixture.h"

/* In the child: the number of the first call that did not answer FORKED; 0 if all did. */
#define EXPECT_FORKED(call)                                                            \
  do {                                                                                 \
    number++;                                                                          \
    memset(&error, 0, sizeof error);                                                   \
    if ((call) != VMM_ERROR_FORKED || error.status != VMM_ERROR_FORKED) return number; \
    if (strstr(error.message, "forked") == NULL) return number;                        \
  } while (0)

static int call_everything(fixture *f, void *stream, u64 block) {
  vmm_pool_options pool_options = fixture_pool_options();
  vmm_device_options options;
  vmm_device_stats device_stats = {.struct_size = sizeof device_stats};
  vmm_pool_stats pool_stats = {.struct_size = sizeof pool_stats};
  vmm_device_info info = {.struct_size = sizeof info};
  vmm_mapping_info mapping;
  vmm_call_stats calls;
  vmm_block_info found;
  vmm_request request;
  vmm_device *device = NULL;
  vmm_driver *driver = NULL;
  vmm_pool *pool = NULL;
  vmm_event event;
  vmm_error error;
  u64 number64 = 0;
  size_t count = 0;
  int number = 0;

  if (vmm_device_options_init(&options, sizeof options) != VMM_OK) return 100; /* touches nothing shared */
  if (vmm_request_init(&request, sizeof request) != VMM_OK) return 101;
  if (vmm_version() == 0 || vmm_status_name(0) == NULL) return 102;
  options.driver = f->driver;
  EXPECT_FORKED(vmm_device_open(&device, 0, &options, &error));
  EXPECT_FORKED(vmm_device_close(f->device, &error));
  EXPECT_FORKED(vmm_device_register_stream(f->device, stream, &error));
  EXPECT_FORKED(vmm_device_forget_stream(f->device, stream, &error));
  EXPECT_FORKED(vmm_device_capture_begin(f->device, stream, &error));
  EXPECT_FORKED(vmm_device_capture_end(f->device, stream, 0, NULL, &error));
  EXPECT_FORKED(vmm_device_set_limit(f->device, 0, &error));
  EXPECT_FORKED(vmm_device_set_pressure(f->device, NULL, NULL, &error));
  EXPECT_FORKED(vmm_device_trim(f->device, 0, &number64, &error));
  EXPECT_FORKED(vmm_device_get_info(f->device, &info, &error));
  EXPECT_FORKED(vmm_device_get_stats(f->device, &device_stats, &error));
  EXPECT_FORKED(vmm_device_get_calls(f->device, &calls, 1, &count, &error));
  EXPECT_FORKED(vmm_device_get_events(f->device, 0, &event, 1, &count, &error));
  EXPECT_FORKED(vmm_device_find(f->device, block, &pool, &found, &error));
  EXPECT_FORKED(vmm_pool_create(&pool, f->device, &pool_options, &error));
  EXPECT_FORKED(vmm_pool_destroy(f->pool, VMM_DESTROY_FORCED, &error));
  EXPECT_FORKED(vmm_pool_alloc(f->pool, 1, &number64, &error));
  EXPECT_FORKED(vmm_pool_alloc_with(f->pool, &request, &number64, &error));
  EXPECT_FORKED(vmm_pool_free(f->pool, block, &error));
  EXPECT_FORKED(vmm_pool_free_idle(f->pool, block, &error));
  EXPECT_FORKED(vmm_pool_grow(f->pool, 1, &number64, &error));
  EXPECT_FORKED(vmm_pool_trim(f->pool, 0, 0, &number64, &error));
  EXPECT_FORKED(vmm_pool_add_peer(f->pool, 1, &error));
  EXPECT_FORKED(vmm_pool_set_limit(f->pool, 0, &error));
  EXPECT_FORKED(vmm_pool_find(f->pool, block, &found, &error));
  EXPECT_FORKED(vmm_pool_get_blocks(f->pool, &found, 1, &count, &error));
  EXPECT_FORKED(vmm_pool_get_mappings(f->pool, &mapping, 1, &count, &error));
  EXPECT_FORKED(vmm_pool_get_stats(f->pool, &pool_stats, &error));
  EXPECT_FORKED(vmm_pool_check(f->pool, &error));
  EXPECT_FORKED(vmm_cuda_create(&driver, &error));
  EXPECT_FORKED(vmm_sim_create(&driver, NULL, &error));
  if (vmm_pool_alloc(f->pool, 1, &number64, NULL) != VMM_ERROR_FORKED) return 103; /* an error is not needed */
  if (vmm_pool_try_alloc(f->pool, 1, NULL, &number64) != VMM_ERROR_FORKED) return 104;
  if (vmm_pool_try_free(f->pool, block, NULL) != VMM_ERROR_FORKED) return 105;
  return device == NULL && pool == NULL && driver == NULL && number64 == 0 ? 0 : 106;
}

static void fork_and_call(fixture *f, void *stream, u64 block) {
  int status = -1;
  pid_t child;

  fflush(stdout);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    (void)alarm(20); /* a lock that was taken after all would hang */
    _exit(call_everything(f, stream, block));
  }
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(a_forked_child_is_answered_forked_by_every_function) {
  void *stream = NULL;
  u64 block;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  OK(vmm_raw_stream_create(f.sim, &stream, 1));
  CHECK_CALL(block = fixture_alloc(&f, MIB));
  CHECK_CALL(fixture_fill(&f, block, MIB, 1));
  CHECK_CALL(fork_and_call(&f, stream, block));
  CHECK_CALL(fixture_expect(&f, block, MIB, 1)); /* the parent goes on */
  CHECK_CALL(fixture_compare(&f));
  CHECK_CALL(fixture_free(&f, block));
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

/* The child inherits locks that nobody will ever release. */
TEST(a_fork_in_the_middle_of_a_growth_does_not_hang_the_child) {
  void *stream = NULL;
  u64 block;
  fixture f;

  CHECK_CALL(fixture_open(&f, NULL));
  OK(vmm_raw_stream_create(f.sim, &stream, 1));
  CHECK_CALL(block = fixture_alloc(&f, MIB));
  vmm__lock_acquire(&f.device->structure);
  vmm__lock_acquire(&f.device->lock);
  vmm__lock_acquire(&f.device->events.lock);
  fork_and_call(&f, stream, block);
  vmm__lock_release(&f.device->events.lock);
  vmm__lock_release(&f.device->lock);
  vmm__lock_release(&f.device->structure);
  CHECK_CALL(fixture_free(&f, block));
  OK(vmm_raw_stream_destroy(f.sim, stream));
  CHECK_CALL(fixture_close(&f));
}

RUN_TESTS()
