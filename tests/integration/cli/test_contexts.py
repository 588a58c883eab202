"""Contexts and shell completion with a real cluster."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.integration.cli.conftest import Cli

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(tmp_path / name))
    for name in ("NAMESRV_ADDR", "ROCKETPY_CONTEXT", "ROCKETPY_ACCESS_KEY", "ROCKETPY_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "rocketpy"


def test_context_names_the_cluster(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("topic", "create", "orders", "-n", cli.namesrv)
    cli("context", "list")
    assert "no contexts: rocketpy context add" in cli.err
    cli("context", "add", "test", cli.namesrv)
    cli("context", "add", "gone", UNREACHABLE, "--use")
    assert cli.json("context", "list") == [
        {"name": "gone", "current": True, "namesrv": UNREACHABLE, "access_key": ""},
        {"name": "test", "current": False, "namesrv": cli.namesrv, "access_key": ""},
    ]
    cli("topic", "list", code=1)
    assert UNREACHABLE in cli.err
    names = [row["topic"] for row in cli.json("--context", "test", "topic", "list")]
    assert names == ["orders"]
    assert cli.json("-n", cli.namesrv, "topic", "list")[0]["topic"] == "orders"
    assert cli.json("-n", UNREACHABLE, "topic", "list", "-n", cli.namesrv)[0]["topic"] == "orders"

    cli("context", "add", "gone", cli.namesrv, code=1)
    assert f"context gone exists, with {UNREACHABLE}: --update changes it" in cli.err
    cli("context", "use", "test")
    assert cli.json("topic", "list")[0]["topic"] == "orders"
    cli("context", "remove", "test")
    assert [row["current"] for row in cli.json("context", "list")] == [False]
    cli("context", "add", "gone", f"{UNREACHABLE}; {cli.namesrv}", "--update", "--use")
    assert cli.json("context", "list")[0]["namesrv"] == f"{UNREACHABLE};{cli.namesrv}"
    cli("context", "use", "--none")
    monkeypatch.setenv("NAMESRV_ADDR", cli.namesrv)
    assert cli.json("topic", "list")[0]["topic"] == "orders"


def test_keys_are_kept_in_a_file_of_the_users_alone(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "shop")
    monkeypatch.setenv("ROCKETPY_SECRET_KEY", "12345678")
    cli("context", "add", "prod", cli.namesrv, "--keys")
    assert stat.S_IMODE((home / "contexts.json").stat().st_mode) == 0o600
    out = cli("context", "list", "-o", "json")
    assert '"shop"' in out
    assert "12345678" not in out
    monkeypatch.delenv("ROCKETPY_ACCESS_KEY")
    monkeypatch.delenv("ROCKETPY_SECRET_KEY")
    assert not cli.json("--context", "prod", "topic", "list")
    assert "ROCKETPY_SECRET_KEY" not in os.environ


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["context", "add", "a b", "h:1"], 2, "is not a valid name"),
        (["context", "add", "a", ";"], 2, "give at least one address"),
        (["context", "add", "a", "h:x"], 2, "'h:x'"),
        (["context", "use", "a"], 2, "context 'a' does not exist"),
        (["context", "use"], 2, "give NAME or --none"),
        (["context", "remove", "a"], 2, "context 'a' does not exist"),
        (["--context", "a", "topic", "list"], 2, "context 'a' does not exist"),
        (["-n", "h:1", "--context", "a", "topic", "list"], 2, "both name a cluster"),
        (["-n", "h:1", "broker", "--print-config"], 2, "broker does not take the program's -n"),
        (["-n", "h:1", "context", "list"], 2, "context does not take the program's -n"),
    ],
)
def test_wrong_words(cli: Cli, home: Path, words: list[str], code: int, said: str) -> None:
    cli(*words, code=code)
    assert said in cli.err


class Shell:
    """Return the completions of a shell, by the script that the command prints."""

    def __init__(self, cluster: ClusterThread, directory: Path) -> None:
        self.namesrv = cluster.namesrv
        program = directory / "bin" / "rocketpy"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rocketpy "$@"\n')
        program.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "XDG_DATA_HOME": str(directory),
            "ROCKETPY_COMPLETION_TIMEOUT": "60",
        }

    def run(self, *command: str, **variables: str) -> list[str]:
        """Return the words that a command prints."""
        done = subprocess.run(
            command,
            env={**self._environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert not done.stderr
        return done.stdout.split()

    def bash(self, line: str) -> list[str]:
        asks = 'COMP_POINT=${#COMP_LINE}; _rocketpy_completion rocketpy; echo "${COMPREPLY[@]}"'
        return self.run("bash", "-c", f"{script_of('bash')}\n{asks}", COMP_LINE=line)

    def zsh(self, line: str) -> list[str]:
        """Call the script's function as the completion system does, which is not there."""
        stand_ins = """
            compdef() { :; }
            compadd() { print -l -- "${completions[@]}"; }
            _describe() { print -l -- "${(@)completions_with_descriptions%%:*}"; }
        """
        asks = 'words=("${(@s: :)LINE}"); CURRENT=$#words; _rocketpy_completion'
        return self.run("zsh", "-f", "-c", f"{stand_ins}\n{script_of('zsh')}\n{asks}", LINE=line)

    def fish(self, line: str) -> list[str]:
        asks = 'complete --do-complete "$LINE" | string replace --regex "\\t.*" ""; true'
        return self.run("fish", "--no-config", "-c", f"{script_of('fish')}\n{asks}", LINE=line)


def script_of(shell: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "rocketpy", "completion", shell],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.fixture
def shell(rocketpy_cluster: ClusterThread, tmp_path: Path) -> Shell:
    rocketpy_cluster.create_topic("orders", queues=1)
    rocketpy_cluster.create_topic("other", queues=1)
    return Shell(rocketpy_cluster, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.skipif(shutil.which(each) is None, reason="not here"))
        for each in ("bash", "zsh", "fish")
    ],
)
def test_shells_complete_names_of_the_cluster(shell: Shell, name: str) -> None:
    offered = getattr(shell, name)
    assert offered(f"rocketpy topic delete -n {shell.namesrv} o") == ["orders", "other"]
    assert offered(f"rocketpy -n {shell.namesrv} cluster writable ") == ["broker-a"]
    assert offered("rocketpy context re") == ["remove"]
    assert offered(f"rocketpy topic delete -n {UNREACHABLE} o") == []


def test_scripts_of_zsh_and_fish_get_names_and_kinds(shell: Shell) -> None:
    """Their side of it, where the shells themselves are not installed."""
    line = f"rocketpy topic delete -n {shell.namesrv} "
    ask = [sys.executable, "-m", "rocketpy"]
    told = shell.run(*ask, _ROCKETPY_COMPLETE="zsh_complete", COMP_WORDS=f"{line}o", COMP_CWORD="5")
    assert told == ["plain", "orders", "_", "plain", "other", "_"]
    told = shell.run(*ask, _ROCKETPY_COMPLETE="fish_complete", COMP_WORDS=line, COMP_CWORD="o")
    assert told == ["plain,orders", "plain,other"]
    told = shell.run(
        *ask, _ROCKETPY_COMPLETE="zsh_complete", COMP_WORDS="rocketpy context re", COMP_CWORD="2"
    )
    assert told[:2] == ["plain", "remove"]
