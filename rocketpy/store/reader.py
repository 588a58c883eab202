"""Reading a queue: entries first, then the messages they point to.

What a consumer may see is bounded by the consume queue: an entry is written only when its message
may be seen. Messages that were stored before this start are checked on their way out, each time:
the disk may have changed them while nobody looked. A message that fails the check is left out,
and said once by its offset.

Source: DefaultMessageStore.getMessage (5.4.0).
"""

from typing import Final

from rocketpy.proto.record_check import is_intact
from rocketpy.runtime.clock import Clock
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue_table import ConsumeQueueTable
from rocketpy.store.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.results import GetMessageResult, GetMessageStatus, MessageFilter
from rocketpy.store.stats import StoreStats

_MAX_RESULT_BYTES: Final = 128 << 20


class MessageReader:
    """Reads messages of a queue. Safe to use from any thread."""

    def __init__(
        self,
        config: MessageStoreConfig,
        table: ConsumeQueueTable,
        log: CommitLog,
        stats: StoreStats,
        clock: Clock,
    ) -> None:
        self._scan_bytes = config.max_filter_message_size
        self._table = table
        self._log = log
        self._stats = stats
        self._clock = clock

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        """See `rocketpy.store.message_store.MessageStore.get_message`."""
        begin_ms = self._clock.monotonic_ms()
        queue = self._table.get(topic, queue_id)
        if queue is None:
            result = self._without_queue(topic, queue_id)
        else:
            result = self._outside(queue, queue_offset) or self._read(
                queue, queue_offset, max_count, max_bytes, message_filter
            )
        self._stats.got(result.count, self._clock.monotonic_ms() - begin_ms)
        return result

    def _without_queue(self, topic: str, queue_id: int) -> GetMessageResult:
        batch = self._table.get_batch(topic, queue_id)
        if batch is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        return GetMessageResult(
            GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, batch.min_offset, batch.max_offset
        )

    @staticmethod
    def _outside(queue: ConsumeQueue, queue_offset: int) -> GetMessageResult | None:
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if queue_offset < low:
            return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if queue_offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
        if queue_offset > high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        return None

    def _read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        low, high = queue.min_offset, queue.max_offset
        scan_bytes = max(self._scan_bytes, max_count * ENTRY_BYTES)
        scan_bytes -= scan_bytes % ENTRY_BYTES
        window = queue.window(queue_offset, scan_bytes)
        if window is None:
            following = min(max(queue.next_file_offset(queue_offset), low), high)
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, following, low, high)
        max_bytes = min(max_bytes, _MAX_RESULT_BYTES)
        log_record, verified_from = self._log.record, self._log.verified_from
        damaged = self._log.damaged
        buffers: list[memoryview] = []
        total_bytes = 0
        skip_before = -1
        is_removing = False
        for phy_offset, size, tags_code in ENTRY.iter_unpack(window):
            if buffers and (len(buffers) >= max_count or total_bytes + size > max_bytes):
                break
            queue_offset += 1
            if phy_offset < skip_before or (
                message_filter is not None and not message_filter.matches_tags_code(tags_code)
            ):
                continue
            record = log_record(phy_offset, size)
            if record is None:
                if not buffers:
                    is_removing = True
                    skip_before = self._log.next_file_offset(phy_offset)
                continue
            is_removing = False
            skip_before = phy_offset + 1  # a hole in the queue is filled with its successor
            sound = phy_offset >= verified_from or self._check(record, phy_offset)
            if not sound or phy_offset in damaged:
                continue
            if message_filter is not None and not message_filter.matches_record(record):
                continue
            buffers.append(record)
            total_bytes += size
        if buffers:
            status = GetMessageStatus.FOUND
        elif is_removing:
            status = GetMessageStatus.MESSAGE_WAS_REMOVING
        else:
            status = GetMessageStatus.NO_MATCHED_MESSAGE
        count = len(buffers)
        return GetMessageResult(status, queue_offset, low, high, buffers, count, total_bytes)

    def _check(self, record: memoryview, phy_offset: int) -> bool:
        if is_intact(record, phy_offset):
            return True
        self._log.report_damage(phy_offset, "its frame or checksum is wrong")
        return False
