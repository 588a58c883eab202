"""Request of a scan: the selection of messages and the limits of record batches."""

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
# A smaller tags code is an address in Apache's consumequeue_ext and not a tag hash.
_EXTENSION_BELOW: Final = -(1 << 31)


class QueueName(NamedTuple):
    """Topic and queue id; key of `starts` and `ends`."""

    topic: str
    queue_id: int


@dataclass(frozen=True, kw_only=True)
class ScanRequest:
    """Selection and limits of a scan, as plain values that can be sent to another process.

    Attributes:
        topics: names, or patterns with `*` and `?`; empty for all except system topics.
        tags: tag expression, `a || b`; `*` for all.
        sql: an SQL92 condition on properties, applied to each row; empty for none.
        starts: first queue offset by queue; other queues start with their first message.
        ends: end queue offset (exclusive) by queue; other queues end with their last message.
        start_ms: earliest store time, ms since 1970.
        end_ms: end of the store times (exclusive), ms since 1970.
        keys: scan by index: message keys or unique ids.
        index_slots: scan by index: hash slots of a file; None: a quarter of its entries.
        on_data_loss: action if requested offsets were deleted; `mark` is for scans by queue, and
            omits offsets that do not exist yet.
        with_deleted: scan by log: also messages of deleted topics.
        schema: the columns.
        broker_name: value of the column `brokerName`, which the files do not contain.
        check_crc: compare bodies with their checksums.
        damaged: action for damaged records.
        batch_rows: most rows of a batch.
        batch_bytes: most bytes of the records of a batch, unless a single record is larger.
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
        """Return the selected tags; empty for all.

        Raises:
            ValueError: the expression holds no tag.
        """
        return frozenset(build_subscription("", self.tags).tags_set)

    def decoder(self, on_damaged: Callable[[CorruptRecordError], None] | None) -> "RecordDecoder":
        """Return a decoder for the columns of the request."""
        from rocketpy.arrow import RecordDecoder  # noqa: PLC0415 - planning does not need it

        return RecordDecoder(
            self.schema,
            check_crc=self.check_crc,
            damaged=self.damaged,
            on_damaged=on_damaged,
            tags=self.tag_set,
        )

    def topics_of(self, known: Collection[str]) -> list[str]:
        """Return the selected ones of the existing topics, sorted.

        Raises:
            ValueError: an unknown name; the message names the nearest one.
        """
        for name in self.topics:
            if not _is_pattern(name) and name not in known:
                near = get_close_matches(name, known, 1, 0.6)
                hint = f"; did you mean {near[0]}?" if near else ""
                msg = f"no topic {name!r} in this store{hint}"
                raise ValueError(msg)
        return sorted(filter(self.takes, known))

    def takes(self, topic: str) -> bool:
        """Return whether a topic is selected."""
        if not self.topics:
            return not is_system_topic(topic)
        return any(fnmatch.fnmatchcase(topic, each) for each in self.topics)

    def tags_mask(self, topic: str, codes: Int64s) -> Int64s | None:
        """Return the indices of entries that may have a selected tag; None for all.

        Entries are compared by hash, so another tag may be among them.
        """
        tags = self.tag_set
        if not tags or topic == SCHEDULE_TOPIC:  # there the code is a time
            return None
        hashes = np.array([tags_code(tag) for tag in tags], np.int64)
        return np.flatnonzero(np.isin(codes, hashes) | (codes < _EXTENSION_BELOW))

    def lost(self, queue: QueueName, start: int, end: int) -> None:
        """Handle deleted messages of a queue, `start` to before `end`, as `on_data_loss` says.

        Raises:
            DataLossError: `on_data_loss` is `fail`.
        """
        if self.on_data_loss == "fail" and end > start:
            raise DataLossError(
                f"messages {start} to {end - 1} of {queue.topic}, queue {queue.queue_id}, were "
                "deleted or do not exist yet; set on_data_loss to skip them"
            )

    def lost_of_log(self, start: int, end: int) -> None:
        """Handle a deleted part of the log, physical offsets `start` to before `end`.

        Raises:
            DataLossError: `on_data_loss` is `fail`.
        """
        if self.on_data_loss == "fail":
            raise DataLossError(
                f"the log file with physical offsets {start} to {end - 1} was deleted; set "
                "on_data_loss to skip it"
            )


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name
