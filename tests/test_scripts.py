"""The checking scripts catch what they are for: each rule is shown a planted violation, and a clean tree passes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check_layers = load("check_layers")
check_symbols = load("check_symbols")
coverage_table = load("coverage_table")
test_all = load("test_all")

CLEAN_C = '/* A clean file. */\n#include "base/status.h"\n\nint vmm__f(void) {\n  return 0;\n}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for floor in ("base", "driver", "sim", "index", "device", "region", "pool", "array"):
        folder = tmp_path / "libvmm" / "src" / floor
        folder.mkdir(parents=True)
        (folder / "clean.c").write_text(CLEAN_C)
    (tmp_path / "pyvmm").mkdir()
    (tmp_path / "pyvmm" / "__init__.py").write_text('"""A package."""\n\nfrom . import a as a\n')
    (tmp_path / "pyvmm" / "a.py").write_text('"""A module."""\n\nimport json\n')
    return tmp_path


def errors(tree: Path) -> list[str]:
    found: list[str] = check_layers.check_tree(tree).errors
    return found


def test_a_clean_tree_passes(tree: Path) -> None:
    assert errors(tree) == []


def test_this_tree_keeps_its_floor_plan() -> None:
    assert errors(ROOT) == []


@pytest.mark.parametrize(
    ("floor", "include"),
    [
        ("base", '"driver/driver.h"'),
        ("base", '"vmm/driver.h"'),
        ("driver", '"sim/sim.h"'),
        ("driver", '"index/space.h"'),
        ("sim", '"index/space.h"'),
        ("sim", '"driver/ops.h"'),
        ("index", '"driver/driver.h"'),
        ("index", '"vmm/driver.h"'),
        ("index", '"base/lock.h"'),
        ("index", "<pthread.h>"),
        ("device", '"region/region.h"'),
        ("device", '"sim/sim.h"'),
        ("region", '"pool/pool.h"'),
        ("pool", '"array/array.h"'),
        ("array", '"pool/pool.h"'),
        ("pool", '"sim/sim.h"'),
        ("pool", '"clean.h"'),
        ("driver", "<cuda.h>"),
    ],
)
def test_an_include_from_above_or_beside_is_found(tree: Path, floor: str, include: str) -> None:
    path = tree / "libvmm" / "src" / floor / "clean.c"
    path.write_text(CLEAN_C.replace("\n\n", f"\n#include {include}\n\n", 1))
    found = errors(tree)
    assert len(found) == 1
    assert f"{floor}/clean.c:3" in found[0]


@pytest.mark.parametrize(
    "call", ["abort()", "exit(1)", 'printf("x")', 'getenv("X")', "malloc(3)", "assert(0)", "raise(6)"]
)
def test_a_forbidden_call_is_found(tree: Path, call: str) -> None:
    path = tree / "libvmm" / "src" / "region" / "clean.c"
    path.write_text(CLEAN_C.replace("  return 0;", f"  {call};\n  return 0;"))
    found = errors(tree)
    assert len(found) == 1
    assert "must not call" in found[0]


def test_words_in_comments_strings_and_members_are_no_calls(tree: Path) -> None:
    path = tree / "libvmm" / "src" / "region" / "clean.c"
    body = '  /* abort() */\n  const char *s = "exit(1)"; // raise(1)\n  return x->free(s) + y.abort(s) + my_exit(1);'
    path.write_text(CLEAN_C.replace("  return 0;", body))
    assert errors(tree) == []


def test_host_memory_calls_stay_in_their_file(tree: Path) -> None:
    text = CLEAN_C.replace("  return 0;", "  free(malloc(3));\n  return 0;")
    (tree / "libvmm" / "src" / "base" / "memory.c").write_text(text)
    assert errors(tree) == []


@pytest.mark.parametrize(("lines", "wrong", "warned"), [(30, 0, 0), (62, 0, 1), (75, 1, 0)])
def test_a_long_function_is_found(tree: Path, lines: int, wrong: int, warned: int) -> None:
    body = "\n".join(["  f();"] * lines)
    (tree / "libvmm" / "src" / "pool" / "clean.c").write_text(CLEAN_C.replace("  return 0;", body))
    report = check_layers.check_tree(tree)
    assert (len(report.errors), len(report.warnings)) == (wrong, warned)


@pytest.mark.parametrize(("lines", "wrong", "warned"), [(300, 0, 0), (420, 0, 1), (460, 1, 0)])
def test_a_long_file_is_found(tree: Path, lines: int, wrong: int, warned: int) -> None:
    (tree / "libvmm" / "src" / "pool" / "clean.c").write_text(CLEAN_C + "int vmm__x;\n" * lines)
    report = check_layers.check_tree(tree)
    assert (len(report.errors), len(report.warnings)) == (wrong, warned)


def test_a_file_without_its_opening_comment_is_found(tree: Path) -> None:
    (tree / "libvmm" / "src" / "pool" / "clean.c").write_text("int vmm__x;\n")
    (tree / "pyvmm" / "a.py").write_text("import json\n")
    assert len(errors(tree)) == 2


def test_an_import_cycle_is_found_and_a_late_import_is_none(tree: Path) -> None:
    (tree / "pyvmm" / "a.py").write_text('"""A module."""\n\nfrom pyvmm.b import x\n')
    (tree / "pyvmm" / "b.py").write_text('"""A module."""\n\nfrom . import a\n')
    assert [text.split(":")[0] for text in errors(tree)] == ["import cycle"]
    (tree / "pyvmm" / "b.py").write_text('"""A module."""\n\n\ndef f() -> None:\n    from . import a\n')
    assert errors(tree) == []


def test_importing_a_framework_is_found(tree: Path) -> None:
    (tree / "pyvmm" / "a.py").write_text('"""A module."""\n\nimport torch\n')
    assert len(errors(tree)) == 1


def build_library(folder: Path, code: str, *flags: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    source, library = folder / "x.c", folder / "x.so"
    source.write_text(code)
    subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return library


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("#include <stdlib.h>\nvoid vmm_f(void) { abort(); }", "asks for abort"),
        ("#include <stdlib.h>\nvoid vmm_f(void) { exit(3); }", "asks for exit"),
        ("#include <unistd.h>\nvoid vmm_f(void) { _exit(3); }", "asks for _exit"),
        ("#include <assert.h>\nvoid vmm_f(int x) { assert(x); }", "asks for __assert_fail"),
        ('#include <stdio.h>\nvoid vmm_f(int x) { printf("%d", x); }', "asks for printf"),
        ('#include <stdlib.h>\nchar *vmm_f(void) { return getenv("X"); }', "asks for getenv"),
        ("void helper(void) {}\nvoid vmm_f(void) {}", "exports helper"),
        ("void vmm__f(void) {}\nvoid vmm_f(void) {}", "exports vmm__f"),
    ],
)
def test_a_forbidden_symbol_is_found(tmp_path: Path, code: str, what: str) -> None:
    wrong = check_symbols.check(build_library(tmp_path, code, "-O0"))
    assert [text.split(";")[0] for text in wrong] == [what]


def test_the_compilers_own_hooks_pass(tmp_path: Path) -> None:
    code = "void other(char *);\nint vmm_f(void) { char a[64]; other(a); return a[3]; }"
    assert check_symbols.check(build_library(tmp_path, code, "-fstack-protector-all")) == []


def test_the_built_library_passes() -> None:
    assert check_symbols.check(ROOT / "build" / "c" / "libvmm.so") == []


def test_coverage_is_added_up_by_floor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"line_covered": 8, "line_total": 10, "branch_covered": 3, "branch_total": 4}
    files = [{"filename": f"libvmm/src/{name}", **counts} for name in ("pool/a.c", "pool/b.c", "base/c.c")]
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"files": files}))
    assert coverage_table.by_floor(json.loads(path.read_text()))["pool"]["branch_total"] == 8
    assert coverage_table.main([str(path), "--require", "pool=75"]) == 0
    assert coverage_table.main([str(path), "--require", "pool=76"]) == 1
    assert coverage_table.main([str(path), "--require", "region=1"]) == 1
    assert "75.0%" in capsys.readouterr().out


def test_the_summary_reads_what_the_harnesses_print() -> None:
    stage = test_all.Stage("x", [])
    output = (
        "7: SKIP a_test: no GPU here\n7: 3 passed, 1 failed\n8: 2 passed, 0 failed\n"
        "9: skip MAP-3 no GPU here\n9: 4 passed, 0 failed, 1 skipped\n"
        "SKIPPED [2] tests/test_x.py:3: no GPU here\n===== 5 passed, 2 skipped, 1 error in 0.3s =====\n"
    )
    test_all.read_counts(stage, output)
    assert (stage.passed, stage.failed) == (14, 2)
    assert stage.skips == ["a_test: no GPU here", "MAP-3 no GPU here", "tests/test_x.py:3: no GPU here"]


SKIPPING = """
import pytest

@pytest.mark.skip(reason="{reason}")
def test_a():
    pass
"""


@pytest.mark.parametrize(
    ("reason", "ci", "status"),
    [
        ("no GPU here", "1", 0),
        ("not under this sanitizer because it forks", "1", 0),
        ("too slow", "1", 1),
        ("too slow", "", 0),
    ],
)
def test_a_skip_for_another_reason_fails_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, ci: str, status: int
) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_x.py").write_text(SKIPPING.format(reason=reason))
    monkeypatch.setenv("CI", ci)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == status


HARNESS = """
#include "check.h"
TEST(skipping) {{ SKIP("{reason}"); }}
TEST(passing) {{ CHECK_EQ(1, 1); }}
TEST(failing) {{ CHECK_EQ(2, {value}); }}
const char *vmm_status_name(int status) {{ return status ? "?" : "VMM_OK"; }}
RUN_TESTS()
"""


@pytest.mark.parametrize(
    ("reason", "ci", "value", "last", "status"),
    [
        ("no GPU here", "1", 2, "2 passed, 0 failed", 0),
        ("too slow", "1", 2, "2 passed, 1 failed", 1),
        ("too slow", "", 2, "2 passed, 0 failed", 0),
        ("no GPU here", "1", 3, "1 passed, 1 failed", 1),
    ],
)
def test_the_c_harness_fails_and_skips_by_the_same_rule(
    tmp_path: Path, reason: str, ci: str, value: int, last: str, status: int
) -> None:
    source, program = tmp_path / "x.c", tmp_path / "x"
    source.write_text(HARNESS.format(reason=reason, value=value))
    include = [f"-I{ROOT}/libvmm/include", f"-I{ROOT}/libvmm/tests"]
    subprocess.run([shutil.which("cc") or "gcc", "-D_GNU_SOURCE", *include, source, "-o", program], check=True)
    done = subprocess.run([program], env={"CI": ci} if ci else {}, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == last
    assert done.returncode == status
    assert f"SKIP skipping: {reason}" in done.stdout
