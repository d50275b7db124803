"""A block of a pool: an address and how many bytes, with one owner."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from . import errors, reaper, streams, transfer

if TYPE_CHECKING:
    from .gate import Gate
    from .pool import Pool


class Block(reaper.Owner):
    """Memory of a pool. close(), leaving `with` and dropping it free it, ordered on the pool's home stream."""

    __slots__ = ("__weakref__", "_address", "_epoch", "_live", "nbytes", "pool", "tag")

    def __init__(self, pool: Pool, address: int, nbytes: int, tag: int) -> None:
        self._live = [True]  # whoever pops it owns the right to free: exactly one thread can
        self._address = address
        self._epoch = pool._epoch
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
        return self.pool.home_stream

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
        """Version 3: bytes, on the home stream."""
        address, stream = self.address, self.stream
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (address if self.nbytes else 0, False),
            "strides": None,
            "version": 3,
            "stream": stream or streams.LEGACY,  # 0 is not allowed there: it could mean either default stream
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

    def free(self, idle: bool = False) -> None:
        """Frees it; ClosedError if it was freed before. idle: the caller vouches that no queued or running work
        uses it."""
        if self._orphaned:
            raise self._closed_error()
        try:
            self._live.pop()
        except IndexError:
            raise self._closed_error() from None
        self.pool.free_address(self._address, idle)

    def close(self) -> None:
        """Frees it, ordered on the home stream. Closing twice is fine, and so is closing after the pool."""
        with contextlib.suppress(errors.ClosedError):
            self.free()

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(self, queue: deque[tuple[Gate, int]] = reaper.blocks) -> None:
        try:
            self._live.pop()
        except (IndexError, AttributeError):
            return
        if not self._orphaned:
            queue.append((self.pool._gate, self._address))
