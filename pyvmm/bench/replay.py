"""Plays an allocation log on an allocator, and holds what it took against what the log had live."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .. import transfer
from ..device import Device
from ..drivers import Driver
from .log import Log, granules
from .older import Older

NON_BLOCKING = 1


class Arm(Protocol):
    """An allocator with these too is given logs of several streams stream by stream, numbered from 0; the others play
    them as if on one: `alloc_on(size, stream)`, `free_on(block, stream)`."""

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
        self.streams: dict[int, int] = {}

    def _stream(self, number: int) -> int:
        if number not in self.streams:
            with self.device.current():
                self.streams[number] = int(transfer.call(self.device.driver, "stream_create", NON_BLOCKING))
            self.device.register_stream(self.streams[number])
        return self.streams[number]

    def alloc_on(self, size: int, stream: int) -> int:
        return self.pool.alloc_address(size, self._stream(stream))

    def free_on(self, block: int, stream: int) -> None:
        self.pool.free_address(block, stream=self._stream(stream))

    def figures(self) -> Figures:
        pool, device = self.pool.stats, self.device.stats
        return Figures(max(pool.committed_peak, device.handle_bytes_peak), pool.growth_count)

    def close(self) -> None:
        for stream in self.streams.values():
            self.device.forget_stream(stream)
        self.pool.close(force=True)
        with self.device.current():
            for stream in self.streams.values():
                transfer.call(self.device.driver, "stream_destroy", stream)
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
            streamed = log.streams is not None and hasattr(arm, "alloc_on")
            _play(log, arm, blocks, slice(0, 1), streamed)
            first = arm.figures().physical
            started = time.perf_counter()
            _play(log, arm, blocks, slice(1, None), streamed)
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


def _play(log: Log, arm: Any, blocks: list[Any], part: slice, streamed: bool) -> None:
    """In loops as thin as can be."""
    events, keep = log.events[part], blocks.append
    if streamed and log.streams is not None:
        alloc_on, free_on = arm.alloc_on, arm.free_on
        for event, stream in zip(events, log.streams[part], strict=True):
            if event > 0:
                keep(alloc_on(event, stream))
            else:
                free_on(blocks[-event], stream)
        return
    alloc, free = arm.alloc, arm.free
    if arm.drops:
        for event in events:
            if event > 0:
                keep(alloc(event))
            else:
                blocks[-event] = None
        return
    for event in events:
        if event > 0:
            keep(alloc(event))
        else:
            free(blocks[-event])
