"""What the demonstration says: the table, the summary, JSON."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .plans import ARMS, LIBVMM, PLANS, Arm, Plan
from .score import COUNTS, Result, worst
from .workload import SESSIONS, TURNS


def _bad(row: dict[str, Any], bounded: bool) -> Text:
    bad, turns = row["empty_or_wrong"], row["turns"]
    text = Text(f"{bad} of {turns}", style="bold red" if bad else "green")
    if row["not_answered"] and not bounded:
        text.append(f", {row['not_answered']} refused", style="yellow")
    return text


def table(results: list[Result], plan: Plan, times: bool) -> Table:
    """A line per session and one for all of them, arm by arm."""
    title = Text.assemble((f"{plan.key}: ", "bold"), plan.about)
    out = Table(title=title, title_style="", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    out.add_column("arm", no_wrap=True)
    out.add_column("session")
    for head in ("turns", "growths", "syncs", "NOT_READYs\nseen", "retries", "refused\nrequests"):
        out.add_column(head, justify="right")
    out.add_column("answers empty\nor wrong", justify="right", no_wrap=True)
    if times:
        out.add_column("time", justify="right", no_wrap=True)
    for one in results:
        if one.plan != plan:
            continue
        for number in [*range(len(SESSIONS)), None]:
            row, total = one.row(number), number is None
            cells: list[str | Text] = [
                one.arm.key if number == 0 else "",
                SESSIONS[number].name if number is not None else "all",
                str(row["turns"]),
                *(f"{row[name]:,}" for name in COUNTS),
                _bad(row, plan.bounded),
            ]
            if times:
                cells.append(f"{row['seconds']:.2f} s")
            out.add_row(*cells, end_section=total, style="bold" if total else "")
    return out


def find(results: list[Result], plan: Plan, arm: Arm) -> Result | None:
    return next((one for one in results if one.plan == plan and one.arm == arm), None)


def summary(results: list[Result]) -> Table:
    """Answers empty or wrong, by plan and arm."""
    out = Table(
        title=f"Answers empty or wrong, of {TURNS}", title_style="bold", title_justify="left", box=box.SIMPLE_HEAD
    )
    out.add_column("plan", no_wrap=True)
    for arm in ARMS:
        out.add_column(arm.key, justify="right", no_wrap=True)
    for plan in PLANS:
        cells: list[Text] = []
        for arm in ARMS:
            one = find(results, plan, arm)
            if one is None:
                cells.append(Text("-"))
                continue
            row = one.row()
            bad = row["empty_or_wrong"]
            cells.append(Text(str(bad), style="bold red" if bad else "green"))
            if row["not_answered"] and not plan.bounded:
                cells[-1].append(f", {row['not_answered']} refused", style="yellow")
        out.add_row(plan.key, *cells)
    return out


def notes(results: list[Result]) -> list[str]:
    """What a reader of the table might stumble over."""
    lines = []
    averted = [one for one in results if one.averted and not one.fired]
    if averted:
        text = " and ".join(f"{one.arm.key} {one.averted} times" for one in averted)
        lines.append(f"{averted[0].plan.key}: no fault fired where the wait before a growth drained the queue: {text}.")
    lost = [one.arm for one in results if one.row()["lost"]]
    if lost:
        arms = ", ".join(f"{arm.key} {lost.count(arm)} times" for arm in ARMS if arm in lost)
        lines.append(f"what touched memory without access lost its context, or its process: {arms}.")
    for plan in PLANS:
        one = find(results, plan, LIBVMM)
        if one is None or plan.bounded:
            continue
        row = one.row()
        answered = row["turns"] - row["not_answered"] - row["empty_or_wrong"]
        lines.append(
            f"{plan.key}: libvmm refused {row['refused']} requests cleanly; {answered} of {row['turns']} turns were "
            f"answered right, {row['not_answered']} not at all, {row['empty_or_wrong']} wrong."
        )
        lines += [f'    "{text}"' for text in one.outcome.reports[:1]]
    return lines


def last_line(results: list[Result]) -> str:
    return f"libvmm: {worst(results)} of {TURNS} answers empty or wrong"


def as_json(results: list[Result], about: dict[str, Any], found: list[str]) -> dict[str, Any]:
    plans: dict[str, Any] = {}
    for one in results:
        entry = plans.setdefault(one.plan.key, {"about": one.plan.about, "bounded": one.plan.bounded, "arms": {}})
        entry["arms"][one.arm.key] = one.to_json()
    return {**about, "turns": TURNS, "libvmm_empty_or_wrong": worst(results), "complaints": found, "plans": plans}


def console() -> Console:
    """As wide as the terminal; where there is none, as wide as the table."""
    wide = Console(highlight=False)
    return wide if wide.is_terminal else Console(highlight=False, width=118)
