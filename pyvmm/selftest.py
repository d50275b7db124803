"""python -m pyvmm selftest: the main job and two failures, in a second, on the machine it runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .block import Block
from .device import Device
from .drivers import Driver
from .errors import OutOfMemoryError, VmmError
from .pool import Pool
from .sizes import show

SIZES = (1, 255, 4096, 100_000, 3 << 20)
MORE = 64 << 20


@dataclass(frozen=True)
class Step:
    name: str
    passed: bool
    detail: str


def expected(seed: int, size: int) -> bytes:
    """Bytes that depend on the block and on the place."""
    return bytes((seed * 37 + i) % 251 for i in range(256)) * (size // 256 + 1)


class Failed(Exception):
    """A step found something other than it should."""


class Selftest:
    def __init__(self, driver: Driver, ordinal: int = 0) -> None:
        self.driver = driver.faulty()
        self.device = Device(ordinal, driver=self.driver)
        self.name = f"{self.device.info.name} ({driver.name})"
        self.pool: Pool = self.device.pool()
        self.blocks: list[Block] = []

    def run(self) -> list[Step]:
        steps: list[Callable[[], str]] = [
            self.allocate, self.compare, self.not_ready, self.out_of_memory, self.compare, self.give_back, self.close,
        ]  # fmt: skip
        done = []
        for step in steps:
            name = step.__doc__ or step.__name__
            try:
                done.append(Step(name, True, step()))
            except (VmmError, Failed) as error:
                done.append(Step(name, False, f"{type(error).__name__}: {error}"))
        return done

    def allocate(self) -> str:
        """allocate and write blocks"""
        for seed, size in enumerate(SIZES):
            block = self.pool.alloc(size, tag=seed)
            block.write(expected(seed, size)[:size])
            self.blocks.append(block)
        return f"{len(self.blocks)} blocks, {show(self.pool.stats.committed_bytes)} committed"

    def compare(self) -> str:
        """read them back"""
        for block in self.blocks:
            if block.read() != expected(block.tag, block.nbytes)[: block.nbytes]:
                raise Failed(f"the block at {block.address:#x} has other bytes")
        self.pool.check()
        return f"{show(sum(block.nbytes for block in self.blocks))} the same, all invariants hold"

    def not_ready(self) -> str:
        """grow while set-access says NOT_READY once"""
        before = self.pool.stats
        rule = self.driver.add("cuMemSetAccess:NOT_READY")
        grown = self.pool.grow(before.idle_bytes + MORE)
        fired, after = self.driver.fired(rule), self.pool.stats
        self.driver.clear()
        if fired != 1 or after.retry_count == before.retry_count:
            raise Failed(f"the fault fired {fired} times, {after.retry_count - before.retry_count} retries")
        return f"{show(grown)} more, {after.retry_count - before.retry_count} retry"

    def out_of_memory(self) -> str:
        """grow while the driver has no memory"""
        before = self.pool.stats.committed_bytes
        self.driver.add(op="cuMemCreate", code="OUT_OF_MEMORY", times="ever")
        try:
            self.pool.grow(before + MORE)
        except OutOfMemoryError as error:
            left = self.pool.stats.committed_bytes
            if left + error.gave_back != before:
                raise Failed(f"{before} bytes were committed, {error.gave_back} given back, {left} are left") from None
            return f"refused and undone: {error.call}, {error.code_name}; {show(error.gave_back)} idle given back"
        finally:
            self.driver.clear()
        raise Failed("the growth succeeded")

    def give_back(self) -> str:
        """free and trim"""
        for block in self.blocks:
            block.close()
        self.blocks.clear()
        done = self.pool.trim()
        if self.pool.stats.committed_bytes:
            raise Failed(f"{self.pool.stats.committed_bytes} bytes stay committed")
        return f"{show(done)} given back"

    def close(self) -> str:
        """close pool and device"""
        self.pool.close()
        self.device.close()
        return "nothing left"
