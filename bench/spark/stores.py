"""Writes store directories with a number of messages file by file, as a broker would."""

import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.spark import QUEUES
from rocketpy.proto.record.message import host_to_bytes
from rocketpy.proto.record.record import (
    body_crc,
    pack_blank,
    pack_record,
    record_size,
    topic_field,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES

TOPIC = "BenchTopic"
LOG_FILE_BYTES = 1 << 30
QUEUE_FILE_BYTES = 300_000 * ENTRY_BYTES
MESSAGES = {100: 2_000_000, 1024: 600_000}
"""Messages of a store by the size of their bodies; they fit one file of the log."""


@dataclass(frozen=True)
class Store:
    """Store directory of a benchmark.

    Attributes:
        root: the directory.
        count: number of messages.
        log_bytes: their size in the log.
        positions: int64, where each message begins in the one file of the log.
    """

    root: Path
    count: int
    log_bytes: int
    positions: npt.NDArray[np.int64]

    def log(self) -> npt.NDArray[np.uint8]:
        """Return the log, mapped."""
        (path,) = (self.root / "commitlog").iterdir()
        return np.memmap(path, np.uint8, "r")[: self.log_bytes]


@cache
def store_of(scratch: Path, body_bytes: int, scale: float) -> Store:
    """Write a store: four properties a message, keys that differ, four tags, two queues."""
    count = int(MESSAGES[body_bytes] * scale)
    root = scratch / f"store-{body_bytes}"
    (root / "commitlog").mkdir(parents=True)
    topic = topic_field(TOPIC)
    born, host = host_to_bytes("10.0.0.1:1234"), host_to_bytes("10.0.0.2:10911")
    body = bytes(range(256)) * (body_bytes // 256 + 1)
    body = body[:body_bytes]
    crc = body_crc(body)
    buffer = bytearray(count * (body_bytes + 320))
    positions = np.empty(count, np.int64)
    entries: list[list[bytes]] = [[] for _ in range(QUEUES)]
    at = 0
    for number in range(count):
        tag = f"Tag{number % 4}"
        properties = (
            f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01key{number}\x02TAGS\x01{tag}\x02"
            "CLUSTER\x01DefaultCluster\x02"
        ).encode()
        size = record_size(body_bytes, len(topic), len(properties))
        queue_id, queue_offset = number % QUEUES, number // QUEUES
        stored_ms = 1_700_000_000_000 + number
        pack_record(
            buffer, at, size, crc, queue_id, 0, queue_offset, at, 0, stored_ms, born, stored_ms,
            host, 0, 0, body, topic, properties,
        )  # fmt: skip
        positions[number] = at
        entries[queue_id].append(ENTRY.pack(at, size, tags_code(tag)))
        at += size
    pack_blank(buffer, at, LOG_FILE_BYTES - at)
    _write(root / "commitlog" / f"{0:020d}", memoryview(buffer)[: at + 8], LOG_FILE_BYTES)
    for queue_id, found in enumerate(entries):
        data = memoryview(b"".join(found))
        for start in range(0, len(data), QUEUE_FILE_BYTES):
            path = root / "consumequeue" / TOPIC / str(queue_id) / f"{start:020d}"
            _write(path, data[start : start + QUEUE_FILE_BYTES], QUEUE_FILE_BYTES)
    stamps = struct.pack(">3q", *[1_700_000_000_000 + count] * 3)
    (root / "checkpoint").write_bytes(stamps.ljust(4096, b"\0"))
    return Store(root, count, at, positions)


def _write(path: Path, data: memoryview, size_bytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size_bytes)
