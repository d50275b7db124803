"""Sizes as int or as text: 4096, "64MiB", "1.5 GiB", "2GB"."""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from typing import SupportsIndex, TypeAlias

from .errors import InvalidArgumentError

Size: TypeAlias = SupportsIndex | str
"""What a parameter that is a number of bytes takes."""

LARGEST = 2**64 - 1

UNITS = {"": 1, "b": 1} | {
    f"{prefix}{kind}": base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for kind, base in (("ib", 1024), ("b", 1000))
}

PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse(value: Size, name: str = "size") -> int:
    """Bytes as an int between 0 and 2**64 - 1, or an InvalidArgumentError that names the parameter."""
    if isinstance(value, str):
        match = PATTERN.fullmatch(value)
        unit = UNITS.get(match.group(2).lower()) if match else None
        if match is None or unit is None:
            raise InvalidArgumentError(f"{name}: {value!r} is no size; write for example 4096 or '64MiB'")
        exact = Fraction(match.group(1)) * unit
        if exact.denominator != 1:
            raise InvalidArgumentError(f"{name}: {value!r} is no whole number of bytes")
        return in_range(int(exact), name)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: a size is an int or a text like '64MiB', not {type(value).__name__}")
    return in_range(operator.index(value), name)


def integer(value: SupportsIndex, name: str) -> int:
    """An address or another number that is no size."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name}: an int, not {type(value).__name__}")
    return in_range(operator.index(value), name)


def in_range(number: int, name: str) -> int:
    if not 0 <= number <= LARGEST:
        raise InvalidArgumentError(f"{name}: {number} is outside 0 .. 2**64 - 1")
    return number


def show(number: int) -> str:
    """For people: the largest binary unit that keeps the number above 1."""
    power = min(5, max(0, number.bit_length() - 1) // 10)
    return f"{number / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"
