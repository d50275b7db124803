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


class Arm(Protocol):
    name: str
    drops: bool
    """A block is given back by dropping it, not by free."""

    def alloc(self, size: int) -> Any: ...

    def free(self, block: Any) -> None: ...

    def figures(self) -> Figures:
        """What it holds, or held at most."""

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

    def to_json(self) -> dict[str, Any]:
        """As a record among the results of other benchmarks."""
        more = dataclasses.asdict(self)
        head = {"bench": "replay", "case": more.pop("workload"), "arm": more.pop("arm"), "unit": "x peak live"}
        return {**head, "median": self.ratio, "n": 1, "most_growths": self.most_growths, **more}


class Pool:
    """The library's pool with its default policy, over any driver."""

    drops = False

    def __init__(self, driver: Driver, name: str = "libvmm", **options: Any) -> None:
        self.name = name
        self.device = Device(driver=driver)
        self.pool = self.device.pool(**options)
        self.alloc: Callable[[int], int] = self.pool.alloc_address
        self.free: Callable[[int], None] = self.pool.free_address

    def figures(self) -> Figures:
        pool, device = self.pool.stats, self.device.stats
        return Figures(max(pool.committed_peak, device.handle_bytes_peak), pool.growth_count)

    def close(self) -> None:
        self.pool.close(force=True)
        self.device.close()


class OlderPool:
    """Its arithmetic: no memory behind it."""

    name = "older pool"
    drops = False

    def __init__(self) -> None:
        self.older = Older()
        self.alloc = self.older.alloc
        self.free = self.older.free

    def figures(self) -> Figures:
        return Figures(self.older.size, self.older.growths, "arithmetic only")

    def close(self) -> None:
        pass


def play(log: Log, make: Callable[[], Arm]) -> Outcome:
    """The whole log on a new allocator. What it refuses ends the replay and is said."""
    arm = make()
    blocks: list[Any] = []
    first, failed = 0, ""
    started = time.perf_counter()
    try:
        if len(log):
            blocks.append(arm.alloc(log.events[0]))
            first = arm.figures().physical
            started = time.perf_counter()
            _play(log, arm, blocks)
    except (MemoryError, RuntimeError) as error:
        failed = f"{type(error).__name__}: {error}".splitlines()[0]
    seconds = time.perf_counter() - started
    figures = arm.figures()
    if not arm.drops:
        for number in _live(log, len(blocks)):
            arm.free(blocks[number])
    blocks.clear()
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


def _live(log: Log, allocated: int) -> set[int]:
    """The blocks that live once so many have been allocated: what a log, or a replay that failed, leaves behind."""
    live: set[int] = set()
    count = 0
    for event in log.events:
        if event <= 0:
            live.remove(-event)
        elif count == allocated:
            break
        else:
            live.add(count)
            count += 1
    return live


def _play(log: Log, arm: Arm, blocks: list[Any]) -> None:
    alloc, free, keep = arm.alloc, arm.free, blocks.append
    rest = log.events[1:]
    if arm.drops:
        for event in rest:
            if event > 0:
                keep(alloc(event))
            else:
                blocks[-event] = None
        return
    for event in rest:
        if event > 0:
            keep(alloc(event))
        else:
            free(blocks[-event])
