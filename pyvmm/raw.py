"""The driver's operations as they are: driver.raw.mem_create(size, prop, 0) -> (code, handle).

The wrappers are made from the C functions' own types. Arguments come in the C order without the driver and without what
the call gives back; a call answers its code, or a tuple of the code and what it gives back. Pointers are ints; a host
buffer is anything with the buffer protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import callbacks
from ._vmm import ffi, lib

OUTPUTS = frozenset({"int *", "size_t *", "unsigned long long *", "void * *"})
WRITES_HOST = frozenset({"memcpy_dtoh", "memcpy_dtoh_async"})


def op(name: str | int) -> int:
    """The number of an operation, from its name ("mem_create"), its driver symbol ("cuMemCreate") or "any"."""
    if isinstance(name, int):
        return name
    number = lib.VMM_OP_ANY if name == "any" else lib.vmm_op_from_name(name.encode())
    if number < 0 and name != "any":
        raise ValueError(f"{name!r} is no operation")
    return int(number)


def names() -> list[str]:
    """All operations, in the order of the table."""
    elements: dict[int, str] = ffi.typeof("vmm_op").elements
    return [elements[number].removeprefix("VMM_OP_") for number in range(lib.VMM_OP_COUNT)]


def memory(device: int = 0, **fields: int) -> Any:
    """What mem_create and mem_granularity want: pinned memory of a device."""
    return ffi.new("vmm_raw_prop *", {"type": 1, "location_type": 1, "location_id": device, **fields})


def access(*devices: int, flags: int = 3) -> Any:
    """What mem_set_access wants, followed by the number of devices: read and write for each."""
    return ffi.new("vmm_raw_access[]", [(1, device, flags) for device in devices or (0,)])


def location(device: int = 0) -> Any:
    """What mem_get_access wants."""
    return ffi.new("vmm_raw_location *", (1, device))


def _as_pointer(value: Any) -> Any:
    if value is None:
        return ffi.NULL
    if isinstance(value, int):
        return ffi.cast("void *", value)
    return value if isinstance(value, ffi.CData) else ffi.from_buffer(value)


def _as_writable(value: Any) -> Any:
    return _as_pointer(value) if isinstance(value, (int, ffi.CData)) else ffi.from_buffer(value, require_writable=True)


def _same(value: Any) -> Any:
    return value


class Raw:
    """One attribute per operation of the table."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *names()]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or not hasattr(lib, "vmm_raw_" + name):
            raise AttributeError(f"the driver table has no operation {name!r}")
        special = getattr(type(self), "_make_" + name, None)
        wrapper: Callable[..., Any] = special(self) if special else self._make(name)
        setattr(self, name, wrapper)
        return wrapper

    def _make(self, name: str) -> Callable[..., Any]:
        function, pointer = getattr(lib, "vmm_raw_" + name), self._pointer
        kinds = ffi.typeof(function).args[1:]
        outputs = [kind.cname in OUTPUTS for kind in kinds]
        makers = [kind.cname if out else _converter(name, kind) for kind, out in zip(kinds, outputs, strict=True)]
        expected = outputs.count(False)

        def call(*given: Any) -> Any:
            if len(given) != expected:
                raise TypeError(f"{name} takes {expected} arguments, not {len(given)}")
            rest = iter(given)
            values = [ffi.new(m) if out else m(next(rest)) for m, out in zip(makers, outputs, strict=True)]
            code = function(pointer, *values)
            if callbacks.pending:
                callbacks.reraise()
            results = [_result(value[0]) for value, out in zip(values, outputs, strict=True) if out]
            return (code, *results) if results else code

        call.__name__ = name
        return call

    # The few whose C form hides what is an output.

    def _make_capture_mode(self) -> Callable[..., Any]:
        def capture_mode(mode: int) -> tuple[int, int]:
            """Sets the thread's capture mode: (code, the mode before)."""
            cell = ffi.new("int *", mode)
            return lib.vmm_raw_capture_mode(self._pointer, cell), cell[0]

        return capture_mode

    def _make_device_name(self) -> Callable[..., Any]:
        def device_name(device: int) -> tuple[int, str]:
            buffer = ffi.new("char[]", 256)
            code = lib.vmm_raw_device_name(self._pointer, buffer, 256, device)
            return code, ffi.string(buffer).decode("utf-8", "replace")

        return device_name

    def _make_mem_export(self) -> Callable[..., Any]:
        def mem_export(handle: int, kind: int, flags: int = 0) -> tuple[int, int | bytes]:
            """A file descriptor for kind 1, else the 64 bytes of the handle."""
            buffer = ffi.new("int[16]")
            code = lib.vmm_raw_mem_export(self._pointer, buffer, handle, kind, flags)
            return code, buffer[0] if kind == 1 else bytes(ffi.buffer(buffer))

        return mem_export

    def _make_ipc_get_handle(self) -> Callable[..., Any]:
        def ipc_get_handle(address: int) -> tuple[int, bytes]:
            buffer = ffi.new("char[64]")
            code = lib.vmm_raw_ipc_get_handle(self._pointer, buffer, address)
            return code, bytes(ffi.buffer(buffer))

        return ipc_get_handle

    def _make_launch_host_func(self) -> Callable[..., Any]:
        def launch_host_func(stream: int, function: Callable[[], Any]) -> int:
            """The function runs once, in a thread of the driver's choice; what it raises is kept for that thread."""
            key = callbacks.register(function)
            code: int = lib.vmm_raw_launch_host_func(
                self._pointer, _as_pointer(stream), lib.vmm_py_host_function, callbacks.data(key)
            )
            if code:
                callbacks.forget(key)
            return code

        return launch_host_func


def _converter(name: str, kind: Any) -> Callable[[Any], Any]:
    if kind.kind == "pointer" and kind.item.kind == "void":
        return _as_writable if name in WRITES_HOST else _as_pointer
    return _same


def _result(value: Any) -> int:
    return value if isinstance(value, int) else int(ffi.cast("uintptr_t", value))
