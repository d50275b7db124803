"""Allocation logs, what servers allocate for traces, and the replay's arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pyvmm
from pyvmm.bench import bounds, log, serving, workloads
from pyvmm.bench.log import GRANULE, Log
from pyvmm.bench.older import Older
from pyvmm.bench.replay import Figures, OlderPool, Outcome, Pool, play
from pyvmm.bench.results import Run

RMM = """Thread,Time,Action,Pointer,Size,Stream
1,10:00:00.000001,allocate,0x7f00,1000,0x0
1,10:00:00.000002,allocate,0x8f00,2000,0x1
2,10:00:00.000003,allocate failure,0x0,4000,0x0
1,10:00:00.000004,free,0x7f00,1000,0x1
1,10:00:00.000005,free,0x9f00,1,0x1
1,10:00:00.000006,allocate,0x7f00,0,0x0
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "some.csv"
    path.write_text(text)
    return path


def test_a_log_of_rmm_is_read(tmp_path: Path) -> None:
    one = log.read(written(tmp_path, RMM))
    assert list(one.events) == [1000, 2000, 0, 1]  # block 0 is freed; no bytes count as one
    assert one.streams is not None
    assert list(one.streams) == [0, 1, 1, 0]
    assert (one.blocks, one.skipped) == (3, 2)
    assert list(one.live()) == [1000, 3000, 2000, 2001]
    assert one.peak_live() == 3000


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    one = log.read(written(tmp_path, RMM))
    log.write(one, tmp_path / "again.csv")
    again = log.read(tmp_path / "again.csv")
    assert (again.events, again.streams, again.skipped) == (one.events, one.streams, 0)
    assert (tmp_path / "again.csv").read_text().splitlines()[0] == RMM.splitlines()[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no column 'Action'"),
        ("Thread,Time,Action,Pointer,Size\n", "no column 'Stream'"),
        (RMM.replace("2000", "many"), r"some.csv:3: .*many"),
        (RMM.replace("0x8f00", "0x7f00"), "some.csv:3: 0x7f00 is allocated a second time"),
        (RMM.replace(",free,", ",resize,", 1), "some.csv:5: 'resize' is neither"),
        (RMM + "1,10:00:00.000007,free\n", "some.csv:8: too few columns"),
    ],
)
def test_a_log_that_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        log.read(written(tmp_path, text))


def test_the_three_forms_of_a_trace_are_read(tmp_path: Path) -> None:
    azure, waves, lines = tmp_path / "a.csv", tmp_path / "v.csv", tmp_path / "m.jsonl"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.6805900,396,109\n"
    )
    waves.write_text("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n1724,862,2586,2.0\n")
    lines.write_text(json.dumps({"timestamp": 27000, "input_length": 700, "output_length": 5, "hash_ids": [0, 9]}))
    assert serving.read(azure) == [serving.Request(0.0, 374, 44), serving.Request(1.0, 396, 109)]
    assert serving.read(waves) == [serving.Request(0.0, 1724, 862)]
    assert serving.read(lines) == [serving.Request(27.0, 700, 5, (0, 9))]
    with pytest.raises(ValueError, match="no form known"):
        serving.read(written(tmp_path, RMM))


@pytest.mark.parametrize("layout", ["paged", "contiguous", "prefixes"])
def test_a_server_frees_all_it_allocates(layout: str) -> None:
    one = workloads.LAYOUTS[layout](serving.made_up(30, seed=3), layout)
    live = list(one.live())
    assert live[-1] == 0
    assert min(live) == 0
    allocated = [event for event in one.events if event > 0]
    freed = [-event for event in one.events if event <= 0]
    assert sorted(freed) == list(range(len(allocated)))


def test_paged_memory_holds_every_token() -> None:
    requests = [serving.Request(0.0, 100, 10)]
    one = workloads.paged(requests, "one request")
    kv = serving.Model().kv
    assert sum(event == 16 * kv for event in one.events) == 7  # 110 tokens in blocks of 16


def test_prefixes_are_shared() -> None:
    alike = [serving.Request(float(number), 1024, 1, (7, 8)) for number in range(3)]
    kv = 34_816
    one = workloads.prefixes(alike, "alike")
    assert sum(event == 512 * kv for event in one.events) == 2


def test_made_up_workloads_come_from_their_seed() -> None:
    assert workloads.mixed(500, 1).events == workloads.mixed(500, 1).events
    assert workloads.mixed(500, 1).events != workloads.mixed(500, 2).events
    assert serving.made_up(5, 1) == serving.made_up(5, 1)


class Recorded:
    """What a replay asks an allocator of streams for."""

    name, drops = "recorded", False

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []

    def alloc(self, size: int) -> int:
        raise AssertionError("the stream was not said")

    def free(self, block: int) -> None:
        self.asked.append(("left", block, 0))

    def alloc_on(self, size: int, stream: int) -> int:
        self.asked.append(("alloc", size, stream))
        return len(self.asked)

    def free_on(self, block: int, stream: int) -> None:
        self.asked.append(("free", block, stream))

    def figures(self) -> Figures:
        return Figures(1, 1)

    def close(self) -> None:
        pass


def test_a_log_of_several_streams_is_played_stream_by_stream(tmp_path: Path) -> None:
    arm = Recorded()
    assert play(log.read(written(tmp_path, RMM)), lambda: arm).failed == ""
    assert arm.asked[:4] == [("alloc", 1000, 0), ("alloc", 2000, 1), ("free", 1, 1), ("alloc", 1, 0)]
    assert sorted(arm.asked[4:]) == [("left", 2, 0), ("left", 4, 0)]


def test_the_pool_plays_several_streams(driver: pyvmm.Driver) -> None:
    """What one stream freed serves another: nothing is queued, so that takes a question, and no memory."""
    one = Log("two streams", one_stream=False)
    for number in range(64):
        one.free(one.alloc(8 << 20, number % 2), number % 3)
    one.alloc(1 << 20, 7)
    done = play(one, lambda: Pool(driver))
    assert (done.failed, done.peak_live) == ("", 8 << 20)
    assert done.peak_physical <= 24 << 20


def test_the_older_pool_extends_itself_255_times_for_a_long_prefill() -> None:
    one = play(workloads.prefill(), OlderPool)
    assert one.growths == 1 + 255  # the first one makes it
    assert one.peak_physical == one.peak_live == 512 << 20


def test_the_older_pool_frees_in_stack_order_only() -> None:
    older = Older()
    a, b, c = (older.alloc(1000) for _ in range(3))
    older.free(b)
    older.free(a)
    assert older.used == 3 * 1024
    older.free(c)
    assert (older.used, older.size, older.growths) == (0, GRANULE, 1)


def test_the_librarys_pool_is_played_over_the_simulator() -> None:
    one = Log("small")
    blocks = [one.alloc(3 << 20) for _ in range(4)]
    for block in blocks:
        one.free(block)
    outcome = play(one, lambda: Pool(pyvmm.sim(memory="1GiB")))
    assert outcome.failed == ""
    assert outcome.peak_live == 12 << 20
    assert outcome.peak_physical >= 12 << 20
    assert 0 < outcome.first <= outcome.peak_physical
    assert outcome.growths >= 1


def test_a_refusal_ends_the_replay_and_is_said() -> None:
    one = Log("too large")
    for _ in range(9):
        one.alloc(128 << 20)
    outcome = play(one, lambda: Pool(pyvmm.sim(memory="1GiB")))
    assert outcome.failed.startswith("OutOfMemoryError: ")
    assert [bound.held for bound in bounds.check(Run({}, [outcome.to_json()]))] == [False]


def test_bounds_are_taken_from_the_peak_rounded_to_granules() -> None:
    outcome = Outcome("x", "libvmm", 10, (20 << 20) - 5, 22 << 20, 2 << 20, 14, 1.0)
    assert outcome.ratio == 1.1
    assert outcome.most_growths == 14  # 2 * log2(11) + 8
    assert [bound.held for bound in bounds.check(Run({}, [outcome.to_json()]))] == [True, True]
    outcome.growths, outcome.peak_physical = 16, 23 << 20
    assert [bound.held for bound in bounds.check(Run({}, [outcome.to_json()]))] == [False, False]
