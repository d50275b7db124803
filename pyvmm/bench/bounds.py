"""What the figures are held against. Each bound is said with its numbers, whether it held or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .results import Record, Run

MIMALLOC = {"live=100": 4.3, "live=10000": 3.0, "live=100000": 1.43, "live=1000000": 1.18}
SIZES = {"2 MiB": 2, "8 MiB": 8, "32 MiB": 32, "128 MiB": 128, "512 MiB": 512}
RAW, GRANULES = "raw calls, same shape", "raw calls, 2 MiB handles"
CORES_FOR_THREADS = 16


@dataclass(frozen=True)
class Bound:
    text: str
    held: bool


def check(run: Run) -> list[Bound]:
    """The bounds on everything that this run has measured."""
    return [*_cpu(run), *_gpu(run), *_python(run), *_replays(run)]


def _median(record: Record | None) -> float:
    return float(record["median"]) if record else 0.0


def _at_most(what: str, number: float, limit: float, unit: str = "") -> Bound:
    return Bound(f"{what}: {number:.3g}{unit}, at most {limit:g}{unit}", number <= limit)


def _at_least(what: str, number: float, limit: float, unit: str = "") -> Bound:
    return Bound(f"{what}: {number:.3g}{unit}, at least {limit:g}{unit}", number >= limit)


def _cpu(run: Run) -> Iterator[Bound]:
    for case, limit in MIMALLOC.items():
        ours, theirs = run.find("CPU pair", case, "libvmm"), run.find("CPU pair", case, "mimalloc")
        if ours and theirs:
            yield _at_most(f"CPU pair, {case}: ratio to mimalloc", _median(ours) / _median(theirs), limit)
    if stack := run.find("CPU pair", "last in, first out", "libvmm"):
        yield _at_most("CPU pair, last in, first out", _median(stack), 40, " ns")
    one = run.find("CPU threads", "rate of all", "1 thread")
    if one and int(run.about.get("cores", 0)) >= CORES_FOR_THREADS:
        for arm in ("2 threads", "4 threads", "8 threads", "16 threads"):
            if rate := run.find("CPU threads", "rate of all", arm):
                yield _at_least(f"rate of {arm}, of one thread's", _median(rate) / _median(one), 1.0)


def _gpu_pairs(run: Run) -> Iterator[Bound]:
    for case in run.cases("pair"):
        ours = run.find("pair", case, "libvmm")
        for arm in ("cudaMallocAsync", "cuMemAllocAsync"):
            theirs = run.find("pair", case, arm)
            if ours and theirs:
                yield _at_least(f"pair of {case}: {arm} takes, times ours", _median(theirs) / _median(ours), 20)


def _calls(run: Run) -> Iterator[Bound]:
    for case, limit in (("pairs on one stream, in all", 0), ("batch handed over, records, queries and waits", 2)):
        if ours := run.find("driver calls", case, "libvmm"):
            yield _at_most(f"driver calls, {case}", float(ours["max"]), limit)


def _python(run: Run) -> Iterator[Bound]:
    for case in run.cases("Python pair"):
        cupy = run.find("Python pair", case, "cupy.cuda.MemoryPool")
        if not cupy:
            continue
        for arm, limit in (("libvmm, integers", 1.0), ("libvmm, blocks", 2.0)):
            if ours := run.find("Python pair", case, arm):
                yield _at_most(f"{arm}, {case}: of CuPy's MemoryPool", _median(ours) / _median(cupy), limit)


def _gpu(run: Run) -> Iterator[Bound]:
    for part in (_gpu_pairs, _calls, _growth, _vector, _load):
        yield from part(run)


def _growth(run: Run) -> Iterator[Bound]:
    for case in run.cases("growth"):
        ours, raw = run.find("growth", case, "libvmm"), run.find("growth", case, RAW)
        if ours and raw:
            if SIZES.get(case, 1024) >= 128:
                yield _at_most(f"growth by {case}: of raw calls of its shape", _median(ours) / _median(raw), 1.1)
            else:
                more = _median(ours) - _median(raw)
                yield _at_most(f"growth by {case}: above raw calls of its shape", more, 12, " us")
        granules = run.find("growth", case, GRANULES)
        if case == "1 GiB" and ours and granules:
            ratio = _median(granules) / _median(ours)
            yield _at_least("growth by 1 GiB: 2 MiB granules take, times ours", ratio, 100)


def _vector(run: Run) -> Iterator[Bound]:
    for case in run.cases("vector"):
        ours, copied = run.find("vector", case, "libvmm, in place"), run.find("vector", case, "cudaMalloc and copy")
        if ours and copied:
            yield _at_least(f"vector, {case}: copying takes, times ours", _median(copied) / _median(ours), 10)


def _load(run: Run) -> Iterator[Bound]:
    for bench, arm in (("growth under load", "libvmm, on_demand"), ("trim under load", "libvmm")):
        for case in run.cases(bench):
            ours, raw = run.find(bench, case, arm), run.find(bench, case, "raw calls")
            if not ours or not raw:
                continue
            for name in ("median", "p99"):
                yield _at_most(f"{bench}, {case}: {name} of raw calls'", ours[name] / raw[name], 1.2)
            if "100 ms" in case:
                yield _at_most(f"{bench}, {case}: the longest", ours["max"] / 1e3, 20, " ms")


def _replays(run: Run) -> Iterator[Bound]:
    for case in run.cases("replay"):
        ours = run.find("replay", case, "libvmm")
        if not ours:
            continue
        if ours["failed"]:
            yield Bound(f"replay, {case}: {ours['failed']}", False)
            continue
        yield _at_most(f"replay, {case}: peak physical / peak live", ours["median"], 1.10)
        yield _at_most(f"replay, {case}: growths", ours["growths"], ours["most_growths"])
        if case == "prefill temporaries":
            yield _at_most(f"replay, {case}: growths", ours["growths"], 16)
        theirs = run.find("replay", case, "torch, expandable segments")
        if theirs and not theirs["failed"]:
            ratio = ours["peak_physical"] / max(1, theirs["peak_physical"])
            yield _at_most(f"replay, {case}: peak physical, of PyTorch's expandable segments", ratio, 1.0)
