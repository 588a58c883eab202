"""Pytest plugin with fixtures of a running cluster.

``rocketpy_cluster``          name server and broker, new for each test, in a thread; for
                              synchronous tests and in tests on any event loop.
``rocketpy_broker``           the same cluster's only broker.
``rocketpy_client``           a started client of ``rocketpy_cluster``, for asynchronous tests.
``rocketpy_cluster_session``  one cluster for all tests of a run, which share its topics.

Heavy imports happen when a test uses a fixture, so that other tests do not pay for them.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketpy.broker.broker import Broker
    from rocketpy.client.client import Client
    from rocketpy.testing.cluster import ClusterThread

_async_fixture: Callable[..., Any]
try:
    # In its strict mode pytest-asyncio runs only asynchronous fixtures that it has made.
    from pytest_asyncio import fixture as _async_fixture
except ImportError:
    _async_fixture = pytest.fixture  # for the plugin of anyio


def _cluster(directory: Path) -> Iterator["ClusterThread"]:
    from rocketpy.runtime.logs import through_logging  # noqa: PLC0415 - see the module's docstring
    from rocketpy.testing.cluster import ClusterThread  # noqa: PLC0415

    with through_logging(), ClusterThread(directory) as cluster:
        yield cluster


@pytest.fixture
def rocketpy_cluster(tmp_path: Path) -> Iterator["ClusterThread"]:
    """Run a name server and a broker on free loopback ports, its store below ``tmp_path``.

    Its log goes to `logging`, which pytest shows with a failing test.
    """
    yield from _cluster(tmp_path / "rocketpy")


@pytest.fixture(scope="session")
def rocketpy_cluster_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ClusterThread"]:
    """Run one cluster for all tests of the run; each test should have topics and groups itself."""
    yield from _cluster(tmp_path_factory.mktemp("rocketpy"))


@pytest.fixture
def rocketpy_broker(rocketpy_cluster: "ClusterThread") -> "Broker":
    """The only broker of ``rocketpy_cluster``."""
    return rocketpy_cluster.brokers[0]


@_async_fixture
async def rocketpy_client(rocketpy_cluster: "ClusterThread") -> AsyncIterator["Client"]:
    """Start a client of ``rocketpy_cluster`` with the group ``tests`` on the loop of the test."""
    from rocketpy.client.client import connect  # noqa: PLC0415

    async with connect(rocketpy_cluster.namesrv, group="tests") as client:
        yield client
