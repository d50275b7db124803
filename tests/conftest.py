"""What all Python tests share: the rule for skips.

A skip is printed with its reason (-ra). In CI only two reasons pass: "no GPU here" and a text that begins "not under
this sanitizer because"; any other skip is a failure, so that no test goes missing unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

NO_GPU = "no GPU here"
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
