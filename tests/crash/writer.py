"""The process that gets killed: writes numbered messages and reports what was acknowledged.

`python -m tests.crash.writer DIRECTORY FLUSH_TYPE FIRST BATCH`: one line a message on
standard output, as soon as it is acknowledged: number, queue offset, physical offset.
"""

import os
import queue
import sys
from pathlib import Path

from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from tests.simulation.ledger import Ledger

LIMIT = 1_000_000  # numbers a process may use, far more than it lives to


def config(directory: Path, flush_disk_type: str) -> MessageStoreConfig:
    """Small files, so that a short life rolls all of them."""
    return MessageStoreConfig(
        store_path_root_dir=str(directory),
        flush_disk_type=flush_disk_type,
        mapped_file_size_commit_log=256 << 10,
        mapped_file_size_consume_queue=4_000,
        max_hash_slot_num=100,
        max_index_num=400,
        flush_interval_consume_queue=20,
        flush_interval_commit_log=20,
        disk_max_used_space_ratio=95,
    )


def report(ledger: Ledger, numbers: list[int]) -> None:
    """Tell the parent in one write."""
    lines = [
        f"{number} {place.queue_id} {place.queue_offset} {place.phy_offset}\n"
        for number in numbers
        for place in [ledger.placed[number]]
    ]
    os.write(1, "".join(lines).encode())


def main(directory: str, flush_disk_type: str, first: str, batch: str) -> None:
    """Write until killed."""
    sync = flush_disk_type == "SYNC_FLUSH"
    store = MessageStore(config(Path(directory), flush_disk_type), clock=SystemClock())
    store.open()
    store.start()
    os.write(1, b"started\n")
    ledger = Ledger()
    for start in range(int(first), int(first) + LIMIT, int(batch)):
        numbers = list(range(start, start + int(batch)))
        result = ledger.put(store, numbers, as_batch=len(numbers) > 1)
        assert result.status.name == "PUT_OK", result
        if sync:
            durable: queue.SimpleQueue[bool] = queue.SimpleQueue()
            store.when_durable(result.phy_end, durable.put)
            assert durable.get(timeout=60)
        report(ledger, numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
