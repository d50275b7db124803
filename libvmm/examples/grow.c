/* The smallest use: a pool that grows, on the GPU if there is one, else on a simulated device. */
#include <stdio.h>

#include "vmm/driver.h"

static int fail(const vmm_error *error) {
  fprintf(stderr, "%s\n", error->message);
  return 1;
}

int main(void) {
  vmm_error error;
  vmm_driver *sim = NULL;
  vmm_device *device;
  vmm_pool *pool;
  unsigned long long address;
  vmm_device_options options;

  if (vmm_device_options_init(&options, sizeof options) != VMM_OK) return 1;
  if (vmm_device_open(&device, 0, &options, &error) == VMM_ERROR_NO_DRIVER) {
    printf("no GPU here: taking the simulated one\n");
    if (vmm_sim_create(&sim, NULL, &error) != VMM_OK) return fail(&error);
    options.driver = sim;
    if (vmm_device_open(&device, 0, &options, &error) != VMM_OK) return fail(&error);
  }
  if (vmm_pool_create(&pool, device, NULL, &error) != VMM_OK) return fail(&error);
  if (vmm_pool_alloc(pool, 64u << 20, &address, &error) != VMM_OK) return fail(&error);
  printf("64 MiB at 0x%llx\n", address);
  if (vmm_pool_free(pool, address, &error) != VMM_OK) return fail(&error);
  if (vmm_pool_destroy(pool, VMM_DESTROY_IDLE, &error) != VMM_OK) return fail(&error);
  if (vmm_device_close(device, &error) != VMM_OK) return fail(&error);
  vmm_driver_release(sim);
  return 0;
}
