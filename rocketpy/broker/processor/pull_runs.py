"""What the compiled path asks Python about each pull, and tells it of each.

The compiled path (`_plain_sends_pulls.pxi`) reads a pull's header, takes the records and writes the
response's body. Who may pull what, how far a queue can be read, what is committed and counted, and
the response's head are asked for here, so that each rule exists once.
"""

from typing import Final, NamedTuple, Protocol, TypeAlias

from rocketpy.broker.filters import SqlFilter
from rocketpy.broker.operation.pull import PullOperation
from rocketpy.broker.operation.pull_request import PullRequest
from rocketpy.broker.processor.pull_message import head_of, pull_request
from rocketpy.broker.processor.pull_response import pull_head
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.sql92.condition import Condition
from rocketpy.store.plain_runs import PlainPart
from rocketpy.store.results import GetMessageResult

_MAX_CODES: Final = 8
"""Tags that are compared one after the other; who takes more of them is served by Python."""

PullFields: TypeAlias = tuple[
    int, str, str, int, int, int, int, int, int, str | None, str | None, int, int | None
]
"""What `pull_request` takes."""


class ReadsPlain(Protocol):
    """What is needed of the store: see `rocketpy.store.reader.MessageReader`."""

    def begin_plain(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int
    ) -> PlainPart | None:
        """Return where a read begins, for who takes its records."""
        ...

    def end_plain(
        self, part: PlainPart, next_offset: int, count: int, size_bytes: int
    ) -> GetMessageResult | None:
        """Count a read that was made; None when it has to go on."""
        ...


class BegunPull(NamedTuple):
    """A pull that was checked.

    Attributes:
        part: where it reads.
        codes: of the tags it takes; None takes any.
        condition: what it takes has to meet; None takes everything.
        wanted: what it asks for.
        group: whose it is.
        topic: that it reads.
    """

    part: PlainPart
    codes: frozenset[int] | None
    condition: Condition | None
    wanted: PullRequest
    group: SubscriptionGroupConfig
    topic: TopicConfig


class PullRuns:
    """Begins and ends plain pulls.

    Args:
        pulls: checks them, commits and counts.
        reader: the store's.
    """

    def __init__(self, pulls: PullOperation, reader: ReadsPlain) -> None:
        self._pulls = pulls
        self._reader = reader

    def begin(self, *fields: *PullFields) -> BegunPull | None:
        """Check a pull.

        Args:
            fields: of its header, as `pull_request` takes them.

        Returns:
            None when the request is to go the ordinary way, which also says what is wrong with it.
        """
        wanted = pull_request(*fields)
        try:
            begun = self._pulls.begin_plain(wanted)
            if begun is None:
                return None
            group, topic, message_filter = begun
            codes, condition = None, None
            if isinstance(message_filter, SqlFilter):
                condition = message_filter.condition
            elif message_filter is not None:
                codes = message_filter.codes
                if len(codes) > _MAX_CODES:
                    return None
            part = self._reader.begin_plain(wanted[1], *wanted[2:6])
        except (RocketPyError, OSError):
            return None
        if part is None:
            return None
        return BegunPull(part, codes, condition, wanted, group, topic)

    def end(
        self,
        begun: BegunPull,
        opaque: int,
        serialize_type: int,
        looked_at: int,
        count: int,
        size_bytes: int,
    ) -> bytes | None:
        """Commit and count what was read; return the response up to its records.

        Args:
            begun: the pull.
            opaque: of the request.
            serialize_type: of the request's header.
            looked_at: entries that were.
            count: records that were taken.
            size_bytes: of them.

        Returns:
            None when none was taken and the read has to go on: nothing is committed or counted
            then, and the request is to go the ordinary way.
        """
        part, _, _, wanted, group, topic = begun
        next_offset = wanted.queue_offset + looked_at
        read = self._reader.end_plain(part, next_offset, count, size_bytes)
        if read is None:
            return None
        result = self._pulls.end_plain(wanted, group, topic, read)
        return pull_head(
            head_of(0, opaque, serialize_type),
            result.code,
            read,
            body_bytes=size_bytes,
            suggested_broker_id=0,
            topic_sys_flag=result.topic_sys_flag,
            group_sys_flag=result.group_sys_flag,
        )
