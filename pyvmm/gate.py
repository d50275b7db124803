"""An object of the library's that several threads use while one of them may close it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import callbacks, errors
from ._vmm import ffi, lib


class Gate:
    """`with gate as pointer:` works on the object, or raises ClosedError."""

    PATIENCE = 30.0
    """Seconds that closing waits for calls of other threads."""

    def __init__(self, pointer: Any, what: str) -> None:
        self.cell = ffi.new("vmm_py_gate *", (pointer, 0))
        self.what = what
        self.closed = False
        self.lock = threading.Lock()

    def __enter__(self) -> Any:
        pointer = lib.vmm_py_enter(self.cell)
        return pointer if pointer else self._enter_slowly()

    def __exit__(self, *unused: object) -> None:
        lib.vmm_py_leave(self.cell)

    def _enter_slowly(self) -> Any:
        """Closed, or being closed, which the library may yet refuse."""
        if not self.closed:
            self._lock()
            try:
                pointer = lib.vmm_py_enter(self.cell)
                if pointer:
                    return pointer
                self.closed = True
            finally:
                self.lock.release()
        raise errors.ClosedError(f"the {self.what} is closed")

    def close(self, end: Callable[[Any], None]) -> None:
        """Takes the object out, waits for other threads to leave, and ends it. `end` puts it back if it still stands.
        Closing twice is fine."""
        self._lock()
        try:
            if self.closed:
                return
            pointer = lib.vmm_py_take(self.cell)
            try:
                self._wait_until_empty()
            except BaseException:
                lib.vmm_py_put(self.cell, pointer)
                raise
            try:
                end(pointer)
            finally:
                self.closed = not self.cell.object
        finally:
            self.lock.release()

    def _lock(self) -> None:
        """In a callback it is not waited for: the thread that closes may be waiting for this very call."""
        if not self.lock.acquire(timeout=0 if callbacks.inside() else self.PATIENCE):
            raise errors.BusyError(f"the {self.what} is being closed by another thread")

    def _wait_until_empty(self) -> None:
        started = time.monotonic()
        while lib.vmm_py_users(self.cell):
            if callbacks.inside():
                raise errors.BusyError(f"the {self.what} is in use; it cannot be closed from inside a callback")
            if time.monotonic() - started > self.PATIENCE:
                raise errors.DeadlineError(f"the {self.what} is still in use by another thread")
            time.sleep(0.0001)
