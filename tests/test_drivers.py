"""The drivers from Python: raw operations, the simulator's doors, fault rules, the recorder."""

from __future__ import annotations

import gc
import math
import threading

import pytest

import pyvmm
from pyvmm import Code, Driver, transfer

MIB = 1 << 20


@pytest.fixture
def sim() -> pyvmm.Sim:
    sim = pyvmm.sim(memory="1GiB", device_count=2)
    assert sim.raw.init(0) == 0
    return sim


def map_some(driver: Driver, size: int) -> tuple[int, int]:
    """Memory by hand: (address, handle), mapped and accessible."""
    address = transfer.call(driver, "mem_reserve", size, 0, 0, 0)
    handle = transfer.call(driver, "mem_create", size, pyvmm.memory(0), 0)
    transfer.call(driver, "mem_map", address, size, 0, handle, 0)
    transfer.call(driver, "mem_set_access", address, size, pyvmm.access(0), 1)
    return address, handle


def unmap(driver: Driver, address: int, size: int, handle: int) -> None:
    transfer.call(driver, "mem_unmap", address, size)
    transfer.call(driver, "mem_release", handle)
    transfer.call(driver, "mem_address_free", address, size)


def test_memory_by_hand(driver: Driver) -> None:
    assert driver.raw.init(0) == 0
    code, size = driver.raw.mem_granularity(pyvmm.memory(0), 1)
    assert (code, size) == (0, 2 * MIB)
    with transfer.current(driver, 0):
        address, handle = map_some(driver, size)
        assert driver.raw.mem_get_access(pyvmm.location(0), address) == (0, 3)
        data = bytes(range(256)) * 16
        transfer.write(driver, address + size - len(data), data)
        assert transfer.read(driver, address + size - len(data), len(data)) == data
        unmap(driver, address, size, handle)
        host = bytearray(b"\xa5" * 16)
        assert driver.raw.memcpy_dtoh(host, address, 16) == Code.INVALID_VALUE
        assert host == b"\xa5" * 16


def test_what_a_call_gives_back_follows_its_code(sim: pyvmm.Sim) -> None:
    assert sim.raw.device_count() == (0, 2)
    assert sim.raw.device_get(1) == (0, 1)
    code, name = sim.raw.device_name(0)
    assert code == 0
    assert name
    assert sim.raw.device_get(9)[0] == Code.INVALID_DEVICE
    assert sim.raw.mem_release(0) == Code.INVALID_VALUE
    assert sim.raw.capture_mode(2) == (0, 0)
    assert sim.raw.capture_mode(0) == (0, 2)


def test_wrong_use_of_the_raw_operations(sim: pyvmm.Sim) -> None:
    with pytest.raises(TypeError, match="mem_create takes 3 arguments, not 1"):
        sim.raw.mem_create(4096)
    with pytest.raises(AttributeError, match="mem_conjure"):
        _ = sim.raw.mem_conjure
    with pytest.raises((TypeError, BufferError)):
        sim.raw.memcpy_dtoh(b"bytes cannot be written", 4096, 4)
    assert {"mem_map", "kernel_fill"} <= set(dir(sim.raw))


def test_a_copy_that_is_refused_raises_with_the_call(sim: pyvmm.Sim) -> None:
    with transfer.current(sim, 0), pytest.raises(pyvmm.DriverError) as caught:
        transfer.read(sim, 0x1000, 8)
    assert (caught.value.call, caught.value.code) == ("cuMemcpyDtoHAsync", Code.INVALID_VALUE)


def test_host_functions_run_on_the_stream(sim: pyvmm.Sim) -> None:
    seen = []
    with transfer.current(sim, 0):
        assert sim.raw.launch_host_func(0, lambda: seen.append(1)) == 0
        assert sim.raw.ctx_synchronize() == 0
    assert seen == [1]


# ---- the simulator's doors ----


def test_view_shares_the_memory(sim: pyvmm.Sim) -> None:
    with transfer.current(sim, 0):
        address, handle = map_some(sim, 2 * MIB)
        view = sim.view(address, 2 * MIB)
        assert (view.dtype.name, view.shape) == ("uint8", (2 * MIB,))
        transfer.write(sim, address + 5, b"seen")
        assert view[5:9].tobytes() == b"seen"
        view[100] = 42
        assert transfer.read(sim, address + 100, 1) == b"\x2a"
        with pytest.raises(pyvmm.UnknownAddressError):
            sim.view(address, 2 * MIB + 1)
        unmap(sim, address, 2 * MIB, handle)
        with pytest.raises(pyvmm.UnknownAddressError):
            sim.view(address, 1)


def test_a_view_keeps_its_driver() -> None:
    sim = pyvmm.sim(memory="64MiB")
    assert sim.raw.init(0) == 0
    with transfer.current(sim, 0):
        address, _ = map_some(sim, 2 * MIB)
    view = sim.view(address, 16)
    del sim
    gc.collect()
    pyvmm.Device(driver=pyvmm.sim()).close()  # ends what was dropped before
    view[:] = 7
    assert view.tobytes() == b"\x07" * 16


def test_ledger_counts_what_exists(sim: pyvmm.Sim) -> None:
    before = sim.ledger()
    with transfer.current(sim, 0):
        address, handle = map_some(sim, 2 * MIB)
        now = sim.ledger()
        assert (now.reservations, now.handles, now.mappings) == (1, 1, 1)
        assert now.handle_bytes == now.mapped_bytes == now.accessible_bytes == 2 * MIB
        assert now.free_bytes == before.free_bytes - 2 * MIB
        assert sim.ledger(1).handle_bytes == 0
        unmap(sim, address, 2 * MIB, handle)
    now = sim.ledger()
    assert (now.reservations, now.handles, now.mappings, now.free_bytes) == (0, 0, 0, before.free_bytes)


def test_misuse_is_told(sim: pyvmm.Sim) -> None:
    with transfer.current(sim, 0):
        address, handle = map_some(sim, 2 * MIB)
        assert sim.misuse() == []
        assert sim.raw.kernel_spin(0, 10**6) == 0
        assert sim.raw.kernel_fill(0, address, 4096, 1) == 0
        assert sim.raw.mem_unmap(address, 2 * MIB) == 0
        (entry, *_) = sim.misuse()
        assert (entry.name, entry.address) == ("race", address)
        assert sim.ledger().misuse >= 1
        sim.clear_misuse()
        assert sim.misuse() == []
        sim.raw.mem_release(handle)


def test_blocking_is_misuse_when_forbidden(sim: pyvmm.Sim) -> None:
    with transfer.current(sim, 0):
        sim.forbid_blocking()
        sim.raw.ctx_synchronize()
        sim.forbid_blocking(False)
        sim.raw.ctx_synchronize()
    assert [entry.name for entry in sim.misuse()] == ["blocking_sync"]


def test_not_ready_on_demand(sim: pyvmm.Sim) -> None:
    with transfer.current(sim, 0):
        sim.set_not_ready("first", 2)
        address = transfer.call(sim, "mem_reserve", 2 * MIB, 0, 0, 0)
        handle = transfer.call(sim, "mem_create", 2 * MIB, pyvmm.memory(0), 0)
        transfer.call(sim, "mem_map", address, 2 * MIB, 0, handle, 0)
        codes = [sim.raw.mem_set_access(address, 2 * MIB, pyvmm.access(0), 1) for _ in range(3)]
        assert codes == [600, 600, 0]
        assert sim.ledger().not_ready == 2
        unmap(sim, address, 2 * MIB, handle)
    with pytest.raises(pyvmm.InvalidArgumentError, match="pending"):
        sim.set_not_ready("sometimes")


def test_the_clock_is_virtual(sim: pyvmm.Sim) -> None:
    before = sim.now()
    sim.wait(3_600_000_000_000)
    assert sim.now() - before >= 3_600_000_000_000


def test_fresh_memory_is_what_was_asked_for() -> None:
    sim = pyvmm.sim(memory="64MiB", fresh="poison")
    assert sim.raw.init(0) == 0
    with transfer.current(sim, 0):
        address, handle = map_some(sim, 2 * MIB)
        assert sim.view(address, 64).tobytes() == b"\xa5" * 64
        unmap(sim, address, 2 * MIB, handle)
        sim.set_fresh("zero")
        address, handle = map_some(sim, 2 * MIB)
        assert sim.view(address, 64).tobytes() == bytes(64)
        unmap(sim, address, 2 * MIB, handle)


def test_memory_of_others_is_not_free(sim: pyvmm.Sim) -> None:
    free = sim.ledger().free_bytes
    sim.set_used_by_others("512MiB")
    assert sim.ledger().free_bytes == free - 512 * MIB


# ---- faults ----


def test_a_rule_as_text(driver: Driver) -> None:
    faulty = driver.faulty("cuMemAddressReserve:OUT_OF_MEMORY@2x2")
    raw = faulty.raw
    assert raw.init(0) == 0
    answers = [raw.mem_reserve(2 * MIB, 0, 0, 0) for _ in range(4)]
    assert [code for code, _ in answers] == [0, 2, 2, 0]
    assert (faulty.fired(), faulty.matched(1), faulty.opportunities("mem_reserve")) == (2, 4, 4)
    faulty.clear()
    assert (faulty.fired(), faulty.opportunities()) == (0, 0)
    for code, address in answers:
        if code == 0:
            assert raw.mem_address_free(address, 2 * MIB) == 0


def test_rules_as_arguments(sim: pyvmm.Sim) -> None:
    faulty = sim.faulty({"op": "device_get", "code": 101, "occurrence": 2}, "cuDriverGetVersion:999x*")
    assert [faulty.raw.device_get(0)[0] for _ in range(3)] == [0, 101, 0]
    assert [faulty.raw.driver_version()[0] for _ in range(3)] == [999] * 3
    assert (faulty.fired(1), faulty.fired(2), faulty.fired()) == (1, 3, 4)


def test_for_ever_and_numbers_of_rules(sim: pyvmm.Sim) -> None:
    faulty = sim.faulty()
    first = faulty.add("cuDeviceGet:1,cuDriverGetVersion:2")
    third = faulty.add(op="device_count", code="UNKNOWN", times=math.inf)
    assert third == first + 2
    assert [faulty.raw.device_count()[0] for _ in range(5)] == [999] * 5
    assert faulty.raw.device_get(0)[0] == 1
    assert (faulty.fired(first), faulty.fired(first + 1), faulty.fired(third)) == (1, 0, 5)


@pytest.mark.parametrize(
    "rule",
    ["cuNothing:2", "cuMemMap", "cuMemMap:NO_SUCH", {"op": "mem_map", "code": 2, "phase": "during"},
     {"op": "mem_map", "code": 2, "probability": 1.5}, {"op": "mem_map", "code": "NO_SUCH"},
     {"op": "nothing", "code": 2}],
)  # fmt: skip
def test_rules_that_are_none(sim: pyvmm.Sim, rule: pyvmm.faults.Rule) -> None:
    faulty = sim.faulty()
    with pytest.raises(ValueError):  # noqa: PT011 - each names its own part of the rule
        faulty.add(rule) if isinstance(rule, str) else faulty.add(**rule)
    assert faulty.raw.device_count() == (0, 2)


def test_only_this_thread(sim: pyvmm.Sim) -> None:
    faulty = sim.faulty()
    faulty.add(op="device_count", code=2, times="ever", this_thread=True)
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(faulty.raw.device_count()[0]))
    thread.start()
    thread.join()
    assert (others, faulty.raw.device_count()[0]) == ([0], 2)


def test_sticky_until_cleared(sim: pyvmm.Sim) -> None:
    faulty = sim.faulty()
    faulty.add(op="mem_release", code="ILLEGAL_ADDRESS", sticky=True)
    with transfer.current(faulty, 0):
        assert faulty.raw.ctx_synchronize() == 0
        assert faulty.raw.mem_release(1) == 700
        assert faulty.raw.ctx_synchronize() == 700
        faulty.clear()
        assert faulty.raw.ctx_synchronize() == 0


def test_orphans_can_be_given_back(sim: pyvmm.Sim) -> None:
    faulty = sim.faulty("cuMemCreate:OUT_OF_MEMORY:after")
    with transfer.current(faulty, 0):
        assert faulty.raw.mem_create(2 * MIB, pyvmm.memory(0), 0)[0] == 2
        (orphan,) = faulty.orphans()
        assert (orphan.call, orphan.size) == ("cuMemCreate", 2 * MIB)
        assert sim.ledger().handle_bytes == 2 * MIB
        faulty.release_orphans()
    assert sim.ledger().handle_bytes == 0
    assert faulty.orphans() == []


def test_a_hook_runs_before_the_call(sim: pyvmm.Sim) -> None:
    seen: list[tuple[str, int]] = []
    faulty = sim.faulty()
    faulty.add(op="device_count", times="ever", hook=lambda call, n: seen.append((call, n)))
    assert [faulty.raw.device_count() for _ in range(2)] == [(0, 2)] * 2
    assert seen == [("cuDeviceGetCount", 1), ("cuDeviceGetCount", 2)]
    faulty.clear()
    faulty.raw.device_count()
    assert len(seen) == 2


def test_what_a_hook_raises_is_raised_by_the_call(sim: pyvmm.Sim) -> None:
    class Mine(Exception):
        pass

    def hook(call: str, opportunity: int) -> None:
        raise Mine(call)

    faulty = sim.faulty({"op": "device_count", "hook": hook})
    with pytest.raises(Mine, match="cuDeviceGetCount"):
        faulty.raw.device_count()
    faulty.clear()
    assert faulty.raw.device_count() == (0, 2)


# ---- recorder and stacks ----


def test_the_recorder_keeps_calls(driver: Driver) -> None:
    recorder = driver.recorded(4)
    raw = recorder.raw
    assert raw.init(0) == 0
    recorder.clear()
    code, address = raw.mem_reserve(2 * MIB, 0, 0, 0)
    assert code == 0
    assert raw.mem_address_free(address, 2 * MIB) == 0
    assert raw.mem_release(0) == 1
    reserve, free, release = recorder.entries()
    assert (reserve.call, reserve.size, reserve.output, reserve.code) == ("cuMemAddressReserve", 2 * MIB, address, 0)
    assert (free.call, free.address) == ("cuMemAddressFree", address)
    assert (release.call, release.code) == ("cuMemRelease", 1)
    assert recorder.entries(after=free.sequence) == [release]
    assert recorder.text().splitlines()[-1].count("cuMemRelease") == 1
    assert (recorder.count("mem_release"), recorder.count()) == (1, 3)
    (one,) = [c for c in recorder.calls() if c.call == "cuMemRelease"]
    assert (one.count, one.failures) == (1, 1)
    for _ in range(9):
        raw.mem_release(0)
    assert len(recorder.entries()) == 4
    recorder.clear()
    assert (recorder.entries(), recorder.count(), recorder.text()) == ([], 0, "")


def test_wrappers_stack(sim: pyvmm.Sim) -> None:
    faulty = pyvmm.faulty(sim)
    stack = pyvmm.recorder(faulty)
    assert (sim.name, faulty.name, stack.name) == ("sim", "fault(sim)", "record(fault(sim))")
    assert stack.sim is sim
    assert stack.layer(pyvmm.Faulty) is faulty
    assert stack.layer(pyvmm.Recorder) is stack
    faulty.add("cuDeviceGetCount:2")
    assert stack.raw.device_count()[0] == 2
    with pytest.raises(pyvmm.InvalidArgumentError):
        faulty.layer(pyvmm.Recorder)
    assert "fault(sim)" in repr(stack)


def test_a_wrapper_keeps_what_it_wraps() -> None:
    raw = pyvmm.sim(memory="64MiB").faulty().recorded().raw
    gc.collect()
    pyvmm.Device(driver=pyvmm.sim()).close()  # ends what was dropped before
    assert raw.device_count()[0] in (0, Code.NOT_INITIALIZED)
    assert raw.init(0) == 0
    assert raw.device_count() == (0, 1)
