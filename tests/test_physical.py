"""Physical memory as a pool takes it: growth policies, moving, memory ahead of need; from Python."""

from __future__ import annotations

import time

import pytest

import pyvmm
from pyvmm import Block, Device, Driver


def fill(block: Block, seed: int) -> None:
    block.write(bytes((seed + i) % 251 for i in range(251)) * (block.nbytes // 251))


def holds(block: Block, seed: int) -> bool:
    size = block.nbytes // 251 * 251
    return block.read(size) == bytes((seed + i) % 251 for i in range(251)) * (size // 251)


def test_growth_policies(device: Device) -> None:
    granule = device.info.granularity
    with device.pool(growth_policy="exact", mapping_min=granule) as pool, pool.alloc(5 * granule):
        assert pool.stats.committed_bytes == 5 * granule
    with device.pool(growth_policy="fixed", growth_step=4 * granule) as pool, pool.alloc(1):
        assert pool.stats.committed_bytes == 4 * granule
    with device.pool() as pool, pool.alloc(5 * granule):
        assert pool.stats.committed_bytes >= 5 * granule
    with pytest.raises(pyvmm.InvalidArgumentError, match="exact, fixed, proportional"):
        device.pool(growth_policy="generous")


def test_memory_is_put_aside(device: Device) -> None:
    granule = device.info.granularity
    with device.pool(growth_policy="exact", mapping_min=granule, limit=8 * granule) as pool:
        pool.grow_async(3 * granule)
        assert (pool.stats.ready_bytes, pool.stats.committed_bytes) == (3 * granule, 0)
        created = device.stats.created_count
        with pool.alloc(3 * granule) as block:
            fill(block, 3)
            assert holds(block, 3)
        assert device.stats.created_count == created
        assert (pool.stats.ready_bytes, pool.stats.committed_bytes) == (0, 3 * granule)
        with pytest.raises(pyvmm.LimitError):
            pool.grow_async(6 * granule)


def test_the_pools_thread_keeps_head_room(device: Device) -> None:
    granule = device.info.granularity
    with device.pool(headroom=4 * granule, background=True) as pool, pool.alloc(granule):
        until = time.monotonic() + 10
        while pool.stats.idle_bytes < 4 * granule and time.monotonic() < until:
            time.sleep(0.001)
        assert pool.stats.idle_bytes >= 4 * granule


def test_plain_allocations_where_there_is_no_virtual_memory() -> None:
    driver = pyvmm.sim(no_vmm=True)
    with pytest.raises(pyvmm.UnsupportedError):
        Device(driver=driver)
    with Device(driver=driver, fallback="allowed") as device, device.pool() as pool:
        assert device.info.fallback == 1
        with pool.alloc("3MiB") as block, pool.alloc("5MiB") as other:
            fill(block, 1)
            fill(other, 2)
            assert holds(block, 1)
            assert holds(other, 2)
            assert pool.stats.growth_count >= 2
            pool.check()
        pool.trim()
        assert device.stats.handle_bytes == 0


def test_a_device_can_be_told_to_do_without(driver: Driver) -> None:
    with Device(driver=driver, fallback="always") as device, device.pool() as pool, pool.alloc("3MiB") as block:
        assert device.info.fallback == 1
        fill(block, 1)
        assert holds(block, 1)


def test_would_fit(device: Device) -> None:
    granule = device.info.granularity
    with device.pool(growth_policy="exact", mapping_min=granule, limit=8 * granule) as pool:
        assert pool.would_fit([]) == 0
        assert pool.would_fit([3 * granule, 1]) == 4 * granule
        with pool.alloc(3 * granule + 1):
            assert pool.would_fit([granule // 2]) == 0
            assert pool.would_fit(["1KiB", 2 * granule]) == 2 * granule
            with pytest.raises(pyvmm.LimitError, match="limit") as caught:
                pool.would_fit([granule] * 6)
            assert caught.value.done == 6 * granule
        assert pool.stats.alloc_count == 1
        with pytest.raises(pyvmm.InvalidArgumentError):
            pool.would_fit([1 << 62])


def test_idle_memory_in_holes_is_moved(device: Device) -> None:
    granule = device.info.granularity
    with device.pool(growth_policy="exact", mapping_min=granule, mapping_max=granule) as pool:
        blocks = [pool.alloc(granule) for _ in range(6)]
        kept = blocks[1::2]
        for seed, block in enumerate(kept):
            fill(block, seed)
        for block in blocks[::2]:
            block.free(idle=True)
        with pool.alloc(3 * granule) as large:
            fill(large, 9)
            assert holds(large, 9)
            stats = pool.stats
            assert (stats.committed_bytes, stats.move_count, stats.moved_bytes) == (6 * granule, 1, 3 * granule)
        assert all(holds(block, seed) for seed, block in enumerate(kept))
        pool.check()
        for block in kept:
            block.close()
