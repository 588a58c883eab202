"""A store directory changes hands: Apache's store opens ours, ours opens Apache's, also killed.

Each hand-over compares everything: messages, queue offsets, consume-queue entries, lookups by key
and by tag. The receiver then appends, closes, and the directory goes back.
"""

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.tags import tags_code
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessageStatus
from tests.crash.test_kill import catch_up, run_and_kill
from tests.peer.apache import require_peer
from tests.peer.classes import SMALL, compiled
from tests.sampling import sample
from tests.simulation.ledger import TOPIC, batch, message

SOURCE = Path(__file__).parent / "java" / "StoreSwap.java"
FOREVER = (1 << 63) - 1
JAVA_TOPIC = "Swap"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


@dataclass(frozen=True)
class Sizes:
    """The sizes are part of a store; these are those of `tests.crash.writer`."""

    commit_log: int = 256 << 10
    consume_queue: int = 4_000
    slots: int = 100
    indexes: int = 400

    def config(self, directory: Path) -> MessageStoreConfig:
        return MessageStoreConfig(
            store_path_root_dir=str(directory),
            mapped_file_size_commit_log=self.commit_log,
            mapped_file_size_consume_queue=self.consume_queue,
            max_hash_slot_num=self.slots,
            max_index_num=self.indexes,
            max_msgs_num_batch=1_000_000,
            disk_max_used_space_ratio=95,
            mapper_file_size_batch_consume_queue=13_800,
        )


class Java:
    """Apache's DefaultMessageStore, one process a call."""

    def __init__(self, classes: str, sizes: Sizes, home: Path) -> None:
        self.sizes = sizes
        self._home = home
        self._command = [
            "java",
            *SMALL,
            f"-Duser.home={home}",
            f"-DcommitLog={sizes.commit_log}",
            f"-DconsumeQueue={sizes.consume_queue}",
            f"-Dslots={sizes.slots}",
            f"-Dindexes={sizes.indexes}",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "-cp",
            classes,
            "StoreSwap",
        ]

    def run(self, *arguments: str) -> list[str]:
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def dump(self, directory: Path, queries: list["Query"]) -> "Found":
        """Return the content of a copy of the directory as Apache loads and recovers it."""
        copy = self._home / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        asked = self._home / "queries"
        asked.write_text("".join("\t".join(query) + "\n" for query in queries))
        self.run("dump", str(copy), str(self._home / "out"), str(asked))
        lines = (self._home / "out").read_text().splitlines()
        return _found_by_java([json.loads(line) for line in lines])

    def fill(self, directory: Path, first: int, count: int, end: str) -> list[str]:
        return self.run("fill", str(directory), str(first), str(count), end)


Query = tuple[str, str, str]


@dataclass
class Found:
    """A store's whole content, however it was read."""

    log: tuple[int, int]
    queues: dict[tuple[str, int], tuple[int, int]]
    entries: dict[tuple[str, int, int], tuple[Any, ...]]
    lookups: dict[Query, list[int]]


def _found_by_java(lines: list[dict[str, Any]]) -> Found:
    found = Found((0, 0), {}, {}, {})
    for line in lines:
        kind = line["kind"]
        if kind == "log":
            found.log = (line["min"], line["max"])
        elif kind == "queue":
            found.queues[line["topic"], line["queue"]] = (line["min"], line["max"])
        elif kind == "index":
            query = (line["topic"], line["key"], line["type"])
            found.lookups[query] = list(dict.fromkeys(line["found"]))
        else:
            found.entries[line["topic"], line["queue"], line["offset"]] = (
                line["phy"],
                line["size"],
                line["tagsCode"],
                line["storedTopic"],
                line["storedOffset"],
                line["storeTime"],
                line["bornTime"],
                line["flag"],
                line["sysFlag"],
                line["body"],
                line["properties"],
            )
    return found


def _found_by_ours(store: MessageStore, topics: list[str], queries: list[Query]) -> Found:
    found = Found((store.min_phy_offset, store.max_phy_offset), {}, {}, {})
    for topic in topics:
        for queue_id in range(3):
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            if high > 0:
                found.queues[topic, queue_id] = (low, high)
                _read_queue(store, found, topic, queue_id)
    for topic, key, index_type in queries:
        result = store.query_index(topic, key, 1_000_000, 0, FOREVER, index_type or None)
        found.lookups[topic, key, index_type] = result.phy_offsets
    return found


def _read_queue(store: MessageStore, found: Found, topic: str, queue_id: int) -> None:
    offset, high = found.queues[topic, queue_id]
    while offset < high:
        result = store.get_message(topic, queue_id, offset, 32, 1 << 20)
        assert result.count, result
        for buffer in result.buffers:
            record = decode_message(bytes(buffer), inflate=False, check_crc=True)
            found.entries[topic, queue_id, offset] = (
                record.phy_offset,
                len(buffer),
                tags_code(record.properties.get("TAGS")),
                record.topic,
                record.queue_offset,
                record.store_timestamp_ms,
                record.born_timestamp_ms,
                record.flag,
                record.sys_flag,
                record.body.hex(),
                record.properties,
            )
            offset += 1


def queries_of(found: Found) -> list[Query]:
    """Every key and tag of the messages found, and one key that is nowhere."""
    queries: dict[Query, None] = {(TOPIC, "nowhere", ""): None}
    for (topic, _, _), entry in found.entries.items():
        properties = entry[-1]
        keys = [properties.get("UNIQ_KEY"), *properties.get("KEYS", "").split(" ")]
        queries.update(((topic, key, ""), None) for key in keys if key)
        if "TAGS" in properties:
            queries[topic, properties["TAGS"], "T"] = None
    asked = list(queries)
    return asked if len(asked) < 400 else random.Random(len(asked)).sample(asked, 400)


def look(directory: Path, sizes: Sizes, topics: list[str]) -> tuple[Found, list[Query]]:
    """Return the content of a copy of the directory as RocketPy reads it."""
    copy = directory.with_name(directory.name + "-looked-at")
    shutil.copytree(directory, copy)
    store = MessageStore(sizes.config(copy), clock=SystemClock())
    store.open()
    catch_up(store)
    first = _found_by_ours(store, topics, [])
    queries = queries_of(first)
    found = _found_by_ours(store, topics, queries)
    store.close()
    shutil.rmtree(copy)
    return found, queries


def append(directory: Path, sizes: Sizes, first: int, count: int) -> None:
    """Ours opens the directory, puts single messages and batches, and closes it."""
    store = MessageStore(sizes.config(directory), clock=SystemClock())
    store.open()
    catch_up(store)  # who closes before the index is complete leaves the abort file
    store.start()
    for number in range(first, first + count):
        if number % 10:
            result = store.put_message(message(number))
        else:
            result = store.put_batch(batch([number * 1_000 + index for index in range(4)]))
        assert result.status is PutMessageStatus.PUT_OK
    store.close()
    assert not (directory / "abort").exists()


def assert_same(ours: Found, java: Found) -> None:
    assert java.log == ours.log
    assert {queue: ends for queue, ends in java.queues.items() if ends[1]} == ours.queues
    assert java.entries.keys() == ours.entries.keys()
    for place, entry in ours.entries.items():
        assert java.entries[place] == entry, place
    for query, places in ours.lookups.items():
        assert java.lookups[query] == places, query


@pytest.fixture(scope="session")
def classes() -> str:
    require_peer()
    return compiled("swap", [SOURCE])


@pytest.fixture
def java(classes: str, tmp_path: Path) -> Java:
    (tmp_path / "home").mkdir()
    return Java(classes, Sizes(), tmp_path / "home")


def make_ours(directory: Path, end: str) -> None:
    if end == "clean":
        append(directory, Sizes(), 1, 600)
        return
    # Apache looks at the last ten files of the log only, unless its checkpoint says more.
    assert run_and_kill([str(directory), "ASYNC_FLUSH", "1000000", "1"], 0, after=600)
    assert len(list((directory / "commitlog").iterdir())) < 10
    assert (directory / "abort").exists()


def make_java(java: Java) -> Callable[[Path, str], None]:
    def make(directory: Path, end: str) -> None:
        java.fill(directory, 0, 600, end)
        assert (directory / "abort").exists() == (end == "kill")

    return make


@pytest.mark.parametrize("end", sample(["clean", "kill"], 2))
def test_apache_opens_and_extends_rocketpy_store(java: Java, tmp_path: Path, end: str) -> None:
    directory = tmp_path / "store"
    make_ours(directory, end)
    ours, queries = look(directory, java.sizes, [TOPIC])
    assert len(ours.entries) > 500
    assert_same(ours, java.dump(directory, queries))

    lines = java.fill(directory, 0, 30, "clean")
    assert lines[-1] == "abort left: false"
    again, queries = look(directory, java.sizes, [TOPIC, JAVA_TOPIC])
    assert len(again.entries) == len(ours.entries) + 30
    assert ours.entries.items() <= again.entries.items()
    assert_same(again, java.dump(directory, queries))

    append(directory, java.sizes, 5_000_000, 100)
    last, queries = look(directory, java.sizes, [TOPIC, JAVA_TOPIC])
    assert len(last.entries) == len(again.entries) + 130
    assert_same(last, java.dump(directory, queries))


@pytest.mark.parametrize("end", sample(["kill", "clean"], 2))
def test_rocketpy_opens_and_extends_apache_store(java: Java, tmp_path: Path, end: str) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    make_java(java)(directory, end)
    ours, queries = look(directory, java.sizes, [JAVA_TOPIC])
    assert len(ours.entries) == 600
    assert_same(ours, java.dump(directory, queries))

    append(directory, java.sizes, 1, 300)
    again, queries = look(directory, java.sizes, [TOPIC, JAVA_TOPIC])
    assert len(again.entries) == 600 + 270 + 120
    assert ours.entries.items() <= again.entries.items()
    assert_same(again, java.dump(directory, queries))

    java.fill(directory, 600, 100, "clean")
    last, queries = look(directory, java.sizes, [TOPIC, JAVA_TOPIC])
    assert len(last.entries) == len(again.entries) + 100
    assert_same(last, java.dump(directory, queries))
