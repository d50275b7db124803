"""Request traces of LLM services, and what a server that works through them allocates: KV memory and temporaries."""

from __future__ import annotations

import abc
import csv
import datetime
import json
import math
import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from pathlib import Path

from .log import Log


@dataclass(frozen=True)
class Request:
    arrival: float
    """Seconds since the first."""
    prompt: int
    output: int
    """Tokens."""
    prefix: tuple[int, ...] = ()
    """One name per 512 tokens of the prompt; equal names stand for equal beginnings."""


@dataclass(frozen=True)
class Model:
    """What a token costs: 2 * layers * KV heads * head size * bytes, and the width of what a layer needs meanwhile."""

    kv: int = 128 << 10  # Llama 3 8B at fp16
    hidden: int = 4096 * 2
    mlp: int = 2 * 14336 * 2
    logits: int = 128256 * 4


@dataclass(frozen=True)
class Speed:
    """Of the server: what a step takes, and how many prompt tokens it takes in at most."""

    step: float = 0.025
    token: float = 20e-6
    chunk: int = 2048
    running: int = 256


PREFIX_TOKENS = 512


def read(path: Path) -> list[Request]:
    """A trace, by the form it has: columns with context and generated tokens, prefill and decode tokens, or a JSON
    object a line."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            return [_from_json(json.loads(line)) for line in file if line.strip()]
        rows = list(csv.DictReader(file))
    names = set(rows[0]) if rows else set()
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= names:
        times = [datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
        return [
            Request(time - times[0], int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for time, row in zip(times, rows, strict=True)
        ]
    if {"num_prefill_tokens", "num_decode_tokens"} <= names:
        return [Request(0.0, int(row["num_prefill_tokens"]), int(row["num_decode_tokens"])) for row in rows]
    raise ValueError(f"{path}: a trace in no form known here")


def _from_json(row: dict[str, object]) -> Request:
    numbers = {name: row[name] for name in ("timestamp", "input_length", "output_length")}
    time, prompt, output = (int(str(value)) for value in numbers.values())
    names = row.get("hash_ids", [])
    return Request(time / 1000, prompt, output, tuple(names) if isinstance(names, list) else ())


def made_up(count: int, seed: int, rate: float = 5.0, prompt: int = 1000, output: int = 200) -> list[Request]:
    """Requests that arrive at random, with lognormal lengths around these medians; a third share a beginning."""
    source = random.Random(seed)
    now, made = 0.0, []
    for number in range(count):
        now += source.expovariate(rate)
        length = max(16, int(prompt * math.exp(source.gauss(0, 0.8))))
        family = source.randrange(8) if source.random() < 1 / 3 else 1000 + number
        prefix = tuple(family * 10_000 + block for block in range(-(-length // PREFIX_TOKENS)))
        made.append(Request(now, length, max(1, int(output * math.exp(source.gauss(0, 0.7)))), prefix))
    return made


@dataclass
class Running:
    request: Request
    taken: int = 0
    """Prompt tokens that are in."""
    written: int = 0
    blocks: list[int] = field(default_factory=list)
    room: int = 0
    shared: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.taken + self.written


class Server(abc.ABC):
    """Works through requests with continuous batching: each step takes in a chunk of prompts and writes a token for
    everyone else. How KV memory is laid out is up to its subclasses."""

    def __init__(self, name: str, model: Model | None = None, speed: Speed | None = None) -> None:
        self.log = Log(name)
        self.model = model or Model()
        self.speed = speed or Speed()
        self.waiting: deque[Request] = deque()
        self.running: list[Running] = []

    def serve(self, requests: list[Request]) -> Log:
        coming, now = deque(sorted(requests, key=lambda request: request.arrival)), 0.0
        while coming or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, coming[0].arrival)
            while coming and coming[0].arrival <= now:
                self.waiting.append(coming.popleft())
            while self.waiting and len(self.running) < self.speed.running and self.admit(self.waiting[0]):
                self.waiting.popleft()
            now += self.step()
        self.end()
        return self.log

    def step(self) -> float:
        chunk, writing, room = 0, 0, self.speed.chunk
        for one in self.running:
            missing = one.request.prompt - one.taken
            if missing:
                part = min(missing, room)
                one.taken += part
                room -= part
                chunk += part
            else:
                one.written += 1
                writing += 1
            self.extend(one)
        self.temporaries(chunk + writing, writing)
        done = [one for one in self.running if one.written >= one.request.output]
        for one in done:
            self.finish(one)
        self.running = [one for one in self.running if one.written < one.request.output]
        return self.speed.step + chunk * self.speed.token

    def temporaries(self, tokens: int, writing: int) -> None:
        """What one layer and the last step need; the next layer's are the same again, so once a step stands for all."""
        log, model = self.log, self.model
        stays = log.alloc(tokens * model.hidden)
        qkv = log.alloc(tokens * model.hidden * 3 // 2)
        attention = log.alloc(tokens * model.hidden)
        log.free(qkv)
        wide = log.alloc(tokens * model.mlp)
        log.free(attention)
        log.free(wide)
        if writing:
            log.free(log.alloc(writing * model.logits))
        log.free(stays)

    def admit(self, request: Request) -> bool:
        self.running.append(Running(request))
        return True

    @abc.abstractmethod
    def extend(self, one: Running) -> None:
        """Makes room for the tokens that are in."""

    def finish(self, one: Running) -> None:
        for block in reversed(one.blocks):
            self.log.free(block)

    def end(self) -> None:  # noqa: B027 - most have nothing to put away
        pass


class Paged(Server):
    """KV memory in blocks of a few tokens, freed when the request is done."""

    tokens = 16

    def extend(self, one: Running) -> None:
        while one.room < one.tokens:
            one.blocks.append(self.log.alloc(self.tokens * self.model.kv))
            one.room += self.tokens


class Contiguous(Server):
    """One KV range per request, as large as the prompt, copied into one larger by a quarter when it is full."""

    def extend(self, one: Running) -> None:
        if one.room >= one.tokens:
            return
        one.room = max(one.request.prompt, one.tokens * 5 // 4)
        one.blocks.append(self.log.alloc(one.room * self.model.kv))
        if len(one.blocks) > 1:
            self.log.free(one.blocks.pop(0))


class Prefixes(Paged):
    """Blocks of 512 prompt tokens under their names, shared and kept after use, the longest unused given up first; what
    is written is in small blocks of each request's own."""

    budget = 24 << 30

    def __init__(self, name: str, model: Model | None = None, speed: Speed | None = None) -> None:
        super().__init__(name, model, speed)
        self.cached: OrderedDict[int, int] = OrderedDict()  # name: block
        self.users: dict[int, int] = {}
        self.size = PREFIX_TOKENS * self.model.kv

    def admit(self, request: Request) -> bool:
        wanted = [name for name in request.prefix if name not in self.cached]
        unused = [name for name in self.cached if not self.users.get(name)]
        held = set(request.prefix)
        spare = self.budget // self.size - len(self.cached)
        victims = [name for name in unused if name not in held][: max(0, len(wanted) - spare)]
        if spare + len(victims) < len(wanted) and self.running:
            return False
        for name in victims:
            self.log.free(self.cached.pop(name))
        for name in request.prefix:
            if name not in self.cached:
                self.cached[name] = self.log.alloc(self.size)
            self.cached.move_to_end(name)
            self.users[name] = self.users.get(name, 0) + 1
        one = Running(request, taken=(len(request.prefix) - len(set(wanted))) * PREFIX_TOKENS)
        one.taken = min(one.taken, request.prompt)
        one.shared, one.room = list(request.prefix), request.prompt
        self.running.append(one)
        return True

    def finish(self, one: Running) -> None:
        super().finish(one)
        for name in one.shared:
            self.users[name] -= 1

    def end(self) -> None:
        for block in self.cached.values():
            self.log.free(block)
