"""What every test of the data pipeline without Spark ends with."""

from collections.abc import Iterator

import pytest

from tests.integration.spark.engine import Engine


@pytest.fixture(autouse=True)
def queries_are_stopped() -> Iterator[None]:
    """Stop the queries of a test: each holds an event loop, and so descriptors and threads."""
    yield
    while Engine.started:
        Engine.started.pop().stop()
