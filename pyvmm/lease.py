"""The memory that a captured graph uses."""

from __future__ import annotations

from typing import Any

from ._vmm import ffi, lib
from .errors import ClosedError, check, new
from .gate import Gate


class Lease:
    """What was allocated or freed on a stream while it was captured: nobody else gets it before release().

    Made by Device.capture. Release it when the graph is gone. A lease that is dropped unreleased stays: the graph may
    still be launched. Closing the pool ends it.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._cell = ffi.new("vmm_lease **")

    def __repr__(self) -> str:
        return f"<pyvmm.Lease {'active' if self.active else 'without memory'}>"

    @property
    def active(self) -> bool:
        """Whether the capture was committed, and the lease is neither released nor gone with its device."""
        return bool(self._cell[0]) and not self._gate.closed

    def release(self) -> None:
        """No further launch of the graph is to come. Releasing twice is fine."""
        pointer: Any = self._cell[0]
        self._cell[0] = ffi.NULL
        if not pointer:
            return
        error = new()
        try:
            with self._gate:
                check(lib.vmm_lease_release(pointer, error), error)
        except ClosedError:
            return  # it went with the device
