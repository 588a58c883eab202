"""Requests for single messages."""

from typing import Any

import pytest

from rocketpy.broker.operation.query_messages import QueryMessages
from rocketpy.broker.processor.query_message import QueryMessageProcessor
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_messages, encode_message
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.store.results import QueryIndexResult
from tests.unit.broker.fakes import FakeChannel, FakeStore, request


def record(topic: str, body: bytes, **properties: str) -> bytes:
    return encode_message(
        MessageExt(
            topic=topic,
            body=body,
            properties=properties,
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
        )
    )


class Kit:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.processor = QueryMessageProcessor(
            QueryMessages(self.store, default_count=32, max_count=64)
        )

    def ask(self, code: int = 12, **ext: str) -> RemotingCommand:
        fields = {"topic": "T", "key": "k", "maxNum": "10", "beginTimestamp": "0",
                  "endTimestamp": "9", **ext}  # fmt: skip
        run: Any = self.processor.processors[code]
        response = run(FakeChannel(), request(code, fields))
        if isinstance(response, bytes):
            (response,) = CommandReader().feed(response)
        assert isinstance(response, RemotingCommand)
        return response


def test_query_message_index_collisions_are_skipped() -> None:
    kit = Kit()
    kit.store.records = {
        1: record("T", b"by key", KEYS="j k", UNIQ_KEY="u"),
        2: record("T", b"other key", KEYS="kk"),
        3: record("U", b"other topic", KEYS="k"),
        4: record("T", b"by id", UNIQ_KEY="k"),
    }
    kit.store.index = QueryIndexResult([4, 3, 2, 1, 99], 77, 88)
    response = kit.ask()
    assert [one.body for one in decode_messages(response.body)] == [b"by id", b"by key"]
    assert response.ext_fields == {
        "indexLastUpdatePhyoffset": "88",
        "indexLastUpdateTimestamp": "77",
    }
    assert [one.body for one in decode_messages(kit.ask(indexType="K").body)] == [b"by key"]
    by_id = kit.ask(_UNIQUE_KEY_QUERY="true")
    assert [one.body for one in decode_messages(by_id.body)] == [b"by id"]
    assert kit.store.queries[-1] == ("T", "k", 32, 0, 9, "U")


def test_query_message_not_found_and_count_limit() -> None:
    kit = Kit()
    assert kit.ask(maxNum="100000").code == 22
    assert kit.store.queries[0][2] == 64
    kit.ask(maxNum="-5")
    assert kit.store.queries[1][2] == 1


def test_query_message_damaged_record_is_skipped() -> None:
    kit = Kit()
    good = record("T", b"good", KEYS="k")

    def look(phy_offset: int) -> memoryview:
        if phy_offset == 1:
            raise CorruptRecordError(1, "bad")
        return memoryview(good)

    kit.store.look_message = look  # type: ignore[method-assign]
    kit.store.index = QueryIndexResult([1, 2])
    assert [one.body for one in decode_messages(kit.ask().body)] == [b"good"]
    assert kit.ask(33, offset="1").code == 1


@pytest.mark.parametrize(("offset", "code"), [("5", 0), ("6", 1), ("-1", 1)])
def test_view_message_by_offset(offset: str, code: int) -> None:
    kit = Kit()
    kit.store.records = {5: record("T", b"body")}
    assert kit.ask(33, offset=offset).code == code
