import logging
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.bad_input.kit import EventLog, World, running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return one cluster for all tests of a module, so that damage by one test fails the next."""
    with running(tmp_path_factory.mktemp("world") / "data") as world:
        yield world


@pytest.fixture(autouse=True)
def log() -> Iterator[EventLog]:
    """Return the log of the test, and check that bad input caused no traceback."""
    handler = EventLog()
    root = logging.getLogger()
    root.addHandler(handler)
    with capture_logs() as captured:
        handler.events = captured
        yield handler
    root.removeHandler(handler)
    assert [event for event in handler.events if event.get("exc_info")] == []
