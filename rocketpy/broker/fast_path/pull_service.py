"""Fast pulls: the rules of pulls for the compiled path, in Python so that each exists once.

The compiled path (`_plain_sends_pulls.pxi`) parses the header of a pull, takes the records and
writes the body of the response. Permissions, the readable part of a queue, commits, statistics and
the head of the response come from here.

A consumer's pulls of one queue differ only in their offsets. The rest is a `PullPlan`, made of the
first pull and kept by the compiled path. The compiled path itself checks, with a few comparisons,
whether the plan's permissions (`PullChecks.standing`) and its place in the log (`read.read_cursor`)
are still valid, and whether there is a message. Only when a comparison fails is `begin` called.

A pull without a message is suspended like any other (`PullOperation.wait_plain`). When it is
resumed, it is served like a new one, as long as its permissions are still valid.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from rocketpy.broker.config import MASTER_ID
from rocketpy.broker.filters.message_filters import SqlFilter, TagFilter
from rocketpy.broker.metadata.consumer_offsets import OffsetTable
from rocketpy.broker.operation.pull.checks import AllowedPull, PullChecks, is_kept
from rocketpy.broker.operation.pull.pull import CODE_BY_STATUS, SuspendedPull
from rocketpy.broker.operation.pull.request import PullRefused, PullRequest
from rocketpy.broker.processor.pull_message import (
    GeneralPullReply,
    PullMessageProcessor,
    pull_request,
)
from rocketpy.broker.processor.pull_response import JsonParts, json_parts, pull_head
from rocketpy.errors import RocketPyError
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.remoting.connection.channel import Channel
from rocketpy.sql92.condition import Condition
from rocketpy.store.read.bulk_read import BulkReadPlan
from rocketpy.store.read.read_cursor import ReadCursor, ReadSources
from rocketpy.store.results import GetMessageStatus

_log = logging.getLogger(__name__)

_PHY_OFFSET_BYTES: Final = 8
"""The physical offset comes first in an entry of a queue."""
_MAX_CODES: Final = 8
"""Tags that the compiled path compares one by one; with more, Python serves the pull."""
_OUTCOMES: Final = tuple(
    (CODE_BY_STATUS[status], status.remark)
    for status in (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.FOUND)
)
"""Code and remark of responses without messages, and with messages."""
_AT_END: Final = GetMessageStatus.OFFSET_OVERFLOW_ONE
_new: Final = tuple.__new__

PullFields: TypeAlias = tuple[int, str, str, int, int, int, str | None, str | None, int, int | None]
"""Code and header of a pull, without the offsets and the time it may be suspended."""

AnswersPull: TypeAlias = Callable[["PullPlan", int, int, int], bytes | None]
"""Makes the response to a pull by plan, queue offset, opaque and header type.

Returns None when it needs the general path; nothing was committed or counted then.
"""


class ReadsPlain(Protocol):
    """Interface of the store: see `rocketpy.store.read.message_reader.MessageReader`."""

    def plain_limit(self, max_count: int, max_bytes: int) -> tuple[int, int]:
        """Return the limits of a read."""
        ...

    def begin_plain(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limit: tuple[int, int],
        weight: int,
        *,
        checks: bool,
    ) -> BulkReadPlan | None:
        """Return where a read starts; checks records unless they are checked later."""
        ...

    def end_plain(self, part: BulkReadPlan, next_offset: int, count: int) -> bool:
        """Return whether a read is complete; False when it must continue."""
        ...

    def known_place(self, topic: str, queue_id: int, part: BulkReadPlan) -> ReadCursor | None:
        """Return the cursor with which later reads need no `begin_plain`."""
        ...

    @property
    def sources(self) -> ReadSources:
        """Parts of the store that reads access."""
        ...

    @property
    def count_plain(self) -> Callable[[int, int, int, int], None]:
        """Counts reads: with records, without, the records, and the duration of all in ms."""
        ...

    def end_of(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Return the bounds of a queue that ends at an offset, and count an empty read."""
        ...


class PullPlan:
    """Fields that a consumer's pulls of one queue have in common, with the result of their checks.

    Attributes:
        wanted: the pull, at any offset.
        commits: whether its commit offset is committed.
        waits: whether it may be suspended.
        limit: limits of a read.
        group: its group.
        topic: its topic.
        queue_id: its queue.
        standing: number of the version of its checks; 0 checks each time.
        message_filter: its filter, while it has a version; None accepts everything.
        codes: codes of its tags; None accepts any.
        condition: its SQL92 condition; None accepts everything. Dropped after each pull.
        weight: cost of the condition, see `rocketpy.store.results.MessageFilter`.
        sys_flags: system flags of its topic and group.
        heads: heads of JSON responses, without messages and with messages.
        place: cursor of its reads, without a condition and with a version; None: the next pull
            gets one.
    """

    __slots__ = (
        "codes",
        "commits",
        "condition",
        "group",
        "heads",
        "limit",
        "message_filter",
        "place",
        "queue_id",
        "standing",
        "sys_flags",
        "topic",
        "waits",
        "wanted",
        "weight",
    )

    def __init__(self, fields: PullFields, reader: ReadsPlain) -> None:
        code, group, topic, queue_id, max_count, sys_flag, text, kind, version, max_bytes = fields
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=max_count,
            sys_flag=sys_flag,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=text,
            sub_version=version,
            expression_type=kind,
            max_msg_bytes=max_bytes,
        )
        self.wanted: PullRequest = pull_request(code, header)
        self.commits: bool = self.wanted.commit_offset is not None
        self.waits: bool = self.wanted.suspend_ms is not None
        self.limit: tuple[int, int] = reader.plain_limit(
            self.wanted.max_count, self.wanted.max_bytes
        )
        self.group: str = group
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.standing: int = 0
        self.message_filter: TagFilter | None = None
        self.codes: frozenset[int] | None = None
        self.condition: Condition | None = None
        self.weight: int = 1
        self.sys_flags: tuple[int, int] | None = None
        self.heads: tuple[JsonParts, ...] = ()
        self.place: ReadCursor | None = None

    def allow(self, allowed: AllowedPull, standing: int) -> bool:
        """Apply the result of checks; False when it has too many tags for the compiled path."""
        message_filter = allowed.message_filter
        self.message_filter = self.codes = self.condition = None
        self.weight, self.standing = 1, 0
        if isinstance(message_filter, SqlFilter):
            self.condition, self.weight = message_filter.condition, message_filter.weight
        elif message_filter is not None:
            if len(message_filter.codes) > _MAX_CODES:
                return False
            self.message_filter, self.codes = message_filter, message_filter.codes
        sys_flags = allowed.topic.topic_sys_flag, allowed.group.group_sys_flag
        if self.sys_flags != sys_flags:
            self.sys_flags = sys_flags
            self.heads = tuple(json_parts(*outcome, sys_flags) for outcome in _OUTCOMES)
        self.standing = standing if is_kept(self.wanted, allowed) else 0
        return True


PlainRead: TypeAlias = tuple[PullPlan, int, int, int, int]
"""An answered pull: plan, next offset, offset to commit (-1: none), number and size of messages."""


class FastPullService:
    """Starts and ends pulls of the fast path.

    Args:
        processor: general path of pulls, with the operation behind it.
        reader: reader of the store.

    Attributes:
        checks: permissions and filters.
        resets: resets that were not delivered yet.
        has_reset: returns whether a reset of a group, topic and queue id is pending.
        sources: parts of the store that reads access.
        now_ms: returns the monotonic time.
        answer: compiled answer to a resumed pull; None without a compiled path.
    """

    def __init__(self, processor: PullMessageProcessor, reader: ReadsPlain) -> None:
        self._processor = processor
        self._pulls = pulls = processor.operation
        self.checks: PullChecks = pulls.checks
        self.resets: OffsetTable = pulls.offsets.resets
        self.sources: ReadSources = reader.sources
        self.now_ms: Callable[[], int] = pulls.now_ms
        self.has_reset: Callable[[str, str, int], bool] = pulls.offsets.has_reset
        self._reader = reader
        self._commit_read = pulls.offsets.commit_read
        self._count_reads = reader.count_plain
        self._count_pulls = pulls.count_plain
        self.answer: AnswersPull | None = None

    def know(self, *fields: *PullFields) -> PullPlan:
        """Return the plan of a consumer's pulls of one queue, without any check.

        Args:
            fields: fields of a header.
        """
        return PullPlan(fields, self._reader)

    def begin(self, known: PullPlan, queue_offset: int) -> BulkReadPlan | None:
        """Check a pull, and prepare the plan for the following ones (`PullPlan.place`).

        Args:
            known: plan of the pull.
            queue_offset: its offset.

        Returns:
            None when it needs the general path, which also reports what is wrong with it.
        """
        known.place = None
        try:
            if not self._allows(known):
                return None
            topic, queue_id = known.topic, known.queue_id
            part = self._reader.begin_plain(
                topic,
                queue_id,
                queue_offset,
                known.limit,
                known.weight,
                # Conditions are evaluated on records that were checked before.
                checks=known.condition is None,
            )
            if part is not None and self._suggests_slave(known, part):
                return None
            if part is not None and part.is_usual and known.standing and known.condition is None:
                known.place = self._reader.known_place(topic, queue_id, part)
        except (RocketPyError, OSError, PullRefused):
            return None
        return part

    def _suggests_slave(self, known: PullPlan, part: BulkReadPlan) -> bool:
        """Return whether the response suggests another broker than the master, as none here does.

        A consumer that falls behind while it reads one file of the log is noticed in the next one.
        """
        if not self.checks.config.slave_read_enable or not part.entries:
            return False
        group = self.checks.groups.get(known.group)
        if group is None:
            return False
        phy_offset = int.from_bytes(part.entries[:_PHY_OFFSET_BYTES], "big")
        return self._pulls.suggested_broker_id(group, phy_offset) != MASTER_ID

    def _allows(self, known: PullPlan) -> bool:
        """Check a pull unless its last check is valid; False when it needs the general path.

        Raises:
            PullRefused: the pull is not permitted.
        """
        standing = self.checks.standing().number
        if known.standing != standing:
            known.standing = 0
            if not known.allow(self.checks.check(known.wanted), standing):
                return False
        return not self.has_reset(known.group, known.topic, known.queue_id)

    def ends(self, part: BulkReadPlan, next_offset: int, count: int) -> bool:
        """Return whether a pull is complete.

        It is not when the read must continue, because no record was taken or the following records
        must be checked; the request then needs the general path.

        Args:
            part: plan of the read.
            next_offset: queue offset after the visited entries.
            count: number of records.
        """
        return self._reader.end_plain(part, next_offset, count)

    def head(
        self,
        known: PullPlan,
        offsets: tuple[int, int, int],
        opaque: int,
        serialize_type: int,
        count: int,
        size_bytes: int,
    ) -> bytes:
        """Return a response up to its records; the compiled path writes JSON heads itself.

        Args:
            known: plan of the pull.
            offsets: end and start of the queue, and the next offset to pull.
            opaque: opaque of the request.
            serialize_type: header type of the request.
            count: number of records.
            size_bytes: size of the records.
        """
        code, remark = _OUTCOMES[count > 0]
        assert known.sys_flags is not None, "begun before"
        return pull_head(opaque, serialize_type, code, remark, offsets, known.sys_flags, size_bytes)

    def settle(self, reads: Sequence[PlainRead], began_ms: int) -> None:
        """Commit and count the pulls of one call.

        Args:
            reads: at least one answered pull.
            began_ms: start of the first pull.
        """
        if len(reads) == 1:  # the common case
            known, next_offset, commit_offset, taken, size_bytes = reads[0]
            group, topic = known.group, known.topic
            self._commit_read(group, topic, known.queue_id, next_offset, commit_offset)
            if taken:
                self._count_pulls(group, topic, taken, size_bytes, 1)
            self._count_reads(taken > 0, taken == 0, taken, self.now_ms() - began_ms)
            return
        found = count = 0
        commit_read, count_pulls = self._commit_read, self._count_pulls
        group = topic = ""
        messages = total_bytes = times = 0
        for known, next_offset, commit_offset, taken, size_bytes in reads:
            if times and (known.group != group or known.topic != topic):
                count_pulls(group, topic, messages, total_bytes, times)
                messages = total_bytes = times = 0
            group, topic = known.group, known.topic
            commit_read(group, topic, known.queue_id, next_offset, commit_offset)
            if taken:
                found += 1
                count += taken
                messages += taken
                total_bytes += size_bytes
                times += 1
        if times:
            count_pulls(group, topic, messages, total_bytes, times)
        self._count_reads(found, len(reads) - found, count, self.now_ms() - began_ms)

    def wait(  # noqa: PLR0917 - called for each pull
        self,
        known: PullPlan,
        queue_offset: int,
        commit_offset: int,
        suspend_ms: int,
        opaque: int,
        serialize_type: int,
        channel: Channel,
    ) -> bytes | None:
        """Suspend a pull without a message, if it is at the end of its queue.

        Args:
            known: plan of the pull.
            queue_offset: its offset.
            commit_offset: commit offset of the request.
            suspend_ms: how long it may be suspended.
            opaque: opaque of the request.
            serialize_type: header type of the request.
            channel: connection of the request.

        Returns:
            Empty bytes when it is suspended, or the response. None when the request needs the
            general path, and nothing was changed.
        """
        wanted = known.wanted
        if known.standing != self.checks.standing().number or self.has_reset(*wanted[:3]):
            return None
        bounds = self._reader.end_of(wanted[1], wanted[2], queue_offset)
        if bounds is None:
            return None
        waits = self._pulls.wait_plain(
            _new(PullRequest, (*wanted[:3], queue_offset, *wanted[4:])),
            known.message_filter,
            commit_offset if known.commits else None,
            suspend_ms if known.waits else None,
            channel,
            PlannedPullReply(self, known, opaque, serialize_type),
        )
        if waits:
            if not channel.is_open:  # see `PullMessageProcessor.process`
                self._processor.on_close(channel)
            return b""
        assert known.sys_flags is not None, "it has a standing"
        low, high = bounds
        offsets, code = (high, low, queue_offset), CODE_BY_STATUS[_AT_END]
        remark = _AT_END.remark
        return pull_head(opaque, serialize_type, code, remark, offsets, known.sys_flags, 0)

    def reply(
        self, known: PullPlan, opaque: int, serialize_type: int, pull: SuspendedPull
    ) -> bytes:
        """Return the response to a resumed pull."""
        if self.answer is not None and known.standing == self.checks.standing().number:
            try:
                response = self.answer(known, pull.wanted[3], opaque, serialize_type)
            except Exception:  # noqa: BLE001 - its client must have an answer
                _log.exception("compiled pull failed: group=%s", known.wanted[0])
                response = None
            if response is not None:
                self._pulls.release(pull)
                return response
        return GeneralPullReply(self._pulls, 0, opaque, serialize_type)(pull)


class PlannedPullReply(NamedTuple):
    """Makes the response to a suspended pull by its plan, as long as that is valid.

    Attributes:
        service: serves pulls by plans.
        plan: plan of the pull.
        opaque: opaque of the request.
        serialize_type: header type of the request.
    """

    service: FastPullService
    plan: PullPlan
    opaque: int
    serialize_type: int

    def __call__(self, pull: SuspendedPull) -> bytes:
        """Return the response."""
        return self.service.reply(self.plan, self.opaque, self.serialize_type, pull)
