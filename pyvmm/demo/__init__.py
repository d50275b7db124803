"""python -m pyvmm demo: the fault that the library exists for, played out against older pools.

A rehearsal of an inference server with a prefix cache. Each arm, that is each way to get memory, plays the same 36
turns under each plan of faults; answers are compared with those of a fault-free run on plain memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import errors
from ..drivers import cuda
from ..transfer import call, current
from . import picture, report
from .plans import ARMS, NO_FAULT, PLAIN, PLANS, Arm, Plan
from .rehearsal import Job, Outcome, Turn, play_all, processors
from .score import Result, compare, complaints
from .workload import CONTEXT, SIM, TURNS, Scale

NEEDED = 18 << 30
"""Device memory that the arms need at full size; the older pool most of it."""
FACTORS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Stage:
    """Where it is played."""

    kind: str
    scale: Scale
    about: str
    why: str = ""


def choose(name: str) -> Stage:
    """The GPU if there is one that can be used, else the simulated device; and why."""
    if name == "sim":
        return Stage("sim", SIM, "the simulated device")
    try:
        return _gpu()
    except errors.VmmError as error:
        if name == "cuda":
            raise
        return Stage("sim", SIM, "the simulated device", f"no GPU is used: {error}")


def _gpu() -> Stage:
    driver = cuda()
    call(driver, "init", 0)
    if not call(driver, "device_count"):
        raise errors.NoDriverError("the driver knows no device")
    if not driver.has_kernels:
        raise errors.UnsupportedError("this package was built without GPU code, because nvcc was not found")
    with current(driver, 0):
        free, _ = call(driver, "mem_get_info")
        name = call(driver, "device_name", call(driver, "device_get", 0))
    factor = next((factor for factor in FACTORS if NEEDED // factor <= free), 0)
    if not factor:
        raise errors.OutOfMemoryError(f"{name} has only {free >> 20} MiB free")
    version = call(driver, "driver_version")
    less = f", sizes divided by {factor}" if factor > 1 else ""
    return Stage("cuda", Scale(factor), f"{name}, CUDA driver {version // 1000}.{version % 1000 // 10}{less}")


def perform(
    stage: Stage, plans: Sequence[Plan], arms: Sequence[Arm], touch: str, console: Console
) -> tuple[list[Result], Outcome]:
    """Plays it all: the results, plan by plan and arm by arm, and the fault-free run."""
    jobs = [Job(NO_FAULT, PLAIN, stage.kind, stage.scale, touch)]
    jobs += [Job(plan, arm, stage.kind, stage.scale, touch) for plan in plans for arm in arms]
    at_once = 1 if stage.kind == "cuda" else min(2, processors())  # times of a GPU are those of one arm alone
    columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=TURNS * len(jobs))
        heard_of = dict.fromkeys(jobs, 0)

        def heard(job: Job, turn: Turn | None) -> None:
            step = 1 if turn is not None else TURNS - heard_of[job]
            heard_of[job] += step
            progress.update(task, advance=step, description=f"{job.plan.key}: {job.arm.key}")

        expected, *outcomes = play_all(jobs, at_once, heard)
        progress.update(task, description=f"{len(jobs)} rehearsals")
    if len(expected.turns) < TURNS:
        return [], expected
    return [compare(outcome, expected) for outcome in outcomes], expected


def main(
    driver: Annotated[str, typer.Option("--driver", help="cuda, sim, or auto: the GPU if there is one")] = "auto",
    json_path: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the figures there")] = None,
    png: Annotated[Path, typer.Option("--png", metavar="FILE", help="the pool over time")] = Path("out/demo.png"),
    touch: Annotated[
        str,
        typer.Option(help="memory without access, simulated: zero (reads as zeroes) or lost (the context is)"),
    ] = "zero",
) -> None:
    """The fault that the library exists for, played out against older pools."""
    for value, known in ((driver, ("auto", "cuda", "sim")), (touch, ("zero", "lost"))):
        if value not in known:
            raise typer.BadParameter(f"{value!r} is none of {', '.join(known)}")
    console = report.console()
    stage = choose(driver)
    console.print(f"driver: {stage.about}{stage.why and '; '}{stage.why}", markup=False, soft_wrap=True)
    console.print(f"{TURNS} turns, a context of {CONTEXT:,} tokens with {stage.scale.token:,} bytes of KV memory each")
    results, expected = perform(stage, PLANS, ARMS, touch, console)
    found = complaints(results, expected)
    if results:
        _show(console, stage, results, png)
    if json_path is not None:
        about: dict[str, Any] = {"driver": stage.kind, "device": stage.about, "factor": stage.scale.factor}
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(report.as_json(results, about, found), indent=1) + "\n")
    for text in found:
        print(f"demo failed: {text}", file=sys.stderr)
    console.print(report.last_line(results), soft_wrap=True)
    raise typer.Exit(1 if found else 0)


def _show(console: Console, stage: Stage, results: list[Result], png: Path) -> None:
    console.print()
    for plan in PLANS:
        console.print(report.table(results, plan, times=stage.kind == "cuda"))
    console.print(report.summary(results))
    for line in report.notes(results):
        console.print(line, markup=False)
    picture.draw(results, stage.about, png)
    console.print(f"the pool over time: {png}", soft_wrap=True)


def run(arguments: list[str]) -> int:
    """Plays it; answers the exit code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    try:
        app(arguments, prog_name="python -m pyvmm demo")
    except SystemExit as leave:  # how typer always ends
        return leave.code if isinstance(leave.code, int) else 0
    return 0
