"""Index entries of plain records that the index missed, many at a time, by the compiled reader.

What `rocketpy.store.recovered_runs` is to a start, this is to the service that completes the index
behind it: an index file that was not complete when the process was killed is gone, and with it the
entries of up to twenty million messages. What is not plain is left to `index_catch_up`.
"""

import enum

from rocketpy.proto.record import BLANK_BYTES
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.deleted_topics import DeletedTopics
from rocketpy.store.index_service import IndexService
from rocketpy.store.offsets import StoreOffsets
from rocketpy.store.recovered_runs import LoadedOnce, QueueRun, put_keys


class Replayed(enum.Enum):
    """What became of the records at a place."""

    NOTHING = "nothing"  # the next one is to be read by itself
    PUT = "put"
    REFUSED = "refused"  # by the disk: some of them, or all


class ReplayedRuns:
    """Puts runs of plain records into an index that is behind; one thread."""

    def __init__(
        self, index: IndexService, log: CommitLog, offsets: StoreOffsets, deleted: DeletedTopics
    ) -> None:
        """Prepare; the compiled reader is loaded when the first run is asked for.

        Args:
            index: what to complete.
            log: the log.
            offsets: say how far messages were dispatched.
            deleted: topics to be left out.
        """
        self._index = index
        self._log = log
        self._offsets = offsets
        self._deleted = deleted
        self._reader = LoadedOnce()
        self._one_by_one_to = 0

    def rest(self) -> None:
        """Give memory back: nothing is missing any more."""
        self._reader = LoadedOnce()
        self._one_by_one_to = 0

    def replay(self, missing_from: int) -> Replayed:
        """Put the plain records at a place where the index misses them."""
        start = max(missing_from, self._log.min_phy_offset)
        mapped = self._log.queue.find(start)
        if start < self._one_by_one_to or mapped is None:
            return Replayed.NOTHING
        base = mapped.base_offset
        end = min(base + mapped.size_bytes - BLANK_BYTES, self._offsets.dispatched)
        records = self._reader.records() if start < end else None
        if records is None or not records.read(
            mapped.view, start - base, end - base, base, check_crc=False, index_from=0
        ):
            return Replayed.NOTHING
        covers = self._deleted.covers
        queues = [QueueRun(*each) for each in records.queues()]
        if any(covers(each.topic, each.first_phy) for each in queues):
            self._one_by_one_to = base + records.end
            return Replayed.NOTHING
        if not put_keys(self._index, records, is_replay=True):
            return Replayed.REFUSED
        self._index.replayed_to(base + records.end)
        return Replayed.PUT
