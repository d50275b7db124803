"""Break the library in one place at a time, in a copy, and demand that a test notices.

    mutants.py [--sample] [--only TEXT] [--jobs N] [--list]

One mutant per undo step and per published counter of the floors device, region and pool. libvmm/tests/mutants/*.txt
says where: a line `== FILE: WHAT`, then the lines to find (`-`) and those that stand there instead (`+`), compared
without indentation; `! PROGRAM [ARGUMENTS]` names what is to notice it, else the fault loops and then the unit tests
do. Published counters are found by themselves: each `copy.NAME =` and `stats->NAME =` of the functions that publish is
left out once. What is to notice a mutant must first pass, and run something, where nothing is broken; one that then
takes many times as long hangs, and has noticed.

The last line reads `mutants: K of N killed`. The exit status is 1 if one survived, or if an edit no longer applies.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "libvmm" / "tests" / "mutants"
WORK = ROOT / "build" / "mutants"
BIN = Path(sys.executable).parent
PUBLISHERS = ("libvmm/src/pool/query.c", "libvmm/src/device/device.c")
PUBLISHED = re.compile(r"^\s*(?:copy\.|stats->)(\w+) = .*;$")
COUNTERS = [["test_counters"]]
DEFAULT = [["faults", "--first", "--singles", "--sample"], *COUNTERS, ["faults", "--first", "--sample"]]
SLOW = ("test_pool_threads", "test_pool_stats", "test_pool_steady", "test_sim_random", "test_space_model")
SAMPLE = 6  # in a sample one in so many
TIMEOUT = 180.0
PATIENCE = (20.0, 10.0)  # a killer that was timed has these seconds, or so many times its own if that is longer

Item = TypeVar("Item")


@dataclass
class Mutant:
    file: str
    what: str
    find: list[str] = field(default_factory=list)
    replace: list[str] = field(default_factory=list)
    killers: list[list[str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.file.removeprefix('libvmm/src/')}: {self.what}"


def read_table(path: Path) -> list[Mutant]:
    mutants: list[Mutant] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := re.match(r"== (\S+): (.+)$", line):
            mutants.append(Mutant("libvmm/src/" + match.group(1), match.group(2)))
        elif line.startswith("-"):
            mutants[-1].find.append(line[1:].strip())
        elif line.startswith("+"):
            mutants[-1].replace.append(line[1:].strip())
        elif line.startswith("!"):
            mutants[-1].killers.append(line[1:].split())
        elif line.strip() and not line.startswith("#"):
            raise SystemExit(f"{path.name}:{number}: not understood: {line}")
    return mutants


def published() -> list[Mutant]:
    """One mutant per number that vmm_*_get_stats hands out."""
    found: list[Mutant] = []
    for file in PUBLISHERS:
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
            if (match := PUBLISHED.match(line)) and match.group(1) not in ("struct_size", "lost"):
                found.append(Mutant(file, f"{match.group(1)} is not published", [line.strip()], [], COUNTERS))
    return found


def apply(mutant: Mutant, text: str) -> str:
    """The text with the edit made, or a LookupError."""
    lines = text.split("\n")
    bare = [line.strip() for line in lines]
    size = len(mutant.find)
    places = [i for i in range(len(lines) - size + 1) if bare[i : i + size] == mutant.find]
    if len(places) != 1:
        raise LookupError(f"{mutant.name}: {len(places)} places match")
    lines[places[0] : places[0] + size] = mutant.replace
    return "\n".join(lines)


def tool(name: str) -> str:
    return str(BIN / name) if (BIN / name).exists() else name


class Copy:
    """A copy of the C library with its build, kept between runs so that only what changed is compiled."""

    def __init__(self, number: int) -> None:
        self.tree = WORK / str(number) / "libvmm"
        self.build = WORK / str(number) / "build"
        self.allowed: dict[tuple[str, ...], float] = {}

    def sync(self) -> None:
        wanted = {path.relative_to(ROOT / "libvmm") for path in (ROOT / "libvmm").rglob("*") if path.is_file()}
        for path in [p for p in self.tree.rglob("*") if p.is_file() and p.relative_to(self.tree) not in wanted]:
            path.unlink()
        for name in wanted:
            source, target = ROOT / "libvmm" / name, self.tree / name
            if not target.exists() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def command(self, *arguments: str) -> str:
        result = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return "" if result.returncode == 0 else result.stdout or "failed"

    def configure(self) -> str:
        options = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=-O1 -g0", "-DVMM_KERNELS=OFF", "-DVMM_HARDEN=OFF"]
        ninja = tool("ninja")
        where = ["-S", str(self.tree), "-B", str(self.build), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        return self.command(tool("cmake"), *where, *options)

    def make(self, *targets: str) -> str:
        return self.command(tool("cmake"), "--build", str(self.build), "-j", "1", "--target", *targets)

    def verdict(self, killer: list[str]) -> str:
        """Empty: it passed."""
        command = [str(self.build / killer[0]), *killer[1:], *(["--jobs", "1"] if killer[0] == "faults" else [])]
        # A session of its own: what the fault loops have forked must end with them.
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        try:
            output, _ = child.communicate(timeout=self.allowed.get(tuple(killer), TIMEOUT))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return "hangs"
        if child.returncode != 0:
            return "fails"
        if output.rstrip().rpartition("\n")[2].startswith("faults: 0 run"):
            raise LookupError(f"{' '.join(killer)}: runs nothing")
        return ""

    def check(self, killer: list[str]) -> float:
        """The seconds that it may take from now on, or a LookupError if it is none."""
        if problem := self.make(killer[0]):
            raise LookupError(f"{' '.join(killer)}: does not build\n{problem[-2000:]}")
        started = time.monotonic()
        if verdict := self.verdict(killer):
            raise LookupError(f"{' '.join(killer)}: {verdict} without a mutant")
        least, times = PATIENCE
        return max(least, times * (time.monotonic() - started))

    def kills(self, mutant: Mutant) -> str:
        """What noticed the mutant; empty if nothing did."""
        target = self.tree.parent / mutant.file
        original = target.read_text(encoding="utf-8")
        target.write_text(apply(mutant, original), encoding="utf-8")
        try:
            for killer in mutant.killers or [*DEFAULT, *self.units()]:
                if problem := self.make(killer[0]):
                    raise LookupError(f"{mutant.name}: does not compile\n{problem[-2000:]}")
                if verdict := self.verdict(killer):
                    return f"{' '.join(killer)} {verdict}"
        finally:
            target.write_text(original, encoding="utf-8")
        return ""

    def units(self) -> list[list[str]]:
        tests = sorted(path.stem for path in (self.tree / "tests" / "unit").glob("test_*.c"))
        chosen = [name for name in tests if name.startswith(("test_device", "test_pool", "test_counters"))]
        return [[name] for name in chosen if name not in SLOW]


@dataclass
class Result:
    killed: int = 0
    survived: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def share(copies: list[Copy], items: Iterable[Item], do: Callable[[Copy, Item], None]) -> None:
    """Each item once, in whichever copy comes first."""
    tasks: queue.Queue[Item] = queue.Queue()
    for item in items:
        tasks.put(item)

    def work(copy: Copy) -> None:
        while True:
            try:
                item = tasks.get_nowait()
            except queue.Empty:
                return
            do(copy, item)

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check_killers(copies: list[Copy], mutants: list[Mutant]) -> list[str]:
    """Runs all that are named where nothing is broken, and tells the copies how long each may take."""
    killers = {tuple(killer): None for mutant in mutants for killer in mutant.killers or DEFAULT}
    allowed: dict[tuple[str, ...], float] = {}
    broken: list[str] = []

    def check(copy: Copy, killer: tuple[str, ...]) -> None:
        try:
            allowed[killer] = copy.check(list(killer))
        except LookupError as problem:
            broken.append(str(problem))

    share(copies, killers, check)
    for copy in copies:
        copy.allowed = allowed
    return broken


def try_all(copies: list[Copy], mutants: list[Mutant]) -> Result:
    result, lock = Result(), threading.Lock()

    def attempt(copy: Copy, mutant: Mutant) -> None:
        started = time.monotonic()
        try:
            killer = copy.kills(mutant)
        except LookupError as problem:
            with lock:
                result.broken.append(str(problem))
                print(f"BROKEN   {problem}", flush=True)
            return
        seconds = time.monotonic() - started
        with lock:
            if killer:
                result.killed += 1
            else:
                result.survived.append(mutant.name)
            print(f"{'killed' if killer else 'SURVIVED':<8} {mutant.name} ({killer}; {seconds:.1f} s)", flush=True)

    share(copies, mutants, attempt)
    return result


def prepare(number: int) -> Copy:
    copy = Copy(number)
    copy.sync()
    problem = copy.configure() or copy.make("faults", "test_counters")
    if problem:
        raise SystemExit(f"the copy does not build:\n{problem[-4000:]}")
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the library in one place at a time; a test must notice.")
    parser.add_argument("--sample", action="store_true", help=f"one in {SAMPLE}, others each time the table changes")
    parser.add_argument("--only", default="", help="mutants whose name holds this text")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    mutants = [mutant for path in sorted(TABLES.glob("*.txt")) for mutant in read_table(path)] + published()
    mutants.sort(key=lambda mutant: mutant.file)
    chosen = [mutant for mutant in mutants if options.only in mutant.name]
    if options.sample:
        chosen = chosen[::SAMPLE]
    if options.list:
        print("\n".join(mutant.name for mutant in chosen))
        return 0
    for mutant in mutants:  # all edits must apply, whatever is run
        apply(mutant, (ROOT / mutant.file).read_text(encoding="utf-8"))
    copies = [prepare(number) for number in range(options.jobs)]
    if broken := check_killers(copies, chosen):
        raise SystemExit("\n".join(broken))
    result = try_all(copies, chosen)
    for name in result.survived:
        print(f"survived: {name}")
    print(f"mutants: {result.killed} of {len(chosen)} killed")
    return 0 if result.killed == len(chosen) else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except LookupError as problem:
        raise SystemExit(f"an edit no longer applies: {problem}") from problem
