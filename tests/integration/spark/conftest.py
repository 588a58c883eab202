"""Cleanup after tests of the data pipeline without Spark."""

from collections.abc import Iterator

import pytest

from tests.integration.spark.engine import Engine


@pytest.fixture(autouse=True)
def queries_are_stopped() -> Iterator[None]:
    """Stop the queries of a test, which hold event loops, descriptors and threads."""
    yield
    while Engine.started:
        Engine.started.pop().stop()
