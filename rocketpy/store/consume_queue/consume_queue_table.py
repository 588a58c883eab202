"""Table of all consume queues of the store, by topic and queue id.

Queues live in `consumequeue/<topic>/<queueId>`. A topic name is a directory name, so names that
could escape the directory are rejected here as well, regardless of the caller.

Source: ConsumeQueueStore (5.4.0).
"""

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.batch_consume_queue import BatchConsumeQueue
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.tail_memory import TailedQueue, TailMemory
from rocketpy.store.files.store_files import StoreFiles

# Limit of file names in common file systems.
_MAX_TOPIC_BYTES = 255
_MAX_QUEUE_ID = 2**31 - 1


def is_safe_topic(topic: str) -> bool:
    """Return whether a topic is a safe directory name: no separator, control character or dots."""
    return (
        # Characters first: a name from the network may be long, and is not encoded then.
        0 < len(topic) <= _MAX_TOPIC_BYTES
        and len(topic.encode("utf-8", "replace")) <= _MAX_TOPIC_BYTES
        and topic.isprintable()
        and "/" not in topic
        and "\\" not in topic
        and topic not in {".", ".."}
    )


class ConsumeQueueTable:
    """Finds and creates queues. Reading is safe from any thread; creation takes a lock."""

    def __init__(
        self, config: MessageStoreConfig, files: StoreFiles, append_lock: threading.Lock
    ) -> None:
        """Build an empty table.

        Args:
            config: directory of the queues and length of their files.
            files: the file system.
            append_lock: held by the thread that writes to queues.
        """
        self._config = config
        self._files = files
        root = Path(config.store_path_root_dir)
        self._directory = root / "consumequeue"
        self._batch_directory = root / "batchconsumequeue"
        self._space = TailMemory(append_lock)
        self._mutex = threading.Lock()
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._batch: dict[str, dict[int, BatchConsumeQueue]] = {}

    @property
    def directory(self) -> Path:
        """Directory of the queues."""
        return self._directory

    @property
    def is_there(self) -> bool:
        """Whether the directory of the queues exists."""
        return self._files.exists(self._directory)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return an existing queue, or None."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.get(queue_id)

    def get_batch(self, topic: str, queue_id: int) -> BatchConsumeQueue | None:
        """Return an existing batch queue, or None."""
        return self._batch.get(topic, {}).get(queue_id)

    def is_batch_topic(self, topic: str) -> bool:
        """Return whether a topic has batch queues, which the store keeps but does not serve."""
        return topic in self._batch

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue; create it without files if it does not exist.

        Raises:
            StoreFormatError: the topic or queue id cannot be a directory name.
        """
        # Without the lock: the common case of each message.
        queue = self.get(topic, queue_id)
        if queue is not None:
            return queue
        # A name from the network becomes a directory name here.
        if not is_safe_topic(topic) or not 0 <= queue_id <= _MAX_QUEUE_ID:
            raise StoreFormatError(f"invalid queue name: topic {topic!r}, queue id {queue_id}")
        # Looked up again under the lock: two threads may create the same queue.
        with self._mutex:
            queues = self._topics.setdefault(topic, {})
            queue = queues.get(queue_id)
            if queue is None:
                queue = queues[queue_id] = self._make(topic, queue_id, self._directory / topic)
            return queue

    def _make(self, topic: str, queue_id: int, of_topic: Path) -> ConsumeQueue:
        directory = of_topic / str(queue_id)
        file_bytes = self._config.consume_queue_file_bytes
        return ConsumeQueue(topic, queue_id, directory, file_bytes, self._files, self._space)

    def load(self, *, after_crash: bool = False) -> None:
        """Find the queues on disk, and the end of each.

        Args:
            after_crash: bytes in the files may be in the page cache only, written by a killed
                process; the next complete `flush` writes all of them to disk.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        topics = self._files.list_directories(self._directory)
        directories = [self._directory / topic for topic in topics]
        names = self._files.each(self._files.list_directories, directories, reads=True)
        # Directories with other names are not queues.
        queues = [
            self._make(topic, int(name), directory)
            for topic, directory, ids in zip(topics, directories, names, strict=True)
            for name in ids
            if name.isdigit()
        ]
        self._files.each(lambda queue: queue.load(after_crash=after_crash), queues, reads=True)
        for queue in queues:
            self._topics.setdefault(queue.topic, {})[queue.queue_id] = queue

    def load_batch(self, log_end: int) -> None:
        """Read the bounds of the batch queues on disk.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        file_bytes = self._config.batch_consume_queue_file_bytes
        for topic in self._files.list_directories(self._batch_directory):
            directory = self._batch_directory / topic
            for name in self._files.list_directories(directory):
                if name.isdigit():
                    queue = BatchConsumeQueue(
                        topic, int(name), directory / name, file_bytes, self._files
                    )
                    queue.load(log_end)
                    self._batch.setdefault(topic, {})[int(name)] = queue

    def __iter__(self) -> Iterator[ConsumeQueue]:
        # Copies, because queues are created and removed by other threads during the iteration.
        for queues in list(self._topics.values()):
            yield from list(queues.values())

    def topics(self) -> list[str]:
        """Return the names of the topics that have queues."""
        return [*self._topics, *self._batch]

    def ends_before(self, topic: str, phy_offset: int) -> bool:
        """Return whether a topic has queues, and no message from a physical offset on.

        False for batch queues, too: they are not deleted.
        """
        if topic not in self._topics or topic in self._batch:
            return False
        # A copy: other threads create queues. The last entry decides, as offsets increase.
        queues = list(self._topics[topic].values())
        last = [queue.entry(queue.max_offset - 1) for queue in queues]
        return all(entry is None or entry[0] < phy_offset for entry in last)

    def queue_count_from(self, topic: str, phy_offset: int) -> int:
        """Return how many queues a topic needs that has messages from a physical offset on.

        Returns:
            Its largest queue id, plus 1; 0 if all its messages are older, and for batch queues.
        """
        if topic in self._batch or self.ends_before(topic, phy_offset):
            return 0
        return max(list(self._topics.get(topic, ())), default=-1) + 1

    @property
    def file_creation_lock(self) -> threading.Lock:
        """Lock held while a topic is deleted, so that no queue creates a file meanwhile."""
        return self._space.file_creation_lock

    def unhook_topic(self, topic: str) -> list[ConsumeQueue]:
        """Remove a topic's queues from the table; the files stay.

        The caller holds the append lock and `file_creation_lock`.

        Returns:
            The queues, marked as deleted for callers that still hold one.
        """
        with self._mutex:
            queues = list(self._topics.pop(topic, {}).values())
        # A thread that still has the queue must not create a file of the deleted topic.
        for queue in queues:
            queue.mark_deleted()
        return queues

    def topic_directory(self, topic: str) -> Path:
        """Return the directory of a topic's queues; the name must be safe."""
        return self._directory / topic

    def unsettled_ends(self) -> dict[TailedQueue, int]:
        """Return the ends of queues that may have unflushed entries (append lock held)."""
        return self._space.ends()

    def entry_count(self, ends: Mapping[TailedQueue, int]) -> int:
        """Return the sum of the end offsets of all queues.

        Args:
            ends: ends that replace those on disk; from `unsettled_ends`, before any flush.
        """
        return sum(ends.get(queue, queue.flushed_offset) for queue in self if queue.has_place)

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files whose messages are all deleted; return how many."""
        return sum(queue.delete_expired(min_phy_offset) for queue in self)

    @property
    def dirty_bytes(self) -> int:
        """Unflushed bytes of all queues."""
        return self._space.dirty_bytes

    def flush(self, least_dirty_bytes: int = 1) -> None:
        """Flush queues that have at least so many dirty bytes.

        With 1 (all queues) file names are synced too; afterwards the checkpoint may cover every
        entry put before. A queue without disk space does not prevent flushing the others.

        Raises:
            DiskFullError: no space for some of them.
            ResourceShortError: no descriptor for some of them.
            OSError: the disk failed.
        """
        is_thorough = least_dirty_bytes <= 1
        queues = [
            queue
            for queue in self._space.queues()
            if is_thorough or queue.dirty_bytes >= least_dirty_bytes
        ]
        shortages = [each for each in self._files.each(_flushed, queues) if each is not None]
        # After the contents: a checkpoint follows that covers both.
        if is_thorough:
            self._files.sync_directories()
        self._space.settle()
        if shortages:
            raise shortages[0]

    def close(self) -> None:
        """Close all queues."""
        for queue in self:
            queue.close()
        self._topics = {}
        self._batch = {}


def _flushed(queue: TailedQueue) -> ResourceShortError | None:
    """Flush a queue; return the shortage that prevented it, if any."""
    try:
        queue.flush()
    except ResourceShortError as error:
        return error
    return None
