"""What a pop asks for, what has been found for it so far, and its outcome."""

from typing import NamedTuple

from rocketpy.broker.filters import ConsumerFilter
from rocketpy.broker.operation.pull import MAX_PULL_BYTES
from rocketpy.store.results import PutMessageStatus


class PopRequest(NamedTuple):
    """What a consumer asks for.

    Attributes:
        group: consumer group.
        topic: as it was subscribed.
        queue_id: below 0 is any queue.
        max_count: messages at most, `MAX_POP_COUNT` or fewer.
        invisible_ms: how long nobody else gets the messages.
        born_ms: wall time of the request, by this broker's clock.
        poll_ms: how long it waits for messages, counted from `born_ms`; 0 does not wait.
        init_mode: where a group begins that has no offset, `INIT_MIN` or `INIT_MAX`.
        expression: what it takes; empty takes everything.
        expression_type: of `expression`; None is TAG.
        is_ordered: one pop of a queue at a time, until all of it is acked.
        attempt_id: of an ordered call, which may repeat it.
    """

    group: str
    topic: str
    queue_id: int
    max_count: int
    invisible_ms: int
    born_ms: int
    poll_ms: int
    init_mode: int
    expression: str = ""
    expression_type: str | None = None
    is_ordered: bool = False
    attempt_id: str | None = None


class Popped(NamedTuple):
    """The outcome of a pop that was carried out.

    Attributes:
        code: success, or that there is nothing (POLLING_TIMEOUT) and no room to wait
            (POLLING_FULL).
        pop_time_ms: of the handles.
        invisible_ms: of the handles.
        revive_queue_id: of the handles.
        rest_count: messages left, roughly.
        start_offsets: where the pop of each queue began, as the wire has it.
        message_offsets: queue offsets of the messages, as the wire has it.
        order_counts: earlier deliveries, as the wire has it; None unless ordered.
        records: the messages, one record each or several side by side.
        durable_at: the consumer may be told once the log is on disk up to here; 0: at once.
    """

    code: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    rest_count: int = 0
    start_offsets: str = ""
    message_offsets: str = ""
    order_counts: str | None = None
    records: tuple[bytes, ...] = ()
    durable_at: int = 0


class PopInHand:
    """One pop under way.

    Attributes:
        wanted: what was asked for.
        filter: what it takes; None takes everything.
        revive_queue_id: where its check points go.
        time_ms: wall time, of its handles.
        count: messages found.
        size_bytes: of their records.
        rest: messages left, roughly.
        start_offsets: parts of `Popped.start_offsets`.
        message_offsets: parts of `Popped.message_offsets`.
        order_counts: parts of `Popped.order_counts`.
        records: the messages.
        durable_at: end of the last check point, when it must be on disk.
        not_stored: why a check point could not be stored.
    """

    __slots__ = (
        "count",
        "durable_at",
        "filter",
        "message_offsets",
        "not_stored",
        "order_counts",
        "records",
        "rest",
        "revive_queue_id",
        "size_bytes",
        "start_offsets",
        "time_ms",
        "wanted",
    )

    def __init__(
        self,
        wanted: PopRequest,
        message_filter: ConsumerFilter | None,
        revive_queue_id: int,
        time_ms: int,
    ) -> None:
        self.wanted: PopRequest = wanted
        self.filter: ConsumerFilter | None = message_filter
        self.revive_queue_id: int = revive_queue_id
        self.time_ms: int = time_ms
        self.count: int = 0
        self.size_bytes: int = 0
        self.rest: int = 0
        self.start_offsets: list[str] = []
        self.message_offsets: list[str] = []
        self.order_counts: list[str] = []
        self.records: list[bytes] = []
        self.durable_at: int = 0
        self.not_stored: PutMessageStatus | None = None

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken."""
        return self.count >= self.wanted.max_count or self.size_bytes >= MAX_PULL_BYTES

    def popped(self, code: int) -> Popped:
        """What is found so far, as the outcome."""
        return Popped(
            code,
            self.time_ms,
            self.wanted.invisible_ms,
            self.revive_queue_id,
            self.rest,
            ";".join(self.start_offsets),
            ";".join(self.message_offsets),
            ";".join(self.order_counts) if self.wanted.is_ordered else None,
            tuple(self.records),
            self.durable_at,
        )
