"""Responses to sends give the same result on the fast and the general path."""

import pytest

from rocketpy.client.sending.result import (
    STORED_CODES,
    SendResult,
    SendStatus,
    read_send_response,
    result_of,
)
from rocketpy.errors import BadBodyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response

QUEUE = MessageQueue("t", "b", 2)
FIELDS = {"msgId": "OFF", "queueId": "2", "queueOffset": "7"}


def response(code: int = 0, /, **fields: str) -> RemotingCommand:
    return make_response(make_request(310), code, None, {**FIELDS, **fields})


def test_each_code_of_what_is_stored_has_its_status() -> None:
    for status in SendStatus:
        found = read_send_response(response(int(status)), QUEUE, "ID")
        assert found == SendResult(status, "ID", "OFF", QUEUE, 7)
    assert {int(status) for status in SendStatus} == STORED_CODES
    assert read_send_response(response(1), QUEUE, "ID") is None


def test_every_field() -> None:
    said = response(
        queueId="3", transactionId="T", MSG_REGION="R", recallHandle="H", batchUniqId="B"
    )
    wanted = SendResult(
        SendStatus.SEND_OK, "ID", "OFF", MessageQueue("t", "b", 3), 7, "T", "R", "H"
    )
    assert read_send_response(said, QUEUE, "ID") == wanted
    assert result_of((9, 90, 3, 7, "OFF", "T", "R", "H"), QUEUE, "ID") == wanted


@pytest.mark.parametrize("offset", ["+7", "0000000000000000007", "\u0667"])
def test_numbers_as_java_reads_them(offset: str) -> None:
    assert read_send_response(response(queueOffset=offset), QUEUE, "ID") == SendResult(
        SendStatus.SEND_OK, "ID", "OFF", QUEUE, 7
    )


@pytest.mark.parametrize(
    "fields",
    [{"queueOffset": "x"}, {"queueOffset": ""}, {"queueId": "9" * 10}, {"queueOffset": "9" * 19}],
)
def test_stored_response_without_queue_or_offset_raises(fields: dict[str, str]) -> None:
    with pytest.raises(BadBodyError, match="the response to a send"):
        read_send_response(response(0, **fields), QUEUE, "ID")
    lacking = make_response(make_request(310), 0, None, {"queueId": "2", "queueOffset": "7"})
    with pytest.raises(BadBodyError, match="msgId"):
        read_send_response(lacking, QUEUE, "ID")


def test_region_is_the_default_one_when_none_is_said() -> None:
    for fields in ({}, {"MSG_REGION": ""}):
        found = read_send_response(response(0, **fields), QUEUE, "ID")
        assert found is not None
        assert found.region_id == "DefaultRegion"
