"""The library's output structs as frozen dataclasses, field for field under the same names."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from ._vmm import ffi, lib
from .errors import text

R = TypeVar("R")


def read(kind: type[R], struct: Any) -> R:
    """A C struct as a dataclass with the same field names."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = getattr(struct, field.name)
        values[field.name] = value if isinstance(value, int) else text(value)
    return kind(**values)


def names(prefix: str) -> dict[int, str]:
    """The short names of an enum: {1: "live", ...}."""
    return {getattr(lib, n): n.removeprefix(prefix).lower() for n in dir(lib) if n.startswith(prefix)}


def symbol(op: int) -> str:
    return text(lib.vmm_op_symbol(op))


@dataclass(frozen=True)
class DeviceInfo:
    ordinal: int
    driver_version: int
    sync_policy: int
    wsl: int
    lost: int
    context_fence: int
    fallback: int
    granularity: int
    minimum_granularity: int
    total_bytes: int
    name: str
    driver_name: str

    @property
    def sync(self) -> str:
        """The policy in force: "device", "streams" or "on_demand"."""
        return names("VMM_SYNC_").get(self.sync_policy, "?")


@dataclass(frozen=True)
class DeviceStats:
    handle_count: int
    handle_bytes: int
    handle_bytes_peak: int
    idle_count: int
    idle_bytes: int
    reserved_bytes: int
    limit: int
    created_count: int
    created_bytes: int
    released_count: int
    released_bytes: int
    quarantined_count: int
    quarantined_bytes: int
    retry_count: int
    not_ready_count: int
    not_confirmed_count: int
    quiesce_count: int
    pressure_count: int
    pool_count: int
    stream_count: int
    capture_count: int


@dataclass(frozen=True)
class CallStats:
    call: str
    count: int
    failures: int
    total_ns: int
    max_ns: int


@dataclass(frozen=True)
class Event:
    sequence: int
    time_ns: int
    address: int
    size: int
    value: int
    kind: int
    code: int
    attempt: int
    call: str

    @property
    def name(self) -> str:
        """The kind as a word: "growth", "retry", ..."""
        return names("VMM_EVENT_").get(self.kind, "?")


@dataclass(frozen=True)
class BlockInfo:
    address: int
    size: int
    requested: int
    tag: int


@dataclass(frozen=True)
class MappingInfo:
    address: int
    size: int
    handle: int
    generation: int
    block_bytes: int
    state: int

    @property
    def quarantined(self) -> bool:
        return self.state == lib.VMM_MAPPING_QUARANTINED


@dataclass(frozen=True)
class PoolStats:
    address: int
    reserved_bytes: int
    committed_bytes: int
    committed_peak: int
    block_count: int
    block_count_peak: int
    block_bytes: int
    block_bytes_peak: int
    requested_bytes: int
    idle_bytes: int
    largest_idle: int
    trimmable_bytes: int
    mapping_count: int
    quarantined_bytes: int
    alloc_count: int
    alloc_bytes: int
    alloc_failures: int
    free_count: int
    growth_count: int
    growth_bytes: int
    growth_failures: int
    trim_count: int
    trim_bytes: int
    move_count: int
    moved_bytes: int
    retry_count: int
    not_ready_count: int
    quiesce_count: int
    oom_rounds: int
    limit: int
    peer_count: int
    pending_bytes: int
    revived_bytes: int
    stream_count: int
    ordered_bytes: int
    seal_count: int
    wait_count: int
    limbo_count: int
    fence_failures: int
    lease_count: int
    lease_bytes: int
    ready_bytes: int
    background_failures: int


@dataclass(frozen=True)
class Ledger:
    reservations: int
    reserved_bytes: int
    handles: int
    handle_bytes: int
    references: int
    mappings: int
    mapped_bytes: int
    accessible_bytes: int
    plain_allocations: int
    plain_bytes: int
    host_bytes: int
    free_bytes: int
    events: int
    streams: int
    primary_references: int
    captures_invalidated: int
    not_ready: int
    pending: int
    misuse: int
    double_releases: int


@dataclass(frozen=True)
class Misuse:
    kind: int
    op: int
    time_ns: int
    address: int
    size: int
    text: str

    @property
    def name(self) -> str:
        """The kind as a word: "race", "reuse", ..."""
        return names("VMM_SIM_MISUSE_").get(self.kind, "?")


@dataclass(frozen=True)
class RecordEntry:
    sequence: int
    time_ns: int
    taken_ns: int
    thread: int
    address: int
    size: int
    object: int
    output: int
    op: int
    code: int

    @property
    def call(self) -> str:
        return symbol(self.op)


@dataclass(frozen=True)
class Orphan:
    op: int
    value: int
    size: int

    @property
    def call(self) -> str:
        return symbol(self.op)


STRUCTS: dict[type[Any], str] = {
    DeviceInfo: "vmm_device_info",
    DeviceStats: "vmm_device_stats",
    CallStats: "vmm_call_stats",
    Event: "vmm_event",
    BlockInfo: "vmm_block_info",
    MappingInfo: "vmm_mapping_info",
    PoolStats: "vmm_pool_stats",
    Ledger: "vmm_sim_ledger",
    Misuse: "vmm_sim_misuse",
    RecordEntry: "vmm_record_entry",
    Orphan: "vmm_fault_orphan",
}
"""Which C struct each dataclass mirrors."""


def new(kind: type[Any]) -> Any:
    """An empty struct for an output, with its struct_size set where it has one."""
    name = STRUCTS[kind]
    struct = ffi.new(name + " *")
    if any(field == "struct_size" for field, _ in ffi.typeof(name).fields):
        struct.struct_size = ffi.sizeof(name)
    return struct


def array(kind: type[R], length: int) -> Any:
    return ffi.new(f"{STRUCTS[kind]}[]", length)
