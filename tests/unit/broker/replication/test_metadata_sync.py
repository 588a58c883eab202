"""Tables of the master at a slave: only differences are written, resets move offsets back."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from rocketpy.broker.replication import metadata_sync
from rocketpy.broker.requests import build_requests
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.group import SetMessageRequestModeRequestBody, SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.store.results import PutMessage
from tests.unit.broker.replication.slave_kit import Pair, parts

NOT_SUPPORTED = 3


def copy_log(pair: Pair) -> None:
    """Give the slave the master's log, as replication does."""
    master, slave = pair.master.parts.store, pair.slave.store
    for phy_offset in range(slave.max_phy_offset, master.max_phy_offset):
        record = master.look_message(phy_offset)
        if record is not None and phy_offset == slave.max_phy_offset:
            slave.append_raw(phy_offset, bytes(record))
    slave.flush_log()


def store_messages(pair: Pair, count: int) -> None:
    """Store messages of topic T at both brokers."""
    for _ in range(count):
        pair.master.parts.store.put_message(PutMessage("T", 0, b"body"))
    copy_log(pair)


def started_again(pair: Pair) -> None:
    """Let the master answer as another process."""
    pair.master.parts.start_ms += 1
    pair.master.table = build_requests(pair.master.parts)


def restart_slave(pair: Pair) -> None:
    """Stop the slave, which writes its tables, and start it again."""
    slave = pair.slave
    for table in (slave.topics, slave.groups, slave.offsets, slave.slave_commits):
        table.persist()
    slave.store.close()
    pair.slave = parts("SLAVE", pair.files)
    pair.sync = pair.following(pair.slave)


async def pair_with_offset(offset: int) -> Pair:
    """Return a pair with ten messages of topic T and an offset of group g."""
    pair = Pair()
    pair.master.parts.topics.put(TopicConfig("T", 1, 1, 6))
    pair.master.parts.offsets.commit("g", "T", 0, offset)
    await pair.sync.follow_once()
    store_messages(pair, 10)
    return pair


async def test_slave_new_one_gets_topics_groups_offsets_and_modes() -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    master.topics.put(TopicConfig("T", 4, 4, 6, attributes={"message.type": "FIFO"}))
    master.groups.put(SubscriptionGroupConfig("g", consume_enable=False))
    master.groups.set_forbidden("g", "T", True)
    master.offsets.commit("g", "T", 1, 7)
    master.modes.put(SetMessageRequestModeRequestBody("T", "g", "POP", 2))
    assert await pair.sync.follow_once()
    assert slave.topics.get("T") == master.topics.get("T")
    assert slave.groups.get("g") == master.groups.get("g")
    assert slave.groups.is_forbidden("g", "T")
    assert slave.offsets.query("g", "T", 1) == 7
    assert slave.modes.get("T", "g") == master.modes.get("T", "g")
    assert len(slave.slave_commits) == 0


async def test_slave_unchanged_tables_are_neither_fetched_nor_written() -> None:
    pair = Pair()
    pair.master.parts.topics.put(TopicConfig("T", 4, 4, 6))
    await pair.sync.follow_once()
    version = pair.slave.topics.data_version
    pair.master.codes()
    await pair.sync.follow_once()
    assert pair.slave.topics.data_version == version
    sizes = [ext["maxTopicNum"] for code, ext in pair.master.asked if code == 21]
    assert sizes == ["1"], "it asks for the version only"


async def test_slave_topic_and_group_deleted_at_the_master_are_removed_with_their_data() -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    for name in ("T", "U"):
        master.topics.put(TopicConfig(name, 1, 1, 6))
    master.groups.put(SubscriptionGroupConfig("g"))
    master.offsets.commit("g", "T", 0, 1)
    await pair.sync.follow_once()
    master.topics.delete("T")
    master.offsets.remove_topic("T")
    master.groups.delete("g")
    await pair.sync.follow_once()
    assert slave.topics.get("T") is None
    assert slave.topics.get("U") is not None
    assert slave.topics.get("SELF_TEST_TOPIC") is not None
    assert slave.groups.get("g") is None
    assert slave.groups.exists("TOOLS_CONSUMER")
    assert slave.offsets.query("g", "T", 0) == -1


async def test_slave_large_table_is_fetched_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_sync, "_PAGE", 4)
    pair = Pair()
    master = pair.master.parts
    for number in range(9):
        master.topics.put(TopicConfig(f"T{number}", 1, 1, 6))
    await pair.sync.follow_once()
    assert dict(pair.slave.topics.entries) == dict(master.topics.entries)
    pages = [int(ext["topicSeq"]) for code, ext in pair.master.asked if code == 21]
    assert pages == list(range(0, len(master.topics.entries), 4))


async def test_slave_offsets_move_back_only_after_a_reset_of_a_running_master() -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    master.topics.put(TopicConfig("T", 1, 1, 6))
    master.offsets.commit("g", "T", 0, 20)
    await pair.sync.follow_once()
    master.offsets.commit("g", "T", 0, 5)
    await pair.sync.follow_once()
    assert slave.offsets.query("g", "T", 0) == 5
    master.offsets.commit("g", "T", 0, 20)
    await pair.sync.follow_once()
    # Killed: it comes back with the offsets of some seconds ago.
    store_messages(pair, 20)
    master.offsets.commit("g", "T", 0, 12)
    started_again(pair)
    await pair.sync.follow_once()
    assert slave.offsets.query("g", "T", 0) == 20
    assert len(slave.slave_commits) == 0, "it is the master that decides what was committed there"
    master.offsets.commit("g", "T", 0, 30)
    await pair.sync.follow_once()
    assert slave.offsets.query("g", "T", 0) == 30


async def test_slave_progress_of_the_master_waits_for_the_log() -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    master.topics.put(TopicConfig("T", 1, 1, 6))
    (delay,) = (each.follow_master for each in master.features if each.name == "delay")
    assert delay is not None
    assert delay.delays is not None
    delay.delays({2: 9})
    master.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 3)
    master.store.put_message(PutMessage("T", 0, b"delivered before"))
    for _ in range(3):
        await pair.sync.follow_once()
    assert levels(pair) == {}
    assert slave.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == -1
    copy_log(pair)
    await pair.sync.follow_once()
    assert levels(pair) == {2: 9}
    assert slave.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 3


async def test_slave_progress_of_the_master_is_applied_before_the_next_round() -> None:
    pair = Pair()
    master = pair.master.parts
    master.topics.put(TopicConfig("T", 1, 1, 6))
    (delay,) = (each.follow_master for each in master.features if each.name == "delay")
    assert delay is not None
    assert delay.delays is not None
    delay.delays({2: 9})
    master.store.put_message(PutMessage("T", 0, b"delivered before"))
    await pair.sync.follow_once()
    await pair.sync.follow_names_once()
    assert levels(pair) == {}
    copy_log(pair)
    await pair.sync.follow_names_once()
    assert levels(pair) == {2: 9}


async def test_slave_that_takes_over_applies_the_newest_progress_that_its_log_contains() -> None:
    pair = Pair()
    master = pair.master.parts
    master.topics.put(TopicConfig("T", 1, 1, 6))
    (delay,) = (each.follow_master for each in master.features if each.name == "delay")
    assert delay is not None
    assert delay.delays is not None
    for offset in (4, 9):
        delay.delays({2: offset})
        master.store.put_message(PutMessage("T", 0, b"delivered before"))
        if offset == 4:
            await pair.sync.follow_once()
            copy_log(pair)
    await pair.sync.follow_last()
    pair.sync.take_last()
    assert levels(pair) == {2: 4}, "the log of the newer progress has not come"
    copy_log(pair)
    pair.sync.take_last()
    assert levels(pair) == {2: 9}


def levels(pair: Pair) -> dict[int, int]:
    """Return the delay offsets as another broker would fetch them."""
    processor = build_requests(pair.slave).routes[45].processor
    response = processor(None, make_request(45))  # type: ignore[arg-type]
    found = fastjson.loads(response.body)["offsetTable"]  # type: ignore[union-attr]
    return {int(key): each for key, each in found.items() if each}


async def test_slave_timer_checkpoint_is_kept_without_a_wheel() -> None:
    pair = Pair()
    marks = struct.pack(">7q", 5_000, 520, 12, 10, 0, 1, 2)
    pair.master.answers[60] = make_response(make_request(60), body=marks)
    await pair.sync.follow_once()
    await pair.sync.follow_once()
    (follower,) = (
        each.states[0] for each in pair.slave.features if each.name == "timer" and each.states
    )
    follower.persist()
    path = Path("/store/config/timercheck")
    data = pair.files.read_bytes(path)
    assert struct.unpack_from(">4q", data) == (5_000, 1, 10, 10)
    # A checkpoint from before is an answer that came late.
    pair.master.answers[60] = make_response(make_request(60), body=struct.pack(">7q", *[1] * 7))
    for _ in range(2):
        await pair.sync.follow_once()
    follower.persist()
    assert pair.files.read_bytes(path) == data


async def test_slave_master_without_a_feature_stops_no_other_table() -> None:
    pair = Pair()
    pair.master.parts.topics.put(TopicConfig("T", 1, 1, 6))
    for code in (402, 45, 60):
        pair.master.answers[code] = make_response(make_request(code), NOT_SUPPORTED, "old broker")
    with structlog.testing.capture_logs() as logs:
        assert await pair.sync.follow_once()
        assert await pair.sync.follow_once()
    assert pair.slave.topics.get("T") is not None
    assert [each["code"] for each in logs if each["event"] == "table not fetched"] == [402, 45, 60]


async def test_slave_silent_master_is_logged_once_and_asked_again() -> None:
    pair = Pair()
    pair.master.is_down = True
    with structlog.testing.capture_logs() as logs:
        assert not await pair.sync.follow_once()
        assert not await pair.sync.follow_once()
        assert "cannot connect" in pair.sync.failure
        pair.master.is_down = False
        assert await pair.sync.follow_once()
    assert [each["event"] for each in logs if "tables" in each["event"]] == [
        "tables of the master not followed",
        "tables of the master followed again",
    ]
    assert pair.sync.failure == ""


async def test_slave_file_that_cannot_be_written_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    slave.topics.use_writer(lambda: None)
    master.topics.put(TopicConfig("T", 1, 1, 6))

    def full(_value: object) -> None:
        raise DiskFullError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(slave.topics._file, "save", full)
        await pair.sync.follow_once()
        slave.topics.write()
    assert slave.topics.get("T") is None, "the file has not got it"
    await pair.sync.follow_once()
    slave.topics.write()
    assert slave.topics.get("T") == master.topics.get("T")
    assert slave.topics.is_written("T")


async def test_slave_changed_topic_replaces_the_old_one() -> None:
    pair = Pair()
    master = pair.master.parts
    master.topics.put(TopicConfig("T", 1, 1, 6))
    await pair.sync.follow_once()
    topic = master.topics.get("T")
    assert topic is not None
    master.topics.put(replace(topic, read_queue_nums=8, write_queue_nums=8))
    await pair.sync.follow_once()
    assert pair.slave.topics.get("T") == master.topics.get("T")


async def test_slave_deleted_topic_that_was_created_again_keeps_its_new_messages() -> None:
    pair = Pair()
    master, slave = pair.master.parts, pair.slave
    for name in ("T", "U"):
        master.topics.put(TopicConfig(name, 1, 1, 6))
        master.store.put_message(PutMessage(name, 0, b"old"))
    copy_log(pair)
    await pair.sync.follow_once()
    end = slave.store.max_phy_offset
    for name in ("T", "U"):
        master.topics.delete(name)
        master.store.delete_topics([name])
    # The answer without both topics is under way when the log has the first one again.
    late = await pair.master.invoke("127.0.0.1:10911", make_request(21), 1)
    master.topics.put(TopicConfig("T", 1, 1, 6))
    master.store.put_message(PutMessage("T", 0, b"new"))
    invoke = pair.master.invoke

    async def while_the_log_arrives(
        address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        if command.code != 21:
            return await invoke(address, command, timeout_ms)
        copy_log(pair)
        return late

    pair.master.invoke = while_the_log_arrives  # type: ignore[method-assign]
    assert slave.store.max_phy_offset == end
    await pair.sync.follow_once()
    assert slave.topics.get("T") is None
    assert slave.store.max_offset("U", 0) == 0
    assert slave.store.max_offset("T", 0) == 1
    pair.master.invoke = invoke  # type: ignore[method-assign]
    await pair.sync.follow_once()
    assert slave.topics.get("T") is not None
    (record,) = slave.store.get_message("T", 0, 0, 32, 1 << 20).buffers
    assert b"new" in bytes(record)


async def test_slave_reset_while_it_was_stopped_is_followed() -> None:
    pair = await pair_with_offset(10)
    restart_slave(pair)
    pair.master.parts.offsets.commit("g", "T", 0, 2)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 2
    await pair.sync.follow_once()
    assert pair.master.parts.offsets.query("g", "T", 0) == 2, "nothing was handed back"


async def test_slave_reset_after_a_planned_restart_of_the_master_is_followed() -> None:
    pair = await pair_with_offset(10)
    started_again(pair)
    await pair.sync.follow_once()
    restart_slave(pair)
    pair.master.parts.offsets.commit("g", "T", 0, 2)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 2


@pytest.mark.parametrize("restarts", [False, True])
async def test_slave_topic_created_again_takes_the_offsets_of_the_new_one(restarts: bool) -> None:
    pair = await pair_with_offset(10)
    master = pair.master.parts
    if restarts:
        restart_slave(pair)
    # The entry in the table of topics is the same, so only the offsets differ.
    master.offsets.remove_topic("T")
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == -1
    master.offsets.commit("g", "T", 0, 1)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 1
    assert len(pair.slave.slave_commits) == 0


async def test_slave_group_deleted_while_it_was_stopped_loses_its_offsets() -> None:
    pair = await pair_with_offset(10)
    master = pair.master.parts
    master.offsets.commit("other", "T", 0, 7)
    await pair.sync.follow_once()
    restart_slave(pair)
    master.offsets.remove_group("g")
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == -1
    assert pair.slave.offsets.query("other", "T", 0) == 7


async def test_slave_commit_made_here_survives_its_restart_and_a_reset() -> None:
    pair = await pair_with_offset(5)
    pair.slave.offsets.commit("g", "T", 0, 9)
    pair.slave.offsets.commit("new", "T", 0, 8)
    pair.master.parts.groups.put(SubscriptionGroupConfig("new"))
    restart_slave(pair)
    pair.master.parts.offsets.commit("g", "T", 0, 2)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 9
    assert pair.slave.offsets.query("new", "T", 0) == 8


async def test_slave_master_killed_while_it_was_stopped_keeps_the_larger_offset() -> None:
    pair = await pair_with_offset(10)
    restart_slave(pair)
    pair.master.parts.offsets.commit("g", "T", 0, 6)
    started_again(pair)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 10
    pair.master.parts.offsets.remove_topic("T")
    started_again(pair)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 10


@pytest.mark.parametrize("has_offset", [False, True])
async def test_slave_offset_beyond_its_queue_is_not_kept_after_a_restart_of_the_master(
    has_offset: bool,
) -> None:
    pair = await pair_with_offset(12)
    restart_slave(pair)
    pair.master.parts.offsets.remove_topic("T")
    if has_offset:
        pair.master.parts.offsets.commit("g", "T", 0, 1)
    started_again(pair)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == (1 if has_offset else -1)


async def test_slave_progress_of_system_groups_is_not_removed() -> None:
    pair = await pair_with_offset(10)
    pair.slave.offsets.follow({("T", "CID_RMQ_SYS_TRANS"): {0: 99}}, None, None)
    restart_slave(pair)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("CID_RMQ_SYS_TRANS", "T", 0) == 99


async def test_slave_offset_within_the_queue_of_a_topic_created_again_is_replaced() -> None:
    pair = await pair_with_offset(10)
    pair.slave.offsets.commit("here", "T", 0, 9)
    restart_slave(pair)
    master = pair.master.parts
    master.topics.delete("T")
    master.store.delete_topics(["T"])
    master.offsets.remove_topic("T")
    master.topics.put(TopicConfig("T", 1, 1, 6))
    master.offsets.commit("g", "T", 0, 2)
    started_again(pair)
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 10, "its log does not show it yet"
    store_messages(pair, 20)
    assert pair.slave.store.max_offset("T", 0) == 20
    await pair.sync.follow_once()
    assert pair.slave.offsets.query("g", "T", 0) == 2
    assert pair.slave.offsets.query("here", "T", 0) == -1
    assert len(pair.slave.slave_commits) == 0


async def electable_pair() -> Pair:
    """Return a pair whose slave a controller may elect, with an offset of 5."""
    pair = Pair()
    pair.sync._is_electable = True
    pair.master.parts.topics.put(TopicConfig("T", 2, 2, 6))
    pair.master.parts.offsets.commit("g", "T", 0, 5)
    await pair.sync.follow_once()
    return pair


async def test_slave_electable_one_takes_new_commits_between_rounds() -> None:
    pair = await electable_pair()
    master, slave = pair.master.parts.offsets, pair.slave.offsets
    for offset in (6, 8):
        master.commit("g", "T", 0, offset)
        master.commit("new", "T", 1, offset)
        await pair.sync.follow_names_once()
        assert (slave.query("g", "T", 0), slave.query("new", "T", 1)) == (offset, offset)
    assert len(pair.slave.slave_commits) == 0
    slave.commit("g", "T", 0, 9)
    master.commit("g", "T", 0, 12)
    await pair.sync.follow_names_once()
    assert slave.query("g", "T", 0) == 12
    assert len(pair.slave.slave_commits) == 0, "the master has a larger one"


async def test_slave_electable_one_follows_a_reset_below_commits_between_rounds() -> None:
    pair = await electable_pair()
    master, slave = pair.master.parts.offsets, pair.slave.offsets
    master.commit("g", "T", 0, 20)
    await pair.sync.follow_names_once()
    master.assign_reset("g", "T", 0, 10)
    await pair.sync.follow_names_once()
    assert slave.query("g", "T", 0) == 20
    await pair.sync.follow_once()
    assert slave.query("g", "T", 0) == 10


async def test_slave_electable_one_of_a_master_without_marks_waits_for_the_round() -> None:
    pair = await electable_pair()
    pair.sync._mark = None  # as after a response of Apache's broker
    pair.master.parts.offsets.commit("g", "T", 0, 6)
    pair.master.asked.clear()
    await pair.sync.follow_names_once()
    assert [code for code, _ in pair.master.asked if code == 43] == []
    assert pair.slave.offsets.query("g", "T", 0) == 5


async def test_slave_electable_one_takes_new_progress_between_rounds() -> None:
    pair = await electable_pair()
    master = pair.master.parts
    (delay,) = (each.follow_master for each in master.features if each.name == "delay")
    assert delay is not None
    assert delay.delays is not None
    store_messages(pair, 1)
    delay.delays({2: 9})
    master.offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 3)
    for _ in range(2):
        await pair.sync.follow_names_once()
    assert levels(pair) == {2: 9}
    assert pair.slave.offsets.query("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 3


async def test_slave_electable_one_asks_for_progress_after_new_messages_only() -> None:
    pair = await electable_pair()
    store_messages(pair, 1)
    await pair.sync.follow_names_once()
    pair.master.codes()
    await pair.sync.follow_names_once()
    assert not {45, 60} & {*pair.master.codes()}
    store_messages(pair, 1)
    await pair.sync.follow_names_once()
    assert {45, 60} <= {*pair.master.codes()}
