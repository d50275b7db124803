"""Print line and branch coverage of the C library floor by floor, from gcovr's --json-summary.

coverage_table.py SUMMARY.json [--require FLOOR=PERCENT ...]      branch coverage a floor must reach
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

FLOORS = ("base", "driver", "sim", "index", "device", "region", "pool", "array", "slots")
COUNTS = ("line_covered", "line_total", "branch_covered", "branch_total")


def by_floor(summary: dict[str, Any]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for entry in summary["files"]:
        parts = Path(entry["filename"]).parts
        floor = parts[parts.index("src") + 1]
        for name in COUNTS:
            table[floor][name] += int(entry[name])
            table["all"][name] += int(entry[name])
    return dict(table)


def percent(covered: int, total: int) -> float:
    return 100.0 * covered / total if total else 100.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Coverage of the C library, floor by floor.")
    parser.add_argument("summary", type=Path)
    parser.add_argument("--require", action="append", default=[], metavar="FLOOR=PERCENT")
    options = parser.parse_args(arguments)
    table = by_floor(json.loads(options.summary.read_text(encoding="utf-8")))
    print(f"{'floor':<8} {'lines':>15} {'':>7} {'branches':>15} {'':>7}")
    for floor in (*(name for name in FLOORS if name in table), "all"):
        row = table[floor]
        lines, branches = f"{row['line_covered']}/{row['line_total']}", f"{row['branch_covered']}/{row['branch_total']}"
        line_share = percent(row["line_covered"], row["line_total"])
        branch_share = percent(row["branch_covered"], row["branch_total"])
        print(f"{floor:<8} {lines:>15} {line_share:>6.1f}% {branches:>15} {branch_share:>6.1f}%")
    failed = 0
    for requirement in options.require:
        floor, wanted = requirement.split("=")
        row = table.get(floor, dict.fromkeys(COUNTS, 0))
        if not row["branch_total"] or percent(row["branch_covered"], row["branch_total"]) < float(wanted):
            print(f"error: branch coverage of {floor} is below {wanted} %")
            failed = 1
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
