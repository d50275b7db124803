"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyvmm.paths import include_dir

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_lines(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    assert "pyvmm.Device(driver=pyvmm.sim())" in code  # the README says so itself
    exec(code.replace("pyvmm.Device(0)", "pyvmm.Device(driver=pyvmm.sim())"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("b'hello'")
    assert second == "0 0"


def test_the_lines_of_c(tmp_path: Path) -> None:
    (code,) = blocks("c")
    source = tmp_path / "readme.c"
    source.write_text(
        '#include "vmm/vmm.h"\nint fail(const char *);\nint example(void);\nint example(void) {\n'
        + code
        + "return 0;\n}\n"
    )
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler is not None
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(include_dir())]
    subprocess.run([compiler, *flags, str(source)], check=True)
