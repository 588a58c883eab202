from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import ConfigSet, Sources, option
from rocketpy.runtime.config.live_config import LiveSettings, load_with_live_file, replace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    size: int = option(1, live=True)
    path: str = option("here")


def loaded(directory: Path, text: str = "", **environ: str) -> ConfigSet:
    sources = Sources(text=text, name="file", environ=environ)
    return load_with_live_file(sources, [Settings], lambda _: directory / "live.properties")


def test_live_file_counts_more_than_the_file_and_less_than_the_environment(
    tmp_path: Path,
) -> None:
    LiveSettings(tmp_path / "live.properties").add({"size": "3"})
    found = loaded(tmp_path, "size=2")
    assert found.get(Settings).size == 3
    assert found.from_live_file == {"size"}
    found = loaded(tmp_path, "size=2", ROCKETPY_SIZE="4")
    assert found.get(Settings).size == 4
    assert not found.from_live_file


def test_without_a_live_file_nothing_differs(tmp_path: Path) -> None:
    assert loaded(tmp_path, "size=2").get(Settings).size == 2
    assert LiveSettings(tmp_path / "live.properties").load() == {}


def test_key_that_is_not_live_has_no_effect_there(tmp_path: Path) -> None:
    (tmp_path / "live.properties").write_text("path=/elsewhere\nnone=1\n")
    found = loaded(tmp_path)
    assert found.get(Settings).path == "here"
    assert [each.key for each in found.warnings] == ["path", "none"]
    assert "live.properties:1" in str(found.warnings[0])


def test_value_that_does_not_fit_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "live.properties").write_text("# head\nsize=big\n")
    with pytest.raises(ConfigError, match=r"live\.properties:2"):
        loaded(tmp_path)
    (tmp_path / "live.properties").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"live\.properties"):
        loaded(tmp_path)
    with pytest.raises(ConfigError, match="utf-8"):
        LiveSettings(tmp_path / "live.properties").load()


def test_changes_add_up(tmp_path: Path) -> None:
    live = LiveSettings(tmp_path / "deep" / "live.properties")
    live.add({"a": "1", "b": "x\\y"})
    live.add({"a": "2"})
    assert live.load() == {"a": "2", "b": "x\\y"}
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["live.properties"]


def test_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(_fd: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr("rocketpy.runtime.config.live_config.os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
