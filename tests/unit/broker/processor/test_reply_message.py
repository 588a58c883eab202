"""Replies are forwarded to the requester, and stored."""

from typing import Any

import pytest

from rocketpy.broker.clients.client_registry import ClientChannel
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.processor.reply_message import ReplyMessageProcessor
from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.proto.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketpy.proto.record.properties import parse_properties, properties_text
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.broker.fakes import FakeChannel, FakeClock, request

ANSWER = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "1", "MSG_TYPE": "reply"}


class Asker(FakeChannel):
    """The connection of a client that asked."""

    def __init__(self, answer: int | Exception) -> None:
        super().__init__()
        self.answer = answer
        self.got: list[RemotingCommand] = []

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert timeout_ms == 10_000
        self.got.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return make_response(command, self.answer, "no")


class Kit:
    def __init__(self, answer: int | Exception = 0, **config: Any) -> None:
        self.asker = Asker(answer)
        self.admitted: object = "a policy"
        self.stored: list[SendRequest] = []
        self.outcome: Sent | Refusal = Sent(99, 0, 5, "U")
        self.settled: list[Any] = []
        client: Any = self.asker
        member = ClientChannel(client, "asker", 0, 0, 0)
        self.processor = ReplyMessageProcessor(
            lambda _: self.admitted,
            self._store,
            self._when_settled,
            {"asker": member}.get,
            store_host=lambda: b"\x0a\0\0\x02\0\0\x2a\x9f",
            config=BrokerConfig(broker_name="b", **config),
            clock=FakeClock(),
        )

    def _store(self, sent: SendRequest) -> Sent | Refusal:
        self.stored.append(sent)
        return self.outcome

    def _when_settled(self, sent: Sent, done: Any) -> None:
        self.settled.append(sent)
        done(None)

    async def reply(
        self, properties: dict[str, str] | None = None, *, code: int = 325, oneway: bool = False
    ) -> Any:
        kind = SendMessageRequestHeaderV2 if code == 325 else SendMessageRequestHeader
        header = kind(
            producer_group="pg",
            topic="C_REPLY_TOPIC",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=1,
            born_timestamp=5,
            flag=3,
            properties=properties_text(ANSWER if properties is None else properties),
        )
        command = request(code, header.to_ext(), b"yes")
        if oneway:
            command.flag |= 2
        channel: Any = FakeChannel()
        return await self.processor.reply(channel, command)


@pytest.mark.parametrize("code", [324, 325])
async def test_reply_is_forwarded_and_stored(code: int) -> None:
    kit = Kit()
    response = await kit.reply(code=code)
    assert response.code == 0
    assert response.ext_fields["msgId"] == "0A00000200002A9F0000000000000063"
    assert response.ext_fields["queueOffset"] == "5"
    assert response.ext_fields["TRACE_ON"] == "true"
    (push,) = kit.asker.got
    assert (push.code, push.body) == (326, b"yes")
    told = ReplyMessageRequestHeader.from_ext(push.ext_fields)
    assert (told.flag, told.sys_flag, told.store_host) == (3, 1, "10.0.0.2:10911")
    properties = parse_properties(told.properties or "")
    assert properties.pop("PUSH_REPLY_TIME")
    assert properties == ANSWER
    assert parse_properties(kit.stored[0].properties) == ANSWER


async def test_reply_without_storing_has_no_position() -> None:
    kit = Kit(store_reply_message_enable=False)
    response = await kit.reply()
    assert (response.code, response.ext_fields["msgId"]) == (0, "0")
    assert kit.stored == []


@pytest.mark.parametrize(
    ("properties", "answer", "remark"),
    [
        ({}, 0, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": "x"}, 0, "push reply message fail, channel of <x> not found."),
        (ANSWER, 1, "push reply message to asker fail."),
        (ANSWER, RequestTimeoutError("late"), "push reply message to asker fail."),
        (ANSWER, ConnectionLostError("gone"), "push reply message to asker fail."),
    ],
)
async def test_reply_not_forwarded_is_reported_and_stored(
    properties: dict[str, str], answer: int | Exception, remark: str
) -> None:
    kit = Kit(answer)
    response = await kit.reply(properties)
    assert (response.code, response.remark) == (1, remark)
    assert response.ext_fields["queueOffset"] == "5"
    assert len(kit.stored) == 1


async def test_reply_to_forbidden_topic_is_refused() -> None:
    kit = Kit()
    kit.admitted = Refusal(17, "no topic")
    response = await kit.reply()
    assert (response.code, response.remark) == (17, "no topic")
    assert kit.asker.got == []
    assert kit.stored == []


async def test_reply_not_stored_is_still_forwarded() -> None:
    kit = Kit()
    kit.outcome = Refusal(14, "disk full")
    response = await kit.reply()
    assert (response.code, response.ext_fields["msgId"]) == (0, "0")


async def test_reply_sync_flush_waits_for_disk() -> None:
    kit = Kit()
    kit.outcome = Sent(99, 0, 5, "U", durable_at=200)
    assert (await kit.reply()).code == 0
    assert kit.settled == [kit.outcome]


async def test_reply_oneway_has_no_response() -> None:
    kit = Kit()
    assert await kit.reply(oneway=True) is None
    assert len(kit.asker.got) == len(kit.stored) == 1
