"""What transactions do for runs of sends that a compiled path writes at once."""

from collections.abc import Sequence
from typing import Protocol


class PartInRuns(Protocol):
    """Takes part in halves and commits: `rocketpy.broker.transaction.runs.TransactionRuns`."""

    @property
    def takes_halves(self) -> bool:
        """Whether half messages are stored at the moment."""
        ...

    @property
    def op_room_bytes(self) -> int:
        """How many bytes of names of halves may be added; 0 or less: no commit is taken."""
        ...

    def claim(self, places: Sequence[int], /) -> int:
        """Claim halves for their commits, in their order; return how many are this run's."""
        ...

    def committed(self, places: Sequence[int], /) -> None:
        """Have halves written down as decided; what they commit is stored."""
        ...

    def release(self, places: Sequence[int], /) -> None:
        """Open halves again whose messages were not stored."""
        ...

    def count(self, topic: str, number: int, /) -> None:
        """Count transactions of a topic that began, less those that ended."""
        ...
