"""The older pool's algorithm, for comparison: what such pools do in the field, over the driver's raw operations.

It is no part of the library and nothing of the library calls it. It lies in the package, and not only in scripts/, so
that the demonstration also runs from an installed wheel; scripts/older_pool.py is the door in the source tree.
"""

from __future__ import annotations

from .machine import Machine
from .memory import Counters

ROUNDING = 128
RESERVATION = 32 << 30
NOT_READY = 600


def round_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class OlderPool:
    """A bump pointer over one reservation that grows at its tail.

    Errors are reported and ignored: an address is handed out whether memory is there or not. Blocks are freed in
    last-in-first-out order only: one freed before those above it stays until they are gone.
    """

    def __init__(self, machine: Machine, sync: bool = False, retries: int = 0) -> None:
        self.machine = machine
        self.raw = machine.raw
        self.sync = sync
        """Wait for the device before the pool grows, in the growth branch only."""
        self.retries = retries
        """Tries after a NOT_READY; what remains undone stays as it is."""
        self.base = 0
        self.size = 0
        self.used = 0
        self.blocks: list[list[int]] = []  # [address, size, 1 while in use]
        self.live = 0
        self.count = Counters()
        self.reports: list[str] = []

    def alloc(self, size: int) -> int:
        size = round_up(size, ROUNDING)
        if self.used + size > self.size:
            self.grow(round_up(self.used + size - self.size, self.machine.granularity))
        address = self.base + self.used
        self.blocks.append([address, size, 1])
        self.used += size
        self.live += size
        return address

    def free(self, address: int) -> None:
        for block in reversed(self.blocks):
            if block[0] == address:
                block[2] = 0
                self.live -= block[1]
                break
        while self.blocks and not self.blocks[-1][2]:
            self.used -= self.blocks.pop()[1]

    def grow(self, size: int) -> None:
        if self.size + size > RESERVATION:
            raise MemoryError("the older pool has used up its reservation")
        if self.sync:
            self.wait()
        code, handle = self.raw.mem_create(size, self.machine.prop, 0)
        self.check("cuMemCreate", code)
        if not self.base:
            code, self.base = self.raw.mem_reserve(RESERVATION, 0, 0, 0)
            self.check("cuMemAddressReserve", code)
        tail = self.base + self.size
        self.check("cuMemMap", self.raw.mem_map(tail, size, 0, handle, 0))
        self.check("cuMemRelease", self.raw.mem_release(handle))
        code = self.set_access(tail, size)
        for _ in range(self.retries):
            if code != NOT_READY:
                break
            self.count.retries += 1
            self.wait()
            code = self.set_access(tail, size)
        self.check("cuMemSetAccess", code)
        self.size += size
        self.count.growths += 1

    def set_access(self, address: int, size: int) -> int:
        code: int = self.raw.mem_set_access(address, size, self.machine.access, 1)
        self.count.not_ready += code == NOT_READY
        return code

    def wait(self) -> None:
        self.count.syncs += 1
        self.check("cuCtxSynchronize", self.raw.ctx_synchronize())

    def check(self, call: str, code: int) -> None:
        """What stands for the error macro whose abort did not end the process."""
        if code:
            self.reports.append(f"{call} answered {code}")

    # ---- what the rehearsal asks of every arm ----

    def counters(self) -> Counters:
        self.count.committed, self.count.live = self.size, self.live
        return self.count

    def quiet(self) -> None:
        """It never gives anything back."""

    def close(self) -> None:
        if self.size:
            self.raw.mem_unmap(self.base, self.size)
        if self.base:
            self.raw.mem_address_free(self.base, RESERVATION)
