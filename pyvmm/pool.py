"""A pool: memory that grows in place, and blocks of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

from . import errors, reaper, sizes
from ._fast import QuickPool
from ._vmm import ffi, lib
from .block import Block
from .device import Device, settle
from .errors import check, new
from .gate import Gate
from .options import fill, seconds
from .records import BlockInfo, MappingInfo, PoolStats, array, read
from .records import new as new_record
from .streams import PER_THREAD, Stream, thread_mark
from .streams import address as number_of
from .streams import pointer as pointer_to

R = TypeVar("R")
NO_GROWTH = lib.VMM_REQUEST_NO_GROWTH


class Trimmed(NamedTuple):
    """Of a trim that does not wait."""

    done: int
    """Bytes given back."""
    pending: int
    """Bytes that queued work may still use: a later poll, trim or growth unmaps them."""


class Pool(QuickPool, reaper.Owner):
    """Memory of a device. Blocks keep their pool alive.

    Options: reservation, initial, limit, mapping_min, mapping_max (sizes), growth_policy ("proportional", "exact",
    "fixed"), growth_step, growth_ahead, headroom, trim_threshold, trim_keep (sizes), background (True: a
    thread of the pool's sees to these), home_stream (what alloc and free are ordered on where no stream is named),
    events ("lazy": a stream that was named must live until device.forget_stream; "eager": it need not), prefer_wait
    (True: one stream rather waits for another than that the pool grows), verify ("access", "data"), scrub, peers
    (ordinals of devices that get access too).
    """

    def __init__(self, device: Device, *, peers: Iterable[int] = (), **options: Any) -> None:
        reaper.reap()
        filled = _fill(options)
        self._stream = int(ffi.cast("uintptr_t", filled.home_stream))
        self._eager = filled.events == lib.VMM_EVENTS_EAGER
        try:
            ordinals = ffi.new("int[]", list(peers))
        except OverflowError:
            raise errors.InvalidArgumentError("peers: not the numbers of devices") from None
        filled.peer_count, filled.peers = len(ordinals), ordinals if len(ordinals) else ffi.NULL
        pointer, error = ffi.new("vmm_pool **"), new()
        with device._gate as handle:
            status = lib.vmm_pool_create(pointer, handle, filled, error)
        self.device = device
        self._gate = Gate(pointer[0], "pool")
        self._gate.closed = status != lib.VMM_OK
        settle_new(status, error, self)
        self._open(self._gate, int(ffi.cast("uintptr_t", self._gate.cell)), self._stream, Block, reaper.blocks)
        device._pools[int(ffi.cast("uintptr_t", pointer[0]))] = self

    def __repr__(self) -> str:
        return f"<pyvmm.Pool{', closed' if self.closed else ''} of {self.device!r}>"

    # ---- life ----

    @property
    def closed(self) -> bool:
        return self._gate.closed

    @property
    def home_stream(self) -> int:
        """The CUstream that alloc and free are ordered on; 0 is the legacy default stream."""
        return self._stream

    def close(self, force: bool = False) -> None:
        """Gives everything back. BusyError while blocks live, unless forced: then their work is waited for, and they
        are closed. Closing twice is fine."""
        reaper.reap()
        try:
            _end_pool(self._gate, lib.VMM_DESTROY_FORCED if force else lib.VMM_DESTROY_IDLE)
        except errors.VmmError:
            if force and not self.closed and self.stats.block_count == 0:
                self._outlive()
            raise

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(force=True)  # blocks of the failed body are still held by its traceback
        except errors.VmmError as second:
            errors.add_note(error, f"closing the pool failed too: {second}")

    def __del__(self, queue: deque[Callable[[], None]] = reaper.objects) -> None:
        gate = getattr(self, "_gate", None)
        if gate is None or gate.closed:
            return
        device = self.device  # kept until the pool is ended

        def end() -> None:
            try:
                _end_pool(gate, lib.VMM_DESTROY_IDLE)
            except errors.ForkedError:
                pass
            except errors.VmmError as error:
                reaper.warn(f"a pool of {device!r} was dropped, and could not be closed: {error}")

        queue.append(end)

    # ---- blocks ----
    # QuickPool serves whoever gives a size or an address, and perhaps a stream, as plain ints, if that simply fits. All
    # that is left comes here.

    def _alloc(
        self,
        size: sizes.Size,
        alignment: sizes.Size = 0,
        tag: int = 0,
        one_mapping: bool = False,
        scrub: bool = False,
        deadline: float | None = None,
        growth: bool = True,
        stream: Stream | None = None,
    ) -> Block:
        """A block, ordered on a stream: on the home stream if none is named. tag: a number shown in listings.
        one_mapping: it lies within one mapping. scrub: zeroed before it is given. deadline: seconds. growth=False: an
        error, not a larger pool."""
        number = sizes.parse(size)
        on = None if stream is None else number_of(stream)
        if not (alignment or tag or one_mapping or scrub or deadline is not None) and growth:
            return self._own(self._alloc_address(number, on), number, 0, on)
        if reaper.blocks:
            reaper.free_blocks()
        request, error, address = ffi.new("vmm_request *"), new(), ffi.new("unsigned long long *")
        check(lib.vmm_request_init(request, ffi.sizeof("vmm_request")))
        request.size, request.alignment = number, sizes.parse(alignment, "alignment")
        request.tag, request.deadline_ns = sizes.integer(tag, "tag"), seconds(deadline, "deadline")
        flags = (lib.VMM_REQUEST_ONE_MAPPING, one_mapping), (lib.VMM_REQUEST_SCRUB, scrub), (NO_GROWTH, not growth)
        request.flags = sum(flag for flag, wanted in flags if wanted)
        if on is not None:
            request.flags |= lib.VMM_REQUEST_ON_STREAM
            request.stream = ffi.cast("void *", on)
        with self._gate as pool:
            status = lib.vmm_pool_alloc_with(pool, request, address, error)
        self._settle_alloc(status, error, address[0], on)
        return self._own(address[0], number, request.tag, on)

    def _own(self, address: int, size: int, tag: int, stream: int | None) -> Block:
        block = self._block(address, size, tag, stream)
        if stream == PER_THREAD:
            block._thread = thread_mark()
        return block

    def _alloc_address(self, size: sizes.Size, stream: Stream | None = None) -> int:
        """The same as a bare address: nothing but free_address gives it back."""
        if reaper.blocks:
            reaper.free_blocks()
        number, error, address = sizes.parse(size), new(), ffi.new("unsigned long long *")
        on = None if stream is None else pointer_to(stream)
        with self._gate as pool:
            if on is None:
                status = lib.vmm_pool_alloc(pool, number, address, error)
            else:
                status = lib.vmm_pool_alloc_async(pool, number, on, address, error)
        self._settle_alloc(status, error, address[0], stream)
        return int(address[0])

    def _free_address(
        self, address: int, idle: bool = False, stream: Stream | None = None, streams: Sequence[Stream] | None = None
    ) -> None:
        """Frees a block by its address, ordered on the home stream, on the one named, or on all of several. idle: the
        caller vouches that all work which used it is done; Block.free says more."""
        if reaper.blocks:
            reaper.free_blocks()
        error, on = new(), [pointer_to(one) for one in ([stream] if streams is None else streams)]
        try:
            with self._gate as pool:
                if idle:
                    status = lib.vmm_pool_free_idle(pool, address, error)
                elif streams is not None:
                    status = lib.vmm_pool_free_multi(pool, address, ffi.new("void *[]", on), len(on), error)
                elif stream is not None:
                    status = lib.vmm_pool_free_async(pool, address, on[0], error)
                else:
                    status = lib.vmm_pool_free(pool, address, error)
        except OverflowError:
            raise errors.UnknownAddressError(f"{address} is no address") from None
        check(status, error)

    def _free_late(self, address: int, stream: int | None) -> None:
        """On the stream of a block, or behind all work if that cannot be named any more."""
        if stream == reaper.BEHIND_ALL:
            self.free_address(address, streams=())
        else:
            self.free_address(address, stream=stream)

    if TYPE_CHECKING:
        alloc, alloc_address, free_address = _alloc, _alloc_address, _free_address

    def _settle_alloc(self, status: int, error: Any, address: int, stream: Stream | None) -> None:
        try:
            settle(status, error)
        except BaseException:
            if address:  # a callback raised, so nobody gets the block; what its stream had queued may use it still
                self.free_address(address, stream=stream)
            raise

    # ---- size ----

    def grow(self, size: sizes.Size) -> int:
        """Commits at least so many bytes more, ahead of need. Answers the bytes committed."""
        reaper.reap()
        done, error, number = ffi.new("unsigned long long *"), new(), sizes.parse(size)
        with self._gate as pool:
            status = lib.vmm_pool_grow(pool, number, done, error)
        settle(status, error, done[0])
        return int(done[0])

    def grow_async(self, size: sizes.Size) -> None:
        """Creates memory for so many bytes more and puts it aside, without holding up other growth. The next block that
        does not fit takes it, or poll or the pool's thread makes it allocatable."""
        reaper.reap()
        error, number = new(), sizes.parse(size)
        with self._gate as pool:
            status = lib.vmm_pool_grow_async(pool, number, error)
        settle(status, error)

    def would_fit(self, requests: Iterable[sizes.Size]) -> int:
        """Bytes the pool would have to commit for blocks of these sizes, allocated in this order; 0: they fit as things
        are. Raises what the growth would if limits or memory do not allow it. Changes nothing."""
        reaper.reap()
        numbers = [sizes.parse(size) for size in requests]
        grow, error = ffi.new("unsigned long long *"), new()
        with self._gate as pool:
            status = lib.vmm_pool_would_fit(pool, ffi.new("unsigned long long[]", numbers), len(numbers), grow, error)
        settle(status, error, grow[0])
        return int(grow[0])

    @overload
    def trim(self, keep: sizes.Size = 0, deadline: float | None = None, wait: Literal[True] = True) -> int: ...

    @overload
    def trim(self, keep: sizes.Size = 0, deadline: float | None = None, *, wait: Literal[False]) -> Trimmed: ...

    def trim(self, keep: sizes.Size = 0, deadline: float | None = None, wait: bool = True) -> int | Trimmed:
        """Gives idle mappings back until at most `keep` bytes stay committed. Answers the bytes given back;
        PartialError and its like have them in `done`. wait=False: what queued work may still use is left pending, and
        the answer has both, `done` and `pending`."""
        reaper.reap()
        done, error, number = ffi.new("unsigned long long *"), new(), sizes.parse(keep, "keep")
        pending, nanoseconds = ffi.new("unsigned long long *"), seconds(deadline, "deadline")
        with self._gate as pool:
            if wait:
                status = lib.vmm_pool_trim(pool, number, nanoseconds, done, error)
            else:
                status = lib.vmm_pool_trim_async(pool, number, done, pending, error)
        settle(status, error, done[0])
        return int(done[0]) if wait else Trimmed(int(done[0]), int(pending[0]))

    def poll(self) -> Trimmed:
        """Unmaps what earlier trims left pending and queued work no longer uses; waits for none."""
        reaper.reap()
        done, pending, error = ffi.new("unsigned long long *"), ffi.new("unsigned long long *"), new()
        with self._gate as pool:
            status = lib.vmm_pool_poll(pool, done, pending, error)
        settle(status, error, done[0])
        return Trimmed(int(done[0]), int(pending[0]))

    @property
    def limit(self) -> int:
        """Bytes that the pool may commit; 0: no limit."""
        return self.stats.limit

    @limit.setter
    def limit(self, value: sizes.Size) -> None:
        number, error = sizes.parse(value, "limit"), new()
        with self._gate as pool:
            check(lib.vmm_pool_set_limit(pool, number, error), error)

    def add_peer(self, ordinal: int) -> None:
        """Grants another device access to all of the pool, now and later."""
        reaper.reap()
        error = new()
        with self._gate as pool:
            try:
                status = lib.vmm_pool_add_peer(pool, ordinal, error)
            except OverflowError:
                raise errors.InvalidArgumentError(f"ordinal: {ordinal} is no device") from None
        settle(status, error)

    # ---- what it knows ----

    @property
    def stats(self) -> PoolStats:
        reaper.reap()
        struct, error = new_record(PoolStats), new()
        with self._gate as pool:
            check(lib.vmm_pool_get_stats(pool, struct, error), error)
        return read(PoolStats, struct)

    def find(self, address: int) -> BlockInfo:
        """The live block that holds an address, at its start or inside."""
        reaper.reap()
        struct, error, number = new_record(BlockInfo), new(), sizes.integer(address, "address")
        with self._gate as pool:
            check(lib.vmm_pool_find(pool, number, struct, error), error)
        return read(BlockInfo, struct)

    def generation(self, address: int, size: sizes.Size = 1) -> int:
        """A number that stays the same as long as the memory behind these bytes does. Whoever keeps something by
        address, a graph or a registration, compares it."""
        generation, error, length = ffi.new("unsigned long long *"), new(), sizes.parse(size)
        with self._gate as pool:
            status = lib.vmm_pool_get_generation(pool, sizes.integer(address, "address"), length, generation, error)
        check(status, error)
        return int(generation[0])

    def blocks(self) -> list[BlockInfo]:
        """The live blocks, by rising address."""
        return self._listing(BlockInfo, lib.vmm_pool_get_blocks)

    def mappings(self) -> list[MappingInfo]:
        """The mappings, by rising address."""
        return self._listing(MappingInfo, lib.vmm_pool_get_mappings)

    def _listing(self, kind: type[R], call: Any) -> list[R]:
        reaper.reap()
        count, error, room = ffi.new("size_t *"), new(), 64
        while True:  # the pool may grow between two looks
            entries = array(kind, room)
            with self._gate as pool:
                check(call(pool, entries, room, count, error), error)
            if count[0] <= room:
                return [read(kind, entries[i]) for i in range(count[0])]
            room = count[0] + count[0] // 8

    def check(self) -> None:
        """Checks every invariant of the pool; BrokenError names the one that does not hold."""
        reaper.reap()
        error = new()
        with self._gate as pool:
            check(lib.vmm_pool_check(pool, error), error)


def settle_new(status: int, error: Any, pool: Pool) -> None:
    """After a create: an exception of a callback must not leave a pool behind that nobody knows."""
    try:
        settle(status, error)
    except BaseException:
        if status == lib.VMM_OK:
            _end_pool(pool._gate, lib.VMM_DESTROY_FORCED)
        raise


def _fill(options: dict[str, Any]) -> Any:
    enums = {"verify": "VMM_VERIFY_", "growth_policy": "VMM_GROWTH_", "events": "VMM_EVENTS_"}
    return fill("Pool()", "vmm_pool_options", options, enums)


def _end_pool(gate: Gate, mode: int) -> None:
    error, status = new(), lib.VMM_OK

    def end(pointer: Any) -> None:
        nonlocal status
        status = lib.vmm_py_pool_destroy(gate.cell, pointer, mode, error)

    gate.close(end)
    settle(status, error)
