"""Who plays (arms), what goes wrong (plans), and the faults of a plan, planted in the driver of one rehearsal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .machine import Machine
from .memory import Libvmm, Memory, Plain
from .older_pool import OlderPool
from .server import Server
from .workload import CACHE_SLOTS, CONTEXT

FOR_EVER_FROM = {"cuda": 4, "sim": 12}
"""The growth from which on the unbounded plan refuses: with full sizes libvmm needs few."""
BUDGET = 1_800 << 20
"""Bytes that may be resident, before scaling: less than two long prefixes and what a turn needs."""
INTRUDER_NS = 1_000_000


@dataclass(frozen=True)
class Arm:
    key: str
    sync: bool = False
    retries: int = 0


PLAIN = Arm("plain memory")
LEGACY = Arm("legacy")
SYNC = Arm("legacy + sync", sync=True)
RETRY = Arm("legacy + sync + retry", sync=True, retries=100)
LIBVMM = Arm("libvmm")
ARMS = (LEGACY, SYNC, RETRY, LIBVMM)


@dataclass(frozen=True)
class Plan:
    key: str
    about: str
    bounded: bool = True
    averted_by_sync: bool = False
    """Whether a wait before each growth keeps the fault from happening at all."""


PENDING = Plan("pending work", "set-access says NOT_READY while work is queued", averted_by_sync=True)
THREAD = Plan("pending + second thread", "the same, and another thread queues work between the sync and the set-access")
RESIDENCY = Plan("residency budget", "NOT_READY above a budget: draining does not help, giving memory back does")
EVICTION = Plan("after eviction", "NOT_READY at the first set-access after memory went back; a bare retry works")
FOR_EVER = Plan("for ever", "from some growth on, NOT_READY whatever is done", bounded=False)
NO_FAULT = Plan("no fault", "where the expected answers come from")
PLANS = (PENDING, THREAD, RESIDENCY, EVICTION, FOR_EVER)


def make_memory(arm: Arm, machine: Machine, server: Server) -> Memory:
    if arm == PLAIN:
        snapshot = CONTEXT * machine.scale.token
        return Plain(machine, (CACHE_SLOTS + 1) * snapshot)
    if arm == LIBVMM:
        return Libvmm(machine, server.evict)
    return OlderPool(machine, arm.sync, arm.retries)


class Faults:
    """The faults of a plan in the driver of a machine."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.driver = machine.driver
        self.thread: SecondThread | None = None
        rule: dict[str, object] = {"op": "mem_set_access", "code": "NOT_READY", "times": "ever"}
        self.averted = self.driver.add(op="ctx_synchronize", condition="pending", hook=lambda *_: None)
        self.planned: int | None = None
        if plan == NO_FAULT:
            return
        if plan == THREAD:
            self.thread = SecondThread(machine)
            self.driver.add(op="mem_map", hook=self.thread.queue_some)
        if plan in (PENDING, THREAD):
            rule["condition"] = "pending"
        elif plan == RESIDENCY:
            rule |= {"condition": "over_budget", "budget": BUDGET // machine.scale.factor}
        elif plan == EVICTION:
            rule["condition"] = "after_release"
        else:
            rule["occurrence"] = FOR_EVER_FROM[machine.kind]
        self.planned = self.driver.add(**rule)  # type: ignore[arg-type]

    def counts(self) -> dict[str, int]:
        """fired: planned faults that did. averted: waits before a growth that found the queue busy and drained it."""
        fired = self.driver.fired(self.planned) if self.planned is not None else 0
        return {"fired": fired, "averted": self.driver.matched(self.averted)}

    def close(self) -> None:
        self.driver.clear()
        if self.thread is not None:
            self.thread.close()


class SecondThread:
    """Another thread of the server's process, with a stream of its own, that queues work whenever it is asked to."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.stream = machine.new_stream()
        self.asked = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.ending = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def queue_some(self, call: str, opportunity: int) -> None:
        self.asked.release()
        self.done.acquire()

    def run(self) -> None:
        self.machine.raw.ctx_set_current(self.machine.context)
        launch: Callable[..., int] = self.machine.raw.kernel_spin
        while True:
            self.asked.acquire()
            if self.ending:
                return
            launch(self.stream, INTRUDER_NS)
            self.done.release()

    def close(self) -> None:
        self.ending = True
        self.asked.release()
        self.thread.join()
