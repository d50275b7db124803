"""Closing pools and devices, and what then becomes of those who use them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import pyvmm
from pyvmm import Device, Driver, Pool, reaper
from pyvmm._vmm import lib


def test_a_pool_with_blocks_is_busy(device: Device) -> None:
    pool = device.pool()
    block = pool.alloc(4096)
    address = pool.alloc_address(4096)
    with pytest.raises(pyvmm.BusyError) as caught:
        pool.close()
    assert caught.value.size == 2
    block.write(b"whole")
    assert block.read(5) == b"whole"
    pool.free_address(address)
    with pytest.raises(pyvmm.BusyError):
        device.close()
    pool.close(force=True)
    pool.close()
    assert pool.closed
    assert block.closed
    with pytest.raises(pyvmm.ClosedError, match="pool of the block"):
        _ = block.address
    with pytest.raises(pyvmm.ClosedError):
        block.free()
    block.close()


@pytest.mark.parametrize("how", ["free", "idle", "stream", "streams", "close", "drop"])
def test_a_block_freed_while_a_close_is_refused_is_free_afterwards(device: Device, how: str) -> None:
    """The thread that closes has taken the pool out, and puts it back."""
    pool = device.pool()
    kept, block = pool.alloc(4096), pool.alloc(4096)
    gate = pool._gate
    gate.PATIENCE = 0.0
    with gate.lock:
        pointer = lib.vmm_py_take(gate.cell)
        if how == "drop":
            del block
        elif how == "close":
            block.close()
        else:
            named: dict[str, dict[str, Any]] = {
                "idle": {"idle": True},
                "stream": {"stream": 0},
                "streams": {"streams": [0]},
            }
            block.free(**named.get(how, {}))
        reaper.free_blocks()  # as any other call does
        lib.vmm_py_put(gate.cell, pointer)
    kept.close()
    assert pool.stats.block_count == 0
    # Whoever was told to free it may have ended the stream since; for a destructor the home stream is there.
    assert pool.stats.limbo_count == (0 if how == "drop" else 1)
    pool.close()


def test_a_closed_pool_answers(device: Device) -> None:
    pool = device.pool()
    address = pool.alloc_address(64)
    pool.close(force=True)
    calls: list[Callable[[], Any]] = [
        lambda: pool.alloc(1), lambda: pool.alloc(1, tag=1), lambda: pool.alloc_address(1),
        lambda: pool.free_address(address),
        lambda: pool.free_address(address, idle=True), lambda: pool.grow(1), pool.trim, lambda: pool.stats, pool.blocks,
        pool.mappings, pool.check, lambda: pool.find(address), lambda: pool.add_peer(0), lambda: pool.limit,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(pyvmm.ClosedError, match="pool is closed"):
            call()


def test_a_closed_device_answers(driver: Driver) -> None:
    device = pyvmm.Device(driver=driver)
    device.close()
    device.close()
    assert device.closed
    calls: list[Callable[[], Any]] = [
        device.pool, device.trim, device.calls, device.events, lambda: device.info, lambda: device.stats,
        lambda: device.find(1), lambda: device.register_stream(0), lambda: device.set_pressure(lambda *_: 0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(pyvmm.ClosedError, match="device is closed"):
            call()


def test_leaving_with_on_an_error_shows_the_error(device: Device) -> None:
    pool = device.pool()
    pool.alloc_address(1)
    with pytest.raises(KeyError, match="mine"), pool:
        raise KeyError("mine")
    assert pool.closed
    with pytest.raises(pyvmm.BusyError):
        with device.pool() as pool:
            pool.alloc_address(1)
    pool.close(force=True)


def test_closing_while_other_threads_work(device: Device) -> None:
    """Threads use a pool while it is closed under them: each call works or says ClosedError, none crashes."""
    for _ in range(20):
        pool = device.pool(initial="2MiB")
        outcomes: list[str] = []
        start = threading.Barrier(5)

        def work(pool: Pool = pool, start: threading.Barrier = start, outcomes: list[str] = outcomes) -> None:
            start.wait()
            try:
                while True:
                    pool.free_address(pool.alloc_address(512))
            except pyvmm.ClosedError:
                outcomes.append("closed")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        pool.close(force=True)
        for thread in threads:
            thread.join()
        assert outcomes == ["closed"] * 4
