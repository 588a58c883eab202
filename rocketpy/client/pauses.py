"""What a consumer is told not to read for now: everything, topics, or queues."""

from collections.abc import Iterable

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace


def chosen(namespace: str, what: Iterable[str | MessageQueue]) -> list[str | MessageQueue] | None:
    """Return what a user named, with the brokers' names of topics; None for everything.

    Raises:
        TypeError: neither a topic's name nor a queue.
    """
    found: list[str | MessageQueue] = []
    for each in what:
        if isinstance(each, MessageQueue):
            found.append(each)
        elif isinstance(each, str):
            found.append(wrap_namespace(namespace, each))
        else:
            raise TypeError(f"{each!r} is neither the name of a topic nor a MessageQueue")
    return found or None


class Pauses:
    """Pauses and their ends, the last word first, a queue's own before its topic's.

    Lasts whether or not a queue is read now.
    """

    def __init__(self) -> None:
        self._everything = False
        self._words: dict[str | MessageQueue, bool] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Whether a queue is paused."""
        words = self._words
        return words.get(queue, words.get(queue.topic, self._everything))

    def set(self, what: Iterable[str | MessageQueue] | None, *, paused: bool) -> None:
        """Pause or resume topics and queues, everything when None."""
        if what is None:
            self._everything = paused
            self._words.clear()
            return
        for each in what:
            if isinstance(each, str):  # its queues have no word of their own any more
                for queue in [one for one in self._words if _is_of(one, each)]:
                    del self._words[queue]
            self._words[each] = paused


def _is_of(one: str | MessageQueue, topic: str) -> bool:
    return isinstance(one, MessageQueue) and one.topic == topic
