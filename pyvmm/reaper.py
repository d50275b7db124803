"""What was dropped without being closed. A destructor may run anywhere, also inside a callback of the library's, so it
only queues; the queues are emptied at the start of later calls."""

from __future__ import annotations

import atexit
import contextlib
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Protocol

from ._vmm import lib

if TYPE_CHECKING:
    from .gate import Gate

BEHIND_ALL = -1
"""In place of a stream: it may be gone by now, so the block waits for all work of the context."""

blocks: deque[tuple[Gate, int, int | None]] = deque()
"""Addresses to free, and on which stream; None: the home stream. What a destructor could not free at once. Emptied by
every call: freeing calls no driver."""

objects: deque[Callable[[], None]] = deque()
"""Pools, devices and drivers to end, each as a function. Emptied by the calls that are slow anyway."""


class Hooked(Protocol):
    def unhook(self) -> None: ...


_hooked: weakref.WeakSet[Hooked] = weakref.WeakSet()


def free_blocks() -> None:
    """Those of a pool that is just being closed stay: it may be refused."""
    later = []
    while blocks:
        try:
            gate, address, stream = blocks.popleft()
        except IndexError:  # another thread was faster
            break
        if stream is None:
            status = lib.vmm_py_free(gate.cell, address)
        elif stream == BEHIND_ALL:
            status = lib.vmm_py_free_behind_all(gate.cell, address)
        else:
            status = lib.vmm_py_free_on(gate.cell, address, stream)
        if status == -1 and not gate.closed:
            later.append((gate, address, stream))
        elif status not in (lib.VMM_OK, lib.VMM_ERROR_FORKED, -1):
            warn(f"a block at {address:#x} was dropped, and could not be freed: status {status}")
    blocks.extend(later)


def reap() -> None:
    """Frees dropped blocks and ends dropped objects."""
    if blocks:
        free_blocks()
    while objects:
        try:
            end = objects.popleft()
        except IndexError:
            return
        end()
        del end  # the last hold on a device, perhaps, which then queues itself


class _Messenger:
    """Warns as it is dropped: there an exception goes to sys.unraisablehook, and nowhere else."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __del__(self) -> None:
        warnings.warn(self.message, ResourceWarning, stacklevel=4)


def warn(message: str) -> None:
    """For failures that no call can raise: not even where warnings are errors, for the caller did nothing wrong."""
    _Messenger(message)


class Owner:
    """Base of what stands for memory of the library's: a copy would free it a second time."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} owns memory of a device and cannot be copied or pickled")


def unhook_at_exit(owner: Hooked) -> None:
    """The library must not call into Python after the interpreter ends."""
    _hooked.add(owner)


@atexit.register
def _finish() -> None:
    """Memory is left to the end of the process, which gives it back whole; only callbacks are unhooked."""
    for owner in list(_hooked):
        with contextlib.suppress(Exception):
            owner.unhook()
