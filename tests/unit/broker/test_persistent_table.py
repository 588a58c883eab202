from typing import Any

import pytest

from rocketpy.broker.persistent_table import PersistentTable
from rocketpy.proto.bodies.topic import TopicConfig
from tests.unit.broker.fakes import FakeClock, MemoryFile


class Table(PersistentTable):
    def __init__(self, file: MemoryFile) -> None:
        super().__init__(file, FakeClock(5))
        self.entries: dict[str, TopicConfig] = {}

    def put(self, name: str, queues: int) -> None:
        with self._lock:
            self.entries[name] = TopicConfig(name, queues, queues)
            self._changed()

    def _content(self) -> dict[str, Any]:
        return {name: self._document(name, entry) for name, entry in self.entries.items()}


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


def test_an_entry_is_made_into_text_once() -> None:
    table = Table(MemoryFile())
    table.put("a", 1)
    table.put("b", 1)
    before = table._content()
    table.put("b", 2)
    after = table._content()
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]
