"""What the compiled path asks of Python about each pull it serves, and tells of it.

A pull that finds nothing yet waits as any other does (`PullOperation.wait_plain`); once it is woken
it is served as if it had come then, as long as what it was allowed by still holds.

The compiled path (`_plain_sends_pulls.pxi`) reads a pull's header, takes the records and writes the
response's body. Who may pull what, how far a queue can be read, what is committed and counted, and
the response's head are asked for here, so that each rule exists once.

A consumer's pulls of one queue differ in their offsets only. What is the same is a `PullPlan`: it
is made of the first of them, and kept by the compiled path. What it was allowed by is looked at
again when any of that has changed (`PullChecks.standing`), and so is where it reads
(`read.read_cursor`): both by the compiled path itself, in a few comparisons, also whether
there is no message yet. Only when one of them fails `begin` is asked.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

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

_MAX_CODES: Final = 8
"""Tags that are compared one after the other; who takes more of them is served by Python."""
_OUTCOMES: Final = tuple(
    (CODE_BY_STATUS[status], status.remark)
    for status in (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.FOUND)
)
"""Code and remark of responses without messages, and with some."""
_AT_END: Final = GetMessageStatus.OFFSET_OVERFLOW_ONE
_new: Final = tuple.__new__

PullFields: TypeAlias = tuple[int, str, str, int, int, int, str | None, str | None, int, int | None]
"""Code and header of a pull, but the offsets and how long it may wait."""

AnswersPull: TypeAlias = Callable[["PullPlan", int, int, int], bytes | None]
"""Makes the response to a pull of which all is known but queue offset, opaque and header type; None
when the request is to go the ordinary way: nothing was committed or counted then."""


class ReadsPlain(Protocol):
    """What is needed of the store: see `rocketpy.store.read.message_reader.MessageReader`."""

    def plain_limit(self, max_count: int, max_bytes: int) -> tuple[int, int]:
        """Return how much a read takes."""
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
        """Return where a read begins, for who takes its records, and checks them where needed."""
        ...

    def end_plain(self, part: BulkReadPlan, next_offset: int, count: int) -> bool:
        """Say whether a read that was made is whole; False when it has to go on."""
        ...

    def known_place(self, topic: str, queue_id: int, part: BulkReadPlan) -> ReadCursor | None:
        """Return what lets reads go on without `begin_plain`."""
        ...

    @property
    def sources(self) -> ReadSources:
        """What reads look at."""
        ...

    @property
    def count_plain(self) -> Callable[[int, int, int, int], None]:
        """Counts reads that were made: with records, without, the records, and ms of all."""
        ...

    def end_of(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Return the bounds of a queue that ends there, and count a read of nothing."""
        ...


class PullPlan:
    """What is the same in a consumer's pulls of one queue.

    Attributes:
        wanted: what it asks for, at whatever offset.
        commits: whether the offset that it names is committed.
        waits: whether it waits for a message when there is none yet.
        limit: of what a read takes.
        group: whose it is.
        topic: that it reads.
        queue_id: that it reads.
        standing: number of what it was allowed by; 0 asks each time.
        message_filter: what it takes, while it has a standing; None takes everything.
        codes: of the tags it takes; None takes any.
        condition: what it takes has to meet; None takes everything. Given up after each pull.
        weight: of the condition, see `rocketpy.store.results.MessageFilter`.
        sys_flags: of its topic and group.
        heads: of responses in JSON, without messages and with some.
        place: where it reads, while it takes no condition and has a standing; None is looked for
            at the next pull.
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
        """Take over what a check said; False when it takes more tags than are compared here."""
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
"""A pull that was answered: the offset of the next one, the offset to commit (-1 for none), how
many messages it took, and their bytes."""


class FastPullService:
    """Begins and ends plain pulls.

    Args:
        processor: knows who checks them, commits and counts, and has those answered that waited.
        reader: the store's.

    Attributes:
        checks: say who may pull what.
        resets: offsets that wait to be delivered.
        has_reset: says whether one waits for a group, topic and queue id.
        sources: what reads look at.
        now_ms: returns the monotonic time.
        answer: their answer to a pull that waited; None while there is nobody.
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
        """Return what is the same in a consumer's pulls of one queue; nothing is checked yet.

        Args:
            fields: of a header.
        """
        return PullPlan(fields, self._reader)

    def begin(self, known: PullPlan, queue_offset: int) -> BulkReadPlan | None:
        """Check a pull, and note what holds for those that follow it (`PullPlan.place`).

        Args:
            known: what it asks for.
            queue_offset: where.

        Returns:
            None when the request is to go the ordinary way, which also says what is wrong with it.
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
                # Conditions are asked about records that were checked before.
                checks=known.condition is None,
            )
            if part is not None and part.is_usual and known.standing and known.condition is None:
                known.place = self._reader.known_place(topic, queue_id, part)
        except (RocketPyError, OSError, PullRefused):
            return None
        return part

    def _allows(self, known: PullPlan) -> bool:
        """Check a pull, unless that was done; False when the ordinary way is to do it.

        Raises:
            PullRefused: it may not pull.
        """
        standing = self.checks.standing().number
        if known.standing != standing:
            known.standing = 0
            if not known.allow(self.checks.check(known.wanted), standing):
                return False
        return not self.has_reset(known.group, known.topic, known.queue_id)

    def ends(self, part: BulkReadPlan, next_offset: int, count: int) -> bool:
        """Say whether a pull that was begun is whole.

        Not when the read has to go on, as none was taken or as what follows has to be checked: the
        request is to go the ordinary way then.

        Args:
            part: where it was read.
            next_offset: queue offset behind the entries that were looked at.
            count: records that were taken.
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
        """Return a response up to its records; the compiled path writes those in JSON itself.

        Args:
            known: what was asked for.
            offsets: of the queue's end and begin, and where the next pull begins.
            opaque: of the request.
            serialize_type: of the request's header.
            count: records that were taken.
            size_bytes: of them.
        """
        code, remark = _OUTCOMES[count > 0]
        assert known.sys_flags is not None, "begun before"
        return pull_head(opaque, serialize_type, code, remark, offsets, known.sys_flags, size_bytes)

    def settle(self, reads: Sequence[PlainRead], began_ms: int) -> None:
        """Commit what the pulls of one call read, and count it.

        Args:
            reads: at least one.
            began_ms: when the first of them began.
        """
        if len(reads) == 1:  # as mostly
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

    def wait(  # noqa: PLR0917 - values in hand, at each pull
        self,
        known: PullPlan,
        queue_offset: int,
        commit_offset: int,
        suspend_ms: int,
        opaque: int,
        serialize_type: int,
        channel: Channel,
    ) -> bytes | None:
        """Let a pull wait that finds nothing, if it only came too early.

        Args:
            known: what was asked for.
            queue_offset: where.
            commit_offset: of the request.
            suspend_ms: how long it may wait.
            opaque: of the request.
            serialize_type: of the request's header.
            channel: who asks.

        Returns:
            Nothing while it waits, or the response. None when the request is to go the ordinary
            way: nothing was touched then.
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
        """Return the response to a pull that was suspended and is resumed."""
        if self.answer is not None and known.standing == self.checks.standing().number:
            try:
                response = self.answer(known, pull.wanted[3], opaque, serialize_type)
            except Exception:  # noqa: BLE001 - its client must have an answer
                _log.exception("compiled pull failed, Python resumes it group=%s", known.wanted[0])
                response = None
            if response is not None:
                self._pulls.release(pull)
                return response
        return GeneralPullReply(self._pulls, 0, opaque, serialize_type)(pull)


class PlannedPullReply(NamedTuple):
    """Makes the response to a suspended pull by its plan, as long as that is valid.

    Attributes:
        service: reads by plans.
        plan: what was asked for.
        opaque: of the request.
        serialize_type: of the request's header.
    """

    service: FastPullService
    plan: PullPlan
    opaque: int
    serialize_type: int

    def __call__(self, pull: SuspendedPull) -> bytes:
        """Return the response."""
        return self.service.reply(self.plan, self.opaque, self.serialize_type, pull)
