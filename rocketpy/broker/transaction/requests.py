"""END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323): the adapter to `EndTransactions`.

Source: EndTransactionProcessor.java, AdminBrokerProcessor.java (5.4.0).
"""

import structlog

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.transaction.end_transaction import EndTransactions, TransactionEnd
from rocketpy.proto.headers.transaction import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor, Response

_log = structlog.get_logger(__name__)

_ONEWAY = 2


class TransactionRequests:
    """Answers what producers and operators ask about transactions.

    Args:
        operation: carries them out.
    """

    def __init__(self, operation: EndTransactions) -> None:
        self._operation = operation

    @property
    def ends(self) -> dict[int, Processor]:
        """Request code to processor, for producers."""
        return {RequestCode.END_TRANSACTION: self.end}

    @property
    def admin(self) -> dict[int, Processor]:
        """Request code to processor, for operators."""
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check}

    def end(self, channel: Channel, request: RemotingCommand) -> Response:
        """37. To a producer that has not decided Apache gives no response; here it gets one.

        Raises:
            HeaderFieldError: a header field is missing or wrong.
        """
        header = EndTransactionRequestHeader.from_ext(request.ext_fields)
        end = TransactionEnd(
            header.producer_group,
            header.tran_state_table_offset,
            header.commit_log_offset,
            header.commit_or_rollback,
            header.from_transaction_check,
        )
        if request.flag & _ONEWAY:

            def said(refused: Refusal | None) -> None:
                if refused is not None:
                    _log.info(
                        "the end of a transaction is refused",
                        producer=channel.remote_address,
                        group=header.producer_group,
                        msg_id=header.msg_id,
                        why=refused.remark,
                    )

            self._operation.end(end, said)
            return None
        deferred = channel.defer(request)

        def settled(refused: Refusal | None) -> None:
            deferred.set(_response(deferred.request, refused))

        if not self._operation.end(end, settled):
            # The half stays open, and its producer is asked.
            deferred.set(make_response(deferred.request))
        return deferred

    def resume_check(self, _channel: Channel, request: RemotingCommand) -> Response:
        """323."""
        header = ResumeCheckHalfMessageRequestHeader.from_ext(request.ext_fields)
        return _response(request, self._operation.resume_check(header.msg_id or ""))


def _response(request: RemotingCommand, refused: Refusal | None) -> RemotingCommand:
    if refused is None:
        return make_response(request)
    return make_response(request, refused.code, refused.remark)
