"""Python functions that the library calls: the pressure callback and hooks of fault rules."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from typing import Any

import pytest

import pyvmm
from pyvmm import Block, Device, transfer

MIB = 1 << 20


class Mine(Exception):
    """An exception that no library knows."""


@pytest.fixture
def small() -> Generator[Device, None, None]:
    """A device with 64 MiB, so that memory is soon short."""
    with pyvmm.Device(driver=pyvmm.sim(memory="64MiB").faulty()) as device:
        yield device


def faulty(device: Device) -> pyvmm.Faulty:
    return device.driver.layer(pyvmm.Faulty)


# ---- pressure ----


def test_what_the_callback_frees_is_used(small: Device) -> None:
    with small.pool() as pool, small.pool() as needy:
        cache: list[Block] = [pool.alloc("8MiB") for _ in range(6)]
        asked: list[tuple[Device, int]] = []

        def pressure(device: Device, size: int) -> int:
            asked.append((device, size))
            cache.clear()
            return pool.trim()

        small.set_pressure(pressure)
        with needy.alloc("40MiB") as block:
            assert block.address
        assert asked
        assert asked[0][0] is small
        assert asked[0][1] > 0
        assert small.stats.pressure_count == len(asked)


def test_a_callback_that_frees_nothing(small: Device) -> None:
    small.set_pressure(lambda device, size: None)
    with small.pool() as pool:
        with pytest.raises(pyvmm.OutOfMemoryError):
            pool.alloc("65MiB")
        pool.check()
        pool.alloc("8MiB").close()


@pytest.mark.parametrize("error", [Mine("full"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_its_own_exception_comes_out(small: Device, error: BaseException) -> None:
    def pressure(device: Device, size: int) -> int:
        raise error

    with small.pool() as pool:
        kept = pool.alloc(4096)
        before = pool.stats
        small.set_pressure(pressure)
        for call in (lambda: pool.alloc("128MiB"), lambda: pool.alloc("128MiB", tag=1), lambda: pool.grow("128MiB")):
            with pytest.raises(type(error)) as caught:
                call()
            assert caught.value is error
        assert any("callback" in note for note in getattr(error, "__notes__", ()))
        after = pool.stats
        assert (after.committed_bytes, after.block_count) == (before.committed_bytes, 1)
        small.set_pressure(None)
        pool.alloc("8MiB").close()
        pool.check()
        kept.close()


@pytest.mark.parametrize(
    ("answer", "expected"), [(-1, pyvmm.CallbackError), ("lots", ValueError), (2**63, ValueError), ([], TypeError)]
)
def test_answers_that_are_none(small: Device, answer: Any, expected: type[Exception]) -> None:
    small.set_pressure(lambda device, size: answer)
    with small.pool() as pool:
        with pytest.raises(expected):
            pool.alloc("128MiB")
        pool.check()


def test_what_is_allowed_inside(small: Device) -> None:
    """Free, trim and looking are; growing and closing are answered BUSY, and nothing hangs."""
    with small.pool() as pool, small.pool() as other:
        block, spare = other.alloc("8MiB"), other.alloc(4096)
        answers: list[str] = []

        def attempt(name: str, call: Any) -> None:
            try:
                call()
                answers.append(f"{name} ok")
            except pyvmm.BusyError:
                answers.append(f"{name} busy")

        def pressure(device: Device, size: int) -> int:
            attempt("grow", lambda: other.grow("16MiB"))
            attempt("close pool", pool.close)
            attempt("force pool", lambda: pool.close(force=True))
            attempt("close device", device.close)
            attempt("stats", lambda: (pool.stats, device.stats, other.blocks(), device.info))
            attempt("free", block.free)
            attempt("trim", other.trim)
            attempt("alloc what fits", lambda: other.alloc(64).close())
            small.set_pressure(None)
            return 0

        small.set_pressure(pressure)
        with pytest.raises(pyvmm.OutOfMemoryError):
            pool.alloc("80MiB")
        assert answers == [
            "grow busy", "close pool busy", "force pool busy", "close device busy", "stats ok", "free ok", "trim ok",
            "alloc what fits ok",
        ]  # fmt: skip
        assert not pool.closed
        spare.close()


def test_garbage_collected_inside_a_callback(small: Device) -> None:
    """Blocks die while the library is in the middle of a growth: they are freed by a later call, and nothing hangs."""
    with small.pool() as pool, small.pool() as needy:

        def make_garbage() -> None:
            for _ in range(5):
                cycle: list[Any] = [pool.alloc("8MiB")]
                cycle.append(cycle)

        make_garbage()
        collected: list[int] = []

        def pressure(device: Device, size: int) -> int:
            gc.collect()
            collected.append(1)
            return pool.trim()

        small.set_pressure(pressure)
        with needy.alloc("40MiB"):
            assert collected
            assert pool.stats.block_count == 0


def test_garbage_collected_inside_a_hook(small: Device) -> None:
    with small.pool() as pool:
        dropped: list[Block] = [pool.alloc(4096) for _ in range(10)]

        def hook(call: str, opportunity: int) -> None:
            dropped.clear()
            gc.collect()

        faulty(small).add(op="cuMemMap", hook=hook)
        with pool.alloc("16MiB"):
            assert not dropped
            assert pool.stats.block_count == 1
        faulty(small).clear()
        pool.check()


def test_callbacks_can_be_replaced_and_cleared(small: Device) -> None:
    seen: list[str] = []
    with small.pool() as pool:
        for name in ("first", "second"):
            small.set_pressure(lambda device, size, name=name: seen.append(name))  # type: ignore[misc]
            with pytest.raises(pyvmm.OutOfMemoryError):
                pool.alloc("128MiB")
        small.set_pressure(None)
        with pytest.raises(pyvmm.OutOfMemoryError):
            pool.alloc("128MiB")
    assert set(seen) == {"first", "second"}
    assert seen == sorted(seen)


def test_a_dropped_device_takes_its_callback_along() -> None:
    driver = pyvmm.sim(memory="64MiB")
    seen: list[int] = []
    device: Device | None = pyvmm.Device(driver=driver, pressure=lambda device, size: seen.append(size))
    del device
    gc.collect()
    with pyvmm.Device(driver=driver) as again, again.pool() as pool:
        with pytest.raises(pyvmm.OutOfMemoryError):
            pool.alloc("128MiB")
    assert seen == []
    assert driver.ledger().primary_references == 0


def test_each_thread_gets_its_own_exception(small: Device) -> None:
    def pressure(device: Device, size: int) -> int:
        raise Mine(threading.current_thread().name)

    small.set_pressure(pressure)
    wrong: list[Any] = []
    with small.pool() as pool:

        def work() -> None:
            for _ in range(20):
                pool.alloc(64).close()
                try:
                    pool.alloc("128MiB")
                except Mine as error:
                    if str(error) != threading.current_thread().name:
                        wrong.append(error)
                except BaseException as error:
                    wrong.append(error)
                else:
                    wrong.append("no error")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


# ---- hooks ----


@pytest.mark.parametrize("options", [{}, {"tag": 5}])
def test_a_hook_that_raises_leaves_no_block_behind(small: Device, options: dict[str, Any]) -> None:
    def hook(call: str, opportunity: int) -> None:
        raise Mine(call)

    with small.pool() as pool:
        pool.alloc(64).close()
        faulty(small).add(op="cuMemMap", hook=hook)
        with pytest.raises(Mine, match="cuMemMap"):
            pool.alloc("16MiB", **options)
        with pytest.raises(Mine, match="cuMemMap"):
            pool.grow("32MiB")
        faulty(small).clear()
        assert pool.stats.block_count == 0
        pool.alloc("16MiB").close()
        pool.check()


def test_what_nobody_gets_is_still_behind_its_stream(small: Device) -> None:
    def hook(call: str, opportunity: int) -> None:
        if not raised:
            raised.append(call)
            raise Mine(call)

    raised: list[str] = []
    with small.current(), small.pool(events="eager", limit="32MiB") as pool:
        stream, other = (transfer.call(small.driver, "stream_create", 1) for _ in range(2))
        pool.alloc(4096, stream=other).close()
        block = pool.alloc(MIB, stream=stream)
        start = block.address
        transfer.call(small.driver, "kernel_spin", stream, 30_000_000)
        transfer.call(small.driver, "kernel_fill", stream, start, MIB, 3)
        block.close()
        faulty(small).add(op="cuStreamGetId", hook=hook)
        with pytest.raises(Mine):
            pool.alloc(MIB, stream=stream)  # the same memory, behind the work
        faulty(small).clear()
        assert pool.stats.block_count == 0
        with pool.alloc(MIB, stream=other) as later:
            assert later.address != start
        for one in (stream, other):
            transfer.call(small.driver, "stream_synchronize", one)
            transfer.call(small.driver, "stream_destroy", one)


def test_a_hook_that_raises_leaves_no_pool_behind(small: Device) -> None:
    def hook(call: str, opportunity: int) -> None:
        raise Mine(call)

    faulty(small).add(op="cuMemAddressReserve", hook=hook)
    with pytest.raises(Mine):
        small.pool()
    faulty(small).clear()
    assert (small.stats.pool_count, small.driver.sim.ledger().reservations) == (0, 0)


def test_a_hook_may_use_the_driver(small: Device) -> None:
    """The race behind the library: work is queued between the wait and the set-access."""
    raw = small.driver.sim.raw
    small.driver.sim.set_not_ready("pending")

    def hook(call: str, opportunity: int) -> None:
        if opportunity == 1:
            assert raw.kernel_spin(0, 100_000) == 0

    with small.current(), small.pool() as pool:
        faulty(small).add(op="cuMemSetAccess", times="ever", hook=hook)
        with pool.alloc("4MiB"):
            stats = pool.stats
            assert stats.not_ready_count >= 1
            assert stats.retry_count >= 1
        faulty(small).clear()
