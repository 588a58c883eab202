"""History of operations of a simulated store, and its checker.

The history knows each message by a number, which its body, keys and tags are made from. A topic
that is deleted and made again begins a new *generation*; messages of an earlier one must not come
back. The promises, each with the words of the failure:

- "is lost": what was acknowledged (or seen by a consumer, with SYNC_FLUSH) is there for ever;
- "is invented", "was changed": only what was put is delivered, as it was put;
- "order", "comes twice": within a queue, offsets follow the order of the puts;
- "given twice": no offset of a message that exists is given to another;
- "seen before flushed": with SYNC_FLUSH a consumer sees nothing that is not on disk;
- "is back": a deleted topic stays deleted;
- "is not readable": what is acknowledged can be read at once;
- "a hole": what a power cut takes is a suffix of the log;
- "is not found": index look-ups are complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import BatchColumns, BatchEntry, GetMessageStatus, PutBatch, PutMessage
from tests.simulation.ledger import keys_of, properties_of, tags_of, uniq_key_of

TOPICS = ("Orders", "Trades", "Audit", "Brief")
QUEUES = 3
FOREVER = (1 << 63) - 1


class Place(NamedTuple):
    """Queue offset and physical offset of a message."""

    queue_offset: int
    phy_offset: int


@dataclass(slots=True)
class Sent:
    """Message that was put.

    Attributes:
        place: where the store said it is; None when no answer came.
        acknowledged: with SYNC_FLUSH, whether the store said that it is on disk.
        durable: whether it must survive a power cut.
        seen: whether a consumer got it.
    """

    number: int
    topic: str
    generation: int
    queue_id: int
    place: Place | None = None
    acknowledged: bool = False
    durable: bool = False
    seen: bool = False

    def __str__(self) -> str:
        words = ["acknowledged"] * self.acknowledged + ["durable"] * self.durable
        words += ["seen"] * self.seen
        name = f"message {self.number} of {self.topic}/{self.queue_id} at {self.place}"
        return " ".join([*words, name])


class Found(NamedTuple):
    """Message as a consumer received it."""

    number: int
    topic: str
    queue_id: int
    place: Place
    size_bytes: int


def body_of(number: int) -> bytes:
    """Bodies differ in length, and identify their message."""
    return f"{number}:".encode() + bytes([number % 251 + 1]) * (number * 37 % 600)


def put_message(sent: Sent) -> PutMessage:
    number = sent.number
    return PutMessage(
        topic=sent.topic,
        queue_id=sent.queue_id,
        body=body_of(number),
        properties=encode_properties(properties_of(number)),
        born_timestamp_ms=number,
        tags_code=tags_code(tags_of(number)),
        uniq_key=uniq_key_of(number),
        keys=keys_of(number),
        tags=tags_of(number),
    )


def put_batch(batch: list[Sent]) -> PutBatch:
    entries = [
        BatchEntry(
            body=body_of(each.number),
            properties=encode_properties(properties_of(each.number)),
            tags_code=tags_code(tags_of(each.number)),
            uniq_key=uniq_key_of(each.number),
            keys=keys_of(each.number),
            tags=tags_of(each.number),
        )
        for each in batch
    ]
    return PutBatch(
        batch[0].topic, batch[0].queue_id, BatchColumns.of(entries), born_timestamp_ms=1
    )


def read_all(store: MessageStore) -> list[Found]:
    """Read every queue from its start as a consumer does, checking each record."""
    found = []
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            offset = max(0, store.min_offset(topic, queue_id))
            end = store.max_offset(topic, queue_id)
            while offset < end:
                result = store.get_message(topic, queue_id, offset, 32, 1 << 20)
                if result.status is GetMessageStatus.FOUND:
                    found += [_found(bytes(each), topic, queue_id) for each in result.buffers]
                assert result.next_begin_offset > offset, f"reading stands still: {result}"
                offset = result.next_begin_offset
    return found


def _found(record: bytes, topic: str, queue_id: int) -> Found:
    message = decode_message(record, check_crc=True)
    number = int(message.body.split(b":", 1)[0])
    assert (message.topic, message.queue_id) == (topic, queue_id), (
        f"message {number} of {message.topic}/{message.queue_id} is delivered in {topic}/{queue_id}"
    )
    assert message.body == body_of(number), f"message {number} was changed"
    assert message.properties == properties_of(number), f"message {number} was changed"
    place = Place(message.queue_offset, message.phy_offset)
    return Found(number, topic, queue_id, place, len(record))


@dataclass
class History:
    """All messages of one seed, and which of them must be there.

    Attributes:
        sent: every message that may still be in the store, by number.
        generations: how often a topic was deleted.
        unfinished: topics whose deletion was cut short; their messages may be there or not.
        damaged: numbers of messages whose bytes were changed on the disk.
    """

    sync: bool
    sent: dict[int, Sent] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    unfinished: set[str] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    deleted_stay: bool = True
    _power_was_cut: bool = False
    _owners: dict[tuple[str, int, int, int], int] = field(default_factory=dict)

    # -- what happens ----------------------------------------------------------------------

    def begin_put(self, numbers: Iterable[int], topic: str, queue_id: int) -> list[Sent]:
        begun = [Sent(each, topic, self.generations[topic], queue_id) for each in numbers]
        self.sent.update({each.number: each for each in begun})
        return begun

    def placed(self, sent: Sent, place: Place) -> None:
        """Record the position of a message, which must be unique."""
        key = (sent.topic, sent.generation, sent.queue_id, place.queue_offset)
        owner = self.sent.get(self._owners.setdefault(key, sent.number), sent)
        if owner.number in self.damaged:
            owner = sent
        assert owner is sent, f"offset given twice: to message {sent.number}, it is that of {owner}"
        self._owners[key] = sent.number
        sent.place = place

    def refused(self, batch: list[Sent]) -> None:
        for each in batch:
            del self.sent[each.number]

    def begin_delete(self, topic: str) -> None:
        self.unfinished.add(topic)

    def end_delete(self, topic: str) -> None:
        self.generations[topic] += 1
        self.unfinished.discard(topic)

    def acknowledge(self, numbers: Iterable[int]) -> None:
        """The store said that these are on disk (SYNC_FLUSH)."""
        for number in numbers:
            if number in self.sent:
                self.sent[number].acknowledged = self.sent[number].durable = True

    def end_life(self, flushed_phy_offset: int) -> None:
        """A process ended; what it answered survives, unless power is lost as well."""
        self._power_was_cut = False
        for each in self.sent.values():
            if each.place is not None:
                each.durable |= each.place.phy_offset < flushed_phy_offset

    def lose_power(self) -> None:
        """Only what was on disk survives."""
        self._power_was_cut = True

    # -- what must be so -------------------------------------------------------------------

    def is_alive(self, sent: Sent) -> bool:
        return sent.generation == self.generations[sent.topic]

    def check_read(self, found: list[Found], flushed_phy_offset: int) -> None:
        """Judge what a consumer got from a running store."""
        found = self._check_found(found)
        numbers = {each.number for each in found}
        for sent in self.sent.values():
            is_due = sent.acknowledged or sent.seen or (sent.place is not None and not self.sync)
            if is_due and self._must_be_there(sent):
                assert sent.number in numbers, f"{sent} is not readable"
        for each in found:
            self.sent[each.number].seen = True
            if self.sync:
                end = each.place.phy_offset + each.size_bytes
                self.sent[each.number].durable = True
                assert end <= flushed_phy_offset, f"message seen before flushed: {each}"

    def check_reopened(self, found: list[Found], end: int) -> None:
        """Judge what a store holds right after its start, and forget what a crash took.

        Args:
            found: all that can be read.
            end: where the log ends.
        """
        found = self._check_found(found)
        numbers = {each.number for each in found}
        for number, sent in list(self.sent.items()):
            if number in numbers:
                continue
            if not self.is_alive(sent):
                continue
            if self._must_be_there(sent):
                survives = sent.durable if self._power_was_cut else sent.place is not None
                assert not survives, f"{sent} is lost"
                is_hole = sent.place is not None and sent.place.phy_offset < end
                assert not is_hole, f"a hole, not a suffix of the log, is gone: {sent}"
            del self.sent[number]
        self._power_was_cut = False
        for each in found:
            self.sent[each.number].durable = True
            self.sent[each.number].acknowledged = self.sync

    def check_lookups(self, store: MessageStore, found: list[Found]) -> None:
        """Every message that can be read is found by its place and by its keys."""
        for each in found:
            record = store.look_message(each.place.phy_offset)
            assert record is not None, f"{each} is not found by its place"
            message = decode_message(bytes(record))
            assert message.body == body_of(each.number)
            at = message.store_timestamp_ms
            for key in filter(None, (uniq_key_of(each.number), keys_of(each.number))):
                for begin_ms, end_ms in ((0, FOREVER), (at, at)):
                    result = store.query_index(each.topic, key, 64, begin_ms, end_ms)
                    missed = f"{each} is not found by key {key} from {begin_ms} to {end_ms}"
                    assert each.place.phy_offset in result.phy_offsets, missed
                    assert result.is_complete, missed

    def _must_be_there(self, sent: Sent) -> bool:
        return (
            self.is_alive(sent)
            and sent.topic not in self.unfinished
            and sent.number not in self.damaged
        )

    def _check_found(self, found: list[Found]) -> list[Found]:
        """Judge each message for itself; return those of living topics."""
        living = []
        last: dict[tuple[str, int], Found] = {}
        for each in found:
            sent = self.sent.get(each.number)
            assert sent is not None, f"message is invented: {each}"
            assert (sent.topic, sent.queue_id) == (each.topic, each.queue_id), (sent, each)
            if not self.is_alive(sent):
                assert not self.deleted_stay, f"deleted message is back: {each}"
                continue
            living.append(each)
            assert each.number not in self.damaged, f"damaged message is delivered: {each}"
            if sent.place is None:
                sent.place = each.place
            assert sent.place == each.place, f"message has moved: {sent}, now {each}"
            before = last.get((each.topic, each.queue_id))
            if before is not None:
                assert before.number != each.number, f"message comes twice: {each}"
                in_order = before.number < each.number and before.place < each.place
                assert in_order, f"order: {before} before {each}"
            last[each.topic, each.queue_id] = each
        return living
