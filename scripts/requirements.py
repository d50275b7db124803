"""Print the requirements of dependency groups and extras of pyproject.toml, one a line, for `pip install -r`.

requirements.py build test      groups; a name that is no group is an extra of the project
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


def load(path: Path) -> dict[str, Any]:
    for module in ("tomllib", "pip._vendor.tomli"):  # Python 3.10 has no tomllib, but its pip carries one
        try:
            toml = importlib.import_module(module)
        except ImportError:
            continue
        data: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
        return data
    raise SystemExit("neither tomllib nor pip's copy of it is there; Python 3.11 or newer has it")


def main(names: list[str]) -> int:
    project = load(Path(__file__).resolve().parent.parent / "pyproject.toml")
    groups = project["dependency-groups"] | project["project"]["optional-dependencies"]
    wanted: list[str] = []
    for name in names:
        for requirement in groups[name]:
            if requirement not in wanted:
                wanted.append(requirement)
    print("\n".join(wanted))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
