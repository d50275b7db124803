"""Keyword arguments into the library's options structs. What the struct does not have is refused by name."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from . import sizes, streams
from ._vmm import ffi, lib
from .errors import InvalidArgumentError, check

HIDDEN = frozenset(
    {"struct_size", "driver", "pressure", "pressure_data", "host_memory", "hook", "hook_data", "reserved", "peer_count"}
)
"""Fields that have their own parameter, or none."""


def names(struct: str) -> list[str]:
    """The options a struct has, as keyword arguments."""
    return [name for name, _ in ffi.typeof(struct).fields if name not in HIDDEN]


def enumerator(prefix: str, value: Any, what: str) -> int:
    """An enumerator from its short name ("on_demand") or from its number."""
    if not isinstance(value, str):
        return operator.index(value)
    number = getattr(lib, prefix + value.upper(), None)
    if not isinstance(number, int):
        known = sorted(n.removeprefix(prefix).lower() for n in dir(lib) if n.startswith(prefix))
        raise InvalidArgumentError(f"{what}: {value!r} is none of {', '.join(known)}")
    return number


def seconds(value: float | None, what: str) -> int:
    """Seconds as nanoseconds; None is the default, which the library writes 0."""
    if value is None:
        return 0
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{what}: a number of seconds, not {type(value).__name__}")
    if not 0 < value < 2**34:
        raise InvalidArgumentError(f"{what}: {value!r} is no positive number of seconds")
    return max(1, round(value * 1e9))


def fill(what: str, struct: str, given: Mapping[str, Any], enums: Mapping[str, str] | None = None) -> Any:
    """A new struct with the given options. `enums` says which fields are enumerators, and their prefix. A field x_ns
    can also be given as x, in seconds."""
    options = ffi.new(struct + " *")
    init = getattr(lib, struct + "_init", None)
    if init is not None:
        check(init(options, ffi.sizeof(struct)))
    fields = {name: field.type for name, field in ffi.typeof(struct).fields if name not in HIDDEN}
    for name, value in given.items():
        if name not in fields and name + "_ns" in fields:
            setattr(options, name + "_ns", seconds(value, name))
            continue
        if name not in fields:
            raise TypeError(f"{what} got an unknown option {name!r}; it has {', '.join(fields)}")
        if enums and name in enums:
            value = enumerator(enums[name], value, name)
        elif fields[name].kind == "pointer":
            value = streams.pointer(value)
        elif fields[name].cname in ("unsigned long long", "size_t"):
            value = sizes.parse(value, name)
        else:
            value = operator.index(value)
        try:
            setattr(options, name, value)
        except OverflowError:
            raise InvalidArgumentError(f"{name}: {value} does not fit") from None
    return options
