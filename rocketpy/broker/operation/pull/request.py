"""What a consumer asks for with a pull, and what becomes of it."""

from typing import NamedTuple, Self

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.store.results import GetMessageResult


class PullRequest(NamedTuple):
    """What a consumer asks for.

    Attributes:
        group: consumer group.
        topic: of the queue.
        queue_id: of the queue.
        queue_offset: where to read.
        max_count: messages at most, 1 or more.
        max_bytes: of messages at most, but one message is always returned.
        commit_offset: how far the group has consumed the queue; None commits nothing.
        suspend_ms: how long it may wait for a message; None does not wait.
        expression: what it takes; None is what the group's heartbeats said.
        expression_type: of `expression`; None is TAG.
        sub_version: of the subscription that the consumer knows, when `expression` is None.
        is_lite: asked for with LITE_PULL_MESSAGE.
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
    """The outcome of a pull that was carried out.

    Attributes:
        code: of the response.
        read: offsets, and the records when something was found.
        topic_sys_flag: of the topic.
        group_sys_flag: of the group.
    """

    code: int
    read: GetMessageResult
    topic_sys_flag: int
    group_sys_flag: int


class PullForbidden(NamedTuple):
    """A pull that is not permitted.

    Attributes:
        kind: what forbids it: 1 broker, 2 group, 3 topic, 4 broadcasting, 5 subscription.
        remark: the reason.
    """

    kind: int
    remark: str


class PullRefused(Exception):  # noqa: N818 - an outcome which ends the checks, not an error
    """A check said no."""

    def __init__(self, outcome: Refusal | PullForbidden) -> None:
        super().__init__()
        self.outcome = outcome

    @classmethod
    def with_code(cls, code: int, remark: str) -> Self:
        """Refuse with a response code."""
        return cls(Refusal(int(code), remark))


PullOutcome = PullResult | Refusal | PullForbidden
