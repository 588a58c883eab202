"""PULL_MESSAGE and LITE_PULL_MESSAGE (11, 361): the adapter of `pull.pull`.

Source: PullMessageProcessor.java (5.4.0).
"""

from functools import partial
from typing import Final

from rocketpy.broker.long_polling.resumption import ResumeQueue, Work
from rocketpy.broker.operation.pull.pull import (
    MAX_PULL_BYTES,
    MAX_PULL_COUNT,
    PullOperation,
    SuspendedPull,
)
from rocketpy.broker.operation.pull.request import (
    PullForbidden,
    PullOutcome,
    PullRequest,
    PullResult,
)
from rocketpy.broker.processor.pull_response import pull_frame
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.record.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_response
from rocketpy.remoting.connection.channel import Channel

_NO_FIELDS: Final[dict[str, str]] = {}
_LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)


class PullMessageProcessor:
    """Answers pulls, at once or when they are resumed; told about connections too.

    Args:
        pulls: carries them out.
        resumption: where resumed pulls run.

    Attributes:
        operation: carries them out.
    """

    def __init__(self, pulls: PullOperation, resumption: ResumeQueue) -> None:
        self.operation = pulls
        self._resumption = resumption

    def process(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes | None:
        """Answer one pull, or return None when it waits.

        Raises:
            HeaderFieldError: a field is missing, no number, or out of its type's range.
        """
        wanted = read_pull(request)
        # What waits must not keep the request: it may have a large body.
        head = request.code, request.opaque, request.serialize_type
        outcome = self.operation.pull(wanted, channel, partial(self._resume, channel, head))
        if outcome is not None:
            return _response(request, outcome)
        if not channel.is_open:  # it was lost meanwhile, and is not reported again
            self.on_close(channel)
        return None

    def topic_deleted(self, topic: TopicConfig) -> None:
        """Answer the pulls that wait for messages of a topic that was deleted."""
        self.operation.topic_deleted(topic)

    def on_open(self, channel: Channel) -> None:
        """Nothing to do."""

    def on_idle(self, channel: Channel) -> None:
        """Nothing to do: the close that follows is reported too."""

    def on_close(self, channel: Channel) -> None:
        """Forget the pulls of a lost connection."""
        self.operation.forget(channel)
        self._resumption.forget(channel)

    def resume(self, channel: Channel, work: Work) -> None:
        """Run the work of a pull that was woken, in its channel's turn."""
        self._resumption.add(channel, work)

    def _resume(self, channel: Channel, head: tuple[int, int, int], pull: SuspendedPull) -> None:
        self.resume(channel, partial(self.go_on, head_of(*head), pull))

    def go_on(self, head: RemotingCommand, pull: SuspendedPull) -> bytes:
        """Answer a pull that was woken; whatever is wrong with it is an answer, too."""
        response: RemotingCommand | bytes
        try:
            response = _response(head, self.operation.go_on(pull))
        except Exception as error:  # noqa: BLE001 - nobody above would answer the client
            remark = f"{type(error).__name__}: {error}"
            response = make_response(head, ResponseCode.SYSTEM_ERROR, remark)
        return encode_command(response) if isinstance(response, RemotingCommand) else response


def head_of(code: int, opaque: int, serialize_type: int) -> RemotingCommand:
    """Return of a request what its response needs."""
    return RemotingCommand(code, 0, 0, opaque, 0, None, _NO_FIELDS, b"", serialize_type)


def read_pull(request: RemotingCommand) -> PullRequest:
    """Read the header of a pull.

    Raises:
        HeaderFieldError: a field is missing, no number, or out of its type's range.
    """
    return pull_request(request.code, PullMessageRequestHeader.from_ext(request.ext_fields))


def pull_request(code: int, header: PullMessageRequestHeader) -> PullRequest:
    """Return what a pull's header asks for."""
    flags, max_bytes = header.sys_flag, header.max_msg_bytes
    has_expression = flags & PULL_SUBSCRIPTION
    return PullRequest(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.queue_offset,
        max(1, min(header.max_msg_nums, MAX_PULL_COUNT)),
        min(max_bytes, MAX_PULL_BYTES) if max_bytes and max_bytes > 0 else MAX_PULL_BYTES,
        header.commit_offset if flags & PULL_COMMIT_OFFSET else None,
        header.suspend_timeout_millis if flags & PULL_SUSPEND else None,
        header.subscription or "" if has_expression else None,
        # Without an expression its type says nothing, and may be as long as a frame.
        header.expression_type if has_expression else None,
        header.sub_version,
        code == _LITE_PULL,
    )


def _response(head: RemotingCommand, outcome: PullOutcome) -> RemotingCommand | bytes:
    if isinstance(outcome, PullResult):
        return pull_frame(
            head,
            outcome.code,
            outcome.read,
            topic_sys_flag=outcome.topic_sys_flag,
            group_sys_flag=outcome.group_sys_flag,
        )
    if isinstance(outcome, PullForbidden):
        kind = {"forbiddenType": str(outcome.kind)}
        return make_response(head, ResponseCode.NO_PERMISSION, outcome.remark, kind)
    return make_response(head, outcome.code, outcome.remark)
