"""Conversion of transactional messages to half messages, and back."""

from dataclasses import replace

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.broker.property_templates import PropertyTemplates
from rocketpy.broker.transaction.half_message import (
    HalfMessages,
    abandoned_half,
    committed_message,
    half_template,
    immunity_ms,
    is_half_message,
    real_queue,
    renewed_half,
    resumed_half,
)
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.record.raw_record import split_record
from rocketpy.store.results import PutMessage

REQUEST = SendRequest("T", 3, b"x", b"", b"", "", 0, 4, 0)
SENT = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "U", "TAGS": "a", "KEYS": "k"}


def _message(properties: dict[str, str], **more: object) -> PutMessage:
    return PutMessage(
        "T",
        3,
        b"x",
        encode_properties(properties),
        sys_flag=0x305,
        uniq_key="U",
        tags_code=97,
        **more,  # type: ignore[arg-type]
    )


def test_half_message_is_redirected_and_keeps_real_topic() -> None:
    properties = {**SENT, "TRANSACTION_CHECK_TIMES": "15", "TRAN_PREPARED_QUEUE_OFFSET": "0"}
    message = _message(properties)
    assert HalfMessages(BrokerConfig(), "a")(message, properties, REQUEST) is None
    assert (message.topic, message.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert message.sys_flag == 0x301
    assert parse_properties(message.properties) == {
        **SENT,
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "__transactionId__": "U",
    }
    assert parse_properties(message.properties) == properties  # the next transform gets these


def test_half_message_ordinary_message_is_unchanged() -> None:
    message = replace(_message({"TAGS": "a"}), sys_flag=0)
    before = replace(message)
    assert HalfMessages(BrokerConfig(), "a")(message, {"TAGS": "a"}, REQUEST) is None
    assert message == before


@pytest.mark.parametrize(
    ("properties", "code", "words"),
    [
        ({"TAGS": "a"}, 13, "TRAN_MSG"),
        ({**SENT, "TRAN_MSG": "false"}, 13, "TRAN_MSG"),
        ({name: SENT[name] for name in ("TRAN_MSG", "UNIQ_KEY")}, 13, "PGROUP"),
    ],
)
def test_half_message_that_cannot_be_decided_is_refused(
    properties: dict[str, str], code: int, words: str
) -> None:
    refused = HalfMessages(BrokerConfig(), "a")(_message(properties), properties, REQUEST)
    assert refused is not None
    assert refused.code == code
    assert words in refused.remark


def test_half_message_properties_too_long_are_refused() -> None:
    properties = {**SENT, "x": "y" * 32_700}
    refused = HalfMessages(BrokerConfig(), "a")(_message(properties), properties, REQUEST)
    assert refused is not None
    assert refused.code == 13


def test_half_message_changed_reject_setting_applies() -> None:
    halves = HalfMessages(BrokerConfig(reject_transaction_message=True), "10.0.0.2")
    refused = halves(_message(SENT), dict(SENT), REQUEST)
    assert refused is not None
    assert refused == (16, "the broker[10.0.0.2] sending transaction message is forbidden")
    halves.configure(BrokerConfig())
    assert halves(_message(SENT), dict(SENT), REQUEST) is None


def test_half_message_retry_of_committed_message_is_ordinary() -> None:
    assert is_half_message({"TRAN_MSG": "TRUE"}, 0)
    assert is_half_message({"TRAN_MSG": "true"}, 1)
    assert not is_half_message({"TRAN_MSG": "true", "DELAY": "3"}, 1)
    assert is_half_message({"TRAN_MSG": "true", "DELAY": "x"}, 1)
    assert not is_half_message({}, 0)


def _half(**properties: str) -> MessageExt:
    return MessageExt(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        queue_offset=7,
        phy_offset=900,
        sys_flag=0x301,
        body=b"x",
        properties={**SENT, "REAL_TOPIC": "T", "REAL_QID": "3", **properties},
    )


def test_committed_message_equals_apache() -> None:
    half = split_record(encode_message(_half()))
    uniq_key, template = PropertyTemplates(half_template).of(half.properties)
    assert template.place == ("T", 3)
    assert template.properties == {"PGROUP": "p"}
    message = committed_message(half, template.place, template.committed, uniq_key)
    assert (message.topic, message.queue_id, message.sys_flag) == ("T", 3, 0x309)
    assert message.prepared_transaction_offset == 900
    assert parse_properties(message.properties) == SENT  # TRAN_MSG stays, as on Apache's disk
    assert (message.tags, message.keys, message.uniq_key) == ("a", "k", "U")


def test_real_place_without_queue_is_none() -> None:
    assert real_queue(_half(REAL_QID="x").properties) is None
    assert real_queue(_half(REAL_TOPIC="").properties) is None


def test_renewed_half_keeps_first_offset_and_counts_checks() -> None:
    first = parse_properties(renewed_half(_half(), 1).properties)
    assert first["TRANSACTION_CHECK_TIMES"] == "1"
    assert first["TRAN_PREPARED_QUEUE_OFFSET"] == "7"
    again = parse_properties(renewed_half(_half(TRAN_PREPARED_QUEUE_OFFSET="2"), 2).properties)
    assert again["TRAN_PREPARED_QUEUE_OFFSET"] == "2"
    assert "TRANSACTION_CHECK_TIMES" not in parse_properties(renewed_half(_half(), 0).properties)


def test_abandoned_half_can_be_resumed() -> None:
    gone = abandoned_half(_half(TRANSACTION_CHECK_TIMES="15"))
    assert (gone.topic, gone.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    resumed = resumed_half(_half(TRANSACTION_CHECK_TIMES="15", TRAN_PREPARED_QUEUE_OFFSET="2"))
    properties = parse_properties(resumed.properties)
    assert properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in properties


def test_immunity_time_is_parsed() -> None:
    name = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    assert immunity_ms(_half().properties, 6_000) is None
    assert immunity_ms(_half(**{name: "60"}).properties, 6_000) == 60_000
    assert immunity_ms(_half(**{name: "-1"}).properties, 6_000) == 6_000
    assert immunity_ms(_half(**{name: "soon"}).properties, 6_000) == 6_000
