"""The topic table: auto-creation, bounds, and topics.json."""

import json
import random
from pathlib import Path

import pytest
import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable, system_topics
from rocketpy.errors import StoreError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.store.files.json_file import JsonFile, dump_pretty
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.fakes import FakeClock, MemoryFile


def table(
    config: BrokerConfig | None = None, value: object = None
) -> tuple[TopicTable, MemoryFile]:
    file = MemoryFile(value)
    topics = TopicTable(config or BrokerConfig(broker_name="b"), file, FakeClock())
    topics.load()
    return topics, file


def test_topics_new_broker_has_apache_topics() -> None:
    sizes = {
        one.topic_name: (one.read_queue_nums, one.perm)
        for one in system_topics(BrokerConfig(broker_name="b", broker_cluster_name="C"))
    }
    assert sizes == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_C": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_b": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }


def test_topics_trace_topic_exists_if_configured() -> None:
    plain = BrokerConfig(broker_name="b")
    assert "RMQ_SYS_TRACE_TOPIC" not in {one.topic_name for one in system_topics(plain)}
    for options, name in (
        ({}, "RMQ_SYS_TRACE_TOPIC"),
        ({"msg_trace_topic_name": "Seen"}, "Seen"),
    ):
        config = BrokerConfig(broker_name="b", trace_topic_enable=True, **options)  # type: ignore[arg-type]
        topics, _ = table(config)
        topic = topics.get(name)
        assert topic is not None
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)


def test_topics_auto_creation_uses_smaller_queue_count_without_inherit() -> None:
    topics, file = table()
    changed: list[TopicConfig] = []
    topics.on_written = changed.append
    created = topics.create_on_send("T", "TBW102", 4)
    assert created == TopicConfig("T", 4, 4, 6)
    assert topics.create_on_send("Big", "TBW102", 100) == TopicConfig("Big", 8, 8, 6)
    assert [one.topic_name for one in changed] == ["T", "Big"]
    assert file.value["topicConfigTable"]["T"]["writeQueueNums"] == 4
    assert file.value["dataVersion"]["counter"] == 2


def test_topics_auto_creation_is_refused() -> None:
    off, _ = table(BrokerConfig(broker_name="b", auto_create_topic_enable=False))
    assert off.create_on_send("T", "TBW102", 4) is None
    topics, _ = table()
    assert topics.create_on_send("T", "BenchmarkTest", 4) is None, "no inherit bit"
    assert topics.create_on_send("T", "nowhere", 4) is None
    topics.configure(BrokerConfig(broker_name="b", auto_create_topic_enable=False))
    assert topics.create_on_send("T", "TBW102", 4) is None


def test_topics_auto_creation_never_replaces_existing_topic() -> None:
    topics, file = table()
    topics.put(TopicConfig("T", 2, 3, 4))
    saves = file.saves
    assert topics.create_on_send("T", "TBW102", 8) == TopicConfig("T", 2, 3, 4)
    assert topics.create_on_send_back("T", 1) == TopicConfig("T", 2, 3, 4)
    assert file.saves == saves


def test_topics_delete_reports_and_saves() -> None:
    topics, file = table()
    gone: list[TopicConfig] = []
    topics.on_delete = gone.append
    topics.put(TopicConfig("T"))
    assert topics.delete("T") == TopicConfig("T")
    assert topics.delete("T") is None
    assert gone == [TopicConfig("T")]
    assert "T" not in file.value["topicConfigTable"]


def test_topics_of_a_lost_file_keep_their_queues() -> None:
    stored = ["T", "SCHEDULE_TOPIC_XXXX"]
    topics, _ = table()
    assert topics.note_stored(stored) == ["T"]
    assert [topics.queue_of(each, 3) for each in ("T", "delayed only")] == [3, 3]


def test_topics_missing_in_a_file_keep_their_queues_until_they_are_deleted() -> None:
    _, file = table()
    topics, _ = table(value=file.value or {"topicConfigTable": {}})
    assert topics.note_stored(["T", "U", "SCHEDULE_TOPIC_XXXX"]) == ["T", "U"]
    assert [topics.queue_of(each, 3) for each in ("T", "U", "deleted")] == [3, 3, None]
    topics.delete("T")
    topics.put(TopicConfig("U", 2, 2))
    assert [topics.queue_of(each, 3) for each in ("T", "U")] == [None, 1]


def test_topics_of_a_new_broker_are_not_lost() -> None:
    topics, _ = table()
    assert topics.note_stored([]) == []
    assert topics.queue_of("T", 0) is None


def test_topics_file_round_trips_and_reads_apache_entry() -> None:
    entry = json.loads(
        '{"attributes":{"queue.type":"BatchCQ"},"order":true,"perm":6,"readQueueNums":1,'
        '"topicFilterType":"MULTI_TAG","topicName":"V","topicSysFlag":2,"writeQueueNums":3}'
    )
    value = {
        "dataVersion": {"counter": 21, "stateVersion": 1, "timestamp": 5},
        "topicConfigTable": {"V": entry},
    }
    topics, file = table(value=value)
    found = topics.get("V")
    assert found is not None
    assert found.to_json() == entry
    assert found.is_batch_cq
    assert topics.data_version == {"counter": 21, "stateVersion": 1, "timestamp": 5}
    topics.persist()
    again, _ = table(value=file.value)
    assert again.all() == topics.all()


def test_topics_system_names_are_recognized() -> None:
    topics, _ = table()
    assert topics.is_system("TBW102")
    assert topics.is_system("b")
    assert topics.is_system("rmq_sys_anything")
    assert not topics.is_system("T")


def test_topics_many_changes_in_one_write() -> None:
    topics, file = table()
    with topics.one_write():
        for number in range(3):
            topics.create_on_send_back(f"%RETRY%g{number}", 1)
        assert file.saves == 0
    assert "%RETRY%g2" in file.value["topicConfigTable"]
    topics.create_on_send_back("%RETRY%later", 1)
    assert "%RETRY%later" in file.value["topicConfigTable"]


def test_topics_auto_creation_is_bounded() -> None:
    count = len(system_topics(BrokerConfig(broker_name="b")))
    topics, _ = table(BrokerConfig(broker_name="b", max_topics_for_auto_create=count + 1))
    assert topics.create_on_send("One", "TBW102", 4) is not None
    with structlog.testing.capture_logs() as events:
        for name in ("Two", "Three"):
            assert topics.create_on_send(name, "TBW102", 4) is None
        assert "maxTopicsForAutoCreate" in topics.absence("Two")
    assert [one["event"] for one in events] == ["topic creation stopped: limit reached"]
    assert topics.create_on_send("One", "TBW102", 4) is not None
    topics.put(TopicConfig("Two"))  # an operator still may
    topics.delete("Two")
    topics.delete("One")
    assert topics.create_on_send("Two", "TBW102", 4) is not None
    assert topics.absence("x").startswith("topic[x] not exist, apply first please!")


def test_topics_created_topic_is_reported_after_write() -> None:
    files = SimFiles()
    path = Path("/store/config/topics.json")
    config = BrokerConfig(broker_name="b")
    topics = TopicTable(config, JsonFile(path, files), FakeClock())
    topics.load()
    rng = random.Random(1)
    for number in range(20):
        created = topics.create_on_send(f"T{number}", "TBW102", 4)
        files.power_cut(rng)
        topics = TopicTable(config, JsonFile(path, files), FakeClock())
        topics.load()
        assert topics.get(f"T{number}") == created
    assert topics.get("T0") is not None


def test_topics_failed_write_leaves_nothing_behind() -> None:
    files = SimFiles()
    topics = TopicTable(
        BrokerConfig(broker_name="b"), JsonFile(Path("/topics.json"), files), FakeClock()
    )
    topics.put(TopicConfig("A", 4, 4))
    kept = len(topics._documents)
    files.capacity_bytes = 0
    for number in range(100):
        with pytest.raises(StoreError):
            topics.create_on_send(f"T{number}", "TBW102", 4)
    assert len(topics._documents) == kept


def test_topics_file_equals_table_after_changes_and_deletions() -> None:
    files = SimFiles()
    path = Path("/store/config/topics.json")
    topics = TopicTable(BrokerConfig(broker_name="b"), JsonFile(path, files), FakeClock())
    topics.put(TopicConfig("A", 4, 4, attributes={"a": "1"}))
    topics.put(TopicConfig("B", 4, 4))
    topics.put(TopicConfig("A", 8, 8))
    topics.delete("B")
    assert files.read_bytes(path).decode() == dump_pretty(topics.to_json())
