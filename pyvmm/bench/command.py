"""What the commands of python -m pyvmm bench do."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import sizes
from ..device import Device
from ..drivers import Driver
from ..paths import kernels, version
from . import bounds, pairs, peers, picture, report, results, workloads
from .log import Log
from .replay import OlderPool, Pool, play
from .results import Record, Run

PROGRAMS = ("bench_pair", "bench_cuda")


def driver_of(name: str) -> Driver:
    from ..cli import choose
    from ..sim import sim

    return sim(memory="4TiB") if name == "sim" else choose(name)


def is_gpu(driver: Driver) -> bool:
    return "sim" not in driver.name


def about(driver: Driver, commit: str = "") -> dict[str, Any]:
    """Where and with what the figures were made."""
    with Device(driver=driver) as device:
        info = device.info
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit or _commit(),
        "libvmm": version(),
        "device": info.name,
        "driver": info.driver_name,
        "cuda": info.driver_version,
        "cores": len(os.sched_getaffinity(0)),
        "machine": platform.platform(),
        "python": platform.python_version(),
        "versions": pairs.versions(),
    }


def _commit() -> str:
    """Of the tree that it is run in, if that is one of git's."""
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# ---- memory ----


@dataclass
class Workloads:
    """Which ones, as the commands' options say it."""

    paths: tuple[Path, ...] = ()
    only: str = ""
    scale: float = 1.0
    seed: int = workloads.SEED
    requests: int = 1500
    layout: str = ""
    both: bool = False
    """The made-up ones too where paths are given."""

    def logs(self) -> list[Log]:
        given = [workloads.from_path(path, self.requests, self.layout) for path in self.paths]
        if given and not self.both:
            return given
        return workloads.made_up(self.scale, self.seed, self.only) + given


def replays(driver: Driver, logs: list[Log], options: dict[str, str], others: bool) -> list[Record]:
    records: list[Record] = []
    for log in logs:
        if log.skipped:
            report.CONSOLE.print(f"{log.name}: {log.skipped:,} lines left out", markup=False)
        records.append(play(log, lambda: Pool(driver, **options)).to_json())
        records.append(play(log, OlderPool).to_json())
    for name in peers.PEERS if others else ():
        outcomes, why = peers.play_all(name, logs)
        records += [one.to_json() for one in outcomes] or [results.skip("replay", log.name, name, why) for log in logs]
    places = {log.name: place for place, log in enumerate(logs)}
    return sorted(records, key=lambda one: places[one["case"]])


def replay(driver_name: str, chosen: Workloads, options: Iterable[str], others: bool, path: Path | None) -> int:
    driver = driver_of(driver_name)
    settings = dict(text.split("=", 1) for text in options)
    run = Run(about(driver), replays(driver, chosen.logs(), settings, others and is_gpu(driver)))
    return finish(run, path, None)


# ---- speed ----


def pair(driver_name: str, rounds: int, count: int, path: Path | None) -> int:
    driver = driver_of(driver_name)
    run = Run(about(driver), pairs.measure(driver, rounds, count, peers=is_gpu(driver)))
    return finish(run, path, None)


def program(command: list[str | Path]) -> list[Record]:
    """Runs a C benchmark and reads what it found. Its lines for people are shown as they come."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines.json"
        done = subprocess.run([*command, "--json", lines])
        if done.returncode:
            raise ValueError(f"{Path(command[0]).name} ended with {done.returncode}")
        return results.read(lines).records


# ---- all of it ----


def everything(
    driver_name: str,
    programs: Path | None,
    chosen: Workloads,
    quick: bool,
    commit: str,
    out: Path,
) -> int:
    driver = driver_of(driver_name)
    gpu = is_gpu(driver)
    run = Run(about(driver, commit))
    started = time.monotonic()
    parts: list[tuple[str, Callable[[], list[Record]]]] = []
    if programs is not None:
        few: list[str | Path] = ["--rounds", "5", "--pairs", "20000"] if quick else []
        parts.append(("CPU", lambda: program([programs / "bench_pair", *few])))
        gpu_code: list[str | Path] = ["--kernels", kernels()] if gpu and os.path.exists(kernels()) else []
        divide = ["--divide", "8" if quick else "1"]
        cuda: list[str | Path] = [programs / "bench_cuda", "--driver", "cuda" if gpu else "sim", *gpu_code, *divide]
        if gpu:
            parts.append(("GPU", lambda: program(cuda)))
            parts.append(("PyTorch's growth", lambda: peers.growth(3 if quick else 9)))
        else:
            report.CONSOLE.print("no GPU here: growth, trim and what is on GPUs is not measured", markup=False)
    rounds, count = (5, 2000) if quick else (21, 10_000)
    parts.append(("Python", lambda: pairs.measure(driver, rounds, count, peers=gpu)))
    parts.append(("replay", lambda: replays(driver, chosen.logs(), {}, gpu)))
    for name, part in parts:
        before = time.monotonic()
        run.records += part()
        run.about.setdefault("seconds", {})[name] = round(time.monotonic() - before, 1)
        run.write(out)  # what is there so far, in case the rest takes too long
    _sort(run)
    status = finish(run, out, out.with_suffix(".png"))
    report.CONSOLE.print(f"{time.monotonic() - started:.0f} s in all", markup=False)
    return status


def _sort(run: Run) -> None:
    """What other parts have found for a case goes beside it."""
    benches = list(dict.fromkeys(one["bench"] for one in run.records))
    cases = {bench: run.cases(bench) for bench in benches}
    run.records = sorted(
        run.records, key=lambda one: (benches.index(one["bench"]), cases[one["bench"]].index(one["case"]))
    )


def finish(run: Run, path: Path | None, png: Path | None) -> int:
    """Tables, bounds and files. 1 if a bound did not hold."""
    report.show(run)
    failed = report.verdicts(bounds.check(run))
    if path is not None:
        run.write(path)
        report.CONSOLE.print(f"written: {path}", soft_wrap=True, markup=False)
    if png is not None and picture.draw(run, png):
        report.CONSOLE.print(f"drawn: {png}", soft_wrap=True, markup=False)
    return 1 if failed else 0


def compare(old: Path, new: Path) -> int:
    before, after = results.read(old), results.read(new)
    for name, run in (("before", before), ("now", after)):
        words = [f"{key} {value}" for key, value in run.about.items() if isinstance(value, (str, int)) and value]
        report.CONSOLE.print(f"{name}: {', '.join(words)}", markup=False, soft_wrap=True)
    found = results.compare(before, after)
    report.CONSOLE.print(report.changes(found))
    words = [one.word for one in found]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("better", "same", "worse"))
    report.CONSOLE.print(f"{len(found)} compared: {counts}", markup=False)
    return 0


def show(path: Path, png: Path | None) -> int:
    return finish(results.read(path), None, png)


def log(trace: Path, out: Path, requests: int, layout: str) -> int:
    from . import log as logs

    made = workloads.from_path(trace, requests, layout)
    logs.write(made, out)
    peak = sizes.show(made.peak_live())
    report.CONSOLE.print(f"{out}: {len(made):,} events, {made.blocks:,} blocks, {peak} live at most", markup=False)
    return 0
