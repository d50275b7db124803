/* One reservation of address space and the physical memory behind it: commit, decommit, access. Every map and unmap of
 * the library is here, with its undo. What cannot be undone is quarantined: its entry stays in the mapping table, is never
 * published, and is tried again by each later growth, trim and destroy.
 *
 * Locks: all functions that call the driver need the device's structure lock (and the context) through `work`. The mapping
 * table changes only with both the structure lock and the owner's lock held, so either is enough to read it; but for the
 * steps between LIVE, DETACHED and LEAVING, which take the owner's alone. */
#ifndef VMM_REGION_REGION_H
#define VMM_REGION_REGION_H

#include "device/handles.h"
#include "device/work.h"
#include "index/mappings.h"

/* vmm__mapping.state; the others are vmm_mapping_state's */
enum {
  VMM__MAPPING_DETACHED = VMM_MAPPING_PENDING, /* live, but taken out of the index: waits to be decommitted */
  VMM__MAPPING_LEAVING = 4                     /* the same, and the decommit is under way: it cannot be revived */
};

typedef struct vmm__region {
  vmm_device *device;
  vmm__lock *lock; /* the owner's, of rank POOL */
  vmm__u64 base, size, granularity;
  bool plain;        /* no reservation: see plain.h */
  int free_code;     /* what the first failed address-free answered; 0: none failed */
  int verify;        /* vmm_verify */
  bool data_pending; /* work of verify=data may still be queued on quarantined mappings */

  vmm_raw_access *access; /* the owning device, then its peers */
  size_t access_count, access_capacity;
  size_t peer_count;   /* access_count - 1, under the owner's lock: for statistics */
  size_t revoke_count; /* of the places after access_count: devices whose grant could not be revoked */

  vmm__mappings mappings;
  vmm__u64 generation;
  vmm__u64 live_bytes; /* LIVE, DETACHED and LEAVING entries */
  vmm__u64 quarantined_bytes;
} vmm__region;

/* ---- the reservation ---- */

typedef struct vmm__region_request {
  vmm__u64 reservation; /* 0: by the ladder */
  vmm__u64 first;       /* bytes that must fit */
  int verify;
  const int *peers; /* raw device numbers */
  size_t peer_count;
} vmm__region_request;

/* Reserves address space and finds the granularity. On failure nothing is held. */
vmm_status vmm__region_open(vmm__region *region, vmm__work *work, vmm__lock *lock, const vmm__region_request *request);

/* Gives the address space back; no mapping may be left. On failure it stands and close can be called again, except on a
 * lost device, where it always succeeds. */
vmm_status vmm__region_close(vmm__region *region, vmm__work *work);

/* ---- commit ---- */

/* What a growth is to be made of before the driver is asked for more: the sizes of idle handles, which a piece of that size
 * finds by itself; handles put aside and mappings taken down elsewhere, whose handles are lent to the commit. Where they do
 * not suffice in number, what is created for the rest is a small mapping more. */
enum { VMM__PARTS_MOST = 256 };
typedef enum vmm__part_kind { VMM__PART_IDLE = 0, VMM__PART_READY = 1, VMM__PART_MAPPING = 2 } vmm__part_kind;
typedef struct vmm__part {
  vmm__part_kind kind;
  vmm__u64 size;
  vmm__u64 from;       /* where a mapping is, or was */
  vmm__handle *handle; /* what is lent; NULL before it is there and once a commit published or quarantined it */
} vmm__part;

typedef struct vmm__parts {
  size_t count;
  vmm__u64 bytes;
  vmm__part part[VMM__PARTS_MOST];
} vmm__parts;

typedef struct vmm__piece {
  vmm__u64 address, size;
  vmm__handle *handle; /* a record, with memory behind it once taken */
  vmm__part
      *lender; /* or whose handle it is: the part must have one by the time of the commit, and keeps it on failure */
  bool mapped; /* or may be */
} vmm__piece;

/* A contiguous range about to be backed. */
typedef struct vmm__commit {
  vmm__u64 address, size;
  size_t count;
  vmm__piece *pieces;
} vmm__commit;

/* Allocates what the commit needs, so that nothing is allocated once the driver was called: records of one piece per part
 * (they come first; together at most `size`) and of pieces of at most `piece_size` for the rest, and room in the mapping
 * table. OUT_OF_HOST_MEMORY leaves nothing. No driver call; not under the owner's lock. */
vmm_status vmm__commit_prepare(vmm__region *region, vmm__work *work, vmm__commit *commit, vmm__u64 address,
                               vmm__u64 size, vmm__u64 piece_size, vmm__parts *parts);

/* Backs the range: handles, quiesce, map, access, confirm. On success it is ready to publish; on failure all of it is
 * undone or quarantined and the work has the error. */
vmm_status vmm__region_commit(vmm__region *region, vmm__work *work, vmm__commit *commit);

/* Puts the pieces into the mapping table, under the owner's lock. Cannot fail. */
void vmm__region_publish(vmm__region *region, vmm__commit *commit);

/* Frees what prepare allocated and nobody took over. */
void vmm__commit_release(vmm__region *region, vmm__commit *commit);

/* ---- decommit ---- */

typedef enum vmm__decommit_result {
  VMM__DECOMMIT_GONE = 0, /* the mapping is no more */
  VMM__DECOMMIT_KEPT = 1, /* the unmap failed and the mapping is as it was: LEAVING still */
  VMM__DECOMMIT_QUARANTINED = 2
} vmm__decommit_result;

/* Unmaps the LEAVING mapping at `address` and gives its handle away. */
vmm__decommit_result vmm__region_decommit(vmm__region *region, vmm__work *work, vmm__u64 address);

/* The same, but if the mapping is GONE the handle is the caller's. */
vmm__decommit_result vmm__region_take_down(vmm__region *region, vmm__work *work, vmm__u64 address,
                                           vmm__handle **handle);

/* Tries again what could not be undone before. Failures are not the work's. */
void vmm__region_recover(vmm__region *region, vmm__work *work);

/* ---- access ---- */

/* Grants a further device access to all mappings: all or none. */
vmm_status vmm__region_add_peer(vmm__region *region, vmm__work *work, int raw_device);

/* One get-access per mapping of the range and device: NOT_CONFIRMED if any is denied. */
vmm_status vmm__region_confirm(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size);

/* Whether anything is mapped at the address, as far as the driver can be asked. */
typedef enum vmm__presence {
  VMM__PRESENCE_NOTHING = 0,
  VMM__PRESENCE_MAPPED = 1,
  VMM__PRESENCE_UNKNOWN = 2 /* the question failed too */
} vmm__presence;

vmm__presence vmm__region_presence(vmm__region *region, vmm__u64 address);

/* verify=data: a word per granule written and read back. */
vmm_status vmm__region_verify_data(vmm__region *region, vmm__work *work, vmm__u64 address, vmm__u64 size);
/* Whether all work that verify=data queued is done: until then its range must not be unmapped. */
bool vmm__region_data_done(vmm__region *region, const vmm__work *work);
/* Makes the pinned buffer that needs. */
vmm_status vmm__region_prepare_verify(vmm__region *region, vmm__work *work);

#endif
