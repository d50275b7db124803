"""Who owns memory: one object each, and what a failure to give it back may not do."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import pyvmm


def small() -> pyvmm.Device:
    return pyvmm.Device(driver=pyvmm.sim(memory="64MiB").faulty())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_owners_cannot_be_duplicated(duplicate: Any) -> None:
    """A second owner would free the memory while the first still hands out its address."""
    with small() as device, device.pool() as pool, pool.alloc(100) as block:
        for owner in (block, pool, device):
            with pytest.raises(TypeError, match="owns memory of a device"):
                duplicate(owner)
        gc.collect()
        assert pool.find(block.address).requested == 100


def test_a_close_that_fails_keeps_the_pressure_callback() -> None:
    asked: list[int] = []
    device = small()
    device.set_pressure(lambda _, size: asked.append(size))
    with device.pool() as pool:
        with pytest.raises(pyvmm.BusyError):
            device.close()
        with pytest.raises(pyvmm.OutOfMemoryError):
            pool.alloc("100MiB")
        assert len(asked) == 1
    device.close()


def test_a_warning_about_dropped_objects_is_raised_by_no_call() -> None:
    """Not even where warnings are errors: it goes to sys.unraisablehook, here the interpreter's own."""
    program = """
import pyvmm
with pyvmm.Device(driver=pyvmm.sim(memory="64MiB")) as device:
    pool = device.pool()
    pool.alloc_address(100)
    del pool
    device.stats
    print("went on", device.stats.pool_count, flush=True)
    import os; os._exit(0)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "went on 1\n"), run.stderr
    assert "was dropped, and could not be closed" in run.stderr


def test_numbers_that_are_no_sizes_are_no_texts() -> None:
    with small() as device, device.pool() as pool:
        calls: list[Callable[[Any], Any]] = [pool.find, device.find, lambda number: pool.alloc(1, tag=number)]
        for call in calls:
            with pytest.raises(TypeError, match="an int, not str"):
                call("64MiB")
        with pytest.raises(TypeError, match="deadline: a number of seconds, not str"):
            pool.alloc(1, deadline="1s")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="deadline: a number of seconds"):
            pyvmm.Device(driver=device.driver, deadline="1s")


def test_a_device_with_an_announced_capture_is_not_closed() -> None:
    device = small()
    with device.capture(64):
        with pytest.raises(pyvmm.BusyError, match="captures"):
            device.close()
        assert not device.closed
    device.close()


def test_a_view_that_outlives_what_it_showed_reads_nothing_of_it() -> None:
    sim = pyvmm.sim(memory="64MiB")
    with pyvmm.Device(driver=sim) as device, device.pool() as pool:
        block = pool.alloc("4MiB")
        old = sim.view(block.address, 4096)
        old[:] = 7
        block.close()
        pool.trim()
        assert not old.any()
        old[:] = 9
        with pool.alloc("4MiB") as again:
            new = sim.view(again.address, "4MiB")
            assert not (new == 9).any()
    del sim, device, pool, again
    gc.collect()
    assert new[0] == 0
    assert old[0] == 9
