"""Stores messages for later at once: whoever reads them looks at their time."""

from rocketpy.broker.internal_put import InternalPut
from rocketpy.store.results import PutMessage, PutMessageResult


class DirectTimer:
    """A `Timer` without a wheel.

    Args:
        put: stores messages.
    """

    def __init__(self, put: InternalPut) -> None:
        self._put = put

    def put_at(
        self,
        message: PutMessage,
        properties: dict[str, str],  # noqa: ARG002 - as a wheel needs them
        deliver_ms: int,  # noqa: ARG002
    ) -> PutMessageResult:
        """Store a message; it is visible at once."""
        return self._put.put(message)

    def is_behind(self) -> bool:
        """Never."""
        return False
