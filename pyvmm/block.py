"""A block of a pool: an address and how many bytes, with one owner."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import errors, reaper, transfer
from ._fast import QuickBlock
from .streams import LEGACY, PER_THREAD, Stream, thread_mark
from .streams import address as number_of

if TYPE_CHECKING:
    from .gate import Gate


class Block(QuickBlock, reaper.Owner):
    """Memory of a pool. close(), leaving `with` and dropping it free it, ordered on the stream it was allocated on: the
    pool's home stream if none was named.

    QuickBlock holds what it is (pool, nbytes, tag) and the right to free it, which exactly one thread can take.
    """

    __slots__ = ("__weakref__", "_thread")
    _thread: object  # the mark of the one that allocated it on the per-thread stream

    def __init__(self) -> None:
        raise TypeError("a block comes from Pool.alloc")

    @property
    def closed(self) -> bool:
        return not self._live or self._orphaned

    @property
    def _orphaned(self) -> bool:
        """Closed with its pool, or dropped by a forced close that failed later on."""
        return self.pool.closed or self._outlived

    @property
    def address(self) -> int:
        """The device address (CUdeviceptr). ClosedError once the block or its pool is closed."""
        if self._live and not self._orphaned:
            return self._address
        raise self._closed_error()

    def _closed_error(self) -> errors.ClosedError:
        if self._orphaned:
            return errors.ClosedError(f"the pool of the block at {self._address:#x} was closed")
        return errors.ClosedError(f"the block at {self._address:#x} is closed")

    ptr = address

    @property
    def stream(self) -> int:
        """The CUstream it is ordered on."""
        return self.pool.home_stream if self._stream is None else self._stream

    @property
    def size(self) -> int:
        """Bytes it holds: those asked for, rounded up."""
        return self.pool.find(self.address).size

    def __len__(self) -> int:
        return self.nbytes

    def __int__(self) -> int:
        return self.address

    def __repr__(self) -> str:
        return f"<pyvmm.Block {self._address:#x}, {self.nbytes} bytes{', closed' if self.closed else ''}>"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3: bytes, on the block's stream."""
        address, stream = self.address, self.stream
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (address if self.nbytes else 0, False),
            "strides": None,
            "version": 3,
            "stream": stream or LEGACY,  # 0 is not allowed there: it could mean either default stream
        }

    # ---- first steps without a framework ----

    def write(self, data: Any, offset: int = 0) -> None:
        """Copies a host buffer into the block, after the work queued on its stream, and waits for it."""
        with memoryview(data) as view:
            transfer.inside(offset, view.nbytes, self.nbytes)
        with self.pool.device.current():
            transfer.write(self.pool.device.driver, self.address + offset, data, self.stream)

    def read(self, size: int | None = None, offset: int = 0) -> bytearray:
        """Copies out of the block, after the work queued on its stream."""
        length = self.nbytes - offset if size is None else size
        transfer.inside(offset, length, self.nbytes)
        with self.pool.device.current():
            return transfer.read(self.pool.device.driver, self.address + offset, length, self.stream)

    # ---- life ----
    # free(), close() and `with` are QuickBlock's; what is not simple comes here, as do errors.

    def _free(
        self,
        idle: bool = False,
        stream: Stream | None = None,
        streams: Iterable[Stream] | None = None,
    ) -> None:
        """Frees it, ordered on its own stream; ClosedError if it was freed before. While another thread closes the pool
        it is put off until that is refused, or done.

        idle: the caller vouches that work has used it and is done. What its stream had queued before it was allocated
        may use the memory of a block that no work has used yet. stream: ordered on that one instead, which comes after
        all other work on the block. streams: it is free when the work queued on all of them is done.
        """
        if idle + (stream is not None) + (streams is not None) > 1:
            raise TypeError("idle, stream and streams exclude each other")
        number = None if stream is None else number_of(stream)
        numbers = None if streams is None else [number_of(one) for one in streams]
        if numbers is not None and not numbers:
            raise errors.InvalidArgumentError("streams: none is named")
        if self._orphaned or not self._take():
            raise self._closed_error()
        try:
            if number is None and numbers is None and not idle:
                self.pool._free_late(self._address, self._late())
            else:
                self.pool.free_address(self._address, idle, number, numbers)
        except errors.BusyError:
            # It was not even tried, and nobody else has the right to. Who does it later may be another thread, and the
            # stream may be gone by then.
            reaper.blocks.append((self.pool._gate, self._address, reaper.BEHIND_ALL))

    def _late(self) -> int | None:
        """The stream to free it on when none is named: the per-thread one is another one in this thread, perhaps."""
        if self._stream == PER_THREAD and self._thread is not thread_mark():
            return reaper.BEHIND_ALL
        return self._stream

    def _close(self) -> None:
        """Frees it, ordered on its stream. Closing twice is fine, and so is closing after the pool."""
        with contextlib.suppress(errors.ClosedError):
            self.free()

    def _drop(self, queue: deque[tuple[Gate, int, int | None]] = reaper.blocks) -> None:
        """For the destructor. It may run anywhere, also in a callback of the library's, so it only queues."""
        if self._orphaned or not self._take():
            return
        # Another thread may free it, and its stream may be gone by then where it need not outlive the block.
        gone = self._stream is not None and (self._stream == PER_THREAD or self.pool._eager)
        queue.append((self.pool._gate, self._address, reaper.BEHIND_ALL if gone else self._stream))

    if TYPE_CHECKING:
        free, close = _free, _close
