"""What all Python tests share: the driver to test on, and the rule for skips.

A test that takes `driver` runs on the simulated device and, labelled gpu, on a real one.

A skip is printed with its reason (-ra). In CI only two reasons pass: "no GPU here" and a text that begins "not under
this sanitizer because"; any other skip is a failure, so that no test goes missing unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyvmm import Cuda, Device, Driver

NO_GPU = "no GPU here"
ON_GPU = "cuda"  # VMM_TEST_DRIVER=cuda: a GPU is expected, so its absence is a failure and no skip
NOT_UNDER_SANITIZER = "not under this sanitizer because"


def skip_allowed(reason: str) -> bool:
    reason = reason.removeprefix("Skipped: ")
    return reason == NO_GPU or reason.startswith(NOT_UNDER_SANITIZER)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail") or not os.environ.get("CI"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not skip_allowed(reason):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: in CI this is no reason to skip: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    _refuse_skip(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    outcome = yield
    _refuse_skip(outcome.get_result())


def the_gpu() -> Cuda:
    """The CUDA driver with a device, or a skip."""
    import pyvmm

    try:
        cuda = pyvmm.cuda()
        if cuda.raw.init(0) == 0 and cuda.raw.device_count()[1] > 0:
            return cuda
    except pyvmm.NoDriverError:
        pass
    if os.environ.get("VMM_TEST_DRIVER") == ON_GPU:
        pytest.fail("VMM_TEST_DRIVER=cuda, but no GPU here")
    pytest.skip(NO_GPU)


@pytest.fixture
def gpu() -> Cuda:
    """A real device, for what the simulated one cannot show."""
    return the_gpu()


@pytest.fixture(params=["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def driver(request: pytest.FixtureRequest) -> Driver:
    """A driver with one device."""
    import pyvmm

    return pyvmm.sim(memory="4GiB") if request.param == "sim" else the_gpu()


@pytest.fixture
def device(driver: Driver) -> Generator[Device, None, None]:
    """Device 0 of it, closed after the test: nothing of the test may keep it busy."""
    import pyvmm

    with pyvmm.Device(driver=driver) as device:
        yield device
