"""Random stores of killed processes, recovered with and without the compiled reader."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketpy.errors import StoreError
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.store.message_store import MessageStore
from rocketpy.store.recovery import bulk_recovery as recovered_runs
from rocketpy.store.recovery.index_catch_up import BulkReplay, Replayed
from rocketpy.store.results import PutMessage
from tests.unit.store.store_kit import Kit

ROOT = Path("/store")
LOG = ROOT / "commitlog"
TOPICS = ["Plain", "Other", "Zahlung-ä", "话题", SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC"]
TEXTS = ["", "a", "AaAa", "key 1", " two  keys ", "ö€😀", "x" * 300, "C0A80001" * 4, "T#"]
FLAGS = [0, 0, 0, 0, 0, 0, 4, 8, 12, 1, 1 << 4]
DAYS_MS = 86_400_000
MOST_STEPS = 5_000


class Outcome(NamedTuple):
    """State of a store after recovery.

    Attributes:
        report: its report, or the text of its error.
        files: every file below the root once it was closed.
        run_count: records that the compiled reader took.
        replay_count: runs that it put into the index behind the start.
    """

    report: str
    files: dict[Path, bytes]
    run_count: int
    replay_count: int


def outcome_of(seed: int, patch: pytest.MonkeyPatch, *, is_pure: bool) -> Outcome:
    """Build the store of a seed, and start it."""
    rng = random.Random(seed)
    kit = Kit(
        mapped_file_size_commit_log=rng.choice([4096, 16384, 65536]),
        max_hash_slot_num=rng.choice([1, 7, 50]),
        max_index_num=rng.choice([2, 9, 60, 2000]),
        message_index_enable=rng.random() < 0.9,
        check_crc_on_recover=rng.random() < 0.8,
        flush_consume_queue_thorough_interval=0,
    )
    store = kit.open()
    for _ in range(rng.choice([1, 5, 60, 300])):
        act(kit, store, rng)
    if rng.random() < 0.8:
        kit.files.kill()
    else:
        kit.files.power_cut(rng)
    damage(kit, rng)
    counts: list[int] = []
    take = recovered_runs.BulkRecovery.take

    def counting(runs: recovered_runs.BulkRecovery, *args: object) -> object:
        before = runs.record_count
        found = take(runs, *args)  # type: ignore[arg-type]
        counts.append(runs.record_count - before)
        return found

    with patch.context() as at_start:
        at_start.setattr(recovered_runs.BulkRecovery, "take", counting)
        if is_pure:
            at_start.setattr(recovered_runs, "compiled_records", lambda: None)
        try:
            again = kit.open()
        except StoreError as error:
            return Outcome(str(error), files_below(kit, ROOT), sum(counts), 0)
        report = repr(again.recovery)
        replays = complete_index(kit, again, rng)
        again.close()
    return Outcome(report, files_below(kit, ROOT), sum(counts), replays)


def complete_index(kit: Kit, store: MessageStore, rng: random.Random) -> int:
    """Store a few messages while the index is completed; return how many runs were put."""
    runs: list[Replayed] = []
    replay = BulkReplay.replay

    def noting(each: BulkReplay, missing_from: int) -> Replayed:
        runs.append(replay(each, missing_from))
        return runs[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BulkReplay, "replay", noting)
        put(store, rng)
        for service in store.services:
            if service.name == "IndexCatchUpService":
                while service.step(0) == 0:
                    assert len(runs) < MOST_STEPS
        put(store, rng)
    return runs.count(Replayed.PUT)


def act(kit: Kit, store: MessageStore, rng: random.Random) -> None:
    """Store a message, as a rule; or let time pass, flush, or delete a topic."""
    choice = rng.random()
    if choice < 0.9:
        put(store, rng)
    elif choice < 0.94:
        kit.clock.advance(rng.choice([1, 999, 20_000]))
    elif choice < 0.95:
        kit.clock.jump(rng.choice([-5_000, -1, 60_000, 30_000 * DAYS_MS]))
    elif choice < 0.97:
        kit.step(store, "FlushRealTimeService")
    elif choice < 0.99:
        kit.step(store, "FlushConsumeQueueService")
    else:
        store.delete_topics([rng.choice(TOPICS)])


def put(store: MessageStore, rng: random.Random) -> None:
    """Store a random message."""
    properties: dict[str, str] = {}
    for name in rng.sample(["UNIQ_KEY", "KEYS", "TAGS", "own", "DELAY"], rng.randrange(5)):
        properties[name] = "2" if name == "DELAY" else rng.choice(TEXTS)
    encoded = encode_properties(properties)
    if rng.random() < 0.1:
        encoded = encoded.replace(b"\x02", rng.choice([b"", b"\x02\x02", b"\x01", b"\xff"]), 1)
    topic = rng.choice(TOPICS[:2] if rng.random() < 0.9 else TOPICS)
    tags = properties.get("TAGS") or None
    store.put_message(
        PutMessage(
            topic,
            rng.choice([0, 0, 0, 1, 2, 9]),
            rng.randbytes(rng.choice([0, 1, 7, 63, 64, 100, 700])),
            properties=encoded,
            sys_flag=rng.choice(FLAGS),
            tags_code=tags_code(tags),
            uniq_key=properties.get("UNIQ_KEY") or None,
            keys=properties.get("KEYS") or None,
            tags=tags,
        )
    )


def damage(kit: Kit, rng: random.Random) -> None:
    """Change what is on the disk: bytes of the log, or files that are gone."""
    if rng.random() < 0.15:
        kit.files.remove_tree(ROOT / "consumequeue")
    if rng.random() < 0.15:
        kit.files.remove_tree(ROOT / "index")
    if rng.random() < 0.15 and kit.files.exists(ROOT / "checkpoint"):
        kit.files.remove(ROOT / "checkpoint")
    names = [name for name in kit.files.list_files(LOG) if kit.files.size_bytes(LOG / name)]
    for _ in range(rng.choice([0, 0, 1, 2, 8]) if names else 0):
        region = kit.files.open(LOG / rng.choice(names))
        at = rng.randrange(region.size_bytes)
        with_bytes = rng.choice(
            [b"\0", b"\xff", rng.randbytes(1), rng.randbytes(4), b"\x7f\xff\xff\xff", bytes(600)]
        )[: region.size_bytes - at]
        region.buffer[at : at + len(with_bytes)] = with_bytes
        region.flush()
        region.close()


def files_below(kit: Kit, directory: Path) -> dict[Path, bytes]:
    """Return every file of a simulated directory."""
    found = {
        directory / name: kit.files.read_bytes(directory / name)
        for name in kit.files.list_files(directory)
    }
    for name in kit.files.list_directories(directory):
        found |= files_below(kit, directory / name)
    return found


def compare(seed: int) -> int:
    """Start the store of a seed both ways; return how many records the compiled reader took.

    Raises:
        AssertionError: the two differ.
    """
    with pytest.MonkeyPatch.context() as patch:
        pure = outcome_of(seed, patch, is_pure=True)
        compiled = outcome_of(seed, patch, is_pure=False)
    assert pure.run_count == pure.replay_count == 0
    assert compiled.report == pure.report, seed
    assert compiled.files.keys() == pure.files.keys(), seed
    for path, content in pure.files.items():
        assert compiled.files[path] == content, (seed, path)
    return compiled.run_count + compiled.replay_count
