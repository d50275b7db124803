"""The Python side mirrors the C side: structs, enums, operations, declarations."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import pyvmm
from pyvmm import options, raw, records
from pyvmm._vmm import ffi, lib

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("kind", list(records.STRUCTS), ids=lambda kind: str(kind.__name__))
def test_dataclasses_have_the_fields_of_their_struct(kind: Any) -> None:
    fields = [name for name, _ in ffi.typeof(records.STRUCTS[kind]).fields if name not in ("struct_size", "reserved")]
    assert [field.name for field in dataclasses.fields(kind)] == fields
    assert kind.__dataclass_params__.frozen


def test_values_are_read_field_by_field() -> None:
    struct = records.new(records.CallStats)
    struct.call, struct.count, struct.failures, struct.total_ns, struct.max_ns = b"cuMemMap", 1, 2, 3, 2**64 - 1
    assert records.read(records.CallStats, struct) == records.CallStats("cuMemMap", 1, 2, 3, 2**64 - 1)


def test_codes_have_the_numbers_of_the_header() -> None:
    names = {name.removeprefix("VMM_CODE_"): getattr(lib, name) for name in dir(lib) if name.startswith("VMM_CODE_")}
    assert {code.name: code.value for code in pyvmm.Code} == names
    for code in pyvmm.Code:
        assert pyvmm.code(code.name) == code
        assert pyvmm.code(pyvmm.code_name(code)) == code


def test_operations_are_those_of_the_table() -> None:
    table = (ROOT / "libvmm/include/vmm/ops.def").read_text()
    entries = re.findall(r'^VMM_OP\((\w+), "([^"]+)"', table, re.MULTILINE)
    assert raw.names() == [name for name, _ in entries]
    assert [records.symbol(raw.op(name)) for name, _ in entries] == [symbol for _, symbol in entries]
    assert [raw.op(symbol) for _, symbol in entries] == list(range(len(entries)))
    with pytest.raises(ValueError, match="cuNothing"):
        raw.op("cuNothing")


def test_the_stub_has_every_function_and_enumerator() -> None:
    stub = (Path(pyvmm._vmm.__file__).parent / "_vmm.pyi").read_text()
    declared = set(re.findall(r"def (\w+)\(", stub)) | set(re.findall(r"^    (\w+): ", stub, re.MULTILINE))
    assert declared == set(dir(lib)) - {name for name in dir(lib) if name.startswith("__")}


@pytest.mark.parametrize(
    ("struct", "make"),
    [
        ("vmm_sim_options", lambda **o: pyvmm.sim(**o)),
        ("vmm_device_options", lambda **o: pyvmm.Device(driver=pyvmm.sim(), **o)),
        ("vmm_pool_options", lambda **o: pyvmm.Device(driver=pyvmm.sim()).pool(**o)),
        ("vmm_fault_rule", lambda **o: pyvmm.sim().faulty().add(**o)),
    ],
)
def test_unknown_options_are_named(struct: str, make: Any) -> None:
    with pytest.raises(TypeError, match="unknown option 'frobnicate'"):
        make(frobnicate=1)
    with pytest.raises(TypeError, match="unknown option 'struct_size'"):
        make(struct_size=8)
    assert options.names(struct)


def test_options_that_do_not_fit() -> None:
    with pytest.raises(pyvmm.InvalidArgumentError, match="device_count"):
        pyvmm.sim(device_count=2**31)
    with pytest.raises(pyvmm.InvalidArgumentError, match="memory"):
        pyvmm.sim(memory=-1)
    with pytest.raises(pyvmm.InvalidArgumentError, match=r"touch.*lost"):
        pyvmm.sim(touch="gently")
    with pytest.raises(TypeError):
        pyvmm.sim(device_count="two")


def test_seconds_become_nanoseconds() -> None:
    filled = options.fill("x", "vmm_device_options", {"deadline": 0.25, "retry_first_ns": 7})
    assert (filled.deadline_ns, filled.retry_first_ns) == (250_000_000, 7)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(pyvmm.InvalidArgumentError):
            options.fill("x", "vmm_device_options", {"deadline": wrong})
