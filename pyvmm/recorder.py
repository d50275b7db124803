"""A driver that keeps its last calls, and counts and times them all."""

from __future__ import annotations

from ._vmm import ffi, lib
from .drivers import Driver
from .errors import check, new
from .raw import op as op_number
from .records import CallStats, RecordEntry, array, read


class Recorder(Driver):
    """Keeps the last `capacity` calls of the driver it wraps (0: 256)."""

    def __init__(self, inner: Driver, capacity: int = 0) -> None:
        pointer, error = ffi.new("vmm_driver **"), new()
        check(lib.vmm_record_create(pointer, inner.pointer, capacity, error), error)
        super().__init__(pointer[0], inner)
        self._capacity = capacity or 256

    def entries(self, after: int = 0) -> list[RecordEntry]:
        """The latest calls, oldest first, with a sequence above `after`."""
        entries, count = array(RecordEntry, self._capacity), ffi.new("size_t *")
        check(lib.vmm_record_get(self.pointer, after, entries, self._capacity, count))
        return [read(RecordEntry, entries[i]) for i in range(count[0])]

    def text(self, after: int = 0) -> str:
        """The same as lines of text."""
        entries, count = array(RecordEntry, self._capacity), ffi.new("size_t *")
        check(lib.vmm_record_get(self.pointer, after, entries, self._capacity, count))
        lines, buffer = [], ffi.new("char[]", 512)
        for i in range(count[0]):
            lib.vmm_record_format(ffi.addressof(entries, i), buffer, 512)
            lines.append(ffi.string(buffer).decode())
        return "\n".join(lines)

    def count(self, op: str | int = "any") -> int:
        """Calls of an operation since the start or the last clear."""
        return lib.vmm_record_count(self.pointer, op_number(op))

    def calls(self) -> list[CallStats]:
        """Count, failures and times per operation that was called."""
        count, entries = ffi.new("size_t *"), array(CallStats, lib.VMM_OP_COUNT)
        check(lib.vmm_record_get_calls(self.pointer, entries, len(entries), count))
        return [read(CallStats, entries[i]) for i in range(min(len(entries), count[0]))]

    def clear(self) -> None:
        check(lib.vmm_record_clear(self.pointer))


def recorder(inner: Driver, capacity: int = 0) -> Recorder:
    """A driver that keeps its last calls."""
    return Recorder(inner, capacity)
