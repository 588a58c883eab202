"""Requests that are relayed to a consumer."""

from typing import Any

import pytest

from rocketpy.broker.admin.client_relay import ClientRelayAdmin
from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import make_request, make_response
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import FakeChannel, Kit, ask_async

INFO = {"consumerGroup": "G", "clientId": "cid", "jstackEnable": "false"}
MESSAGE_ID = "7F00000100002A9F0000000000000123"


def answered(body: bytes = b"", code: int = 0, remark: str | None = None) -> Any:
    return make_response(make_request(0), code, remark, {}, body)


async def test_relay_running_info_is_forwarded(kit: Kit) -> None:
    channel = kit.add_consumer("G", "T")
    channel.response = answered(b"{raw}")
    response = await ask_async(kit.admin(ClientRelayAdmin).running_info, INFO)
    assert (response.code, response.body) == (0, b"{raw}")
    assert channel.asked[0].code == 307
    assert channel.asked[0].ext_fields == INFO


@pytest.mark.parametrize("client_id", ["cid", "other"])
async def test_relay_running_info_of_unknown_consumer_is_refused(kit: Kit, client_id: str) -> None:
    if client_id == "other":
        kit.add_consumer("G", "T")
    ext = {**INFO, "clientId": client_id}
    response = await ask_async(kit.admin(ClientRelayAdmin).running_info, ext)
    assert (response.code, response.remark) == (1, f"The Consumer <G> <{client_id}> not online")


async def test_relay_failure_code_of_client_is_forwarded(kit: Kit) -> None:
    channel = kit.add_consumer("G", "T")
    channel.response = answered(code=1, remark="no such group here")
    response = await ask_async(kit.admin(ClientRelayAdmin).running_info, INFO)
    assert (response.code, response.remark) == (1, "no such group here")


@pytest.mark.parametrize(("error", "code"), [(RequestTimeoutError, 207), (ConnectionLostError, 1)])
async def test_relay_silent_or_lost_client_is_reported(
    kit: Kit, error: type[Exception], code: int
) -> None:
    channel = kit.add_consumer("G", "T")
    channel.response = error("gone")
    response = await ask_async(kit.admin(ClientRelayAdmin).running_info, INFO)
    assert response.code == code
    assert response.remark is not None
    assert "<G> <cid>" in response.remark


async def test_relay_consume_directly_sends_stored_record(kit: Kit) -> None:
    channel = kit.add_consumer("G", "T")
    kit.add_topic("T")
    channel.response = answered(b'{"consumeResult":"CR_SUCCESS"}')
    kit.store.records[0x123] = b"record"
    ext = {"consumerGroup": "G", "clientId": "cid", "msgId": MESSAGE_ID, "topic": "T"}
    response = await ask_async(kit.admin(ClientRelayAdmin).consume_directly, ext)
    assert response.body == b'{"consumeResult":"CR_SUCCESS"}'
    asked = channel.asked[0]
    assert (asked.code, asked.body) == (309, b"record")
    assert asked.ext_fields == {**ext, "brokerName": "b", "topicSysFlag": "0", "groupSysFlag": "0"}


@pytest.mark.parametrize("message_id", [MESSAGE_ID, "nonsense", ""])
async def test_relay_consume_directly_of_unknown_message_is_refused(
    kit: Kit, message_id: str
) -> None:
    kit.add_consumer("G", "T")
    ext = {"consumerGroup": "G", "clientId": "cid", "msgId": message_id}
    response = await ask_async(kit.admin(ClientRelayAdmin).consume_directly, ext)
    assert response.code == 1
    assert response.remark is not None
    assert "can not find" in response.remark


async def test_relay_consumer_status_asks_all_members(kit: Kit) -> None:
    body = b'{"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}'
    for number in range(2):
        channel = FakeChannel(f"127.0.0.1:{number}")
        channel.response = answered(body)
        kit.add_consumer("G", "T", f"cid{number}", channel)
    silent = kit.add_consumer("G", "T", "silent", FakeChannel("127.0.0.1:9"))
    silent.response = RequestTimeoutError("late")
    admin = kit.admin(ClientRelayAdmin)
    response = await ask_async(admin.consumer_status, {"topic": "T", "group": "G"})
    table = loads(response.body)["consumerTable"]
    assert table == {f"cid{number}": {MessageQueue("T", "b", 1): 5} for number in range(2)}
    ext = {"topic": "T", "group": "G", "clientAddr": "cid1"}
    one = loads((await ask_async(admin.consumer_status, ext)).body)
    assert list(one["consumerTable"]) == ["cid1"]


async def test_relay_consumer_status_of_unknown_group_is_refused(kit: Kit) -> None:
    admin = kit.admin(ClientRelayAdmin)
    response = await ask_async(admin.consumer_status, {"topic": "T", "group": "G"})
    assert response.code == 1
