"""Adapter of PULL_MESSAGE and LITE_PULL_MESSAGE (11, 361) to `operation.pull.pull`.

Source: PullMessageProcessor.java (5.4.0).
"""

from typing import Final, NamedTuple

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
    """Processes pulls, at once or when they are resumed; also a listener of connections.

    Args:
        pulls: carries out pulls.

    Attributes:
        operation: carries out pulls.
    """

    def __init__(self, pulls: PullOperation) -> None:
        self.operation = pulls

    def process(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes | None:
        """Process a pull; None when it is suspended.

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
        """
        wanted = read_pull(request)
        # A suspended pull must not keep the request: it may have a large body.
        reply = GeneralPullReply(
            self.operation, request.code, request.opaque, request.serialize_type
        )
        outcome = self.operation.pull(wanted, channel, reply)
        if outcome is not None:
            return _response(request, outcome)
        # The close was reported before the pull was suspended, and is not reported again.
        if not channel.is_open:
            self.on_close(channel)
        return None

    def topic_deleted(self, topic: TopicConfig) -> None:
        """Answer the suspended pulls of a deleted topic."""
        self.operation.topic_deleted(topic)

    def on_open(self, channel: Channel) -> None:
        """Do nothing: state is created by requests."""

    def on_idle(self, channel: Channel) -> None:
        """Do nothing: the close that follows is reported as well."""

    def on_close(self, channel: Channel) -> None:
        """Drop the suspended pulls of a lost connection."""
        self.operation.forget(channel)


class GeneralPullReply(NamedTuple):
    """Makes the response to a suspended pull, without a reference to its request.

    Attributes:
        operation: carries out pulls.
        code: request code.
        opaque: opaque of the request.
        serialize_type: header type of the request.
    """

    operation: PullOperation
    code: int
    opaque: int
    serialize_type: int

    def __call__(self, pull: SuspendedPull) -> bytes:
        """Read again and return the response; an error becomes a response as well."""
        head = RemotingCommand(
            self.code, 0, 0, self.opaque, 0, None, _NO_FIELDS, b"", self.serialize_type
        )
        response: RemotingCommand | bytes
        try:
            response = _response(head, self.operation.resume(pull))
        except Exception as error:  # noqa: BLE001 - no caller above would answer the client
            remark = f"{type(error).__name__}: {error}"
            response = make_response(head, ResponseCode.SYSTEM_ERROR, remark)
        return encode_command(response) if isinstance(response, RemotingCommand) else response


def read_pull(request: RemotingCommand) -> PullRequest:
    """Parse the header of a pull.

    Raises:
        HeaderFieldError: a field is missing, not a number, or out of range.
    """
    return pull_request(request.code, PullMessageRequestHeader.from_ext(request.ext_fields))


def pull_request(code: int, header: PullMessageRequestHeader) -> PullRequest:
    """Return the parameters of a pull from its header."""
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
        # Without an expression its type is unused, and may be as long as a frame.
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
            suggested_broker_id=outcome.suggested_broker_id,
        )
    if isinstance(outcome, PullForbidden):
        kind = {"forbiddenType": str(outcome.kind)}
        return make_response(head, ResponseCode.NO_PERMISSION, outcome.remark, kind)
    return make_response(head, outcome.code, outcome.remark)
