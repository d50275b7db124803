"""Where the server gets memory from: one interface, with every arm behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..device import Device
from ..errors import VmmError
from .machine import Machine


@dataclass
class Counters:
    growths: int = 0
    syncs: int = 0
    not_ready: int = 0
    retries: int = 0
    refused: int = 0
    committed: int = 0
    live: int = 0

    def copy(self) -> Counters:
        return dataclasses.replace(self)

    def since(self, before: Counters) -> dict[str, int]:
        """What happened in between."""
        names = ("growths", "syncs", "not_ready", "retries", "refused")
        return {name: getattr(self, name) - getattr(before, name) for name in names}


class Memory(Protocol):
    def alloc(self, size: int) -> int:
        """A device address, or 0: refused."""

    def free(self, address: int) -> None:
        """Gives a block back, after the work queued on the server's stream."""

    def counters(self) -> Counters: ...

    def quiet(self) -> None:
        """A session has ended: a good moment to give back what is idle."""

    def close(self) -> None: ...


class Plain:
    """Memory that was there from the start, for the expected answers. First fit; no growth, no driver call."""

    def __init__(self, machine: Machine, size: int) -> None:
        self.base = machine.plain(size)
        self.size = size
        self.blocks: list[tuple[int, int]] = []  # (offset, size), by offset

    def alloc(self, size: int) -> int:
        size = -(-size // 256) * 256
        at = 0
        for index, (offset, taken) in enumerate([*self.blocks, (self.size, 0)]):
            if offset - at >= size:
                self.blocks.insert(index, (at, size))
                return self.base + at
            at = offset + taken
        raise MemoryError("the plain memory is too small for the rehearsal")

    def free(self, address: int) -> None:
        self.blocks = [block for block in self.blocks if block[0] != address - self.base]

    def counters(self) -> Counters:
        return Counters(committed=self.size, live=sum(size for _, size in self.blocks))

    def quiet(self) -> None:
        pass

    def close(self) -> None:
        pass


class Libvmm:
    """The library's pool, as a server would use it: home stream, pressure callback, a trim when a session ends."""

    def __init__(self, machine: Machine, evict: Callable[[], int]) -> None:
        self.evict = evict
        self.pressed = 0
        self.reports: list[str] = []
        # On demand on every platform: the faults are to be seen, not to be avoided by a wait beforehand.
        self.device = Device(
            machine.ordinal, driver=machine.driver, sync_policy="on_demand", pressure=lambda _, size: self.press()
        )
        small = machine.kind == "sim"  # mappings are scaled like everything else
        sizes = {"mapping_min": machine.granularity, "mapping_max": (128 << 20) // machine.scale.factor}
        self.pool = self.device.pool(home_stream=machine.stream, **(sizes if small else {}))

    def alloc(self, size: int) -> int:
        try:
            return self.pool.alloc_address(size)
        except VmmError as error:  # refused, and all as before: what a server can live with
            self.reports.append(str(error))
            return 0

    def free(self, address: int) -> None:
        self.pool.free_address(address)

    def press(self) -> int:
        """Memory is short: the prefix that nobody asked for lately goes, and with it what is idle."""
        self.pressed += 1
        return self.evict() and max(self.trim(), 1)

    def trim(self) -> int:
        try:
            return self.pool.trim()
        except VmmError as error:  # what could not be given back now is tried again by the next growth
            self.reports.append(str(error))
            return 0

    def counters(self) -> Counters:
        stats = self.pool.stats
        return Counters(
            stats.growth_count,
            stats.quiesce_count,
            stats.not_ready_count,
            stats.retry_count,
            stats.alloc_failures,
            stats.committed_bytes,
            stats.block_bytes,
        )

    def quiet(self) -> None:
        self.trim()

    def close(self) -> None:
        self.pool.check()
        self.pool.close(force=True)
        self.device.close()
