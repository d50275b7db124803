"""Sizes as numbers and as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyvmm import InvalidArgumentError, sizes


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64MiB", 64 << 20),
        (" 64 mib ", 64 << 20),
        ("1.5 GiB", 3 << 29),
        ("2GB", 2_000_000_000),
        ("1B", 1),
        ("16383PiB", 16383 << 50),
    ],
)
def test_text(text: str, number: int) -> None:
    assert sizes.parse(text) == number


@pytest.mark.parametrize("text", ["", "MiB", "-1", "64 M", "64MiBs", "1e6", "0x10", "1.5", "0.3KiB", "nan", "1 2", "∞"])
def test_text_that_is_no_size(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        sizes.parse(text)


@pytest.mark.parametrize("number", [-1, -(2**63), 2**64, 2**64 + 4096, 10**30, "16384PiB"])
def test_out_of_range_is_a_value_error_that_names_the_parameter(number: Any) -> None:
    with pytest.raises(ValueError, match="limit"):
        sizes.parse(number, "limit")


@pytest.mark.parametrize("value", [None, 1.0, 4096.5, b"64", [1], True])
def test_other_types(value: Any) -> None:
    with pytest.raises(TypeError):
        sizes.parse(value)


def test_numpy_integers_are_integers() -> None:
    np = pytest.importorskip("numpy")
    assert sizes.parse(np.uint64(2**64 - 1)) == 2**64 - 1
    with pytest.raises(InvalidArgumentError):
        sizes.parse(np.int64(-1))


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_every_number_is_itself(number: int) -> None:
    assert sizes.parse(number) == number
    assert sizes.parse(str(number)) == number


@given(st.integers(min_value=0, max_value=2**23), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_units_multiply(number: int, unit: str) -> None:
    factor = 1024 ** (1 + ["KiB", "MiB", "GiB", "TiB"].index(unit))
    if number * factor < 2**64:
        assert sizes.parse(f"{number}{unit}") == number * factor


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3 << 19, "1.5 MiB"), (2**64 - 1, "1.638e+04 PiB")],
)
def test_show(number: int, text: str) -> None:
    assert sizes.show(number) == text
