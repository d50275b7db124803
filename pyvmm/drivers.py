"""Any driver: what all have in common, and the CUDA driver of this machine."""

from __future__ import annotations

import os
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from . import reaper
from ._vmm import ffi, lib
from .errors import InvalidArgumentError, check, new, text
from .paths import kernels
from .raw import Raw

if TYPE_CHECKING:
    from .faults import Faulty, Rule
    from .recorder import Recorder
    from .sim import Sim

D = TypeVar("D", bound="Driver")


class Driver:
    """A driver under the library. It lives as long as anything uses it."""

    def __init__(self, pointer: Any, inner: Driver | None = None) -> None:
        release, queue = lib.vmm_driver_release, reaper.objects
        # Releasing the last reference may end a simulator: not inside whatever the garbage collection interrupted.
        self.pointer = ffi.gc(pointer, lambda last: queue.append(lambda: release(last)))
        self.inner = inner

    @property
    def name(self) -> str:
        """ "cuda", "sim", "fault(sim)", ..."""
        buffer = ffi.new("char[]", 128)
        check(lib.vmm_driver_name(self.pointer, buffer, 128))
        return text(buffer)

    def __repr__(self) -> str:
        return f"<pyvmm driver {self.name}>"

    @cached_property
    def raw(self) -> Raw:
        """The driver's operations, unchecked: raw.mem_create(size, prop, 0) -> (code, handle)."""
        return Raw(self.pointer)

    def now(self) -> int:
        """The driver's clock in ns: virtual time for the simulator."""
        return lib.vmm_driver_now(self.pointer)

    def wait(self, ns: int) -> None:
        """Lets time pass on that clock: sleeps for CUDA, advances the simulator."""
        lib.vmm_driver_wait(self.pointer, ns)

    def faulty(self, *rules: Rule, seed: int = 0) -> Faulty:
        """This driver, with rules that make its calls fail."""
        from .faults import Faulty

        return Faulty(self, *rules, seed=seed)

    def recorded(self, capacity: int = 0) -> Recorder:
        """This driver, with its last calls kept."""
        from .recorder import Recorder

        return Recorder(self, capacity)

    def layer(self, kind: type[D]) -> D:
        """The driver of a class in this stack of wrappers."""
        driver: Driver | None = self
        while driver is not None:
            if isinstance(driver, kind):
                return driver
            driver = driver.inner
        raise InvalidArgumentError(f"{self.name} has no {kind.__name__.lower()} in it")

    @property
    def sim(self) -> Sim:
        """The simulator at the bottom of this stack."""
        from .sim import Sim

        return self.layer(Sim)


class Cuda(Driver):
    """The CUDA driver, libcuda.so.1."""

    def __init__(self) -> None:
        pointer, error = ffi.new("vmm_driver **"), new()
        check(lib.vmm_cuda_create(pointer, error), error)
        super().__init__(pointer[0])
        self.has_kernels = os.path.exists(kernels())
        """Whether the raw kernel_* operations work: the package was built where nvcc was found."""
        if self.has_kernels:
            with open(kernels(), "rb") as file:
                code = file.read()
            status = lib.vmm_cuda_set_kernels(self.pointer, ffi.from_buffer(code), len(code), error)
            if status != lib.VMM_ERROR_INVALID_ARGUMENT:  # set before: the CUDA driver is one per process
                check(status, error)


_cuda: list[Cuda] = []
_cuda_lock = threading.Lock()


def cuda() -> Cuda:
    """The CUDA driver of this machine, always the same object. NoDriverError where there is none."""
    if not _cuda:
        with _cuda_lock:
            if not _cuda:
                _cuda.append(Cuda())
    return _cuda[0]


def pattern_word(seed: int, index: int) -> int:
    """Word `index` of what raw.kernel_fill writes for `seed`."""
    return lib.vmm_pattern_word(seed, index)
