"""Streams under load, the same on the simulated device and on a GPU: captures while another thread grows and trims,
trims of memory whose work is still queued, and blocks that go from one stream to another."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import pyvmm
from pyvmm import Device, Driver, Pool, transfer

KIB, MIB, MS = 1 << 10, 1 << 20, 1_000_000
BLOCKING, NON_BLOCKING = 0, 1
MODES = ("global", "thread_local", "relaxed")
PATIENCE = 60.0


def on_gpu(driver: Driver) -> bool:
    return "sim" not in driver.name


def alloc_on(pool: Pool, size: int, stream: int) -> int:
    """A block in a stream's order; the simulated device watches that nothing of its last owner's is still to come."""
    address = pool.alloc_address(size, stream)
    driver = pool.device.driver
    if not on_gpu(driver):
        driver.sim.new_owner(address, size)
    return address


class Bench:
    """A device whose context is current, a count of wrong words in device memory, and streams that end with it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.driver = device.driver
        self.gpu = on_gpu(device.driver)
        self.streams: list[int] = []
        self.wrong = self.call("mem_alloc", 8 * KIB)
        transfer.write(self.driver, self.wrong, bytes(8))
        warm = self.stream()  # GPU code is loaded at its first launch, and that must not fall into a capture
        self.call("kernel_spin", warm, 1)
        self.write(warm, self.wrong + 4 * KIB, 4 * KIB, 1)
        self.verify(warm, self.wrong + 4 * KIB, 4 * KIB, 1)
        self.wait()

    def call(self, operation: str, *arguments: Any) -> Any:
        return transfer.call(self.driver, operation, *arguments)

    def stream(self, kind: int = NON_BLOCKING) -> int:
        made: int = self.call("stream_create", kind)
        self.streams.append(made)
        return made

    def write(self, stream: int, address: int, size: int, seed: int) -> None:
        self.call("kernel_fill", stream, address, size, seed)

    def verify(self, stream: int, address: int, size: int, seed: int) -> None:
        """Counts on the device what is not as written."""
        self.call("kernel_verify", stream, address, size, seed, self.wrong)

    def wait(self) -> None:
        for stream in self.streams:
            self.call("stream_synchronize", stream)

    def wrong_words(self) -> int:
        self.wait()
        return int.from_bytes(transfer.read(self.driver, self.wrong, 8), "little")

    def end(self) -> None:
        self.wait()
        for stream in self.streams:
            with suppress(pyvmm.InvalidArgumentError):  # no pool has met it
                self.device.forget_stream(stream)
            self.call("stream_destroy", stream)
        self.call("mem_free", self.wrong)


@pytest.fixture
def bench(device: Device) -> Generator[Bench, None, None]:
    with device.current():
        made = Bench(device)
        yield made
        made.end()
    assert not device.info.lost
    assert device.stats.quarantined_bytes == 0
    if not made.gpu:
        assert device.driver.sim.misuse() == []
        assert device.driver.sim.ledger().captures_invalidated == 0


@contextmanager
def pool_of(bench: Bench, **options: Any) -> Iterator[Pool]:
    """A pool that must have everything back at the end, by its own count and by the device's."""
    with bench.device.pool(**options) as pool:
        yield pool
        bench.wait()
        pool.check()
        pool.trim()
        stats = pool.stats
        assert (stats.block_count, stats.committed_bytes, stats.pending_bytes) == (0, 0, 0)
        assert (stats.lease_count, stats.lease_bytes, stats.quarantined_bytes) == (0, 0, 0)
    assert bench.device.stats.handle_bytes == 0


# ---- captures ----


class Neighbour(threading.Thread):
    """Allocates and frees on a stream of its own, grows and trims, over and over."""

    SIZE = 256 * KIB

    def __init__(self, bench: Bench, pool: Pool) -> None:
        super().__init__()
        self.bench, self.pool, self.stream = bench, pool, bench.stream()
        self.stopped = False
        self.turns = self.grown = self.trimmed = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self.bench.device.current():
                while not self.stopped:
                    self.turn()
        except BaseException as failure:
            self.failure = failure

    def turn(self) -> None:
        address = alloc_on(self.pool, self.SIZE, self.stream)
        self.bench.write(self.stream, address, self.SIZE, self.turns)
        self.bench.verify(self.stream, address, self.SIZE, self.turns)
        self.pool.free_address(address, stream=self.stream)
        self.trimmed += self.pool.trim(wait=False).done > 0
        self.grown += self.pool.grow(4 * MIB) > 0
        self.turns += 1

    def wait_for_change(self) -> None:
        """Until it has given memory back, and has grown the pool, in turns that began after this call."""
        turns, patience = self.turns + 2, time.monotonic() + PATIENCE
        grown, trimmed = self.grown + 2, self.trimmed + 2
        while self.turns < turns or self.grown < grown or self.trimmed < trimmed:
            if self.failure is not None:
                raise self.failure
            assert time.monotonic() < patience, "the other thread stands still"
            time.sleep(0)

    def stop(self) -> None:
        self.stopped = True
        self.join(PATIENCE)
        if self.failure is not None:
            raise self.failure


def capture_and_launch(bench: Bench, pool: Pool, stream: int, mode: int, seed: int, neighbour: Neighbour) -> None:
    """A graph on memory that was allocated and freed in its capture; it is launched when the other thread has trimmed
    and grown since."""
    size = 64 * KIB
    with bench.device.capture(stream) as lease:
        bench.call("stream_begin_capture", stream, mode)
        address = alloc_on(pool, size, stream)
        bench.write(stream, address, size, seed)
        pool.free_address(address, stream=stream)
        graph = bench.call("stream_end_capture", stream)  # an invalidated capture answers an error here
    assert lease.active
    executable = bench.call("graph_instantiate", graph, 0)
    neighbour.wait_for_change()
    bench.call("graph_launch", executable, stream)
    bench.verify(stream, address, size, seed)
    bench.call("graph_exec_destroy", executable)
    bench.call("graph_destroy", graph)
    lease.release()


@pytest.mark.parametrize("kind", [BLOCKING, NON_BLOCKING], ids=["blocking", "non_blocking"])
@pytest.mark.parametrize("mode", range(len(MODES)), ids=MODES)
def test_announced_captures_stay_valid_while_the_pool_grows_and_shrinks(bench: Bench, mode: int, kind: int) -> None:
    count = 1000 if bench.gpu else 60
    with pool_of(bench) as pool:
        stream, neighbour = bench.stream(kind), Neighbour(bench, pool)
        neighbour.start()
        try:
            for i in range(count):
                capture_and_launch(bench, pool, stream, mode, 1_000_000 + i, neighbour)
        finally:
            neighbour.stop()
        assert bench.wrong_words() == 0
        assert neighbour.grown >= count
        assert neighbour.trimmed >= count
    print(f"\n{count} captures, 0 invalidated; meanwhile {neighbour.grown} growths, {neighbour.trimmed} trims")


# ---- trims under queued work ----


def clock(bench: Bench) -> int:
    return time.perf_counter_ns() if bench.gpu else bench.driver.now()


def test_allocs_kernels_frees_and_trims_need_no_synchronise(bench: Bench) -> None:
    queued = 100 * MS  # before the first of them: a trim that waited would take as long
    taken: list[int] = []
    with pool_of(bench) as pool:
        pair = [bench.stream(), bench.stream()]
        for stream in pair:
            bench.call("kernel_spin", stream, queued)
        for i in range(200):
            stream, size = pair[i % 2], (1 + i % 7) * 512 * KIB
            address = alloc_on(pool, size, stream)
            bench.call("kernel_spin", stream, MS)
            bench.write(stream, address, size, i)
            bench.verify(stream, address, size, i)
            pool.free_address(address, stream=stream)
            started = clock(bench)
            pool.trim(wait=False)
            taken.append(clock(bench) - started)
        assert bench.wrong_words() == 0
        assert pool.stats.trim_bytes + pool.stats.pending_bytes + pool.stats.revived_bytes > 0
    taken.sort()
    median, p99, longest = (taken[int(share * (len(taken) - 1))] / 1000 for share in (0.5, 0.99, 1))
    print(
        f"\n{len(taken)} trims under queued work: median {median:.1f} us, 99 % {p99:.1f} us, longest {longest:.1f} us"
    )
    assert taken[-1] < queued / 5


# ---- from stream to stream ----

HAND_OVERS: dict[str, dict[str, Any]] = {
    "lazy": {"limit": "2MiB"},
    "eager": {"limit": "2MiB", "events": "eager"},
    "prefer_wait": {"prefer_wait": 1},
    "eager_prefer_wait": {"prefer_wait": 1, "events": "eager"},
    "growth": {},
}


@pytest.mark.parametrize("name", HAND_OVERS)
def test_a_block_goes_from_stream_to_stream_under_queued_work(bench: Bench, name: str) -> None:
    """Where there is no room to grow, or that is how it is wished, the one stream waits for the other on the device."""
    size, places = 2 * MIB, set()
    with pool_of(bench, growth_policy="exact", **HAND_OVERS[name]) as pool:
        pair = [bench.stream(), bench.stream()]
        for i in range(40):
            stream = pair[i % 2]
            address = alloc_on(pool, size, stream)
            bench.call("kernel_spin", stream, MS)
            bench.write(stream, address, size, i)
            bench.call("kernel_spin", stream, MS // 2)  # whoever writes too early is seen
            bench.verify(stream, address, size, i)
            pool.free_address(address, stream=stream)
            places.add((i % 2, address))
        assert bench.wrong_words() == 0
        waits = pool.stats.wait_count
    shared = {address for turn, address in places if turn} & {address for turn, address in places if not turn}
    assert shared or name == "growth"
    assert (waits > 0) == (name != "growth")


def test_a_stream_may_end_once_its_blocks_are_freed(bench: Bench) -> None:
    """With eager events: the driver gives its handle to the next stream while its work is still queued."""
    size, handles = MIB, []
    with pool_of(bench, events="eager") as pool:
        for i in range(40):
            stream = bench.call("stream_create", NON_BLOCKING)
            handles.append(stream)
            address = alloc_on(pool, size, stream)
            bench.call("kernel_spin", stream, MS)
            bench.write(stream, address, size, i)
            bench.call("kernel_spin", stream, MS // 2)
            bench.verify(stream, address, size, i)
            pool.free_address(address, stream=stream)
            bench.call("stream_destroy", stream)
        bench.call("ctx_synchronize")
        assert len(set(handles)) < len(handles)
        assert bench.wrong_words() == 0
