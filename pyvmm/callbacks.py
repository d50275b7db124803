"""Python functions that the library calls. None can raise through C, so an exception is kept for its thread and raised
again by the call that the library was in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from ._vmm import ffi, lib

pending: dict[int, list[BaseException]] = {}
"""Exceptions of callbacks that no call has raised yet, by thread. Empty nearly always, so `if pending` costs little."""

_targets: dict[int, Any] = {}
_keys = count(1)
_here = threading.local()


def register(target: Any) -> int:
    """Gives a callback a number, which is what C gets as `data`: a stale one is found missing, not a wild pointer."""
    key = next(_keys)
    _targets[key] = target
    return key


def forget(key: int) -> None:
    _targets.pop(key, None)


def data(key: int) -> Any:
    return ffi.cast("void *", key)


def inside() -> bool:
    """Whether this thread is in a callback."""
    return getattr(_here, "depth", 0) > 0


def keep(error: BaseException) -> None:
    pending.setdefault(threading.get_ident(), []).append(error)


def take() -> BaseException | None:
    """The first exception that a callback of this thread raised, if any."""
    errors = pending.pop(threading.get_ident(), None)
    return errors[0] if errors else None


def reraise() -> None:
    """After a call that may run callbacks: raises what one of them raised."""
    if pending:
        error = take()
        if error is not None:
            raise error


def _call(pointer: Any, function: Callable[[Any], Any], failed: Any) -> Any:
    target = _targets.get(int(ffi.cast("uintptr_t", pointer)))
    if target is None:
        return failed
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        return function(target)
    except BaseException as error:  # also KeyboardInterrupt: it is raised again outside
        keep(error)
        return failed
    finally:
        _here.depth -= 1


def _pressure(target: Callable[[int], Any], size: int) -> int:
    freed = target(size)
    number = 0 if freed is None else int(freed)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"the pressure callback said that it freed {number} bytes")
    return number


@ffi.def_extern(name="vmm_py_pressure", error=-1)  # type: ignore[untyped-decorator]
def _on_pressure(pointer: Any, device: Any, size: int) -> int:
    return int(_call(pointer, lambda target: _pressure(target, size), -1))


@ffi.def_extern(name="vmm_py_fault_hook")  # type: ignore[untyped-decorator]
def _on_fault(pointer: Any, op: int, opportunity: int) -> None:
    _call(pointer, lambda target: target(ffi.string(lib.vmm_op_symbol(op)).decode(), opportunity), None)


@ffi.def_extern(name="vmm_py_host_function")  # type: ignore[untyped-decorator]
def _on_host_function(pointer: Any) -> None:
    key = int(ffi.cast("uintptr_t", pointer))
    _call(pointer, lambda target: target(), None)
    forget(key)
