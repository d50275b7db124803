"""Random operations on a pool against a model of what it should hold, with faults that come and go."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import pyvmm
from pyvmm import Block

MIB = 1 << 20
FAULTS = (
    "cuMemCreate:2",
    "cuMemMap:1",
    "cuMemSetAccess:NOT_READY",
    "cuMemSetAccess:999",
    "cuMemUnmap:1",
    "cuMemRelease:1",
)
SIZES = st.one_of(
    st.integers(min_value=0, max_value=5000),
    st.sampled_from([255, 256, 257, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB]),
    st.integers(min_value=0, max_value=12 * MIB),
)


class PoolMachine(RuleBasedStateMachine):
    """The model: block -> its first and last bytes. The memory is 64 MiB, so requests are refused now and then."""

    @initialize(fresh=st.sampled_from(["zero", "poison", "stale"]))
    def start(self, fresh: str) -> None:
        self.sim = pyvmm.sim(memory="64MiB", fresh=fresh)
        self.faulty = self.sim.faulty()
        self.device = pyvmm.Device(driver=self.faulty)
        self.pool = self.device.pool()
        self.model: dict[Block, bytes] = {}
        self.serial = 0

    @rule(size=SIZES, alignment=st.sampled_from([0, 256, 4096, MIB]))
    def alloc(self, size: int, alignment: int) -> None:
        try:
            block = self.pool.alloc(size, alignment=alignment)
        except pyvmm.VmmError:
            return
        self.serial += 1
        mark = self.serial.to_bytes(4, "little")[: size // 2]  # at both ends
        assert block.address % max(256, alignment) == 0
        view = self.sim.view(block.address, max(1, size))
        view[: len(mark)] = list(mark)
        view[size - len(mark) : size] = list(mark)
        self.model[block] = mark

    @precondition(lambda self: self.model)
    @rule(data=st.data(), how=st.sampled_from(["free", "idle", "drop", "address"]))
    def free(self, data: st.DataObject, how: str) -> None:
        # An index, not the block: hypothesis keeps what it draws, and a block that is kept is not dropped.
        block = sorted(self.model, key=int)[data.draw(st.integers(0, len(self.model) - 1))]
        address = block.address
        del self.model[block]
        if how in ("free", "idle"):
            block.free(idle=how == "idle")
        elif how == "address":
            self.pool.free_address(address)
            with pytest.raises(pyvmm.UnknownAddressError):
                block.free()
        del block

    @rule(size=st.integers(min_value=1, max_value=24 * MIB))
    def grow(self, size: int) -> None:
        before = self.pool.stats
        try:
            grown = self.pool.grow(size)
        except pyvmm.VmmError:
            assert self.pool.stats.committed_bytes <= before.committed_bytes
            return
        assert grown >= size
        assert self.pool.stats.growth_bytes == before.growth_bytes + grown

    @rule(keep=st.integers(min_value=0, max_value=32 * MIB))
    def trim(self, keep: int) -> None:
        before = self.pool.stats.committed_bytes
        try:
            done = self.pool.trim(keep)
        except pyvmm.VmmError as error:
            done = error.done
        assert self.pool.stats.committed_bytes == before - done

    @rule(text=st.sampled_from(FAULTS), occurrence=st.integers(1, 3), times=st.sampled_from(["1", "2", "*"]))
    def fault(self, text: str, occurrence: int, times: str) -> None:
        self.faulty.add(f"{text}@{occurrence}x{times}")

    @rule()
    def heal(self) -> None:
        self.faulty.clear()

    @invariant()
    def what_the_model_says(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check()
        blocks = self.pool.blocks()
        assert [info.address for info in blocks] == sorted(block.address for block in self.model)
        stats, ledger = self.pool.stats, self.sim.ledger()
        assert stats.block_count == len(self.model)
        assert stats.requested_bytes == sum(block.nbytes for block in self.model)
        assert stats.committed_bytes - stats.block_bytes == stats.idle_bytes
        assert ledger.accessible_bytes >= stats.committed_bytes
        assert ledger.misuse == 0, self.sim.misuse()
        for block, mark in self.model.items():
            if block.nbytes:
                view = self.sim.view(block.address, block.nbytes)
                assert view[: len(mark)].tobytes() == mark
                assert view[block.nbytes - len(mark) :].tobytes() == mark

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.faulty.clear()
        for block in self.model:
            block.close()
        self.model.clear()
        self.pool.trim()
        self.pool.close()
        self.device.close()
        ledger = self.sim.ledger()
        assert (ledger.reservations, ledger.handles, ledger.mappings, ledger.primary_references) == (0, 0, 0, 0)


PoolMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPoolModel = PoolMachine.TestCase


def test_threads_with_random_faults() -> None:
    """16 threads allocate, free, grow and trim while calls fail at random: only failing requests see an error."""
    sim = pyvmm.sim(memory="256MiB")
    faulty = sim.faulty(seed=7)
    for op in ("mem_create", "mem_map", "mem_set_access", "mem_unmap"):
        faulty.add(op=op, code="NOT_READY" if op == "mem_set_access" else 2, times="ever", probability=0.05)
    device = pyvmm.Device(driver=faulty)
    pool = device.pool(mapping_max="4MiB")
    wrong: list[object] = []

    def work(seed: int) -> None:
        dice, mine = random.Random(seed), []
        try:
            for _ in range(60):
                try:
                    what = dice.random()
                    if what < 0.6:
                        block = pool.alloc(dice.randrange(1, 3 * MIB))
                        sim.view(block.address, 1)[0] = seed
                        mine.append(block)
                    elif mine and what < 0.9:
                        block = mine.pop(dice.randrange(len(mine)))
                        if sim.view(block.address, 1)[0] != seed:
                            wrong.append(f"block of thread {seed} was overwritten")
                        block.close()
                    elif what < 0.95:
                        pool.grow(dice.randrange(1, 4 * MIB))
                    else:
                        pool.trim(deadline=0.5)
                except pyvmm.VmmError as error:
                    if isinstance(error, (pyvmm.BrokenError, pyvmm.UnknownAddressError, pyvmm.InvalidArgumentError)):
                        wrong.append(error)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert faulty.fired() > 0
    faulty.clear()
    pool.check()
    assert pool.stats.block_count == 0  # the threads' lists are gone, and with them their blocks
    assert sim.ledger().misuse == 0
    pool.trim()
    pool.close()
    device.close()
    assert sim.ledger().handles == 0
