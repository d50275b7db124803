"""The pool over time, as a picture: one panel per plan, with the answers of every arm beneath."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from .plans import ARMS, LEGACY, LIBVMM, PLANS, Plan
from .report import find
from .score import Result
from .server import Sample
from .workload import SESSIONS, TURNS

INK, SOFT, GRID = "#22303c", "#6b7785", "#e3e7eb"
COMMITTED, LIVE, OLDER = "#9cc9e8", "#1f77b4", "#b0672b"
COLOURS = {"right": "#4caf7a", "empty": "#23303b", "wrong": "#d9483b", "lost": "#8e44ad", "refused": "#f2b632"}
DASH = (0, (4, 2))
MARKS = (
    ("growths", "^", "#1b4f72", "growth"),
    ("not_ready", "x", "#d9483b", "NOT_READY seen"),
    ("retries", "o", "#2e9e5b", "retried"),
    ("evicted", "v", "#b8860b", "prefix evicted under pressure"),
)


def draw(results: list[Result], where: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style: Any = {
        "font.size": 9,
        "axes.edgecolor": SOFT,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with plt.rc_context(style):
        figure = plt.figure(figsize=(16, 13.5), dpi=100)
        outer = figure.add_gridspec(3, 2, left=0.105, right=0.985, top=0.9, bottom=0.04, hspace=0.3, wspace=0.3)
        figure.suptitle(
            "The pool over time, and what the faults do to the answers", x=0.02, y=0.975, ha="left", size=17
        )
        figure.text(0.02, 0.942, f"{where}; {TURNS} turns in four sessions, one after the other", color=SOFT, size=11)
        size, unit = _unit(results)
        for number, plan in enumerate(PLANS):
            inner = outer[number // 2, number % 2].subgridspec(2, 1, height_ratios=(3.4, 1), hspace=0.06)
            top = figure.add_subplot(inner[0])
            _pool(top, results, plan, size, unit)
            _answers(figure.add_subplot(inner[1], sharex=top), results, plan)
        _legend(figure.add_subplot(outer[2, 1]))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        plt.close(figure)


def _unit(results: list[Result]) -> tuple[int, str]:
    peak = max((s.committed for one in results for s in one.outcome.samples if one.arm == LIBVMM), default=0)
    return (2**30, "GiB") if peak >= 2**30 else (2**20, "MiB")


def _line(axes: Any, samples: list[Sample], field: str, size: int, **style: Any) -> None:
    axes.plot([s.time for s in samples], [getattr(s, field) / size for s in samples], drawstyle="steps-post", **style)


def _pool(axes: Any, results: list[Result], plan: Plan, size: int, unit: str) -> None:
    one, older = find(results, plan, LIBVMM), find(results, plan, LEGACY)
    axes.set_title(plan.key, loc="left", size=12, weight="bold", color=INK, pad=20)
    axes.text(0, 1.03, plan.about, transform=axes.transAxes, color=SOFT, size=9)
    axes.set_ylabel(f"memory of the pool, {unit}")
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    top = 0.0
    if one is not None and one.outcome.samples:
        samples = one.outcome.samples
        times = [s.time for s in samples]
        for field, colour in (("committed", COMMITTED), ("live", LIVE)):
            values = [getattr(s, field) / size for s in samples]
            axes.fill_between(times, values, step="post", color=colour, linewidth=0)
            top = max(top, *values)
        _marks(axes, samples, size, top)
    if older is not None and older.outcome.samples:
        _line(axes, older.outcome.samples, "committed", size, color=OLDER, linewidth=1.3, linestyle=DASH)
        last = older.outcome.samples[-1].committed / size
        text = f"the older pool goes on to {last:,.{0 if last >= 20 else 1}f} {unit}"
        box = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        axes.text(0.985, 0.925, text, transform=axes.transAxes, ha="right", color=OLDER, size=9, bbox=box)
    axes.set_ylim(0, top * 1.75 or 1)
    axes.set_xlim(0, TURNS)
    axes.tick_params(axis="x", labelbottom=False, length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    _sessions(axes)


def _marks(axes: Any, samples: list[Sample], size: int, top: float) -> None:
    """One row of marks per kind, above the pool; growths on its edge."""
    for row, (field, marker, colour, _) in enumerate(MARKS):
        steps = [b for a, b in itertools.pairwise(samples) if getattr(b, field) > getattr(a, field)]
        height = [s.committed / size for s in steps] if field == "growths" else [top * (1.09 + 0.1 * row)] * len(steps)
        hollow = {"facecolors": "none", "edgecolors": colour} if marker == "o" else {"color": colour}
        axes.scatter([s.time for s in steps], height, marker=marker, s=26, zorder=5, linewidths=1.3, **hollow)


def _sessions(axes: Any) -> None:
    begin = 0
    for session in SESSIONS:
        if begin:
            axes.axvline(begin, color=SOFT, linewidth=0.8, linestyle=":")
        begin += session.turns


def _answers(axes: Any, results: list[Result], plan: Plan) -> None:
    for row, arm in enumerate(reversed(ARMS)):
        one = find(results, plan, arm)
        for turn, answer in enumerate(one.answers if one is not None else []):
            axes.barh(row, 0.92, left=turn + 0.04, height=0.78, color=COLOURS[answer], linewidth=0)
    axes.set_yticks(range(len(ARMS)), [arm.key for arm in reversed(ARMS)], size=8)
    axes.set_ylim(-0.55, len(ARMS) - 0.45)
    middle, begin = [], 0
    for session in SESSIONS:
        middle.append(begin + session.turns / 2)
        begin += session.turns
    names = [f"{session.name}\n{session.turns} turns" for session in SESSIONS]
    axes.set_xticks(middle, names, size=8)
    axes.set_xlabel("time, in turns", size=8, labelpad=1)
    axes.tick_params(axis="both", length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    _sessions(axes)


def _legend(axes: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    axes.axis("off")
    dash = Line2D([], [], color=OLDER, linewidth=1.3, linestyle=DASH, label="committed by the older pool (legacy)")
    pool: list[Any] = [
        Patch(color=COMMITTED, label="committed by libvmm"),
        Patch(color=LIVE, label="of that, in live blocks"),
        dash,
    ]
    for _, marker, colour, label in MARKS:
        fill = "none" if marker == "o" else colour
        pool.append(Line2D([], [], marker=marker, color=colour, markerfacecolor=fill, linestyle="", label=label))
    labels = {"lost": "lost with its context", "refused": "refused, and not answered"}
    answers = [Patch(color=colour, label=labels.get(name, name)) for name, colour in COLOURS.items()]
    style = {"frameon": False, "fontsize": 10, "title_fontsize": 11, "alignment": "left", "loc": "upper left"}
    first = axes.legend(handles=pool, title="the pool of libvmm, over time", bbox_to_anchor=(0.0, 1.0), **style)
    axes.add_artist(first)
    axes.legend(handles=answers, title="answers, turn by turn", bbox_to_anchor=(0.55, 1.0), **style)
    text = (
        "Time runs in turns: each turn is drawn equally wide, by the driver's clock within it.\n"
        "The expected answers come from a fault-free run on plain memory."
    )
    axes.text(0.01, 0.1, text, transform=axes.transAxes, color=SOFT, size=9.5)
