"""Dispatchers for consume queues and the message index.

Each is called with every visible message in the order of the log, under the append lock
(`rocketpy.store.append.dispatch`).

Source: CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex (5.4.0).
"""

from rocketpy.store.append.dispatch import (
    DispatchRequest,
    DispatchRun,
    EncodedRun,
    has_index_entries,
    has_queue_entry,
)
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

    def dispatch(self, request: DispatchRequest) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch`."""
        queue, topic, queue_id, queue_offset, phy_offset, size_bytes, code, *_ = request
        if queue is not None:
            if not queue.is_deleted:
                queue.put(queue_offset, phy_offset, size_bytes, code)
        elif has_queue_entry(request.sys_flag):
            self._rebuilder.put(topic, queue_id, queue_offset, phy_offset, size_bytes, code)

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

    def dispatch(self, request: DispatchRequest) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch`."""
        if has_index_entries(request.sys_flag):
            self._put(
                request.topic,
                request.uniq_key,
                request.keys,
                request.tags,
                request.phy_offset,
                request.store_timestamp_ms,
            )

    def dispatch_run(self, run: DispatchRun) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch_run`."""
        self._put_run(run.topic, run.messages, run.phy_offsets, run.store_timestamp_ms)

    def dispatch_encoded(self, run: EncodedRun) -> None:
        """See `rocketpy.store.append.dispatch.Dispatcher.dispatch_encoded`."""
        self._put_hashed(run.key_hashes, run.key_phy_offsets, run.store_timestamp_ms)
