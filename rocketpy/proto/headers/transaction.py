"""Headers for transactions: their end, and check-backs.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class EndTransactionRequestHeader(Header):
    """Request 37, END_TRANSACTION."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None
    topic: str | None = None
    bname: str | None = None


@header
class CheckTransactionStateRequestHeader(Header):
    """Request 39, CHECK_TRANSACTION_STATE."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    bname: str | None = None


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    """Request 323, RESUME_CHECK_HALF_MESSAGE."""

    topic: str | None = None
    msg_id: str | None = None
