"""What stream captures suffer from calls of the library's, measured: announced, unannounced, and looked out for.

    captures.py [--driver auto|cuda|sim] [--only TEXT] [--json FILE]

A stream is captured, a call is made, the capture is ended: once for each operation, sync policy, capture mode, kind of
stream, thread that makes the call, and for streams that the library knows or does not. Printed are tables as
docs/captures.md has them; the file gets one record per situation.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyvmm
from pyvmm import transfer

KIB, MIB, MS = 1 << 10, 1 << 20, 1_000_000
POLICIES = ("device", "streams", "on_demand")
MODES = ("global", "thread_local", "relaxed")
KINDS = ("blocking", "non-blocking")
THREADS = ("same thread", "another thread")
NOTICES = {"nothing": "Not announced", "detect": "Not announced, `detect_captures`", "announced": "Announced"}
NON_BLOCKING = 1
WORK = 3 * MS


@dataclass
class Situation:
    operation: str
    notice: str
    policy: str
    known: bool
    mode: str
    kind: str
    thread: str
    capture: str = ""
    """valid or ended"""
    call: str = ""
    """ok, or the error's name"""

    @property
    def outcome(self) -> str:
        if self.capture == "valid":
            return {"ok": "valid", "CaptureError": "refused"}.get(self.call, f"valid, {self.call}")
        return "**ended**" if self.call in ("ok", "CaptureError") else f"**ended**, {self.call}"


@dataclass
class Scene:
    """What stands before the capture: two pools, in which two streams have freed memory with work queued on it."""

    device: pyvmm.Device
    faulty: pyvmm.Faulty
    captured: int
    other: int
    pool: pyvmm.Pool
    second: pyvmm.Pool
    block: int = 0
    """Of the captured stream, in the pool."""

    def call(self, operation: str, *arguments: int) -> int:
        answer: int = transfer.call(self.device.driver, operation, *arguments)
        return answer


def leave_pending(scene: Scene) -> None:
    """A trim before the capture has left memory behind the work that is queued."""
    scene.pool.trim(wait=False)


def take_on_captured(scene: Scene) -> None:
    scene.block = scene.pool.alloc_address(32 * MIB, scene.captured)


def start_afresh(scene: Scene) -> None:
    """A pool in which nothing was freed, so that there is nothing to ask the GPU for."""
    scene.second.close(force=True)
    scene.second = scene.device.pool(growth_policy="exact")


def do_nothing(scene: Scene) -> None:
    pass


def grow_not_ready(scene: Scene) -> None:
    scene.faulty.add("cuMemSetAccess:NOT_READY")
    scene.pool.grow(4 * MIB)


def free_and_alloc_elsewhere(scene: Scene) -> None:
    """The one who wants the memory asks whether the captured stream is done with it."""
    address, scene.block = scene.block, 0
    scene.pool.free_address(address, stream=scene.captured)
    scene.pool.alloc_address(32 * MIB, scene.other)


Step = Callable[[Scene], object]
OPERATIONS: dict[str, tuple[Step, Step]] = {
    "alloc and free that fit": (do_nothing, lambda scene: scene.pool.free_address(scene.pool.alloc_address(MIB))),
    "alloc that grows a fresh pool": (start_afresh, lambda scene: scene.second.alloc_address(32 * MIB)),
    "alloc that grows": (do_nothing, lambda scene: scene.pool.alloc_address(32 * MIB)),
    "growth that the driver first answers NOT_READY": (do_nothing, grow_not_ready),
    "trim that waits": (do_nothing, lambda scene: scene.pool.trim(deadline=0.2)),
    "trim that does not wait": (do_nothing, lambda scene: scene.pool.trim(wait=False)),
    "poll": (leave_pending, lambda scene: scene.pool.poll()),
    "destroy of another pool": (do_nothing, lambda scene: scene.second.close()),
    "alloc on the captured stream": (do_nothing, lambda scene: scene.pool.alloc_address(MIB, scene.captured)),
    "free there, alloc on another": (take_on_captured, free_and_alloc_elsewhere),
}
"""What comes before the capture, and what is called during it."""


@contextmanager
def scene_of(device: pyvmm.Device, faulty: pyvmm.Faulty, kind: str, known: bool) -> Iterator[Scene]:
    captured = transfer.call(device.driver, "stream_create", KINDS.index(kind))
    other = transfer.call(device.driver, "stream_create", NON_BLOCKING)
    pools = [device.pool(growth_policy="exact") for _ in range(2)]  # so that nothing is idle but what was freed
    scene = Scene(device, faulty, captured, other, pools[0], pools[1])
    if known:
        device.register_stream(captured)
    for pool in (scene.pool, scene.second):
        blocks = [(pool.alloc_address(4 * MIB, stream), stream) for stream in (0, other)]
        for address, stream in blocks:
            scene.call("kernel_spin", stream, WORK)
            pool.free_address(address, stream=stream)
    try:
        yield scene
    finally:
        faulty.clear()
        scene.call("ctx_synchronize")
        scene.pool.close(force=True)
        scene.second.close(force=True)
        for one in (captured, other):
            with suppress(pyvmm.InvalidArgumentError):  # no pool has met it
                device.forget_stream(one)
            scene.call("stream_destroy", one)


def attempt(scene: Scene, step: Step) -> str:
    try:
        step(scene)
    except pyvmm.VmmError as error:
        return type(error).__name__
    return "ok"


def make_call(scene: Scene, step: Step, thread: str) -> str:
    if thread == "same thread":
        return attempt(scene, step)
    answers: list[str] = []
    other = threading.Thread(target=lambda: answers.append(attempt(scene, step)))
    other.start()
    other.join()
    return answers[0]


def capture(scene: Scene, step: Step, one: Situation) -> None:
    raw = scene.device.driver.raw
    scene.call("stream_begin_capture", scene.captured, MODES.index(one.mode))
    one.call = make_call(scene, step, one.thread)
    code, graph = raw.stream_end_capture(scene.captured)
    one.capture = "ended" if code else "valid"
    if graph:
        scene.call("graph_destroy", graph)


def measure_one(device: pyvmm.Device, faulty: pyvmm.Faulty, one: Situation) -> None:
    before, step = OPERATIONS[one.operation]
    with scene_of(device, faulty, one.kind, one.known) as scene:
        before(scene)
        if one.notice != "announced":
            capture(scene, step, one)
            return
        with device.capture(scene.captured) as lease:
            capture(scene, step, one)
        lease.release()


def measure(driver: pyvmm.Driver, only: str = "") -> list[Situation]:
    found: list[Situation] = []
    faulty = driver.faulty()
    names = [name for name in OPERATIONS if only in name]
    for notice, policy in itertools.product(NOTICES, POLICIES):
        options: dict[str, Any] = {"sync_policy": policy, "detect_captures": notice == "detect"}
        with pyvmm.Device(driver=faulty, deadline=0.5, **options) as device, device.current():
            rest = itertools.product(names, (True, False), MODES, KINDS, THREADS)
            for name, known, mode, kind, thread in rest:
                one = Situation(name, notice, policy, known, mode, kind, thread)
                measure_one(device, faulty, one)
                found.append(one)
    return found


# ---- tables ----


def words(situations: list[Situation]) -> str:
    """Their outcomes, as shortly as they can be told."""
    outcomes = {one.outcome for one in situations}
    if len(outcomes) == 1:
        return outcomes.pop()
    for key, values in (("kind", KINDS), ("mode", MODES), ("thread", THREADS)):
        groups = {value: {one.outcome for one in situations if getattr(one, key) == value} for value in values}
        if all(len(group) == 1 for group in groups.values()):
            return "; ".join(f"{value.replace('_', '-')}: {group.pop()}" for value, group in groups.items())
    counts = {outcome: sum(one.outcome == outcome for one in situations) for outcome in sorted(outcomes)}
    return ", ".join(f"{count} x {outcome}" for outcome, count in counts.items())


def rows(situations: Iterable[Situation]) -> Iterator[tuple[str, list[str]]]:
    """One row per operation; one for streams known and one for others where that makes a difference."""
    every = list(situations)
    for name in dict.fromkeys(one.operation for one in every):
        cells = {
            known: [
                words([one for one in every if (one.operation, one.policy, one.known) == (name, policy, known)])
                for policy in POLICIES
            ]
            for known in (True, False)
        }
        if cells[True] == cells[False]:
            yield name, cells[True]
        else:
            yield f"{name}; stream known", cells[True]
            yield f"{name}; stream not known", cells[False]


def tables(situations: list[Situation]) -> str:
    """Markdown: a table for each way of giving notice."""
    out: list[str] = []
    for notice, title in NOTICES.items():
        out += [
            f"{title}:",
            "",
            "| call during the capture | `device` | `streams` | `on_demand` |",
            "|---|---|---|---|",
        ]
        out += [
            f"| {name} | {' | '.join(cells)} |" for name, cells in rows(s for s in situations if s.notice == notice)
        ]
        out.append("")
    return "\n".join(out)


def choose(name: str) -> pyvmm.Driver:
    if name == "sim":
        return pyvmm.sim(memory="4GiB")
    try:
        driver = pyvmm.cuda()
        if driver.raw.init(0) == 0 and driver.raw.device_count()[1]:
            return driver
    except pyvmm.NoDriverError:
        pass
    if name == "cuda":
        raise SystemExit("no GPU here")
    return pyvmm.sim(memory="4GiB")


def main() -> int:
    parser = argparse.ArgumentParser(description="What stream captures suffer from calls of the library's.")
    parser.add_argument("--driver", choices=("auto", "cuda", "sim"), default="auto")
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    driver = choose(options.driver)
    with pyvmm.Device(driver=driver) as device:
        about = {"device": device.info.name, "driver": device.info.driver_name, "cuda": device.info.driver_version}
    situations = measure(driver, options.only)
    print(tables(situations))
    print(f"{len(situations)} captures on {about['device']} ({about['driver']}, CUDA {about['cuda']})")
    if options.json:
        text = json.dumps({"about": about, "captures": [asdict(one) for one in situations]}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    lost = [one for one in situations if one.notice == "announced" and one.capture != "valid"]
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
