"""The compiled decoder makes the messages that Python makes, and leaves to it what is not plain."""

import copy
import os

import pytest

from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.messages import compiled_decoder as decode_compiled
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from tests.compiler import compiler
from tests.unit.client.received_cases import Case, compare, random_case, stored

WANTED = os.environ.get("ROCKETPY_PURE") != "1"
QUEUE = MessageQueue("orders", "broker-a", 3)
PROPERTIES = b"UNIQ_KEY\x01ID\x02KEYS\x01k\x02TAGS\x01paid\x02colour\x01red\x02"


def decoder(topic: str = "orders") -> decode_compiled.PlainMessages | None:
    queue = MessageQueue(topic, "broker-a", 3)
    entry = ProcessQueue(queue, Limits())
    return decode_compiled.decode_compiled(queue, serializer=None, settlement=entry, namespace="")


def compiled(records: bytes, topic: str = "orders") -> list[ReceivedMessage] | None:
    if decode_compiled.compiled_messages() is None:
        pytest.skip("this installation is pure")
    decode = decoder(topic)
    return None if decode is None else decode(records)


def test_compiled_decoder_is_present_with_a_compiler() -> None:
    is_there = decode_compiled.compiled_messages() is not None
    assert is_there or not WANTED or compiler() is None, (
        "there is a C compiler and no compiled module: python -m pip install --no-deps -e ."
    )
    assert WANTED or not is_there


def test_compiled_decoder_can_be_required_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_compiled, "_MODULE", "rocketpy.client._none")
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    monkeypatch.delenv("ROCKETPY_COMPILED", raising=False)
    assert decode_compiled.compiled_messages() is None
    assert decoder() is None
    monkeypatch.setenv("ROCKETPY_COMPILED", "1")
    with pytest.raises(ImportError, match="_none"):
        decode_compiled.compiled_messages()


def test_rocketpy_pure_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_PURE", "1")
    assert decode_compiled.compiled_messages() is None
    assert decoder() is None


@pytest.mark.parametrize("hundred", range(5))
def test_any_records_give_the_same_both_ways(hundred: int) -> None:
    made = sum(compare(random_case(hundred * 100 + seed)) for seed in range(100))
    assert made > 100


@pytest.mark.parametrize(
    "record",
    [
        stored(b"body", topic="other"),
        stored(b"body", topic="order"),
        stored(b"body", topic="T" * 200),
        stored(b"body", born_host="[fe80::1]:5"),
        stored(
            deflate(b"body", CompressionType.ZLIB),
            sys_flag=with_compression(0, CompressionType.ZLIB),
        ),
        stored(b"body")[:-1],
        stored(b"body") + b"\0",
    ],
    ids=["other topic", "shorter topic", "version 2", "IPv6", "compressed", "cut", "more"],
)
def test_pull_with_what_is_not_plain_is_left_to_python(record: bytes) -> None:
    assert compiled(stored(b"plain")) is not None
    assert compiled(stored(b"plain") + record) is None


def test_every_place_a_record_may_be_cut_at_and_every_byte_of_it() -> None:
    record = stored(b"body", PROPERTIES)
    for end in range(len(record)):
        compare(Case(stored(b"first") + record[:end], QUEUE, ""))
    for at in range(len(record)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = bytearray(record)
            changed[at] = value
            compare(Case(bytes(changed), QUEUE, ""))


def test_messages_of_a_retry_topic_keep_the_topic_they_were_sent_to() -> None:
    assert compiled(stored(b"body", topic="%RETRY%g"), "%RETRY%g") is None


def test_copy_of_a_lazily_read_message_has_all_fields() -> None:
    found = compiled(stored(b"body", PROPERTIES))
    assert found is not None
    assert not hasattr(found[0], "nothing")
    copied = copy.copy(found[0])
    assert copied.headers == {"colour": "red"}
    assert copied.ext == found[0].ext
    assert copied.ext is copied.ext, "read once"
