"""History of pops in a broker's log, and the check that each repeated delivery has a reason.

Every pop leaves a check point in the log, every ack a record, every message that came back a copy.
So the log itself says what may repeat, and why:

- a message lies in the way of the next pop once. Its place is popped again only after a broker
  ended before it had written how far the group had come;
- a check point brings a message back once, when its invisible time is over and it was not acked
  before that. Twice only after an end before it was written that the check point was dealt with.
  One that the timer delivered twice, over an end, stands in the revive queue twice: the offset
  passes the second place only with what lies between them, a little later;
- an ack that the broker confirmed is in the log. Two check points have one name when two consumers
  ask in the same millisecond for another time of a message that both were given over an end.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.proto.pop import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)
from rocketpy.proto.topic_names import TIMER_TOPIC
from rocketpy.store.message_store import MessageStore

Name: TypeAlias = tuple[bytes, int, int]
"""Body, when it was sent (an attempt that is made again may be stored twice), which copy."""


class Place(NamedTuple):
    """Position of a message, or of its copy in a retry topic."""

    topic: str
    queue_id: int
    offset: int


class Key(NamedTuple):
    """Names one message of one pop, as its handle does."""

    place: Place
    start_offset: int
    pop_time_ms: int


class Point(NamedTuple):
    """Message of a check point, and its physical offset."""

    key: Key
    until_ms: int
    phy_offset: int


class End(NamedTuple):
    """A broker ended: where its log was.

    Attributes:
        forgotten: from here to `end` its log tells of what it had perhaps not written elsewhere.
        forgotten_again: the same for what came back by a check point that was delivered twice.
        end: the end of its log.
        kept: what lies before this is certainly there after it; what comes later lies behind.
    """

    forgotten: int
    forgotten_again: int
    end: int
    kept: int

    def excuses(self, earlier: int, later: int, *, again: bool) -> bool:
        """Whether what lies at `later` repeats what was forgotten at `earlier`."""
        forgotten = self.forgotten_again if again else self.forgotten
        return forgotten <= earlier < self.end and self.kept <= later


@dataclass
class Trail:
    """All of it.

    Attributes:
        messages: every message of the topic and of the group's retry topics.
        points: every message of every check point, in the order of the log.
        acked_ms: when an ack was first stored.
        again: check points that stand in the revive topic more than once.
    """

    messages: dict[Place, MessageExt] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    acked_ms: dict[Key, int] = field(default_factory=dict)
    again: set[Key] = field(default_factory=set)

    def check(self, ends: list[End], changes: Counter[Place], confirmed: Iterable[Key]) -> None:
        """Judge.

        Args:
            ends: of the broker.
            changes: requests for another invisible time; each makes a check point of its own.
            confirmed: acks that the broker confirmed.
        """
        for key in confirmed:
            assert key in self.acked_ms, f"a confirmed ack is lost: {key}"
        by_place: defaultdict[Place, list[int]] = defaultdict(list)
        sources: defaultdict[Name, list[Point]] = defaultdict(list)
        untils: defaultdict[Key, set[int]] = defaultdict(set)
        for point in self.points:
            untils[point.key].add(point.until_ms)
        for point in self.points:
            place = point.key.place
            by_place[place].append(point.phy_offset)
            # An ack says which pop it belongs to, not which check point where two have one name.
            is_shared = untils[point.key] != {point.until_ms}
            if is_shared or self.acked_ms.get(point.key, point.until_ms) >= point.until_ms:
                message = self.messages[place]
                sources[_name(message, message.reconsume_times + 1)].append(point)
        for place, found in by_place.items():
            most = 1 + changes[place] + _excused(found, ends)
            assert len(found) <= most, f"{place} was popped {len(found)} times, at most {most}"
        copies: defaultdict[Name, list[MessageExt]] = defaultdict(list)
        for message in self.messages.values():
            if message.reconsume_times:
                copies[_name(message, message.reconsume_times)].append(message)
        for name, group in copies.items():
            self._check_copies(name, group, sources[name], ends)

    def _check_copies(
        self,
        name: Name,
        copies: list[MessageExt],
        sources: list[Point],
        ends: list[End],
    ) -> None:
        again = any(point.key in self.again for point in sources)
        excused = _excused(sorted(each.phy_offset for each in copies), ends, again=again)
        assert len(copies) <= len(sources) + excused, (
            f"{name[0][:8]!r} came back {len(copies)} times as copy {name[2]}: popped "
            f"and not acked {len(sources)} times before; {excused} more are excused"
        )
        for copy in copies:
            assert any(point.until_ms <= copy.store_timestamp_ms for point in sources), (
                f"{name[0][:8]!r} came back at {copy.store_timestamp_ms} while somebody had it: "
                f"{sources}"
            )


def _name(message: MessageExt, copy: int) -> Name:
    return message.body, message.born_timestamp_ms, copy


def _excused(phy_offsets: list[int], ends: list[End], *, again: bool = False) -> int:
    """Number of deliveries that may repeat because the broker stopped in between."""
    return sum(
        any(
            end.excuses(earlier, later, again=again)
            for end in ends
            for earlier in phy_offsets[:index]
        )
        for index, later in enumerate(phy_offsets)
    )


def read_trail(store: MessageStore, topics: Iterable[str], revive_topic: str) -> Trail:
    """Read the pop history from the log of a broker.

    Args:
        store: of the broker.
        topics: that were popped, retry topics among them.
        revive_topic: where check points and acks become visible.
    """
    trail = Trail()
    for topic in topics:
        for message in _all_of(store, topic):
            place = Place(topic, message.queue_id, message.queue_offset)
            trail.messages[place] = message
    waited = (
        each
        for each in _all_of(store, TIMER_TOPIC)
        if each.properties.get(PROPERTY_REAL_TOPIC) == revive_topic
        and PROPERTY_TIMER_ROLL_TIMES not in each.properties
    )
    visible = list(_all_of(store, revive_topic))
    at_once = (each for each in visible if PROPERTY_TIMER_OUT_MS not in each.properties)
    for message in sorted([*waited, *at_once], key=lambda each: each.phy_offset):
        _take(trail, message)
    seen: Counter[Key] = Counter()
    for message in visible:
        if message.tags == CHECK_POINT_TAG:
            seen.update(key for key, _ in _messages_of(CheckPoint.decode(message.body)))
    trail.again = {key for key, times in seen.items() if times > 1}
    return trail


def _take(trail: Trail, message: MessageExt) -> None:
    if message.tags == CHECK_POINT_TAG:
        for key, until_ms in _messages_of(CheckPoint.decode(message.body)):
            trail.points.append(Point(key, until_ms, message.phy_offset))
    elif message.tags in {ACK_TAG, BATCH_ACK_TAG}:
        ack = PopAck.decode(message.body)
        for offset in [ack.offset] if ack.offsets is None else ack.offsets:
            place = Place(ack.topic, ack.queue_id, offset)
            key = Key(place, ack.start_offset, ack.pop_time_ms)
            trail.acked_ms.setdefault(key, message.store_timestamp_ms)


def _messages_of(point: CheckPoint) -> Iterator[tuple[Key, int]]:
    """Each message of a check point, and until when it is invisible."""
    for index in range(point.count):
        place = Place(point.topic, point.queue_id, point.offset_at(index))
        key = Key(place, point.start_offset, point.pop_time_ms)
        yield key, point.pop_time_ms + point.invisible_ms


def _all_of(store: MessageStore, topic: str) -> Iterator[MessageExt]:
    for queue_id in range(8):
        offset = max(0, store.min_offset(topic, queue_id))
        while offset < store.max_offset(topic, queue_id):
            found = store.get_message(topic, queue_id, offset, 32, 1 << 20)
            for record in found.buffers:
                yield decode_message(bytes(record))
            assert found.next_begin_offset > offset, f"reading stands still: {found}"
            offset = found.next_begin_offset
