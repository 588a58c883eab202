from collections.abc import Iterator

import pytest

from tests.interop.mqadmin.cluster import LocalCluster
from tests.interop.mqadmin.jvm import Actor, Mqadmin
from tests.interop.mqadmin.world import World
from tests.peer.apache import require_peer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "interop/mqadmin" in str(item.path):
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:  # a test's own limit counts
                item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_peer()
    cluster = LocalCluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    mqadmin, actor = Mqadmin(cluster.namesrv), Actor(cluster.namesrv)
    try:
        found = World(cluster, mqadmin, actor)
        found.create_topic(found.topic)
        actor.do("producer", found.producer)
        found.sent = found.send(found.topic, 20)
        found.client_id = actor.do("consumer", found.group, found.topic, "*")["clientId"]
        found.receive(found.group, 20)
        yield found
    finally:
        actor.close()
        mqadmin.close()
        cluster.stop()
