"""The memory that a captured graph uses."""

from __future__ import annotations

from collections import deque
from typing import Any

from ._vmm import ffi, lib
from .errors import BusyError, ClosedError, check, new
from .gate import Gate


class Lease:
    """What was allocated or freed on a stream while it was captured: nobody else gets it before release().

    Made by Device.capture. Release it when the graph is gone. A lease that is dropped unreleased stays: the graph may
    still be launched. Closing the pool ends it.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._held: deque[Any] = deque()
        """The handle, as long as it is to be released: exactly one thread can take it."""

    def __repr__(self) -> str:
        return f"<pyvmm.Lease {'active' if self.active else 'without memory'}>"

    @property
    def active(self) -> bool:
        """Whether the capture was committed, and the lease is neither released nor gone with its device."""
        return bool(self._held) and not self._gate.closed

    def _hold(self, pointer: Any) -> None:
        if pointer != ffi.NULL:
            self._held.append(pointer)

    def release(self, idle: bool = False) -> None:
        """No further launch of the graph is to come. Releasing twice is fine.

        idle: the caller vouches that no launch of it, and no other work on its memory, is queued or running. Then it is
        free for others at once, also where captures overlap without a break."""
        try:
            pointer = self._held.pop()
        except IndexError:
            return
        error, end = new(), lib.vmm_lease_release_idle if idle else lib.vmm_lease_release
        try:
            with self._gate:
                check(end(pointer, error), error)
        except ClosedError:
            return  # it went with the device
        except BusyError:  # the device is being closed, which may yet be refused
            self._held.append(pointer)
            raise
