"""Results as a picture: a panel per benchmark, the allocators side by side."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from .results import Run

INK, SOFT, GRID = "#22303c", "#6b7785", "#e3e7eb"
OURS = ("#0b3c6f", "#3d8fd1", "#a6d3f2", "#6a5acd", "#2aa7a0", "#c3b5f0", "#7fd1c3", "#1b6d78")
OTHERS = ("#b0672b", "#d9a23b", "#4caf7a", "#8e44ad", "#d9483b", "#7f8c8d", "#16a085", "#c0997a", "#34495e")
PANELS = (
    ("CPU pair", "a pair on the CPU"),
    ("CPU threads", "threads on one pool"),
    ("CPU pair among threads", "a pair while other threads use the pool"),
    ("pair", "a pair on the GPU machine, from C"),
    ("pair on a stream", "a pair on a stream, and blocks handed to another"),
    ("Python pair", "a pair from Python"),
    ("growth", "growth"),
    ("vector", "a vector that grows"),
    ("growth under load", "growth while work is queued"),
    ("trim under load", "giving back while work is queued"),
    ("read bandwidth", "reading by kernels"),
    ("replay", "memory: peak physical of peak live"),
)


def draw(run: Run, path: Path) -> int:
    """Answers how many panels there were to draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(bench, title) for bench, title in PANELS if any(_records(run, bench, case) for case in run.cases(bench))]
    if not panels:
        return 0
    rows = -(-len(panels) // 2)
    style: Any = {"font.size": 9, "axes.edgecolor": SOFT, "axes.labelcolor": INK, "xtick.color": INK}
    with plt.rc_context(style):
        figure, grid = plt.subplots(rows, 2, figsize=(17, 4.6 * rows), dpi=90, squeeze=False, layout="constrained")
        figure.suptitle(_title(run), x=0.01, ha="left", size=13, color=INK)
        for axes, (bench, title) in zip(grid.flat, panels, strict=False):
            _panel(axes, run, bench, title)
        for axes in grid.flat[len(panels) :]:
            axes.axis("off")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)
    return len(panels)


def _title(run: Run) -> str:
    about = run.about
    names = [str(about[name]) for name in ("device", "date", "commit") if about.get(name)]
    return "Benchmarks: medians, with what lies between 5 % and 95 %\n" + ", ".join(names)


def _records(run: Run, bench: str, case: str) -> list[dict[str, Any]]:
    found = [run.find(bench, case, arm) for arm in run.arms(bench)]
    return [one for one in found if one]


def _panel(axes: Any, run: Run, bench: str, title: str) -> None:
    cases = [case for case in run.cases(bench) if _records(run, bench, case)]
    arms = [arm for arm in run.arms(bench) if any(run.find(bench, case, arm) for case in cases)]
    ours, others = iter(OURS * 9), iter(OTHERS * 9)
    units = set()
    width = 0.8 / max(1, len(arms))
    for number, arm in enumerate(arms):
        colour = next(ours) if "libvmm" in arm or "thread" in arm else next(others)
        for place, case in enumerate(cases):
            one = run.find(bench, case, arm)
            if one is None:
                continue
            units.add(one["unit"])
            height = one["median"]
            spread = [[height - one.get("p5", height)], [one.get("p95", height) - height]]
            axes.bar(
                place + (number - (len(arms) - 1) / 2) * width,
                height,
                width * 0.92,
                color=colour,
                yerr=spread,
                ecolor=INK,
                error_kw={"linewidth": 0.8},
                label=arm if place == min(p for p, c in enumerate(cases) if run.find(bench, c, arm)) else None,
            )
    heights = [one["median"] for case in cases for one in _records(run, bench, case) if one["median"] > 0]
    if heights and max(heights) > 20 * min(heights):
        axes.set_yscale("log")
    axes.set_title(title, loc="left", weight="bold", color=INK)
    axes.set_ylabel(", ".join(sorted(units)))
    if len(cases) > 8:
        axes.set_xticks(range(len(cases)), cases, size=8, rotation=25, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(len(cases)), [_wrapped(case, 96 // len(cases)) for case in cases], size=8)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.margins(y=0.07 * (1 + -(-len(arms) // 4)))  # room above the bars for the legend
    axes.legend(frameon=False, fontsize=7.5, ncols=4, loc="upper left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _wrapped(case: str, width: int) -> str:
    """In lines, which may also end after an underscore."""
    return "\n".join(textwrap.wrap(case.replace("_", "_ "), width)).replace("_ ", "_")
