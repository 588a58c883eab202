"""History of sends and their results in a simulated cluster, and its checker.

Promises, each with the words of its failure:

- "is lost": what was acknowledged lies where the answer said, and was consumed;
- "is invented", "was changed": only what was sent is stored and consumed, as it was sent;
- "comes twice": no more copies than the client made attempts, one if the first was answered;
- "order": of one producer's acknowledged messages in one queue, the later lies behind;
- "given twice": no two acknowledged messages have one place;
- "was seen and is gone": what a consumer saw stays where it was seen.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketpy.proto.record.message import decode_message
from rocketpy.testing.sim_cluster import SimCluster


class Place(NamedTuple):
    """Position of a message."""

    broker: str
    queue_id: int
    offset: int


def body_of(producer: int, number: int) -> bytes:
    """Bodies identify their message, and differ in length."""
    return f"{producer}/{number}:".encode() + b"x" * ((producer + number) * 37 % 700)


def name_of(body: bytes) -> tuple[int, int]:
    """Return producer and number of a body.

    Raises:
        AssertionError: it is not one of ours.
    """
    head, colon, _ = body.partition(b":")
    assert colon, f"message is invented: {body!r}"
    producer, number = map(int, head.split(b"/"))
    assert body == body_of(producer, number), f"message {producer}/{number} was changed"
    return producer, number


@dataclass
class ClusterHistory:
    """All messages of one seed, by (producer, number).

    Attributes:
        sent: every message that a producer began to send.
        acknowledged: where the answer said that it is.
        consumed: how often it was consumed.
        seen: what consumers found at a place.
    """

    sent: set[tuple[int, int]] = field(default_factory=set)
    acknowledged: dict[tuple[int, int], Place] = field(default_factory=dict)
    consumed: Counter[tuple[int, int]] = field(default_factory=Counter)
    seen: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def acknowledge(self, name: tuple[int, int], place: Place) -> None:
        """Record an acknowledged message."""
        for other, taken in self.acknowledged.items():
            assert taken != place, f"offset given twice: {place} to {name} and to {other}"
        self.acknowledged[name] = place

    def consume(self, body: bytes, place: Place) -> None:
        """A consumer got a message."""
        name = name_of(body)
        assert name in self.sent, f"message is invented: {name}"
        before = self.seen.setdefault(place, name)
        assert before == name, f"offset given twice: consumers saw {before} and {name} at {place}"
        self.consumed[name] += 1

    @property
    def is_complete(self) -> bool:
        """Whether everything that was acknowledged has been consumed."""
        return all(name in self.consumed for name in self.acknowledged)

    def check(self, stored: dict[Place, tuple[int, int]], attempts: Counter[bytes]) -> None:
        """Judge what the brokers hold at the end.

        Args:
            stored: all messages in all queues.
            attempts: how many requests carried a body.
        """
        for name, place in self.acknowledged.items():
            assert stored.get(place) == name, f"acknowledged {name} at {place} is lost"
            assert name in self.consumed, f"acknowledged {name} at {place} is never consumed"
        for place, name in self.seen.items():
            assert stored.get(place) == name, f"{name} at {place} was seen and is gone"
        copies = Counter(stored.values())
        for name, count in copies.items():
            assert name in self.sent, f"message is invented: {name}"
            tried = attempts[body_of(*name)]
            assert count <= tried, f"{name} comes twice: {count} copies of {tried} attempts"
        self._check_order()

    def _check_order(self) -> None:
        last: dict[tuple[int, str, int], tuple[int, int]] = {}
        for (producer, number), place in sorted(self.acknowledged.items()):
            key = (producer, place.broker, place.queue_id)
            before = last.get(key, (-1, -1))
            assert place.offset > before[1], f"order: {producer}/{number} lies before {before}"
            last[key] = (number, place.offset)


def stored_messages(cluster: SimCluster, topic: str, queues: int) -> dict[Place, tuple[int, int]]:
    """Read every queue of every broker from its store."""
    found: dict[Place, tuple[int, int]] = {}
    for each in cluster.brokers:
        store = each.broker.parts.store
        for queue_id in range(queues):
            offset = max(0, store.min_offset(topic, queue_id))
            while offset < store.max_offset(topic, queue_id):
                result = store.get_message(topic, queue_id, offset, 32, 1 << 20)
                for buffer in result.buffers:
                    message = decode_message(bytes(buffer), check_crc=True)
                    place = Place(each.name, queue_id, message.queue_offset)
                    found[place] = name_of(message.body)
                assert result.next_begin_offset > offset, f"reading stands still: {result}"
                offset = result.next_begin_offset
    return found
