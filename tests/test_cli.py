"""python -m pyvmm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pyvmm


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyvmm", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("flag", "inside"), [("--lib", ""), ("--include-dir", "vmm/vmm.h"), ("--cmake-dir", "vmmConfig.cmake")]
)
def test_paths_exist(flag: str, inside: str, tmp_path: Path) -> None:
    done = run(flag, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (Path(done.stdout.strip()) / inside).is_file()


def test_version(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout.strip() == pyvmm.__version__


def test_flags_need_nothing_but_the_package(tmp_path: Path) -> None:
    code = "import sys; sys.modules['typer'] = None; from pyvmm.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code]
    done = subprocess.run([*command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, pyvmm.__version__)
    done = subprocess.run([*command, "info"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install" in done.stderr


def test_info(tmp_path: Path) -> None:
    done = run("info", "--driver", "sim", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert pyvmm.__version__ in done.stdout
    assert "on_demand" in done.stdout


def test_selftest(tmp_path: Path) -> None:
    done = run("selftest", "--driver", "sim", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "selftest: 7 passed, 0 failed"


@pytest.mark.gpu
def test_selftest_on_a_gpu(gpu: object, tmp_path: Path) -> None:
    done = run("selftest", "--driver", "cuda", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "selftest: 7 passed, 0 failed"


def test_the_selftest_can_fail() -> None:
    """A driver whose copies lie is found out."""
    from pyvmm.selftest import Selftest

    test = Selftest(pyvmm.sim().faulty("cuMemcpyHtoDAsync:SUCCESS@3:lie"))
    results = {step.name: step.passed for step in test.run()}
    assert results["allocate and write blocks"]
    assert not results["read them back"]


@pytest.mark.parametrize("arguments", [("nonsense",), ("info", "--driver", "metal"), ("selftest", "--device", "x")])
def test_wrong_arguments(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_device_is_one_line(tmp_path: Path) -> None:
    done = run("selftest", "--driver", "sim", "--device", "7", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("VMM_ERROR_INVALID_ARGUMENT: ")
    assert len(done.stderr.splitlines()) == 1
