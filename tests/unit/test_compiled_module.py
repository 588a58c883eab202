"""A compiled module is used when it is there, wanted and no older than the sources beside it."""

import importlib
import logging
import sys
from pathlib import Path

import pytest

from rocketpy.compiled_module import checksum_of, load_compiled

HERE = (
    "rocketpy.broker.fast_path._plain_sends",
    "rocketpy.arrow._rows",
    "rocketpy.client.messages._messages",
    "rocketpy.store.recovery._plain_records",
)


def module_made_of(
    directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, sources: bytes | None
) -> str:
    """Put a module and its sources into a directory; a plain one takes the compiled one's place."""
    (directory / f"{name}.pyx").write_text('include "part.pxi"\n')
    (directory / "part.pxi").write_text("x = 1\n")
    text = "" if sources is None else f"SOURCES = {sources!r}\n"
    (directory / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    return name


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    monkeypatch.delenv("ROCKETPY_COMPILED", raising=False)


@pytest.mark.parametrize("name", HERE)
def test_compiled_modules_hold_the_checksum_of_their_sources(name: str) -> None:
    module = load_compiled(name)
    if module is None:
        pytest.skip("this installation is pure")
    source = Path(*name.split(".")).with_suffix(".pyx")
    assert checksum_of(Path(__file__).parents[2] / source) == module.SOURCES


def test_each_source_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_made_of(tmp_path, monkeypatch, "counted", None)
    first = checksum_of(tmp_path / "counted.pyx")
    (tmp_path / "part.pxi").write_text("x = 2\n")
    second = checksum_of(tmp_path / "counted.pyx")
    (tmp_path / "counted.pyx").write_text('include "part.pxi"\ny = 3\n')
    assert len({first, second, checksum_of(tmp_path / "counted.pyx")}) == 3


def test_module_of_the_sources_beside_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module_made_of(tmp_path, monkeypatch, "fitting", None)
    checksum = checksum_of(tmp_path / "fitting.pyx")
    module_made_of(tmp_path, monkeypatch, "fitting", checksum)
    found = load_compiled(name)
    assert found is not None
    assert checksum == found.SOURCES


@pytest.mark.parametrize("sources", [b"of another day", None])
def test_module_of_other_sources_is_not_loaded_and_warned_of_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sources: bytes | None,
) -> None:
    name = module_made_of(tmp_path, monkeypatch, "outdated", sources)
    with caplog.at_level(logging.WARNING):
        assert load_compiled(name) is None
        assert load_compiled(name) is None
    (told,) = caplog.messages
    assert "outdated was compiled from other sources" in told
    assert "pip install" in told


def test_required_module_of_other_sources_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module_made_of(tmp_path, monkeypatch, "required", b"of another day")
    monkeypatch.setenv("ROCKETPY_COMPILED", "1")
    with pytest.raises(ImportError, match="other sources than those beside it: python -m pip"):
        load_compiled(name)
    monkeypatch.setenv("ROCKETPY_PURE", "1")
    assert load_compiled(name) is None


def test_module_without_sources_beside_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = module_made_of(tmp_path, monkeypatch, "installed", b"somewhere else")
    (tmp_path / "installed.pyx").unlink()
    assert load_compiled(name) is not None


def test_module_built_by_hand_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module_made_of(tmp_path, monkeypatch, "made_by_hand", b"")
    assert load_compiled(name) is not None


def test_missing_module_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_compiled("rocketpy._no_such_module") is None
    monkeypatch.setenv("ROCKETPY_COMPILED", "1")
    with pytest.raises(ImportError, match="_no_such_module"):
        load_compiled("rocketpy._no_such_module")
