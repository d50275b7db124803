"""Device, pool and block from Python, on the simulated device and on a GPU."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

import pyvmm
from pyvmm import Block, Device, Driver

MIB = 1 << 20


def pattern(block: Block, seed: int) -> bytes:
    return bytes((seed + i) % 251 for i in range(251)) * (block.nbytes // 251 + 1)


def fill(block: Block, seed: int) -> None:
    block.write(pattern(block, seed)[: block.nbytes])


def holds(block: Block, seed: int) -> bool:
    return block.read() == pattern(block, seed)[: block.nbytes]


# ---- the main job ----


def test_a_pool_grows_in_place_and_keeps_its_bytes(device: Device) -> None:
    with device.pool() as pool:
        first = pool.alloc(5000)
        fill(first, 1)
        base, address = pool.stats.address, first.address
        blocks = [pool.alloc(3 * MIB) for _ in range(30)]
        for seed, block in enumerate(blocks):
            fill(block, seed)
        stats = pool.stats
        assert stats.growth_count >= 2
        assert (stats.address, first.address) == (base, address)
        assert stats.block_count == 31
        assert all(base <= block.address < base + stats.committed_bytes for block in blocks)
        assert holds(first, 1)
        assert all(holds(block, seed) for seed, block in enumerate(blocks))
        pool.check()
        for block in (first, *blocks):
            block.close()
        assert pool.stats.block_count == 0


def test_ten_lines(driver: Driver) -> None:
    """What the README shows."""
    with pyvmm.Device(driver=driver) as device, device.pool() as pool, pool.alloc("1MiB") as block:
        block.write(b"hello")
        assert block.read(5) == b"hello"
        assert pool.stats.committed_bytes >= MIB


def test_sizes_around_every_edge(device: Device) -> None:
    with device.pool() as pool:
        granule = device.info.granularity
        sizes = [0, 1, 127, 128, 129, 255, 256, 257, granule - 1, granule, granule + 1, 2 * granule + 1]
        blocks = [pool.alloc(size) for size in sizes]
        ranges = sorted((block.address, block.address + block.size) for block in blocks)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        assert all(block.address % 256 == 0 for block in blocks)
        assert [block.nbytes for block in blocks] == sizes
        assert all(block.size >= max(256, block.nbytes) for block in blocks)
        assert [info.requested for info in pool.blocks()] == [b.nbytes for b in sorted(blocks, key=int)]
        for block in blocks[::-2] + blocks[-2::-2]:
            block.close()
        assert (pool.stats.block_count, pool.stats.block_bytes) == (0, 0)
        pool.check()


@pytest.mark.parametrize("size", [-1, 2**64, 2**64 - 1, 2**64 - 4096, 10**40, "17000PiB", "-1"])
def test_sizes_that_cannot_be(device: Device, size: Any) -> None:
    with device.pool() as pool:
        before = pool.stats
        for call in (pool.alloc, pool.alloc_address, pool.grow):
            with pytest.raises((ValueError, MemoryError)) as caught:
                call(size)
            assert isinstance(caught.value, pyvmm.VmmError)
        assert (pool.stats.committed_bytes, pool.stats.block_count) == (before.committed_bytes, 0)
        pool.check()


@pytest.mark.parametrize("size", [None, 1.5, b"64", [], True])
def test_sizes_of_other_types(device: Device, size: Any) -> None:
    with device.pool() as pool:
        for call in (pool.alloc, pool.grow):
            with pytest.raises(TypeError):
                call(size)


def test_alignment_tag_scrub_and_one_mapping(device: Device) -> None:
    with device.pool(mapping_max="2MiB") as pool:
        with pool.alloc(1000, alignment="64KiB", tag=77) as block:
            assert block.address % 65536 == 0
            assert (block.tag, pool.find(block.address + 999).tag) == (77, 77)
        with pool.alloc(MIB) as dirty:
            dirty.write(b"\xff" * MIB)
        with pool.alloc(MIB, scrub=True) as clean:
            assert not any(clean.read())
        with pool.alloc(5 * MIB, one_mapping=True) as block:
            (mapping,) = [m for m in pool.mappings() if m.address <= block.address < m.address + m.size]
            assert block.address + block.size <= mapping.address + mapping.size
        with pytest.raises(pyvmm.InvalidArgumentError):
            pool.alloc(16, alignment=3)
        with pytest.raises(pyvmm.OutOfMemoryError):
            pool.alloc("1GiB", growth=False)
        with pytest.raises(pyvmm.InvalidArgumentError):
            pool.alloc(16, tag=-1)


def test_addresses_as_bare_integers(device: Device) -> None:
    with device.pool() as pool:
        address = pool.alloc_address(4096)
        assert pool.find(address + 4095) == pool.blocks()[0]
        assert device.find(address) == (pool, pool.blocks()[0])
        pool.free_address(address)
        other = pool.alloc_address("4KiB")
        pool.free_address(other, idle=True)
        assert pool.stats.free_count == 2


@pytest.mark.parametrize("idle", [False, True])
def test_wrong_frees_change_nothing(device: Device, idle: bool) -> None:
    with device.pool() as pool, device.pool() as other, other.alloc(64) as foreign:
        address = pool.alloc_address(4096)
        for wrong in (address + 1, address + 256, foreign.address, 0, 1, 2**64 - 1, 2**64, -1, 12345678):
            with pytest.raises(pyvmm.UnknownAddressError):
                pool.free_address(wrong, idle)
        assert pool.stats.block_count == other.stats.block_count == 1
        pool.free_address(address, idle)
        with pytest.raises(pyvmm.UnknownAddressError):
            pool.free_address(address, idle)
        pool.check()


def test_limits(device: Device) -> None:
    with device.pool(limit="8MiB") as pool:
        with pytest.raises(pyvmm.LimitError):
            pool.alloc("9MiB")
        assert pool.limit == 8 * MIB
        pool.limit = "64MiB"
        with pool.alloc("9MiB"):
            device.limit = device.stats.handle_bytes
            with pytest.raises(MemoryError):
                pool.alloc("256MiB")
            device.limit = 0
        with pytest.raises(ValueError, match="limit"):
            pool.limit = -1


def test_grow_and_trim(device: Device) -> None:
    with device.pool() as pool:
        assert pool.grow("32MiB") >= 32 * MIB
        grown = pool.stats
        assert grown.committed_bytes >= 32 * MIB
        assert sum(m.size for m in pool.mappings()) == grown.committed_bytes
        assert pool.trim(keep=0, deadline=1.0) == grown.committed_bytes
        assert (pool.stats.committed_bytes, pool.mappings()) == (0, [])
        assert device.trim() >= 0
        assert device.stats.handle_bytes == 0


def test_a_long_listing_is_whole(device: Device) -> None:
    with device.pool() as pool:
        addresses = [pool.alloc_address(256) for _ in range(1000)]
        assert [info.address for info in pool.blocks()] == sorted(addresses)
        for address in addresses:
            pool.free_address(address)


def test_what_the_device_says(device: Device, driver: Driver) -> None:
    info = device.info
    assert (info.ordinal, info.lost, info.driver_name) == (0, 0, driver.name)
    assert info.sync in ("device", "on_demand")
    assert info.name
    assert info.total_bytes > info.granularity >= info.minimum_granularity > 0
    with device.pool() as pool, pool.alloc("4MiB"):
        stats = device.stats
        assert (stats.pool_count, stats.handle_bytes) == (1, pool.stats.committed_bytes)
        calls = {entry.call: entry.count for entry in device.calls()}
        assert calls["cuMemCreate"] >= 1
        growth = [event for event in device.events() if event.name == "growth"]
        assert growth[-1].size == pool.stats.committed_bytes
        assert device.events(after=device.events()[-1].sequence) == []


def test_steady_state_calls_no_driver(driver: Driver) -> None:
    recorder = driver.recorded()
    with pyvmm.Device(driver=recorder) as device, device.pool(initial="16MiB") as pool:
        pool.free_address(pool.alloc_address(4096))
        recorder.clear()
        for size in (1, 5000, MIB, 5 * MIB) * 50:
            pool.free_address(pool.alloc_address(size))
        assert recorder.count() == 0, recorder.text()


# ---- blocks ----


def test_a_block_has_one_life(device: Device) -> None:
    with device.pool() as pool:
        block = pool.alloc(100)
        address = block.address
        assert (block.closed, int(block), block.ptr, len(block)) == (False, address, address, 100)
        block.free()
        assert block.closed
        with pytest.raises(pyvmm.ClosedError):
            block.free()
        block.close()
        for read in ("address", "ptr", "size", "__cuda_array_interface__"):
            with pytest.raises(pyvmm.ClosedError, match="closed"):
                getattr(block, read)
        with pytest.raises(pyvmm.ClosedError):
            block.read()
        assert "closed" in repr(block)
        with pool.alloc(100) as again:  # the place is used again; the old block must not free it
            block.close()
            del block
            assert pool.find(again.address).address == again.address


def test_only_one_of_many_threads_frees(device: Device) -> None:
    with device.pool() as pool:
        for _ in range(50):
            block, start = pool.alloc(64), threading.Barrier(4)
            closed: list[int] = []

            def free(block: Block = block, start: threading.Barrier = start, closed: list[int] = closed) -> None:
                start.wait()
                try:
                    block.free()
                    closed.append(1)
                except pyvmm.ClosedError:
                    pass

            threads = [threading.Thread(target=free) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert closed == [1]
        assert (pool.stats.free_count, pool.stats.block_count) == (50, 0)


def test_cuda_array_interface(device: Device) -> None:
    with device.pool() as pool, pool.alloc(100) as block, pool.alloc(0) as empty:
        interface = block.__cuda_array_interface__
        assert interface == {
            "shape": (100,), "typestr": "|u1", "data": (block.address, False), "strides": None, "version": 3,
            "stream": 1,
        }  # fmt: skip
        assert (empty.__cuda_array_interface__["shape"], empty.__cuda_array_interface__["data"]) == ((0,), (0, False))
    with pytest.raises(pyvmm.InvalidArgumentError, match="per-thread"):
        device.pool(home_stream=2)


@pytest.mark.gpu
@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_frameworks_take_a_block(gpu: pyvmm.Cuda, framework: str) -> None:
    library = pytest.importorskip(framework, reason=f"no GPU here with {framework}")
    with pyvmm.Device(driver=gpu) as device, device.pool() as pool, pool.alloc(1024) as block:
        block.write(bytes(range(256)) * 4)
        take = library.as_tensor if framework == "torch" else library.asarray
        array = take(block, device="cuda") if framework == "torch" else take(block)
        assert int(array.sum()) == sum(range(256)) * 4
        assert block.address == (array.data_ptr() if framework == "torch" else array.data.ptr)
        array[:] = 7
        (library.cuda.synchronize if framework == "torch" else library.cuda.Device().synchronize)()
        assert block.read() == b"\x07" * 1024


def test_writing_and_reading_stay_inside(device: Device) -> None:
    with device.pool() as pool, pool.alloc(100) as block:
        block.write(b"abc", offset=97)
        assert block.read(3, offset=97) == b"abc"
        for data, offset in ((b"abcd", 97), (b"a", -1), (b"", 101)):
            with pytest.raises(pyvmm.InvalidArgumentError):
                block.write(data, offset)
        for size, offset in ((101, 0), (1, 100), (-1, 0), (None, 101)):
            with pytest.raises(pyvmm.InvalidArgumentError):
                block.read(size, offset)


def test_unknown_options_and_devices(driver: Driver) -> None:
    with pytest.raises(TypeError, match="'frobnicate'"):
        pyvmm.Device(driver=driver, frobnicate=1)
    for ordinal in (-1, 99, 2**40):
        with pytest.raises(pyvmm.InvalidArgumentError):
            pyvmm.Device(ordinal, driver=driver)
    with pyvmm.Device(driver=driver) as device:
        with pytest.raises(TypeError, match="'growht'"):
            device.pool(growht=1)
        with pytest.raises(TypeError, match="'peer_count'"):
            device.pool(peer_count=1)
        for wrong in (
            {"peers": [99]},
            {"peers": [0, 0]},
            {"peers": [2**40]},
            {"verify": "thoroughly"},
            {"initial": -1},
        ):
            with pytest.raises(ValueError):  # noqa: PT011 - each says its own thing
                device.pool(**wrong)
        assert device.stats.pool_count == 0
