"""Topics that a slave does not know yet when its log has their first messages."""

import asyncio
from collections.abc import Sequence

import pytest

from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.store.results import PutMessage
from rocketpy.testing.sim_loop import LoopClock, SimLoop, pass_time
from tests.unit.broker.replication.slave_kit import Pair, parts
from tests.unit.broker.test_broker import Kit


def copy_log(pair: Pair) -> None:
    """Give the slave the master's log, as replication does."""
    master, slave = pair.master.parts.store, pair.slave.store
    data = master.log_part(slave.max_phy_offset, 1 << 16)
    if data:
        slave.append_raw(slave.max_phy_offset, bytes(data))
    slave.flush_log()


def store(pair: Pair, topic: str, queue_ids: Sequence[int] = (0,)) -> None:
    for queue_id in queue_ids:
        pair.master.parts.store.put_message(PutMessage(topic, queue_id, b"body"))


def new_topic(pair: Pair, topic: str = "T", queue_ids: Sequence[int] = (0,)) -> None:
    """Create a topic at the master, and store messages that the slave receives."""
    pair.master.parts.topics.put(TopicConfig(topic, 8, 8, 6))
    store(pair, topic, queue_ids)
    copy_log(pair)


async def steps(count: int) -> None:
    """Let the tasks of the loop run."""
    for _ in range(count):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0)


async def lose_master(pair: Pair) -> None:
    pair.master.is_down = True
    assert not await pair.sync.follow_once()


async def test_slave_new_topic_of_a_lost_master_is_created_from_the_log() -> None:
    pair = Pair()
    await pair.sync.follow_once()
    new_topic(pair, "T", (0, 11))
    new_topic(pair, "%RETRY%g")
    await lose_master(pair)
    assert pair.slave.topics.get("T") == TopicConfig("T", 12, 12, 6)
    assert pair.slave.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


async def test_slave_new_topic_with_few_queues_gets_the_default_number() -> None:
    pair = Pair()
    await pair.sync.follow_once()
    new_topic(pair)
    await lose_master(pair)
    assert pair.slave.topics.get("T") == TopicConfig("T", 8, 8, 6)


async def test_slave_without_known_master_creates_new_topics_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    await pair.sync.follow_once()
    new_topic(pair)
    monkeypatch.setattr(pair.sync, "_master", lambda: "")
    await pair.sync.follow_once()
    assert pair.slave.topics.get("T") is not None


async def test_slave_system_topics_are_not_created_from_the_log() -> None:
    pair = Pair()
    await pair.sync.follow_once()
    store(pair, "rmq_sys_ELSE")
    copy_log(pair)
    await lose_master(pair)
    assert pair.slave.topics.get("rmq_sys_ELSE") is None


async def test_slave_topic_deleted_before_the_log_was_copied_is_not_created() -> None:
    pair = Pair()
    new_topic_messages = PutMessage("OLD", 0, b"body")
    pair.master.parts.store.put_message(new_topic_messages)
    await pair.sync.follow_once()
    copy_log(pair)
    new_topic(pair)
    await lose_master(pair)
    assert pair.slave.topics.get("OLD") is None
    assert pair.slave.topics.get("T") is not None


async def test_slave_topic_created_after_the_table_was_read_is_created_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    answer = pair.master.invoke

    async def invoke(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        response = await answer(address, command, timeout_ms)
        if command.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            new_topic(pair)
        return response

    monkeypatch.setattr(pair.master, "invoke", invoke)
    await pair.sync.follow_once()
    assert pair.slave.topics.get("T") is None
    await lose_master(pair)
    assert pair.slave.topics.get("T") is not None


async def test_slave_topic_that_was_followed_and_deleted_is_not_created() -> None:
    pair = Pair()
    new_topic(pair)
    await pair.sync.follow_once()
    pair.master.parts.topics.delete("T")
    await pair.sync.follow_once()
    await lose_master(pair)
    assert pair.slave.topics.get("T") is None


async def test_slave_that_never_read_the_tables_creates_no_topic() -> None:
    pair = Pair()
    new_topic(pair)
    await lose_master(pair)
    assert pair.slave.topics.get("T") is None


async def test_slave_table_of_a_returned_master_replaces_created_topics() -> None:
    pair = Pair()
    await pair.sync.follow_once()
    new_topic(pair)
    await lose_master(pair)
    pair.master.is_down = False
    pair.master.parts.topics.put(TopicConfig("T", 3, 2, 6))
    await pair.sync.follow_once()
    assert pair.slave.topics.get("T") == TopicConfig("T", 3, 2, 6)


async def test_slave_created_topic_that_a_returned_master_lacks_is_removed() -> None:
    pair = Pair()
    await pair.sync.follow_once()
    # The master was lost before its table was written.
    store(pair, "T")
    copy_log(pair)
    await lose_master(pair)
    assert pair.slave.topics.get("T") is not None
    pair.master.is_down = False
    await pair.sync.follow_once()
    assert pair.slave.topics.get("T") is None


async def test_slave_restarted_without_its_master_creates_new_topics() -> None:
    pair = Pair()
    await pair.sync.follow_once()
    new_topic(pair)
    pair.slave.topics.persist()
    pair.slave.slave_commits.persist()
    pair.slave.store.close()
    pair.slave = parts("SLAVE", pair.files)
    pair.sync = pair.following(pair.slave)
    await lose_master(pair)
    assert pair.slave.topics.get("T") is not None


async def test_master_started_on_the_directory_of_a_slave_creates_new_topics() -> None:
    pair = Pair()
    store(pair, "OLD")
    await pair.sync.follow_once()
    new_topic(pair)
    pair.slave.topics.persist()
    pair.slave.slave_commits.persist()
    pair.slave.store.close()
    kit = Kit()
    kit.files = pair.files
    broker = kit.broker()
    await broker.start()
    try:
        assert broker.parts.topics.get("T") is not None
        assert broker.parts.topics.get("OLD") is None
    finally:
        await broker.stop()


async def test_slave_message_of_an_unknown_topic_fetches_the_table_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    pauses: list[float] = []

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)

    pair.sync.start()
    try:
        await steps(100)
        assert pair.sync.synced_ms
        pair.master.codes()
        monkeypatch.setattr("rocketpy.broker.replication.metadata_sync.asyncio.sleep", pause)
        new_topic(pair)
        await steps(100)
        assert pair.slave.topics.get("T") is not None
        assert pauses == [0.1], "many new topics need one request"
        assert set(pair.master.codes()) == {21, 201, 907}
    finally:
        await pair.sync.stop()


@pytest.mark.parametrize(("names_ms", "count"), [(500, 6), (3_000, 1)])
def test_slave_that_may_be_elected_follows_topics_between_its_rounds(
    names_ms: int, count: int
) -> None:
    loop = SimLoop(1)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> int:
        pair = Pair()
        pair.sync._clock, pair.sync._names_ms = LoopClock(loop), names_ms
        pair.sync.start()
        await pass_time(3.2)
        await pair.sync.stop()
        return pair.master.codes().count(RequestCode.GET_ALL_TOPIC_CONFIG)

    try:
        assert loop.run_until_complete(main()) > count
    finally:
        loop.end_tasks()
        loop.close()


async def test_slave_old_message_of_an_unknown_topic_fetches_nothing() -> None:
    pair = Pair()
    store(pair, "OLD")
    pair.sync.start()
    try:
        await steps(100)
        assert pair.sync.synced_ms
        pair.master.codes()
        copy_log(pair)
        await steps(10)
        assert not pair.sync._is_noticed
        assert pair.master.codes() == []
    finally:
        await pair.sync.stop()
