"""What names a stream: a number, or an object of any framework that carries one."""

from __future__ import annotations

import operator
import threading
from typing import Any, TypeAlias

from ._vmm import ffi
from .errors import InvalidArgumentError

Stream: TypeAlias = Any
"""An int, or an object with __cuda_stream__() (the shared protocol), .cuda_stream (torch), .ptr (CuPy) or .handle."""

LEGACY = 1
PER_THREAD = 2


class _Thread(threading.local):
    def __init__(self) -> None:
        self.mark = object()


_here = _Thread()


def thread_mark() -> object:
    """What tells this thread from all others, also from later ones: the system gives its numbers to those again."""
    return _here.mark


def address(stream: Stream) -> int:
    """The CUstream as an int."""
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        stream = (protocol() if callable(protocol) else protocol)[1]
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name) and not isinstance(stream, int):
            stream = getattr(stream, name)
            break
    try:
        number = operator.index(stream)
    except TypeError:
        raise TypeError(f"{type(stream).__name__} names no stream") from None
    if not 0 <= number < 2**64:
        raise InvalidArgumentError(f"{number} is no stream")
    return number


def pointer(stream: Stream) -> Any:
    """The CUstream as cffi wants it."""
    return ffi.cast("void *", address(stream))
