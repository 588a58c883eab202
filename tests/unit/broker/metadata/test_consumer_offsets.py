"""Committed offsets, resets, and consumerOffset.json."""

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.errors import DiskFullError
from tests.unit.broker.fakes import FakeClock, MemoryFile


def offsets(value: object = None, step: int = 500) -> tuple[ConsumerOffsets, MemoryFile]:
    file = MemoryFile(value)
    config = BrokerConfig(broker_name="b", consumer_offset_update_version_step=step)
    table = ConsumerOffsets(config, file, FakeClock())
    table.load()
    return table, file


def test_consumer_offsets_commit_forward_and_back() -> None:
    table, _ = offsets()
    assert table.query("g", "T", 0) == NO_OFFSET
    for value in (5, 3, 0, 1 << 40):
        table.commit("g", "T", 0, value)
        assert table.query("g", "T", 0) == value


@pytest.mark.parametrize("offset", [-1, -5, -(2**63)])
def test_consumer_offsets_negative_commit_is_ignored(offset: int) -> None:
    table, _ = offsets({"offsetTable": {"U@g": {"0": offset}}})
    assert table.commit("g", "T", 0, offset)
    assert table.query("g", "T", 0) == NO_OFFSET
    table.commit("g", "T", 0, 7)
    assert table.commit("g", "T", 0, offset)
    assert table.query("g", "T", 0) == 7
    assert table.query("g", "U", 0) == NO_OFFSET, "from a file of Apache's"


def test_consumer_offsets_file_has_apache_format() -> None:
    table, file = offsets()
    table.commit("g", "T", 0, 6)
    table.commit("g", "T", 1, 5)
    table.commit("g", "U", 0, 1)
    table.persist()
    assert file.value["offsetTable"] == {"T@g": {0: 6, 1: 5}, "U@g": {0: 1}}
    assert file.value["groupTopicMap"] == {"g": ["T", "U"]}


def test_consumer_offsets_text_keys_are_loaded() -> None:
    table, _ = offsets({"offsetTable": {"T@g": {"0": 6, "3": "7"}, "broken": {"0": 1}}})
    assert table.query_all("g", "T") == {0: 6, 3: 7}


def test_consumer_offsets_unchanged_table_is_not_written() -> None:
    table, file = offsets()
    assert table.step(1_000) == 6_000
    assert file.saves == 0
    table.commit("g", "T", 0, 1)
    table.step(6_000)
    table.step(11_000)
    assert file.saves == 1


def test_consumer_offsets_failed_write_is_retried() -> None:
    table, file = offsets()
    table.commit("g", "T", 0, 1)
    save, file.save = file.save, broken_save  # type: ignore[method-assign]
    assert table.step(1_000) == 6_000
    with pytest.raises(DiskFullError):
        table.persist()
    file.save = save  # type: ignore[method-assign]
    table.step(2_000)
    assert file.value["offsetTable"] == {"T@g": {0: 1}}


def broken_save(value: object) -> None:
    raise DiskFullError("full")


def test_consumer_offsets_reset_is_visible_and_taken_once() -> None:
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


def test_consumer_offsets_of_a_reset_alone_are_found_by_topic_and_by_group() -> None:
    table, _ = offsets()
    table.assign_reset("g", "T", 0, 2)
    assert table.topics_of_group("g") == {"T"}
    assert table.groups_of_topic("T") == {"g"}
    table.remove_topic("T")
    assert table.groups_of_topic("T") == set()


def test_consumer_offsets_removal_and_lookup() -> None:
    table, _ = offsets()
    for group, topic in (("g", "T"), ("g", "U"), ("h", "T")):
        table.commit(group, topic, 0, 1)
        table.commit_read(group, topic, 0, 2)
    assert table.topics_of_group("g") == {"T", "U"}
    assert table.groups_of_topic("T") == {"g", "h"}
    table.clone("g", "k", "T")
    assert table.query_all("k", "T") == {0: 1}
    table.remove_topic("T")
    assert table.topics_of_group("g") == {"U"}
    assert table.query_pull("g", "T", 0) == NO_OFFSET
    table.remove_group("g")
    assert table.topics_of_group("g") | table.topics_of_group("h") == set()


def test_consumer_offsets_removal_is_written_at_once() -> None:
    """Else a topic that is made again after a crash is read from where the old one ended."""
    table, file = offsets()
    table.commit("g", "T", 0, 1)
    table.persist()
    table.remove_topic("T")
    assert file.value["offsetTable"] == {}
    saves = file.saves
    table.remove_topic("U")
    assert file.saves == saves, "nothing changed"


def test_consumer_offsets_full_disk_does_not_prevent_removal() -> None:
    table, file = offsets()
    table.commit("g", "T", 0, 1)
    table.persist()
    save, file.save = file.save, broken_save  # type: ignore[method-assign]
    table.remove_topic("T")
    assert table.topics_of_group("g") == set()
    file.save = save  # type: ignore[method-assign]
    table.step(1_000)
    assert file.value["offsetTable"] == {}


def test_consumer_offsets_of_missing_topics_are_removed() -> None:
    table, file = offsets({"offsetTable": {"T@g": {"0": 6}, "Gone@g": {"0": 1}}})
    table.keep_topics(lambda topic: topic == "T")
    assert table.topics_of_group("g") == {"T"}
    assert file.value["offsetTable"] == {"T@g": {0: 6}}


def test_consumer_offsets_beyond_queue_after_power_cut_are_corrected() -> None:
    table, file = offsets({"offsetTable": {"T@g": {"0": 6, "1": 4}, "U@g": {"0": 1}}})
    ends = {("T", 0): 5, ("T", 1): 4}
    table.cut_to(lambda topic, queue_id: ends.get((topic, queue_id), 0))
    assert table.query_all("g", "T") == {0: 5, 1: 4}
    assert file.value["offsetTable"] == {"T@g": {0: 5, 1: 4}, "U@g": {0: 0}}
    file.value = None
    table.cut_to(lambda topic, queue_id: 9)
    assert file.value is None, "nothing to correct"


def test_consumer_offsets_version_moves_every_n_commits() -> None:
    table, _ = offsets(step=3)
    for value in range(7):
        table.commit("g", "T", 0, value)
    assert table.data_version["counter"] == 2


def bounded(value: object = None) -> ConsumerOffsets:
    config = BrokerConfig(broker_name="b")
    table = ConsumerOffsets(config, MemoryFile(value), FakeClock(), max_offsets=3)
    table.load()
    return table


def test_consumer_offsets_full_table_refuses_new_offset() -> None:
    table = bounded()
    assert [table.commit("g", "T", queue, 1) for queue in range(4)] == [True, True, True, False]
    assert not table.commit("h", "T", 0, 1)
    assert table.commit("g", "T", 0, 9), "a known queue needs no room"
    assert table.query_all("g", "T") == {0: 9, 1: 1, 2: 1}
    table.clone("g", "k", "T")
    assert table.query_all("k", "T") == {}
    table.remove_topic("T")
    assert table.commit("h", "U", 0, 1), "what was removed made room"


def test_consumer_offsets_pulled_and_resets_are_bounded() -> None:
    table = bounded()
    for queue in range(4):
        table.commit_read("g", "T", queue, 5)
        table.assign_reset("g", "T", queue, 7)
    assert [table.query_pull("g", "T", queue) for queue in range(4)] == [5, 5, 5, NO_OFFSET]
    assert [table.take_reset("g", "T", queue) for queue in range(4)] == [7, 7, 7, None]
    table.assign_reset("g", "T", 9, 7)
    assert table.has_reset("g", "T", 9), "a reset that was delivered made room"


def test_consumer_offsets_load_ignores_bound() -> None:
    table = bounded({"offsetTable": {"T@g": {str(queue): queue for queue in range(5)}}})
    assert len(table.query_all("g", "T")) == 5
    assert not table.commit("g", "T", 5, 1)


def test_consumer_offsets_commit_racing_topic_deletion_leaves_nothing() -> None:
    """The topic goes first, then its offsets: a pull that was checked before commits after that."""
    table, _ = offsets()
    topics = {"T", "U"}
    table.topic_exists = topics.__contains__
    table.commit_read("g", "T", 0, 7, 5)
    topics.remove("T")
    table.commit_read("g", "T", 0, 8, 6)
    assert table.query("g", "T", 0) == 6, "as long as its offsets are there"
    table.remove_topic("T")
    table.commit_read("g", "T", 0, 9, 7)
    assert table.commit("g", "T", 1, 7)
    table.assign_reset("g", "T", 0, 3)
    assert not table.has_reset("g", "T", 0)
    assert (table.query("g", "T", 0), table.query_pull("g", "T", 0)) == (-1, -1)
    assert table.topics_of_group("g") == set()
    table.commit_read("g", "U", 0, 9, 7)
    assert table.query("g", "U", 0) == 7


def test_consumer_offsets_groups_behind_lose_unread_messages() -> None:
    table, _ = offsets()
    table.commit("read", "T", 0, 10)
    table.commit("behind", "T", 0, 4)
    table.commit("behind", "T", 1, 99)
    table.commit("lost before", "T", 0, 0)
    table.commit("other", "U", 0, 0)
    kept = {("T", 0): 10, ("T", 1): 99, ("U", 0): -1}
    groups = table.groups_behind(lambda *queue: kept[queue], lambda *_: 2)
    assert groups == {"behind", "lost before"}
    assert table.groups_behind(lambda *_: 2, lambda *_: 2) == set(), "nothing is deleted"


def test_offsets_keep_the_reason_of_a_failed_write_until_one_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = MemoryFile()
    table = ConsumerOffsets(BrokerConfig(), file, FakeClock())
    table.commit("g", "T", 0, 5)

    def refuse(_value: object) -> None:
        raise PermissionError("Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(file, "save", refuse)
        table.step(0)
    assert table.write_failure == "Permission denied"
    table.step(5_000)
    assert table.write_failure is None


def test_consumer_offsets_since_a_mark_are_those_committed_later() -> None:
    table, _ = offsets({"offsetTable": {"T@old": {"0": 9}}})
    mark = table.mark()
    assert table.to_json(mark)["offsetTable"] == {}
    for group in ("g", "h", "g"):
        table.commit(group, "T", 0, 5)
    second = table.mark()
    assert table.to_json(mark)["offsetTable"] == {"T@g": {0: 5}, "T@h": {0: 5}}
    table.commit("h", "T", 1, 6)
    assert table.to_json(second)["offsetTable"] == {"T@h": {0: 5, 1: 6}}
    table.remove_group("h")
    assert table.to_json(mark)["offsetTable"] == {"T@g": {0: 5}}


def test_consumer_offsets_mark_of_another_process_is_answered_by_the_whole_table() -> None:
    table, _ = offsets({"offsetTable": {"T@g": {"0": 9}}})
    whole = {"T@g": {0: 9}}
    assert table.to_json(table.mark().replace(".", "0."))["offsetTable"] == whole
    for nonsense in ("", ".", "1", "x.y", table.mark() + "²", table.mark().partition(".")[0]):
        assert table.to_json(nonsense)["offsetTable"] == whole
    assert table.to_json(table.mark() + "9" * 5_000)["offsetTable"] == {}
