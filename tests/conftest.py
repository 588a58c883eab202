"""Hooks and fixtures of all tests: samples, order, plain tracebacks, logging as it was, skips."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.docs.seeds import skipped_tests
from tests.sampling import leaves_out, part, thinning

_TESTS = Path(__file__).parent
_UNIT = _TESTS / "unit"
_HALVED = {"unit", "integration", "simulation"}
_skipped: list[str] = []

# rich, where it is installed, spends 0.2 s of CPU time on drawing one logged exception.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback


def pytest_configure() -> None:
    """Choose the samples before workers start, so that all of them have the same."""
    if thinning():
        part()


def pytest_report_header() -> str:
    """Say which samples of seeds and parameters run, and how to run the same ones again."""
    if not thinning():
        return "samples: everything runs"
    return f"samples: TEST_SAMPLE={thinning()} TEST_PART={part()}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out half of the files of these folders in the pure Python pass of `make test`."""
    is_test = collection_path.name.startswith("test_") and _TESTS in collection_path.parents
    if thinning() <= 1 or not is_test:
        return None
    path = collection_path.relative_to(_TESTS)
    return True if path.parts[0] in _HALVED and leaves_out(str(path), 2) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what other commits run, and put unit tests last.

    Files of unit tests take seconds, so that workers end at the same time.
    """
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        is_alternate = item.get_closest_marker("alternate") is not None
        is_left = is_alternate and leaves_out(item.nodeid, 2 * thinning())
        (left if is_left else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
    items.sort(key=lambda item: _UNIT in item.path.parents)


@pytest.fixture(autouse=True)
def _structlog_as_it_was() -> Iterator[None]:
    """Put back how structlog was configured.

    Clusters under test let a configured structlog be, and `structlog.testing.capture_logs` leaves
    it configured: what one test captured would decide where the next one's servers print.
    """
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is not None:
        structlog.configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Put back levels and handlers: commands that run in a test's process configure logging.

    A level that stays would decide which lines the next test of the worker captures.
    """
    loggers = [logging.getLogger(name) for name in (None, "rocketpy", "asyncio")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record skipped tests of all workers."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that skipped such a test."""
    if hasattr(session.config, "workerinput"):
        return
    found = skipped_tests(_skipped)
    if not found:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("")
        for name in found:
            reporter.write_line(f"SKIPPED, but docs/SEEDS.md relies on it: {name}", red=True)
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
