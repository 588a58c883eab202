"""Stores of ours on real files, to be read without being opened."""

from pathlib import Path
from typing import Any

from rocketpy.proto.record.tags import tags_code
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock

LOG_FILE_BYTES = 16_384


class Written:
    """A store that is written, and may stay open."""

    def __init__(self, root: Path, log_file_bytes: int = LOG_FILE_BYTES) -> None:
        self.root = root
        self.clock = SimClock()
        self.store = MessageStore(
            MessageStoreConfig(
                store_path_root_dir=str(root),
                mapped_file_size_commit_log=log_file_bytes,
                mapped_file_size_consume_queue=400,
                max_hash_slot_num=20,
                max_index_num=80,
            ),
            clock=self.clock,
        )
        self.store.open()

    def put(
        self, topic: str, queue_id: int, body: bytes, *, tag: str = "", key: str = "k", **more: Any
    ) -> int:
        """Store a message a second after the one before; return its physical offset."""
        self.clock.advance(1_000)
        properties = f"UNIQ_KEY\x01id-{body.hex()[:16]}\x02KEYS\x01{key}\x02"
        properties += f"TAGS\x01{tag}\x02" if tag else ""
        result = self.store.put_message(
            PutMessage(
                topic,
                queue_id,
                body,
                properties=properties.encode(),
                tags_code=tags_code(tag),
                keys=key,
                **more,
            )
        )
        assert result.status is PutMessageStatus.PUT_OK
        return result.phy_offset

    def fill(self, topic: str, count: int, queues: int = 2, size: int = 100) -> None:
        for number in range(count):
            body = f"{topic}-{number}".encode().ljust(size, b".")
            self.put(topic, number % queues, body, tag=f"Tag{number % 3}", key=f"k{number}")

    def flush(self) -> None:
        """Bring the entries of queues to disk, as a running broker does each second."""
        for service in [
            *self.store.services,
            *self.store.services,
        ]:  # the first look only starts the clock
            if service.name in {"FlushConsumeQueueService", "FlushRealTimeService"}:
                self.clock.advance(120_000)
                service.step(self.clock.monotonic_ms())

    def close(self) -> None:
        self.store.close()


def written(root: Path, count: int = 300, queues: int = 2) -> Path:
    """A closed store of one topic `T`, over several log and queue files."""
    store = Written(root)
    store.fill("T", count, queues)
    store.close()
    return root


def log_path(root: Path, phy_offset: int) -> tuple[Path, int]:
    base = phy_offset - phy_offset % LOG_FILE_BYTES
    return root / "commitlog" / f"{base:020d}", phy_offset - base


def overwrite(root: Path, phy_offset: int, data: bytes) -> None:
    path, at = log_path(root, phy_offset)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)
