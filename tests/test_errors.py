"""Exceptions: one class per status, and what they carry."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import pyvmm
from pyvmm import errors
from pyvmm._vmm import ffi, lib

STATUSES = sorted(
    getattr(lib, name) for name in dir(lib) if name.startswith("VMM_ERROR_") and isinstance(getattr(lib, name), int)
)


def filled(status: int, **fields: Any) -> Any:
    return ffi.new("vmm_error *", {"status": status, "device": -1, **fields})


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_has_its_own_class(status: int) -> None:
    error = errors.exception(status)
    assert type(error) is not errors.VmmError
    assert isinstance(error, errors.VmmError)
    assert error.status == status
    assert [s for s in STATUSES if type(errors.exception(s)) is type(error)] == [status]
    assert str(error)
    assert getattr(lib, error.status_name) == status
    assert getattr(pyvmm, type(error).__name__) is type(error)


@pytest.mark.parametrize(
    ("status", "builtin"),
    [
        (lib.VMM_ERROR_INVALID_ARGUMENT, ValueError),
        (lib.VMM_ERROR_OUT_OF_HOST_MEMORY, MemoryError),
        (lib.VMM_ERROR_OUT_OF_DEVICE_MEMORY, MemoryError),
        (lib.VMM_ERROR_OUT_OF_ADDRESS_SPACE, MemoryError),
        (lib.VMM_ERROR_LIMIT, MemoryError),
        (lib.VMM_ERROR_UNKNOWN_ADDRESS, LookupError),
        (lib.VMM_ERROR_TIMEOUT, TimeoutError),
        (lib.VMM_ERROR_UNSUPPORTED, NotImplementedError),
        (lib.VMM_ERROR_BROKEN, AssertionError),
    ],
)
def test_it_is_the_builtin_one_too(status: int, builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        errors.check(status)


def test_out_of_address_space_is_not_out_of_memory() -> None:
    assert not isinstance(errors.exception(lib.VMM_ERROR_OUT_OF_ADDRESS_SPACE), pyvmm.OutOfMemoryError)


def test_what_the_struct_says() -> None:
    detail = filled(
        lib.VMM_ERROR_NOT_READY, code=600, attempt=10, device=3, address=0x7000, size=4096, free_bytes=5, total_bytes=7,
        reserved_bytes=9, call=b"cuMemSetAccess", code_name=b"CUDA_ERROR_NOT_READY", message=b"what; state; do",
    )  # fmt: skip
    error = errors.exception(lib.VMM_ERROR_NOT_READY, detail)
    assert type(error) is pyvmm.NotReadyError
    assert str(error) == "what; state; do"
    assert (error.call, error.code, error.code_name) == ("cuMemSetAccess", 600, "CUDA_ERROR_NOT_READY")
    assert (error.attempt, error.device, error.address, error.size) == (10, 3, 0x7000, 4096)
    assert (error.free_bytes, error.total_bytes, error.reserved_bytes) == (5, 7, 9)
    assert notes(error) == []


def test_no_device_is_none() -> None:
    assert errors.exception(lib.VMM_ERROR_NO_DRIVER, filled(lib.VMM_ERROR_NO_DRIVER)).device is None


def test_second_failures_are_notes() -> None:
    status = lib.VMM_ERROR_OUT_OF_DEVICE_MEMORY
    error = errors.exception(status, filled(status, undo_failures=2, undo_code=1, gave_back=4096))
    assert (error.undo_failures, error.undo_code, error.gave_back) == (2, 1, 4096)
    first, second = notes(error)
    assert "2 undo" in first
    assert "CUDA_ERROR_INVALID_VALUE" in first
    assert "quarantined" in first
    assert "4096" in second


def test_notes_where_python_has_none() -> None:
    class Old(Exception):
        add_note = property()  # as before Python 3.11: hasattr is false

    error = Old()
    errors.add_note(error, "first")
    errors.add_note(error, "second")
    assert notes(error) == ["first", "second"]


def test_a_struct_of_another_failure_is_not_quoted() -> None:
    """On some failures the struct is not written; what it held before must not be shown."""
    error = errors.exception(lib.VMM_ERROR_BUSY, filled(lib.VMM_ERROR_LIMIT, message=b"stale", size=1))
    assert "stale" not in str(error)
    assert error.size == 0


@pytest.mark.parametrize("status", STATUSES)
def test_exceptions_travel_between_processes(status: int) -> None:
    error = errors.exception(status, filled(status, code=2, size=8, undo_failures=1))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.code, copy.size, notes(copy)) == (str(error), 2, 8, notes(error))
