"""What a read wants of a store, and how much of it a record batch holds."""

import fnmatch
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from rocketpy.arrow import RowSchema, row_schema
from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.schema import Damaged
from rocketpy.errors import CorruptRecordError, DataLossError
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.subscription import SUB_ALL, build_subscription
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, is_system_topic

if TYPE_CHECKING:
    from rocketpy.arrow import RecordDecoder

ScanBy = Literal["queue", "log", "index"]
DataLoss = Literal["fail", "skip", "mark"]
_EXTENSION_BELOW: Final = -(1 << 31)
"""A smaller tags code is an address in Apache's consumequeue_ext, and says nothing."""


class QueueName(NamedTuple):
    """A queue of a topic, as the keys of `starts` and `ends` name it."""

    topic: str
    queue_id: int


@dataclass(frozen=True, kw_only=True)
class ScanRequest:
    """What is to be read. Plain values, so that it can be sent to another process.

    Attributes:
        topics: names, or patterns with `*` and `?`; empty: those that are not the system's.
        tags: an expression, `a || b`; `*` is everything.
        sql: an SQL92 condition on properties, applied to each row; empty for none.
        starts: the first queue offset, by queue; others begin with their first message.
        ends: the queue offset to end before, by queue; others end with their last message.
        start_ms: only what was stored at or after this time, ms since 1970.
        end_ms: only what was stored before this time.
        keys: scan by index: message keys or unique ids.
        index_slots: scan by index: hash slots of a file; None: a quarter of its entries.
        on_data_loss: what is done when messages asked for by offset are gone; `mark` is for scans
            by queue, and what is not there yet is left out by it.
        with_deleted: scan by log: also messages of deleted topics.
        schema: the columns.
        broker_name: for the column `brokerName`: no file of a store says whose it is.
        check_crc: compare bodies with their checksums.
        damaged: what is done about damaged records.
        batch_rows: most rows of a batch.
        batch_bytes: most bytes of records a batch is made of, unless one record has more.
    """

    topics: Sequence[str] = ()
    tags: str = SUB_ALL
    sql: str = ""
    starts: Mapping[QueueName, int] = field(default_factory=dict)
    ends: Mapping[QueueName, int] = field(default_factory=dict)
    start_ms: int | None = None
    end_ms: int | None = None
    keys: Sequence[str] = ()
    index_slots: int | None = None
    on_data_loss: DataLoss = "fail"
    with_deleted: bool = False
    schema: RowSchema = field(default_factory=row_schema)
    broker_name: str = ""
    check_crc: bool = False
    damaged: Damaged = "fail"
    batch_rows: int = 20_000
    batch_bytes: int = 4 << 20

    @property
    def tag_set(self) -> frozenset[str]:
        """The tags wanted; empty for all.

        Raises:
            ValueError: the expression holds no tag.
        """
        return frozenset(build_subscription("", self.tags).tags_set)

    def decoder(self, on_damaged: Callable[[CorruptRecordError], None] | None) -> "RecordDecoder":
        """Return a decoder of the rows wanted."""
        from rocketpy.arrow import RecordDecoder  # noqa: PLC0415 - plans do without it

        return RecordDecoder(
            self.schema,
            check_crc=self.check_crc,
            damaged=self.damaged,
            on_damaged=on_damaged,
            tags=self.tag_set,
        )

    def topics_of(self, known: Collection[str]) -> list[str]:
        """Return the topics to read, of those that there are, sorted.

        Raises:
            ValueError: a name that is none of them; the message names the nearest.
        """
        for name in self.topics:
            if not _is_pattern(name) and name not in known:
                near = get_close_matches(name, known, 1, 0.6)
                hint = f"; did you mean {near[0]}?" if near else ""
                msg = f"no topic {name!r} in this store{hint}"
                raise ValueError(msg)
        return sorted(filter(self.takes, known))

    def takes(self, topic: str) -> bool:
        """Whether messages of a topic are wanted."""
        if not self.topics:
            return not is_system_topic(topic)
        return any(fnmatch.fnmatchcase(topic, each) for each in self.topics)

    def tags_mask(self, topic: str, codes: Int64s) -> Int64s | None:
        """Return which entries may have a wanted tag, as indices; None when all may.

        By their hash, so an entry of another tag may be among them.
        """
        tags = self.tag_set
        if not tags or topic == SCHEDULE_TOPIC:  # there the code is a time
            return None
        hashes = np.array([tags_code(tag) for tag in tags], np.int64)
        return np.flatnonzero(np.isin(codes, hashes) | (codes < _EXTENSION_BELOW))

    def lost(self, queue: QueueName, start: int, end: int) -> None:
        """Do what was asked about messages of a queue that are gone, from `start` to before `end`.

        Raises:
            DataLossError: `on_data_loss` is `fail`.
        """
        if self.on_data_loss == "fail" and end > start:
            raise DataLossError(
                f"messages {start} to {end - 1} of {queue.topic}, queue {queue.queue_id}, are gone "
                "or not there yet; to read on without them, skip what is lost"
            )

    def lost_of_log(self, start: int, end: int) -> None:
        """Do the same about a part of the log: physical offsets from `start` to before `end`.

        Raises:
            DataLossError: `on_data_loss` is `fail`.
        """
        if self.on_data_loss == "fail":
            raise DataLossError(
                f"the log's file with physical offsets {start} to {end - 1} is gone; to read on "
                "without it, skip what is lost"
            )


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name
