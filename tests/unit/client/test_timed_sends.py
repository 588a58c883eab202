"""Timed sends to brokers of any age, and calling them back."""

import pytest

from rocketpy.errors import BrokerError, IllegalMessageError, NoRouteError
from rocketpy.proto.recall_handle import RecallHandle
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import Cluster, run_sim

SEND = 310


def older(_: str, request: RemotingCommand) -> RemotingCommand:
    fields = {"msgId": "OFF0", "queueId": "0", "queueOffset": "0", "offset": "0"}
    response = make_response(request, ext_fields=fields)
    response.version = 409
    return response


def test_delayed_send_to_an_old_broker_uses_a_delay_level() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=0)
            cluster.script[30] = [older]
            cluster.script[SEND] = [older] * 3
            for delay in (0.2, 4.9):
                await producer.send("t", b"x", delay=delay)
            producer.send_oneway("t", b"x", delay=1.0)
            with pytest.raises(IllegalMessageError, match="two hours"):
                await producer.send("t", b"x", delay=10_000)
        assert len(cluster.of_code(30)) == 1, "it is asked once"
        sent = [parse_properties(each.ext_fields["i"]) for each in cluster.of_code(SEND)]
        assert [each["DELAY"] for each in sent] == ["1", "2", "1"]
        assert not [each for each in sent if "TIMER_DELAY_MS" in each]

    run_sim(main, brokers=1)


def test_message_is_called_back_at_its_broker() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            sent = await producer.send("t", b"x", delay=60)
            assert sent.recall_handle is not None
            with pytest.raises(BrokerError, match="recallMessageEnable"):
                await producer.recall("t", sent.recall_handle)
            cluster.script[370] = [recalled]
            assert await producer.recall("t", sent.recall_handle) == "ID"
            for topic, handle in (("u", sent.recall_handle), ("t", "x"), ("t", "")):
                with pytest.raises(IllegalMessageError):
                    await producer.recall(topic, handle)
            plain = await producer.send("t", b"x")
            with pytest.raises(IllegalMessageError, match="no recall handle"):
                await producer.recall("t", plain.recall_handle)  # type: ignore[arg-type] # as a stranger would
            unknown = RecallHandle("t", "nobody", "1", "id").encode()
            with pytest.raises(NoRouteError, match="nobody"):
                await producer.recall("t", unknown)
        requests = cluster.of_code(370)
        assert [each.ext_fields["recallHandle"] for each in requests] == [sent.recall_handle] * 2

    run_sim(main)


def recalled(_: str, request: RemotingCommand) -> RemotingCommand:
    return make_response(request, ext_fields={"msgId": "ID"})


def test_delay_beyond_the_limit_is_an_illegal_message_of_either_side() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for delay, words in ((30 * 86_400, "3 days"), (-1, "delay")):
                with pytest.raises(IllegalMessageError, match=words):
                    await client.producer().send("t", b"x", delay=delay)

    run_sim(main, properties={"timerWheelEnable": "true"})
