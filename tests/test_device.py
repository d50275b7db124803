"""Streams, captures, peers, policies and failures from Python, on the simulated device."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest

import pyvmm
from pyvmm import Device, Pool, streams, transfer

MIB = 1 << 20


@pytest.fixture
def device() -> Generator[Device, None, None]:
    driver = pyvmm.sim(memory="256MiB", device_count=2).faulty()
    with pyvmm.Device(driver=driver) as device:
        yield device
        driver.clear()
    assert driver.sim.ledger().misuse == 0, driver.sim.misuse()


@pytest.fixture
def faulty(device: Device) -> pyvmm.Faulty:
    return device.driver.layer(pyvmm.Faulty)


@pytest.fixture
def pool(device: Device, faulty: pyvmm.Faulty) -> Generator[Pool, None, None]:
    pool = device.pool()
    yield pool
    faulty.clear()
    pool.close(force=True)


# ---- failures ----


def test_an_error_says_what_failed(pool: Pool, faulty: pyvmm.Faulty) -> None:
    faulty.add(op="cuMemSetAccess", code="NOT_READY", times="ever")
    with pytest.raises(pyvmm.NotReadyError) as caught:
        pool.alloc("8MiB")
    error = caught.value
    assert (error.call, error.code, error.code_name) == ("cuMemSetAccess", 600, "CUDA_ERROR_NOT_READY")
    assert error.attempt >= 2
    assert error.device == 0
    assert error.size >= 8 * MIB
    assert 0 < error.free_bytes <= error.total_bytes
    assert "cuMemSetAccess" in str(error)
    faulty.clear()
    pool.alloc("8MiB").close()


def test_a_second_failure_is_a_note_and_the_range_is_quarantined(pool: Pool, faulty: pyvmm.Faulty) -> None:
    faulty.add("cuMemSetAccess:999,cuMemUnmap:1x*")
    with pytest.raises(pyvmm.VmmError) as caught:
        pool.alloc("8MiB")
    error = caught.value
    assert (error.call, error.code) == ("cuMemSetAccess", 999)
    assert error.undo_failures >= 1
    assert error.undo_code == 1
    assert any("quarantined" in note for note in getattr(error, "__notes__", ()))
    assert pool.stats.quarantined_bytes > 0
    bad = [m for m in pool.mappings() if m.quarantined]
    assert bad
    with pool.alloc("8MiB") as block:
        assert all(block.address + block.size <= m.address or m.address + m.size <= block.address for m in bad)
    faulty.clear()
    pool.trim()
    assert pool.stats.quarantined_bytes == 0
    pool.check()


def test_the_report_comes_though_its_own_query_fails(pool: Pool, faulty: pyvmm.Faulty) -> None:
    faulty.add("cuMemCreate:2x*,cuMemGetInfo:999x*")
    with pytest.raises(pyvmm.OutOfMemoryError) as caught:
        pool.alloc("8MiB")
    assert (caught.value.call, caught.value.free_bytes) == ("cuMemCreate", 0)


def test_one_failing_pool_leaves_the_other_alone(device: Device, faulty: pyvmm.Faulty) -> None:
    with device.pool() as good, device.pool() as bad:
        base = bad.stats.address
        faulty.add(op="cuMemMap", code=999, times="ever", address=base, size=bad.stats.reserved_bytes)
        for _ in range(3):
            with pytest.raises(pyvmm.DriverError):
                bad.alloc("4MiB")
            good.alloc("4MiB").close()
            good.trim()
        faulty.clear()
        bad.alloc("4MiB").close()


def test_a_lost_device_says_so_and_can_be_closed() -> None:
    driver = pyvmm.sim(memory="64MiB").faulty()
    device = pyvmm.Device(driver=driver)
    pool = device.pool()
    block = pool.alloc(4096)
    driver.add(op="cuMemCreate", code="ILLEGAL_ADDRESS", sticky=True)
    for _ in range(2):
        with pytest.raises(pyvmm.DeviceLostError):
            pool.alloc("16MiB")
    assert device.info.lost == 1
    block.close()
    pool.close()
    device.close()


def test_no_virtual_memory_management_is_unsupported() -> None:
    with pytest.raises(pyvmm.UnsupportedError) as caught:
        pyvmm.Device(driver=pyvmm.sim(no_vmm=1))
    assert str(caught.value)


def test_address_space_and_memory_are_kept_apart() -> None:
    with pyvmm.Device(driver=pyvmm.sim(memory="64MiB", address_space="32MiB")) as device:
        with pytest.raises(pyvmm.OutOfAddressSpaceError):
            device.pool(reservation="64MiB")
        with device.pool(reservation="16MiB") as pool, pytest.raises(pyvmm.OutOfAddressSpaceError):
            pool.alloc("24MiB")


def test_older_drivers_do() -> None:
    for options in ({"old_attributes": 1}, {"driver_version": 12000}, {"wsl": 1}):
        with pyvmm.Device(driver=pyvmm.sim(memory="64MiB", **options)) as device, device.pool() as pool:
            pool.alloc("4MiB").close()
            assert device.info.sync == ("device" if "wsl" in options else "on_demand")
            assert device.info.context_fence == (0 if "driver_version" in options else 1)


@pytest.mark.parametrize("policy", ["auto", "device", "streams", "on_demand"])
@pytest.mark.parametrize("verify", ["access", "data"])
def test_every_policy_grows_under_queued_work(policy: str, verify: str) -> None:
    sim = pyvmm.sim(memory="64MiB")
    sim.set_not_ready("pending")
    with pyvmm.Device(driver=sim, sync_policy=policy) as device, device.current():
        if policy == "streams":
            device.register_stream(streams.LEGACY)
        with device.pool(verify=verify) as pool, pool.alloc(4096) as block:
            for _ in range(5):
                assert sim.raw.kernel_spin(0, 50_000) == 0
                assert sim.raw.kernel_fill(0, block.address, 4096, 1) == 0
                pool.alloc("3MiB").close()
                pool.grow("6MiB")
            if policy != "auto":
                assert device.info.sync == policy
            assert sim.ledger().misuse == 0


# ---- life ----


def test_a_block_keeps_everything_alive() -> None:
    block = pyvmm.Device(driver=pyvmm.sim(memory="64MiB")).pool().alloc(4096)
    gc.collect()
    block.write(b"\x01" * 4096)
    assert block.read() == b"\x01" * 4096
    block.close()


def test_what_is_dropped_is_given_back() -> None:
    sim = pyvmm.sim(memory="64MiB")
    pyvmm.Device(driver=sim).pool().alloc("4MiB")
    gc.collect()
    pyvmm.Device(driver=pyvmm.sim()).close()  # any call ends what was dropped
    ledger = sim.ledger()
    assert (ledger.reservations, ledger.handles, ledger.primary_references) == (0, 0, 0)


def test_a_dropped_block_is_freed_by_the_next_call(pool: Pool) -> None:
    address = pool.alloc("1MiB").address
    assert pool.alloc_address(MIB) == address
    pool.free_address(address)
    assert pool.stats.free_count == 2


def test_a_pool_dropped_with_blocks_nobody_can_free_is_told(device: Device) -> None:
    pool: Pool | None = device.pool()
    assert pool is not None
    address = pool.alloc_address(4096)
    del pool
    gc.collect()
    with pytest.warns(ResourceWarning, match=r"a pool of .* was dropped, and could not be closed"):
        assert device.stats.pool_count == 1
    found, block = device.find(address)
    assert (found, block.address) == (None, address)
    raw_free(device, address)


def raw_free(device: Device, address: int) -> None:
    """What the test above left on purpose: its pool, by the C functions."""
    from pyvmm._vmm import ffi, lib

    pool = ffi.new("vmm_pool **")
    with device._gate as handle:
        assert lib.vmm_device_find(handle, address, pool, ffi.NULL, ffi.NULL) == 0
    assert lib.vmm_pool_destroy(pool[0], lib.VMM_DESTROY_FORCED, ffi.NULL) == 0


def test_a_forced_close_that_fails_half_way(device: Device, faulty: pyvmm.Faulty) -> None:
    """The blocks are gone, the pool stands: an old block must not free what is handed out at its place."""
    pool = device.pool()
    old, dropped = pool.alloc("1MiB"), pool.alloc("1MiB")
    address = old.address
    faulty.add("cuMemUnmap:999x*")
    with pytest.raises(pyvmm.DriverError):
        pool.close(force=True)
    assert not pool.closed
    assert old.closed
    faulty.clear()
    with pool.alloc("1MiB") as new:
        assert new.address == address
        del dropped
        old.close()
        with pytest.raises(pyvmm.ClosedError):
            old.free()
        assert pool.stats.block_count == 1
    pool.close()


@pytest.mark.parametrize("raises", [False, True])
def test_what_is_closed_though_not_all_was_given_back(raises: bool) -> None:
    """PARTIAL: pool and device are gone, and using or closing them again is safe."""

    def hook(call: str, opportunity: int) -> None:
        if raises:
            raise KeyError(call)

    driver = pyvmm.sim(memory="64MiB").faulty()
    device = pyvmm.Device(driver=driver)
    pool = device.pool()
    driver.add(op="cuEventDestroy", code=999, times="ever", hook=hook)
    for ended in (pool, device):
        with pytest.raises(KeyError if raises else pyvmm.PartialError):
            ended.close()
        assert ended.closed
        ended.close()
        with pytest.raises(pyvmm.ClosedError):
            _ = ended.stats
    driver.clear()


def test_the_same_device_twice(device: Device) -> None:
    """Two objects, one device: the second may be closed first."""
    with pyvmm.Device(driver=device.driver) as again:
        assert again.info == device.info
        with again.pool() as pool:
            assert device.stats.pool_count == 1
            assert device.find(pool.alloc_address(1))[1].requested == 1
            pool.close(force=True)
    device.pool().close()


# ---- streams and captures ----


class Torch:
    cuda_stream = 0x10


class Cupy:
    ptr = 0x20


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 0x30)


@pytest.mark.parametrize(
    ("stream", "address"),
    [(None, 0), (1, 1), (2, 2), (Torch(), 0x10), (Cupy(), 0x20), (Protocol(), 0x30), (2**64 - 1, 2**64 - 1)],
)
def test_what_names_a_stream(stream: Any, address: int) -> None:
    assert streams.address(stream) == address


@pytest.mark.parametrize("stream", [-1, 2**64, "stream", object(), 1.5])
def test_what_names_none(stream: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        streams.address(stream)


def test_streams_are_registered_and_forgotten(device: Device) -> None:
    with device.current():
        stream = transfer.call(device.driver, "stream_create", 1)
        device.register_stream(stream)
        assert device.stats.stream_count == 1
        device.forget_stream(stream)
        assert device.stats.stream_count == 0
        with pytest.raises(pyvmm.InvalidArgumentError):
            device.forget_stream(stream)
        transfer.call(device.driver, "stream_destroy", stream)


def test_an_announced_capture_survives_growth(device: Device) -> None:
    raw, sim = device.driver.raw, device.driver.sim
    sim.set_not_ready("pending")
    with device.current(), device.pool() as pool, pool.alloc(4096) as block:
        stream = transfer.call(device.driver, "stream_create", 1)
        with device.capture(stream):
            assert raw.stream_begin_capture(stream, 0) == 0
            assert raw.kernel_fill(stream, block.address, 4096, 3) == 0
            assert device.stats.capture_count == 1
            pool.grow("16MiB")
            with pytest.raises(pyvmm.BusyError), device.capture(stream):
                pass
            code, graph = raw.stream_end_capture(stream)
            assert code == 0
        assert device.stats.capture_count == 0
        executable = transfer.call(device.driver, "graph_instantiate", graph, 0)
        transfer.call(device.driver, "graph_launch", executable, stream)
        transfer.call(device.driver, "stream_synchronize", stream)
        assert int.from_bytes(block.read(4), "little") == pyvmm.pattern_word(3, 0)
        assert sim.ledger().captures_invalidated == 0
        for operation, what in (
            ("graph_exec_destroy", executable),
            ("graph_destroy", graph),
            ("stream_destroy", stream),
        ):
            transfer.call(device.driver, operation, what)


def test_a_lease_lasts_until_it_is_released(device: Device) -> None:
    raw = device.driver.raw
    with device.current():
        stream = transfer.call(device.driver, "stream_create", 1)
        with device.pool(home_stream=stream) as pool:
            with device.capture(stream) as lease:
                assert raw.stream_begin_capture(stream, 0) == 0
                block = pool.alloc(4096)
                address = block.address
                block.close()
                code, graph = raw.stream_end_capture(stream)
                assert code == 0
            assert lease.active
            assert pool.stats.lease_count == 1
            assert pool.stats.lease_bytes >= 4096
            with pool.alloc(4096) as other:
                assert other.address != address
            lease.release()
            lease.release()
            assert not lease.active
            assert pool.stats.lease_count == 0
        transfer.call(device.driver, "graph_destroy", graph)
        transfer.call(device.driver, "stream_destroy", stream)


def test_a_capture_that_fails_is_ended_too(device: Device) -> None:
    with device.current():
        stream = transfer.call(device.driver, "stream_create", 1)
        with pytest.raises(KeyError), device.capture(stream):
            raise KeyError
        assert device.stats.capture_count == 0
        with pytest.raises(pyvmm.InvalidArgumentError), device.capture(streams.LEGACY):
            pass
        transfer.call(device.driver, "stream_destroy", stream)


# ---- peers ----


def test_peers_get_access_now_and_later(device: Device) -> None:
    raw = device.driver.raw
    with device.pool(peers=[1]) as pool, device.pool() as later:
        addresses = [p.alloc_address(4 * MIB) for p in (pool, later)]
        access = [raw.mem_get_access(pyvmm.location(1), address) for address in addresses]
        assert access == [(0, 3), (0, 0)]
        later.add_peer(1)
        addresses.append(later.alloc_address(64 * MIB))
        assert all(raw.mem_get_access(pyvmm.location(1), address) == (0, 3) for address in addresses)
        assert later.stats.peer_count == 1
        for wrong in (0, 1, 2, -1, 2**40):
            with pytest.raises(pyvmm.InvalidArgumentError):
                later.add_peer(wrong)
        pool.free_address(addresses[0])
        later.free_address(addresses[1])
        later.free_address(addresses[2])


def test_a_peer_that_is_refused_changes_nothing(device: Device, faulty: pyvmm.Faulty, pool: Pool) -> None:
    address = pool.alloc_address(4 * MIB)
    faulty.add(op="cuMemSetAccess", code=999, times="ever")
    with pytest.raises(pyvmm.DriverError):
        pool.add_peer(1)
    faulty.clear()
    assert pool.stats.peer_count == 0
    assert device.driver.raw.mem_get_access(pyvmm.location(1), address) == (0, 0)
    pool.check()


def test_a_peer_out_of_reach_is_unsupported() -> None:
    with pyvmm.Device(driver=pyvmm.sim(memory="64MiB", device_count=2, peers=1)) as device:
        with pytest.raises(pyvmm.UnsupportedError):
            device.pool(peers=[1])
        assert device.stats.pool_count == 0
