"""Captures that nobody announced, what tells graphs that backing changed, and the tables of docs/captures.md."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import pyvmm
from pyvmm import Device, Driver, transfer

MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent
KINDS = pytest.mark.parametrize("kind", [0, 1], ids=["blocking", "non_blocking"])


@KINDS
def test_captures_that_nobody_announced_are_noticed(driver: Driver, kind: int) -> None:
    with pyvmm.Device(driver=driver, sync_policy="device", detect_captures=True) as device, device.current():
        stream = transfer.call(driver, "stream_create", kind)
        pool = device.pool()
        kept = pool.alloc_address(4 * MIB, stream)
        transfer.call(driver, "stream_begin_capture", stream, 0)
        with pytest.raises(pyvmm.CaptureError, match="not announced"):
            pool.alloc_address(4096, stream)
        pool.free_address(kept, stream=stream)  # its graph may use it from here on
        assert pool.stats.block_count == 1
        with pytest.raises(pyvmm.CaptureError):
            device.forget_stream(stream)
        with pool.alloc("32MiB") as other:
            assert not kept <= other.address < kept + 4 * MIB
        pool.trim(wait=False)
        graph = transfer.call(driver, "stream_end_capture", stream)  # an invalidated one answers an error
        transfer.call(driver, "graph_destroy", graph)
        with pytest.raises(pyvmm.BusyError):
            pool.close()
        pool.close(force=True)
        device.forget_stream(stream)
        transfer.call(driver, "stream_destroy", stream)


@KINDS
def test_an_announced_capture_is_no_surprise(driver: Driver, kind: int) -> None:
    with pyvmm.Device(driver=driver, sync_policy="device", detect_captures=True) as device, device.current():
        stream = transfer.call(driver, "stream_create", kind)
        with device.pool() as pool:
            with device.capture(stream) as lease:
                transfer.call(driver, "stream_begin_capture", stream, 0)
                address = pool.alloc_address(4 * MIB, stream)
                pool.free_address(address, stream=stream)
                assert pool.stats.block_count == 0
                graph = transfer.call(driver, "stream_end_capture", stream)
            transfer.call(driver, "graph_destroy", graph)
            lease.release()
            device.forget_stream(stream)
        transfer.call(driver, "stream_destroy", stream)


def test_detection_is_off_unless_asked_for(driver: Driver) -> None:
    with pyvmm.Device(driver=driver) as device, device.current(), device.pool() as pool:
        stream = transfer.call(driver, "stream_create", 1)
        pool.free_address(pool.alloc_address(4096, stream), stream=stream)
        transfer.call(driver, "stream_begin_capture", stream, 0)
        pool.free_address(pool.alloc_address(4096, stream), stream=stream)  # fits: no driver call, so no harm
        graph = transfer.call(driver, "stream_end_capture", stream)
        transfer.call(driver, "graph_destroy", graph)
        device.forget_stream(stream)
        transfer.call(driver, "stream_destroy", stream)
        with pytest.raises(pyvmm.InvalidArgumentError):
            pyvmm.Device(driver=driver, detect_captures=True)  # it is open without


def test_a_generation_tells_whether_backing_changed(device: Device) -> None:
    with device.pool() as pool:
        first = pool.alloc_address(4 * MIB)
        before = pool.generation(first, 4 * MIB)
        assert before == pool.generation(first) > 0
        second = pool.alloc_address(64 * MIB)
        assert pool.generation(first, 4 * MIB) == before
        pool.free_address(first, idle=True)
        pool.free_address(second, idle=True)
        pool.trim()
        for gone in (first, 0, 2**64 - 1):
            with pytest.raises(pyvmm.UnknownAddressError):
                pool.generation(gone)
        again = pool.alloc_address(4 * MIB)
        assert again == first
        assert pool.generation(again, 4 * MIB) > before
        with pytest.raises(pyvmm.InvalidArgumentError):
            pool.generation(again, 0)
        pool.free_address(again)


# ---- the tables ----


def lease_of(device: Device, stream: int) -> pyvmm.Lease:
    with device.capture(stream) as lease:
        pass
    return lease


def test_a_lease_is_released_once_whoever_comes_in_between(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread, or a signal handler, may come between any two lines."""

    class Counting:
        def __getattr__(self, name: str) -> Any:
            if name == "vmm_lease_release":
                calls.append(name)
            return getattr(lib, name)

    def come_in_between(frame: FrameType, event: str, unused: object) -> Any:
        if frame.f_code is not pyvmm.Lease.release.__code__:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == at:
                sys.settrace(None)
                lease.release()
        return come_in_between

    lib = pyvmm._vmm.lib
    monkeypatch.setattr("pyvmm.lease.lib", Counting())
    with device.current():
        stream = transfer.call(device.driver, "stream_create", 1)
        for at in range(1, 20):
            lines, calls = list[int](), list[str]()
            lease = lease_of(device, stream)
            before = sys.gettrace()
            sys.settrace(come_in_between)
            try:
                lease.release()
            finally:
                sys.settrace(before)
            assert len(calls) == 1
            assert not lease.active
            if len(lines) < at:
                break
        assert at > 3
        transfer.call(device.driver, "stream_destroy", stream)


def test_a_lease_that_the_caller_vouches_for_is_idle_at_once(device: Device) -> None:
    with device.current(), device.pool() as pool:
        stream, other = (transfer.call(device.driver, "stream_create", 1) for _ in range(2))
        for idle in (True, False):
            with device.capture(stream) as lease:
                pool.alloc(4096, stream=stream).close()
            with device.capture(other):
                lease.release(idle=idle)
                assert pool.stats.lease_count == 0
                assert (pool.stats.ordered_bytes == 0) == idle
        device.forget_stream(stream)
        for one in (stream, other):
            transfer.call(device.driver, "stream_destroy", one)


@pytest.fixture(scope="module")
def captures() -> ModuleType:
    spec = spec_from_file_location("captures", ROOT / "scripts" / "captures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_tables_in_the_documents_are_those_of_the_simulated_device(captures: ModuleType) -> None:
    text = (ROOT / "docs" / "captures.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- simulated -->\n(.*)<!-- end -->", text, re.DOTALL)
    assert shown is not None
    found = captures.measure(pyvmm.sim(memory="4GiB"))
    assert shown.group(1).split() == captures.tables(found).split()
    assert {one.capture for one in found if one.notice == "announced"} == {"valid"}
    assert {one.call for one in found} == {"ok", "CaptureError"}
