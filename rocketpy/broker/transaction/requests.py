"""Adapter of END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323) to `EndTransactions`.

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
    """Request processors for transactions.

    Args:
        operation: commits and rolls back.
    """

    def __init__(self, operation: EndTransactions) -> None:
        self._operation = operation

    @property
    def ends(self) -> dict[int, Processor]:
        """Processors of requests from producers, by request code."""
        return {RequestCode.END_TRANSACTION: self.end}

    @property
    def admin(self) -> dict[int, Processor]:
        """Processors of requests from operators, by request code."""
        return {RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume_check}

    def end(self, channel: Channel, request: RemotingCommand) -> Response:
        """Process END_TRANSACTION (37).

        An undecided producer gets a response here; Apache sends none.

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
                        "end of transaction refused",
                        producer=channel.remote_address,
                        group=header.producer_group,
                        msg_id=header.msg_id,
                        remark=refused.remark,
                    )

            self._operation.end(end, said)
            return None
        deferred = channel.defer(request)

        def settled(refused: Refusal | None) -> None:
            deferred.set(_response(deferred.request, refused))

        if not self._operation.end(end, settled):
            # The half stays open; the check-back asks its producer.
            deferred.set(make_response(deferred.request))
        return deferred

    def resume_check(self, _channel: Channel, request: RemotingCommand) -> Response:
        """Process RESUME_CHECK_HALF_MESSAGE (323)."""
        header = ResumeCheckHalfMessageRequestHeader.from_ext(request.ext_fields)
        return _response(request, self._operation.resume_check(header.msg_id or ""))


def _response(request: RemotingCommand, refused: Refusal | None) -> RemotingCommand:
    if refused is None:
        return make_response(request)
    return make_response(request, refused.code, refused.remark)
