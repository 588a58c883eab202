from pathlib import Path

import pytest

from rocketpy.errors import StartError
from rocketpy.namesrv.kv_config import KvConfig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "kvConfig.json"


def put(kv: KvConfig, namespace: str, key: str, value: str) -> None:
    assert kv.put(namespace, key, value, max_entries=200) is None


def test_values_survive_a_restart(path: Path) -> None:
    kv = KvConfig(path)
    kv.load()
    assert kv.get("n", "k") is None
    put(kv, "n", "k", "v")
    put(kv, "n", "k2", "v2")
    put(kv, "m", "k", "w")
    again = KvConfig(path)
    again.load()
    assert again.get("n", "k") == "v"
    assert again.namespace("n") == {"k": "v", "k2": "v2"}
    assert again.namespace("unknown") is None
    assert [each.name for each in path.parent.iterdir()] == ["kvConfig.json"]


def test_file_has_the_form_of_apaches(path: Path) -> None:
    put(KvConfig(path), "n", "k", "v")
    assert path.read_bytes() == b'{"configTable":{"n":{"k":"v"}}}'


def test_deleting(path: Path) -> None:
    kv = KvConfig(path)
    put(kv, "n", "k", "v")
    assert kv.delete("n", "k")
    assert not kv.delete("n", "k")
    assert not kv.delete("m", "k")
    assert kv.namespace("n") == {}
    again = KvConfig(path)
    again.load()
    assert again.get("n", "k") is None


def test_table_is_bounded(path: Path) -> None:
    kv = KvConfig(path)
    assert kv.put("n", "k", "v", max_entries=1) is None
    assert "1 values already" in (kv.put("n", "k2", "v", max_entries=1) or "")
    assert kv.put("n", "k", "changed", max_entries=1) is None
    assert "characters" in (kv.put("", "k", "v", max_entries=9) or "")
    assert "characters" in (kv.put("n", "k" * 513, "v", max_entries=9) or "")
    assert "characters" in (kv.put("n", "k2", "v" * 65_537, max_entries=9) or "")
    assert kv.namespace("n") == {"k": "changed"}


def test_file_is_bounded(path: Path) -> None:
    kv = KvConfig(path)
    for number in range(127):
        put(kv, "n", str(number), "v" * 65_536)
    assert "bytes" in (kv.put("n", "last", "v" * 65_536, max_entries=999) or "")
    assert kv.get("n", "last") is None


def test_value_that_cannot_be_written_is_not_set(path: Path) -> None:
    path.parent.write_text("a file where the directory should be")
    kv = KvConfig(path)
    with pytest.raises(OSError, match="exists"):
        put(kv, "n", "k", "v")
    assert kv.get("n", "k") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"configTable":1}', '{"configTable":{"n":{"k":1}}}'])
def test_damaged_file_stops_the_start(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StartError, match="damaged"):
        KvConfig(path).load()


def test_empty_or_unreadable_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("")
    kv = KvConfig(path)
    kv.load()
    assert kv.namespace("n") is None
    with pytest.raises(StartError, match="cannot read"):
        KvConfig(path.parent).load()
