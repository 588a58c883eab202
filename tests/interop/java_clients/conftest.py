import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient
from tests.peer.apache import require_peer
from tests.sampling import sample

Start = Callable[..., JavaClient]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "interop/java_clients" in str(item.path):
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:  # a test's own limit counts
                item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def jdk() -> None:
    require_peer()


@pytest.fixture(scope="package")
def servers(jdk: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Name server and broker for all tests of this folder."""
    settings = {
        "recallMessageEnable": "true",
        "transactionCheckInterval": "1000",
        "transactionTimeOut": "1000",
    }
    with Servers(tmp_path_factory.mktemp("servers"), properties=settings) as found:
        yield found


@pytest.fixture(scope="package")
def clients(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """A JVM for a version and serialization, started once."""
    running: dict[tuple[str, bool], JavaClient] = {}

    def start(version: str, binary: bool) -> JavaClient:
        if (version, binary) not in running:
            home = tmp_path_factory.mktemp("home")
            running[version, binary] = JavaClient(version, servers.namesrv, home, binary=binary)
        return running[version, binary]

    yield start
    for client in running.values():
        client.close()


@pytest.fixture(params=sample(["5.4.0", "4.9.8"], 2))
def java(request: pytest.FixtureRequest, clients: Start) -> JavaClient:
    """The Java client with JSON headers."""
    return clients(request.param, False)


# In this order a sample of these and one of the versions above need the same JVM most often.
@pytest.fixture(params=sample(["5.4.0 JSON", "4.9.8 ROCKETMQ", "5.4.0 ROCKETMQ", "4.9.8 JSON"], 4))
def any_java(request: pytest.FixtureRequest, clients: Start) -> JavaClient:
    """The Java client with either header serialization."""
    version, serialization = request.param.split()
    return clients(version, serialization == "ROCKETMQ")


@pytest.fixture
def other_home(tmp_path: Path) -> Path:
    """A home for a JVM of the test's own."""
    return tmp_path / "home"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic for the test alone; sending to it creates it."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    # Parameters stand at the end of a name: what is too long keeps them as a number.
    return name if len(name) <= 60 else f"{name[:51]}_{zlib.crc32(name.encode()):08x}"


@pytest.fixture
def group(topic: str) -> str:
    """A consumer group for the test alone."""
    return "g_" + topic
