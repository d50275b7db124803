"""python -m pyvmm bench: speed and memory, against what a user would pick instead.

Benchmarks of the C interface are programs of their own (libvmm/bench); their results are read and compared here too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import errors

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None
)

DriverName = Annotated[str, typer.Option("--driver", help="cuda, sim, or auto: the GPU if there is one")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="write the results there")]


@app.command()
def replay(
    paths: Annotated[list[Path] | None, typer.Argument(help="logs (RMM's CSV) or request traces", exists=True)] = None,
    driver: DriverName = "sim",
    only: Annotated[str, typer.Option(help="of the made-up workloads those whose name contains this")] = "",
    scale: Annotated[float, typer.Option(help="size of the made-up workloads")] = 1.0,
    seed: int = 1,
    requests: Annotated[int, typer.Option(help="of a trace, at most so many")] = 1500,
    layout: Annotated[str, typer.Option(help="of a trace: paged, contiguous or prefixes")] = "",
    option: Annotated[list[str] | None, typer.Option(help="of the pool, as name=value; may be repeated")] = None,
    peers: Annotated[bool, typer.Option(help="on a GPU: PyTorch, CuPy and RMM too")] = True,
    json_path: Json = None,
) -> None:
    """Memory: what allocators take for workloads, made up or recorded. Says of each bound whether it held."""
    from . import command

    raise typer.Exit(
        command.replay(paths or [], driver, only, scale, seed, requests, layout, option or [], peers, json_path)
    )


@app.command("log")
def log_command(
    trace: Annotated[Path, typer.Argument(help="a request trace", exists=True)],
    out: Annotated[Path, typer.Argument(help="the log to write, in RMM's CSV form")],
    requests: int = 1500,
    layout: str = "",
) -> None:
    """Works through a request trace and writes down what a server would allocate."""
    from . import log, workloads

    made = workloads.from_path(trace, requests, layout)
    log.write(made, out)
    typer.echo(f"{out}: {len(made):,} events, {made.blocks:,} blocks")


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
