"""A pull that waits for messages of a condition is woken by those only."""

from rocketpy.proto.record import pack_record, record_size, topic_field
from rocketpy.proto.tags import tags_code
from rocketpy.store.results import GetMessageResult, GetMessageStatus
from tests.unit.broker.operation.test_pull import Kit


def test_an_arrival_wakes_a_condition_only_when_it_is_met() -> None:
    kit = Kit()
    assert kit.pull("a > 5", kind="SQL92") is None
    waiting = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 1, 0, 1)
    kit.store.results.append(waiting)
    kit.arrive("x")
    assert kit.resumed == []
    met = GetMessageResult(GetMessageStatus.FOUND, 2, 0, 2, [memoryview(b"")], 1, 0)
    kit.store.results.append(met)
    kit.arrive("x", 2)
    assert [pull.wanted.expression for pull in kit.resumed] == ["a > 5"]
    topic, queue_id, offset, count, _, used = kit.store.reads[-1]
    assert (topic, queue_id, offset, count) == ("T", 0, 1, 1)
    assert used.condition.expression == "a > 5"


def test_a_condition_reads_the_properties_of_a_record() -> None:
    kit = Kit()
    kit.pull("a > 5 AND b = 'x'", kind="SQL92")
    (*_, used) = kit.store.reads[-1]
    for hosts, host_bytes in ((0, 8), (0x30, 20)):
        for topic in ("T", "T" * 200):
            assert used.matches_record(record(topic, b"a\x016\x02b\x01x\x02", hosts, host_bytes))
            assert not used.matches_record(record(topic, b"a\x016\x02b\x01y", hosts, host_bytes))
    assert used.matches_tags_code(tags_code("any"))


def record(topic: str, properties: bytes, sys_flag: int, host_bytes: int) -> memoryview:
    body, field = b"a\x017\x02", topic_field(topic)
    size = record_size(len(body), len(field), len(properties), sys_flag)
    buffer = bytearray(size)
    host = bytes(host_bytes)
    pack_record(
        buffer, 0, size, 0, 0, 0, 0, 0, sys_flag, 0, host, 0, host, 0, 0, body, field, properties
    )
    return memoryview(buffer)
