"""A commit log and its queues, record by record, for tests of what a start makes of them."""

import threading
import zlib

from rocketpy.proto.record.record import topic_field
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.results import PutMessage
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.testing.sim_files import SimFiles

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
RECORD_BYTES = 1_000
FILE_BYTES = 16 << 10
PER_FILE = FILE_BYTES // RECORD_BYTES


class LogKit:
    """Records of 1,000 bytes, 16 of them in a file, and the queues of their topics."""

    def __init__(self) -> None:
        self.files = SimFiles()
        config = MessageStoreConfig(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=FILE_BYTES,
            mapped_file_size_consume_queue=2_000,
        )
        self.log = CommitLog(config, self.files, StoreOffsets())
        self.log.load()
        self.table = ConsumeQueueTable(config, self.files, threading.Lock())

    def append(
        self, queue_offset: int, *, topic: str = "T", queue_id: int = 0, now_ms: int = 1
    ) -> int:
        """Append a record; returns where it begins."""
        body = bytes(RECORD_BYTES - 90 - len(topic_field(topic)))
        message = PutMessage(topic, queue_id, body, born_host=HOST)
        crc = zlib.crc32(body) & 0x7FFFFFFF
        return self.log.append(
            message, RECORD_BYTES, crc, queue_offset, 0, now_ms, HOST, topic_field(topic)
        )

    def put(self, *, topic: str = "T", queue_id: int = 0, now_ms: int = 1) -> int:
        """Append a record, and put its entry into its queue; returns where it begins."""
        queue = self.table.get_or_create(topic, queue_id)
        phy_offset = self.append(queue.max_offset, topic=topic, queue_id=queue_id, now_ms=now_ms)
        queue.put_recovered(queue.max_offset, phy_offset, RECORD_BYTES, 0)
        return phy_offset
