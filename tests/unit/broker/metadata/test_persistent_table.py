"""Visible and settled changes of a table, and failed writes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from rocketpy.broker.metadata.persistent_table import PersistentTable
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from tests.unit.broker.fakes import FakeClock, MemoryFile


class Table(PersistentTable[TopicConfig]):
    _table_key: ClassVar[str] = "entries"

    def __init__(self, file: MemoryFile) -> None:
        super().__init__(file, FakeClock(5), {})
        self.told: list[tuple[str, int]] = []

    def put_soon(self, name: str, queues: int = 1) -> list[Exception | None]:
        """Change an entry without waiting; return the results of its notification."""
        with self.write_soon(), self._changing(name) as entries:
            entries[name] = TopicConfig(name, queues, queues)
            self._written_callbacks.append(lambda: self.told.append((name, self.saves)))
        settled: list[Exception | None] = []
        self.when_settled([name], settled.append)
        return settled

    def delete(self, name: str) -> None:
        with self.one_write():
            self._delete_entry(name)

    def put(self, name: str, queues: int) -> None:
        with self.one_write(), self._changing(name) as entries:
            entries[name] = TopicConfig(name, queues, queues)
            self._written_callbacks.append(lambda: self.told.append((name, self.saves)))

    @property
    def saves(self) -> int:
        return self._file.saves  # type: ignore[attr-defined]

    @property
    def content(self) -> dict[str, Any]:
        return (self._file.value or {}).get("entries", {})  # type: ignore[attr-defined]


class FullFile(MemoryFile):
    """Takes nothing until there is space."""

    has_space = False

    def save(self, value: object) -> None:
        if not self.has_space:
            raise DiskFullError("no space")
        super().save(value)


def test_table_each_change_is_counted_and_written() -> None:
    file = MemoryFile()
    table = Table(file)
    table.put("a", 1)
    table.put("a", 2)
    assert file.saves == 2
    assert table.content["a"]["readQueueNums"] == 2
    assert table.data_version == {"counter": 2, "stateVersion": 0, "timestamp": 5}


def fail_between_changes(table: Table, file: MemoryFile) -> None:
    with table.one_write():
        table.put("a", 1)
        table.put("b", 1)
        assert file.saves == 0
        raise RuntimeError


def test_one_write_batches_changes_even_if_block_raises() -> None:
    file = MemoryFile()
    table = Table(file)
    with pytest.raises(RuntimeError):
        fail_between_changes(table, file)
    assert (file.saves, set(table.content)) == (1, {"a", "b"})
    with table.one_write():
        assert file.saves == 1
    assert file.saves == 1
    table.persist()
    assert file.saves == 2


def test_one_write_change_is_reported_after_write() -> None:
    file = MemoryFile()
    table = Table(file)
    with table.one_write():
        table.put("a", 1)
        table.put("b", 1)
        assert (table.entries, table.told) == ({}, [])
    assert set(table.entries) == {"a", "b"}
    assert table.told == [("a", 1), ("b", 1)]


def test_table_failed_write_undoes_change_and_can_be_retried() -> None:
    file = FullFile()
    table = Table(file)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            table.put("a", 1)
    assert (table.entries, table.told, file.value) == ({}, [], None)
    file.has_space = True
    table.put("a", 1)
    assert set(table.entries) == set(table.content) == {"a"}
    assert table.told == [("a", 1)]


def test_table_entry_json_is_cached() -> None:
    table = Table(MemoryFile())
    table.put("a", 1)
    table.put("b", 1)
    before = table._table(table.entries)
    table.put("b", 2)
    after = table._table(table.entries)
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]


class BusyFile(MemoryFile):
    """Does something while it is written."""

    meanwhile: Callable[[], object] | None = None
    failure: Exception | None = None

    def save(self, value: object) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        if self.failure is not None:
            raise self.failure
        super().save(value)


def served(file: MemoryFile) -> tuple[Table, list[str]]:
    """Return a table with a writer, and how often that was woken."""
    table = Table(file)
    woken: list[str] = []
    table.use_writer(lambda: woken.append("up"))
    return table, woken


def test_write_soon_change_is_visible_at_once_and_settled_after_write() -> None:
    file = MemoryFile()
    table, woken = served(file)
    settled = table.put_soon("a")
    assert set(table.entries) == {"a"}
    assert (table.told, settled, file.saves, table.is_written("a")) == ([], [], 0, False)
    assert woken
    table.write()
    assert (table.told, settled, table.is_written("a")) == ([("a", 1)], [None], True)
    told: list[Exception | None] = []
    table.when_settled(["a", "nowhere"], told.append)
    assert told == [None]
    table.write()
    assert file.saves == 1, "nothing is left to be written"


def test_write_soon_pending_changes_share_one_write() -> None:
    file = MemoryFile()
    table, _ = served(file)
    settled = [table.put_soon(str(number)) for number in range(100)]
    assert table.data_version["counter"] == 0, "of what is written"
    table.write()
    assert (file.saves, table.data_version["counter"]) == (1, 1)
    assert settled == [[None]] * 100


def test_table_change_during_write_belongs_to_next_write() -> None:
    file = BusyFile()
    table, _ = served(file)
    first = table.put_soon("a")
    later: list[list[Exception | None]] = []
    again: list[Exception | None] = []

    def meanwhile() -> None:
        table.when_settled(["a"], again.append)
        later.append(table.put_soon("b"))
        assert set(table.entries) == {"a", "b"}

    file.meanwhile = meanwhile
    table.write()
    assert (set(table.content), first, again, later) == ({"a"}, [None], [None], [[]])
    table.write()
    assert (set(table.content), later) == ({"a", "b"}, [[None]])


def test_table_entry_deleted_during_its_write_stays_deleted() -> None:
    file = BusyFile()
    table, _ = served(file)
    settled = table.put_soon("a")
    gone: list[str] = []
    table.on_change = gone.append

    def delete() -> None:
        with table._together():
            table._delete_entry("a")

    file.meanwhile = delete
    table.write()
    assert (set(table.entries), set(table.content), gone, settled) == ({"a"}, {"a"}, [], [None])
    file.meanwhile = lambda: gone.append("seen" if table.entries else "not seen")
    table.write()
    assert (dict(table.entries), dict(table.written), table.content) == ({}, {}, {})
    assert gone == ["seen", "a"], "until the file lacks it"
    table.write()
    assert file.saves == 2


def test_table_entry_put_again_during_its_deletion_stays() -> None:
    file = BusyFile()
    table, _ = served(file)
    table.put_soon("a")
    file.meanwhile = lambda: table.put_soon("b")
    table.write()
    file.meanwhile = lambda: table.put_soon("a", 2)
    table.delete("a")
    assert {name: one.read_queue_nums for name, one in table.entries.items()} == {"a": 2, "b": 1}
    table.write()
    assert set(table.content) == {"a", "b"}


def test_table_failed_deletion_is_undone() -> None:
    file = BusyFile()
    table = Table(file)
    table.put("a", 1)
    file.failure = DiskFullError("no space")
    with pytest.raises(DiskFullError):
        table.delete("a")
    assert set(table.entries) == {"a"}
    file.failure = None
    table.put("b", 1)
    assert set(table.content) == {"a", "b"}


def test_table_failed_write_undoes_pending_changes_and_notifies_each() -> None:
    file = BusyFile()
    table, _ = served(file)
    table.put_soon("kept")
    table.write()
    changed: list[str] = []
    table.on_change = changed.append
    first = table.put_soon("a")
    changed_again = table.put_soon("kept", 2)
    later: list[list[Exception | None]] = []
    file.failure = DiskFullError("no space")
    file.meanwhile = lambda: later.append(table.put_soon("b"))
    seen = table.entries
    table.write()
    assert set(table.entries) == {"kept"}
    assert table.entries["kept"].read_queue_nums == 1
    assert table.entries is not seen
    assert [str(each) for (each,) in (first, later[0])] == ["no space"] * 2
    assert changed_again == [None], "it is on disk, as it was"
    assert changed == ["a", "kept", "b", "kept", "a", "b"]
    assert table.told == [("kept", 1)]
    assert set(table._documents) == {"kept"}
    assert table.data_version["counter"] == 1


def test_one_write_raises_if_other_thread_failed_to_write() -> None:
    file = BusyFile()
    table, _ = served(file)
    table.put_soon("a")
    file.failure = DiskFullError("no space")
    writing, seen = threading.Event(), threading.Event()

    def meanwhile() -> None:
        writing.set()
        assert seen.wait(10)

    file.meanwhile = meanwhile
    with ThreadPoolExecutor(2) as threads:
        writer = threads.submit(table.write)
        assert writing.wait(10)
        table.on_change = lambda _name: seen.set()
        waits = threads.submit(table.put, "b", 1)
        table_error = waits.exception(10)
        writer.result(10)
    assert isinstance(table_error, DiskFullError)
    assert dict(table.entries) == {}


def test_one_write_waits_for_slow_outcome_of_other_thread() -> None:
    """A change that is no longer pending was not necessarily written."""
    file = BusyFile()
    table, _ = served(file)
    slow = threading.Event()

    def done(_failure: Exception | None) -> None:
        assert slow.wait(10)

    with table.write_soon(), table._changing("a") as entries:
        entries["a"] = TopicConfig("a", 1, 1)
    table.when_settled(["a"], done)
    file.failure = DiskFullError("no space")
    write, undone = table.write, threading.Event()

    def write_late() -> None:
        assert undone.wait(10)  # the other thread has taken this change, too
        write()
        slow.set()

    with ThreadPoolExecutor(2) as threads:
        table.write = write_late  # type: ignore[method-assign]
        seen: list[str] = []

        def on_change(name: str) -> None:
            seen.append(name)
            if seen == ["b"]:
                threads.submit(write)
            elif name == "a":
                undone.set()

        table.on_change = on_change
        waits = threads.submit(table.put, "b", 1)
        assert isinstance(waits.exception(10), DiskFullError)


def test_table_failing_callback_does_not_stop_others() -> None:
    table, _ = served(BusyFile())

    def fail(_failure: Exception | None = None) -> None:
        raise ValueError("simulated failure")

    with table.write_soon(), table._changing("a") as entries:
        entries["a"] = TopicConfig("a", 1, 1)
        table.when_written(fail)

    told: list[Exception | None] = []
    table.when_settled(["a"], fail)
    table.when_settled(["a"], told.append)
    table.write()
    assert told == [None]


def change_and_fail(table: Table) -> None:
    with table.write_soon(), table._changing("a") as entries:
        entries["a"] = TopicConfig("a", 1, 1)
        raise RuntimeError


def test_write_soon_raising_block_is_still_written() -> None:
    table, woken = served(MemoryFile())
    with pytest.raises(RuntimeError):
        change_and_fail(table)
    assert woken
    table.write()
    assert set(table.content) == {"a"}


def test_table_version_renewed_during_write_is_unique() -> None:
    file = BusyFile()
    table, _ = served(file)
    table.put_soon("a")
    file.meanwhile = table.renew_version
    table.write()
    assert table.data_version["counter"] == 2
