"""Selection of the cluster and the account of a command."""

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from rocketpy.terminal.cluster_selection import cluster_options
from rocketpy.terminal.common import namesrv_option
from rocketpy.terminal.contexts import Cluster, Contexts, contexts_file, save


@click.group()
@cluster_options
def program(*, namesrv: str | None, context: str | None) -> None:
    assert namesrv is None or context is None


@click.command()
@namesrv_option
def ask(*, namesrv: str) -> None:
    click.echo(f"{namesrv} {os.environ.get('ROCKETPY_ACCESS_KEY', '-')}")


program.add_command(ask)


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(tmp_path / name))
    for name in ("NAMESRV_ADDR", "ROCKETPY_CONTEXT", "ROCKETPY_ACCESS_KEY", "ROCKETPY_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    keys = {"access_key": "shop", "secret_key": "12345678"}
    save(Contexts({"open": Cluster("open:1"), "closed": Cluster("closed:1", **keys)}, "closed"))


def asked(*words: str, command: click.Command = program, **environ: str) -> str:
    result = CliRunner().invoke(command, words, env=environ)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def run(*words: str) -> Result:
    return CliRunner().invoke(program, words)


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        (["-n", "global:1", "ask", "-n", "own:1"], {}, "own:1 -"),
        (["-n", "global:1", "ask"], {"NAMESRV_ADDR": "env:1"}, "global:1 -"),
        (["-n", "global:1", "ask"], {"ROCKETPY_CONTEXT": ""}, "global:1 -"),
        (["--context", "open", "ask"], {"NAMESRV_ADDR": "env:1"}, "open:1 -"),
        (["--context", "closed", "ask"], {"NAMESRV_ADDR": "env:1"}, "closed:1 shop"),
        (["--context", "closed", "ask", "-n", "own:1"], {}, "own:1 -"),
        (["ask"], {"ROCKETPY_CONTEXT": "open", "NAMESRV_ADDR": "env:1"}, "open:1 -"),
        (["ask"], {"NAMESRV_ADDR": "env:1"}, "env:1 -"),
        (["ask"], {"ROCKETPY_ACCESS_KEY": "mine", "ROCKETPY_SECRET_KEY": "x"}, "closed:1 shop"),
        (["ask"], {}, "closed:1 shop"),
    ],
)
def test_nearest_choice_counts(words: list[str], environ: dict[str, str], expected: str) -> None:
    assert asked(*words, command=program, **environ) == expected


def test_command_by_itself_knows_the_context_in_use() -> None:
    assert asked(command=ask) == "closed:1 shop"
    assert asked(command=ask, NAMESRV_ADDR="env:1") == "env:1 -"


def test_without_a_context_it_is_this_machine() -> None:
    contexts_file().unlink()
    assert asked("ask") == "127.0.0.1:9876 -"


def test_account_of_a_context_is_removed_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked("ask") == "closed:1 shop"
    assert "ROCKETPY_ACCESS_KEY" not in os.environ
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "mine")
    assert asked("ask") == "closed:1 shop"
    assert os.environ["ROCKETPY_ACCESS_KEY"] == "mine"


def test_unknown_context_is_a_usage_error() -> None:
    result = run("--context", "none", "ask")
    assert result.exit_code == 2
    assert "context 'none' does not exist (contexts: closed, open)" in result.output


def test_file_that_cannot_be_read_matters_only_when_it_is_asked() -> None:
    contexts_file().write_text("{")
    assert asked("ask", "-n", "own:1") == "own:1 -"
    assert asked("-n", "global:1", "ask") == "global:1 -"
    assert asked("ask", NAMESRV_ADDR="env:1") == "env:1 -"
    assert run("ask").exit_code != 0
