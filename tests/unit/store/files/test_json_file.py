"""A configuration file is written so that Apache reads it and some copy always survives."""

import errno
import random
from pathlib import Path

import pytest

from rocketpy.store.files.json_file import JsonFile, UnchangingEntries, UnchangingJson, dump_pretty
from rocketpy.store.files.real_files import RealFiles
from rocketpy.testing.sim_files import SimFiles
from tests.sampling import sample

OFFSETS = {"offsetTable": {"T@g": {0: 6, 10: 5}}, "groupTopicMap": {"g": ["T", "%RETRY%g"]}}


class StopError(Exception):
    """The process ends here."""


class StoppingFiles(RealFiles):
    """Real files that stop at the n-th change."""

    def __init__(self, changes_left: int) -> None:
        super().__init__()
        self.changes_left = changes_left

    def _count(self) -> None:
        if self.changes_left == 0:
            raise StopError
        self.changes_left -= 1

    def write_bytes(self, path: Path, data: bytes) -> None:
        if self.changes_left == 0:
            path.write_bytes(data[: len(data) // 2])
        self._count()
        super().write_bytes(path, data)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)


def test_shape_is_that_of_fastjson() -> None:
    assert dump_pretty({"dataVersion": {"counter": 0}, "offsetTable": {1: 4, 18: 0}, "l": []}) == (
        '{\n\t"dataVersion":{\n\t\t"counter":0\n\t},\n\t"offsetTable":{\n\t\t1:4,\n\t\t18:0\n\t},'
        '\n\t"l":[]\n}'
    )
    assert dump_pretty({"a": {}, "o": [0, 1], "t": ["x"], "b": True, "n": None}) == (
        '{\n\t"a":{\n\t\t\n\t},\n\t"o":[0,1],\n\t"t":[\n\t\t"x"\n\t],\n\t"b":true,\n\t"n":null\n}'
    )


def test_saved_content_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerOffset.json"
    JsonFile(path, RealFiles()).save(OFFSETS)
    assert JsonFile(path, RealFiles()).load() == {
        "offsetTable": {"T@g": {"0": 6, "10": 5}},
        "groupTopicMap": OFFSETS["groupTopicMap"],
    }
    assert b"0:6" in path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_content_before_is_kept_as_bak(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    file = JsonFile(path, RealFiles())
    for number in range(3):
        file.save({"n": number})
    assert file.load() == {"n": 2}
    path.unlink()
    assert JsonFile(path, RealFiles()).load() == {"n": 1}


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"n":', b"\xff\xfe\x00", b'{"n":1}x'])
def test_damaged_file_falls_back_and_never_replaces_the_bak(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "a.json"
    file = JsonFile(path, RealFiles())
    file.save({"n": 0})
    file.save({"n": 1})
    path.write_bytes(damage)
    assert JsonFile(path, RealFiles()).load() == {"n": 0}

    JsonFile(path, RealFiles()).save({"n": 2})
    assert JsonFile(path, RealFiles()).load() == {"n": 2}
    path.unlink()
    assert JsonFile(path, RealFiles()).load() == {"n": 0}


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert JsonFile(tmp_path / "none.json", RealFiles()).load() is None


@pytest.mark.parametrize("changes", range(3))
@pytest.mark.parametrize("main_damaged", [False, True])
def test_crash_at_any_step_leaves_a_whole_copy(
    tmp_path: Path, changes: int, main_damaged: bool
) -> None:
    path = tmp_path / "a.json"
    file = JsonFile(path, RealFiles())
    file.save({"n": 0})
    file.save({"n": 1})
    if main_damaged:
        path.write_bytes(b"{")
    stopping = JsonFile(path, StoppingFiles(changes))
    try:
        stopping.save({"n": 2})
    except StopError:
        expected = {"n": 0} if main_damaged else {"n": 1}
    else:
        expected = {"n": 2}
        assert main_damaged
    assert JsonFile(path, RealFiles()).load() == expected
    JsonFile(path, RealFiles()).save({"n": 3})
    assert JsonFile(path, RealFiles()).load() == {"n": 3}


@pytest.mark.parametrize("seed", sample(range(60), 2))
def test_power_cut_leaves_the_last_or_the_one_before(seed: int) -> None:
    rng = random.Random(seed)
    files = SimFiles()
    path = Path("/config/a.json")
    saved = 0
    for _ in range(4):
        file = JsonFile(path, files)
        for _ in range(rng.randint(1, 3)):
            saved += 1
            file.save({"n": saved})
        stopped = rng.random() < 0.5
        if stopped:  # in the middle of one more
            files.write_bytes(path.with_name("a.json.tmp"), b'{"n":')
            files.rename(path, path.with_name("a.json.bak"))
        files.power_cut(rng)
        assert JsonFile(path, files).load() == {"n": saved}


def test_failing_disk_raises_and_keeps_old_content(tmp_path: Path) -> None:
    class Failing(RealFiles):
        def write_bytes(self, path: Path, data: bytes) -> None:
            raise OSError(errno.EIO, "disk")

    path = tmp_path / "a.json"
    JsonFile(path, RealFiles()).save({"n": 0})
    with pytest.raises(OSError, match="disk"):
        JsonFile(path, Failing()).save({"n": 1})
    assert JsonFile(path, RealFiles()).load() == {"n": 0}


def test_text_of_what_never_changes_is_made_once() -> None:
    value: dict[str, object] = {"b": {"1": 2}, "a": [1, "x"], "e": {}, "l": []}
    kept = UnchangingJson(value)
    for _ in range(2):
        assert dump_pretty({"t": {"k": kept, "l": kept}}) == dump_pretty(
            {"t": {"k": value, "l": value}}
        )
    assert kept.text
    assert dump_pretty(kept) == dump_pretty(value)  # at another depth


@pytest.mark.parametrize("names", [[], ["one"], ["a", "%RETRY%b", 'q"uo\\te', "é", ""]])
def test_entries_that_never_change_are_written_as_any_others(names: list[str]) -> None:
    values: dict[str, dict[str, object]] = {name: {"n": name, "x": [1, {}]} for name in names}
    kept = UnchangingEntries({name: UnchangingJson(value) for name, value in values.items()})
    for _ in range(2):
        for wrap in (lambda each: each, lambda each: {"v": 1, "t": each, "z": [each, each]}):
            assert dump_pretty(wrap(kept)) == dump_pretty(wrap(values))


@pytest.mark.parametrize("damage", [b"{", b"[]", b"5", b"\xff\xfe"])
def test_damaged_file_is_kept_aside_and_its_backup_counts(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.json"
    for number in range(2):
        JsonFile(path, RealFiles()).save({"n": number})
    path.write_bytes(damage)
    file = JsonFile(path, RealFiles())
    assert file.load() == {"n": 0}
    assert path.read_bytes() == damage, "who only reads changes nothing"
    file.save({"n": 2})
    assert path.with_name("x.json.damaged").read_bytes() == damage
    assert JsonFile(path, RealFiles()).load() == {"n": 2}
    assert path.with_name("x.json.bak").read_bytes() != damage
    assert "damaged file kept" in caplog.text


@pytest.mark.parametrize("operation", range(5))
def test_save_that_fails_anywhere_is_made_up_for_by_the_next(operation: int) -> None:
    """Also when the old content has its new name and the new content has not got its own."""
    files = SimFiles()
    path = Path("/config/topics.json")
    file = JsonFile(path, files)
    file.save({"a": 1})
    file.save({"a": 2})
    left = operation

    def fail(_kind: str, _path: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, "simulated disk failure")

    files.on_operation = fail
    with pytest.raises(OSError, match="simulated"):
        file.save({"a": 3})
    files.on_operation = None
    assert JsonFile(path, files).load() == {"a": 2}
    file.save({"a": 4})
    assert JsonFile(path, files).load() == {"a": 4}
