"""Check a built libvmm: it exports only vmm_ functions and asks for nothing that ends, jumps, prints or reads the
environment.

    check_symbols.py LIBRARY

The compiler's own hooks (__stack_chk_fail and the like) are no calls of ours and pass. Reads the dynamic symbol table
itself, so neither nm nor objdump has to be there.
"""

from __future__ import annotations

import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

FORBIDDEN = re.compile(
    r"^(abort|_?exit|_Exit|quick_exit|(sig|_)?longjmp|__longjmp_chk|__assert(_fail|_perror_fail)?|raise|kill|system|popen"
    r"|(secure_)?getenv|(__)?(v?(f|s|sn|d|as)?printf)(_chk)?|v?asprintf|(f|_IO_)?puts|f?putc(har)?|fwrite|perror|write"
    r"|__cxa_throw|_Unwind_RaiseException)$"
)
COMPILER_HOOKS = {"__stack_chk_fail", "__cxa_finalize"}
EXPORTED = re.compile(r"^vmm_(?!_)[a-z0-9_]+$")


@dataclass(frozen=True)
class Symbol:
    name: str
    defined: bool


def dynamic_symbols(data: bytes) -> list[Symbol]:
    """The dynamic symbols of a 64-bit little-endian ELF file, versions cut off."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (section_offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_offset + size * index) for index in range(count)]
    symbols: list[Symbol] = []
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        strings = sections[section[6]]
        for offset in range(section[4], section[4] + section[5], 24):
            name_offset, info, _, index = struct.unpack_from("<IBBH", data, offset)
            start = strings[4] + name_offset
            name = data[start : data.index(b"\0", start)].decode()
            if name and info & 15 not in (3, 4):  # neither a section nor a file
                symbols.append(Symbol(name.split("@")[0], index != 0))
    return symbols


def check(path: Path) -> list[str]:
    """One line per violation."""
    symbols = dynamic_symbols(path.read_bytes())
    wrong: list[str] = []
    for symbol in symbols:
        if symbol.defined:
            if not EXPORTED.match(symbol.name):
                wrong.append(f"exports {symbol.name}; only vmm_ functions are public")
        elif symbol.name not in COMPILER_HOOKS and FORBIDDEN.match(symbol.name):
            wrong.append(f"asks for {symbol.name}; no path ends, jumps, prints or reads the environment")
    if not any(symbol.defined for symbol in symbols):
        wrong.append("exports nothing")
    return wrong


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(arguments[0])
    wrong = check(path)
    for text in wrong:
        print(f"error: {path}: {text}")
    exported = sum(symbol.defined for symbol in dynamic_symbols(path.read_bytes()))
    print(f"symbols: {exported} exported, {len(wrong)} errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
