"""Adapter of CONSUMER_SEND_MSG_BACK (36) to `SendBack`.

Source: AbstractSendMessageProcessor.consumerSendMsgBack (5.4.0).
"""

from rocketpy.broker.feature import Feature
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.send_back import SendBack, SendBackRequest, not_created
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.headers.send import ConsumerSendMsgBackRequestHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Response


class SendBackProcessor:
    """Processes messages that consumers return.

    Args:
        operation: stores them again.
        answers_wait: whether responses wait for the copy on disk, and not only for its topic.
    """

    def __init__(self, operation: SendBack, *, answers_wait: bool) -> None:
        self._operation = operation
        self._answers_wait = answers_wait

    def process(self, channel: Channel, request: RemotingCommand) -> Response:
        """Store a message again.

        Raises:
            HeaderFieldError: a header field is missing or wrong.
        """
        header = ConsumerSendMsgBackRequestHeader.from_ext(request.ext_fields)
        operation = self._operation
        copied = operation.send_back(
            SendBackRequest(
                header.group,
                header.offset,
                header.delay_level,
                header.origin_topic,
                header.max_reconsume_times,
                header.unit_mode,
                (header.dlq_exception, header.dlq_reason, header.dlq_time, header.dlq_member),
            )
        )
        if isinstance(copied, Refusal):
            return make_response(request, *copied)
        phy_end = copied.phy_end if self._answers_wait else 0
        if not phy_end and operation.is_written(copied):
            return make_response(request)
        deferred = channel.defer(request)

        def settled(is_durable: bool) -> None:
            if is_durable:
                deferred.set(make_response(deferred.request))
                return
            remark = "the message is stored again but not on disk, or not on enough slaves"
            deferred.set(make_response(deferred.request, ResponseCode.FLUSH_DISK_TIMEOUT, remark))

        def topic_settled(failure: Exception | None) -> None:
            if failure is not None:
                deferred.set(make_response(deferred.request, *not_created(failure)))
            elif phy_end:
                operation.when_durable(phy_end, settled)
            else:
                settled(True)

        operation.when_settled(copied, topic_settled)
        return deferred


def build_send_back(operation: SendBack, *, answers_wait: bool) -> Feature:
    """Build send-backs as a feature of the broker.

    Args:
        operation: stores returned messages again.
        answers_wait: whether responses wait until the copy is on disk.
    """
    processor = SendBackProcessor(operation, answers_wait=answers_wait)

    def add_requests(table: RequestTable) -> None:
        table.add("send", {RequestCode.CONSUMER_SEND_MSG_BACK: processor.process})

    return Feature(name="send-back", add_requests=add_requests, configure=operation.configure)
