"""Health and warnings: a fault and its end are logged once each, and shown by health()."""

import logging
from typing import Any

import pytest

from rocketpy.client.consumer.rebalance import MissingTopics
from rocketpy.client.health import ClientHealth, ConsumerHealth
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.sending.result import SendStatus
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.testing.sim_clock import SimClock
from tests.unit.client.sim import BROKER_A, NAMESRV, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

KINDS = ["consumer", "pop_consumer"]
PULL, HEARTBEAT, MEMBERS = 11, 34, 38


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "rocketpy.client")

    def since_the_last_time() -> list[str]:
        lines = [each.getMessage() for each in caplog.records if each.name.startswith("rocketpy.c")]
        caplog.clear()
        return lines

    return since_the_last_time


@pytest.mark.parametrize("kind", [*KINDS, "pull_consumer"])
def test_missing_topic_is_logged_once_and_again_when_it_appears(kind: str, warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            if kind == "pull_consumer":
                consumer: Any = client.pull_consumer(group="c")
                await consumer.start()
                await consumer.subscribe("orders")
            else:
                consumer = getattr(client, kind)("orders", group="c", handler=nothing)
                await consumer.start()
            await pass_time(90)
            [line] = warnings()
            assert "no broker has the topic, create it or check its name" in line
            assert not client.health().ok
            [(what, why)] = consumer.health().failures.items()
            assert what == "topic orders"
            assert "create it" in why
            cluster.create_topic("orders")
            await until(lambda: consumer.health().ok, 60)
            [line] = [line for line in warnings() if "topic" in line]
            assert line == "topic exists now: topic=orders group=c"
            await consumer.close()

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_topic_that_follows_soon_is_worth_no_warning(kind: str, warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer: Any = getattr(client, kind)("orders", group="c", handler=nothing)
            await consumer.start()
            await pass_time(3)
            assert "topic orders" in consumer.health().failures
            cluster.create_topic("orders")
            await until(lambda: consumer.health().ok, 60)
            await consumer.close()
            assert warnings() == []

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_topic_that_is_subscribed_later_is_read_once_brokers_have_heard_of_it(
    kind: str, warnings: Any
) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("u")
        async with cluster.client() as client:
            async with getattr(client, kind)("t", group="c", handler=nothing) as consumer:
                consumer.subscribe("u")
                consumer.subscribe("t", "a || b")
                await until(lambda: {each.topic for each in consumer.assignment} >= {"t", "u"}, 5)
                await pass_time(40)
                assert consumer.health().ok
        assert warnings() == []

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [{"topic": ["u"]}, {"topic": "u", "filter": ["a"]}])
def test_subscribe_to_a_non_string_raises(kind: str, wrong: dict[str, Any]) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = getattr(client, kind)("t", group="c")
            with pytest.raises(TypeError, match="takes one text as"):
                consumer.subscribe(**wrong)

    run_sim(main)


def test_restarted_broker_gets_a_heartbeat_first(warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing):
                await pass_time(25)
                cluster.script[MEMBERS] = [1]
                cluster.requests.clear()
                await pass_time(25)
                codes = [request.code for _, request in cluster.requests]
                at = codes.index(MEMBERS)
                again = codes.index(MEMBERS, at + 1)
                assert HEARTBEAT in codes[at:again]
        assert warnings() == []

    run_sim(main, queues=1)


@pytest.mark.parametrize("is_inside", [True, False])
def test_reset_is_no_warning_and_a_lost_message_is(is_inside: bool, warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)

        def step(_: str, request: RemotingCommand) -> RemotingCommand | None:
            if request.ext_fields["topic"] != "t":
                cluster.script[PULL].append(step)
                return None
            first = "0" if is_inside else "2"
            fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": "2"}
            fields |= {"minOffset": first, "maxOffset": "4"}
            return make_response(request, 21, ext_fields=fields)

        cluster.script[PULL].append(step)
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing, start="earliest"):
                await pass_time(5)
        lines = [line for line in warnings() if "goes on at 2" in line]
        assert ["no such message" in line for line in lines] == [] if is_inside else [True]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", [*KINDS, "responder"])
def test_consumer_that_was_never_started_logs_a_warning_at_close(kind: str, warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            getattr(client, kind)("t", group="forgotten", handler=nothing)
            client.consumer("t", group="without")
            async with getattr(client, kind)("t", group="started", handler=nothing):
                pass
        [line] = warnings()
        assert "consumer never started" in line
        assert line.endswith("group=forgotten")

    run_sim(main)


@pytest.mark.parametrize("tags", ["a | b", "a,b", "a || b,c"])
def test_filter_with_a_suspicious_single_tag_logs_a_warning(tags: str, warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for each in ("a || b", "*", tags):
                client.consumer("t", group="c", filter=each)
            client.consumer("t", group="c", sql="a IN ('b', 'c')")
        [line] = warnings()
        assert f"filter={tags!r} topic=t" in line
        assert "did you mean ||" in line

    run_sim(main)


def test_retry_topic_is_not_missed_before_its_first_message() -> None:
    unserved = MissingTopics("c", SimClock())
    unserved.note("%RETRY%c", is_served=False)
    assert unserved.failures() == {}
    unserved.note("a", is_served=False)
    assert list(unserved.failures()) == ["topic a"]


def test_name_server_failure_and_recovery_are_logged_and_in_health(warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.producer().send("t", b"x")
            assert client.health().ok
            cluster.down.add(NAMESRV)
            await pass_time(35)
            health = client.health()
            assert not health.ok
            assert NAMESRV in health.failures["name server"]
            [line] = warnings()
            assert "background job failed, retried: job=routes" in line
            cluster.down.clear()
            await until(lambda: client.health().ok, 6)
            assert warnings() == ["background job recovered: job=routes"]

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_broker_that_came_back_is_known_to_be_back_within_seconds(kind: str, warnings: Any) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client(heartbeat_interval=600) as client:
            async with getattr(client, kind)("t", group="c", handler=nothing) as consumer:
                await pass_time(5)
                cluster.down.add(BROKER_A)
                await pass_time(40)
                health = consumer.health()
                assert not health.ok
                assert any(BROKER_A in why for why in health.failures.values())
                told = [
                    line for line in warnings() if "failed, retried" in line and "group=c" in line
                ]
                assert len(told) == 1
                assert "broker-a" in told[0]
                cluster.down.clear()
                await until(lambda: consumer.health().ok, 6)
                back = [line for line in warnings() if "recovered: " in line and "group=c" in line]
                assert len(back) == len(told)

    run_sim(main)


def test_repr_of_enums_is_their_name() -> None:
    assert str(SendStatus.SEND_OK) == f"{SendStatus.SEND_OK}" == "SEND_OK"
    assert str(TxState.ROLLBACK) == "ROLLBACK"
    assert f"{SendStatus.SEND_OK:d}" == "0"


def test_repr_of_a_client_shows_its_counts() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        assert repr(client) == "<Client of group g, not started>"
        async with client:
            producer = client.producer(group="shop")
            await producer.send("t", b"x")
            assert str(producer) == "<Producer of group shop, 0 in flight>"
            assert str(producer.stats) == (
                "SendStats(begun=1, in_flight=0, in_flight_bytes=0, failed=0, retried=0, "
                "lost_oneway=0)"
            )
            tx = producer.transaction("t", b"x")
            assert repr(tx) == "<Transaction, not begun>"
            async with tx:
                assert repr(tx) == f"<Transaction {tx.id}, open>"
            assert repr(tx) == f"<Transaction {tx.id}, COMMIT, confirmed>"
            assert repr(client.pull_consumer(group="p")) == "<PullConsumer of group p>"
            pop = client.pop_consumer("t", group="pop")
            assert repr(pop) == "<PopConsumer of group pop, topics: t, not started>"
            assert repr(client) == "<Client of group g, running>"
        assert repr(client) == "<Client of group g, closed>"

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_repr_of_a_consumer_shows_its_counts(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)

        async def handle(message: Any) -> None:
            if message.body == b"3" and not message.retries:
                raise KeyError

        async with cluster.client() as client:
            make = getattr(client, kind)
            consumer = make("t", group="c", handler=handle, start="earliest", max_retries=0)
            assert repr(consumer).endswith("of group c, topics: t, not started>")
            assert str(consumer.stats) == "ConsumeStats()"
            async with consumer:
                await until(lambda: consumer.stats.counts.get("t", (0, 0, 0))[1:3] == (3, 1))
                counts = consumer.stats.counts["t"]
                assert (counts.received, counts.handled, counts.failed) == (4, 3, 1)
                said = str(consumer.stats)
                assert said.startswith("ConsumeStats(t: received=4 handled=3 failed=1 ")
                assert "not started" not in repr(consumer)
                await until(lambda: client.health().ok)
                said = str(client.health())
                assert said.startswith(f"client {client.client_id} at {NAMESRV}: ok; c: ok, lag ")
            assert repr(consumer).endswith(", closed>")

    run_sim(main)


def test_health_that_is_not_well_says_why() -> None:
    health = ClientHealth(
        "me", None, {"routes": "no name server"}, {"c": ConsumerHealth("c", {}, {"t": "gone"})}
    )
    assert str(health) == (
        "client me at no name server: not ok (routes: no name server); "
        "c: not ok (t: gone), lag 0 in 0 queues"
    )
