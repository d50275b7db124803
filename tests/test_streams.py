"""Alloc and free in the order of streams from Python, on the simulated device and on a GPU."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

import pyvmm
from pyvmm import Device, Pool, transfer

MIB = 1 << 20
PER_THREAD = 2


@contextmanager
def stream_of(device: Device, eager: bool = False) -> Generator[int, None, None]:
    """A non-blocking stream of the device's context, forgotten and destroyed afterwards."""
    with device.current():
        stream = transfer.call(device.driver, "stream_create", 1)
        try:
            yield stream
        finally:
            transfer.call(device.driver, "stream_synchronize", stream)
            if not eager:
                device.forget_stream(stream)
            transfer.call(device.driver, "stream_destroy", stream)


class Torch:
    def __init__(self, stream: int) -> None:
        self.cuda_stream = stream


class Cupy:
    def __init__(self, stream: int) -> None:
        self.ptr = stream


class Protocol:
    def __init__(self, stream: int) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream)


@pytest.mark.parametrize("kind", [int, Torch, Cupy, Protocol])
@pytest.mark.parametrize("events", ["lazy", "eager"])
def test_a_block_remembers_its_stream(device: Device, kind: Any, events: str) -> None:
    with device.pool(events=events) as pool, stream_of(device, events == "eager") as number:
        stream = kind(number)
        home = pool.alloc(4096)
        block = pool.alloc(3 * MIB, stream=stream)
        assert (home.stream, block.stream) == (pool.home_stream, number)
        assert block.__cuda_array_interface__["stream"] == number
        block.write(b"stream")
        assert block.read(6) == b"stream"
        address = block.address
        block.close()
        again = pool.alloc(3 * MIB, stream=stream, tag=7)
        assert (again.address, again.tag, pool.stats.stream_count) == (address, 7, 1)
        again.free()
        assert pool.stats.limbo_count == 0
        home.close()
        pool.check()


def test_the_integer_path(device: Device) -> None:
    with device.pool() as pool, stream_of(device) as stream:
        address = pool.alloc_address(4096, stream)
        pool.free_address(address, stream=stream)
        assert pool.alloc_address(4096, stream) == address
        pool.free_address(address, streams=[stream, 0])
        with pytest.raises(pyvmm.UnknownAddressError):
            pool.free_address(address, stream=stream)
        with pytest.raises(pyvmm.UnknownAddressError):
            pool.free_address(address, streams=[stream, 0])
        other = pool.alloc_address("4KiB", Torch(stream))
        pool.free_address(other, stream=Cupy(stream))
        for wrong in ("stream", object(), 1.5):
            with pytest.raises(TypeError):
                pool.alloc_address(4096, wrong)
        with pytest.raises(pyvmm.InvalidArgumentError):
            pool.alloc_address(4096, -1)
        assert pool.stats.block_count == 0


def test_other_ways_to_free(device: Device) -> None:
    with device.pool() as pool, stream_of(device) as a, stream_of(device) as b:
        pool.alloc(4096, stream=b).close()
        pool.alloc(4096, stream=a).free(stream=b)
        pool.alloc(4096, stream=a).free(stream=Torch(b))
        pool.alloc(4096, stream=a).free(idle=True)
        assert pool.stats.limbo_count == 0
        pool.alloc(4096, stream=a).free(streams=[a, Cupy(b)])
        assert pool.stats.limbo_count == 1
        block = pool.alloc(4096, stream=a)
        for wrong in ({"idle": True, "stream": a}, {"stream": a, "streams": [b]}):
            with pytest.raises(TypeError):
                block.free(**wrong)
        with pytest.raises(pyvmm.InvalidArgumentError):
            block.free(streams=[])
        with pytest.raises(TypeError):
            block.free(stream="none")
        assert not block.closed
        block.free()
        with pytest.raises(pyvmm.ClosedError):
            block.free(stream=b)
        assert pool.stats.block_count == 0
        pool.check()


@pytest.mark.parametrize("events", ["lazy", "eager"])
def test_a_dropped_block_is_freed_on_its_stream(device: Device, events: str) -> None:
    with device.pool(events=events) as pool, stream_of(device, events == "eager") as stream:
        pool.alloc(4096, stream=stream)
        gc.collect()
        stats = pool.stats
        assert stats.block_count == 0
        assert stats.limbo_count == (events == "eager")  # its stream may be gone by now, and must not be touched


def test_the_per_thread_stream_is_another_one_elsewhere(device: Device) -> None:
    def close_there() -> None:
        with device.current():
            block.close()

    with device.current(), device.pool() as pool:
        pool.alloc(4096, stream=PER_THREAD).close()
        assert pool.stats.limbo_count == 0
        block = pool.alloc(4096, stream=PER_THREAD)
        thread = threading.Thread(target=close_there)
        thread.start()
        thread.join()
        assert (pool.stats.block_count, pool.stats.limbo_count) == (0, 1)


def test_a_later_thread_of_the_same_number_has_another_stream(device: Device) -> None:
    def run(body: Callable[[], None]) -> int:
        thread = threading.Thread(target=body)
        thread.start()
        number = thread.ident
        thread.join()
        assert number is not None
        return number

    def first() -> None:
        with device.current():
            blocks.append(pool.alloc(4096, stream=PER_THREAD))

    def later() -> None:
        with device.current():
            pool.alloc(4096, stream=PER_THREAD).close()  # the pool knows its stream
            blocks[0].close()

    with device.current(), device.pool() as pool:
        for _ in range(100):
            blocks: list[pyvmm.Block] = []
            limbo = pool.stats.limbo_count
            number = run(first)
            same = run(later) == number
            assert (pool.stats.block_count, pool.stats.limbo_count) == (0, limbo + 1)
            if same:
                break


def busy(pool: Pool, stream: int, address: int, size: int) -> None:
    """Work on a block that lasts for a while."""
    raw = pool.device.driver.raw
    assert raw.kernel_spin(stream, 30_000_000) == 0
    assert raw.kernel_fill(stream, address, size, 3) == 0


def test_streams_do_not_share_memory_in_flight(device: Device) -> None:
    with device.pool(mapping_min=2 * MIB, mapping_max=2 * MIB) as pool, stream_of(device) as a, stream_of(device) as b:
        pool.alloc(4096, stream=b).close()
        first = pool.alloc(2 * MIB, stream=a)
        start = first.address
        busy(pool, a, start, 2 * MIB)
        first.close()
        assert pool.stats.ordered_bytes >= 2 * MIB
        other = pool.alloc(2 * MIB, stream=b)
        assert abs(other.address - start) >= 2 * MIB
        other.close()
        transfer.call(device.driver, "stream_synchronize", a)
        with pool.alloc(2 * MIB, stream=b), pool.alloc(2 * MIB, stream=b) as last:
            assert last.size == 2 * MIB
        assert pool.stats.seal_count >= 1
        pool.check()


@pytest.mark.parametrize("prefer_wait", [True, False])
def test_one_stream_waits_for_another(device: Device, prefer_wait: bool) -> None:
    options: dict[str, Any] = {"prefer_wait": True} if prefer_wait else {"limit": 2 * MIB}
    with (
        device.pool(mapping_min=2 * MIB, mapping_max=2 * MIB, **options) as pool,
        stream_of(device) as a,
        stream_of(device) as b,
    ):
        first = pool.alloc(2 * MIB, stream=a)
        start = first.address
        busy(pool, a, start, 2 * MIB)
        first.close()
        with pool.alloc(2 * MIB, stream=b) as second:
            assert second.address == start
            second.write(b"after")
            assert second.read(5) == b"after"
        assert (pool.stats.wait_count, pool.stats.committed_bytes) == (1, 2 * MIB)


def test_a_trim_that_does_not_wait(device: Device) -> None:
    with device.pool(mapping_min=2 * MIB, mapping_max=2 * MIB) as pool, stream_of(device) as stream:
        block = pool.alloc(2 * MIB, stream=stream)
        busy(pool, stream, block.address, 2 * MIB)
        block.close()
        assert pool.trim(wait=False) == pyvmm.Trimmed(0, 2 * MIB)
        assert (pool.stats.pending_bytes, pool.stats.committed_bytes) == (2 * MIB, 2 * MIB)
        assert pool.poll() == (0, 2 * MIB)
        transfer.call(device.driver, "stream_synchronize", stream)
        assert pool.poll() == (2 * MIB, 0)
        assert pool.poll() == (0, 0)
        assert pool.trim() == 0
        pool.check()


def test_nothing_raced() -> None:
    """What the simulator saw, over a mixture of all of it."""
    driver = pyvmm.sim(memory="4GiB")
    with pyvmm.Device(driver=driver) as device, device.pool(limit=8 * MIB) as pool:
        with stream_of(device) as a, stream_of(device) as b:
            for turn in range(60):
                stream = (a, b)[turn % 2]
                block = pool.alloc((turn % 5 + 1) * 300_000, stream=stream)
                driver.new_owner(block.address, block.nbytes)
                busy(pool, stream, block.address, 4096)
                block.close()
                if turn % 7 == 6:
                    pool.trim(wait=False)
        assert driver.misuse() == []


def test_options_are_checked(device: Device) -> None:
    for wrong in ({"events": "sometimes"}, {"events": 7}, {"prefer_wait": 2}):
        with pytest.raises((ValueError, pyvmm.InvalidArgumentError)):
            device.pool(**wrong)
