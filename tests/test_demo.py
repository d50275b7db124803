"""The demonstration: what it must show on the simulated device, and that it notices when it shows nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyvmm.demo import plans, rehearsal, score, workload
from pyvmm.demo.machine import Machine
from pyvmm.demo.memory import Plain
from pyvmm.demo.older_pool import OlderPool
from pyvmm.demo.plans import ARMS, LEGACY, LIBVMM, NO_FAULT, PENDING, PLAIN, PLANS, RETRY, SYNC, THREAD
from pyvmm.demo.rehearsal import Job, Outcome, Turn
from pyvmm.demo.workload import SESSIONS, SIM, TURNS

pytestmark = pytest.mark.demo

BOUNDED = [plan.key for plan in PLANS if plan.bounded]


class Shown:
    """One run of the command."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "pyvmm", "demo", "--json", "demo.json", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        self.code, self.output, self.errors = done.returncode, done.stdout, done.stderr
        self.json: dict[str, Any] = json.loads((folder / "demo.json").read_text())
        self.picture = folder / "out" / "demo.png"

    def arm(self, plan: str, arm: plans.Arm) -> dict[str, Any]:
        entry: dict[str, Any] = self.json["plans"][plan]["arms"][arm.key]
        return entry

    def bad(self, plan: str, arm: plans.Arm) -> int:
        return int(self.arm(plan, arm)["total"]["empty_or_wrong"])


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(tmp_path_factory.mktemp("demo"), "--driver", "sim")


def test_it_succeeds_and_says_so(shown: Shown) -> None:
    assert (shown.code, shown.errors) == (0, "")
    assert shown.output.splitlines()[-1] == "libvmm: 0 of 36 answers empty or wrong"
    assert "driver: the simulated device" in shown.output
    assert shown.json["complaints"] == []
    assert shown.json["libvmm_empty_or_wrong"] == 0


def test_every_arm_plays_every_turn_of_every_plan(shown: Shown) -> None:
    assert TURNS == 36
    assert list(shown.json["plans"]) == [plan.key for plan in PLANS]
    for plan in PLANS:
        assert list(shown.json["plans"][plan.key]["arms"]) == [arm.key for arm in ARMS]
        for arm in ARMS:
            sessions = shown.arm(plan.key, arm)["sessions"]
            assert {name: row["turns"] for name, row in sessions.items()} == {
                session.name: session.turns for session in SESSIONS
            }
            for name, total in shown.arm(plan.key, arm)["total"].items():
                assert sum(row[name] for row in sessions.values()) == pytest.approx(total)


@pytest.mark.parametrize("plan", BOUNDED)
def test_libvmm_loses_nothing_to_a_fault_that_passes(shown: Shown, plan: str) -> None:
    entry = shown.arm(plan, LIBVMM)
    assert entry["answers"] == ["right"] * TURNS
    assert entry["total"]["not_ready"] >= 1
    assert entry["total"]["retries"] >= 1
    assert (entry["misuse"], entry["left_behind"]) == (0, 0)


def test_libvmm_refuses_cleanly_when_the_fault_does_not_pass(shown: Shown) -> None:
    entry = shown.arm("for ever", LIBVMM)
    assert set(entry["answers"]) == {"right", "refused"}
    assert entry["total"]["refused"] >= entry["total"]["not_answered"] >= 1
    assert "CUDA_ERROR_NOT_READY" in entry["reports"][0]
    assert (entry["misuse"], entry["left_behind"]) == (0, 0)
    assert f"{entry['total']['not_answered']} not at all, 0 wrong" in shown.output


def test_the_older_pools_lose_what_they_should(shown: Shown) -> None:
    for plan in PLANS:
        assert shown.bad(plan.key, LEGACY) > 0
    assert shown.bad(PENDING.key, SYNC) == 0
    assert shown.bad(THREAD.key, SYNC) > 0
    assert shown.bad(THREAD.key, RETRY) == 0
    assert shown.bad("residency budget", RETRY) > 0
    assert "empty" in shown.arm(PENDING.key, LEGACY)["answers"]


def test_the_faults_were_there(shown: Shown) -> None:
    for plan in PLANS:
        for arm in ARMS:
            entry = shown.arm(plan.key, arm)
            assert entry["fired"] > 0 or (plan == PENDING and arm.sync and entry["averted"] > 0)


def test_under_pressure_a_cached_prefix_goes(shown: Shown) -> None:
    assert shown.arm("residency budget", LIBVMM)["pressed"] >= 1


def test_libvmm_grows_less_often_and_needs_less(shown: Shown) -> None:
    for plan in BOUNDED:
        ours, older = shown.arm(plan, LIBVMM), shown.arm(plan, LEGACY)
        assert ours["total"]["growths"] * 4 < older["total"]["growths"]
        assert ours["committed_peak"] * 3 < older["committed_peak"]
        assert ours["committed_peak"] < 2 * ours["live_peak"]  # small pools double


def test_the_table_names_what_it_shows(shown: Shown) -> None:
    for word in ("growths", "syncs", "NOT_READYs", "retries", "refused", "answers empty", "session", "turns"):
        assert word in shown.output
    assert max(map(len, shown.output.splitlines())) <= 120


def test_the_picture_is_one(shown: Shown) -> None:
    import matplotlib.image

    pixels = matplotlib.image.imread(shown.picture)
    assert pixels.shape[0] > 800
    assert pixels.shape[1] > 1000
    assert pixels[..., :3].std() > 0.05


# ---- the parts ----


@pytest.fixture(scope="module")
def expected() -> Outcome:
    return rehearsal.play(Job(NO_FAULT, PLAIN, "sim", SIM))


def test_expected_answers_are_all_different(expected: Outcome) -> None:
    answers = [tuple(turn.answer or ()) for turn in expected.turns]
    assert len(set(answers)) == TURNS
    assert all(len(answer) == workload.PLANES for answer in answers)


def test_a_lost_context_counts_as_wrong(expected: Outcome) -> None:
    outcome = rehearsal.play(Job(PENDING, LEGACY, "sim", SIM, touch="lost"))
    result = score.compare(outcome, expected)
    assert result.answers == ["lost"] * TURNS
    assert result.row()["empty_or_wrong"] == TURNS


def test_libvmm_never_touches_what_would_lose_the_context(expected: Outcome) -> None:
    outcome = rehearsal.play(Job(THREAD, LIBVMM, "sim", SIM, touch="lost"))
    assert score.compare(outcome, expected).answers == ["right"] * TURNS


def test_an_arm_without_a_fault_is_complained_about(expected: Outcome) -> None:
    quiet = rehearsal.play(Job(NO_FAULT, LIBVMM, "sim", SIM))
    quiet.job = Job(PENDING, LIBVMM, "sim", SIM)
    found = score.complaints([score.compare(quiet, expected)], expected)
    assert "pending work, libvmm: faults were planned, and none fired" in found


def test_wrong_answers_of_libvmm_are_complained_about(expected: Outcome) -> None:
    turns = [Turn(t.session, t.turn, [1], False, t.counts, 0) for t in expected.turns]
    outcome = Outcome(Job(PENDING, LIBVMM, "sim", SIM), turns)
    outcome.counts = {"fired": 1}
    result = score.compare(outcome, expected)
    assert score.worst([result]) == TURNS
    assert any("36 answers are empty or wrong" in text for text in score.complaints([result], expected))


def test_a_rehearsal_that_dies_has_lost_its_answers(expected: Outcome) -> None:
    job = Job(PENDING, LEGACY, "no such driver", SIM)  # the child fails before the first turn
    heard: list[Turn | None] = []
    (outcome,) = rehearsal.play_all([job], 1, lambda _, turn: heard.append(turn))
    assert heard == [None]
    assert outcome.failure
    assert score.compare(outcome, expected).answers == ["lost"] * TURNS


def test_the_older_pool_frees_last_in_first_out() -> None:
    machine = Machine("sim", SIM)
    pool = OlderPool(machine)
    first, second, third = pool.alloc(1), pool.alloc(100_000), pool.alloc(129)
    assert (second - first, third - second) == (128, 100_096)
    pool.free(second)
    assert pool.alloc(1) == third + 256
    pool.free(third + 256)
    pool.free(third)
    assert pool.alloc(1) == second
    assert pool.size % machine.granularity == 0
    assert pool.counters().growths >= 2
    pool.close()
    assert machine.inner.sim.ledger().handle_bytes == 0


def test_the_older_pool_goes_on_after_an_error() -> None:
    machine = Machine("sim", SIM)
    machine.driver.add("cuMemSetAccess:NOT_READY")
    pool = OlderPool(machine)
    address = pool.alloc(256)
    assert address
    assert pool.reports == ["cuMemSetAccess answered 600"]
    assert machine.raw.mem_get_access(machine.location, address) == (0, 0)


def test_the_older_pool_retries_without_an_undo() -> None:
    machine = Machine("sim", SIM)
    machine.driver.add("cuMemSetAccess:NOT_READYx100")
    pool = OlderPool(machine, sync=True, retries=100)
    pool.alloc(256)
    assert (pool.reports, pool.counters().retries, pool.counters().not_ready) == ([], 100, 100)
    machine.driver.clear()
    machine.driver.add("cuMemSetAccess:NOT_READYx*")
    pool.alloc(machine.granularity)
    assert pool.reports == ["cuMemSetAccess answered 600"]


def test_plain_memory_hands_out_distinct_blocks() -> None:
    machine = Machine("sim", SIM)
    plain = Plain(machine, 4096)
    first, second, third = (plain.alloc(1000) for _ in range(3))
    assert second - first == third - second == 1024
    plain.free(second)
    assert plain.alloc(1024) == second
    plain.free(first)
    plain.free(second)
    assert plain.alloc(2048) == first
    with pytest.raises(MemoryError):
        plain.alloc(2048)


def test_prompts_grow_within_the_context() -> None:
    for session in SESSIONS:
        lengths = [session.tokens(turn) for turn in range(1, session.turns + 1)]
        assert lengths == sorted(set(lengths))
        assert lengths[-1] == session.characters // 4 <= workload.CONTEXT


def test_wrong_options_are_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyvmm", "demo", "--driver", "rocm"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "rocm" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
def test_on_a_gpu(gpu: Any, tmp_path: Path) -> None:
    shown = Shown(tmp_path, "--driver", "cuda")
    assert (shown.code, shown.json["driver"]) == (0, "cuda")
    assert shown.output.splitlines()[-1] == "libvmm: 0 of 36 answers empty or wrong"
