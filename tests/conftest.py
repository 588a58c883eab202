"""For all tests: logging is left as it was, and docs/SEEDS.md names no skipped test."""

from collections.abc import Iterator

import pytest
import structlog

from tests.docs.seeds import skipped_tests

_skipped: list[str] = []


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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what is skipped, on whatever worker."""
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
