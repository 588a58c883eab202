"""Groups messages into requests: batches of a topic, single messages, lines of ordered queues."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rocketpy.client.producer.batch import BatchPart, split_batches
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.pending_send import QueueChooser
from rocketpy.client.sending.queue_selection import queue_index_by_key
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import is_retry_topic
from rocketpy.spark.sink.rows import SinkRow

_MAX_BATCH_TOPIC_CHARS = 127

Line = tuple[str, int]
"""Topic and index of an ordered queue: its requests are sent one after the other."""


class Request(NamedTuple):
    """Send request to a broker.

    Attributes:
        rows: its messages, all of one topic.
        batch: encoder of several messages; None for a single one.
        line: its ordered queue; None for any queue.
    """

    rows: Sequence[SinkRow]
    batch: BatchPart | None
    line: Line | None

    @property
    def topic(self) -> str:
        """Topic of all its rows."""
        return self.rows[0].topic

    @property
    def is_delayed(self) -> bool:
        """Whether the broker parks its message until the delivery time."""
        return self.rows[0].is_delayed

    @property
    def size_bytes(self) -> int:
        """Approximate size of bodies and properties."""
        return sum(len(row.message.body) + len(row.message.properties) for row in self.rows)

    @property
    def chooser(self) -> QueueChooser | None:
        """Selector of its queue; None for round robin."""
        if self.line is None:
            return None
        index = self.line[1]

        def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
            return queues[index % len(queues)]

        return choose

    def outgoing(self, next_id: Callable[[], str]) -> Outgoing:
        """Return the message to send; a batch gets a new id."""
        return self.rows[0].message if self.batch is None else self.batch.outgoing(next_id())

    def one_by_one(self) -> Iterator["Request"]:
        """Yield a request for each row."""
        for row in self.rows:
            yield Request((row,), None, self.line)


def make_requests(
    rows: Iterable[SinkRow], queue_counts: Mapping[str, int], batch_bytes: int
) -> Iterator[Request]:
    """Group rows into requests; requests of a line keep the order of the rows.

    Args:
        rows: of any topics.
        queue_counts: number of queues of each topic with ordered rows.
        batch_bytes: approximate limit of a request with several rows, as stored; 0: one row per
            request.
    """
    groups: dict[tuple[str, Line | None], list[SinkRow]] = {}
    for row in rows:
        line = None
        if row.order_key is not None:
            line = row.topic, queue_index_by_key(row.order_key, queue_counts[row.topic])
        groups.setdefault((row.topic, line), []).append(row)
    for (topic, line), group in groups.items():
        run: list[SinkRow] = []
        for row in group:
            if batch_bytes and not row.is_delayed and _takes_batches(topic):
                run.append(row)
                continue
            yield from _batches(run, topic, line, batch_bytes)
            run = []
            yield Request((row,), None, line)
        yield from _batches(run, topic, line, batch_bytes)


def _takes_batches(topic: str) -> bool:
    return len(topic) <= _MAX_BATCH_TOPIC_CHARS and not is_retry_topic(topic)


def _batches(
    rows: Sequence[SinkRow], topic: str, line: Line | None, limit_bytes: int
) -> Iterator[Request]:
    start = 0
    for part in split_batches((row.message for row in rows), topic, limit_bytes):
        of_part = rows[start : start + len(part.messages)]
        start += len(of_part)
        yield Request(of_part, part if len(of_part) > 1 else None, line)
