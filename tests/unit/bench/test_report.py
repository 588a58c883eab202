"""Description of the interpreter in the report of a run."""

import importlib.util
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from bench import report


def configured(monkeypatch: pytest.MonkeyPatch, arguments: str, package: str) -> None:
    def asked(command: Sequence[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        assert command[0] == "dpkg-query"
        if not package:
            raise subprocess.CalledProcessError(1, list(command))
        name, version = package.split()
        is_search = command[1] == "--search"
        said = f"{name}: {sys.executable}\n" if is_search else f"{name}\t{version}\n"
        return subprocess.CompletedProcess(list(command), 0, said)

    monkeypatch.setattr(sysconfig, "get_config_var", lambda _name: arguments)
    monkeypatch.setattr(subprocess, "run", asked)


@pytest.mark.parametrize(
    ("arguments", "package", "says", "is_plain"),
    [
        ("'--enable-shared'", "", "without PGO, without LTO", True),
        ("'--enable-optimizations' '--with-lto'", "", "with PGO, with LTO", False),
        ("'--enable-optimizations'", "python3.11-minimal 1", "with PGO, without LTO", False),
        ("", "python3.11-minimal 3.11.2-6", "Debian's package python3.11-minimal 3.11.2-6", False),
    ],
)
def test_builds_say_how_they_were_made(
    monkeypatch: pytest.MonkeyPatch, arguments: str, package: str, says: str, is_plain: bool
) -> None:
    configured(monkeypatch, arguments, package)
    assert says in report.interpreter()
    assert report.is_known_as_plain() is is_plain


def test_without_dpkg_a_build_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_command: Any, **_options: Any) -> None:
        raise FileNotFoundError("dpkg-query")

    monkeypatch.setattr(sysconfig, "get_config_var", lambda _name: "")
    monkeypatch.setattr(subprocess, "run", absent)
    assert "without PGO" in report.interpreter()
    assert report.is_known_as_plain()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("_plain_sends.abi3.so", "every later CPython"),
        ("_plain_sends.cpython-311-x86_64-linux-gnu.so", "this interpreter"),
    ],
)
def test_report_build_names_its_python_versions(
    monkeypatch: pytest.MonkeyPatch, file: str, says: str
) -> None:
    found = ModuleSpec("_plain_sends", None, origin=f"/somewhere/{file}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: found)
    assert report.abi() == says
