"""Routes become queues and addresses; concurrent callers share one request."""

import asyncio
import random
import traceback
from typing import Any

import pytest

from rocketpy.client.cluster.name_servers import NameServers
from rocketpy.client.cluster.route_table import RouteTable, publish_queues, subscribe_queues
from rocketpy.errors import (
    BadBodyError,
    BrokerError,
    ConnectError,
    NoNameServerError,
    NoRouteError,
    TopicNotWritableError,
)
from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import AUTO_CREATE_TOPIC
from rocketpy.proto.wire.command import RemotingCommand, make_response

READ_WRITE, READ_ONLY, WRITE_ONLY = 6, 4, 2
NO_TOPIC = 17


def route(*brokers: str, queues: int = 2, perm: int = READ_WRITE, **more: Any) -> TopicRouteData:
    """Each broker has a master at `name:1`."""
    return TopicRouteData(
        queue_datas=[QueueData(name, queues, queues, perm) for name in brokers],
        broker_datas=[BrokerData("c", name, {0: f"{name}:1"}) for name in brokers],
        **more,
    )


class FakeRemoting:
    """Name servers that know `routes`; a number there is the code of a refusal."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData | int | Exception] = {}
        self.asked: list[str] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        topic = command.ext_fields["topic"]
        self.asked.append(topic)
        await asyncio.sleep(0)
        known = self.routes.get(topic, NO_TOPIC)
        if isinstance(known, Exception):
            raise known
        if isinstance(known, int):
            return make_response(command, known, "refused")
        return make_response(command, 0, body=known.encode())


class Kit:
    def __init__(self) -> None:
        self.remoting = FakeRemoting()
        remoting: Any = self.remoting
        self.table = RouteTable(NameServers(["n:9876"], remoting, random.Random(1), 1_000))
        self.changed: list[str] = []
        self.table.on_change.append(self.changed.append)


def ids(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_permissions_and_masters_choose_the_queues() -> None:
    found = route("b", "a")
    assert ids(publish_queues("t", found)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    found.broker_datas[0].broker_addrs = {1: "b:2"}
    assert ids(publish_queues("t", found)) == [("a", 0), ("a", 1)], "a slave takes no message"
    assert len(subscribe_queues("t", found)) == 4, "but may be read"
    assert publish_queues("t", route("a", perm=READ_ONLY)) == ()
    assert subscribe_queues("t", route("a", perm=WRITE_ONLY)) == ()


def test_numbers_of_queues_to_write_and_to_read_may_differ() -> None:
    found = route("a")
    found.queue_datas = [QueueData("a", read_queue_nums=3, write_queue_nums=1, perm=READ_WRITE)]
    assert (len(publish_queues("t", found)), len(subscribe_queues("t", found))) == (1, 3)


def test_order_says_which_queues_are_written() -> None:
    found = route("a", queues=9, order_topic_conf="b:1;a:2;")
    assert ids(publish_queues("t", found)) == [("b", 0), ("a", 0), ("a", 1)]


@pytest.mark.parametrize("order", ["a:x", "a:1:2", "a:"])
async def test_unreadable_order_configuration_raises_and_keeps_the_route(order: str) -> None:
    kit = Kit()
    kit.remoting.routes = {"t": route("a"), "u": route("a")}
    known = await kit.table.publish_queues("t")
    await kit.table.subscribe_queues("u")
    kit.remoting.routes["t"] = route("b", order_topic_conf=order)
    kit.remoting.routes["u"] = route("b")
    with pytest.raises(BadBodyError, match="t"):
        await kit.table.refresh_all()
    assert await kit.table.publish_queues("t") == known
    assert ids(await kit.table.subscribe_queues("u")) == [("b", 0), ("b", 1)]


@pytest.mark.parametrize(
    "hostile",
    [
        route("b", queues=2**31 - 1),
        route("b", queues=40_000, order_topic_conf="b:1"),
        route("b", order_topic_conf="b:65536;a:1"),
        route("b", order_topic_conf=";".join(["b:2147483647"] * 100)),
    ],
    ids=["queues", "queues_to_read", "order", "long_order"],
)
async def test_millions_of_queues_are_not_believed_and_the_route_stays(
    hostile: TopicRouteData,
) -> None:
    kit = Kit()
    kit.remoting.routes = {"t": route("a")}
    known = await kit.table.publish_queues("t")
    hostile.queue_datas = hostile.queue_datas * 2
    kit.remoting.routes["t"] = hostile
    with pytest.raises(BadBodyError, match="more than 65536 queues"):
        await kit.table.refresh_all()
    assert await kit.table.publish_queues("t") == known


async def test_callers_at_once_share_one_request() -> None:
    kit = Kit()
    kit.remoting.routes["t"] = route("a")
    found = await asyncio.gather(*(kit.table.publish_queues("t") for _ in range(5)))
    assert kit.remoting.asked == ["t"]
    assert all(ids(one) == [("a", 0), ("a", 1)] for one in found)
    assert await kit.table.publish_queues("t") == kit.table.cached_publish_queues("t")
    assert kit.remoting.asked == ["t"], "what is known is not asked for"


def depth(error: BaseException) -> int:
    """Return how many frames an error's trace has."""
    return len(traceback.extract_tb(error.__traceback__))


async def test_callers_at_once_have_an_error_each_that_does_not_grow_with_their_number() -> None:
    kit = Kit()
    failure = ConnectError("down")
    failure.add_note("try the other one")
    kit.remoting.routes["t"] = failure
    errors = await asyncio.gather(
        *(kit.table.refresh("t") for _ in range(9)), return_exceptions=True
    )
    found = [error for error in errors if isinstance(error, NoNameServerError)]
    assert len({id(error) for error in found}) == 9
    assert len({depth(error) for error in found}) == 1
    found[0].add_note("for one")
    assert "for one" not in getattr(found[1], "__notes__", [])
    assert len(kit.remoting.asked) == 1


async def test_cancelled_refresh_leaves_the_route_to_other_callers() -> None:
    kit = Kit()
    kit.remoting.routes["t"] = route("a")
    one = asyncio.create_task(kit.table.subscribe_queues("t"))
    two = asyncio.create_task(kit.table.subscribe_queues("t"))
    await asyncio.sleep(0)
    one.cancel()
    assert len(await two) == 2
    assert one.cancelled()


async def test_topic_without_brokers_keeps_its_route() -> None:
    kit = Kit()
    kit.remoting.routes["t"] = route("a")
    known = await kit.table.publish_queues("t")
    del kit.remoting.routes["t"]
    await kit.table.refresh("t")
    assert kit.table.cached_publish_queues("t") == known
    assert kit.table.master_address("a") == "a:1"


async def test_only_a_changed_route_calls_listeners() -> None:
    kit = Kit()
    kit.remoting.routes["t"] = route("a")
    for _ in range(3):
        await kit.table.refresh("t")
    assert kit.changed == ["t"]
    kit.remoting.routes["t"] = route("a", queues=3)
    await kit.table.refresh("t")
    assert kit.changed == ["t", "t"]
    assert len(await kit.table.subscribe_queues("t")) == 3


async def test_first_message_of_a_topic_goes_where_topics_are_created() -> None:
    kit = Kit()
    kit.remoting.routes["TBW102"] = route("a", queues=8)
    assert len(await kit.table.publish_queues("new")) == 4, "the client's limit"
    assert kit.table.master_address("a") == "a:1"
    kit.remoting.routes["new"] = route("a", queues=1)
    await kit.table.refresh_all()
    assert len(await kit.table.publish_queues("new")) == 1


async def test_topic_that_its_first_message_creates_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    kit = Kit()
    kit.remoting.routes["TBW102"] = route("a", queues=8)
    for _ in range(3):
        await kit.table.publish_queues("ordesr")
    lines = [each.getMessage() for each in caplog.records if "first message" in each.getMessage()]
    assert lines == ["topic is new, its first message creates it: topic=ordesr"]


async def test_missing_broker_to_write_to_raises() -> None:
    kit = Kit()
    with pytest.raises(NoRouteError, match="new"):
        await kit.table.publish_queues("new")
    kit.remoting.routes["TBW102"] = route("a", perm=READ_ONLY)
    with pytest.raises(NoRouteError):
        await kit.table.publish_queues("new")
    assert await kit.table.subscribe_queues("new") == ()


async def test_readonly_topic_is_not_created_again() -> None:
    kit = Kit()
    kit.remoting.routes = {"TBW102": route("a", queues=8), "t": route("a", perm=READ_ONLY)}
    for _ in range(2):
        with pytest.raises(TopicNotWritableError, match="topic t takes no messages") as failure:
            await kit.table.publish_queues("t")
        assert not failure.value.retriable
    assert "TBW102" not in kit.remoting.asked
    assert kit.changed == ["t"], "told once"
    kit.remoting.routes["t"] = route("a", queues=1)
    assert len(await kit.table.publish_queues("t")) == 1, "an operator changed it back"


async def test_writable_topic_that_becomes_read_only_is_refused_with_its_next_route() -> None:
    kit = Kit()
    kit.remoting.routes = {"TBW102": route("a", queues=8), "t": route("a")}
    assert len(await kit.table.publish_queues("t")) == 2
    kit.remoting.routes["t"] = route("a", perm=READ_ONLY)
    await kit.table.refresh_all()
    with pytest.raises(TopicNotWritableError):
        await kit.table.publish_queues("t")


async def test_read_only_topic_that_was_deleted_may_be_created_and_come_back_as_it_was() -> None:
    kit = Kit()
    read_only = route("a", perm=READ_ONLY)
    kit.remoting.routes = {"TBW102": route("a", queues=8), "t": read_only}
    with pytest.raises(TopicNotWritableError):
        await kit.table.publish_queues("t")
    kit.remoting.routes["t"] = NO_TOPIC
    assert len(await kit.table.publish_queues("t")) == 4
    kit.remoting.routes["t"] = read_only
    await kit.table.refresh("t")
    with pytest.raises(TopicNotWritableError):
        await kit.table.publish_queues("t")


async def test_topic_without_a_master_waits_for_one_and_goes_nowhere_else() -> None:
    kit = Kit()
    without = route("a")
    without.broker_datas[0].broker_addrs = {1: "a:2"}
    kit.remoting.routes = {"TBW102": route("b", queues=8), "t": without}
    with pytest.raises(NoRouteError, match="no master") as failure:
        await kit.table.publish_queues("t")
    assert failure.value.retriable
    kit.remoting.routes["t"] = route("a")
    assert ids(await kit.table.publish_queues("t")) == [("a", 0), ("a", 1)]


async def test_refresh_of_all_tries_all_and_raises_the_last_failure() -> None:
    kit = Kit()
    for topic in ("a", "b", "c"):
        assert await kit.table.subscribe_queues(topic) == ()
    kit.remoting.routes = {"a": ConnectError("down"), "b": 1, "c": route("x")}
    with pytest.raises(BrokerError) as failure:
        await kit.table.refresh_all()
    assert failure.value.code == 1
    assert len(await kit.table.subscribe_queues("c")) == 2
    kit.remoting.routes["b"] = route("x")
    with pytest.raises(NoNameServerError):
        await kit.table.refresh_all()


async def test_read_address_prefers_the_suggested_broker() -> None:
    kit = Kit()
    found = route("a")
    found.broker_datas[0].broker_addrs = {0: "a:1", 1: "a:2", 3: "a:4"}
    kit.remoting.routes["t"] = found
    await kit.table.refresh("t")
    table = kit.table
    assert table.read_address("a") == ("a:1", False)
    assert table.read_address("a", 1) == ("a:2", True)
    assert table.read_address("a", 2) == ("a:4", True), "the next one"
    assert table.read_address("a", 9) == ("a:1", False), "any"
    assert table.read_address("b") is None
    assert table.broker_addresses(with_slaves=False) == ["a:1"]
    assert table.broker_addresses(with_slaves=True) == ["a:1", "a:2", "a:4"]
    assert table.brokers_of(["t", "unknown"]) == ["a:1"]


async def test_thousands_of_brokers_are_not_believed_and_the_route_stays() -> None:
    kit = Kit()
    kit.remoting.routes = {"t": route("a")}
    known = await kit.table.publish_queues("t")
    hostile = route("b")
    hostile.broker_datas[0].broker_addrs = {number: f"b:{number}" for number in range(4_097)}
    kit.remoting.routes["t"] = hostile
    with pytest.raises(BadBodyError, match="more than 4096 brokers"):
        await kit.table.refresh_all()
    assert await kit.table.publish_queues("t") == known
    kit.remoting.routes = {AUTO_CREATE_TOPIC: hostile}
    with pytest.raises(BadBodyError, match="more than 4096 brokers"):
        await kit.table.publish_queues("new")


async def test_brokers_that_come_and_go_for_ever_are_forgotten() -> None:
    kit = Kit()
    kit.remoting.routes = {"t": route("a"), "u": route("u")}
    await kit.table.publish_queues("u")
    for number in range(5):
        kit.remoting.routes["t"] = route(*(f"{number}-{name}" for name in range(4_000)), queues=1)
        await kit.table.refresh("t")
        assert len(kit.table._brokers) <= 3 * 4_096
    assert kit.table.master_address("u") == "u:1"
    assert kit.table.master_address("4-3999")
    assert kit.table.master_address("0-0") is None


async def test_response_without_a_route_is_a_bad_body() -> None:
    kit = Kit()

    async def nothing(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert address
        assert timeout_ms
        return make_response(command)

    kit.remoting.invoke = nothing  # type: ignore[method-assign]
    with pytest.raises(BadBodyError, match="without the route of topic t"):
        await kit.table.refresh("t")


async def test_slave_that_acts_for_its_master_is_no_lasting_refusal() -> None:
    kit = Kit()
    found = route("a")
    found.queue_datas[0].perm = 4  # name servers remove the write permission meanwhile
    found.broker_datas[0].enable_acting_master = True
    kit.remoting.routes["t"] = found
    with pytest.raises(NoRouteError, match="no master of a is registered now") as caught:
        await kit.table.publish_queues("t")
    assert caught.value.retriable
    assert not isinstance(caught.value, TopicNotWritableError)
