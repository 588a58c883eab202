"""Messages that the broker itself stores."""

from rocketpy.broker.system_topics.system_writer import SystemWriter, copy_of
from rocketpy.proto.record.message import MessageExt, host_to_bytes
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus


class _Store:
    def __init__(self, status: PutMessageStatus) -> None:
        self.status = status
        self.put: list[PutMessage] = []

    def put_message(self, message: PutMessage) -> PutMessageResult:
        self.put.append(message)
        return PutMessageResult(self.status, 100, 50, 3)

    def when_durable(self, phy_end: int, callback: object) -> None:
        raise NotImplementedError


def _stored() -> MessageExt:
    return MessageExt(
        topic="SCHEDULE_TOPIC_XXXX",
        flag=7,
        sys_flag=1,
        born_timestamp_ms=123,
        born_host="10.0.0.1:4000",
        store_host="10.0.0.2:10911",
        reconsume_times=2,
        body=b"packed",
        properties={"TAGS": "old", "REAL_TOPIC": "T"},
    )


def test_copy_keeps_sender_fields_and_uses_new_properties() -> None:
    copy = copy_of(_stored(), "T", 5, {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U"})
    assert (copy.topic, copy.queue_id, copy.body, copy.flag) == ("T", 5, b"packed", 7)
    assert (copy.sys_flag, copy.born_timestamp_ms, copy.reconsume_times) == (1, 123, 2)
    assert copy.born_host == host_to_bytes("10.0.0.1:4000")
    assert copy.store_host == host_to_bytes("10.0.0.2:10911")
    assert (copy.tags, copy.tags_code) == ("a", tags_code("a"))
    assert (copy.keys, copy.uniq_key) == ("k1 k2", "U")
    assert parse_properties(copy.properties) == {"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U"}


def test_system_writer_counts_only_stored_messages() -> None:
    counted: list[tuple[str, int, int]] = []
    message = copy_of(_stored(), "T", 0, {})
    for status in (PutMessageStatus.PUT_OK, PutMessageStatus.SERVICE_NOT_AVAILABLE):
        result = SystemWriter(_Store(status), lambda *args: counted.append(args)).put(message)
        assert result.status is status
    assert counted == [("T", 1, 50)]
