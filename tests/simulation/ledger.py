"""Ledger of store operations and results, and its checker.

Used by the power-cut simulation, the kill loops and the exchange with Apache: each writes
numbered messages, notes what was acknowledged, and has the reopened store checked.
"""

import itertools
from dataclasses import dataclass, field

from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import (
    BatchColumns,
    BatchEntry,
    GetMessageStatus,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)

TOPIC = "Ledger"
QUEUES = 3
FOREVER = (1 << 63) - 1


def queue_of(number: int) -> int:
    """The queue is part of what a message is."""
    return number // 7 % QUEUES


def uniq_key_of(number: int) -> str:
    return f"7F0000010A2B18B4AAC2{number:012X}"


def tags_of(number: int) -> str | None:
    return (None, "red", "green")[number % 3]


def keys_of(number: int) -> str | None:
    return f"key-{number}" if number % 5 == 0 else None


def body_of(number: int) -> bytes:
    """Bodies differ in length, and identify their message."""
    return f"{number}:".encode() + bytes([number % 251 + 1]) * (number * 37 % 600)


def properties_of(number: int) -> dict[str, str]:
    found = {"UNIQ_KEY": uniq_key_of(number)}
    tags, keys = tags_of(number), keys_of(number)
    if tags:
        found["TAGS"] = tags
    if keys:
        found["KEYS"] = keys
    return found


def message(number: int) -> PutMessage:
    return PutMessage(
        topic=TOPIC,
        queue_id=queue_of(number),
        body=body_of(number),
        properties=encode_properties(properties_of(number)),
        born_timestamp_ms=number,
        tags_code=tags_code(tags_of(number)),
        uniq_key=uniq_key_of(number),
        keys=keys_of(number),
        tags=tags_of(number),
    )


def batch(numbers: list[int]) -> PutBatch:
    """Messages of one batch lie in the queue of the first."""
    return PutBatch(
        topic=TOPIC,
        queue_id=queue_of(numbers[0]),
        messages=BatchColumns.of(
            BatchEntry(
                body=body_of(number),
                properties=encode_properties(properties_of(number)),
                tags_code=tags_code(tags_of(number)),
                uniq_key=uniq_key_of(number),
                keys=keys_of(number),
                tags=tags_of(number),
            )
            for number in numbers
        ),
        born_timestamp_ms=numbers[0],
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Position of one message."""

    number: int
    queue_id: int
    queue_offset: int
    phy_offset: int


@dataclass
class Ledger:
    """Puts in the order in which they happened, and which of them were acknowledged."""

    placed: dict[int, Place] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)

    def put(self, store: MessageStore, numbers: list[int], *, as_batch: bool) -> PutMessageResult:
        """Put messages and note where they went; the caller acknowledges."""
        if not as_batch:
            assert len(numbers) == 1
            result = store.put_message(message(numbers[0]))
        else:
            result = store.put_batch(batch(numbers))
        if result.status is PutMessageStatus.PUT_OK:
            phy_offsets = result.phy_offsets or (result.phy_offset,)
            assert len(phy_offsets) == len(numbers)
            for index, number in enumerate(numbers):
                self.placed[number] = Place(
                    number,
                    queue_of(numbers[0]),
                    result.queue_offset + index,
                    phy_offsets[index],
                )
        return result

    def forget_unacknowledged_after(self, phy_offset: int) -> None:
        """Drop puts that a crash took; their places will be given to others."""
        self.placed = {
            number: place for number, place in self.placed.items() if place.phy_offset < phy_offset
        }


def read_all(store: MessageStore, *, left_out: int = 0) -> list[Place]:
    """Read every queue from its start as a consumer does, checking each record.

    `left_out` messages may be missing because they are damaged.
    """
    topic = TOPIC
    places = []
    for queue_id in range(QUEUES):
        offset = store.min_offset(topic, queue_id)
        end = store.max_offset(topic, queue_id)
        while offset < end:
            result = store.get_message(topic, queue_id, offset, 32, 1 << 20)
            if result.status is not GetMessageStatus.FOUND:
                left_out -= 1
                if left_out < 0:
                    break
            for buffer in result.buffers:
                if int.from_bytes(buffer[20:28], "big") == offset + 1 and left_out > 0:
                    left_out -= 1
                    offset += 1
                places.append(_place(bytes(buffer), topic, queue_id, offset))
                offset += 1
            if left_out and result.next_begin_offset == offset + 1:
                left_out -= 1
                offset += 1
            assert result.next_begin_offset == offset, (result, offset)
    return places


def _place(record: bytes, topic: str, queue_id: int, queue_offset: int) -> Place:
    found = decode_message(record, check_crc=True)
    assert (found.topic, found.queue_id, found.queue_offset) == (topic, queue_id, queue_offset)
    number = int(found.body.split(b":", 1)[0])
    assert found.body == body_of(number), f"message {number} was changed"
    assert found.properties == properties_of(number)
    return Place(number, queue_id, queue_offset, found.phy_offset)


def check_order(places: list[Place]) -> None:
    """Within a queue the log and the numbers ascend, and offsets have no holes."""
    for before, after in itertools.pairwise(places):
        if before.queue_id == after.queue_id:
            assert after.queue_offset == before.queue_offset + 1, (before, after)
            assert after.phy_offset > before.phy_offset, (before, after)
            assert after.number > before.number, f"order: {before} before {after}"


def check_lookups(store: MessageStore, places: list[Place]) -> None:
    """Every message that can be read is found by its place and by its keys."""
    for place in places:
        record = store.look_message(place.phy_offset)
        assert record is not None, place
        message = decode_message(record)
        assert message.body == body_of(place.number)
        stored_ms = message.store_timestamp_ms  # a look-up over all times is bounded in work
        keys = [uniq_key_of(place.number), keys_of(place.number)]
        for key in filter(None, keys):
            found = store.query_index(TOPIC, key, 64, stored_ms - 1_000, stored_ms).phy_offsets
            assert place.phy_offset in found, f"{place} is not found by {key}: {found}"


def check_kept(ledger: Ledger, places: list[Place]) -> None:
    """Nothing acknowledged is lost or moved, nothing is invented."""
    by_number = {place.number: place for place in places}
    assert len(by_number) == len(places), "a message came twice"
    for number in sorted(ledger.acknowledged):
        expected = ledger.placed[number]
        assert by_number.get(number) == expected, (
            f"acknowledged {expected} is {by_number.get(number)}"
        )
    for place in places:
        assert ledger.placed.get(place.number) == place, f"invented: {place}"
