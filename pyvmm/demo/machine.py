"""The machine of one rehearsal: a driver that faults can be planted in, a context, the server's stream."""

from __future__ import annotations

from typing import Any

from ..drivers import Driver, cuda
from ..raw import access, location, memory
from ..sim import sim
from ..transfer import call
from .workload import Scale

STICKY = frozenset({46, 201, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719})
"""Codes after which the context is dead."""
SIM_GRANULE = 2 << 20
SIM_MEMORY = 4 << 30


class Machine:
    def __init__(self, kind: str, scale: Scale, touch: str = "zero", ordinal: int = 0) -> None:
        self.kind = kind
        self.scale = scale
        self.ordinal = ordinal
        if kind not in ("cuda", "sim"):
            raise ValueError(f"{kind!r} is neither cuda nor sim")
        self.inner: Driver = cuda() if kind == "cuda" else _sim(scale, touch)
        self.driver = self.inner.faulty()
        self.raw = self.driver.raw
        call(self.driver, "init", 0)
        self.device = call(self.driver, "device_get", ordinal)
        self.context = call(self.driver, "primary_retain", self.device)
        call(self.driver, "ctx_set_current", self.context)
        self.stream = self.new_stream()
        self.prop = memory(self.device)
        self.access = access(self.device)
        self.location = location(self.device)
        self.granularity = call(self.driver, "mem_granularity", self.prop, 1)
        self.lost = 0
        """The sticky code that an operation of the server answered, or 0."""

    def new_stream(self) -> int:
        """A stream that does not wait for the legacy one."""
        return int(call(self.driver, "stream_create", 1))

    def plain(self, size: int) -> int:
        """Memory that no pool has anything to do with."""
        return int(call(self.driver, "mem_alloc", size))

    def do(self, operation: Any, *arguments: Any) -> None:
        """An operation of the server: it looks at errors as little as the servers in question did."""
        code = operation(*arguments)
        if code in STICKY and not self.lost:
            self.lost = code


def _sim(scale: Scale, touch: str) -> Driver:
    granule = SIM_GRANULE // scale.factor
    return sim(memory=SIM_MEMORY, minimum_granularity=granule, granularity=granule, touch=touch, fresh="poison")
