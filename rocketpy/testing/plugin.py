"""The pytest plugin: fixtures that hand out a running cluster.

``rocketpy_cluster``   one name server and one broker, fresh for the test, in a thread: works in
                       synchronous tests and in tests on any event loop.
``rocketpy_broker``    the same cluster's only broker.

The heavy imports wait until a test asks for a fixture, so that it costs other tests nothing.
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
    """Run a name server and a broker on free loopback ports, its store below ``tmp_path``.

    It prints nothing: its events go to `logging`, which pytest shows with a test that fails.
    """
    from rocketpy.runtime.logs import through_logging  # noqa: PLC0415 - see the module's docstring
    from rocketpy.testing.cluster import ClusterThread  # noqa: PLC0415

    with through_logging(), ClusterThread(tmp_path / "rocketpy") as cluster:
        yield cluster


@pytest.fixture
def rocketpy_broker(rocketpy_cluster: "ClusterThread") -> "Broker":
    """The only broker of ``rocketpy_cluster``."""
    return rocketpy_cluster.brokers[0]
