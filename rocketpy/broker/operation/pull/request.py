"""Parameters and outcomes of a pull."""

from typing import NamedTuple, Self

from rocketpy.broker.config import MASTER_ID
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.store.results import GetMessageResult


class PullRequest(NamedTuple):
    """Parameters of a pull.

    Attributes:
        group: consumer group.
        topic: topic of the queue.
        queue_id: queue within the topic.
        queue_offset: first offset to read.
        max_count: maximal number of messages, at least 1.
        max_bytes: maximal size of the messages; one message is always returned.
        commit_offset: offset to commit; None commits nothing.
        suspend_ms: how long the pull may be suspended; None: not at all.
        expression: filter expression; None uses the group's subscription.
        expression_type: type of `expression`; None means TAG.
        sub_version: version of the subscription that the consumer has, when `expression` is None.
        is_lite: whether it is a LITE_PULL_MESSAGE.
    """

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_count: int
    max_bytes: int
    commit_offset: int | None
    suspend_ms: int | None
    expression: str | None
    expression_type: str | None
    sub_version: int
    is_lite: bool


class PullResult(NamedTuple):
    """Outcome of a pull that was carried out.

    Attributes:
        code: response code.
        read: offsets, and the records if any were found.
        topic_sys_flag: system flag of the topic.
        group_sys_flag: system flag of the group.
        suggested_broker_id: broker of the same name to pull from next.
    """

    code: int
    read: GetMessageResult
    topic_sys_flag: int
    group_sys_flag: int
    suggested_broker_id: int = MASTER_ID


class PullForbidden(NamedTuple):
    """Outcome of a pull without permission.

    Attributes:
        kind: origin of the refusal: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 subscription.
        remark: the reason.
    """

    kind: int
    remark: str


class PullRefused(Exception):  # noqa: N818 - an outcome which ends the checks, not an error
    """Raised by a check to end a pull with an outcome."""

    def __init__(self, outcome: Refusal | PullForbidden) -> None:
        super().__init__()
        self.outcome = outcome

    @classmethod
    def with_code(cls, code: int, remark: str) -> Self:
        """Create a refusal with a response code."""
        return cls(Refusal(int(code), remark))


PullOutcome = PullResult | Refusal | PullForbidden
