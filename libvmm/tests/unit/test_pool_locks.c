/* What the library holds while it does what: seen by the hook under every lock, wait, driver call and host allocation. */
#include <pthread.h>

#include "base/hook.h"
#include "base/lock.h"
#include "support/fixture.h"

/* Highest rank first found wrong, per thread what is held. */
static _Thread_local struct {
  const void *lock[16];
  u64 rank[16];
  int count;
} held;

static struct {
  atomic_ullong acquired, driver, memory, waits;
  _Atomic(const char *) broken;
  atomic_int rank; /* of the lock it was about */
  atomic_int deepest;
} seen;

static void broke(const char *what, u64 rank) {
  const char *none = NULL;

  if (atomic_compare_exchange_strong(&seen.broken, &none, what)) atomic_store(&seen.rank, (int)rank);
}

static bool holds(u64 rank) {
  int i;

  for (i = 0; i < held.count; i++)
    if (held.rank[i] == rank) return true;
  return false;
}

static void acquired(const void *lock, u64 rank) {
  int i;

  for (i = 0; i < held.count; i++)
    if (held.rank[i] >= rank) broke("a lock was taken under one of the same rank or a higher one", rank);
  if (held.count == 16) {
    broke("sixteen locks at once", rank);
    return;
  }
  held.lock[held.count] = lock;
  held.rank[held.count++] = rank;
  if (held.count > atomic_load(&seen.deepest)) atomic_store(&seen.deepest, held.count);
  (void)atomic_fetch_add(&seen.acquired, 1);
}

static void released(const void *lock, u64 rank) {
  int i = held.count;

  while (i-- > 0)
    if (held.lock[i] == lock) {
      for (held.count--; i < held.count; i++) {
        held.lock[i] = held.lock[i + 1];
        held.rank[i] = held.rank[i + 1];
      }
      return;
    }
  broke("a lock was released that the thread did not hold", rank);
}

static bool look(void *data, vmm__point point, const void *object, vmm__u64 value, vmm__u64 *result) {
  (void)data;
  (void)result;
  switch (point) {
    case VMM__POINT_ACQUIRED:
      acquired(object, value);
      break;
    case VMM__POINT_RELEASED:
      released(object, value);
      break;
    case VMM__POINT_DRIVER:
      (void)atomic_fetch_add(&seen.driver, 1);
      if (holds(VMM__RANK_POOL)) broke("a driver call under a pool lock", VMM__RANK_POOL);
      if (holds(VMM__RANK_DEVICE)) broke("a driver call under a device lock", VMM__RANK_DEVICE);
      if (holds(VMM__RANK_EVENTS)) broke("a driver call under the events lock", VMM__RANK_EVENTS);
      break;
    case VMM__POINT_HOST_MEMORY:
      (void)atomic_fetch_add(&seen.memory, 1);
      if (holds(VMM__RANK_POOL)) broke("a host allocation under a pool lock", VMM__RANK_POOL);
      if (holds(VMM__RANK_DEVICE)) broke("a host allocation under a device lock", VMM__RANK_DEVICE);
      break;
    case VMM__POINT_WAIT:
      (void)atomic_fetch_add(&seen.waits, 1);
      if (holds(VMM__RANK_POOL) || holds(VMM__RANK_DEVICE)) broke("a wait under a pool or device lock", VMM__RANK_POOL);
      break;
    default:
      break;
  }
  return false;
}

static const vmm__hook hook = {look, NULL};

/* The caller's host table and callbacks, called with nothing but what is allowed. */
static atomic_ullong releases;

static void *table_allocate(void *data, size_t size) {
  (void)data;
  if (holds(VMM__RANK_POOL)) broke("the caller's allocator under a pool lock", VMM__RANK_POOL);
  return malloc(size);
}

static void table_release(void *data, void *pointer, size_t size) {
  (void)data;
  (void)size;
  (void)atomic_fetch_add(&releases, 1);
  if (holds(VMM__RANK_POOL)) broke("the caller's allocator under a pool lock", VMM__RANK_POOL);
  free(pointer);
}

static vmm_pool *squeezed;
static atomic_ullong reserve_block;

static long long pressure(void *data, vmm_device *device, unsigned long long size) {
  u64 done = 0, block;

  (void)data;
  (void)device;
  (void)size;
  if (held.count != 0) broke("a pressure callback with a lock held", held.rank[held.count - 1]);
  block = atomic_exchange(&reserve_block, 0);
  if (block != 0) (void)vmm_pool_free(squeezed, block, NULL);
  (void)vmm_pool_trim(squeezed, 0, 0, &done, NULL);
  return (long long)done;
}

static void mixed_workload(vmm_pool *pool, vmm_device *device, u64 seed, int steps) {
  u64 blocks[32] = {0}, random = seed;
  int i;

  for (i = 0; i < steps; i++) {
    u64 r = fixture_random(&random), k = (r >> 8) % 32;

    if (blocks[k] != 0) {
      (void)(r % 2 ? vmm_pool_free(pool, blocks[k], NULL) : vmm_pool_free_idle(pool, blocks[k], NULL));
      blocks[k] = 0;
    } else {
      (void)vmm_pool_alloc(pool, (r >> 16) % (3 * MIB), &blocks[k], NULL);
    }
    switch (r % 23) {
      case 0: {
        vmm_pool_stats stats;
        stats.struct_size = sizeof stats;
        (void)vmm_pool_get_stats(pool, &stats, NULL);
        break;
      }
      case 1:
        (void)vmm_pool_trim(pool, 0, 0, NULL, NULL);
        break;
      case 2:
        (void)vmm_pool_check(pool, NULL);
        break;
      case 3:
        (void)vmm_device_trim(device, 0, NULL, NULL);
        break;
      case 4: {
        vmm_block_info info;
        vmm_pool *owner;
        (void)vmm_device_find(device, blocks[(k + 1) % 32], &owner, &info, NULL);
        break;
      }
      case 5:
        (void)vmm_pool_grow(pool, MIB, NULL, NULL);
        break;
      case 6: {
        vmm_pool_options options = fixture_pool_options();
        vmm_pool *other = NULL;
        options.initial = MIB;
        if (vmm_pool_create(&other, device, &options, NULL) == VMM_OK) {
          /* A destroy that the faults refuse leaves the pool standing: again, until they let it through. */
          vmm_status status = vmm_pool_destroy(other, VMM_DESTROY_FORCED, NULL);
          while (status != VMM_OK && status != VMM_ERROR_PARTIAL)
            status = vmm_pool_destroy(other, VMM_DESTROY_FORCED, NULL);
        }
        break;
      }
      default:
        break;
    }
  }
  for (i = 0; i < 32; i++)
    if (blocks[i] != 0) (void)vmm_pool_free(pool, blocks[i], NULL);
}

typedef struct worker {
  fixture *f;
  u64 seed;
} worker;

static void *work(void *data) {
  worker *w = data;

  mixed_workload(w->f->pool, w->f->device, w->seed, 400);
  if (held.count != 0) broke("a lock is held when nothing runs", held.rank[0]);
  return NULL;
}

TEST(no_lock_an_alloc_needs_is_held_across_a_call_an_allocation_or_a_callback) {
  static const vmm_host_memory table = {sizeof table, table_allocate, table_release, NULL};
  fixture_options options;
  vmm_device *device = NULL;
  pthread_t threads[3];
  worker workers[3];
  fixture f;
  int i;

  fixture_defaults(&options);
  options.sim.memory = 24 * MIB; /* short: the ladder is climbed too */
  options.sim.device_count = 2;
  options.pool.reservation = 256 * MIB;
  options.no_device = true;
  memset(&seen, 0, sizeof seen);
  vmm__hook_install(&hook);
  CHECK_CALL(fixture_open(&f, &options));
  options.device.driver = f.driver;
  options.device.host_memory = &table;
  options.device.pressure = pressure;
  options.device.idle_limit = 2 * MIB;
  options.device.sync_policy = VMM_SYNC_DEVICE;
  CHECK_OK(vmm_device_open(&device, 0, &options.device, NULL));
  f.device = device;
  options.pool.verify = VMM_VERIFY_DATA;
  CHECK_CALL(f.pool = fixture_add_pool(&f, &options.pool));
  squeezed = f.pool;
  CHECK_CALL(reserve_block = fixture_alloc(&f, 5 * MIB));
  CHECK_OK(vmm_pool_add_peer(f.pool, 1, NULL));
  CHECK_OK(vmm_device_register_stream(f.device, NULL, NULL));
  CHECK_CALL(fixture_rule(&f,
                          "cuMemSetAccess:NOT_READYx*:p=0.2,cuMemUnmap:UNKNOWNx*:p=0.3,cuMemMap:UNKNOWNx*:p=0.1,"
                          "cuMemCreate:OUT_OF_MEMORYx*:p=0.1,cuMemRelease:UNKNOWNx*:p=0.1"));
  for (i = 0; i < 3; i++) {
    workers[i] = (worker){&f, 100 + (u64)i};
    CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (i = 0; i < 3; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
  CHECK_CALL(fixture_clear(&f));
  CHECK_OK(vmm_device_forget_stream(f.device, NULL, NULL));
  if (reserve_block != 0) CHECK_CALL(fixture_free(&f, reserve_block));
  CHECK_CALL(fixture_close(&f));
  vmm__hook_install(NULL);
  if (atomic_load(&seen.broken) != NULL) {
    printf("rank %d: %s\n", atomic_load(&seen.rank), atomic_load(&seen.broken));
    check_fail(__FILE__, __LINE__, "a rule of the locks");
  }
  /* The hook saw what it is there for. */
  CHECK(atomic_load(&seen.acquired) > 1000);
  CHECK(atomic_load(&seen.driver) > 1000);
  CHECK(atomic_load(&seen.memory) > 100);
  CHECK(atomic_load(&releases) > 100);
  CHECK(atomic_load(&seen.deepest) >= 3);
}

RUN_TESTS()
