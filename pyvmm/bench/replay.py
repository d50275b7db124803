"""Plays an allocation log on an allocator, and holds what it took against what the log had live."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..device import Device
from ..drivers import Driver
from .log import Log, granules
from .older import Older

MOST_PHYSICAL = 1.10
"""Of the peak of live bytes, rounded up to granules."""
MOST_PREFILL_GROWTHS = 16


class Arm(Protocol):
    """An allocator. alloc and free take the stream's number too where `streams` says so."""

    name: str
    streams: bool

    def alloc(self, size: int) -> int: ...
    def free(self, block: int) -> None: ...

    def alloc_on(self, size: int, stream: int) -> int: ...
    def free_on(self, block: int, stream: int) -> None: ...

    def figures(self) -> Figures:
        """What it holds or held at most."""

    def close(self) -> None: ...


@dataclass
class Figures:
    physical: int
    """Peak of bytes taken from the driver."""
    growths: int
    note: str = ""


@dataclass
class Outcome:
    workload: str
    arm: str
    events: int
    peak_live: int
    peak_physical: int
    first: int
    """Bytes taken for the first block."""
    growths: int
    seconds: float
    failed: str = ""
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.peak_physical / max(1, granules(self.peak_live))

    @property
    def most_growths(self) -> int:
        """What a pool that grows in steps in proportion to its size may take."""
        return int(2 * math.log2(max(1.0, self.peak_physical / max(1, self.first)))) + 8

    def bounds(self) -> list[tuple[str, bool]]:
        """What is promised of the default policy, each with whether it held."""
        found = [
            (f"peak physical {self.ratio:.3f} x peak live, <= {MOST_PHYSICAL:.2f}", self.ratio <= MOST_PHYSICAL),
            (f"{self.growths} growths, <= {self.most_growths}", self.growths <= self.most_growths),
        ]
        if self.workload == "prefill temporaries":
            found.append((f"{self.growths} growths, <= {MOST_PREFILL_GROWTHS}", self.growths <= MOST_PREFILL_GROWTHS))
        return [("no error: " + self.failed, False)] if self.failed else found

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "ratio": self.ratio, "most_growths": self.most_growths}


class Pool:
    """The library's pool with its default policy, over any driver."""

    streams = False

    def __init__(self, driver: Driver, name: str = "libvmm", **options: Any) -> None:
        self.name = name
        self.device = Device(driver=driver)
        self.pool = self.device.pool(**options)
        self.alloc: Callable[[int], int] = self.pool.alloc_address
        self.free: Callable[[int], None] = self.pool.free_address

    def alloc_on(self, size: int, stream: int) -> int:
        return self.alloc(size)

    def free_on(self, block: int, stream: int) -> None:
        self.free(block)

    def figures(self) -> Figures:
        pool, device = self.pool.stats, self.device.stats
        return Figures(max(pool.committed_peak, device.handle_bytes_peak), pool.growth_count)

    def close(self) -> None:
        self.pool.close(force=True)
        self.device.close()


class OlderPool:
    """Its arithmetic: no memory behind it."""

    name = "older pool"
    streams = False

    def __init__(self) -> None:
        self.older = Older()
        self.alloc = self.older.alloc
        self.free = self.older.free

    def alloc_on(self, size: int, stream: int) -> int:
        return self.alloc(size)

    def free_on(self, block: int, stream: int) -> None:
        self.free(block)

    def figures(self) -> Figures:
        return Figures(self.older.size, self.older.growths, "arithmetic only")

    def close(self) -> None:
        pass


def play(log: Log, make: Callable[[], Arm]) -> Outcome:
    """The whole log on a new allocator. What it refuses ends the replay and is said."""
    arm = make()
    blocks: list[int] = []
    first, failed = 0, ""
    started = time.perf_counter()
    try:
        if len(log):
            blocks.append(arm.alloc(log.events[0]))
            first = arm.figures().physical
            started = time.perf_counter()
            if log.streams is not None and arm.streams:
                _play_on_streams(log, arm, blocks)
            else:
                _play(log, arm, blocks)
    except (MemoryError, RuntimeError) as error:
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
    seconds = time.perf_counter() - started
    figures = arm.figures()
    arm.close()
    return Outcome(
        log.name,
        arm.name,
        len(log),
        log.peak_live(),
        figures.physical,
        first,
        figures.growths,
        seconds,
        failed,
        figures.note,
    )


def _play(log: Log, arm: Arm, blocks: list[int]) -> None:
    alloc, free, keep = arm.alloc, arm.free, blocks.append
    for event in log.events[1:]:
        if event > 0:
            keep(alloc(event))
        else:
            free(blocks[-event])


def _play_on_streams(log: Log, arm: Arm, blocks: list[int]) -> None:
    assert log.streams is not None
    alloc, free, keep = arm.alloc_on, arm.free_on, blocks.append
    for event, stream in zip(log.events[1:], log.streams[1:], strict=True):
        if event > 0:
            keep(alloc(event, stream))
        else:
            free(blocks[-event], stream)
