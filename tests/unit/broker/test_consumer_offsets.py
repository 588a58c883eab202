import pytest

from rocketpy.broker import consumer_offsets
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.errors import DiskFullError
from tests.unit.broker.fakes import FakeClock, MemoryFile


def offsets(value: object = None, step: int = 500) -> tuple[ConsumerOffsets, MemoryFile]:
    file = MemoryFile(value)
    config = BrokerConfig(broker_name="b", consumer_offset_update_version_step=step)
    table = ConsumerOffsets(config, file, FakeClock())
    table.load()
    return table, file


def test_any_value_may_be_committed() -> None:
    table, _ = offsets()
    assert table.query("g", "T", 0) == NO_OFFSET
    for value in (5, 3, -1, 1 << 40):
        table.commit("g", "T", 0, value)
        assert table.query("g", "T", 0) == value


def test_file_as_apache_writes_it() -> None:
    table, file = offsets()
    table.commit("g", "T", 0, 6)
    table.commit("g", "T", 1, 5)
    table.commit("g", "U", 0, 1)
    table.persist()
    assert file.value["offsetTable"] == {"T@g": {0: 6, 1: 5}, "U@g": {0: 1}}
    assert file.value["groupTopicMap"] == {"g": ["T", "U"]}


def test_text_keys_are_read() -> None:
    table, _ = offsets({"offsetTable": {"T@g": {"0": 6, "3": "7"}, "broken": {"0": 1}}})
    assert table.query_all("g", "T") == {0: 6, 3: 7}


def test_written_only_when_something_changed() -> None:
    table, file = offsets()
    assert table.step(1_000) == 6_000
    assert file.saves == 0
    table.commit("g", "T", 0, 1)
    table.step(6_000)
    table.step(11_000)
    assert file.saves == 1


def test_a_failed_write_is_tried_again() -> None:
    table, file = offsets()
    table.commit("g", "T", 0, 1)
    save, file.save = file.save, broken_save  # type: ignore[method-assign]
    with pytest.raises(DiskFullError):
        table.step(1_000)
    file.save = save  # type: ignore[method-assign]
    table.step(2_000)
    assert file.value["offsetTable"] == {"T@g": {0: 1}}


def broken_save(value: object) -> None:
    raise DiskFullError("full")


def test_a_reset_is_seen_by_queries_and_taken_once() -> None:
    table, _ = offsets()
    table.commit("g", "T", 0, 9)
    table.assign_reset("g", "T", 0, 2)
    assert table.has_reset("g", "T", 0)
    assert not table.has_reset("g", "T", 1)
    assert table.query("g", "T", 0) == 2
    assert table.query_all("g", "T") == {0: 2}
    assert table.take_reset("g", "T", 1) is None
    assert table.take_reset("g", "T", 0) == 2
    assert table.take_reset("g", "T", 0) is None
    assert not table.has_reset("g", "T", 0)


def test_removal_and_lookup() -> None:
    table, _ = offsets()
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        table.commit(group, topic, 0, 1)
        table.commit_pull(group, topic, 0, 2)
    assert table.topics_of_group("g") == {"T", "U"}
    assert table.groups_of_topic("T") == {"g", "h"}
    table.clone("g", "k", "T")
    assert table.query_all("k", "T") == {0: 1}
    table.remove("g", "T")
    assert table.topics_of_group("g") == {"U"}
    assert table.query_pull("g", "T", 0) == NO_OFFSET
    table.remove_topic("U")
    table.remove_group("h")
    assert table.topics_of_group("g") | table.topics_of_group("h") == set()


def test_version_moves_every_n_commits() -> None:
    table, _ = offsets(step=3)
    for value in range(7):
        table.commit("g", "T", 0, value)
    assert table.data_version["counter"] == 2


def test_only_so_many_queues_and_pairs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_offsets, "MAX_PAIRS", 2)
    monkeypatch.setattr(consumer_offsets, "MAX_QUEUES", 3)
    table, _ = offsets()
    assert [table.commit("g", "T", queue, 1) for queue in range(4)] == [True, True, True, False]
    assert table.commit("g", "T", 0, 9)
    assert table.commit("h", "T", 0, 1)
    assert not table.commit("i", "T", 0, 1)
    assert table.query_all("g", "T") == {0: 9, 1: 1, 2: 1}
    for queue in range(4):
        table.commit_pull("g", "T", queue, 5)
    assert [table.query_pull("g", "T", queue) for queue in range(4)] == [5, 5, 5, NO_OFFSET]
