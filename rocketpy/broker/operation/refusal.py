"""The outcome of an operation that was not carried out."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why an operation was not carried out.

    Attributes:
        code: a `ResponseCode`.
        remark: the reason, for whoever reads the client's log.
    """

    code: int
    remark: str
