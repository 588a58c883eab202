"""What proves a line of the design documents has to run: docs/SEEDS.md names no skipped test."""

import pytest

from tests.docs.seeds import skipped_tests

_skipped: list[str] = []


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
