"""Entries that are not in the files of queues yet, made from the log."""

import os
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.sys_flag import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketpy.store.scan import queue_table
from rocketpy.store.scan import unflushed_tail as module
from rocketpy.store.scan.directory import LogFile, StoreDirectory
from rocketpy.store.scan.log import Log, read_checkpoint
from rocketpy.store.scan.queue_table import QueueTable
from rocketpy.store.scan.unflushed_tail import tails
from tests.unit.store.scan.kit import Written


def table(root: Path) -> QueueTable:
    directory = StoreDirectory(root)
    return QueueTable(directory, Log(directory.log_files()))


def ends(root: Path) -> dict[tuple[str, int], int]:
    found = table(root)
    return {(t, i): q.end for t in found.topics for i in found.ids(t) if (q := found.get(t, i))}


def test_queues_without_any_file(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 31)
    store.fill("U", 3, queues=1)

    assert not (tmp_path / "consumequeue").exists()
    assert ends(tmp_path) == {("T", 0): 16, ("T", 1): 15, ("U", 0): 3}
    store.close()


def test_half_and_rolled_back_messages_have_no_entry(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.put("T", 0, b"1")
    store.put("T", 0, b"2", sys_flag=TRANSACTION_PREPARED)
    store.put("T", 0, b"3", sys_flag=TRANSACTION_ROLLBACK)
    store.put("T", 0, b"4")
    store.put("T", 0, b"5", born_host=bytes(16) + b"\0\0\0\1")

    assert ends(tmp_path) == {("T", 0): 3}
    store.close()


def test_after_apache_the_end_of_the_last_entry_counts(tmp_path: Path) -> None:
    """Its checkpoint has no offsets."""
    store = Written(tmp_path)
    store.fill("T", 40)
    store.flush()
    store.fill("T", 10)
    store.fill("New", 2)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:40].ljust(4096, b"\0"))

    assert ends(tmp_path) == {("T", 0): 25, ("T", 1): 25, ("New", 0): 1, ("New", 1): 1}
    store.close()


def test_topic_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 4)
    store.fill("Gone", 4)
    store.store.delete_topics({"Gone"})
    store.put("Gone", 0, b"again")

    assert ends(tmp_path) == {("T", 0): 2, ("T", 1): 2, ("Gone", 0): 1}
    store.close()


def test_tail_with_more_records_than_limit_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Written(tmp_path)
    store.fill("T", 40)
    monkeypatch.setattr(module, "MAX_TAIL_RECORDS", 39)

    with pytest.raises(StoreFormatError, match=r"more than 39 messages before the log: scan by"):
        table(tmp_path)
    store.close()


@pytest.mark.long
def test_tail_of_gigabytes_is_read_from_the_log(tmp_path: Path) -> None:
    """Large messages fill gigabytes before a broker flushes its queues; the file is sparse."""
    body_bytes, count = 4 << 20, 300
    path = tmp_path / f"{0:020d}"
    at = 0
    with path.open("wb") as file:
        for number in range(count):
            message = MessageExt(
                topic="T", queue_id=number % 3, queue_offset=number // 3, phy_offset=at,
                born_host="127.0.0.1:1", store_host="127.0.0.1:2", body=b"x",
            )  # fmt: skip
            record = bytearray(encode_message(message))
            size = len(record) + body_bytes - 1
            record[:4] = size.to_bytes(4)
            record[84:88] = body_bytes.to_bytes(4)
            file.seek(at)
            file.write(record[:88])
            file.seek(at + 88 + body_bytes)
            file.write(record[89:])
            at += size
        file.truncate(at + 100)
    assert at > 1 << 30

    found = tails(Log([LogFile(0, at + 100, str(path))]), 0, {}, {}, None)
    assert {key: (first, len(each)) for key, (first, each) in found.items()} == {
        ("T", queue_id): (0, count // 3) for queue_id in range(3)
    }
    assert sum(int(each["size_bytes"].sum()) for _, each in found.values()) == at


def test_nothing_is_searched_after_a_clean_end(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 40)
    store.close()

    checkpoint = read_checkpoint(tmp_path)

    log = Log(StoreDirectory(tmp_path).log_files())
    assert checkpoint is not None
    assert log.is_behind_end(checkpoint.queues_phy_offset)
    assert os.path.exists(tmp_path / "consumequeue" / "T" / "0")


def test_entries_that_reach_the_files_while_queues_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint covers entries that the queues read before do not have."""
    store = Written(tmp_path)
    store.fill("T", 40)
    store.flush()
    store.fill("T", 20)
    looked = queue_table.queue_of

    def look_and_flush(*given: Any) -> Any:
        found = looked(*given)
        monkeypatch.setattr(queue_table, "queue_of", looked)
        store.flush()
        store.fill("T", 10)
        return found

    monkeypatch.setattr(queue_table, "queue_of", look_and_flush)

    found = table(tmp_path).get("T", 0)

    assert found is not None
    assert found.end >= 30
    assert (found.entries(20, found.end)["size_bytes"] > 0).all()
    store.close()


def test_scan_beside_apache_excludes_messages_that_arrive_meanwhile(
    tmp_path: Path,
) -> None:
    store = Written(tmp_path)
    first = store.put("T", 0, b"0")
    for number in range(1, 5):
        store.put("T", 0, b"%d" % number)
    directory = StoreDirectory(tmp_path)
    start = first + 300

    found = tails(Log(directory.log_files()), start, {("T", 0): 1}, {}, None, is_vouched=False)

    assert found == {}
    store.close()
