"""python -m pyvmm bench: speed and memory, against what a user would pick instead.

Benchmarks of the C interface are programs of their own (libvmm/bench); `all` runs them too. Each figure is the median
of rounds in which the order of the allocators is shuffled. What it is held against is printed with PASS or FAIL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import errors
from . import command
from .command import Workloads

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None
)

DriverName = Annotated[str, typer.Option("--driver", help="cuda, sim, or auto: the GPU if there is one")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the results there")]
Paths = Annotated[
    list[Path] | None,
    typer.Argument(help="logs (RMM's CSV) or request traces", exists=True),
]
Requests = Annotated[int, typer.Option(help="of a trace, at most so many")]
Layout = Annotated[str, typer.Option(help="of a trace: paged, contiguous or prefixes; else what suits it")]
Scale = Annotated[float, typer.Option(help="size of the made-up workloads")]


def _exit(status: int) -> None:
    raise typer.Exit(status)


@app.command("all")
def _all(
    paths: Paths = None,
    driver: DriverName = "auto",
    programs: Annotated[
        Path | None,
        typer.Option(help="the folder with bench_pair and bench_cuda; without it, Python alone", exists=True),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FILE", help="the results, and a picture beside")] = Path(
        "out/bench.json"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="fewer rounds, smaller workloads")] = False,
    requests: Requests = 1000,
    commit: Annotated[str, typer.Option(help="to be noted, where git does not know it")] = "",
) -> None:
    """All that this machine can measure: tables, bounds, JSON, a picture."""
    chosen = Workloads(tuple(paths or ()), scale=0.1 if quick else 0.5, requests=requests, both=True)
    _exit(command.everything(driver, programs, chosen, quick, commit, out))


@app.command("replay")
def _replay(
    paths: Paths = None,
    driver: DriverName = "sim",
    only: Annotated[str, typer.Option(help="of the made-up workloads those whose name contains this")] = "",
    scale: Scale = 1.0,
    seed: int = 1,
    requests: Requests = 1500,
    layout: Layout = "",
    option: Annotated[
        list[str] | None,
        typer.Option(help="of the pool, as name=value; may be repeated"),
    ] = None,
    peers: Annotated[bool, typer.Option(help="on a GPU: PyTorch, CuPy and RMM too")] = True,
    json_path: Json = None,
) -> None:
    """Memory: what allocators take for recorded workloads, or without any for some made up from a seed."""
    chosen = Workloads(tuple(paths or ()), only, scale, seed, requests, layout)
    _exit(command.replay(driver, chosen, option or (), peers, json_path))


@app.command("pair")
def _pair(driver: DriverName = "auto", rounds: int = 21, pairs: int = 10_000, json_path: Json = None) -> None:
    """Speed from Python: a block taken and given back."""
    _exit(command.pair(driver, rounds, pairs, json_path))


@app.command("compare")
def _compare(
    before: Annotated[Path, typer.Argument(help="results", exists=True)],
    now: Annotated[Path, typer.Argument(help="results", exists=True)],
) -> None:
    """Two runs: the ratio of the medians, and the range that the middle halves of both allow."""
    _exit(command.compare(before, now))


@app.command("show")
def _show(
    run: Annotated[Path, typer.Argument(help="results", exists=True)],
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="draw a picture")] = None,
) -> None:
    """The tables, bounds and picture of a run."""
    _exit(command.show(run, png))


@app.command("log")
def _log(
    trace: Annotated[Path, typer.Argument(help="a request trace", exists=True)],
    out: Annotated[Path, typer.Argument(help="the log to write, in RMM's CSV form")],
    requests: Requests = 1500,
    layout: Layout = "",
) -> None:
    """Works through a request trace and writes down what a server would allocate."""
    _exit(command.log(trace, out, requests, layout))


def run(arguments: list[str]) -> int:
    """Runs a command; answers the exit code."""
    try:
        app(arguments, prog_name="python -m pyvmm bench")
    except (errors.VmmError, ValueError, OSError) as error:
        typer.echo(f"bench: {error}", err=True)
        return 1
    except SystemExit as leave:  # how typer always ends
        return leave.code if isinstance(leave.code, int) else 0
    return 0
