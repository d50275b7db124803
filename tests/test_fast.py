"""The short way of allocs and frees that simply fit: it gives what the long way gives, and leaves the rest to that."""

from __future__ import annotations

import enum
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import pyvmm
from pyvmm import Block, Device, Pool, reaper

MIB = 1 << 20


class Size(enum.IntEnum):
    PAGE = 4096


@pytest.fixture
def sim_device() -> Generator[Device, None, None]:
    """A device whose driver can be made to fail."""
    with pyvmm.Device(driver=pyvmm.sim(memory="1GiB").faulty()) as device:
        yield device


def stream_of(device: Device) -> int:
    with device.current():
        code, stream = device.driver.raw.stream_create(1)
    assert code == 0
    return int(stream)


# ---- arguments ----


@pytest.mark.parametrize("size", [4096, "4KiB", Size.PAGE, np.int64(4096), np.uint8(200), 0, 100_000, 3 * MIB])
def test_whatever_is_a_size_is_taken(device: Device, size: Any) -> None:
    with device.pool(initial="8MiB") as pool:
        wanted = 4096 if isinstance(size, str) else int(size)
        address = pool.alloc_address(size)
        assert pool.find(address).requested == wanted
        pool.free_address(np.uint64(address))
        with pool.alloc(size) as block, pool.alloc(size=size) as other:
            assert (block.nbytes, other.nbytes, block.tag) == (wanted, wanted, 0)
            assert pool.find(block.address).requested == wanted
        assert pool.stats.block_count == 0


@pytest.mark.parametrize("wrong", [None, 1.5, b"64", [], True, object()])
def test_what_is_no_number_is_a_type_error_and_changes_nothing(device: Device, wrong: Any) -> None:
    with device.pool(initial="2MiB") as pool:
        address = pool.alloc_address(100)
        for call in (pool.alloc, pool.alloc_address):
            with pytest.raises(TypeError):
                call(wrong)
        if wrong is not True:
            with pytest.raises(TypeError):
                pool.free_address(wrong)
        calls: list[Callable[..., Any]] = [pool.alloc, pool.alloc_address, pool.free_address]
        for call in calls:
            for names in ({}, {"steam": 1}):
                with pytest.raises(TypeError):
                    call(**names)
            with pytest.raises(TypeError):
                call(address, frobnicate=1)
            with pytest.raises(TypeError):
                call(*range(20))
        assert pool.stats.block_count == 1
        pool.free_address(address)


@pytest.mark.parametrize("number", [-1, 2**64, 2**64 - 1, 10**40, -(2**63)])
def test_numbers_out_of_range(device: Device, number: int) -> None:
    with device.pool(initial="2MiB") as pool:
        for call in (pool.alloc, pool.alloc_address):
            with pytest.raises(pyvmm.InvalidArgumentError):
                call(number)
        with pytest.raises(pyvmm.UnknownAddressError):
            pool.free_address(number)
        if not 0 <= number < 2**64:
            for wrong in (lambda: pool.alloc(1, stream=number), lambda: pool.alloc_address(1, number)):
                with pytest.raises(pyvmm.InvalidArgumentError):
                    wrong()
        assert pool.stats.block_count == 0


def test_errors_are_those_of_the_long_way(sim_device: Device) -> None:
    with sim_device.pool(limit="2MiB") as pool:
        caught = []
        for call in (
            lambda: pool.alloc(5 * MIB),
            lambda: pool.alloc(5 * MIB, tag=1),
            lambda: pool.alloc_address(5 * MIB),
        ):
            with pytest.raises(pyvmm.LimitError) as info:
                call()
            caught.append((info.value.size, info.value.status, str(info.value).split(":")[-1]))
        assert caught[0] == caught[1] == caught[2]
        assert pool.stats.alloc_failures == 3
        address = pool.alloc_address(1)
        with pytest.raises(pyvmm.UnknownAddressError) as unknown:
            pool.free_address(address + 1)
        assert unknown.value.address == address + 1
        pool.free_address(address)


# ---- blocks ----


def test_blocks_come_from_pools_alone(device: Device) -> None:
    with pytest.raises(TypeError, match=r"Pool\.alloc"):
        Block()
    stray = Block.__new__(Block)
    stray.close()
    for name in ("address", "pool"):
        with pytest.raises(AttributeError):
            getattr(stray, name)
    with pytest.raises(AttributeError):
        stray.free()
    del stray
    with device.pool() as pool, pool.alloc(1) as block:
        for name in ("pool", "nbytes", "tag"):
            with pytest.raises(AttributeError):
                setattr(block, name, 1)
        with pytest.raises(TypeError):
            block.free(frobnicate=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            pool._open(pool._gate, 0, 0, Block, reaper.blocks)
        assert not block.closed


def test_what_is_dropped_is_free_at_once_where_that_is_simple(device: Device) -> None:
    stream = stream_of(device)
    with device.pool(initial="4MiB") as pool:
        for on in (None, stream):
            block = pool.alloc(MIB, stream=on)
            del block
            assert not reaper.blocks
        assert (pool.stats.block_count, pool.stats.free_count) == (0, 2)


def test_what_is_dropped_in_a_capture_waits_for_the_next_call(sim_device: Device) -> None:
    stream = stream_of(sim_device)
    with sim_device.pool(initial="4MiB") as pool:
        block, weak = pool.alloc(MIB), None
        weak = weakref.ref(block)
        with sim_device.capture(stream):
            del block
            assert weak() is None
            assert len(reaper.blocks) == 1
        address = pool.alloc_address(100)
        assert not reaper.blocks
        pool.free_address(address)
        assert (pool.stats.block_count, pool.stats.free_count) == (0, 2)


def test_a_block_in_a_cycle_is_found(device: Device) -> None:
    with device.pool(initial="4MiB") as pool:
        block = pool.alloc(100)
        ring: list[Any] = [block]
        ring.append(ring)
        del block, ring
        gc.collect()
        assert pool.stats.block_count == 0
    lone = device.pool(initial="4MiB")
    lone.mine = lone.alloc(100)  # type: ignore[attr-defined]
    weak = weakref.ref(lone)
    del lone
    gc.collect()
    assert weak() is None
    assert device.stats.pool_count == 0


def test_a_destructor_leaves_an_exception_alone(sim_device: Device) -> None:
    def body(pool: Pool) -> None:
        block = pool.alloc(100)
        assert block.nbytes == 100
        raise KeyError("mine")

    with sim_device.pool() as pool, sim_device.capture(stream_of(sim_device)):
        with pytest.raises(KeyError, match="mine"):
            body(pool)
        gc.collect()


def test_nothing_is_counted_twice_or_never(device: Device) -> None:
    """References: a slip in the compiled half shows here."""
    with device.pool(initial="4MiB") as pool:
        stream, size = 2**40 + 7, 10**5

        def work() -> None:
            for _ in range(100):
                pool.free_address(pool.alloc_address(size))
                pool.alloc(size).close()
                pool.alloc(size).free(idle=True)
                pool.alloc(size, tag=1).free()
                with pool.alloc(size) as block:
                    assert block.pool is pool
                pool.alloc(size)
                for wrong in (-1, object()):
                    with pytest.raises((ValueError, TypeError)):
                        pool.alloc(1, stream=wrong)
                with pytest.raises(pyvmm.UnknownAddressError):
                    pool.free_address(12345, stream=stream)

        held = (pool, Block, stream, size, None, pool._gate)
        work()
        gc.collect()
        before = [sys.getrefcount(one) for one in held[:4]] + [sys.getrefcount(held[5])]
        work()
        gc.collect()
        after = [sys.getrefcount(one) for one in held[:4]] + [sys.getrefcount(held[5])]
        assert all(abs(a - b) < 50 for a, b in zip(before, after, strict=True)), (before, after)
        assert pool.stats.block_count == 0


def test_the_short_way_calls_no_driver() -> None:
    recorder = pyvmm.sim(memory="1GiB").recorded()
    with pyvmm.Device(driver=recorder) as device, device.pool(initial="64MiB") as pool:
        stream = stream_of(device)
        for turn, size in enumerate((1, 5000, MIB, 5 * MIB) * 20):
            if turn == 4:
                recorder.clear()
            pool.alloc(size).close()
            pool.alloc(size, stream=stream).close()
            pool.free_address(pool.alloc_address(size, stream), stream=stream)
            pool.alloc(size)
        assert recorder.count() == 0, recorder.text()


def test_streams_keep_their_memory_apart(sim_device: Device) -> None:
    """Whoever gets memory early is reported by the simulator."""
    raw, stream = sim_device.driver.raw, stream_of(sim_device)
    with sim_device.pool(initial="4MiB") as pool, pool.alloc(1):
        block = pool.alloc(MIB, stream=stream)
        assert (block.stream, block._stream) == (stream, stream)
        with sim_device.current():
            assert raw.kernel_spin(stream, 50_000_000) == 0
        address = block.address
        block.close()
        with pool.alloc(MIB) as other, pool.alloc(MIB, stream=stream) as again:
            assert (other.address == address, again.address) == (False, address)


# ---- threads and callbacks ----


def test_a_growth_lets_other_threads_run(sim_device: Device) -> None:
    """The interpreter's lock is not held while the driver works, and a callback may take the short way itself."""
    faulty = sim_device.driver.layer(pyvmm.Faulty)
    with sim_device.pool(initial="2MiB") as pool:
        first, last = pool.alloc(MIB), pool.alloc(MIB)
        first.close()  # not part of the tail that the growth takes
        grows, seen = threading.Event(), threading.Event()
        done: list[int] = []

        def hook(call: str, opportunity: int) -> None:
            pool.free_address(pool.alloc_address(100))
            grows.set()
            assert seen.wait(20)

        def other() -> None:
            assert grows.wait(20)
            for _ in range(100):
                pool.alloc(1000).close()
            done.append(1)
            seen.set()

        faulty.add(op="cuMemMap", hook=hook)
        thread = threading.Thread(target=other)
        thread.start()
        address = pool.alloc_address(64 * MIB)
        thread.join()
        assert done == [1]
        pool.free_address(address)
        faulty.clear()
        last.close()
        assert pool.stats.alloc_count == pool.stats.free_count == 104


def test_what_a_callback_raises_comes_out_of_the_short_way(sim_device: Device) -> None:
    def pressure(device: Device, size: int) -> int:
        raise KeyError("mine")

    sim_device.set_pressure(pressure)
    with sim_device.pool() as pool:
        for call in (pool.alloc, pool.alloc_address):
            with pytest.raises(KeyError, match="mine"):
                call(2 << 30)
        assert pool.stats.block_count == 0


@pytest.mark.parametrize("way", ["close", "drop", "with", "stream", "address"])
def test_many_threads_and_a_close(sim_device: Device, way: str) -> None:
    """Each call works or says ClosedError; nothing is freed twice and nothing is lost."""
    stream = stream_of(sim_device)

    def use(pool: Pool, size: int) -> None:
        if way == "close":
            pool.alloc(size).close()
        elif way == "drop":
            pool.alloc(size)
        elif way == "with":
            with pool.alloc(size) as block:
                assert block.nbytes == size
        elif way == "stream":
            pool.alloc(size, stream=stream).close()
        else:
            pool.free_address(pool.alloc_address(size))

    def work(pool: Pool, number: int, start: threading.Barrier, outcomes: list[str], rounds: int) -> None:
        start.wait()
        try:
            for turn in range(rounds):
                use(pool, 256 * (1 + (turn * number) % 100))
            outcomes.append("done")
        except pyvmm.ClosedError:
            outcomes.append("closed")

    for closes in (False, True):
        pool = sim_device.pool(initial="8MiB")
        outcomes: list[str] = []
        start = threading.Barrier(5)
        arguments = [(pool, number, start, outcomes, 10**9 if closes else 300) for number in range(1, 5)]
        threads = [threading.Thread(target=work, args=one) for one in arguments]
        for thread in threads:
            thread.start()
        start.wait()
        if closes:
            pool.close(force=True)
        for thread in threads:
            thread.join()
        assert outcomes == ["closed" if closes else "done"] * 4
        if not closes:
            stats = pool.stats
            assert (stats.block_count, stats.alloc_count) == (0, stats.free_count) == (0, 1200)
            pool.check()
            pool.close()
