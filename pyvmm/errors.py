"""Every failure is an exception of its own class, which is also the built-in one a caller would look for."""

from __future__ import annotations

from typing import Any

from ._vmm import ffi, lib


class VmmError(RuntimeError):
    """What failed, in what state things are, what to do. Numbers that are not known are 0."""

    status: int = 0
    """vmm_status as a number."""
    code: int = 0
    """Raw CUresult of the failing driver call, 0 if none failed."""
    code_name: str = ""
    call: str = ""
    """Driver symbol that failed, for example "cuMemSetAccess"."""
    attempt: int = 0
    """Which attempt failed last, from 1."""
    device: int | None = None
    address: int = 0
    size: int = 0
    undo_failures: int = 0
    """Undo steps that failed; what they hold is quarantined."""
    undo_code: int = 0
    gave_back: int = 0
    """Idle bytes that were given back to the driver on the way."""
    free_bytes: int = 0
    total_bytes: int = 0
    reserved_bytes: int = 0
    done: int = 0
    """Bytes that were done all the same, for calls that say so (grow, trim)."""

    @property
    def status_name(self) -> str:
        return text(lib.vmm_status_name(self.status))


class InvalidArgumentError(VmmError, ValueError):
    """Refused before anything changed."""

    status = lib.VMM_ERROR_INVALID_ARGUMENT


class ClosedError(InvalidArgumentError):
    """The device, pool or block was closed."""


class OutOfHostMemoryError(VmmError, MemoryError):
    status = lib.VMM_ERROR_OUT_OF_HOST_MEMORY


class OutOfMemoryError(VmmError, MemoryError):
    """The driver has no device memory left."""

    status = lib.VMM_ERROR_OUT_OF_DEVICE_MEMORY


class OutOfAddressSpaceError(VmmError, MemoryError):
    """The reservation is full, or was refused."""

    status = lib.VMM_ERROR_OUT_OF_ADDRESS_SPACE


class MappingLimitError(VmmError, MemoryError):
    status = lib.VMM_ERROR_MAPPING_LIMIT


class LimitError(VmmError, MemoryError):
    """The limit that the caller set on the pool or the device."""

    status = lib.VMM_ERROR_LIMIT


class NotReadyError(VmmError):
    """The driver said NOT_READY until the retry budget was spent. All undone."""

    status = lib.VMM_ERROR_NOT_READY


class NotConfirmedError(VmmError):
    """The driver said success, but the access is not there. All undone."""

    status = lib.VMM_ERROR_NOT_CONFIRMED


class CaptureError(VmmError):
    """A stream capture forbids the call."""

    status = lib.VMM_ERROR_CAPTURE


class UnknownAddressError(VmmError, LookupError):
    """Not the address of a live block of this pool."""

    status = lib.VMM_ERROR_UNKNOWN_ADDRESS


class BusyError(VmmError):
    """Live blocks, pools or captures stand in the way, or no growth is allowed."""

    status = lib.VMM_ERROR_BUSY


class DeadlineError(VmmError, TimeoutError):
    """The deadline passed while waiting for a lock or for work on the GPU."""

    status = lib.VMM_ERROR_TIMEOUT


class PartialError(VmmError):
    """Some of it was done: `done` says how much."""

    status = lib.VMM_ERROR_PARTIAL


class UnsupportedError(VmmError, NotImplementedError):
    """The device or the driver cannot do this."""

    status = lib.VMM_ERROR_UNSUPPORTED


class NoDriverError(VmmError):
    """No usable CUDA driver on this machine."""

    status = lib.VMM_ERROR_NO_DRIVER


class DriverError(VmmError):
    """Any other answer of the driver; `code` has it."""

    status = lib.VMM_ERROR_DRIVER


class DeviceLostError(VmmError):
    """The context is dead; only teardown goes on."""

    status = lib.VMM_ERROR_DEVICE_LOST


class ForkedError(VmmError):
    """This process is a forked child of the one that used the library."""

    status = lib.VMM_ERROR_FORKED


class CallbackError(VmmError):
    """A callback failed without an exception."""

    status = lib.VMM_ERROR_CALLBACK


class VersionError(VmmError, ValueError):
    """A struct of a size or content that this version does not know."""

    status = lib.VMM_ERROR_VERSION


class BrokenError(VmmError, AssertionError):
    """An invariant of the library's does not hold: a bug."""

    status = lib.VMM_ERROR_BROKEN


CLASSES: dict[int, type[VmmError]] = {c.status: c for c in VmmError.__subclasses__()}
"""From a vmm_status to the exception."""


def text(pointer: Any) -> str:
    """A C string as str."""
    return str(ffi.string(pointer).decode("utf-8", "replace"))


def new() -> Any:
    """An empty vmm_error for a call to fill."""
    return ffi.new("vmm_error *")


def add_note(error: BaseException, note: str) -> None:
    """BaseException.add_note, which came with Python 3.11."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        notes: list[str] = list(getattr(error, "__notes__", ()))
        error.__notes__ = [*notes, note]  # type: ignore[attr-defined]


def exception(status: int, detail: Any = None, done: int = 0) -> VmmError:
    """The exception for a status and, where there is one, a filled vmm_error. Second failures become notes."""
    filled = detail is not None and detail.status == status
    message = (text(detail.message) if filled else "") or text(lib.vmm_status_text(status))
    error = CLASSES.get(status, VmmError)(message)
    error.status = status
    error.done = done
    if not filled:
        return error
    error.code, error.attempt = detail.code, detail.attempt
    error.code_name, error.call = text(detail.code_name), text(detail.call)
    error.device = None if detail.device < 0 else detail.device
    error.address, error.size = detail.address, detail.size
    error.undo_failures, error.undo_code = detail.undo_failures, detail.undo_code
    error.gave_back, error.reserved_bytes = detail.gave_back, detail.reserved_bytes
    error.free_bytes, error.total_bytes = detail.free_bytes, detail.total_bytes
    if error.undo_failures:
        name = text(lib.vmm_code_name(error.undo_code))
        add_note(error, f"{error.undo_failures} undo step(s) failed, first with {name}: what they hold is quarantined")
    if error.gave_back:
        add_note(error, f"{error.gave_back} idle bytes were given back to the driver on the way")
    return error


def check(status: int, detail: Any = None) -> None:
    if status:
        raise exception(status, detail)
