"""Other libraries' allocators, for a replay on a GPU. Each plays all logs in a process of its own."""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from .log import Log
from .replay import Figures, Outcome, play

EXPANDABLE = "torch, expandable segments"


def _nothing(block: Any) -> None:
    """For blocks that are dropped."""


class Peer:
    """What all have in common."""

    drops = False
    name = ""
    alloc: Callable[[int], Any]
    free: Callable[[Any], Any] = staticmethod(_nothing)

    def figures(self) -> Figures:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Torch(Peer):
    def __init__(self, name: str) -> None:
        self.name = name
        self.torch = importlib.import_module("torch")
        self.torch.cuda.init()
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        self.before = self.calls()
        self.alloc = self.torch.cuda.caching_allocator_alloc
        self.free = self.torch.cuda.caching_allocator_delete

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
            return memory._malloc(size)

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
    def __init__(self, name: str) -> None:
        self.name = name
        mr = importlib.import_module("rmm").mr
        self.upstream = mr.StatisticsResourceAdaptor(mr.CudaMemoryResource())
        if name == "rmm pool":
            self.mr = mr.PoolMemoryResource(self.upstream, initial_pool_size=2 << 20)
        else:
            self.mr = mr.ArenaMemoryResource(self.upstream, arena_size=2 << 20)
        self.sizes: dict[int, int] = {}

    def alloc(self, size: int) -> int:
        address: int = self.mr.allocate(size)
        self.sizes[address] = size
        return address

    def free(self, block: int) -> None:
        self.mr.deallocate(block, self.sizes.pop(block))

    def figures(self) -> Figures:
        counts = self.upstream.allocation_counts
        return Figures(counts.peak_bytes, counts.total_count)


PEERS: dict[str, Callable[[str], Peer]] = {
    "torch": Torch,
    EXPANDABLE: Torch,
    "cupy.cuda.MemoryPool": CupyPool,
    "cupy.cuda.MemoryAsyncPool": CupyAsync,
    "rmm pool": Rmm,
    "rmm arena": Rmm,
}


def _play_all(name: str, logs: list[Log]) -> list[Outcome]:
    """In the child, before anything of the library is imported."""
    if name == EXPANDABLE:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return [play(log, lambda: PEERS[name](name)) for log in logs]


def play_all(name: str, logs: list[Log]) -> tuple[list[Outcome], str]:
    """All logs on one of the peers; or why not."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as child:
        try:
            return child.submit(_play_all, name, logs).result(timeout=300), ""
        except BrokenProcessPool:
            return [], "its process ended"
        except Exception as error:  # absent, or does not work here: whatever it raises is the reason
            return [], f"{type(error).__name__}: {error}".splitlines()[0]
