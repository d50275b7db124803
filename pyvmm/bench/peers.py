"""Other libraries' allocators, for a replay and for growth on a GPU, each in a process of its own."""

from __future__ import annotations

import abc
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from .log import Log
from .replay import Figures, Outcome, play
from .results import Record, skip, summarise

EXPANDABLE = "torch, expandable segments"
PATIENCE = 240.0
"""Seconds for all logs on one of them."""


def _nothing(block: Any) -> None:
    """For blocks that are dropped."""


class Peer(abc.ABC):
    """What all have in common."""

    drops = False
    name = ""
    alloc: Callable[[int], Any]
    free: Callable[[Any], Any] = staticmethod(_nothing)

    @abc.abstractmethod
    def figures(self) -> Figures: ...

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        pass


class Torch(Peer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.torch = importlib.import_module("torch")
        self.torch.cuda.init()
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        self.before = self.calls()
        self.streams: dict[int, Any] = {}
        self.alloc = self.torch.cuda.caching_allocator_alloc
        self.free = self.torch.cuda.caching_allocator_delete

    def _stream(self, number: int) -> Any:
        if number not in self.streams:
            self.streams[number] = self.torch.cuda.Stream()
        return self.streams[number]

    def alloc_on(self, size: int, stream: int) -> int:
        address: int = self.torch.cuda.caching_allocator_alloc(size, None, self._stream(stream))
        return address

    def free_on(self, block: int, stream: int) -> None:
        """It remembers the stream of the alloc, and asks for no other."""
        self.free(block)

    def close(self) -> None:
        self.torch.cuda.empty_cache()

    def calls(self) -> int:
        return int(self.torch.cuda.memory_stats().get("num_device_alloc", 0))

    def figures(self) -> Figures:
        return Figures(self.torch.cuda.max_memory_reserved(), self.calls() - self.before)


class CupyPool(Peer):
    name = "cupy.cuda.MemoryPool"
    drops = True

    def __init__(self, name: str) -> None:
        memory = importlib.import_module("cupy").cuda.memory
        self.growths = 0

        def grow(size: int) -> Any:
            self.growths += 1
            return memory.MemoryPointer(memory.Memory(size), 0)

        self.pool = memory.MemoryPool(grow)
        self.alloc = self.pool.malloc
        self.peak = 0

    def figures(self) -> Figures:
        return Figures(self.pool.total_bytes(), self.growths)

    def close(self) -> None:
        self.pool.free_all_blocks()


class CupyAsync(Peer):
    """cudaMallocAsync's pool, through CuPy."""

    name = "cupy.cuda.MemoryAsyncPool"
    drops = True
    RESERVED_HIGH = 6

    def __init__(self, name: str) -> None:
        self.cupy = importlib.import_module("cupy")
        self.runtime = self.cupy.cuda.runtime
        self.handle = self.runtime.deviceGetDefaultMemPool(0)
        self.runtime.memPoolTrimTo(self.handle, 0)
        self.runtime.memPoolSetAttribute(self.handle, self.RESERVED_HIGH, 0)
        self.pool = self.cupy.cuda.MemoryAsyncPool()
        self.alloc = self.pool.malloc

    def figures(self) -> Figures:
        return Figures(int(self.runtime.memPoolGetAttribute(self.handle, self.RESERVED_HIGH)), 0, "growths not known")

    def close(self) -> None:
        self.cupy.cuda.Device(0).synchronize()
        self.runtime.memPoolTrimTo(self.handle, 0)


class Rmm(Peer):
    """Its pool. Its arena is of a size given beforehand, so there is nothing to find out about that."""

    def __init__(self, name: str) -> None:
        self.name = name
        mr = importlib.import_module("rmm").mr
        self.upstream = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
        self.mr = mr.PoolMemoryResource(self.upstream, initial_pool_size=2 << 20)
        self.new_stream = importlib.import_module("rmm.pylibrmm.stream").Stream
        self.streams: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}

    def _stream(self, number: int) -> Any:
        if number not in self.streams:
            self.streams[number] = self.new_stream()
        return self.streams[number]

    def alloc(self, size: int) -> int:
        return self._keep(self.mr.allocate(size), size)

    def free(self, block: int) -> None:
        self.mr.deallocate(block, self.sizes.pop(block))

    def alloc_on(self, size: int, stream: int) -> int:
        return self._keep(self.mr.allocate(size, stream=self._stream(stream)), size)

    def free_on(self, block: int, stream: int) -> None:
        self.mr.deallocate(block, self.sizes.pop(block), stream=self._stream(stream))

    def _keep(self, address: int, size: int) -> int:
        self.sizes[address] = size
        return address

    def figures(self) -> Figures:
        counts = self.upstream.allocation_counts
        return Figures(counts.peak_bytes, counts.total_count)


PEERS: dict[str, Callable[[str], Peer]] = {
    "torch": Torch,
    EXPANDABLE: Torch,
    "cupy.cuda.MemoryPool": CupyPool,
    "cupy.cuda.MemoryAsyncPool": CupyAsync,
    "rmm pool": Rmm,
}


# ---- growth ----

GROWTHS = {"2 MiB": 2, "8 MiB": 8, "32 MiB": 32, "128 MiB": 128, "512 MiB": 512, "1 GiB": 1024, "8 GiB": 8192}
"""In MiB; the names are those of the C benchmark."""


def _grow(rounds: int) -> list[Record]:
    """What PyTorch takes to grow from nothing."""
    torch = importlib.import_module("torch")
    alloc, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    records = []
    for case, size in GROWTHS.items():
        times = []
        for _ in range(rounds + 1):
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            start = time.perf_counter_ns()
            block = alloc(size << 20)
            times.append((time.perf_counter_ns() - start) / 1e3)
            free(block)
        records.append(summarise("growth", case, EXPANDABLE, "us", times[1:]))
    torch.cuda.empty_cache()
    return records


# ---- a process for each ----


def _play(name: str, logs: list[Log]) -> list[Outcome]:
    return [play(log, lambda: PEERS[name](name)) for log in logs]


def _child(pipe: Connection, name: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """What the process does, before anything of the other library is imported."""
    if name == EXPANDABLE:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    try:
        pipe.send(work(*arguments))
    except Exception as error:  # absent, or does not work here: whatever it raises is the reason
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])


def _apart(name: str, work: Callable[..., Any], *arguments: Any) -> tuple[list[Any], str]:
    """What the work answers, a list; or why it does not."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, name, work, arguments), daemon=True)
    child.start()
    there.close()
    try:
        answer = here.recv() if here.poll(PATIENCE) else "it took too long"
    except EOFError:
        answer = "its process ended"
    child.kill()
    child.join()
    return (answer, "") if isinstance(answer, list) else ([], str(answer))


def play_all(name: str, logs: list[Log]) -> tuple[list[Outcome], str]:
    """All logs on one of the peers; or why not."""
    return _apart(name, _play, name, logs)


def growth(rounds: int) -> list[Record]:
    """Growth of PyTorch's expandable segments, to be set beside that of the C benchmark."""
    records, why = _apart(EXPANDABLE, _grow, rounds)
    return records or [skip("growth", "2 MiB", EXPANDABLE, why)]
