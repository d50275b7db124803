/* Facts about contexts (CTX), forked children (FRK), how many mappings there can be (LIM), and peers (PEER). */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

FACT("CTX-1", 0, no_context_memory) {
  conf_range r;
  u64 flags;
  EXPECT(vmm_raw_ctx_set_current(c->driver, NULL), VMM_CODE_SUCCESS);
  if (conf_make(c, &r, c->granule, 3)) {
    EXPECT(conf_get_access(c, r.address, &flags), VMM_CODE_SUCCESS);
    EXPECT_EQ(flags, 3);
    EXPECT(vmm_raw_mem_unmap(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
  }
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, r.handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, r.address, r.size), VMM_CODE_SUCCESS);
}

FACT("CTX-2", 0, no_context_synchronize) {
  EXPECT(vmm_raw_ctx_set_current(c->driver, NULL), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_INVALID_CONTEXT);
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
}

FACT("CTX-3", 0, no_context_info) {
  size_t bytes = 0, total = 0;
  EXPECT(vmm_raw_ctx_set_current(c->driver, NULL), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_get_info(c->driver, &bytes, &total), VMM_CODE_INVALID_CONTEXT);
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
}

FACT("CTX-4", 0, foreign_event) {
  void *second = NULL, *event = NULL, *stream = NULL;
  REQUIRE(vmm_raw_event_create(c->driver, &event, CONF_NO_TIMING), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_ctx_create(c->driver, &second, 0, c->device), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  conf_expect_misuse(c, VMM_SIM_MISUSE_FOREIGN);
  EXPECT(vmm_raw_event_record(c->driver, event, stream), VMM_CODE_INVALID_HANDLE);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_destroy(c->driver, second), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_event_destroy(c->driver, event), VMM_CODE_SUCCESS);
}

FACT("CTX-5", 0, contexts_wait_apart) {
  void *second = NULL, *stream = NULL;
  REQUIRE(vmm_raw_stream_create(c->driver, &stream, CONF_NON_BLOCKING), VMM_CODE_SUCCESS);
  REQUIRE(vmm_raw_ctx_create(c->driver, &second, 0, c->device), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
  conf_spin(c, stream, 500);
  EXPECT(vmm_raw_ctx_set_current(c->driver, second), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_set_current(c->driver, c->context), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_query(c->driver, stream), VMM_CODE_NOT_READY);
  EXPECT(vmm_raw_stream_synchronize(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_query(c->driver, stream), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_destroy(c->driver, second), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_stream_destroy(c->driver, stream), VMM_CODE_SUCCESS);
}

/* In the forked child only the exit status speaks: one bit per call that answered something else. */
static int calls_in_forked_child(conf *c) {
  u64 address = 0, handle = 0;
  vmm_raw_prop prop = conf_prop(c);
  int wrong = 0;
  wrong |= vmm_raw_mem_create(c->driver, &handle, c->granule, &prop, 0) != VMM_CODE_NOT_INITIALIZED;
  wrong |= (vmm_raw_mem_reserve(c->driver, &address, c->granule, 0, 0, 0) != VMM_CODE_NOT_INITIALIZED) << 1;
  wrong |= (vmm_raw_ctx_synchronize(c->driver) != VMM_CODE_NOT_INITIALIZED) << 2;
  return wrong;
}

FACT("FRK-1", CONF_CHILD, forked_child) {
  int status = -1;
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(calls_in_forked_child(c));
  }
  EXPECT_TRUE(pid > 0);
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
}

/* One handle of one granule, mapped over and over until the driver refuses. */
FACT_HEAVY("LIM-1", CONF_SLOW, mapping_limit, "half a million mappings do not fit its shadow memory and time") {
  const size_t room = 700000, measured = 523970;
  u64 address = conf_reserve(c, room * c->granule), handle = conf_create(c, c->granule);
  size_t count = 0;
  int code = VMM_CODE_SUCCESS;
  if (!address || !handle) return;
  while (count < room) {
    u64 at = address + count * c->granule;
    code = vmm_raw_mem_map(c->driver, at, c->granule, 0, handle, 0);
    if (code == VMM_CODE_SUCCESS) code = conf_access(c, at, c->granule, 3);
    if (code != VMM_CODE_SUCCESS) break;
    count++;
  }
  EXPECT(code, VMM_CODE_OUT_OF_MEMORY);
  /* What the driver itself has mapped varies a little with the process. */
  EXPECT_TRUE(c->cuda ? count > measured - 2000 && count < measured + 2000 : count == measured);
  EXPECT(vmm_raw_mem_unmap(c->driver, address, count * c->granule), VMM_CODE_SUCCESS);
  if (c->cuda) vmm_raw_mem_unmap(c->driver, address, (count + 1) * c->granule); /* the refused call may have mapped */
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, room * c->granule), VMM_CODE_SUCCESS);
}

static void expect_peer_flags(conf *c, u64 address, u64 own, u64 peer) {
  for (int device = 0; device < 2; device++) {
    vmm_raw_location location = {1, device};
    u64 flags = CONF_POISON;
    EXPECT(vmm_raw_mem_get_access(c->driver, &flags, &location, address), VMM_CODE_SUCCESS);
    EXPECT_EQ(flags, device ? peer : own);
  }
}

FACT("PEER-1", CONF_TWO_DEVICES, peer_added_later) {
  conf_range r;
  vmm_raw_access peer = {1, 1, 3};
  if (!conf_make(c, &r, c->granule, 3)) return;
  expect_peer_flags(c, r.address, 3, 0);
  EXPECT(vmm_raw_mem_set_access(c->driver, r.address, r.size, &peer, 1), VMM_CODE_SUCCESS);
  expect_peer_flags(c, r.address, 3, 3);
  conf_unmake(c, &r);
}

FACT("PEER-2", CONF_TWO_DEVICES, peer_revoked) {
  conf_range r;
  vmm_raw_access both[2] = {{1, 0, 3}, {1, 1, 3}}, none = {1, 1, 0};
  if (!conf_make(c, &r, c->granule, 0)) return;
  EXPECT(vmm_raw_mem_set_access(c->driver, r.address, r.size, both, 2), VMM_CODE_SUCCESS);
  expect_peer_flags(c, r.address, 3, 3);
  EXPECT(vmm_raw_mem_set_access(c->driver, r.address, r.size, &none, 1), VMM_CODE_SUCCESS);
  expect_peer_flags(c, r.address, 3, 0);
  conf_unmake(c, &r);
}
