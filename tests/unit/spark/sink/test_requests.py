"""Grouping of messages into batches, single requests and lines of ordered queues."""

from rocketpy.client.messages.delivery_time import DeliveryTime
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.queue_selection import queue_index_by_key
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import decode_batch
from rocketpy.spark.sink.requests import Request, make_requests
from rocketpy.spark.sink.rows import SinkRow


def row(number: int, topic: str = "a", *, key: str | None = None, delayed: bool = False) -> SinkRow:
    moment = DeliveryTime(delay_ms=1) if delayed else None
    message = Outgoing(b"%d" % number, "", 0, 0, f"ID{number}", moment=moment)
    return SinkRow(number, topic, message, key, delayed)


def numbers(requests: list[Request]) -> list[list[int]]:
    return [[each.number for each in request.rows] for request in requests]


def test_make_requests_batches_rows_of_a_topic() -> None:
    rows = [row(0), row(1, "b"), row(2), row(3, "b"), row(4, "c")]
    requests = list(make_requests(rows, {}, 4096))

    assert numbers(requests) == [[0, 2], [1, 3], [4]]
    bodies = [item.body for item in decode_batch(requests[0].outgoing(lambda: "B").body)]
    assert bodies == [b"0", b"2"]
    assert requests[2].outgoing(lambda: "B") is rows[4].message, "one message is no batch"
    assert all(request.chooser is None for request in requests)


def test_make_requests_splits_at_the_size_limit() -> None:
    requests = list(make_requests([row(n) for n in range(10)], {}, 900))

    assert len(requests) > 1
    assert [n for found in numbers(requests) for n in found] == list(range(10))


def test_make_requests_without_batches_sends_each_row_alone() -> None:
    assert numbers(list(make_requests([row(0), row(1)], {}, 0))) == [[0], [1]]


def test_make_requests_sends_unbatchable_rows_alone() -> None:
    rows = [row(0), row(1, delayed=True), row(2)]
    long = "t" * 200

    assert numbers(list(make_requests(rows, {}, 4096))) == [[0], [1], [2]]
    assert numbers(list(make_requests([row(0, long), row(1, long)], {}, 4096))) == [[0], [1]]
    retry = "%RETRY%g"
    assert numbers(list(make_requests([row(0, retry), row(1, retry)], {}, 4096))) == [[0], [1]]


def test_make_requests_of_ordered_rows_keeps_order_by_key() -> None:
    keys = ["x", "y", "z"]
    rows = [row(n, key=keys[n % 3], delayed=n == 4) for n in range(9)]
    requests = list(make_requests(rows, {"a": 2}, 4096))
    queues = [MessageQueue("a", "broker-a", n) for n in range(2)]

    by_line: dict[object, list[int]] = {}
    for request in requests:
        assert request.line is not None
        assert request.chooser is not None
        assert request.chooser(queues) == queues[request.line[1]]
        by_line.setdefault(request.line, []).extend(each.number for each in request.rows)
    wanted: dict[object, list[int]] = {}
    for each in rows:
        line = "a", queue_index_by_key(str(each.order_key), 2)
        wanted.setdefault(line, []).append(each.number)
    assert by_line == wanted


def test_one_by_one_keeps_the_line_of_a_request() -> None:
    (request,) = make_requests([row(0, key="x"), row(1, key="x")], {"a": 4}, 4096)
    parts = list(request.one_by_one())

    assert numbers(parts) == [[0], [1]]
    assert {part.line for part in parts} == {request.line}
