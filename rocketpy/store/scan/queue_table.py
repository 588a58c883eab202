"""Consume queues of a store: entries in their files, and newer ones from the log."""

from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log, read_checkpoint
from rocketpy.store.scan.queues import Queue
from rocketpy.store.scan.unflushed_tail import tails


class QueueTable:
    """Snapshot of all consume queues of a store."""

    def __init__(self, directory: StoreDirectory, log: Log) -> None:
        """Read the bounds of every queue, and the end of the log.

        Raises:
            StoreFormatError: a file that is not a queue file, or queues far behind the log.
        """
        self._directory = directory
        self._log = log
        # Read before the queues, so that their files hold every entry that it covers.
        checkpoint = read_checkpoint(directory.root)
        self._queues = {
            (topic, queue_id): queue_of(directory, topic, queue_id, log)
            for topic, ids in directory.queues().items()
            for queue_id in ids
        }
        self._add_tails(None if checkpoint is None else checkpoint.queues_phy_offset)

    def _add_tails(self, vouched: int | None) -> None:
        start = vouched
        if start is None:
            start = max((queue.phy_end() for queue in self._queues.values()), default=0)
        found = tails(
            self._log,
            max(start, self._log.begin),
            {key: queue.end for key, queue in self._queues.items()},
            self._directory.deleted_topics(),
            self._directory.known_topics(),
            is_vouched=vouched is not None,
        )
        for key, (first, entries) in found.items():
            if key not in self._queues:
                self._queues[key] = queue_of(self._directory, *key, self._log)
            self._queues[key].add_tail(first, entries)

    @property
    def topics(self) -> set[str]:
        """Topics that have a queue."""
        return {topic for topic, _ in self._queues}

    def ids(self, topic: str) -> list[int]:
        """Return the ids of a topic's queues, sorted."""
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def get(self, topic: str, queue_id: int) -> Queue | None:
        """Return a queue, or None if it does not exist."""
        return self._queues.get((topic, queue_id))


def queue_of(directory: StoreDirectory, topic: str, queue_id: int, log: Log) -> Queue:
    """Return the current entries of a queue in its files."""
    return Queue(topic, queue_id, directory.queue_directory(topic, queue_id), log)
