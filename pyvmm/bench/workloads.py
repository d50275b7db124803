"""The workloads of a replay: from a trace or a log by path, or made up from a seed."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from pathlib import Path

from . import log, serving
from .log import Log

SEED = 1


def prefill(tokens: int = 131_072, batch: int = 384, row: int = 2048, layers: int = 16) -> Log:
    """K and V of the whole context, converted anew for every layer while a long prompt is taken in batch by batch."""
    made = Log("prefill temporaries")
    for context in [*range(batch, tokens, batch), tokens]:
        for _ in range(layers):
            k, v = made.alloc(context * row), made.alloc(context * row)
            made.free(v)
            made.free(k)
    return made


def mixed(count: int, seed: int, live: int = 4 << 30) -> Log:
    """Blocks of all sizes, as of a program on data frames: lognormal around 256 KiB up to 256 MiB, lifetimes that have
    nothing to do with sizes, and a level that rises and falls three times."""
    made, source, now = Log("mixed sizes"), random.Random(seed), 0
    ends: list[tuple[float, int, int]] = []  # (when, block, size)
    for number in range(count):
        level = live * (0.55 - 0.45 * math.cos(2 * math.pi * 3 * number / count))
        while ends and (now > level or ends[0][0] <= number):
            _, block, size = heapq.heappop(ends)
            made.free(block)
            now -= size
        size = min(256 << 20, int((256 << 10) * math.exp(source.gauss(0, 2.2))) + 1)
        life = source.expovariate(1 / 3000) if source.random() < 0.9 else source.expovariate(1 / 30000)
        heapq.heappush(ends, (number + life, made.alloc(size), size))
        now += size
    while ends:
        made.free(heapq.heappop(ends)[1])
    return made


def paged(requests: list[serving.Request], name: str) -> Log:
    return serving.Paged(name).serve(requests)


def contiguous(requests: list[serving.Request], name: str) -> Log:
    return serving.Contiguous(name, speed=serving.Speed(running=24)).serve(requests)


def prefixes(requests: list[serving.Request], name: str) -> Log:
    return serving.Prefixes(name, model=serving.Model(kv=34_816)).serve(requests)


Layout = Callable[[list[serving.Request], str], Log]
LAYOUTS: dict[str, Layout] = {"paged": paged, "contiguous": contiguous, "prefixes": prefixes}


def made_up(scale: float = 1.0, seed: int = SEED, only: str = "") -> list[Log]:
    """The seeded workloads whose name contains `only`. scale: how many requests or blocks, of those of the figures; the
    prefill is always that of 131,072 tokens."""
    requests = serving.made_up(max(20, int(1500 * scale)), seed)
    long = serving.made_up(max(20, int(400 * scale)), seed + 1, rate=2.0, prompt=6000, output=400)
    makers: dict[str, Callable[[str], Log]] = {
        "prefill temporaries": lambda name: prefill(),
        "paged KV": lambda name: paged(requests, name),
        "contiguous KV": lambda name: contiguous(requests[: len(requests) // 2], name),
        "shared prefixes": lambda name: prefixes(long, name),
        "mixed sizes": lambda name: mixed(max(200, int(100_000 * scale)), seed),
    }
    return [make(name) for name, make in makers.items() if only in name]


def from_path(path: Path, limit: int, layout: str = "") -> Log:
    """A log as it is (RMM's CSV), or a trace worked through: the first `limit` requests. layout: paged, contiguous or
    prefixes; without one, what the trace was made for."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    if "Action" in first:
        return log.read(path)
    requests = serving.read(path)[:limit]
    if not layout:
        layout = "prefixes" if path.suffix == ".jsonl" else "paged" if "TIMESTAMP" in first else "contiguous"
    return LAYOUTS[layout](requests, f"{path.stem}, {layout}")
