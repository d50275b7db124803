"""GPU memory that grows in place and is never handed out unless it is really there.

    device = pyvmm.Device(0)                          # or Device(driver=pyvmm.sim())
    pool = device.pool()
    block = pool.alloc("64MiB")
    block.address, block.__cuda_array_interface__     # for kernels, CuPy, torch, Numba

Importing needs no GPU and no framework.
"""

from __future__ import annotations


def _find_compiled() -> None:
    """In a source tree the compiled half is not beside this file: take it from where the package is installed."""
    import importlib.machinery
    import os
    import sys

    for folder in (__path__[0], *(os.path.join(entry or ".", "pyvmm") for entry in sys.path)):
        if any(os.path.exists(os.path.join(folder, "_vmm" + end)) for end in importlib.machinery.EXTENSION_SUFFIXES):
            if folder not in __path__:
                __path__.append(folder)
            return


_find_compiled()

from . import errors  # noqa: E402
from ._vmm import lib as _lib  # noqa: E402
from .block import Block  # noqa: E402
from .codes import Code, code, code_name  # noqa: E402
from .device import Device  # noqa: E402
from .drivers import Cuda, Driver, cuda, pattern_word  # noqa: E402
from .errors import (  # noqa: E402
    BrokenError,
    BusyError,
    CallbackError,
    CaptureError,
    ClosedError,
    DeadlineError,
    DeviceLostError,
    DriverError,
    ForkedError,
    InvalidArgumentError,
    LimitError,
    MappingLimitError,
    NoDriverError,
    NotConfirmedError,
    NotReadyError,
    OutOfAddressSpaceError,
    OutOfHostMemoryError,
    OutOfMemoryError,
    PartialError,
    UnknownAddressError,
    UnsupportedError,
    VersionError,
    VmmError,
)
from .faults import Faulty, faulty  # noqa: E402
from .lease import Lease  # noqa: E402
from .pool import Pool, Trimmed  # noqa: E402
from .raw import access, location, memory  # noqa: E402
from .recorder import Recorder, recorder  # noqa: E402
from .records import (  # noqa: E402
    BlockInfo,
    CallStats,
    DeviceInfo,
    DeviceStats,
    Event,
    Ledger,
    MappingInfo,
    Misuse,
    Orphan,
    PoolStats,
    RecordEntry,
)
from .sim import Sim, sim  # noqa: E402

__version__ = errors.text(_lib.vmm_version_string())

__all__ = [
    "Block",
    "BlockInfo",
    "BrokenError",
    "BusyError",
    "CallStats",
    "CallbackError",
    "CaptureError",
    "ClosedError",
    "Code",
    "Cuda",
    "DeadlineError",
    "Device",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceStats",
    "Driver",
    "DriverError",
    "Event",
    "Faulty",
    "ForkedError",
    "InvalidArgumentError",
    "Lease",
    "Ledger",
    "LimitError",
    "MappingInfo",
    "MappingLimitError",
    "Misuse",
    "NoDriverError",
    "NotConfirmedError",
    "NotReadyError",
    "Orphan",
    "OutOfAddressSpaceError",
    "OutOfHostMemoryError",
    "OutOfMemoryError",
    "PartialError",
    "Pool",
    "PoolStats",
    "RecordEntry",
    "Recorder",
    "Sim",
    "Trimmed",
    "UnknownAddressError",
    "UnsupportedError",
    "VersionError",
    "VmmError",
    "access",
    "code",
    "code_name",
    "cuda",
    "errors",
    "faulty",
    "location",
    "memory",
    "pattern_word",
    "recorder",
    "sim",
]
