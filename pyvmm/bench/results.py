"""Results: medians with their spread, one record per benchmark, case and arm; files of them; two runs compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

QUANTILES = {"p5": 0.05, "p25": 0.25, "p75": 0.75, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
FASTER_IS_MORE = frozenset({"M pairs/s", "GB/s"})

Record = dict[str, Any]
"""{"bench", "case", "arm", "unit", "n", "median", "p5" ... "max"}, or with "skip" and a reason in place of numbers; as
the C programs write them, a line each. More keys are kept."""


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share does not exceed, as in the C programs."""
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def summarise(bench: str, case: str, arm: str, unit: str, values: Iterable[float], **more: Any) -> Record:
    ordered = sorted(values)
    numbers = {name: quantile(ordered, share) for name, share in QUANTILES.items()}
    return {
        "bench": bench,
        "case": case,
        "arm": arm,
        "unit": unit,
        "n": len(ordered),
        "median": quantile(ordered, 0.5),
        **numbers,
        "min": ordered[0],
        "max": ordered[-1],
        **more,
    }


def skip(bench: str, case: str, arm: str, why: str) -> Record:
    return {"bench": bench, "case": case, "arm": arm, "skip": why}


@dataclass
class Run:
    about: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def find(self, bench: str, case: str, arm: str) -> Record | None:
        """The measured record, or None."""
        for one in self.records:
            if (one["bench"], one["case"], one["arm"]) == (bench, case, arm) and "median" in one:
                return one
        return None

    def cases(self, bench: str) -> list[str]:
        return list(dict.fromkeys(one["case"] for one in self.records if one["bench"] == bench))

    def arms(self, bench: str) -> list[str]:
        return list(dict.fromkeys(one["arm"] for one in self.records if one["bench"] == bench))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ",\n  ".join(json.dumps(one) for one in self.records)
        path.write_text(f'{{"about": {json.dumps(self.about, indent=1)},\n "results": [\n  {lines}\n ]}}\n')


def read(path: Path) -> Run:
    """A run, or the lines that a C program wrote."""
    text = path.read_text(encoding="utf-8")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        whole = None
    run = Run()
    if isinstance(whole, dict) and "results" in whole:
        run.about, run.records = whole["about"], whole["results"]
        return run
    try:
        for line in text.splitlines():
            one = json.loads(line)
            if "about" in one:
                run.about |= one["about"]
            else:
                run.records.append(one)
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"{path}: neither a run nor lines of results: {error}") from None
    return run


@dataclass
class Change:
    """From one run to another: the ratio of the medians, and how far it could be off by the spread of both."""

    bench: str
    case: str
    arm: str
    unit: str
    old: float
    new: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        return self.new / self.old if self.old else math.nan

    @property
    def word(self) -> str:
        """Of a change whose middle halves lie apart."""
        if self.low <= 1 <= self.high:
            return "same"
        more = self.ratio > 1
        return "better" if more == (self.unit in FASTER_IS_MORE) else "worse"


def compare(old: Run, new: Run) -> list[Change]:
    """What both runs have measured, in the order of the new one."""
    changes = []
    for after in new.records:
        before = old.find(after["bench"], after["case"], after["arm"])
        if before is None or "median" not in after or before["unit"] != after["unit"]:
            continue
        low, high = (_edge(after, a) / _edge(before, b) for a, b in (("p25", "p75"), ("p75", "p25")))
        changes.append(
            Change(
                after["bench"],
                after["case"],
                after["arm"],
                after["unit"],
                before["median"],
                after["median"],
                low,
                high,
            )
        )
    return changes


def _edge(one: Record, name: str) -> float:
    """A quantile; of what was measured once, that. Never 0, so that ratios can be taken."""
    return float(one[name] if name in one else one["median"]) or math.nan
