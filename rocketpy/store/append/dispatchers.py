"""Dispatchers for consume queues and the message index.

Each is called with every visible message in the order of the log, under the append lock
(`rocketpy.store.append.dispatch`).

Source: CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex (5.4.0).
"""

from rocketpy.proto.record.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketpy.store.append.dispatch import DispatchRun, EncodedRun, has_queue_entry
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_rebuild import QueueRebuilder
from rocketpy.store.index.index_service import IndexService


class ConsumeQueueDispatcher:
    """Writes the entry that makes a message readable for consumers.

    Space was reserved before the append. A message whose topic was deleted before its flush is
    skipped, because its queue is marked as deleted. A message read from the log comes without its
    queue; its entry is written like in recovery.
    """

    def __init__(self, rebuilder: QueueRebuilder) -> None:
        self._rebuilder = rebuilder

    def dispatch(  # noqa: PLR0917 - see `rocketpy.store.append.dispatch.Dispatcher`
        self,
        queue: ConsumeQueue | None,
        topic: str,
        queue_id: int,
        queue_offset: int,
        phy_offset: int,
        size_bytes: int,
        tags_code: int,
        _store_timestamp_ms: int,
        sys_flag: int,
        _uniq_key: str | None,
        _keys: str | None,
        _tags: str | None,
    ) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch`."""
        if queue is not None:
            if not queue.is_deleted:
                queue.put(queue_offset, phy_offset, size_bytes, tags_code)
        elif has_queue_entry(sys_flag):
            self._rebuilder.put(topic, queue_id, queue_offset, phy_offset, size_bytes, tags_code)

    def dispatch_run(self, run: DispatchRun) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch_run`."""
        if not run.queue.is_deleted:
            codes = run.messages.tags_codes
            run.queue.put_run(run.queue_offset, run.phy_offsets, run.sizes_bytes, codes)

    def dispatch_encoded(self, run: EncodedRun) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch_encoded`."""
        for queue, queue_offset, entries, phy_end in run.places:
            if not queue.is_deleted:
                queue.put_entries(queue_offset, entries, phy_end)


class IndexDispatcher:
    """Adds the keys of a message to the index."""

    def __init__(self, index: IndexService) -> None:
        self._put = index.put
        self._put_run = index.put_run
        self._put_hashed = index.put_hashed

    def dispatch(  # noqa: PLR0917 - see `rocketpy.store.append.dispatch.Dispatcher`
        self,
        _queue: ConsumeQueue | None,
        topic: str,
        _queue_id: int,
        _queue_offset: int,
        phy_offset: int,
        _size_bytes: int,
        _tags_code: int,
        store_timestamp_ms: int,
        sys_flag: int,
        uniq_key: str | None,
        keys: str | None,
        tags: str | None,
    ) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch`."""
        if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:  # `has_index_entries`, inlined
            self._put(topic, uniq_key, keys, tags, phy_offset, store_timestamp_ms)

    def dispatch_run(self, run: DispatchRun) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch_run`."""
        self._put_run(run.topic, run.messages, run.phy_offsets, run.store_timestamp_ms)

    def dispatch_encoded(self, run: EncodedRun) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch_encoded`."""
        self._put_hashed(run.key_hashes, run.key_phy_offsets, run.store_timestamp_ms)
