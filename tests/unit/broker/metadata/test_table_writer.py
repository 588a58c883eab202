"""The background service that writes changed tables."""

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.persistent_table import TableWriter
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.runtime.service import connect
from tests.unit.broker.fakes import FakeClock, MemoryFile


def test_table_writer_is_woken_and_writes_changed_tables() -> None:
    config = BrokerConfig(broker_name="b")
    topics_file, groups_file = MemoryFile(), MemoryFile()
    topics = TopicTable(config, topics_file, FakeClock())
    groups = SubscriptionGroupTable(config, groups_file, FakeClock())
    writer = TableWriter(topics, groups)
    woken: list[int] = []
    connect(writer, lambda: woken.append(1))
    assert writer.step(7) > 7
    assert (woken, topics_file.saves, groups_file.saves) == ([], 0, 0)
    groups.get_or_create("g")
    groups.get_or_create("g")
    assert woken == [1]
    writer.step(8)
    assert (topics_file.saves, groups_file.saves) == (0, 1)
    topics.create_on_send("T", "TBW102", 4)
    topics.create_on_send_back("%RETRY%g", 1)
    writer.step(9)
    assert (topics_file.saves, groups_file.saves) == (1, 1)
    assert {"T", "%RETRY%g"} < set(topics_file.value["topicConfigTable"])
