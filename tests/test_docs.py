"""What the pages name is there: files, floors, targets of the Makefile, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BASES = (ROOT, ROOT / "libvmm" / "src", ROOT / "libvmm" / "include")
SOURCES = (ROOT / "libvmm", ROOT / "pyvmm", ROOT / "scripts", ROOT / "tests")
FILE = re.compile(
    r"(?<![\w./*-])(?:[\w*-]+/)*[\w*-]+\.(?:c|h|def|md|py|txt)\b(?![\w/])"  # with a suffix of ours
    r"|(?<![\w./-])[\w-]+/(?:[\w-]+/?)*"  # or a folder
)
MADE = ("build/", "out/")  # by those who work on the project
FOREIGN = {"Python.h"}


def code(text: str) -> str:
    """What is set as code: blocks between fences, and words between backticks."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))])


def exists(name: str) -> bool:
    if "/" in name:
        return any(next(base.glob(name), None) is not None for base in BASES)
    return any(next(base.rglob(name), None) is not None for base in SOURCES)


def missing_files(text: str) -> list[str]:
    """Of the names that look like a file of ours, or like a folder below one we have."""
    found = []
    for name in FILE.findall(code(text)):
        ours = "." in name or any((base / name.split("/")[0]).is_dir() for base in BASES)
        if ours and not name.startswith(MADE) and name not in FOREIGN and not exists(name):
            found.append(name)
    return found


def missing_targets(text: str) -> list[str]:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    return [name for name in re.findall(r"\bmake ([a-z][a-z-]*)", code(text)) if name not in targets]


def missing_links(text: str, folder: Path) -> list[str]:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [target for target in targets if "://" not in target and not (folder / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_everything_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_files(text) + missing_targets(text) + missing_links(text, page.parent) == []


def test_the_table_of_floors_names_all_of_them() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+/`(?:, )?)+) \|", text, re.MULTILINE)
    named = re.findall(r"`(\w+)/`", " ".join(rows))
    assert sorted(named) == sorted(path.name for path in (ROOT / "libvmm" / "src").iterdir())


def test_a_name_of_what_is_not_there_is_found() -> None:
    text = "`pool/gone.c`, `gone.h`, `pool/plan.c`\n```sh\nmake gone test\nscripts/gone.py build/c/x\n```\n[a](gone.md)"
    assert missing_files(text) == ["scripts/gone.py", "pool/gone.c", "gone.h"]
    assert missing_files("`device/gone`, `device/`, `GB/s`, `tests/*.py`, `tests/*.c`") == ["device/gone", "tests/*.c"]
    assert missing_targets(text) == ["gone"]
    assert missing_links(text, ROOT) == ["gone.md"]
