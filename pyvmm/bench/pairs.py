"""Speed from Python: a block taken and given back, against the allocators of other libraries, in shuffled order."""

from __future__ import annotations

import gc
import importlib
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..device import Device
from ..drivers import Driver
from .results import Record, skip, summarise

SIZE = 64 << 10
LIVE = 1000
Plan = list[tuple[int, int]]
"""Which block goes, and the size of the one in its place."""


@dataclass
class Arm:
    """An allocator in a Python user's hands. What has no `free` is given back when it is dropped."""

    name: str
    alloc: Callable[[int], Any]
    free: Callable[..., Any] | None = None
    sized: bool = False
    """free wants the size too."""

    def stack(self, count: int) -> None:
        """Pairs of one size, last in first out."""
        alloc, free, size = self.alloc, self.free, SIZE
        if free is None:
            for _ in range(count):
                alloc(size)
        elif self.sized:
            for _ in range(count):
                free(alloc(size), size)
        else:
            for _ in range(count):
                free(alloc(size))

    def victims(self, blocks: list[Any], sizes: list[int], plan: Plan) -> None:
        """Pairs of many sizes, at random among many live blocks."""
        alloc, free = self.alloc, self.free
        if free is None:
            for index, size in plan:
                blocks[index] = None
                blocks[index] = alloc(size)
        elif self.sized:
            for index, size in plan:
                free(blocks[index], sizes[index])
                blocks[index] = alloc(size)
                sizes[index] = size
        else:
            for index, size in plan:
                free(blocks[index])
                blocks[index] = alloc(size)

    def drop(self, blocks: list[Any], sizes: list[int]) -> None:
        for block, size in zip(blocks, sizes, strict=True):
            if self.free is not None:
                self.free(*((block, size) if self.sized else (block,)))
        blocks.clear()


def make_sizes(count: int, source: random.Random) -> list[int]:
    """As the C benchmark: lognormal, median 60 KB, 256 B to 4 MB."""
    return [min(4_194_304, max(256, int(60e3 * math.exp(source.gauss(0, 1.5))))) for _ in range(count)]


# ---- the arms ----


def libvmm(driver: Driver) -> tuple[list[Arm], Callable[[], None]]:
    """Ours, and what ends it."""
    device = Device(driver=driver)
    pool = device.pool(initial="1GiB")

    def end() -> None:
        pool.close(force=True)
        device.close()

    def close(block: Any) -> None:
        block.close()

    integers = Arm("libvmm, integers", pool.alloc_address, pool.free_address)
    return [integers, Arm("libvmm, blocks", pool.alloc), Arm("libvmm, blocks, close()", pool.alloc, close)], end


def _torch() -> list[Arm]:
    torch = importlib.import_module("torch")
    torch.cuda.init()
    alloc, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    empty, byte = torch.empty, torch.uint8
    return [
        Arm("torch, integers", alloc, free),
        Arm("torch, tensors", lambda size: empty(size, dtype=byte, device="cuda")),
    ]


def _cupy() -> list[Arm]:
    cupy = importlib.import_module("cupy")
    cupy.cuda.Device(0).use()
    arms = [Arm("cupy.cuda.MemoryPool", cupy.cuda.MemoryPool().malloc)]
    arms.append(Arm("cupy.cuda.MemoryAsyncPool", cupy.cuda.MemoryAsyncPool().malloc))
    return arms


def _rmm() -> list[Arm]:
    mr = importlib.import_module("rmm").mr
    plain = mr.CudaMemoryResource
    made = {
        "rmm pool": mr.PoolMemoryResource(plain(), initial_pool_size=1 << 30),
        "rmm arena": mr.ArenaMemoryResource(plain(), arena_size=1 << 30),
        "rmm async": mr.CudaAsyncMemoryResource(),
    }
    return [Arm(name, one.allocate, one.deallocate, sized=True) for name, one in made.items()]


def _cuda_core() -> list[Arm]:
    try:
        core = importlib.import_module("cuda.core")
        made = core.Device(0)
    except (ImportError, AttributeError):
        made = importlib.import_module("cuda.core.experimental").Device(0)
    made.set_current()
    stream = made.create_stream()

    def alloc(size: int) -> Any:
        return made.allocate(size, stream=stream)

    def close(buffer: Any) -> None:
        buffer.close(stream)

    return [Arm("cuda.core", alloc, close)]


PEERS: dict[str, Callable[[], list[Arm]]] = {"torch": _torch, "cupy": _cupy, "rmm": _rmm, "cuda.core": _cuda_core}


def versions() -> dict[str, str]:
    """Of what is installed to compare with."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("torch", "cupy-cuda13x", "cupy-cuda12x", "rmm-cu13", "rmm-cu12", "cuda-core"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# ---- measuring ----


def measure(driver: Driver, rounds: int, count: int, seed: int = 1, peers: bool = True) -> list[Record]:
    """Both kinds of pairs, of every arm in every round, in an order of its own."""
    arms, end = libvmm(driver)
    records: list[Record] = []
    for name, make in PEERS.items():
        if not peers:
            records.append(skip("Python pair", "", name, "not on the simulated device"))
            continue
        try:
            made = make()
            for arm in made:
                arm.stack(2)
            arms += made
        except Exception as error:  # a library that is absent or does not work here; whatever it raises, say so
            records.append(skip("Python pair", "", name, f"{type(error).__name__}: {error}".splitlines()[0]))
    source = random.Random(seed)
    stack: dict[str, list[float]] = {arm.name: [] for arm in arms}
    victims: dict[str, list[float]] = {arm.name: [] for arm in arms}
    held = {arm.name: (sizes := make_sizes(LIVE, source), [arm.alloc(size) for size in sizes]) for arm in arms}
    gc.disable()
    try:
        for number in range(rounds + 1):
            plan = [(source.randrange(LIVE), size) for size in make_sizes(count, source)]
            for arm in source.sample(arms, len(arms)):
                sizes, blocks = held[arm.name]
                times = [time.perf_counter_ns()]
                arm.stack(count)
                times.append(time.perf_counter_ns())
                arm.victims(blocks, sizes, plan)
                times.append(time.perf_counter_ns())
                if number:  # the first round does not count
                    stack[arm.name].append((times[1] - times[0]) / count)
                    victims[arm.name].append((times[2] - times[1]) / count)
    finally:
        gc.enable()
    for arm in arms:
        sizes, blocks = held[arm.name]
        arm.drop(blocks, sizes)
    end()
    for case, found in (("last in, first out", stack), (f"live={LIVE}", victims)):
        records += [summarise("Python pair", case, name, "ns", values) for name, values in found.items()]
    return records
