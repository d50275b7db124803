"""The mutants: each edit applies to what is there, names a test that is there, and what a killer does is told apart."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load() -> Any:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


mutants = load()


def all_of_them() -> list[Any]:
    return [one for path in sorted(mutants.TABLES.glob("*.txt")) for one in mutants.read_table(path)]


def test_every_edit_applies() -> None:
    for one in all_of_them() + mutants.published():
        text = (ROOT / one.file).read_text(encoding="utf-8")
        assert mutants.apply(one, text) != text, one.name


def test_every_killer_is_a_test_that_is_there() -> None:
    units = {path.stem for path in (ROOT / "libvmm" / "tests" / "unit").glob("test_*.c")} | {"faults"}
    for one in all_of_them():
        assert {killer[0] for killer in one.killers} <= units, one.name


def test_no_two_mutants_have_one_name() -> None:
    names = [one.name for one in all_of_them() + mutants.published()]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("text", ["b();\n", "a();\na();\n"])
def test_an_edit_that_fits_nowhere_or_twice_is_refused(text: str) -> None:
    with pytest.raises(LookupError):
        mutants.apply(mutants.Mutant("x.c", "", ["a();"], []), text)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(mutants, "WORK", tmp_path)
    one = mutants.Copy(0)
    one.build.mkdir(parents=True)
    return one


def program(copy: Any, name: str, lines: str) -> list[str]:
    path = copy.build / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return [name]


def test_a_killer_passes_fails_or_hangs(copy: Any) -> None:
    assert copy.verdict(program(copy, "passes", "echo 3 passed, 0 failed")) == ""
    assert copy.verdict(program(copy, "fails", "exit 1")) == "fails"
    assert copy.verdict(program(copy, "crashes", "kill -SEGV $$")) == "fails"
    copy.allowed["hangs",] = 0.2
    assert copy.verdict(program(copy, "hangs", "sleep 60 & sleep 60")) == "hangs"


def test_a_killer_that_runs_nothing_notices_nothing(copy: Any) -> None:
    with pytest.raises(LookupError, match="runs nothing"):
        copy.verdict(program(copy, "empty", "echo 'faults: 0 run, 0 promises broken'"))
