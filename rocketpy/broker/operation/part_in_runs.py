"""What a compiled path that writes runs of messages at once asks of features, and does for them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from rocketpy.proto.bodies.topic import TopicConfig


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


class StoresDue(Protocol):
    """Stores runs of messages that waited: `rocketpy.broker.processor.plain_sends`."""

    def deliver(
        self,
        topic_of: Callable[[str], TopicConfig | None],
        part: tuple[memoryview, int, int],
        entries: list[tuple[int, int, int]],
        queue_offset: int,
        /,
    ) -> tuple[int, int]:
        """Store messages of a delay level where they belong, leading ones that are as usual.

        Args:
            topic_of: returns the settings of a topic; None when there is no such topic.
            part: see `rocketpy.store.reader.MessageReader.recent_part`.
            entries: those of the level's queue that are due: physical offset, size, any number.
            queue_offset: of the first of them.

        Returns:
            How many are stored, and the physical offset after them.
        """
        ...
