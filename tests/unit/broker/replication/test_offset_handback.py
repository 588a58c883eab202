"""Commits at a slave reach the master when it is back, across restarts of the slave."""

import structlog

from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.wire.command import make_request, make_response
from tests.unit.broker.replication.slave_kit import Pair, parts


async def pair_with_group() -> Pair:
    pair = Pair()
    master = pair.master.parts
    master.topics.put(TopicConfig("T", 2, 2, 6))
    master.groups.put(SubscriptionGroupConfig("g"))
    master.offsets.commit("g", "T", 0, 5)
    await pair.sync.follow_once()
    return pair


async def test_handback_commit_at_a_slave_reaches_the_master() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("g", "T", 0, 9)
    pair.slave.offsets.commit("g", "T", 1, 4)
    await pair.sync.follow_once()
    assert pair.master.parts.offsets.query_all("g", "T") == {0: 9, 1: 4}
    assert len(pair.slave.slave_commits) == 0
    pair.master.codes()
    await pair.sync.follow_once()
    assert 15 not in pair.master.codes()


async def test_handback_survives_a_restart_of_the_slave() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("g", "T", 0, 9)
    pair.slave.slave_commits.step(0)
    pair.slave.store.close()
    again = parts("SLAVE", pair.files)
    await pair.following(again).follow_once()
    assert pair.master.parts.offsets.query("g", "T", 0) == 9
    again.slave_commits.persist()
    again.store.close()
    assert len(parts("SLAVE", pair.files).slave_commits) == 0


async def test_handback_larger_offset_of_the_master_stays() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("g", "T", 0, 9)
    pair.master.parts.offsets.commit("g", "T", 0, 12)
    await pair.sync.follow_once()
    assert pair.master.parts.offsets.query("g", "T", 0) == 12
    assert pair.slave.offsets.query("g", "T", 0) == 12
    assert len(pair.slave.slave_commits) == 0


async def test_handback_request_does_not_undo_a_commit_that_came_between() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("g", "T", 0, 9)
    sent = await pair.master.invoke("127.0.0.1:10911", make_request(43), 1)
    pair.master.answers[43] = sent
    pair.master.parts.offsets.commit("g", "T", 0, 30)
    await pair.sync.follow_once()
    assert pair.master.parts.offsets.query("g", "T", 0) == 30


async def test_handback_refused_offset_is_kept_and_that_of_a_deleted_topic_dropped() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("g", "T", 0, 9)
    pair.master.answers[15] = make_response(make_request(15), 1, "try again")
    with structlog.testing.capture_logs() as logs:
        await pair.sync.follow_once()
    assert len(pair.slave.slave_commits) == 1
    (warning,) = [each for each in logs if each["event"] == "offset not taken by the master"]
    assert (warning["topic"], warning["code"]) == ("T", 1)
    pair.master.answers[15] = make_response(make_request(15), 17, "Topic T not exist!")
    await pair.sync.follow_once()
    assert len(pair.slave.slave_commits) == 0


async def test_handback_own_groups_of_the_broker_are_not_sent() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("CID_RMQ_SYS_TRANS", "T", 0, 9)
    assert len(pair.slave.slave_commits) == 0


async def test_handback_master_that_goes_away_keeps_the_rest() -> None:
    pair = await pair_with_group()
    pair.slave.offsets.commit("g", "T", 0, 9)
    pair.master.is_down = True
    assert not await pair.sync.follow_once()
    assert len(pair.slave.slave_commits) == 1
    pair.master.is_down = False
    assert await pair.sync.follow_once()
    assert pair.master.parts.offsets.query("g", "T", 0) == 9
