"""Resets of groups: by time, by offset, or to the offsets of another group."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocketpy.admin import Admin
from rocketpy.admin.results import OffsetMove
from rocketpy.errors import (
    BrokerError,
    ClientError,
    InvalidParameterError,
    ServersFailedError,
    SubscriptionGroupNotExistError,
    TopicNotExistError,
)
from rocketpy.proto.bodies.offset import ResetOffsetBody
from rocketpy.proto.bodies.stats import ConsumeStats, OffsetWrapper
from rocketpy.proto.bodies.topic import TopicOffset, TopicStatsTable
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.admin.fakes import BROKERS, QA, QB, FakeRemoting, give_groups, give_progress

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


async def test_reset_goes_to_every_broker_of_the_topic(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_progress(remoting)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    for queue, address in ((QA, A), (QB, B)):
        body = ResetOffsetBody(offset_table={queue: 10}).encode()
        remoting.response(code, at=address, body=body)
    moves = await admin.reset_offset("g", "t", "latest")
    assert [(each.queue, each.from_offset, each.to_offset) for each in moves] == [
        (QA, 7, 10), (QB, 7, 10),
    ]  # fmt: skip
    _, request = remoting.requests(code)[0]
    assert request.ext_fields == {
        "group": "g", "topic": "t", "queueId": "-1", "timestamp": "-1", "isForce": "true",
    }  # fmt: skip
    await admin.reset_offset("g", "t", "earliest")
    assert remoting.asked[-1][1].ext_fields["timestamp"] == "0"
    await admin.reset_offset("g", "t", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
    assert remoting.asked[-1][1].ext_fields["timestamp"] == "1700000000000"

    before = len(remoting.requests(code))
    await admin.reset_offset("g", "t", 4, queue=QB)
    [(address, request)] = remoting.requests(code)[before:]
    assert (address, request.ext_fields["queueId"], request.ext_fields["offset"]) == (B, "0", "4")
    with pytest.raises(ClientError, match="an offset belongs to one queue"):
        await admin.reset_offset("g", "t", 4)
    with pytest.raises(ClientError, match="broker x does not serve topic t"):
        await admin.reset_offset("g", "t", 4, queue=MessageQueue("t", "x", 0))


@pytest.mark.parametrize("dry_run", [True, False])
async def test_reset_to_an_invalid_target_raises_before_any_request(
    admin: Admin, remoting: FakeRemoting, *, dry_run: bool
) -> None:
    targets: list[Any] = ["yesterday", "Latest", "", None, 1.5, True, timedelta(days=1)]
    for to in targets:
        kind = ValueError if isinstance(to, str) else TypeError
        with pytest.raises(kind, match="is neither") as refused:
            await admin.reset_offset("g", "t", to, queue=QA, dry_run=dry_run)
        assert repr(to) in str(refused.value)
    assert remoting.asked == []


async def test_dry_run_changes_nothing(admin: Admin, remoting: FakeRemoting) -> None:
    give_groups(remoting, "g")
    give_progress(remoting)
    for queue, address in ((QA, A), (QB, B)):
        other = MessageQueue("t", queue.broker_name, 1)
        table = {each: TopicOffset(min_offset=2, max_offset=10) for each in (queue, other)}
        body = TopicStatsTable(offset_table=table).encode()
        remoting.response(RequestCode.GET_TOPIC_STATS_INFO, at=address, body=body)
    remoting.response(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext={"offset": "5"})
    when = datetime(2023, 11, 14, tzinfo=UTC)
    for to, expected in (("earliest", 2), ("latest", 10), (when, 5)):
        moves = await admin.reset_offset("g", "t", to, dry_run=True)  # type: ignore[arg-type]
        assert [each.to_offset for each in moves] == [expected] * 4
        assert [each.from_offset for each in moves] == [7, -1, 7, -1]
    [move] = await admin.reset_offset("g", "t", 8, queue=QA, dry_run=True)
    assert (move.queue, move.to_offset) == (QA, 8)
    assert not remoting.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)


async def test_dry_run_refuses_what_a_broker_would(admin: Admin, remoting: FakeRemoting) -> None:
    give_progress(remoting)
    give_groups(remoting, "g")
    table = {QA: TopicOffset(min_offset=2, max_offset=10)}
    body = TopicStatsTable(offset_table=table).encode()
    remoting.response(RequestCode.GET_TOPIC_STATS_INFO, body=body)
    for wrong in (1, 12, 99_999):
        with pytest.raises(BrokerError, match=r"not in consume queue range \[2-10\]"):
            await admin.reset_offset("g", "t", wrong, queue=QA, dry_run=True)
    for right in (2, 11):
        [move] = await admin.reset_offset("g", "t", right, queue=QA, dry_run=True)
        assert move.to_offset == right
    with pytest.raises(InvalidParameterError, match="Queue 7 of topic t does not exist"):
        await admin.reset_offset("g", "t", 5, queue=MessageQueue("t", "broker-a", 7), dry_run=True)
    with pytest.raises(SubscriptionGroupNotExistError, match="group h does not exist"):
        await admin.reset_offset("h", "t", "latest", dry_run=True)


async def test_offsets_are_cloned_queue_by_queue(admin: Admin, remoting: FakeRemoting) -> None:
    give_groups(remoting, "g", "h")
    give_progress(remoting)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    remoting.response(code)
    moves = await admin.clone_offsets("g", "h", "t", dry_run=True)
    assert not remoting.requests(code)
    assert await admin.clone_offsets("g", "h", "t") == moves
    assert [(address, request.ext_fields) for address, request in remoting.requests(code)] == [
        (A, {"consumerGroup": "h", "topic": "t", "queueId": "0", "commitOffset": "7"}),
        (B, {"consumerGroup": "h", "topic": "t", "queueId": "0", "commitOffset": "7"}),
    ]
    await admin.set_offsets("h", {QB: 1})
    assert remoting.asked[-1][0] == B


async def test_reset_of_one_queue_asks_its_broker_only(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_progress(remoting)
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    remoting.response(code, at=A, body=ResetOffsetBody(offset_table={QA: 0}).encode())
    [move] = await admin.reset_offset("g", "t", 0, queue=QA)
    assert (move.queue, move.from_offset, move.to_offset) == (QA, 7, 0)
    [(address, request)] = remoting.requests(code)
    assert (address, request.ext_fields["offset"]) == (A, "0")


async def test_queue_that_the_group_never_read_was_nowhere(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_progress(remoting)
    new = MessageQueue("t", "broker-a", 5)
    body = ResetOffsetBody(offset_table={new: 3, QA: 1}).encode()
    remoting.response(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, at=A, body=body)
    moves = await admin.reset_offset("g", "t", 3, queue=MessageQueue("t", "broker-a", 5))
    assert [(each.queue, each.from_offset) for each in moves] == [(QA, 7), (new, -1)]


async def test_reset_of_a_topic_without_brokers_raises(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, 17, remark="No topic route info")
    for operation in (
        admin.reset_offset("g", "t", "latest"),
        admin.clone_offsets("g", "h", "t"),
    ):
        with pytest.raises(TopicNotExistError):
            await operation
    assert not remoting.requests(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)


async def test_dry_run_by_time_asks_each_queue_for_its_offset(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_progress(remoting)
    give_groups(remoting, "g")
    for queue in (QA, QB):
        table = {queue: TopicOffset(min_offset=2, max_offset=10)}
        body = TopicStatsTable(offset_table=table).encode()
        at = BROKERS[queue.broker_name]
        remoting.response(RequestCode.GET_TOPIC_STATS_INFO, at=at, body=body)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    remoting.response(code, ext={"offset": "5"})
    when = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    await admin.reset_offset("g", "t", when, dry_run=True)
    asked = [(address, request.ext_fields) for address, request in remoting.requests(code)]
    assert [address for address, _ in asked] == [A, B]
    assert {fields["timestamp"] for _, fields in asked} == {"1700000000000"}
    assert {fields["queueId"] for _, fields in asked} == {"0"}


async def test_queue_whose_group_has_no_offset_is_not_cloned_nor_is_a_retry_topic(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_groups(remoting, "g", "h")
    retry = MessageQueue("%RETRY%g", "broker-a", 0)
    table = {
        QA: OffsetWrapper(broker_offset=10, consumer_offset=-1),
        MessageQueue("t", "broker-a", 1): OffsetWrapper(broker_offset=10, consumer_offset=0),
        MessageQueue("t", "broker-a", 2): OffsetWrapper(broker_offset=10, consumer_offset=0),
        retry: OffsetWrapper(broker_offset=10, consumer_offset=4),
    }
    remoting.response(
        RequestCode.GET_CONSUME_STATS, at=A, body=ConsumeStats(offset_table=table).encode()
    )
    remoting.response(RequestCode.GET_CONSUME_STATS, at=B, body=ConsumeStats().encode())

    def stored(request: RemotingCommand) -> RemotingCommand:
        """The statistics say 0 of queue 2 as well, but nothing is stored there."""
        assert request.ext_fields["setZeroIfNotFound"] == "false"
        if request.ext_fields["queueId"] == "1":
            return make_response(request, ext_fields={"offset": "0"})
        return make_response(request, ResponseCode.QUERY_NOT_FOUND, "Not found")

    remoting.response_with(RequestCode.QUERY_CONSUMER_OFFSET, stored)
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET)
    [move] = await admin.clone_offsets("g", "h", "t")
    assert (move.queue.queue_id, move.from_offset, move.to_offset) == (1, 0, 0)
    assert len(remoting.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == 1


@pytest.mark.parametrize("dry_run", [True, False])
async def test_group_that_does_not_exist_is_not_cloned_nor_cloned_to(
    admin: Admin, remoting: FakeRemoting, *, dry_run: bool
) -> None:
    give_progress(remoting)
    give_groups(remoting, "g")
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET)
    for source, target in (("nobody", "g"), ("g", "nobody")):
        with pytest.raises(SubscriptionGroupNotExistError, match="group nobody does not exist"):
            await admin.clone_offsets(source, target, "t", dry_run=dry_run)
    assert not remoting.requests(RequestCode.UPDATE_CONSUMER_OFFSET)


async def test_offsets_of_a_broker_that_is_not_there_are_an_error(
    admin: Admin, remoting: FakeRemoting
) -> None:
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET)
    with pytest.raises(ClientError, match="broker-x"):
        await admin.set_offsets("g", {QA: 1, MessageQueue("t", "broker-x", 0): 1})
    assert not remoting.requests(RequestCode.UPDATE_CONSUMER_OFFSET), "all of them or none"


@pytest.mark.parametrize("dry_run", [True, False])
async def test_clone_with_a_silent_broker_copies_at_the_others(
    admin: Admin, remoting: FakeRemoting, *, dry_run: bool
) -> None:
    give_groups(remoting, "g", "h")
    give_progress(remoting)
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET)
    remoting.down = {B}
    with pytest.raises(ServersFailedError) as caught:
        await admin.clone_offsets("g", "h", "t", dry_run=dry_run)
    assert caught.value.failures.keys() == {"broker-b"}
    assert caught.value.done == {
        "broker-a": [OffsetMove(queue=QA, from_offset=7, to_offset=7)],
    }
    changed = remoting.addresses(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert changed == ([] if dry_run else [A])


async def test_clone_with_a_broker_that_refuses_offsets_copies_at_the_others(
    admin: Admin, remoting: FakeRemoting
) -> None:
    give_groups(remoting, "g", "h")
    give_progress(remoting)
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET, at=B)
    remoting.response(RequestCode.UPDATE_CONSUMER_OFFSET, 1, at=A, remark="broken")
    with pytest.raises(ServersFailedError, match="broken; done at broker-b"):
        await admin.clone_offsets("g", "h", "t")
    with pytest.raises(ServersFailedError, match="broken; done at broker-b"):
        await admin.set_offsets("h", {QA: 1, QB: 2})
