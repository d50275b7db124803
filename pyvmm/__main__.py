"""python -m pyvmm: where the library lies, what the machine has, a self-test, the demonstration, benchmarks."""

from __future__ import annotations

import sys

from .paths import PATHS


def main(arguments: list[str]) -> int:
    """The flags need nothing but the package; build systems ask them. The commands need typer and rich."""
    if len(arguments) == 1 and arguments[0] in PATHS:
        print(PATHS[arguments[0]]())
        return 0
    try:
        from .cli import run
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed; try: pip install 'libvmm[demo]'", file=sys.stderr)
        return 1
    return run(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
