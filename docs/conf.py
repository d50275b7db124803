"""How Sphinx builds the documentation; `make docs` treats every warning as an error."""

from __future__ import annotations

import re
from pathlib import Path

_cmake = (Path(__file__).resolve().parent.parent / "libvmm" / "CMakeLists.txt").read_text(encoding="utf-8")
_version = re.search(r"project\(vmm VERSION ([0-9.]+)", _cmake)

project = "libvmm"
author = "the libvmm authors"
copyright = "2026, the libvmm authors"
release = version = _version.group(1) if _version else ""

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
html_theme = "alabaster"
