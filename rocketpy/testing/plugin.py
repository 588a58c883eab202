"""Pytest plugin with fixtures of a running cluster.

`rocketpy_cluster`   name server and broker, new for each test, in a thread; for
                       synchronous tests and in tests on any event loop.
`rocketpy_broker`    the same cluster's only broker.

Heavy imports happen when a test uses a fixture, so that other tests do not pay for them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketpy.broker.broker import Broker
    from rocketpy.testing.cluster import ClusterThread


@pytest.fixture
def rocketpy_cluster(tmp_path: Path) -> Iterator["ClusterThread"]:
    """Run a name server and a broker on free loopback ports, its store below `tmp_path`.

    Its log goes to `logging`, which pytest shows with a failing test.
    """
    from rocketpy.runtime.logs import through_logging  # noqa: PLC0415 - see the module's docstring
    from rocketpy.testing.cluster import ClusterThread  # noqa: PLC0415

    with through_logging(), ClusterThread(tmp_path / "rocketpy") as cluster:
        yield cluster


@pytest.fixture
def rocketpy_broker(rocketpy_cluster: "ClusterThread") -> "Broker":
    """The only broker of `rocketpy_cluster`."""
    return rocketpy_cluster.brokers[0]
