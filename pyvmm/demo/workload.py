"""The workload: four conversations with an inference server, and how large the server's buffers are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

CHARACTERS_A_TOKEN = 4
CONTEXT = 24_576
"""Tokens the KV memory has room for."""
BATCH = 384
LAYERS = 16
PLANES = 2 * LAYERS
"""K and V of each layer: the KV memory is one plane after the other."""
CACHE_SLOTS = 2


@dataclass(frozen=True)
class Session:
    name: str
    characters: int
    turns: int

    def tokens(self, turn: int) -> int:
        """Length of the prompt, all that was said before included, in turn 1, 2, ..."""
        return self.characters // CHARACTERS_A_TOKEN * turn // self.turns


SESSIONS = (
    Session("short", 10_000, 10),
    Session("medium", 25_000, 6),
    Session("long", 38_000, 10),
    Session("huge", 70_000, 10),
)
TURNS = sum(session.turns for session in SESSIONS)


def turns() -> Iterator[tuple[int, int]]:
    """(number of the session, turn), one after the other."""
    for number, session in enumerate(SESSIONS):
        for turn in range(1, session.turns + 1):
            yield number, turn


@dataclass(frozen=True)
class Scale:
    """Sizes in bytes: those of a real model divided by a factor."""

    factor: int

    @property
    def row(self) -> int:
        """One token in one plane."""
        return 2048 // self.factor

    @property
    def token(self) -> int:
        """One token in the KV memory: 64 KiB."""
        return self.row * PLANES

    @property
    def plane(self) -> int:
        return self.row * CONTEXT

    def temporaries(self, context: int, batch: int) -> tuple[int, ...]:
        """What one layer needs: K and V of the whole context, the quantised activation, two small ones."""
        wide = context * self.row
        activation = batch * 17_408 * 36 // 32 // self.factor
        return wide, wide, activation, max(batch * 64 // self.factor, 256), max(12_288 // self.factor, 128)


SIM = Scale(64)
"""1 KiB a token: the same shape, in less time on a processor."""
