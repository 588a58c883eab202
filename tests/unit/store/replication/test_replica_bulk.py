"""Appends of random logs to a slave: in bulk and record by record, with the same result."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketpy.store.replication.replica_writer import RecordBulk
from tests.sampling import sample
from tests.unit.store.recovery_cases import TOPICS, act, files_below
from tests.unit.store.store_kit import Kit

ROOT = Path("/store")


class Outcome(NamedTuple):
    """State of a slave.

    Attributes:
        files: every file below the root once it was closed.
        ends: last queue offset of each queue that the arrival listener was called with.
        read: every queue's bounds while the slave was open.
        bulks: number of bulks that were appended.
    """

    files: dict[Path, bytes]
    ends: dict[tuple[str, int], int]
    read: list[tuple[str, int, int, int]]
    bulks: int


def outcome_of(seed: int, patch: pytest.MonkeyPatch, *, is_pure: bool) -> Outcome:
    """Feed a slave with the growing log of a random master."""
    rng = random.Random(seed)
    sizes = {
        "mapped_file_size_commit_log": rng.choice([4096, 16384, 65536]),
        "max_hash_slot_num": rng.choice([1, 7, 50]),
        "max_index_num": rng.choice([9, 60, 2000]),
        "message_index_enable": rng.random() < 0.9,
    }
    source, kit = Kit(**sizes), Kit(broker_role="SLAVE", flush_disk_type=_mode(rng), **sizes)
    master, slave = source.open(), kit.open()
    bulks = [0]
    read = RecordBulk.read

    def counted(bulk: RecordBulk, start: int, end: int) -> object:
        found = None if is_pure else read(bulk, start, end)
        bulks[0] += found is not None
        return found

    patch.setattr(RecordBulk, "read", counted)
    for _ in range(rng.choice([1, 5, 12])):
        for _ in range(rng.choice([1, 5, 40])):
            act(source, master, rng)
        while (part := master.log_part(slave.write_end, rng.choice([91, 700, 32_768]))) is not None:
            slave.append_raw(slave.write_end, part)
        rng.choice(_steps(kit, slave, rng))()
    slave.flush_log()
    ends = {(topic, queue_id): end for topic, queue_id, end, _ in kit.arrivals}
    bounds = [
        (topic, queue_id, slave.min_offset(topic, queue_id), slave.max_offset(topic, queue_id))
        for topic in slave.topics()
        for queue_id in range(10)
    ]
    assert slave.max_phy_offset == master.max_phy_offset
    slave.close()
    return Outcome(files_below(kit, ROOT), ends, bounds, bulks[0])


def _mode(rng: random.Random) -> str:
    return rng.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])


def _steps(kit: Kit, slave: object, rng: random.Random) -> list[Callable[[], object]]:
    topic = rng.choice(TOPICS)
    return [
        lambda: None,
        slave.flush_log,  # type: ignore[attr-defined]
        lambda: kit.step(slave, "FlushConsumeQueueService"),  # type: ignore[arg-type]
        lambda: slave.delete_topics([topic]),  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize("seed", sample(range(60), 60))
def test_replica_bulk_equals_records_one_by_one(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        pure = outcome_of(seed, patch, is_pure=True)
    with pytest.MonkeyPatch.context() as patch:
        bulk = outcome_of(seed, patch, is_pure=False)
    assert pure.bulks == 0
    assert bulk.read == pure.read
    for topic, queue_id, _, end in bulk.read:
        if end:  # else the topic was deleted
            assert bulk.ends[topic, queue_id] == pure.ends[topic, queue_id] == end
    assert bulk.files.keys() == pure.files.keys()
    for path, content in pure.files.items():
        assert bulk.files[path] == content, path
