"""Appending the plain messages that came together, for queues of one topic, column by column.

A message alone takes some forty calls from the put to its index entry, messages of a run take few
more together than one does: each step is one call over a column of all of them. `DirectAppend`
opens and closes the run; what it cannot take is left to `MessageStore`, one by one.

Invariants:
    - a run is stored as its messages would be that are put one after the other: the same records,
      queue entries and index entries;
    - all of them or none: what does not fit raises before the first byte.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from rocketpy.proto.record.record import (
    CRC_MASK,
    FIXED_BYTES,
    HOST_FLAGS,
    V4_HOST_BYTES,
    V4_MIDDLE_BYTES,
    pack_run,
    record_middles,
    topic_field,
)
from rocketpy.proto.record.tags import IndexKeyHasher
from rocketpy.store.append.direct_append import AppendedRun, AppendSpace, DirectAppend
from rocketpy.store.append.dispatch import Arrival
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY
from rocketpy.store.index.index_file import write_entries
from rocketpy.store.index.index_keys import KeysOfRun, keys_of_run


class PutRun(NamedTuple):
    """Plain messages of one topic, field by field: one value a message in each, in their order.

    None of them belongs to a transaction or is delayed. The fields are those of `PutMessage`.
    """

    queue_ids: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    flags: Sequence[int]
    sys_flags: Sequence[int]
    born_timestamps_ms: Sequence[int]
    reconsume_times: Sequence[int]
    tags_codes: Sequence[int]
    uniq_keys: Sequence[str]
    keys: Sequence[str | None]
    tags: Sequence[str | None]


class PlacedRun(NamedTuple):
    """Where the messages of a run went.

    Attributes:
        phy_offsets: of each record.
        queue_offsets: of each message.
        phy_end: physical offset after the last record.
    """

    phy_offsets: Sequence[int]
    queue_offsets: Sequence[int]
    phy_end: int


class BulkAppend:
    """Puts runs into one store; any thread.

    Args:
        direct: opens and closes them.
    """

    def __init__(self, direct: DirectAppend) -> None:
        self._direct = direct
        self._hasher = IndexKeyHasher()

    def put(self, topic: str, born_host: bytes, run: PutRun) -> PlacedRun | None:
        """Append a run, and tell who listens for arrivals.

        Args:
            topic: stored topic of all messages.
            born_host: of all messages, as in `PutMessage`.
            run: the messages, at least one.

        Returns:
            None when they are to be put one by one; nothing was stored then.
        """
        if len(born_host) != V4_HOST_BYTES:
            return None
        field = topic_field(topic)
        fixed_bytes = FIXED_BYTES + len(field)
        lengths = zip(map(len, run.bodies), map(len, run.properties), strict=True)
        sizes = [fixed_bytes + body_bytes + rest_bytes for body_bytes, rest_bytes in lengths]
        crcs = [crc32(body) & CRC_MASK for body in run.bodies]
        keys = self._keys(topic, run)
        numbers_by_queue: dict[int, list[int]] = {}
        for number, queue_id in enumerate(run.queue_ids):
            numbers_by_queue.setdefault(queue_id, []).append(number)
        places = [(topic, queue_id, len(each)) for queue_id, each in numbers_by_queue.items()]
        direct = self._direct
        space = direct.begin(places, sum(sizes), len(keys.hashes))
        if space is None:
            return None
        written: AppendedRun | None = None
        try:
            writing = _BulkWrite(space, run, sizes, keys, list(numbers_by_queue.values()))
            if writing.fits:
                written = writing.write(topic, crcs, born_host, field)
        except struct.error:  # a number that does not fit its field: `put_message` says whose
            return None
        finally:
            direct.end(space, written)
        if written is None:
            return None
        if not space.waits_for_flush:
            direct.dispatchers.announce(writing.arrivals(topic))
        return PlacedRun(writing.phy_offsets, writing.queue_offsets, writing.phy_end)

    def _keys(self, topic: str, run: PutRun) -> KeysOfRun:
        if not self._direct.has_index:
            return KeysOfRun((), ())
        return keys_of_run(self._hasher, topic, run.uniq_keys, run.keys, run.tags)


class _BulkWrite:
    """One run on its way into the files, while the append lock is held.

    Args:
        space: where it may be written.
        run: the messages.
        sizes: of their records, bytes.
        keys: for the index.
        numbers: for each queue of `space` which messages go there.

    Attributes:
        phy_offsets: of each record.
        phy_end: physical offset after the last one.
        queue_offsets: of each message; known when `fits` was asked.
    """

    def __init__(
        self,
        space: AppendSpace,
        run: PutRun,
        sizes: Sequence[int],
        keys: KeysOfRun,
        numbers: Sequence[Sequence[int]],
    ) -> None:
        self._space = space
        self._run = run
        self._sizes = sizes
        self._keys = keys
        self._numbers = numbers
        self._ends: list[int] = []
        first = space.log.base_offset + space.log.write_position
        *self.phy_offsets, self.phy_end = accumulate(sizes, initial=first)
        self.queue_offsets = [0] * len(sizes)

    @property
    def fits(self) -> bool:
        """Whether there is room for all of it; gives messages their places in their queues."""
        space = self._space
        index_run = space.index_run
        if index_run is not None and index_run.first + len(self._keys.hashes) > index_run.stop:
            return False
        if self.phy_end - space.log.base_offset > space.log_end:
            return False
        for queue, tail, numbers in zip(space.queues, space.tails, self._numbers, strict=True):
            if queue is None or tail is None:
                return False
            for queue_offset, number in enumerate(numbers, queue.next_offset):
                self.queue_offsets[number] = queue_offset
            self._ends.append(queue.next_offset + len(numbers))
        return True

    def write(
        self, topic: str, crcs: Sequence[int], born_host: bytes, topic_with_length: bytes
    ) -> AppendedRun:
        """Write records, queue entries and index entries; return what counts then.

        Raises:
            struct.error: a number does not fit its field; nothing was written.
        """
        space, run, sizes, phy_offsets = self._space, self._run, self._sizes, self.phy_offsets
        log = space.log
        middles = record_middles(
            [flag & ~HOST_FLAGS for flag in run.sys_flags], run.born_timestamps_ms, born_host,
            space.store_ms, space.store_host, run.reconsume_times,
        )  # fmt: skip
        entries = [*map(ENTRY.pack, phy_offsets, sizes, run.tags_codes)]
        pack_run(
            log.buffer, log.write_position, sizes, crcs, run.bodies, run.properties, run.flags,
            run.queue_ids, self.queue_offsets, phy_offsets, middles, V4_MIDDLE_BYTES,
            topic_with_length,
        )  # fmt: skip
        for tail, numbers in zip(space.tails, self._numbers, strict=True):
            if tail is not None:
                buffer, at = tail
                data = b"".join([entries[number] for number in numbers])
                buffer[at : at + len(data)] = data
        keys = self._keys
        key_phy_offsets = [phy_offsets[number] for number in keys.numbers]
        index_count = slots_used = 0
        if space.index_run is not None:
            index_count = space.index_run.first + len(keys.hashes)
            slots_used = write_entries(
                space.index_run, keys.hashes, key_phy_offsets, space.store_ms
            )
        ends = [numbers[-1] for numbers in self._numbers]
        return AppendedRun(
            self.phy_end - log.base_offset,
            [len(numbers) for numbers in self._numbers],
            [phy_offsets[number] + sizes[number] for number in ends],
            index_count,
            slots_used,
            phy_offsets[-1],
            keys.hashes if space.waits_for_flush else (),
            key_phy_offsets if space.waits_for_flush else (),
            self.arrivals(topic) if space.waits_for_flush else (),
        )

    def arrivals(self, topic: str) -> list[Arrival]:
        """Return what the listener is told: each queue and tags code once."""
        codes = self._run.tags_codes
        queues: list[ConsumeQueue | None] = self._space.queues
        return [
            (topic, queue.queue_id, end, code)
            for queue, end, numbers in zip(queues, self._ends, self._numbers, strict=True)
            if queue is not None
            for code in {codes[number] for number in numbers}
        ]
