"""Run everything that can be tested on this machine, stage by stage, and close with a summary.

    test_all.py [--jobs N]      called by `make test`, which has built build/c and installed pyvmm before

A stage's output goes to build/test-logs; what failed is printed. Every skip is printed with its reason.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
LOGS = ROOT / "build" / "test-logs"


@dataclass
class Stage:
    name: str
    command: list[str]
    needs: str = ""  # a path (or pattern) without which the stage does not exist
    passed: int = 0
    failed: int = 0
    skips: list[str] = field(default_factory=list)
    seconds: float = 0.0
    status: int | None = None

    @property
    def ok(self) -> bool:
        return self.status == 0


def stages(jobs: int) -> list[Stage]:
    python = [sys.executable, "-I"]
    ctest = [str(BIN / "ctest"), "--test-dir", "build/c", "-V", "-j", str(jobs), "--no-tests=error", "-L"]
    pytest = [str(BIN / "pytest"), "-p", "no:cacheprovider", "-m"]
    return [
        Stage("layers", [*python, "scripts/check_layers.py"]),
        Stage("symbols", [*python, "scripts/check_symbols.py", "build/c/libvmm.so"]),
        Stage("C unit", [*ctest, "unit|example"]),
        Stage("conformance on sim", [*ctest, "conformance"], "libvmm/tests/conformance"),
        Stage("faults, sampled", [*ctest, "faults"], "libvmm/tests/faults"),
        Stage("fuzz, seeded", [*ctest, "fuzz"], "libvmm/tests/fuzz/fuzz_*.c"),
        Stage("benchmarks run", [*ctest, "bench-smoke"], "libvmm/bench"),
        Stage(
            "mutants, sampled", [*python, "scripts/mutants.py", "--sample", "--jobs", str(jobs)], "scripts/mutants.py"
        ),
        Stage("Python", [*pytest, "not packaging"]),
        Stage("packaging", [*pytest, "packaging"]),
    ]


def read_counts(stage: Stage, output: str) -> None:
    """Fills the counts from what check.h and pytest print."""
    for line in output.splitlines():
        line = re.sub(r"^\d+: ", "", line)  # ctest -V prefixes the test's number
        if match := re.match(r"(\d+) passed, (\d+) failed(, \d+ skipped)?$", line):
            stage.passed += int(match.group(1))
            stage.failed += int(match.group(2))
        elif match := re.match(r"(?:SKIP|skip|SKIPPED \[\d+\]) (.*)$", line):
            stage.skips.append(match.group(1))
        elif re.match(r"=+ .*\b(passed|failed|error)", line):
            for number, what in re.findall(r"(\d+) (passed|failed|error)", line):
                stage.passed += int(number) if what == "passed" else 0
                stage.failed += int(number) if what != "passed" else 0


def skip_allowed(skip: str) -> bool:
    """The rule of tests/conftest.py and check.h, for the programs that use neither."""
    return skip.endswith("no GPU here") or "not under this sanitizer because" in skip


def run(stage: Stage) -> None:
    print(f"== {stage.name}", flush=True)
    log = LOGS / (re.sub(r"\W+", "-", stage.name) + ".log")
    start = time.monotonic()
    with log.open("wb") as out:
        stage.status = subprocess.run(stage.command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode
    stage.seconds = time.monotonic() - start
    output = log.read_text(encoding="utf-8", errors="replace")
    read_counts(stage, output)
    if not stage.ok:
        lines = output.splitlines()
        if len(lines) > 200:
            print(f"(the last 200 of {len(lines)} lines; all of them: {log.relative_to(ROOT)})")
        print("\n".join(lines[-200:]), flush=True)


def summary(done: list[Stage]) -> None:
    print(f"\n{'stage':<20} {'result':<8} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for stage in done:
        result = "ok" if stage.ok else "FAILED"
        counts = f"{stage.passed:>7} {stage.failed:>7}" if stage.passed + stage.failed else f"{'':>15}"
        print(f"{stage.name:<20} {result:<8} {counts} {len(stage.skips):>8} {stage.seconds:>8.1f}")
    skips = [f"  {stage.name}: {skip}" for stage in done for skip in stage.skips]
    print("\nskipped:" if skips else "\nnothing skipped")
    print("\n".join(skips))


def main() -> int:
    parser = argparse.ArgumentParser(description="Run every test stage and print a summary.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    jobs = parser.parse_args().jobs
    LOGS.mkdir(parents=True, exist_ok=True)
    done = [stage for stage in stages(jobs) if not stage.needs or any(ROOT.glob(stage.needs))]
    start = time.monotonic()
    for stage in done:
        run(stage)
    summary(done)
    failed = [stage.name for stage in done if not stage.ok]
    if os.environ.get("CI") and any(not skip_allowed(skip) for stage in done for skip in stage.skips):
        failed.append("a skip for a reason that is not allowed")
    seconds = time.monotonic() - start
    print(f"make test: {'FAILED: ' + ', '.join(failed) if failed else 'all passed'} in {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
