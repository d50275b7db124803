"""A block of a pool: an address and how many bytes, with one owner."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import errors, reaper, transfer
from .streams import LEGACY, PER_THREAD, Stream
from .streams import address as number_of

if TYPE_CHECKING:
    from .gate import Gate
    from .pool import Pool


class Block(reaper.Owner):
    """Memory of a pool. close(), leaving `with` and dropping it free it, ordered on the stream it was allocated on: the
    pool's home stream if none was named."""

    __slots__ = ("__weakref__", "_address", "_epoch", "_live", "_stream", "_thread", "nbytes", "pool", "tag")

    def __init__(self, pool: Pool, address: int, nbytes: int, tag: int, stream: int | None = None) -> None:
        self._live = [True]  # whoever pops it owns the right to free: exactly one thread can
        self._address = address
        self._epoch = pool._epoch
        self._stream = stream
        self._thread = threading.get_ident() if stream == PER_THREAD else 0
        self.pool = pool
        """The pool; a block keeps it alive."""
        self.nbytes = nbytes
        """Bytes asked for."""
        self.tag = tag

    @property
    def closed(self) -> bool:
        return not self._live or self._orphaned

    @property
    def _orphaned(self) -> bool:
        """Closed with its pool, or dropped by a forced close that failed later on."""
        return self.pool.closed or self.pool._epoch != self._epoch

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

    def free(
        self,
        idle: bool = False,
        stream: Stream | None = None,
        streams: Iterable[Stream] | None = None,
    ) -> None:
        """Frees it, ordered on its own stream; ClosedError if it was freed before.

        idle: the caller vouches that no queued or running work uses it. stream: ordered on that one instead, which
        comes after all other work on the block. streams: it is free when the work queued on all of them is done.
        """
        if idle + (stream is not None) + (streams is not None) > 1:
            raise TypeError("idle, stream and streams exclude each other")
        number = None if stream is None else number_of(stream)
        numbers = None if streams is None else [number_of(one) for one in streams]
        if numbers is not None and not numbers:
            raise errors.InvalidArgumentError("streams: none is named")
        if self._orphaned:
            raise self._closed_error()
        try:
            self._live.pop()
        except IndexError:
            raise self._closed_error() from None
        if number is None and numbers is None and not idle:
            self.pool._free_late(self._address, self._late())
        else:
            self.pool.free_address(self._address, idle, number, numbers)

    def _late(self) -> int | None:
        """The stream to free it on when none is named: the per-thread one is another one in this thread, perhaps."""
        return reaper.BEHIND_ALL if self._thread not in (0, threading.get_ident()) else self._stream

    def close(self) -> None:
        """Frees it, ordered on its stream. Closing twice is fine, and so is closing after the pool."""
        with contextlib.suppress(errors.ClosedError):
            self.free()

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(
        self, queue: deque[tuple[Gate, int, int | None]] = reaper.blocks, behind_all: int = reaper.BEHIND_ALL
    ) -> None:
        try:
            self._live.pop()
        except (IndexError, AttributeError):
            return
        if not self._orphaned:
            # Another thread may free it, and its stream may be gone by then where it need not outlive the block.
            gone = self._thread or (self._stream is not None and self.pool._eager)
            queue.append((self.pool._gate, self._address, behind_all if gone else self._stream))
