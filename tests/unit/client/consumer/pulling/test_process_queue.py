"""Unfinished messages of one queue: offsets to commit, limits on pulling, and wake-ups."""

import asyncio

import pytest

from rocketpy.client.config import ConsumerConfig
from rocketpy.client.consumer.pulling.process_queue import CacheTotal, Limits, ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from tests.unit.client.received_cases import received

OVERHEAD = 200


def make(limits: Limits | None = None, total: CacheTotal | None = None) -> ProcessQueue:
    return ProcessQueue(MessageQueue("t", "b", 0), limits or Limits(), total=total)


def put(queue: ProcessQueue, *offsets: int, body: bytes = b"x") -> list[ReceivedMessage]:
    """Put messages of these offsets, as a pull does."""
    messages = [
        received(queue, MessageExt(topic="t", body=body, queue_offset=offset)) for offset in offsets
    ]
    queue.put(messages)
    if offsets:
        queue.next_pull_offset = offsets[-1] + 1
    return messages


async def waiting(queue: ProcessQueue) -> asyncio.Task[None]:
    task = asyncio.create_task(queue.wait_for_space())
    await turns()
    return task


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_smallest_unfinished_offset_is_committed() -> None:
    assert make().commit_offset is None, "nothing is known of an offset yet"
    queue = make()
    a, b, c = put(queue, 5, 6, 9)
    assert (queue.commit_offset, queue.span) == (5, 4)
    assert queue.remove(b)
    assert queue.commit_offset == 5
    assert queue.remove(a)
    assert queue.commit_offset == 9
    assert queue.remove(c)
    assert (queue.commit_offset, queue.first_offset, queue.span) == (10, None, 0)
    assert not queue.remove(c), "it is finished once"
    assert (queue.size_bytes, queue.messages) == (0, {})


def test_lag_counts_what_is_unfinished_and_what_was_not_pulled() -> None:
    queue = make()
    assert queue.lag == 0
    first, _ = put(queue, 5, 6)
    queue.broker_max_offset = 10
    assert queue.lag == 5
    queue.remove(first)
    assert queue.lag == 4
    queue.broker_max_offset = 3
    assert queue.lag == 0, "the broker's report may be older than the messages"


def test_limits_are_those_of_apaches_clients() -> None:
    config = ConsumerConfig("t", group="c")
    assert (config.max_cached_messages, config.max_span) == (1_000, 2_000)
    assert config.max_cached_bytes == 100 << 20


def test_each_limit_forbids_pulling_once_it_is_exceeded() -> None:
    queue = make(Limits(messages=2))
    put(queue, 0, 1)
    assert queue.is_full() is None
    put(queue, 2)
    assert queue.is_full() == "messages"

    queue = make(Limits(size_bytes=2 * OVERHEAD + 10))
    put(queue, 0, 1, body=b"12345")
    assert queue.is_full() is None
    put(queue, 2, body=b"1")
    assert queue.is_full() == "size"

    queue = make(Limits(span=10))
    put(queue, 0, 10)
    assert queue.is_full() is None
    put(queue, 11)
    assert queue.is_full() == "span"

    total = CacheTotal(2)
    queue, other = make(total=total), make(total=total)
    put(other, 0, 1)
    assert queue.is_full() is None
    put(other, 2)
    assert queue.is_full() == "all"


def test_one_message_far_from_the_last_does_not_forbid_pulling() -> None:
    queue = make(Limits(span=10))
    put(queue, 0)
    queue.pulled_end_offset = 100
    assert queue.is_full() is None


async def test_wait_for_space_ends_with_room_only() -> None:
    queue = make(Limits(messages=1))
    first, second, third = put(queue, 0, 1, 2)
    task = await waiting(queue)
    queue.remove(first)
    await turns()
    assert not task.done()
    queue.remove(third)
    await turns()
    assert task.done()
    queue.remove(second)


async def test_pause_outlasts_room_and_ends_with_resume() -> None:
    queue = make(Limits(messages=1))
    first, _ = put(queue, 0, 1)
    queue.pause()
    task = await waiting(queue)
    queue.remove(first)
    await turns()
    assert not task.done()
    queue.resume()
    await turns()
    assert task.done()


async def test_dropped_queue_waits_for_nothing() -> None:
    queue = make(Limits(messages=1))
    put(queue, 0, 1)
    queue.pause()
    task = await waiting(queue)
    queue.drop()
    await turns()
    assert task.done()


async def test_common_limit_wakes_every_queue_when_there_is_room() -> None:
    total = CacheTotal(1)
    full, one, two = make(total=total), make(total=total), make(total=total)
    messages = put(full, 0, 1)
    tasks = [await waiting(one), await waiting(two)]
    assert not any(task.done() for task in tasks)
    full.remove(messages[0])
    await turns()
    assert all(task.done() for task in tasks)


async def test_queue_over_its_limit_is_woken_by_common_room_later() -> None:
    total = CacheTotal(4)
    queue, other = make(Limits(messages=1), total), make(total=total)
    own = put(queue, 0, 1)
    task = await waiting(queue)
    theirs = put(other, 0)
    other.remove(theirs[0])  # room for all, while the queue itself has none
    theirs = put(other, *range(1, 6))
    for message in own:
        queue.remove(message)  # room in the queue, while there is none for all
    await turns()
    assert not task.done()
    for message in theirs:
        other.remove(message)
    await turns()
    assert task.done()


async def test_dropped_queue_gives_its_share_of_the_common_limit_back() -> None:
    total = CacheTotal(1)
    dropped, other = make(total=total), make(total=total)
    kept = put(dropped, 0, 1)
    task = await waiting(other)
    dropped.drop()
    await turns()
    assert task.done()
    assert total.messages == 0
    dropped.remove(kept[0])
    assert total.messages == 0, "what is in hand is not counted out twice"


def test_only_messages_whose_handlers_began_are_overdue_the_oldest_first() -> None:
    queue = make()
    first, second, third = put(queue, 5, 6, 7)
    assert queue.overdue(1_000, 16) == []
    queue.begin([second], 1)
    queue.begin([first], 999)
    queue.begin([third], 1_000)
    assert queue.overdue(999, 16) == [second]
    assert queue.overdue(1_000, 16) == [second, first]
    assert queue.overdue(1_000, 1) == [second]
    queue.remove(second)
    assert queue.overdue(1_000, 16) == [first], "a finished one is not, though its handler runs"
    assert queue.started_ms(second) == 1
    queue.end([second])
    assert queue.started_ms(second) is None
    queue.begin([second], 7)
    assert queue.started_ms(second) is None, "it is finished"


def test_message_is_given_back_by_one_only() -> None:
    queue = make()
    first, second = put(queue, 5, 6)
    queue.begin([first], 1)
    assert queue.leave(first)
    assert not queue.leave(first)
    assert queue.overdue(9, 16) == []
    assert queue.finish([first], 9)[0] == 0, "its fate is not its handler's any more"
    assert queue.commit_offset == 5
    queue.stay(first)
    assert queue.finish([first], 9)[0] == 1
    assert not queue.leave(first), "it is finished"
    queue.drop()
    assert not queue.leave(second), "it is not ours"


def test_messages_of_a_dropped_queue_are_not_held() -> None:
    queue = make()
    first, second = put(queue, 0, 1)
    queue.ack(first)
    assert not queue.holds(first)
    assert queue.holds(second)
    queue.drop()
    assert not queue.holds(second)


async def test_nack_without_redelivery_raises_closed_error() -> None:
    queue = make()
    (message,) = put(queue, 0)
    with pytest.raises(ClosedError):
        await message.nack()
    given: list[tuple[ReceivedMessage, Rejection]] = []

    async def give_back(_: ProcessQueue, message: ReceivedMessage, rejection: Rejection) -> None:
        given.append((message, rejection))

    queue = ProcessQueue(MessageQueue("t", "b", 0), Limits(), give_back=give_back)
    (message,) = put(queue, 0)
    await message.nack(3)
    assert [(each, rejection.delay_level) for each, rejection in given] == [(message, 3)]
    assert queue.holds(message), "whoever gives it back says when it is finished"


def test_finish_ends_messages_together() -> None:
    total = CacheTotal(10)
    queue = make(total=total)
    first, second, third = put(queue, 5, 6, 7)
    assert queue.take([first], 100)
    assert queue.take([second], 110)
    assert queue.leave(second), "given back while it was in hand"
    assert not queue.take([second], 120)
    assert queue.finish([first, second], 150) == (1, 50), "one, which was in hand for 50 ms"
    assert (queue.commit_offset, total.messages) == (6, 2)
    assert queue.overdue(1_000, 16) == [], "nothing is in hand any more"
    assert queue.finish([third], 200) == (1, 0), "nobody had begun it"
    queue.drop()
    assert not queue.take([second], 210)
    assert queue.finish([second], 220) == (0, 0), "it is not ours"
