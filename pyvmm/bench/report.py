"""Results as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from .. import sizes
from .bounds import Bound
from .results import Change, Record, Run

CONSOLE = Console(highlight=False, width=None if Console().is_terminal else 140)


def _table(title: str, *heads: str) -> Table:
    """Names to the left, then numbers to the right."""
    out = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for head in heads:
        left = head in ("case", "arm", "allocator", "workload", "benchmark", "")
        out.add_column(head, no_wrap=bool(head), justify="left" if left else "right")
    return out


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def times(run: Run, bench: str) -> Table:
    out = _table(bench, "case", "arm", "median", "5 %", "95 %", "99 %", "99.9 %", "n", "")
    before = ""
    for one in run.records:
        if one["bench"] != bench:
            continue
        case = one["case"] if one["case"] != before else ""
        before = one["case"]
        if "skip" in one:
            out.add_row(case, one["arm"], "-", "", "", "", "", "", f"skipped: {one['skip']}")
            continue
        spread = [number(one[name]) for name in ("p5", "p95", "p99", "p99.9")]
        median = f"{number(one['median'])} {one['unit']}"
        out.add_row(case, one["arm"], median, *spread, f"{one['n']:,}", one.get("note", ""))
    return out


def replays(records: Iterable[Record]) -> Table:
    heads = ("workload", "allocator", "events", "peak live", "peak physical", "ratio", "growths", "ns / event", "")
    out, before = _table("replay", *heads), ""
    for one in records:
        if one["bench"] != "replay":
            continue
        case = one["case"] if one["case"] != before else ""
        before = one["case"]
        if "skip" in one:
            out.add_row(case, one["arm"], "", "", "", "", "", "", f"skipped: {one['skip']}")
            continue
        out.add_row(
            case,
            one["arm"],
            f"{one['events']:,}",
            sizes.show(one["peak_live"]),
            sizes.show(one["peak_physical"]),
            f"{one['median']:.3f}",
            f"{one['growths']:,}",
            f"{one['seconds'] * 1e9 / max(1, one['events']):.0f}",
            one["failed"] or one["note"],
        )
    return out


def changes(found: Iterable[Change]) -> Table:
    out = _table("", "benchmark", "case", "arm", "before", "now", "ratio", "25 % to 75 %", "")
    for one in found:
        spread = f"{one.low:.3f} to {one.high:.3f}"
        row = (one.bench, one.case, one.arm, f"{number(one.old)} {one.unit}", f"{number(one.new)} {one.unit}")
        out.add_row(*row, f"{one.ratio:.3f}", spread, one.word)
    return out


def show(run: Run) -> None:
    for bench in dict.fromkeys(one["bench"] for one in run.records):
        CONSOLE.print(replays(run.records) if bench == "replay" else times(run, bench))


def verdicts(bounds: Iterable[Bound]) -> int:
    """Prints them; answers how many did not hold."""
    failed = 0
    for one in bounds:
        failed += not one.held
        CONSOLE.print(f"{'PASS' if one.held else 'FAIL'}  {one.text}", markup=False, soft_wrap=True)
    return failed
