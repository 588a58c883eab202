"""A suspended pull with a condition is resumed only by matching messages."""

import itertools
from typing import Any

import pytest

from rocketpy.broker.filters import message_filters as filters
from rocketpy.broker.filters.message_filters import SqlFilter, TagFilter
from rocketpy.broker.operation.pull import pull as arrived_message
from rocketpy.broker.operation.pull.pull import _MAX_LOOKED_AT
from rocketpy.broker.operation.pull.request import PullResult
from rocketpy.errors import ResourceShortError
from rocketpy.proto.record.record import pack_record, record_size, topic_field
from rocketpy.proto.record.tags import tags_code
from rocketpy.sql92.condition import Condition
from rocketpy.store.results import (
    BatchColumns,
    BatchEntry,
    GetMessageResult,
    GetMessageStatus,
    PutBatch,
    PutMessageStatus,
)
from tests.unit.broker.operation.pull.test_pull import Kit
from tests.unit.store import store_kit


def test_condition_matching_arrival_resumes_pull() -> None:
    kit = Kit()
    assert kit.pull("a > 5", kind="SQL92") is None
    kit.store.results.append(one_message(1, b"a\x015\x02"))
    kit.arrive("x")
    assert kit.resumed == []
    kit.store.results.append(one_message(2, b"a\x016\x02"))
    kit.arrive("x", 2)
    assert [pull.wanted.expression for pull in kit.resumed] == ["a > 5"]
    assert kit.store.reads[-1][:4] == ("T", 0, 1, 1)


def one_message(next_offset: int, properties: bytes) -> GetMessageResult:
    found = record("T", properties, 0, 8)
    status = GetMessageStatus.FOUND
    return GetMessageResult(status, next_offset, 0, next_offset, [found], 1, len(found))


def test_condition_message_is_read_once_for_all_pulls() -> None:
    kit = Kit()
    for expression in ("a > 5", "a < 5", "a = 5", "a IS NULL"):
        assert kit.pull(expression, kind="SQL92") is None
    before = len(kit.store.reads)
    for offset, value in enumerate((b"7", b"5"), 1):
        kit.store.results.append(one_message(offset, b"a\x01%b\x02" % value))
        kit.arrive("x", offset)
        kit.arrive("y", offset)
        assert len(kit.store.reads) == before + offset, "nor again for another tag of its"
    assert [pull.wanted.expression for pull in kit.resumed] == ["a > 5", "a = 5"]


def test_condition_budget_exceeded_resumes_pull(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrived_message, "_MOST_WEIGHT", 3)
    kit = Kit()
    heavy = " OR ".join(f"a = {number}" for number in range(20))
    for expression in ("a > 5", heavy, "a > 6", "a > 7", "a > 8"):
        assert kit.pull(expression, kind="SQL92") is None
    kit.store.results.append(one_message(1, b"b\x011\x02"))
    kit.arrive("x", 1)
    assert [pull.wanted.expression for pull in kit.resumed] == [heavy, "a > 8"]
    kit.store.results.append(one_message(2, b"b\x011\x02"))
    kit.arrive("x", 2)
    assert len(kit.resumed) == 2, "the next message is looked at anew"


def test_condition_reads_message_that_cannot_be_read_alone() -> None:
    """It is damaged, or its file is gone: what follows is found."""
    kit = Kit()
    assert kit.pull("a > 5", kind="SQL92") is None
    kit.store.results += [
        GetMessageResult(GetMessageStatus.MESSAGE_WAS_REMOVING, 1, 0, 1),
        GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 1, 0, 1),
    ]
    kit.arrive("x", 1)
    assert kit.resumed == []
    used = kit.store.reads[-1][-1]
    assert used.condition.expression == "a > 5"


def test_condition_matches_properties_of_record() -> None:
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


def sql_filter(expression: str) -> SqlFilter:
    return SqlFilter(Condition(expression))


def matched(used: SqlFilter, records: list[bytes]) -> list[bool] | None:
    sizes = [len(one) for one in records]
    positions = list(itertools.accumulate(sizes, initial=0))[:-1]
    return used.match_records(memoryview(b"".join(records)), positions, sizes)


def test_condition_records_of_same_layout_are_matched_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = sql_filter("a > 5 AND b = 'x'")
    records = [bytes(record("T", b"a\x01%d\x02b\x01x\x02" % (n % 10), 0, 8)) for n in range(40)]
    with monkeypatch.context() as patch:
        patch.setattr(SqlFilter, "matches_record", None)  # nobody is looked at alone
        for _ in range(2):
            assert matched(used, records) == [n % 10 > 5 for n in range(40)]
    records[7] = bytes(record("T", b"b\x01x\x02a\x019\x02", 0, 8))
    records[8] = bytes(record("T", b"a\x01777\x02b\x01x\x02", 0, 8))
    assert matched(used, records) == [n % 10 > 5 or n == 7 for n in range(40)]
    others = [bytes(record("T", b"b\x01x\x02a\x01%d\x02" % (n % 10), 0, 8)) for n in range(40)]
    assert matched(used, others) == [n % 10 > 5 for n in range(40)]


def test_condition_records_of_many_layouts_are_matched_one_by_one() -> None:
    used = sql_filter("a > 5")
    mixed = [bytes(record("T", b"a\x01%d\x02" % 10**n, 0, 8)) for n in range(9)]
    alike = [bytes(record("T", b"a\x01%d\x02" % n, 0, 8)) for n in range(9)]
    assert matched(used, mixed) is None
    for _ in range(filters._RESTS):
        assert matched(used, alike) is None, "for a while nothing is tried"
    assert matched(used, alike) == [n > 5 for n in range(9)]
    assert matched(sql_filter("TRUE"), alike) is None, "no property is asked for"
    assert TagFilter(frozenset([1])).match_records(memoryview(b""), [], []) is None


def test_condition_checks_all_messages_since_last_arrival() -> None:
    kit = Kit()
    assert kit.pull("a > 5", kind="SQL92") is None
    kit.store.results.append(GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 5, 0, 5))
    kit.arrive("x", 4)
    kit.arrive("y", 4)  # of the same batch
    kit.arrive("x", 5)
    assert [args[2] for args in kit.store.reads] == [0, 0], "what was looked at is not read again"
    met = GetMessageResult(GetMessageStatus.FOUND, 7, 0, 9, [memoryview(b"")], 1, 0)
    kit.store.results.append(met)
    kit.arrive("x", 9)
    assert kit.store.reads[-1][2] == 5
    assert len(kit.resumed) == 1


def test_condition_large_arrival_resumes_pull() -> None:
    kit = Kit()
    assert kit.pull("a > 5", kind="SQL92") is None
    kit.arrive("x", _MAX_LOOKED_AT + 1)
    assert len(kit.resumed) == 1
    assert len(kit.store.reads) == 1, "it looks when it goes on"
    assert kit.pull("a > 5", kind="SQL92") is None
    kit.store.results.append(GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, 3, 0, 9))
    kit.arrive("x", 9)  # the read ended before the last of them
    assert len(kit.resumed) == 2


@pytest.mark.parametrize("error", [OSError(24, "too many open files"), ResourceShortError("none")])
def test_condition_unreadable_arrival_resumes_pull(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The pull is answered with the error; the thread that stores the message is not affected."""
    kit = Kit()
    assert kit.pull("a > 5", kind="SQL92") is None

    def fail(*_arguments: Any, **_named: Any) -> Any:
        raise error

    monkeypatch.setattr(kit.store, "get_message", fail)
    kit.arrive("x", 1)
    (pull,) = kit.resumed
    with pytest.raises(type(error)):
        kit.pulls.resume(pull)
    assert kit.suspended.count == 0


@pytest.mark.parametrize("place", range(12))
def test_condition_batch_with_any_match_resumes_pull(place: int) -> None:
    store = store_kit.Kit().open()
    kit = Kit()
    kit.pulls._store = store
    kit.pulls._sources = kit.pulls._sources._replace(store=store)
    store.on_arrival = kit.pulls.on_arrival

    def put(values: list[int]) -> None:
        entries = [BatchEntry(b"body", b"a\x01%d\x02" % value) for value in values]
        batch = PutBatch("T", 0, BatchColumns.of(entries))
        assert store.put_batch(batch).status is PutMessageStatus.PUT_OK

    assert kit.pull("a > 5", kind="SQL92") is None
    put([1] * 20)
    assert kit.resumed == []
    put([1] * place + [6] + [1] * (11 - place))
    (pull,) = kit.resumed
    outcome = kit.pulls.resume(pull)
    assert isinstance(outcome, PullResult)
    assert (outcome.code, outcome.read.count) == (0, 1)
