"""What came of it: answers compared with the expected ones, sums by session, and what must hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .plans import EVICTION, LEGACY, LIBVMM, PENDING, SYNC, THREAD, Arm, Plan
from .rehearsal import Outcome, Turn
from .workload import SESSIONS, TURNS

COUNTS = ("growths", "syncs", "not_ready", "retries", "refused")
RIGHT, EMPTY, WRONG, REFUSED, LOST = "right", "empty", "wrong", "refused", "lost"


@dataclass
class Result:
    """One arm under one plan."""

    plan: Plan
    arm: Arm
    outcome: Outcome
    answers: list[str]
    """right, empty, wrong, refused or lost, turn by turn."""

    @property
    def fired(self) -> int:
        return self.outcome.counts.get("fired", 0)

    @property
    def averted(self) -> int:
        """Planned faults that a wait before the growth kept from happening."""
        return self.outcome.counts.get("averted", 0) if self.plan.averted_by_sync and self.arm.sync else 0

    def row(self, session: int | None = None) -> dict[str, Any]:
        """Sums over one session, or over all."""
        first = sum(one.turns for one in SESSIONS[:session]) if session is not None else 0
        last = first + SESSIONS[session].turns if session is not None else TURNS
        answers, done = self.answers[first:last], self.outcome.turns[first:last]
        row: dict[str, Any] = {"turns": last - first}
        row |= {name: sum(turn.counts[name] for turn in done) for name in COUNTS}
        row |= {name: answers.count(name) for name in (EMPTY, WRONG, LOST)}
        row["not_answered"] = answers.count(REFUSED)
        row["empty_or_wrong"] = row[EMPTY] + row[WRONG] + row[LOST]
        if self.plan.bounded:  # a fault that passes is no reason to leave anybody without an answer
            row["empty_or_wrong"] += row["not_answered"]
        row["seconds"] = sum(turn.time_ns for turn in done) / 1e9
        return row

    def to_json(self) -> dict[str, Any]:
        return {
            "sessions": {session.name: self.row(number) for number, session in enumerate(SESSIONS)},
            "total": self.row(),
            "answers": self.answers,
            "committed_peak": max((sample.committed for sample in self.outcome.samples), default=0),
            "live_peak": max((sample.live for sample in self.outcome.samples), default=0),
            "averted": self.averted,
            "reports": self.outcome.reports,
            "failure": self.outcome.failure,
            **{name: value for name, value in self.outcome.counts.items() if name != "averted"},
        }


def judge(turn: Turn | None, expected: list[int]) -> str:
    if turn is None or turn.lost:  # the context, or the whole process
        return LOST
    if turn.answer is None:
        return REFUSED
    if turn.answer == expected:
        return RIGHT
    return WRONG if turn.answer else EMPTY


def compare(outcome: Outcome, expected: Outcome) -> Result:
    turns: list[Turn | None] = [*outcome.turns, *[None] * (TURNS - len(outcome.turns))]
    answers = [judge(turn, want.answer or []) for turn, want in zip(turns, expected.turns, strict=True)]
    return Result(outcome.job.plan, outcome.job.arm, outcome, answers)


def worst(results: Iterable[Result]) -> int:
    """Of libvmm, over the bounded plans."""
    return max(
        (one.row()["empty_or_wrong"] for one in results if one.arm == LIBVMM and one.plan.bounded), default=TURNS
    )


def complaints(results: list[Result], expected: Outcome) -> list[str]:
    """What should hold and does not: then nothing that was shown proves anything."""
    found = []
    if expected.failure or len(expected.turns) != TURNS or not all(turn.answer for turn in expected.turns):
        found.append(f"the fault-free run on plain memory has no answers; {last_line(expected.failure)}")
    for one in results:
        found += [f"{one.plan.key}, {one.arm.key}: {text}" for text in _complain(one)]
    return found


def _complain(one: Result) -> Iterable[str]:
    total = one.row()
    bad = total["empty_or_wrong"]
    if one.outcome.failure and (one.arm == LIBVMM or not total[LOST]):
        yield last_line(one.outcome.failure)
    if not one.fired and not one.averted:
        yield "faults were planned, and none fired"
    if one.arm == LEGACY and not bad:
        yield "all answers are right, so the fault was not played out"
    if one.arm == SYNC and one.plan == PENDING and bad:
        yield f"{bad} answers are empty or wrong, though it waits before it grows"
    if one.arm == SYNC and one.plan in (THREAD, EVICTION) and not bad:
        yield "all answers are right, so the fault was not played out"
    if one.arm == LIBVMM:
        yield from _complain_of_libvmm(one, total)


def _complain_of_libvmm(one: Result, total: dict[str, Any]) -> Iterable[str]:
    counts = one.outcome.counts
    if total["empty_or_wrong"]:
        yield f"{total['empty_or_wrong']} answers are empty or wrong"
    if not total["not_ready"] or not total["retries"]:
        yield "no NOT_READY or no retry was seen"
    if not one.plan.bounded and not total["refused"]:
        yield "no request was refused"
    if counts.get("misuse"):
        yield f"the simulator saw {counts['misuse']} misuses of the driver"
    if counts.get("left_behind"):
        yield f"{counts['left_behind']} bytes of device memory were left behind"


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""
