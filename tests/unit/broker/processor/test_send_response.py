"""Responses from templates equal those of the general encoder, for all header types."""

import pytest

from rocketpy.broker.processor.send_response import SendResponses
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from tests.unit.broker.fakes import request

V4 = b"\x7f\0\0\1\0\0\x2a\x9f"
V6 = b"\x20\1" + bytes(13) + b"\1" + b"\0\0\x2a\x9f"
IDS = ["7F00000100002A9F", "a", 'quote"\\and%\n', "ü" * 40, "x" * 63, "x" * 64, "x" * 300, ""]


def decoded(frame: bytes) -> RemotingCommand:
    (command,) = CommandReader().feed(frame)
    return command


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
@pytest.mark.parametrize("store_host", [V4, V6], ids=["v4", "v6"])
@pytest.mark.parametrize("transaction_id", IDS)
def test_send_response_template_equals_encoder(
    serialize_type: int, store_host: bytes, transaction_id: str
) -> None:
    responses = SendResponses(store_host, region_id='50%-ä"', trace_on=True)
    command = request(310, serialize_type=serialize_type, opaque=-7)
    values = (0, 1 << 40, 12, 1 << 50)
    short = decoded(responses.frame(command, *values, transaction_id))
    long = decoded(
        responses.general(command, 0, responses.msg_id(1 << 40), 12, 1 << 50, transaction_id)
    )
    assert short == long
    assert short.opaque == -7
    assert short.serialize_type == serialize_type
    assert short.ext_fields["msgId"] == store_host.hex().upper() + f"{1 << 40:016X}"


def test_send_response_batch_lists_ids() -> None:
    responses = SendResponses(V4, region_id="r", trace_on=False)
    assert responses.msg_ids([0, 255]) == (
        "7F00000100002A9F0000000000000000,7F00000100002A9F00000000000000FF"
    )


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
@pytest.mark.parametrize("store_host", [V4, V6], ids=["v4", "v6"])
@pytest.mark.parametrize("transaction_id", IDS)
def test_send_response_batch_template_equals_encoder(
    serialize_type: int, store_host: bytes, transaction_id: str
) -> None:
    responses = SendResponses(store_host, region_id='50%-ä"', trace_on=True)
    command = request(320, serialize_type=serialize_type, opaque=-7)
    offsets = (1 << 40, 0, 255)
    short = decoded(responses.batch_frame(command, offsets, 12, 1 << 50, transaction_id))
    ids = responses.msg_ids(offsets)
    assert short == decoded(responses.general(command, 0, ids, 12, 1 << 50, transaction_id))
    assert short.ext_fields["msgId"] == ",".join(map(responses.msg_id, offsets))


def test_send_response_refusal_has_fields() -> None:
    refusal = SendResponses(V4, region_id="r", trace_on=False).refusal(request(310), 13, "no")
    assert (refusal.code, refusal.remark, refusal.opaque) == (13, "no", 42)
    assert refusal.ext_fields == {"MSG_REGION": "r", "TRACE_ON": "false"}
