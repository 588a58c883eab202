"""Masters and slaves of a snapshot, and ranges that only an absent master may have."""

from typing import Any, cast

import pytest

from rocketpy.admin.servers import Servers
from rocketpy.errors import NoRouteError, TopicNotExistError
from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.options import parse_options
from rocketpy.spark.read_options import ReadOptions
from rocketpy.spark.source.snapshot import (
    Ends,
    Snapshot,
    broker_addresses,
    check_at_slaves,
    take_snapshot,
)

QUEUE = MessageQueue("T", "a", 0)


def route(perm: int, addresses: dict[int, str], **changes: Any) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[QueueData("a", 4, 4, perm, 0)],
        broker_datas=[BrokerData("c", "a", addresses, **changes)],
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (route(6, {0: "m:1", 1: "s:1"}), {0: "m:1", 1: "s:1"}),
        (route(6, {1: "s:1"}), {1: "s:1"}),
        (route(4, {0: "s:1"}, enable_acting_master=True), {1: "s:1"}),
        (route(6, {0: "m:1"}, enable_acting_master=True), {0: "m:1"}),
        (route(4, {0: "m:1"}), {0: "m:1"}),
    ],
)
def test_acting_slave_is_no_master(found: TopicRouteData, expected: dict[int, str]) -> None:
    assert broker_addresses(found) == {"a": expected}


def test_range_that_a_slave_does_not_have_is_an_error_that_passes() -> None:
    taken = Snapshot(
        {QUEUE: Ends(0, 10)},
        {},
        {"a": {1: "s:1"}},
        frozenset({"T"}),
        frozenset(),
        {},
        frozenset({"a"}),
    )
    outside = [QueueRange("T", "a", 0, 10, 20)]
    with pytest.raises(NoRouteError, match=r"master of broker a is away.*0\.\.10") as caught:
        check_at_slaves(taken, outside)
    assert caught.value.retriable

    check_at_slaves(taken._replace(slaves=frozenset()), outside)


class SlaveOfALostMaster:
    """Servers of which the only broker has not learnt of a new topic yet."""

    async def topic_route(self, topic: str) -> TopicRouteData:
        return route(6, {1: "s:1"})

    async def ask(self, *_request: object) -> object:
        raise TopicNotExistError(17, "topic[T] not exist")


async def test_snapshot_of_a_slave_that_lacks_a_new_topic_waits_in_a_stream_only() -> None:
    servers = cast(Servers, SlaveOfALostMaster())
    options = parse_options({"nameservers": "127.0.0.1:9876", "subscribe": "T"}, ReadOptions)
    taken = await take_snapshot(servers, options, is_patient=True)
    assert list(taken.unreachable) == ["a"]
    with pytest.raises(TopicNotExistError):
        await take_snapshot(servers, options)
