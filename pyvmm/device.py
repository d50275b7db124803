"""One GPU, as all pools on it share it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from . import callbacks, errors, reaper, sizes, streams, transfer
from ._vmm import ffi, lib
from .drivers import Driver, cuda
from .errors import check, new
from .gate import Gate
from .lease import Lease
from .options import fill
from .records import BlockInfo, CallStats, DeviceInfo, DeviceStats, Event, array, read
from .records import new as new_record

if TYPE_CHECKING:
    from .pool import Pool

Pressure: TypeAlias = Callable[["Device", int], int | None]
"""Memory is short by so many bytes: give back what you can, and say how much that was. Free and trim are allowed."""

EVENTS = 256


def settle(status: int, detail: Any, done: int = 0) -> None:
    """After a call that may run callbacks: raises what one of them raised, else what the call answered."""
    if callbacks.pending:
        original = callbacks.take()
        if original is not None:
            if status:
                errors.add_note(
                    original, f"raised in a callback; the call then failed: {errors.exception(status, detail)}"
                )
            raise original
    if status:
        raise errors.exception(status, detail, done)


class Device(reaper.Owner):
    """A GPU by CUDA's number, on the CUDA driver of this machine or on the driver given.

    Options: context (a CUcontext), sync_policy ("auto", "device", "streams", "on_demand"), retry_attempts, retry_first,
    retry_max and deadline in seconds (or retry_first_ns, ...), limit, idle_limit, detect_captures,
    fallback ("never", "allowed", "always": plain allocations where there is no virtual memory management, or anyway).
    """

    def __init__(
        self, ordinal: int = 0, *, driver: Driver | None = None, pressure: Pressure | None = None, **options: Any
    ) -> None:
        reaper.reap()
        prefixes = {"sync_policy": "VMM_SYNC_", "fallback": "VMM_FALLBACK_"}
        filled = fill("Device()", "vmm_device_options", options, prefixes)
        self.driver = cuda() if driver is None else driver
        filled.driver = self.driver.pointer
        pointer, error = ffi.new("vmm_device **"), new()
        try:
            status = lib.vmm_device_open(pointer, ordinal, filled, error)
        except OverflowError:
            raise errors.InvalidArgumentError(f"ordinal: {ordinal} is no device") from None
        settle(status, error)
        self.ordinal = ordinal
        self._gate = Gate(pointer[0], "device")
        self._pools: weakref.WeakValueDictionary[int, Pool] = weakref.WeakValueDictionary()
        self._context = int(ffi.cast("uintptr_t", filled.context))
        self._pressure = 0
        self._callback: Pressure | None = None
        if pressure is not None:
            self.set_pressure(pressure)

    def __repr__(self) -> str:
        return f"<pyvmm.Device {self.ordinal} on {self.driver.name}{', closed' if self.closed else ''}>"

    # ---- life ----

    @property
    def closed(self) -> bool:
        return self._gate.closed

    def close(self) -> None:
        """Ends this use of the device. BusyError while pools stand on it. Closing twice is fine."""
        reaper.reap()
        callback = self._callback
        if callback is not None and not self.closed:
            self.set_pressure(None)  # another use of the device may go on, without this one's callback
        try:
            _end_device(self._gate)
        except errors.VmmError:
            if callback is not None and not self.closed:
                self.set_pressure(callback)
            raise

    def __enter__(self) -> Device:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except errors.VmmError as second:  # the first failure is the one to show
            errors.add_note(error, f"closing the device failed too: {second}")

    def __del__(self, queue: deque[Callable[[], None]] = reaper.objects) -> None:
        gate = getattr(self, "_gate", None)
        if gate is None or gate.closed:
            return
        driver, key = self.driver, self._pressure  # the driver is kept until the device is closed

        def end() -> None:
            if key:
                _clear_pressure(gate, key)
            try:
                _end_device(gate)
            except errors.ForkedError:
                pass
            except errors.VmmError as error:
                reaper.warn(f"a device on {driver.name} was dropped, and could not be closed: {error}")

        queue.append(end)

    def current(self) -> AbstractContextManager[None]:
        """`with device.current():` makes the device's context current, for driver.raw and for other libraries."""
        return transfer.current(self.driver, self.ordinal, self._context)

    # ---- pools ----

    def pool(self, **options: Any) -> Pool:
        """A pool on this device; see Pool for the options."""
        from .pool import Pool

        return Pool(self, **options)

    def find(self, address: int) -> tuple[Pool | None, BlockInfo]:
        """The live block that holds an address, and its pool (None if the pool was not made here)."""
        reaper.reap()
        pool, block, error = ffi.new("vmm_pool **"), new_record(BlockInfo), new()
        with self._gate as device:
            check(lib.vmm_device_find(device, sizes.integer(address, "address"), pool, block, error), error)
        return self._pools.get(int(ffi.cast("uintptr_t", pool[0]))), read(BlockInfo, block)

    # ---- what it knows ----

    @property
    def info(self) -> DeviceInfo:
        struct, error = new_record(DeviceInfo), new()
        with self._gate as device:
            check(lib.vmm_device_get_info(device, struct, error), error)
        return read(DeviceInfo, struct)

    @property
    def stats(self) -> DeviceStats:
        reaper.reap()
        struct, error = new_record(DeviceStats), new()
        with self._gate as device:
            check(lib.vmm_device_get_stats(device, struct, error), error)
        return read(DeviceStats, struct)

    def calls(self) -> list[CallStats]:
        """Count, failures and times of the driver calls the device made."""
        count, entries, error = ffi.new("size_t *"), array(CallStats, lib.VMM_OP_COUNT), new()
        with self._gate as device:
            check(lib.vmm_device_get_calls(device, entries, len(entries), count, error), error)
        return [read(CallStats, entries[i]) for i in range(min(len(entries), count[0]))]

    def events(self, after: int = 0) -> list[Event]:
        """What happened lately, oldest first, with a sequence above `after`."""
        count, entries, error = ffi.new("size_t *"), array(Event, EVENTS), new()
        with self._gate as device:
            check(lib.vmm_device_get_events(device, after, entries, EVENTS, count, error), error)
        return [read(Event, entries[i]) for i in range(count[0])]

    # ---- limits and giving back ----

    @property
    def limit(self) -> int:
        """Bytes that all pools of the device may hold together; 0: no limit."""
        return self.stats.limit

    @limit.setter
    def limit(self, value: sizes.Size) -> None:
        number, error = sizes.parse(value, "limit"), new()
        with self._gate as device:
            check(lib.vmm_device_set_limit(device, number, error), error)

    def trim(self, keep: sizes.Size = 0) -> int:
        """Gives idle handles back until at most `keep` bytes of them are left. Answers the bytes given back."""
        reaper.reap()
        done, error, number = ffi.new("unsigned long long *"), new(), sizes.parse(keep, "keep")
        with self._gate as device:
            status = lib.vmm_device_trim(device, number, done, error)
        settle(status, error, done[0])
        return int(done[0])

    def set_pressure(self, callback: Pressure | None) -> None:
        """Sets or clears what is called when memory is short. What it raises is raised by the call that asked."""
        old, error = self._pressure, new()
        if callback is None:
            _clear_pressure(self._gate, old)
            self._pressure, self._callback = 0, None
            return
        here = weakref.ref(self)

        def call(size: int) -> int | None:
            device = here()
            return callback(device, size) if device is not None else 0

        key = callbacks.register(call)
        try:
            with self._gate as device:
                status = lib.vmm_device_set_pressure(device, lib.vmm_py_pressure, callbacks.data(key), error)
            check(status, error)
        except BaseException:
            callbacks.forget(key)
            raise
        self._pressure, self._callback = key, callback
        callbacks.forget(old)
        reaper.unhook_at_exit(self)

    def unhook(self) -> None:
        """The library calls no Python from here on."""
        self.set_pressure(None)

    # ---- streams ----

    def register_stream(self, stream: streams.Stream) -> None:
        """Tells the device of a stream that work on its memory is queued on."""
        error = new()
        with self._gate as device:
            check(lib.vmm_device_register_stream(device, streams.pointer(stream), error), error)

    def forget_stream(self, stream: streams.Stream) -> None:
        """Work it had queued is still waited for; the handle is never touched again."""
        error = new()
        with self._gate as device:
            check(lib.vmm_device_forget_stream(device, streams.pointer(stream), error), error)

    @contextmanager
    def capture(self, stream: streams.Stream) -> Iterator[Lease]:
        """Announces that a stream is captured in the body: begin and end the capture inside it.

        Gives the lease on the memory that the graph uses; it holds once the body is left. A body that raises gives the
        capture up: its memory comes back.
        """
        pointer, error, lease = streams.pointer(stream), new(), Lease(self._gate)
        cell = ffi.new("vmm_lease **")
        with self._gate as device:
            check(lib.vmm_device_capture_begin(device, pointer, error), error)
        how = lib.VMM_CAPTURE_ABORTED
        try:
            yield lease
            how = lib.VMM_CAPTURE_COMMITTED
        finally:
            with self._gate as device:
                status = lib.vmm_device_capture_end(device, pointer, how, cell, error)
            lease._hold(cell[0])
        check(status, error)


def _clear_pressure(gate: Gate, key: int) -> None:
    error = new()
    with gate as device:
        check(lib.vmm_device_set_pressure(device, ffi.cast("vmm_pressure_callback", 0), ffi.NULL, error), error)
    callbacks.forget(key)


def _end_device(gate: Gate) -> None:
    error, status = new(), lib.VMM_OK

    def end(pointer: Any) -> None:
        nonlocal status
        status = lib.vmm_py_device_close(gate.cell, pointer, error)

    gate.close(end)
    settle(status, error)
