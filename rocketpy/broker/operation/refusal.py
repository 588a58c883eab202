"""Outcome of an operation that was refused."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Reason why an operation was refused.

    Attributes:
        code: a `ResponseCode`.
        remark: the reason, as it appears in the client's log.
    """

    code: int
    remark: str
