"""What the commands of python -m pyvmm bench do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from .. import sizes
from ..drivers import Driver
from . import workloads
from .log import Log
from .replay import Arm, OlderPool, Outcome, Pool, play

CONSOLE = Console(highlight=False, width=None if Console().is_terminal else 140)


def driver_of(name: str) -> Driver:
    from ..cli import choose
    from ..sim import sim

    return sim(memory="4TiB") if name == "sim" else choose(name)


def logs(paths: Iterable[Path], only: str, scale: float, seed: int, requests: int, layout: str) -> list[Log]:
    given = [workloads.from_path(path, requests, layout) for path in paths]
    return given or workloads.made_up(scale, seed, only)


def replay(
    paths: list[Path],
    driver: str,
    only: str,
    scale: float,
    seed: int,
    requests: int,
    layout: str,
    options: list[str],
    peers: bool,
    json_path: Path | None,
) -> int:
    chosen = driver_of(driver)
    settings = dict(text.split("=", 1) for text in options)
    arms: list[Callable[[], Arm]] = [lambda: Pool(chosen, **settings), OlderPool]
    outcomes: list[Outcome] = []
    for log in logs(paths, only, scale, seed, requests, layout):
        outcomes += [play(log, arm) for arm in arms]
    CONSOLE.print(table(outcomes))
    failed = 0
    for one in outcomes:
        if one.arm == "libvmm":
            for text, held in one.bounds():
                failed += not held
                CONSOLE.print(f"{'PASS' if held else 'FAIL'}  {one.workload}: {text}", soft_wrap=True)
    return 1 if failed else 0


def table(outcomes: list[Outcome]) -> Table:
    out = Table(box=box.SIMPLE_HEAD)
    for head in ("workload", "allocator"):
        out.add_column(head, no_wrap=True)
    for head in ("events", "peak live", "peak physical", "ratio", "growths", "ns / event"):
        out.add_column(head, justify="right", no_wrap=True)
    out.add_column("")
    before = ""
    for one in outcomes:
        out.add_row(
            one.workload if one.workload != before else "",
            one.arm,
            f"{one.events:,}",
            sizes.show(one.peak_live),
            sizes.show(one.peak_physical),
            f"{one.ratio:.3f}",
            f"{one.growths:,}",
            f"{one.seconds * 1e9 / max(1, one.events):.0f}",
            one.failed or one.note,
        )
        before = one.workload
    return out
