"""Half messages on their way into the store."""

from dataclasses import replace

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.broker.system_topics.property_cache import PropertyTemplates
from rocketpy.broker.transaction.half_message import (
    HalfMessages,
    committed_message,
    given_up,
    half_outline,
    immunity_ms,
    is_half_message,
    real_place,
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


def test_it_goes_to_the_half_topic_and_remembers_its_own() -> None:
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


def test_an_ordinary_message_passes_as_it_is() -> None:
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
def test_what_could_never_be_decided_is_refused(
    properties: dict[str, str], code: int, words: str
) -> None:
    refused = HalfMessages(BrokerConfig(), "a")(_message(properties), properties, REQUEST)
    assert refused is not None
    assert refused.code == code
    assert words in refused.remark


def test_properties_that_grow_too_long_are_refused() -> None:
    properties = {**SENT, "x": "y" * 32_700}
    refused = HalfMessages(BrokerConfig(), "a")(_message(properties), properties, REQUEST)
    assert refused is not None
    assert refused.code == 13


def test_reject_transaction_message_is_live() -> None:
    halves = HalfMessages(BrokerConfig(reject_transaction_message=True), "10.0.0.2")
    refused = halves(_message(SENT), dict(SENT), REQUEST)
    assert refused is not None
    assert refused == (16, "the broker[10.0.0.2] sending transaction message is forbidden")
    halves.configure(BrokerConfig())
    assert halves(_message(SENT), dict(SENT), REQUEST) is None


def test_a_committed_message_that_an_old_client_sends_back_is_no_half() -> None:
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


def test_the_committed_message_is_what_apache_stores() -> None:
    half = split_record(encode_message(_half()))
    uniq_key, outline = PropertyTemplates(half_outline).of(half.properties)
    assert outline.place == ("T", 3)
    assert outline.properties == {"PGROUP": "p"}
    message = committed_message(half, outline.place, outline.committed, uniq_key)
    assert (message.topic, message.queue_id, message.sys_flag) == ("T", 3, 0x309)
    assert message.prepared_transaction_offset == 900
    assert parse_properties(message.properties) == SENT  # TRAN_MSG stays, as on Apache's disk
    assert (message.tags, message.keys, message.uniq_key) == ("a", "k", "U")


def test_a_half_that_names_no_queue_goes_nowhere() -> None:
    assert real_place(_half(REAL_QID="x").properties) is None
    assert real_place(_half(REAL_TOPIC="").properties) is None


def test_each_move_keeps_the_first_place_and_counts_the_checks() -> None:
    first = parse_properties(renewed_half(_half(), 1).properties)
    assert first["TRANSACTION_CHECK_TIMES"] == "1"
    assert first["TRAN_PREPARED_QUEUE_OFFSET"] == "7"
    again = parse_properties(renewed_half(_half(TRAN_PREPARED_QUEUE_OFFSET="2"), 2).properties)
    assert again["TRAN_PREPARED_QUEUE_OFFSET"] == "2"
    assert "TRANSACTION_CHECK_TIMES" not in parse_properties(renewed_half(_half(), 0).properties)


def test_given_up_and_resumed() -> None:
    gone = given_up(_half(TRANSACTION_CHECK_TIMES="15"))
    assert (gone.topic, gone.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    resumed = resumed_half(_half(TRANSACTION_CHECK_TIMES="15", TRAN_PREPARED_QUEUE_OFFSET="2"))
    properties = parse_properties(resumed.properties)
    assert properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in properties


def test_the_time_without_checks() -> None:
    name = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    assert immunity_ms(_half().properties, 6_000) is None
    assert immunity_ms(_half(**{name: "60"}).properties, 6_000) == 60_000
    assert immunity_ms(_half(**{name: "-1"}).properties, 6_000) == 6_000
    assert immunity_ms(_half(**{name: "soon"}).properties, 6_000) == 6_000
