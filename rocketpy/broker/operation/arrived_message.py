"""The message that came last, read once for all conditions that wait for it."""

from typing import Final, Protocol

from rocketpy.proto.record import properties_of
from rocketpy.store.results import GetMessageResult, GetMessageStatus

_MOST_WEIGHT: Final = 1_000
"""Of the conditions that one message is looked at by while it is stored: some 20 ms of them."""


class _Store(Protocol):
    def get_message(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int, max_bytes: int
    ) -> GetMessageResult: ...


class ArrivedMessage:
    """Properties of the message that came last; any thread.

    Args:
        store: has it.
    """

    __slots__ = ("_found", "_store", "_weight_left")

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._found: tuple[str, int, int, bytes | None] | None = None
        self._weight_left = _MOST_WEIGHT

    def forget(self) -> None:
        """Another message came: what was read is not asked for again."""
        self._found = None
        self._weight_left = _MOST_WEIGHT

    def affords(self, weight: int) -> bool:
        """Whether it may be looked at by one more condition: others wait until all have looked.

        Args:
            weight: of the condition, see `rocketpy.sql92.condition.Condition`.
        """
        if weight > self._weight_left:
            return False
        self._weight_left -= weight
        return True

    def properties(self, topic: str, queue_id: int, queue_offset: int) -> bytes | None:
        """Return a message's properties as stored; None when they cannot be read like this.

        Args:
            topic: of the queue.
            queue_id: of the queue.
            queue_offset: of the message.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        found = self._found
        if found is None or found[:3] != (topic, queue_id, queue_offset):
            read = self._store.get_message(topic, queue_id, queue_offset, 1, 1)
            is_found = read.status is GetMessageStatus.FOUND
            is_it = is_found and read.next_begin_offset == queue_offset + 1
            properties = properties_of(read.buffers[0]) if is_it else None
            found = self._found = topic, queue_id, queue_offset, properties
        return found[3]
