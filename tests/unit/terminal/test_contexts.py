import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest

from rocketpy.errors import ConfigError
from rocketpy.terminal import contexts
from rocketpy.terminal.contexts import Cluster, Contexts, contexts_file, load, locked, save


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "rocketpy"
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(tmp_path / name))
    return path


WITH_KEYS = Contexts({"prod": Cluster("a:1", "shop", "12345678", "t")}, "prod")


def test_contexts_saved_are_loaded_equal() -> None:
    assert load() == Contexts()
    found = Contexts({"b": Cluster("b:1;c:2"), **WITH_KEYS.clusters}, "b")
    save(found)
    assert load() == found
    save(WITH_KEYS)
    assert load() == WITH_KEYS


def test_file_is_the_users_alone(directory: Path) -> None:
    save(WITH_KEYS)
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [each.name for each in directory.iterdir()] == [contexts.FILE_NAME]


def test_contexts_with_keys_readable_by_others_raise() -> None:
    save(WITH_KEYS)
    contexts_file().chmod(0o640)
    with pytest.raises(ConfigError, match=r"chmod 600 .*contexts\.json"):
        load()
    save(Contexts({"prod": Cluster("a:1")}))
    contexts_file().chmod(0o644)
    assert load().clusters == {"prod": Cluster("a:1")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\xff",
        "[]",
        "{}",
        '{"current": "", "contexts": []}',
        '{"current": 1, "contexts": {}}',
        '{"current": "gone", "contexts": {}}',
        '{"current": "", "contexts": {"a": "b:1"}}',
        '{"current": "", "contexts": {"a": {"namesrv": 1}}}',
        '{"current": "", "contexts": {"a": {}}}',
        '{"current": "", "contexts": {"a": {"namesrv": "b:1", "other": "x"}}}',
    ],
)
def test_another_file_is_refused_with_its_name(directory: Path, text: str) -> None:
    directory.mkdir()
    contexts_file().write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"contexts\.json: is not a file of `rocketpy context`"):
        load()


def test_save_that_fails_leaves_the_old_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(WITH_KEYS)

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="No space"):
            save(Contexts())
    assert load() == WITH_KEYS
    assert len(list(directory.iterdir())) == 1


def test_names() -> None:
    with pytest.raises(click.UsageError, match=r"context 'x' does not exist \(contexts: none yet"):
        Contexts().get("x")
    with pytest.raises(click.UsageError, match=r"context 'x' does not exist \(contexts: prod\)"):
        WITH_KEYS.without("x")
    for name in ("", "a b", "../a", "-a", "é", "a\n"):
        with pytest.raises(click.UsageError, match="is not a valid name"):
            Contexts().with_cluster(name, Cluster("a:1"))
    assert WITH_KEYS.without("prod") == Contexts()


def test_keys_are_not_shown() -> None:
    assert "12345678" not in repr(WITH_KEYS)
    save(WITH_KEYS)
    assert json.loads(contexts_file().read_text())["contexts"]["prod"]["secret_key"] == "12345678"


@pytest.mark.parametrize("set_to", ["", "config"])
def test_contexts_file_without_absolute_directory_is_below_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, set_to: str
) -> None:
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(Path(set_to, name)))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts_file() == tmp_path / ".config" / "rocketpy" / contexts.FILE_NAME


def test_contexts_changed_by_several_processes_are_all_kept() -> None:
    def change(number: int) -> None:
        with locked():
            found = load()
            save(found.with_cluster(f"c{number}", Cluster("a:1")))

    # Threads hold separate locks, as each opens the directory itself.
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(8)))
    assert len(load().clusters) == 8
