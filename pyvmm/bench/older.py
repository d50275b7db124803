"""The older pool's arithmetic: a bump pointer that grows at its tail by what is missing, and frees in stack order only.

The demonstration plays the same algorithm over a driver; here it is numbers alone, fast enough for long logs.
"""

from __future__ import annotations

from .log import GRANULE

ROUNDING = 128


class Older:
    def __init__(self) -> None:
        self.size = 0
        self.used = 0
        self.growths = 0
        self.first = 0
        self.blocks: list[int] = []  # offsets, by rising offset
        self.freed: list[bool] = []
        self.places: dict[int, int] = {}  # offset: index

    def alloc(self, size: int) -> int:
        offset = self.used
        self.used += -(-size // ROUNDING) * ROUNDING
        if self.used > self.size:
            self.size += -(-(self.used - self.size) // GRANULE) * GRANULE
            self.growths += 1
            self.first = self.first or self.size
        self.places[offset] = len(self.blocks)
        self.blocks.append(offset)
        self.freed.append(False)
        return offset

    def free(self, offset: int) -> None:
        self.freed[self.places.pop(offset)] = True
        while self.freed and self.freed[-1]:
            self.freed.pop()
            self.used = self.blocks.pop()
