"""The commands of python -m pyvmm."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from . import Device, Driver, VmmError, cuda, sim, sizes
from .paths import PATHS, cmake_dir, include_dir, library, version

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__, rich_markup_mode=None
)

DriverName = Annotated[str, typer.Option("--driver", help="cuda, sim, or auto: the GPU if there is one")]


def choose(name: str) -> Driver:
    """The driver of a name. auto falls back to the simulated one where there is no GPU to use."""
    if name not in ("auto", "cuda", "sim"):
        raise typer.BadParameter(f"{name!r} is none of auto, cuda, sim")
    if name == "sim":
        return sim()
    if name == "cuda":
        return cuda()
    try:
        driver = cuda()
        driver.raw.init(0)
        return driver if driver.raw.device_count()[1] else sim()
    except VmmError:
        return sim()


def _flag(name: str) -> Any:
    def show(wanted: bool) -> None:
        if wanted:
            typer.echo(PATHS[name]())
            raise typer.Exit

    doc = PATHS[name].__doc__
    return Annotated[bool, typer.Option(name, callback=show, is_eager=True, help=f"Print: {doc}")]


def _paths(
    lib: bool = False,
    include_dir: bool = False,
    cmake_dir: bool = False,
    version: bool = False,
) -> None:
    """GPU memory that grows in place and is never handed out unless it is really there."""


# Annotations are looked up when the command is made, so they are given by hand rather than as text.
_paths.__annotations__ = {
    "lib": _flag("--lib"),
    "include_dir": _flag("--include-dir"),
    "cmake_dir": _flag("--cmake-dir"),
    "version": _flag("--version"),
    "return": None,
}
app.callback()(_paths)


@app.command()
def info(driver: DriverName = "auto") -> None:
    """What this machine has: the library, the driver, its devices, and the policy in force on each."""
    console = Console()
    console.print(f"libvmm {version()}  {library()}", highlight=False, soft_wrap=True)
    console.print(f"headers {include_dir()}, CMake {cmake_dir()}", highlight=False, soft_wrap=True)
    chosen = choose(driver)
    chosen.raw.init(0)
    code, count = chosen.raw.device_count()
    if driver == "auto" and chosen.name == "sim":
        console.print("no GPU that can be used here: this is the simulated device", highlight=False)
    table = Table("device", "name", "memory", "granularity", "driver", "policy", "fence")
    refused = []
    for ordinal in range(0 if code else count):
        try:
            with Device(ordinal, driver=chosen) as device:
                one = device.info
                number = f"{one.driver_version // 1000}.{one.driver_version % 1000 // 10}"
                table.add_row(
                    str(ordinal),
                    one.name,
                    sizes.show(one.total_bytes),
                    sizes.show(one.granularity),
                    f"{one.driver_name} {number}{', WSL' if one.wsl else ''}",
                    one.sync,
                    "event" if one.context_fence else "synchronise",
                )
        except VmmError as error:
            refused.append(f"device {ordinal}: {error}")
    console.print(table)
    for line in refused:
        console.print(line, highlight=False, soft_wrap=True)
    if code or refused:
        raise typer.Exit(1)


@app.command()
def selftest(driver: DriverName = "auto", device: int = 0) -> None:
    """Allocates, fills, checks, makes the driver say NOT_READY and OUT_OF_MEMORY, gives everything back."""
    from .selftest import Selftest

    console = Console()
    test = Selftest(choose(driver), device)
    steps = test.run()
    table = Table("step", "result", "detail", title=f"self-test on {test.name}")
    for step in steps:
        table.add_row(step.name, "ok" if step.passed else "FAILED", step.detail)
    console.print(table)
    failed = sum(not step.passed for step in steps)
    console.print(f"selftest: {len(steps) - failed} passed, {failed} failed", highlight=False)
    raise typer.Exit(1 if failed else 0)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def demo(context: typer.Context) -> None:
    """The fault that the library exists for, played out against older pools."""
    module = importlib.import_module(".demo", __package__)
    raise typer.Exit(module.run(list(context.args)))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def bench(context: typer.Context) -> None:
    """Speed and memory, against what a user would pick instead; replays of allocation logs."""
    module = importlib.import_module(".bench", __package__)
    raise typer.Exit(module.run(list(context.args)))


def run(arguments: list[str]) -> int:
    """Runs a command; answers the exit code. Failures are one line, not a traceback."""
    try:
        app(arguments, prog_name="python -m pyvmm")
    except VmmError as error:
        typer.echo(f"{error.status_name}: {error}", err=True)
        return 1
    except SystemExit as leave:  # how typer always ends
        return leave.code if isinstance(leave.code, int) else 0
    return 0
