"""Names, places and sizes of the store's files, as the general design has them."""

import re
from pathlib import Path

from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.queue_entry import ENTRY
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES as QUEUE_ENTRY_BYTES
from rocketpy.store.index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES, index_file_bytes
from rocketpy.store.message_store import MessageStore
from rocketpy.testing.sim_clock import SimClock
from tests.unit.store.store_kit import TOPIC, message

LOG_BYTES = 16_384


def made_by(root: Path, count: int) -> set[str]:
    """The files of a store with so many messages of 3,000 bytes, by their path in it."""
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=LOG_BYTES,
        mapped_file_size_consume_queue=200,
        max_hash_slot_num=20,
        max_index_num=50,
    )
    store = MessageStore(config, clock=SimClock())
    store.open()
    for number in range(count):
        store.put_message(message(b"%d" % number * 3_000, queue_id=number % 2))
    store.close()
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_sizes_are_the_documented_ones() -> None:
    config = MessageStoreConfig(store_path_root_dir="/store")
    assert config.mapped_file_size_commit_log == 1_073_741_824
    assert config.mapped_file_size_consume_queue == 300_000 * QUEUE_ENTRY_BYTES == 6_000_000
    assert (HEADER_BYTES, SLOT_BYTES, ENTRY_BYTES) == (40, 4, 20)
    assert index_file_bytes(config.max_hash_slot_num, config.max_index_num) == 420_000_040


def test_entry_of_a_queue_is_offset_length_and_hash() -> None:
    assert ENTRY.size == QUEUE_ENTRY_BYTES == 8 + 4 + 8
    assert ENTRY.pack(1, 2, 3) == bytes(7) + b"\1" + bytes(3) + b"\2" + bytes(7) + b"\3"


def test_one_log_for_all_queues_in_files_named_by_where_they_begin(tmp_path: Path) -> None:
    files = made_by(tmp_path, 12)
    assert {name for name in files if name.startswith("commitlog/")} == {
        "commitlog/00000000000000000000",
        "commitlog/00000000000000016384",
        "commitlog/00000000000000032768",
    }
    assert {(tmp_path / name).stat().st_size for name in files if "commitlog" in name} == {
        LOG_BYTES
    }


def test_queues_and_index_are_where_they_are_looked_for(tmp_path: Path) -> None:
    files = made_by(tmp_path, 24)
    queues = {f"consumequeue/{TOPIC}/{queue_id}/00000000000000000{at}" for queue_id in (0, 1)
              for at in ("000", "200")}  # fmt: skip
    assert queues == {name for name in files if name.startswith("consumequeue/")}
    (index,) = (name for name in files if name.startswith("index/"))
    assert re.fullmatch(r"index/\d{17}", index), "a local time, to the millisecond"
    assert (tmp_path / index).stat().st_size == 40 + 20 * 4 + 50 * 20
