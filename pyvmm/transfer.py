"""Copies between the host and a device, for those who have no framework at hand: tests, the self-test, first steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._vmm import ffi, lib
from .drivers import Driver
from .errors import DriverError, InvalidArgumentError, text

POISON = 0xA5
"""What a host buffer holds before a copy: a copy that does nothing must not look like zeroes."""


def require(operation: str, answer: Any) -> Any:
    """Of what a raw operation answered: the outputs, or a DriverError."""
    code, *results = answer if isinstance(answer, tuple) else (answer,)
    if code:
        call, name = text(lib.vmm_op_symbol(lib.vmm_op_from_name(operation.encode()))), text(lib.vmm_code_name(code))
        error = DriverError(f"{call} answered {name}")
        error.call, error.code, error.code_name, error.attempt = call, int(code), name, 1
        raise error
    return results[0] if len(results) == 1 else tuple(results) or None


def call(driver: Driver, operation: str, *arguments: Any) -> Any:
    """A raw operation that must succeed."""
    return require(operation, getattr(driver.raw, operation)(*arguments))


@contextmanager
def current(driver: Driver, ordinal: int, context: int = 0) -> Iterator[None]:
    """Makes a context current in the body: the one given, or the primary context of the device."""
    device = call(driver, "device_get", ordinal)
    primary = not context
    if primary:
        context = call(driver, "primary_retain", device)
    try:
        call(driver, "ctx_push", context)
        try:
            yield
        finally:
            driver.raw.ctx_pop()
    finally:
        if primary:
            driver.raw.primary_release(device)


def write(driver: Driver, address: int, data: Any, stream: int = 0) -> None:
    """Copies a host buffer to a device address, after the work queued on the stream, and waits for it."""
    source = ffi.from_buffer(data)
    call(driver, "memcpy_htod_async", address, source, len(source), stream)
    call(driver, "stream_synchronize", stream)


def read(driver: Driver, address: int, size: int, stream: int = 0) -> bytearray:
    """Copies from a device address, after the work queued on the stream."""
    host = bytearray([POISON]) * size
    call(driver, "memcpy_dtoh_async", host, address, size, stream)
    call(driver, "stream_synchronize", stream)
    return host


def inside(offset: int, size: int, whole: int) -> None:
    if offset < 0 or size < 0 or offset + size > whole:
        raise InvalidArgumentError(f"{size} bytes at offset {offset} are not inside a block of {whole} bytes")
