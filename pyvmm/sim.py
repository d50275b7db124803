"""The simulated driver, and the doors that tests have into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import sizes
from ._vmm import ffi, lib
from .drivers import Driver
from .errors import check, exception, new
from .options import enumerator, fill
from .records import Ledger, Misuse, array, read
from .records import new as new_record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENUMS = {"touch": "VMM_SIM_TOUCH_", "fresh": "VMM_SIM_FRESH_"}


class Sim(Driver):
    """A simulated driver: deterministic, on a virtual clock, with real but lazy memory.

    Options: device_count, driver_version, memory, minimum_granularity, granularity, address_space, address_space_used,
    mapping_limit, peers (a bit mask), seed, touch ("lost", "zero", "refused"), fresh ("zero", "poison", "stale"),
    no_vmm, wsl, no_fabric, old_attributes, call_ns.
    """

    def __init__(self, **options: Any) -> None:
        pointer, error = ffi.new("vmm_driver **"), new()
        check(lib.vmm_sim_create(pointer, fill("sim()", "vmm_sim_options", options, ENUMS), error), error)
        super().__init__(pointer[0])

    def set_not_ready(self, mode: str | int, value: int = 0, device: int = 0) -> None:
        """When set-access and its like answer NOT_READY: "never", "pending", "intruder", "residency" (value: budget in
        bytes), "evicted", "first" (value: how many), "random" (value: probability / 2**32)."""
        number = enumerator("VMM_SIM_NOT_READY_", mode, "mode")
        check(lib.vmm_sim_set_not_ready(self.pointer, device, number, value))

    def set_touch(self, touch: str | int) -> None:
        """What a kernel that touches memory without access does: "lost", "zero" or "refused"."""
        check(lib.vmm_sim_set_touch(self.pointer, enumerator("VMM_SIM_TOUCH_", touch, "touch")))

    def set_fresh(self, fresh: str | int) -> None:
        """What new memory holds: "zero", "poison" or "stale"."""
        check(lib.vmm_sim_set_fresh(self.pointer, enumerator("VMM_SIM_FRESH_", fresh, "fresh")))

    def set_used_by_others(self, amount: sizes.Size, device: int = 0) -> None:
        """Device memory that somebody else takes."""
        check(lib.vmm_sim_set_used_by_others(self.pointer, device, sizes.parse(amount, "amount")))

    def drain(self) -> None:
        """Lets every queue run until it is empty."""
        check(lib.vmm_sim_drain(self.pointer))

    def ledger(self, device: int = 0) -> Ledger:
        """What exists on a device now."""
        struct = new_record(Ledger)
        check(lib.vmm_sim_get_ledger(self.pointer, device, struct))
        return read(Ledger, struct)

    def misuse(self) -> list[Misuse]:
        """Calls that the real driver would answer with corruption, or not at all; the first 256."""
        count, entries = ffi.new("size_t *"), array(Misuse, 256)
        check(lib.vmm_sim_get_misuse(self.pointer, entries, 256, count))
        return [read(Misuse, entries[i]) for i in range(min(256, count[0]))]

    def clear_misuse(self) -> None:
        check(lib.vmm_sim_clear_misuse(self.pointer))

    def forbid_blocking(self, forbid: bool = True) -> None:
        """Blocking synchronises count as misuse from here on."""
        check(lib.vmm_sim_forbid_blocking(self.pointer, int(forbid)))

    def new_owner(self, address: int, size: sizes.Size) -> None:
        """A block changes hands: work that touches it from here on must be ordered after what touched it before."""
        check(lib.vmm_sim_new_owner(self.pointer, address, sizes.parse(size)))

    def view(self, address: int, size: sizes.Size) -> NDArray[np.uint8]:
        """Simulated memory as a numpy array that shares it, without access check or order with queued work. Valid while
        the range stays mapped; afterwards it shows memory of nobody's."""
        import numpy as np

        length, pointer = sizes.parse(size), ffi.new("void **")
        status = lib.vmm_sim_view(self.pointer, address, length, pointer)
        if status:
            error = exception(status)
            error.address, error.size = address, length
            raise error
        kept = self.pointer  # the array keeps the driver alive
        shared = ffi.gc(ffi.cast("unsigned char *", pointer[0]), lambda _: kept)
        return np.frombuffer(ffi.buffer(shared, length), dtype=np.uint8)


def sim(**options: Any) -> Sim:
    """A simulated driver; see Sim for the options."""
    return Sim(**options)
