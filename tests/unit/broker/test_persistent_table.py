from collections.abc import Mapping
from typing import Any

import pytest

from rocketpy.broker.persistent_table import PersistentTable
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from tests.unit.broker.fakes import FakeClock, MemoryFile


class Table(PersistentTable[TopicConfig]):
    def __init__(self, file: MemoryFile) -> None:
        super().__init__(file, FakeClock(5), {})
        self.told: list[tuple[str, int]] = []

    def put(self, name: str, queues: int) -> None:
        with self._changing() as entries:
            entries[name] = TopicConfig(name, queues, queues)
            self._to_tell.append(lambda: self.told.append((name, self.saves)))

    @property
    def saves(self) -> int:
        return self._file.saves  # type: ignore[attr-defined]

    def _content(self, entries: Mapping[str, TopicConfig]) -> dict[str, Any]:
        return dict(self._table(entries))


class FullFile(MemoryFile):
    """Takes nothing until there is space."""

    has_space = False

    def save(self, value: object) -> None:
        if not self.has_space:
            raise DiskFullError("no space")
        super().save(value)


def test_each_change_is_counted_and_written() -> None:
    file = MemoryFile()
    table = Table(file)
    table.put("a", 1)
    table.put("a", 2)
    assert file.saves == 2
    assert file.value["a"]["readQueueNums"] == 2
    assert table.data_version == {"counter": 2, "stateVersion": 0, "timestamp": 5}


def fail_between_changes(table: Table, file: MemoryFile) -> None:
    with table.one_write():
        table.put("a", 1)
        table.put("b", 1)
        assert file.saves == 0
        raise RuntimeError


def test_changes_inside_are_written_once_also_when_they_end_early() -> None:
    file = MemoryFile()
    table = Table(file)
    with pytest.raises(RuntimeError):
        fail_between_changes(table, file)
    assert (file.saves, set(file.value)) == (1, {"a", "b"})
    with table.one_write():
        assert file.saves == 1
    assert file.saves == 1
    table.persist()
    assert file.saves == 2


def test_nobody_sees_a_change_before_it_is_written() -> None:
    file = MemoryFile()
    table = Table(file)
    with table.one_write():
        table.put("a", 1)
        table.put("b", 1)
        assert (table.entries, table.told) == ({}, [])
    assert set(table.entries) == {"a", "b"}
    assert table.told == [("a", 1), ("b", 1)]


def test_what_cannot_be_written_did_not_happen_and_is_tried_again() -> None:
    file = FullFile()
    table = Table(file)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            table.put("a", 1)
    assert (table.entries, table.told, file.value) == ({}, [], None)
    file.has_space = True
    table.put("a", 1)
    assert set(table.entries) == set(file.value) == {"a"}
    assert table.told == [("a", 1)]


def test_an_entry_is_made_into_text_once() -> None:
    table = Table(MemoryFile())
    table.put("a", 1)
    table.put("b", 1)
    before = table._content(table.entries)
    table.put("b", 2)
    after = table._content(table.entries)
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]
