"""Where the parts of an installation lie, for build systems."""

from __future__ import annotations

import os
from collections.abc import Callable

from . import errors
from ._vmm import __file__ as compiled
from ._vmm import lib

HERE = os.path.dirname(os.path.realpath(compiled or ""))


def library() -> str:
    """The shared library."""
    return os.path.join(HERE, "libvmm.so")


def include_dir() -> str:
    """The folder that holds vmm/vmm.h."""
    return os.path.join(HERE, "include")


def cmake_dir() -> str:
    """What vmm_DIR takes: find_package(vmm) looks there."""
    return os.path.join(HERE, "cmake", "vmm")


def kernels() -> str:
    """The GPU code of the test kernels; it is there only if the package was built where nvcc was found."""
    return os.path.join(HERE, "vmm_kernels.fatbin")


def version() -> str:
    """The version of the library that is loaded."""
    return errors.text(lib.vmm_version_string())


PATHS: dict[str, Callable[[], str]] = {
    "--lib": library,
    "--include-dir": include_dir,
    "--cmake-dir": cmake_dir,
    "--version": version,
}
