"""Requests to brokers: what goes out, how long it may take, and what the responses mean."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.client.cluster.broker_api import (
    LOCK_TIMEOUT_MS,
    OFFSET_TIMEOUT_MS,
    SEND_BACK_TIMEOUT_MS,
    BrokerApi,
    PullStatus,
    pull_result,
)
from rocketpy.errors import BadBodyError, BrokerError, NoPermissionError, SystemFaultError
from rocketpy.proto.bodies.heartbeat import GetConsumerListByGroupResponseBody
from rocketpy.proto.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    RecallMessageRequestHeader,
)
from rocketpy.proto.headers.transaction import EndTransactionRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response

AT = "10.0.0.1:10911"
TIMEOUT_MS = 3_000
QUEUE = MessageQueue("t", "broker-a", 3)


class Remoting:
    """Notes what goes out; every response is the one that was set."""

    on_silence: Callable[[str], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self.sent: list[tuple[str, RemotingCommand, int]] = []
        self.oneway: list[RemotingCommand] = []
        self.set()

    def set(self, code: int = 0, body: bytes = b"", remark: str = "", **ext: str) -> None:
        self.response = (code, remark, ext, body)

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.sent.append((address, command, timeout_ms))
        return make_response(command, *self.response)

    def invoke_future(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        return asyncio.ensure_future(self.invoke(address, command, timeout_ms))

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, _address: str, command: RemotingCommand, _ms: int) -> None:
        assert command.is_oneway
        self.oneway.append(command)


class Kit:
    def __init__(self) -> None:
        self.remoting = Remoting()
        self.api = BrokerApi(self.remoting, TIMEOUT_MS)  # type: ignore[arg-type]

    def last(self) -> tuple[int, dict[str, str], bytes, int]:
        """Code, fields, body and limit of the last request."""
        address, command, timeout_ms = self.remoting.sent[-1]
        assert address == AT
        return command.code, command.ext_fields, command.body, timeout_ms


async def test_heartbeat_is_its_body() -> None:
    kit = Kit()
    await kit.api.heartbeat(AT, b"{}")
    assert kit.last() == (34, {}, b"{}", TIMEOUT_MS)
    await kit.api.check_client_config(AT, b"[]")
    assert kit.last() == (46, {}, b"[]", TIMEOUT_MS)


async def test_one_kind_of_group_is_left_at_a_time() -> None:
    kit = Kit()
    await kit.api.unregister(AT, "c", producer_group="p")
    assert kit.last() == (35, {"clientID": "c", "producerGroup": "p"}, b"", TIMEOUT_MS)
    await kit.api.unregister(AT, "c", consumer_group="g")
    assert kit.last()[1] == {"clientID": "c", "consumerGroup": "g"}


async def test_members_of_a_group() -> None:
    kit = Kit()
    kit.remoting.set(body=GetConsumerListByGroupResponseBody(["one", "two"]).encode())
    assert await kit.api.consumer_ids(AT, "g") == ["one", "two"]
    assert kit.last()[:2] == (38, {"consumerGroup": "g"})
    kit.remoting.set(body=b"no json")
    with pytest.raises(BadBodyError):
        await kit.api.consumer_ids(AT, "g")


async def test_stored_offset_or_none() -> None:
    kit = Kit()
    kit.remoting.set(offset="7")
    assert await kit.api.query_offset(AT, "g", QUEUE) == 7
    code, ext, _, timeout_ms = kit.last()
    assert (code, timeout_ms) == (14, OFFSET_TIMEOUT_MS)
    assert ext["setZeroIfNotFound"] == "false", "else 0 is the answer of every young queue"
    assert (ext["consumerGroup"], ext["topic"], ext["queueId"]) == ("g", "t", "3")
    kit.remoting.set(offset="0")
    assert await kit.api.query_offset(AT, "g", QUEUE) == 0
    kit.remoting.set(offset="-1")
    assert await kit.api.query_offset(AT, "g", QUEUE) is None
    kit.remoting.set(22, remark="Not found")
    assert await kit.api.query_offset(AT, "g", QUEUE) is None
    kit.remoting.set(16, remark="no")
    with pytest.raises(NoPermissionError):
        await kit.api.query_offset(AT, "g", QUEUE)


@pytest.mark.parametrize("ext", [{}, {"offset": "many"}])
async def test_offset_that_cannot_be_read_is_no_offset(ext: dict[str, Any]) -> None:
    kit = Kit()
    kit.remoting.set(**ext)
    for ask in (
        kit.api.query_offset(AT, "g", QUEUE),
        kit.api.max_offset(AT, QUEUE),
        kit.api.min_offset(AT, QUEUE),
        kit.api.search_offset(AT, QUEUE, 5),
    ):
        with pytest.raises(BadBodyError, match="without an offset"):
            await ask


async def test_offsets_are_stored_with_an_answer_or_without() -> None:
    kit = Kit()
    await kit.api.update_offset(AT, "g", QUEUE, 9, oneway=False)
    code, ext, *_ = kit.last()
    assert code == 15
    assert (ext["commitOffset"], ext["queueId"], ext["consumerGroup"]) == ("9", "3", "g")
    await kit.api.update_offset(AT, "g", QUEUE, 10, oneway=True)
    assert len(kit.remoting.sent) == 1
    assert kit.remoting.oneway[0].ext_fields["commitOffset"] == "10"
    kit.remoting.set(26, remark="no such group")
    with pytest.raises(BrokerError):
        await kit.api.update_offset(AT, "g", QUEUE, 9, oneway=False)


async def test_ends_of_a_queue_and_a_place_by_time() -> None:
    kit = Kit()
    kit.remoting.set(offset="5")
    assert await kit.api.max_offset(AT, QUEUE) == 5
    code, ext, *_ = kit.last()
    assert (code, ext["committed"], ext["queueId"]) == (30, "true", "3")
    assert await kit.api.min_offset(AT, QUEUE) == 5
    assert kit.last()[0] == 31
    assert await kit.api.search_offset(AT, QUEUE, 1_700_000_000_000) == 5
    code, ext, *_ = kit.last()
    assert (code, ext["timestamp"], ext["boundaryType"]) == (29, "1700000000000", "lower")


async def test_send_back_sends_its_header_with_its_own_timeout() -> None:
    kit = Kit()
    header = ConsumerSendMsgBackRequestHeader(offset=5, group="g", delay_level=3)
    await kit.api.send_back(AT, header)
    code, ext, _, timeout_ms = kit.last()
    assert (code, timeout_ms, ext) == (36, SEND_BACK_TIMEOUT_MS, header.to_ext())
    kit.remoting.set(1, remark="disk")
    with pytest.raises(SystemFaultError, match="disk"):
        await kit.api.send_back(AT, header)


async def test_message_that_is_called_back_is_named() -> None:
    kit = Kit()
    header = RecallMessageRequestHeader(topic="t", recall_handle="h")
    kit.remoting.set(msgId="ID")
    assert await kit.api.recall(AT, header) == "ID"
    assert kit.last()[0] == 370
    kit.remoting.set()
    assert await kit.api.recall(AT, header) == ""


async def test_transaction_outcome_is_sent_until_a_broker_confirms() -> None:
    kit = Kit()
    header = EndTransactionRequestHeader(
        producer_group="p",
        tran_state_table_offset=1,
        commit_log_offset=2,
        commit_or_rollback=8,
        msg_id="ID",
    )
    await kit.api.end_transaction(AT, header, 700, "why", oneway=True)
    assert kit.remoting.sent == []
    [told] = kit.remoting.oneway
    assert (told.code, told.remark, told.ext_fields) == (37, "why", header.to_ext())
    await kit.api.end_transaction(AT, header, 700)
    assert kit.last()[::3] == (37, 700)
    kit.remoting.set(1, remark="no half message")
    with pytest.raises(SystemFaultError):
        await kit.api.end_transaction(AT, header, 700)


async def test_locks_are_those_that_the_broker_names() -> None:
    kit = Kit()
    other = MessageQueue("t", "broker-a", 4)
    kit.remoting.set(body=LockBatchResponseBody({QUEUE}).encode())
    assert await kit.api.lock_queues(AT, "g", "c", [QUEUE, other]) == {QUEUE}
    code, _, body, timeout_ms = kit.last()
    assert (code, timeout_ms) == (41, LOCK_TIMEOUT_MS)
    asked = LockBatchRequestBody.decode(body)
    assert (asked.consumer_group, asked.client_id, asked.mq_set) == ("g", "c", {QUEUE, other})
    await kit.api.unlock_queues(AT, "g", "c", iter([QUEUE]))
    code, _, body, timeout_ms = kit.last()
    assert (code, timeout_ms) == (42, LOCK_TIMEOUT_MS)
    assert LockBatchRequestBody.decode(body).mq_set == {QUEUE}


# ---- pulls

PULLED: dict[str, Any] = {
    "suggestWhichBrokerId": "1",
    "nextBeginOffset": "9",
    "minOffset": "2",
    "maxOffset": "11",
}


def response(code: int = 0, body: bytes = b"", **ext: str) -> RemotingCommand:
    return make_response(make_request(11), code, "remark", ext, body)


async def test_pull_sends_its_header_and_returns_the_result() -> None:
    kit = Kit()
    header = PullMessageRequestHeader(
        consumer_group="g",
        topic="t",
        queue_id=3,
        queue_offset=7,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=5,
    )
    kit.remoting.set(19, remark="nothing yet", **PULLED)
    found = await kit.api.pull(AT, header, 30_000)
    assert found == (PullStatus.NO_NEW_MESSAGE, 9, 2, 11, 1, 0, b"")
    assert kit.last() == (11, header.to_ext(), b"", 30_000)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NO_NEW_MESSAGE),
        (20, PullStatus.NO_MATCHED_MESSAGE),
        (21, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_pull_result_by_response_code(code: int, status: PullStatus) -> None:
    found = pull_result(response(code, b"records", **PULLED))
    assert found == (status, 9, 2, 11, 1, 0, b"records")
    assert pull_result(response(code, offsetDelta="4", **PULLED)).offset_delta == 4


def test_refused_pull_is_an_error_whose_kind_says_what_to_do() -> None:
    with pytest.raises(NoPermissionError, match="remark"):
        pull_result(response(16, **PULLED))
    with pytest.raises(BrokerError) as refused:
        pull_result(response(24, **PULLED))
    assert refused.value.code == 24


@pytest.mark.parametrize("missing", sorted(PULLED))
def test_response_to_a_pull_without_offsets_is_an_error(missing: str) -> None:
    fields: dict[str, Any] = {name: value for name, value in PULLED.items() if name != missing}
    with pytest.raises(BadBodyError, match="no offsets"):
        pull_result(response(**fields))
