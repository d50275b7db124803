"""The driver's own codes."""

from __future__ import annotations

import enum

from ._vmm import lib
from .errors import text


class Code(enum.IntEnum):
    """The CUresult numbers that matter here."""

    SUCCESS = lib.VMM_CODE_SUCCESS
    INVALID_VALUE = lib.VMM_CODE_INVALID_VALUE
    OUT_OF_MEMORY = lib.VMM_CODE_OUT_OF_MEMORY
    NOT_INITIALIZED = lib.VMM_CODE_NOT_INITIALIZED
    DEINITIALIZED = lib.VMM_CODE_DEINITIALIZED
    DEVICE_UNAVAILABLE = lib.VMM_CODE_DEVICE_UNAVAILABLE
    NO_DEVICE = lib.VMM_CODE_NO_DEVICE
    INVALID_DEVICE = lib.VMM_CODE_INVALID_DEVICE
    INVALID_CONTEXT = lib.VMM_CODE_INVALID_CONTEXT
    ECC_UNCORRECTABLE = lib.VMM_CODE_ECC_UNCORRECTABLE
    NVLINK_UNCORRECTABLE = lib.VMM_CODE_NVLINK_UNCORRECTABLE
    INVALID_HANDLE = lib.VMM_CODE_INVALID_HANDLE
    NOT_FOUND = lib.VMM_CODE_NOT_FOUND
    NOT_READY = lib.VMM_CODE_NOT_READY
    ILLEGAL_ADDRESS = lib.VMM_CODE_ILLEGAL_ADDRESS
    LAUNCH_TIMEOUT = lib.VMM_CODE_LAUNCH_TIMEOUT
    CONTEXT_IS_DESTROYED = lib.VMM_CODE_CONTEXT_IS_DESTROYED
    ASSERT = lib.VMM_CODE_ASSERT
    LAUNCH_FAILED = lib.VMM_CODE_LAUNCH_FAILED
    NOT_PERMITTED = lib.VMM_CODE_NOT_PERMITTED
    NOT_SUPPORTED = lib.VMM_CODE_NOT_SUPPORTED
    STREAM_CAPTURE_UNSUPPORTED = lib.VMM_CODE_STREAM_CAPTURE_UNSUPPORTED
    STREAM_CAPTURE_INVALIDATED = lib.VMM_CODE_STREAM_CAPTURE_INVALIDATED
    STREAM_CAPTURE_ISOLATION = lib.VMM_CODE_STREAM_CAPTURE_ISOLATION
    STREAM_CAPTURE_IMPLICIT = lib.VMM_CODE_STREAM_CAPTURE_IMPLICIT
    CAPTURED_EVENT = lib.VMM_CODE_CAPTURED_EVENT
    UNKNOWN = lib.VMM_CODE_UNKNOWN


def code(name: str | int) -> int:
    """The number of a code from its name, with or without "CUDA_ERROR_"."""
    if isinstance(name, int):
        return int(name)
    number = int(lib.vmm_code_from_name(name.encode()))
    if number < 0:
        raise ValueError(f"{name!r} is no code of the driver")
    return number


def code_name(number: int) -> str:
    return text(lib.vmm_code_name(number))
