/* Facts about sharing memory with other processes (EXP, IPC), and about asking what an address belongs to (RNG). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

enum { POSIX_FD = 1 };

static bool make_exportable(conf *c, conf_range *r, size_t size) {
  vmm_raw_prop prop = conf_prop(c);
  prop.handle_types = POSIX_FD;
  r->size = size;
  r->address = conf_reserve(c, size);
  if (!r->address) return false;
  if (!EXPECT(vmm_raw_mem_create(c->driver, &r->handle, size, &prop, 0), VMM_CODE_SUCCESS)) return false;
  if (!EXPECT(vmm_raw_mem_map(c->driver, r->address, size, 0, r->handle, 0), VMM_CODE_SUCCESS)) return false;
  return EXPECT(conf_access(c, r->address, size, 3), VMM_CODE_SUCCESS);
}

FACT("EXP-1", 0, export_not_asked_for) {
  int fd = -1;
  u64 handle = conf_create(c, c->granule);
  if (!handle) return;
  EXPECT(vmm_raw_mem_export(c->driver, &fd, handle, POSIX_FD, 0), VMM_CODE_INVALID_VALUE);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
}

FACT("EXP-2", 0, export_fd) {
  int fd = -1;
  conf_range r;
  if (!make_exportable(c, &r, c->granule)) return;
  if (EXPECT(vmm_raw_mem_export(c->driver, &fd, r.handle, POSIX_FD, 0), VMM_CODE_SUCCESS)) {
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(close(fd), 0);
  }
  conf_unmake(c, &r);
}

static bool send_fd(int socket, int fd) {
  char byte = 0, room[CMSG_SPACE(sizeof fd)];
  struct iovec part = {&byte, 1};
  struct msghdr message;
  memset(&message, 0, sizeof message);
  memset(room, 0, sizeof room);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, 0) == 1;
}

static int receive_fd(int socket) {
  int fd = -1;
  char byte = 0, room[CMSG_SPACE(sizeof fd)];
  struct iovec part = {&byte, 1};
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  if (recvmsg(socket, &message, 0) != 1) return -1;
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header) memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

/* The other side: takes the fd, maps the memory, checks what the first side wrote, and writes something else. */
static void import_and_answer(conf *c, int socket) {
  size_t size = 32 * c->granule;
  u64 handle = 0, address = conf_reserve(c, size);
  int fd = receive_fd(socket);
  if (!address || !EXPECT_TRUE(fd >= 0)) return;
  int code = vmm_raw_mem_import(c->driver, &handle, (void *)(intptr_t)fd, POSIX_FD);
  EXPECT_EQ(close(fd), 0);
  REQUIRE(code, VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_map(c->driver, address, size, 0, handle, 0), VMM_CODE_SUCCESS);
  EXPECT(conf_access(c, address, size, 3), VMM_CODE_SUCCESS);
  EXPECT_EQ(conf_mismatches(c, address, size, 1234), 0);
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, address, size, 4321), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_unmap(c->driver, address, size), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, size), VMM_CODE_SUCCESS);
}

/* A second process of ours is told by this variable that it is the importing side, and on which socket. */
static const char peer_variable[] = "VMM_CONFORMANCE_SOCKET";

static pid_t start_importer(int socket, char *const *arguments) {
  char text[16];
  pid_t pid = fork();
  if (pid != 0) return pid;
  snprintf(text, sizeof text, "%d", socket);
  setenv(peer_variable, text, 1);
  execv("/proc/self/exe", arguments);
  _exit(126);
}

/* The command line of this process, so that the second one is started alike. */
static int own_arguments(char *text, size_t capacity, char **arguments, int limit) {
  int count = 0, file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = file >= 0 ? read(file, text, capacity - 1) : -1;
  if (file >= 0) close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  for (ssize_t at = 0; at < length && count < limit; at += (ssize_t)strlen(text + at) + 1)
    arguments[count++] = text + at;
  arguments[count] = NULL;
  return count;
}

static void wait_for_importer(conf *c, pid_t pid) {
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

typedef struct import_call {
  int socket;
} import_call;

static void import_on_thread(conf *c, void *data) {
  const import_call *call = data;
  import_and_answer(c, call->socket);
}

/* Simulated memory lives in one process: there the other side is another thread, and the fd takes the same way. */
FACT("EXP-3", CONF_CHILD, export_to_another_process) {
  static char text[8192];
  char *arguments[33];
  const char *peer = getenv(peer_variable);
  conf_range r;
  int sockets[2], fd = -1;
  if (peer) {
    import_and_answer(c, atoi(peer));
    return;
  }
  if (!EXPECT_TRUE(own_arguments(text, sizeof text, arguments, 32) > 0)) return;
  if (!make_exportable(c, &r, 32 * c->granule)) return;
  if (!EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0)) return;
  EXPECT(vmm_raw_kernel_fill(c->driver, NULL, r.address, r.size, 1234), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_ctx_synchronize(c->driver), VMM_CODE_SUCCESS);
  if (EXPECT(vmm_raw_mem_export(c->driver, &fd, r.handle, POSIX_FD, 0), VMM_CODE_SUCCESS)) {
    import_call call = {sockets[1]};
    pid_t pid = c->cuda ? start_importer(sockets[1], arguments) : 0;
    EXPECT_TRUE(send_fd(sockets[0], fd));
    if (c->cuda) wait_for_importer(c, pid);
    if (!c->cuda) conf_on_thread(c, import_on_thread, &call);
    EXPECT_EQ(close(fd), 0);
  }
  EXPECT_EQ(conf_mismatches(c, r.address, r.size, 4321), 0);
  EXPECT_EQ(close(sockets[0]), 0);
  EXPECT_EQ(close(sockets[1]), 0);
  conf_unmake(c, &r);
}

FACT("EXP-4", 0, import_no_export) {
  u64 handle = 0;
  EXPECT(vmm_raw_mem_import(c->driver, &handle, NULL, POSIX_FD), VMM_CODE_INVALID_VALUE);
}

FACT("IPC-1", 0, legacy_ipc) {
  unsigned char ipc[64];
  conf_range r;
  if (!conf_make(c, &r, c->granule, 3)) return;
  EXPECT(vmm_raw_ipc_get_handle(c->driver, ipc, r.address), VMM_CODE_INVALID_VALUE);
  conf_unmake(c, &r);
}

FACT("RNG-1", 0, address_range) {
  u64 address = conf_reserve(c, 4 * c->granule), base = 0;
  size_t size = 0;
  if (!address) return;
  for (u64 i = 0; i < 4; i++) {
    u64 handle = conf_create(c, c->granule);
    EXPECT(vmm_raw_mem_map(c->driver, address + i * c->granule, c->granule, 0, handle, 0), VMM_CODE_SUCCESS);
    EXPECT(vmm_raw_mem_release(c->driver, handle), VMM_CODE_SUCCESS);
  }
  EXPECT(conf_access(c, address, 4 * c->granule, 3), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_range(c->driver, &base, &size, address + 2 * c->granule + 64), VMM_CODE_SUCCESS);
  EXPECT_EQ(base, address + 2 * c->granule);
  EXPECT_EQ(size, c->granule);
  EXPECT(vmm_raw_mem_unmap(c->driver, address, 4 * c->granule), VMM_CODE_SUCCESS);
  EXPECT(vmm_raw_mem_address_free(c->driver, address, 4 * c->granule), VMM_CODE_SUCCESS);
}
