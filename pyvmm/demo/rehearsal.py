"""One rehearsal: one arm under one plan, in a process of its own, because on a GPU a losing arm loses its context."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from .machine import Machine
from .memory import Libvmm
from .plans import Arm, Faults, Plan, make_memory
from .server import Sample, Server
from .workload import SESSIONS, Scale, turns

SILENCE = 120.0
"""Seconds without a word after which a rehearsal is given up."""


@dataclass(frozen=True)
class Job:
    plan: Plan
    arm: Arm
    kind: str
    scale: Scale
    touch: str = "zero"


@dataclass
class Turn:
    session: int
    turn: int
    answer: list[int] | None
    """Tokens; None: refused."""
    lost: bool
    """The context was."""
    counts: dict[str, int]
    time_ns: int


@dataclass
class Outcome:
    job: Job
    turns: list[Turn] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """fired, averted, pressed, and what the simulator found: misuse, left_behind."""
    reports: list[str] = field(default_factory=list)
    failure: str = ""
    """Why it did not come to its end."""


def play(job: Job, tell: Callable[[Turn], None] = lambda turn: None) -> Outcome:
    """Plays the sessions, one after the other, in this process."""
    outcome = Outcome(job)
    machine = Machine(job.kind, job.scale, job.touch)
    server = Server(machine)
    server.memory = memory = make_memory(job.arm, machine, server)
    faults = Faults(job.plan, machine)
    before = memory.counters().copy()
    clock = machine.inner.now()
    for index, (session, number) in enumerate(turns()):
        answer = server.turn(session, number, index)
        if number == SESSIONS[session].turns:
            memory.quiet()
        after, now = server.sample(), machine.inner.now()
        server.samples[-1].time = index + 1.0
        turn = Turn(session, number, answer, machine.lost != 0, after.since(before), now - clock)
        outcome.turns.append(turn)
        tell(turn)
        before, clock = after.copy(), now
    outcome.samples, outcome.counts = server.samples, faults.counts()
    faults.close()
    server.close()
    memory.close()
    outcome.reports = list(dict.fromkeys(getattr(memory, "reports", ())))[:5]
    if isinstance(memory, Libvmm):
        outcome.counts["pressed"] = memory.pressed
        if job.kind == "sim":
            ledger = machine.inner.sim.ledger()
            outcome.counts["misuse"] = ledger.misuse + ledger.double_releases
            outcome.counts["left_behind"] = ledger.handle_bytes
    return outcome


def _child(job: Job, pipe: Connection) -> None:
    try:
        pipe.send(play(job, pipe.send))
    except Exception:  # whatever it is, the parent says it
        outcome = Outcome(job, failure=traceback.format_exc())
        pipe.send(outcome)
    finally:
        pipe.close()


@dataclass
class _Running:
    process: BaseProcess
    outcome: Outcome


def play_all(jobs: list[Job], at_once: int, heard: Callable[[Job, Turn | None], None]) -> list[Outcome]:
    """Plays each job in a child process. heard(job, turn) after each turn, heard(job, None) at the end of a job."""
    context = multiprocessing.get_context("spawn")
    waiting, running = list(jobs), dict[Connection, _Running]()
    finished: dict[int, Outcome] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(job, there))
                process.start()
                there.close()
                running[here] = _Running(process, Outcome(job, failure="the process ended without a word"))
            ready: list[Any] = wait(list(running), SILENCE)
            for pipe in ready or list(running):
                one = running[pipe]
                if not ready:
                    one.outcome.failure = f"nothing was heard for {SILENCE:.0f} s"
                if ready and _hear(pipe, one, heard):
                    continue
                _end(one.process)
                pipe.close()
                del running[pipe]
                finished[jobs.index(one.outcome.job)] = one.outcome
                heard(one.outcome.job, None)
    finally:
        for one in running.values():
            _end(one.process)
    return [finished[index] for index in range(len(jobs))]


def _hear(pipe: Connection, one: _Running, heard: Callable[[Job, Turn | None], None]) -> bool:
    """Takes one message; False: there will be no more."""
    try:
        message = pipe.recv()
    except (EOFError, OSError):
        return False
    if isinstance(message, Turn):
        one.outcome.turns.append(message)
        heard(one.outcome.job, message)
        return True
    message.turns = one.outcome.turns if message.failure else message.turns
    one.outcome = message
    return False


def _end(process: BaseProcess) -> None:
    process.join(10)
    if process.is_alive():
        process.kill()
        process.join()


def processors() -> int:
    return len(os.sched_getaffinity(0))
