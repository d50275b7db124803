"""The rehearsal of an inference server with a prefix cache, all on one stream and never waiting for it but to answer.

What a real model would compute is replaced by patterns that depend on the conversation and on the place in it; they
flow through the temporaries into the KV memory, from there into snapshots and back, and an answer is a checksum of what
lies in the KV memory in the end. So an answer is right only if every byte on the way was kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..drivers import pattern_word
from ..transfer import POISON
from .machine import Machine
from .memory import Counters, Memory
from .workload import BATCH, CACHE_SLOTS, LAYERS, PLANES, SESSIONS

GOLDEN = 0x9E3779B97F4A7C15
"""Step of kernel_fill's pattern from word to word."""
WORD = 2**64
QUARTERS = 4
SPIN_NS = 200_000
"""What a layer keeps the device busy for."""
NOTHING_RESTORED = 0xEE


@dataclass
class Snapshot:
    session: int
    tokens: int
    address: int
    used: int


@dataclass
class Sample:
    """The pool at one moment. time: in turns."""

    time: float
    committed: int
    live: int
    growths: int
    not_ready: int
    retries: int
    evicted: int


class Server:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.raw = machine.raw
        self.stream = machine.stream
        self.scale = machine.scale
        self.kv = machine.plain(self.scale.plane * PLANES)
        self.sums = machine.plain(8 * PLANES * QUARTERS)
        self.memory: Memory
        self.cache: list[Snapshot] = []
        self.clock = 0  # of the cache: counts uses
        self.evicted = 0  # under pressure
        self.samples: list[Sample] = []
        self.prompt: tuple[int, int, int] | None = None  # address, size, handle of a buffer the pool does not know

    # ---- one turn ----

    def turn(self, session: int, turn: int, index: int) -> list[int] | None:
        """Answers a prompt with tokens; None: refused, because memory was."""
        first, started = len(self.samples), self.machine.inner.now()
        self.sample()
        tokens = SESSIONS[session].tokens(turn)
        self.replace_prompt(tokens)
        done = self.prefill(session, self.restore(session, tokens), tokens)
        answer = self.decode(tokens) if done else None
        if not done:
            self.machine.do(self.raw.stream_synchronize, self.stream)
        self.sample()
        taken = max(self.machine.inner.now() - started, 1)
        for sample in self.samples[first:]:
            sample.time = index + min((sample.time - started) / taken, 1.0)
        return answer

    def restore(self, session: int, tokens: int) -> int:
        """Copies the longest cached prefix into the KV memory; its length. Another request has used it meanwhile."""
        do, raw, plane, row = self.machine.do, self.raw, self.scale.plane, self.scale.row
        do(raw.memset_d8_async, self.kv, NOTHING_RESTORED, plane * PLANES, self.stream)
        fits = [entry for entry in self.cache if entry.session == session and entry.tokens <= tokens]
        if not fits:
            return 0
        best = max(fits, key=lambda entry: entry.tokens)
        best.used = self.tick()
        size = best.tokens * row
        for number in range(PLANES):
            do(raw.memcpy_dtod_async, self.kv + number * plane, best.address + number * size, size, self.stream)
        return best.tokens

    def prefill(self, session: int, done: int, tokens: int) -> bool:
        batches = [(begin, min(begin + BATCH, tokens)) for begin in range(done, tokens, BATCH)]
        middle = (len(batches) - 1) // 2
        return all(
            self.batch(session, begin, end, keep=number == middle) for number, (begin, end) in enumerate(batches)
        )

    def batch(self, session: int, begin: int, end: int, keep: bool) -> bool:
        """Queues the layers of one batch; False: memory for temporaries was refused."""
        sizes = self.scale.temporaries(end, end - begin)
        for layer in range(LAYERS):
            self.machine.do(self.raw.kernel_spin, self.stream, SPIN_NS)
            blocks: list[int] = []
            for size in sizes:
                address = self.memory.alloc(size)
                if not address:
                    break
                blocks.append(address)
            complete = len(blocks) == len(sizes)
            if complete:
                self.layer(session, layer, begin, end, blocks, sizes)
                if keep and layer == LAYERS - 1:
                    self.snapshot(session, end)
            if layer == 0 or keep:
                self.sample()
            while blocks:  # last in, first out
                self.memory.free(blocks.pop())
            if not complete:
                return False
        return True

    def layer(self, session: int, layer: int, begin: int, end: int, blocks: list[int], sizes: tuple[int, ...]) -> None:
        do, raw, stream, row = self.machine.do, self.raw, self.stream, self.scale.row
        for address, size in zip(blocks[2:], sizes[2:], strict=True):
            do(raw.memset_d8_async, address, 0, size, stream)
        old, new = begin * row, (end - begin) * row
        for half, temporary in enumerate(blocks[:2]):
            number = 2 * layer + half
            plane, rows = self.kv + number * self.scale.plane, blocks[2] + half * new
            if old:
                do(raw.memcpy_dtod_async, temporary, plane, old, stream)
            do(raw.kernel_fill, stream, rows, new, seed(session, number, old // 4))
            do(raw.memcpy_dtod_async, temporary + old, rows, new, stream)
            do(raw.memcpy_dtod_async, plane + old, temporary + old, new, stream)

    def decode(self, tokens: int) -> list[int]:
        """Reads the KV memory back, and makes tokens of it. Zeroes end the text, as they did in the field."""
        do, raw, stream, row = self.machine.do, self.raw, self.stream, self.scale.row
        bounds = [tokens * quarter // QUARTERS for quarter in range(QUARTERS + 1)]
        spans = [(bounds[i] * row, (bounds[i + 1] - bounds[i]) * row) for i in range(QUARTERS)]
        size = 8 * PLANES * QUARTERS
        do(raw.memset_d8_async, self.sums, 0, size, stream)
        for number in range(PLANES):
            plane, sums = self.kv + number * self.scale.plane, self.sums + 8 * QUARTERS * number
            for quarter, (offset, length) in enumerate(spans):
                do(raw.kernel_sum, stream, plane + offset, length, sums + 8 * quarter)
        host = bytearray([POISON]) * size
        do(raw.memcpy_dtoh_async, host, self.sums, size, stream)
        do(raw.stream_synchronize, stream)
        words = struct.unpack(f"<{PLANES * QUARTERS}Q", host)
        empty = [(length // 4) ** 2 for _, length in spans]  # the sum over words that are all zero
        answer: list[int] = []
        for number in range(PLANES):
            four = words[QUARTERS * number : QUARTERS * (number + 1)]
            if any(word == zero for word, zero in zip(four, empty, strict=True)):
                break
            mixed = sum((2 * i + 1) * word for i, word in enumerate(four)) % WORD
            answer.append((mixed ^ mixed >> 32) % 50_257)
        return answer

    # ---- the prefix cache ----

    def snapshot(self, session: int, tokens: int) -> None:
        """Keeps the KV of a prefix in pool memory, while the temporaries of the batch are still there."""
        while len(self.cache) >= CACHE_SLOTS:
            self.drop()
        address = self.memory.alloc(tokens * self.scale.token)
        if not address:
            return  # it can be computed again
        size = tokens * self.scale.row
        for number in range(PLANES):
            source = self.kv + number * self.scale.plane
            self.machine.do(self.raw.memcpy_dtod_async, address + number * size, source, size, self.stream)
        self.cache.append(Snapshot(session, tokens, address, self.tick()))

    def drop(self) -> int:
        """Gives up the least recently used snapshot; its bytes."""
        oldest = min(self.cache, key=lambda entry: entry.used)
        self.cache.remove(oldest)
        self.memory.free(oldest.address)
        return oldest.tokens * self.scale.token

    def evict(self) -> int:
        """The same because memory is short; 0: there is none."""
        if not self.cache:
            return 0
        self.evicted += 1
        return self.drop()

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    # ---- the rest ----

    def replace_prompt(self, tokens: int) -> None:
        """A buffer of the server's own for the prompt, made anew each turn: memory that goes back to the driver beside
        the pool. It is mapped through the driver beneath, so that the planned faults are the pool's alone."""
        raw, under = self.raw, self.machine.inner.raw
        size = -(-tokens * 256 // self.scale.factor // self.machine.granularity) * self.machine.granularity
        old = self.prompt
        self.prompt = None
        code, address = under.mem_reserve(size, 0, 0, 0)
        code, handle = raw.mem_create(size, self.machine.prop, 0) if code == 0 else (code, 0)
        if code == 0 and under.mem_map(address, size, 0, handle, 0) == 0:
            self.prompt = (address, size, handle)
            if under.mem_set_access(address, size, self.machine.access, 1) == 0:
                self.machine.do(raw.memset_d8_async, address, 1, size, self.stream)
        if old is not None:
            self.end_prompt(*old)

    def end_prompt(self, address: int, size: int, handle: int) -> None:
        """Nothing queued uses it: an answer was waited for since."""
        under = self.machine.inner.raw
        under.mem_unmap(address, size)
        self.raw.mem_release(handle)
        under.mem_address_free(address, size)

    def sample(self) -> Counters:
        now = self.memory.counters()
        self.samples.append(
            Sample(
                self.machine.inner.now(), now.committed, now.live, now.growths, now.not_ready, now.retries, self.evicted
            )
        )
        return now

    def close(self) -> None:
        self.cache.clear()
        if self.prompt is not None:
            self.end_prompt(*self.prompt)
            self.prompt = None


def seed(session: int, plane: int, word: int) -> int:
    """For kernel_fill: a word depends on conversation, plane and place, however the prompt is cut into batches."""
    number = session * PLANES + plane
    base = pattern_word(1, number) << 32 | pattern_word(2, number)
    return (base + word * GOLDEN) % WORD
