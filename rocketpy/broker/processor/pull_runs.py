"""What the compiled path asks Python about each pull, and tells it of each.

A pull that finds nothing yet waits as any other does (`PullOperation.wait_plain`); once it is woken
it is served as if it had come then, as long as what it was allowed by still holds.

The compiled path (`_plain_sends_pulls.pxi`) reads a pull's header, takes the records and writes the
response's body. Who may pull what, how far a queue can be read, what is committed and counted, and
the response's head are asked for here, so that each rule exists once.

A consumer's pulls of one queue differ in their offsets only. What is the same is a `KnownPull`: it
is made of the first of them, and kept by the compiled path. What it was allowed by is looked at
again when any of that has changed (`PullChecks.standing`).
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

from rocketpy.broker.filters import SqlFilter, TagFilter
from rocketpy.broker.operation.pull import CODE_BY_STATUS, SuspendedPull
from rocketpy.broker.operation.pull_checks import AllowedPull, is_kept
from rocketpy.broker.operation.pull_request import PullRefused, PullRequest
from rocketpy.broker.processor.pull_message import PullMessageProcessor, head_of, pull_request
from rocketpy.broker.processor.pull_response import JSON, JsonParts, json_parts, pull_head
from rocketpy.errors import RocketPyError
from rocketpy.remoting.channel import Channel
from rocketpy.sql92.condition import Condition
from rocketpy.store.plain_runs import PlainPart
from rocketpy.store.results import GetMessageStatus

_log = logging.getLogger(__name__)

_MAX_CODES: Final = 8
"""Tags that are compared one after the other; who takes more of them is served by Python."""
_OUTCOMES: Final = tuple(
    (CODE_BY_STATUS[status], status.value)
    for status in (GetMessageStatus.NO_MATCHED_MESSAGE, GetMessageStatus.FOUND)
)
"""Code and remark of responses without messages, and with some."""
_MAX_TALLIES: Final = 1_024
_AT_END: Final = GetMessageStatus.OFFSET_OVERFLOW_ONE
_new: Final = tuple.__new__

PullFields: TypeAlias = tuple[int, str, str, int, int, int, str | None, str | None, int, int | None]
"""What `pull_request` takes, but the offsets and how long it may wait."""


AnswersPull: TypeAlias = Callable[["KnownPull", int, int, int], bytes | None]
"""Makes the response to a pull of which all is known but queue offset, opaque and header type; None
when the request is to go the ordinary way: nothing was committed or counted then."""


class ReadsPlain(Protocol):
    """What is needed of the store: see `rocketpy.store.reader.MessageReader`."""

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
    ) -> PlainPart | None:
        """Return where a read begins, for who takes its records, and checks them where needed."""
        ...

    def end_plain(self, part: PlainPart, next_offset: int, count: int) -> bool:
        """Say whether a read that was made is whole; False when it has to go on."""
        ...

    @property
    def count_plain(self) -> Callable[[int, int, int, int], None]:
        """Counts reads that were made: with records, without, the records, and ms of all."""
        ...

    def end_of(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Return the bounds of a queue that ends there, and count a read of nothing."""
        ...


class Tally:
    """What the pulls of a group and topic handed out, and what is not counted yet.

    Attributes:
        group: whose they are.
        topic: that they read.
        times: pulls that found something.
        count: messages.
        size_bytes: of them.
    """

    __slots__ = ("count", "group", "size_bytes", "times", "topic")

    def __init__(self, group: str, topic: str) -> None:
        self.group: str = group
        self.topic: str = topic
        self.times: int = 0
        self.count: int = 0
        self.size_bytes: int = 0


class KnownPull:
    """What is the same in a consumer's pulls of one queue.

    Attributes:
        wanted: what it asks for, at whatever offset.
        commits: whether the offset that it names is committed.
        waits: whether it waits for a message when there is none yet.
        limit: of what a read takes.
        tally: of its group and topic.
        standing: number of what it was allowed by; 0 asks each time.
        message_filter: what it takes, while it has a standing; None takes everything.
        codes: of the tags it takes; None takes any.
        condition: what it takes has to meet; None takes everything. Given up after each pull.
        weight: of the condition, see `rocketpy.store.results.MessageFilter`.
        sys_flags: of its topic and group.
        heads: of responses in JSON, without messages and with some.
    """

    __slots__ = (
        "codes",
        "commits",
        "condition",
        "heads",
        "limit",
        "message_filter",
        "standing",
        "sys_flags",
        "tally",
        "waits",
        "wanted",
        "weight",
    )

    def __init__(self, fields: PullFields, reader: ReadsPlain, tally: Tally) -> None:
        code, group, topic, queue_id, max_count, sys_flag, text, kind, version, max_bytes = fields
        self.wanted: PullRequest = pull_request(
            *(code, group, topic, queue_id, 0, max_count, sys_flag, 0, 0),
            *(text, kind, version, max_bytes),
        )
        self.commits: bool = self.wanted.commit_offset is not None
        self.waits: bool = self.wanted.suspend_ms is not None
        self.limit: tuple[int, int] = reader.plain_limit(
            self.wanted.max_count, self.wanted.max_bytes
        )
        self.tally: Tally = tally
        self.standing: int = 0
        self.message_filter: TagFilter | None = None
        self.codes: frozenset[int] | None = None
        self.condition: Condition | None = None
        self.weight: int = 1
        self.sys_flags: tuple[int, int] | None = None
        self.heads: tuple[JsonParts, ...] = ()

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


class PullRuns:
    """Begins and ends plain pulls.

    Args:
        processor: knows who checks them, commits and counts, and has those answered that waited.
        reader: the store's.

    Attributes:
        answer: the compiled path's answer to a pull that waited; None while there is no such path.
    """

    def __init__(self, processor: PullMessageProcessor, reader: ReadsPlain) -> None:
        self._processor = processor
        self._pulls = pulls = processor.operation
        self._checks = pulls.checks
        self._has_reset = pulls.offsets.has_reset
        self._reader = reader
        self._commit_read = pulls.offsets.commit_read
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._touched: list[Tally] = []
        self._now_ms = pulls.now_ms
        self._count_reads = reader.count_plain
        self._count_pulls = pulls.count_plain
        self._began_ms: int | None = None
        self._missed = 0
        self.answer: AnswersPull | None = None

    def know(self, *fields: *PullFields) -> KnownPull:
        """Return what is the same in a consumer's pulls of one queue; nothing is checked yet.

        Args:
            fields: of a header.
        """
        group, topic = fields[1], fields[2]
        tally = self._tallies.get((group, topic))
        if tally is None:
            if len(self._tallies) >= _MAX_TALLIES:
                self._tallies.clear()
            tally = self._tallies[group, topic] = Tally(group, topic)
        return KnownPull(fields, self._reader, tally)

    def begin(self, known: KnownPull, queue_offset: int) -> PlainPart | None:
        """Check a pull.

        Args:
            known: what it asks for.
            queue_offset: where.

        Returns:
            None when the request is to go the ordinary way, which also says what is wrong with it.
        """
        wanted = known.wanted
        if self._began_ms is None:
            self._began_ms = self._now_ms()
        try:
            standing = self._checks.standing().number
            if known.standing != standing:
                known.standing = 0
                if not known.allow(self._checks.check(wanted), standing):
                    return None
            group, topic, queue_id = wanted[0], wanted[1], wanted[2]
            if self._has_reset(group, topic, queue_id):
                return None
            return self._reader.begin_plain(
                topic,
                queue_id,
                queue_offset,
                known.limit,
                known.weight,
                # Conditions are asked about records that were checked before.
                checks=known.condition is None,
            )
        except (RocketPyError, OSError, PullRefused):
            return None

    def end(  # noqa: PLR0917 - values in hand, at each pull
        self,
        known: KnownPull,
        part: PlainPart,
        next_offset: int,
        commit_offset: int,
        opaque: int,
        serialize_type: int,
        count: int,
        size_bytes: int,
    ) -> bytes | JsonParts | None:
        """Commit what was read, and note what `settle` counts; return the response up to records.

        Args:
            known: what was asked for.
            part: where it was read.
            next_offset: queue offset behind the entries that were looked at.
            commit_offset: of the request.
            opaque: of the request.
            serialize_type: of the request's header.
            count: records that were taken.
            size_bytes: of them.

        Returns:
            In JSON only what `json_parts` says: the caller adds the numbers.
            None when the read has to go on, as none was taken or as what follows has to be checked:
            nothing is committed or counted then, and the request is to go the ordinary way.
        """
        if not (count and part.is_usual) and not self._reader.end_plain(part, next_offset, count):
            return None
        committed = commit_offset if known.commits else None
        self._commit_read(*known.wanted[:3], next_offset, committed)
        if count:
            tally = known.tally
            if not tally.times:
                self._touched.append(tally)
            tally.times += 1
            tally.count += count
            tally.size_bytes += size_bytes
        else:
            self._missed += 1
        if serialize_type == JSON:
            return known.heads[count > 0]
        code, remark = _OUTCOMES[count > 0]
        assert known.sys_flags is not None, "begun before"
        offsets = part.high, part.low, next_offset
        return pull_head(opaque, serialize_type, code, remark, offsets, known.sys_flags, size_bytes)

    def settle(self) -> None:
        """Count what the pulls of one call handed out; it is over then."""
        found = count = 0
        while self._touched:
            tally = self._touched.pop()
            times, count_of, size_bytes = tally.times, tally.count, tally.size_bytes
            tally.times = tally.count = tally.size_bytes = 0
            found += times
            count += count_of
            self._count_pulls(tally.group, tally.topic, count_of, size_bytes, times)
        missed, began_ms = self._missed, self._began_ms
        self._missed, self._began_ms = 0, None
        if began_ms is not None and (found or missed):
            self._count_reads(found, missed, count, self._now_ms() - began_ms)

    def wait(  # noqa: PLR0917 - values in hand, at each pull
        self,
        known: KnownPull,
        queue_offset: int,
        commit_offset: int,
        suspend_ms: int,
        opaque: int,
        serialize_type: int,
        channel: Channel,
    ) -> bytes | None:
        """Let a pull wait that `begin` did not begin, if it only came too early.

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
        if known.standing != self._checks.standing().number or self._has_reset(*wanted[:3]):
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
            partial(self._resume, channel, known, opaque, serialize_type),
        )
        if waits:
            if not channel.is_open:  # see `PullMessageProcessor.process`
                self._processor.on_close(channel)
            return b""
        assert known.sys_flags is not None, "it has a standing"
        low, high = bounds
        offsets, code = (high, low, queue_offset), CODE_BY_STATUS[_AT_END]
        remark = _AT_END.value
        return pull_head(opaque, serialize_type, code, remark, offsets, known.sys_flags, 0)

    def _resume(
        self,
        channel: Channel,
        known: KnownPull,
        opaque: int,
        serialize_type: int,
        pull: SuspendedPull,
    ) -> None:
        work = partial(self._go_on, known, opaque, serialize_type, pull)
        self._processor.resume(channel, work)

    def _go_on(
        self, known: KnownPull, opaque: int, serialize_type: int, pull: SuspendedPull
    ) -> bytes:
        if self.answer is not None and known.standing == self._checks.standing().number:
            try:
                response = self.answer(known, pull.wanted[3], opaque, serialize_type)
            except Exception:  # noqa: BLE001 - its client must have an answer
                _log.exception("a pull that waited fails, Python goes on group=%s", known.wanted[0])
                response = None
            if response is not None:
                self._pulls.release(pull)
                return response
        return self._processor.go_on(head_of(0, opaque, serialize_type), pull)
