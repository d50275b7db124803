"""Results of benchmarks: their spread, files, comparison, bounds and pictures; and that the benchmarks run."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

import pyvmm
from pyvmm.bench import bounds, command, pairs, peers, results, workloads
from pyvmm.bench import run as bench
from pyvmm.bench.log import Log
from pyvmm.bench.results import Run, summarise


def record(
    median: float, arm: str = "libvmm", bench: str = "pair", case: str = "64 KiB", **more: float
) -> results.Record:
    spread = {"p5": median * 0.9, "p25": median * 0.95, "p75": median * 1.05, "p95": median * 1.1, "p99": median * 1.2}
    return {"bench": bench, "case": case, "arm": arm, "unit": "ns", "n": 9, "median": median, **spread, **more}


def test_a_series_is_summed_up() -> None:
    one = summarise("b", "c", "a", "ns", range(1000, 0, -1), note="x")
    assert (one["median"], one["p5"], one["p95"], one["p99.9"]) == (501, 51, 951, 1000)
    assert (one["n"], one["min"], one["max"], one["note"]) == (1000, 1, 1000, "x")
    assert summarise("b", "c", "a", "ns", [7.0])["p99"] == 7.0


def test_a_run_is_written_and_read(tmp_path: Path) -> None:
    run = Run({"device": "x"}, [record(1.0), results.skip("pair", "", "rmm", "absent")])
    run.write(tmp_path / "folder" / "run.json")
    again = results.read(tmp_path / "folder" / "run.json")
    assert (again.about, again.records) == (run.about, run.records)
    assert run.find("pair", "64 KiB", "libvmm") == run.records[0]
    assert run.find("pair", "", "rmm") is None
    assert (run.cases("pair"), run.arms("pair")) == (["64 KiB", ""], ["libvmm", "rmm"])


def test_the_lines_of_a_c_program_are_read(tmp_path: Path) -> None:
    path = tmp_path / "lines.json"
    path.write_text("\n".join(map(json.dumps, [{"about": {"device": "y"}}, record(2.0), record(3.0, "raw")])))
    run = results.read(path)
    assert run.about == {"device": "y"}
    assert [one["median"] for one in run.records] == [2.0, 3.0]
    path.write_text("no results\n")
    with pytest.raises(ValueError, match=r"lines\.json: neither"):
        results.read(path)


def test_two_runs_are_compared_by_what_both_have() -> None:
    before = Run({}, [record(100.0), record(50.0, "raw"), record(10.0, "gone"), record(8.0, "same")])
    after = Run({}, [record(80.0), record(60.0, "raw"), record(1.0, "new"), record(8.1, "same")])
    found = results.compare(before, after)
    assert [(one.arm, one.word) for one in found] == [("libvmm", "better"), ("raw", "worse"), ("same", "same")]
    assert found[0].ratio == pytest.approx(0.8)
    assert found[0].low == pytest.approx(80 * 0.95 / (100 * 1.05))
    assert found[0].high == pytest.approx(80 * 1.05 / (100 * 0.95))


def test_of_a_rate_more_is_better() -> None:
    runs = [Run({}, [record(rate) | {"unit": "GB/s"}]) for rate in (100.0, 200.0)]
    assert results.compare(*runs)[0].word == "better"
    assert results.compare(runs[1], runs[0])[0].word == "worse"


def test_bounds_hold_or_do_not() -> None:
    run = Run(
        {"cores": 16},
        [
            record(40.0, bench="CPU pair", case="live=100"),
            record(10.0, "mimalloc", "CPU pair", "live=100"),
            record(41.0, bench="CPU pair", case="last in, first out"),
            record(5.0, "1 thread", "CPU threads", "rate of all"),
            record(4.0, "16 threads", "CPU threads", "rate of all"),
            record(100.0),
            record(1900.0, "cudaMallocAsync"),
            record(30.0, bench="growth", case="32 MiB"),
            record(19.0, "raw calls, same shape", "growth", "32 MiB"),
            record(113.0, bench="growth", case="1 GiB"),
            record(100.0, "raw calls, same shape", "growth", "1 GiB"),
            record(12000.0, "raw calls, 2 MiB handles", "growth", "1 GiB"),
            record(3.0, bench="driver calls", case="batch handed over, records, queries and waits", max=3.0),
            record(110.0, "libvmm, on_demand", "growth under load", "100 ms queued", max=30_000.0),
            record(100.0, "raw calls", "growth under load", "100 ms queued", max=200.0),
        ],
    )
    found = {one.text.split(":")[0]: one.held for one in bounds.check(run)}
    assert found == {
        "CPU pair, live=100": True,
        "CPU pair, last in, first out": False,
        "rate of 16 threads, of one thread's": False,
        "pair of 64 KiB": False,
        "driver calls, batch handed over, records, queries and waits": False,
        "growth by 32 MiB": True,
        "growth by 1 GiB": True,
        "growth under load, 100 ms queued": False,
    }
    texts = [one.text for one in bounds.check(run) if not one.held]
    assert "growth by 1 GiB: of raw calls of its shape: 1.13, at most 1.1" in texts


def test_an_empty_run_holds_nothing() -> None:
    assert bounds.check(Run()) == []


def test_python_pairs_run_on_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "PEERS", {"absent": lambda: importlib.import_module("absent")})
    found = pairs.measure(pyvmm.sim(memory="8GiB"), rounds=2, count=20)
    assert found[0]["arm"] == "absent"
    assert found[0]["skip"] == "ModuleNotFoundError: No module named 'absent'"
    assert {(one["case"], one["n"]) for one in found[1:]} == {("last in, first out", 2), ("live=1000", 2)}
    assert {one["arm"] for one in found[1:]} == {"libvmm, integers", "libvmm, blocks", "libvmm, blocks, close()"}
    assert all(one["median"] > 0 for one in found[1:])


@pytest.mark.parametrize("kind", ["freed", "dropped", "sized"])
def test_an_arm_takes_and_gives_back_as_it_is_meant_to(kind: str) -> None:
    live: dict[int, int] = {}

    class Owner:
        def __init__(self, size: int) -> None:
            live[id(self)] = size

        def __del__(self) -> None:
            del live[id(self)]

    def alloc(size: int) -> int:
        number = max(live, default=0) + 1
        live[number] = size
        return number

    def free(number: int) -> None:
        del live[number]

    def free_sized(number: int, size: int) -> None:
        assert live.pop(number) == size

    arm = {
        "freed": pairs.Arm("x", alloc, free),
        "dropped": pairs.Arm("x", Owner),
        "sized": pairs.Arm("x", alloc, free_sized, sized=True),
    }[kind]
    arm.stack(5)
    assert live == {}
    sizes = [1, 2, 3]
    blocks = [arm.alloc(size) for size in sizes]
    arm.victims(blocks, sizes, [(0, 10), (2, 30), (0, 11)])
    assert sorted(live.values()) == [2, 11, 30]
    arm.drop(blocks, sizes)
    assert live == {}


def test_a_peer_that_does_not_work_says_why() -> None:
    one = Log("small")
    one.alloc(1)
    assert peers.play_all("no such peer", [one]) == ([], "KeyError: 'no such peer'")


def test_growth_of_an_absent_peer_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_grow", "no function")
    [one] = peers.growth(1)
    assert (one["bench"], one["arm"]) == ("growth", "torch, expandable segments")
    assert one["skip"].startswith("TypeError: ")


def test_a_program_that_fails_is_an_error() -> None:
    with pytest.raises(ValueError, match="ended with 3"):
        command.program([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    first, second, picture = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "a.png"
    monkeypatch.chdir(tmp_path)
    small = ["replay", "--driver", "sim", "--scale", "0.02", "--only", "prefill"]
    for path in (first, second):
        assert bench([*small, "--json", str(path)]) in (0, 1)
    one = results.read(first)
    assert one.arms("replay") == ["libvmm", "older pool"]
    assert one.about["device"] == "Simulated GPU 0"
    assert bench(["show", str(first), "--png", str(picture)]) in (0, 1)
    assert picture.stat().st_size > 1000
    assert bench(["compare", str(first), str(second)]) == 0
    out = capfd.readouterr().out
    assert "2 compared: 0 better, 2 same, 0 worse" in out
    assert "replay, prefill temporaries: growths" in out


def test_all_of_it_runs_without_programs(tmp_path: Path) -> None:
    out = tmp_path / "out" / "bench.json"
    chosen = command.Workloads(only="prefill", scale=0.02)
    assert command.everything("sim", None, chosen, quick=True, commit="abc", out=out) in (0, 1)
    run = results.read(out)
    assert (run.about["commit"], set(run.about["seconds"])) == ("abc", {"Python", "replay"})
    assert {one["bench"] for one in run.records} == {"Python pair", "replay"}
    assert out.with_suffix(".png").exists()


def test_records_of_a_case_stand_together() -> None:
    run = Run({}, [record(1.0, case="b"), record(1.0, case="a"), record(1.0, bench="x"), record(2.0, "raw", case="b")])
    command._sort(run)
    assert [(one["bench"], one["case"], one["arm"]) for one in run.records] == [
        ("pair", "b", "libvmm"),
        ("pair", "b", "raw"),
        ("pair", "a", "libvmm"),
        ("x", "64 KiB", "libvmm"),
    ]


def test_a_trace_becomes_a_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "trace.csv", tmp_path / "log.csv"
    trace.write_text("num_prefill_tokens,num_decode_tokens\n100,5\n50,2\n")
    assert bench(["log", str(trace), str(out), "--requests", "1"]) == 0
    assert "events" in capfd.readouterr().out
    assert workloads.from_path(out, 0).blocks > 5
    assert bench(["log", str(trace), str(tmp_path / "no folder" / "x.csv")]) == 1
