"""Makes the C source of the cffi module and its type stub, both from the preprocessed headers.

Run by the build: build_ffi.py --cdef FILE [--source FILE.c] [--stub FILE.pyi]
"""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

CALLBACKS = """
extern "Python" {
  long long vmm_py_pressure(void *data, vmm_device *device, unsigned long long size);
  void vmm_py_fault_hook(void *data, int op, unsigned long long opportunity);
  void vmm_py_host_function(void *data);
}
"""

STUB_HEAD = '''"""The compiled binding of libvmm. Made from its headers."""

from typing import Any

ffi: Any

class _Lib:
'''


def write_source(cdef: str, path: Path) -> None:
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(cdef + CALLBACKS)
    ffi.set_source("pyvmm._vmm", '#include "binding.h"', py_limited_api=True)
    ffi.emit_c_code(str(path))


def python_type(c_type: str) -> str:
    """An integer is an int, nothing is None, and whatever is a pointer is cffi's own business."""
    if "*" in c_type or "(" in c_type:
        return "Any"
    words = set(c_type.split())
    if words == {"void"}:
        return "None"
    if words & {"int", "long", "short", "char", "size_t", "unsigned"}:
        return "int"
    return "int" if "vmm_status" in words else "Any"


def parameters(text: str) -> list[str]:
    """Of a C parameter list, the Python one."""
    result = []
    for index, part in enumerate(p.strip() for p in text.split(",")):
        if part in ("", "void"):
            continue
        match = re.match(r"(.*?)(\w+)$", part, re.DOTALL)
        c_type, name = (match.group(1).strip(), match.group(2)) if match else (part, f"argument{index}")
        if keyword.iskeyword(name) or name == "self":
            name += "_"
        result.append(f"{name}: {python_type(c_type)}")
    return result


def write_stub(cdef: str, path: Path) -> None:
    lines = [STUB_HEAD]
    for body in re.findall(r"enum\s+\w*\s*\{(.*?)\}", cdef, re.DOTALL):
        lines += [f"    {name}: int\n" for name in re.findall(r"\b(VMM_\w+)\b\s*(?:=[^,]*)?(?:,|$)", body.strip())]
    outside = re.sub(r"\{[^{}]*\}", "", cdef)  # no struct bodies: their function pointers are no functions
    for statement in outside.split(";"):
        match = re.match(r"\s*((?:[\w]+[\s\*]+)+?)(vmm_\w+)\s*\((.*)\)\s*$", statement, re.DOTALL)
        if match is None or "typedef" in match.group(1).split():
            continue
        arguments = ", ".join(["self", *parameters(match.group(3)), "/"])
        lines.append(f"    def {match.group(2)}({arguments}) -> {python_type(match.group(1))}: ...\n")
    for name in re.findall(r"\b(vmm_py_\w+)\(", CALLBACKS):
        lines.append(f"    {name}: Any\n")
    lines.append("\nlib: _Lib\n")
    path.write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cdef", type=Path, required=True)
    parser.add_argument("--source", type=Path)
    parser.add_argument("--stub", type=Path)
    options = parser.parse_args()
    cdef = options.cdef.read_text()
    if options.source:
        write_source(cdef, options.source)
    if options.stub:
        write_stub(cdef, options.stub)


if __name__ == "__main__":
    main()
