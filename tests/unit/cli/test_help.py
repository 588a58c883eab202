"""Every command has help with an example, and docs/cli.md knows every command."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rocketpy.cli.main import command
from rocketpy.terminal.parameters import FiniteRange, NonEmptyPath

DOCUMENT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def paths(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*above, name)
        if isinstance(found, click.Group):
            yield from paths(found, *above, name)


EVERY = sorted(paths(command))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_help_works_and_has_an_example(path: tuple[str, ...]) -> None:
    for option in ("--help", "-h"):
        result = CliRunner().invoke(command, [*path, option])
        assert result.exit_code == 0, result.output
        assert re.search(rf"Example: .*rocketpy {' '.join(path)}", result.output)


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_manual_names_it(path: tuple[str, ...]) -> None:
    assert f"rocketpy {' '.join(path)}" in DOCUMENT


def command_at(path: tuple[str, ...]) -> click.Command:
    """Return a command by its words."""
    found: click.Command = command
    for name in path:
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), name)
        assert child is not None
        found = child
    return found


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_commands_of_clients_have_the_common_options(path: tuple[str, ...]) -> None:
    found = command_at(path)
    if isinstance(found, click.Group) or path[0] in {
        "broker",
        "completion",
        "context",
        "namesrv",
        "controller",
        "run",
        "standalone",
        "store",
    }:
        return
    if path == ("spark", "audit"):  # it reads files
        return
    options = {option for each in found.params for option in each.opts}
    assert {"-n", "--namesrv", "-o", "--output"} <= options
    [namesrv] = [each for each in found.params if "-n" in each.opts]
    assert namesrv.envvar == "NAMESRV_ADDR"
    assert namesrv.default == "127.0.0.1:9876"
    assert found.help
    assert found.help.splitlines()[0].endswith(".")


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_ranges_are_finite_and_paths_not_empty(path: tuple[str, ...]) -> None:
    found = command_at(path)
    for each in found.params:
        if isinstance(each.type, click.FloatRange):
            assert isinstance(each.type, FiniteRange), each.name
        if isinstance(each.type, click.Path):
            assert isinstance(each.type, NonEmptyPath), each.name


@pytest.mark.parametrize(
    "words",
    [
        "standalone --data=",
        "standalone --data=d --log-file=",
        "broker --config=",
        "spark archive t --to=",
        "run worker:app --asyncapi=",
    ],
)
def test_empty_path_is_wrong_usage(words: str) -> None:
    result = CliRunner().invoke(command, words.split())
    assert result.exit_code == 2, result.output
    assert "the path is empty" in result.output


@pytest.mark.parametrize("url", ["s3a://bucket/orders", "file:///data/orders", "file:/data"])
@pytest.mark.parametrize(
    "words",
    [
        "standalone --data=",
        "store backup . ",
        "spark archive t --to=",
        "spark archive t --only-compact --format=delta --to=",
        "spark lag --to=",
    ],
)
def test_url_for_a_path_is_wrong_usage(
    words: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, (words + url).split())
    assert not list(tmp_path.iterdir())
    assert result.exit_code == 2, result.output
    assert f"{url!r} is a URL, where the path of a" in " ".join(result.output.split())


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize("words", ["spark replay t --to u --rate", "spark dlq g --requeue --rate"])
def test_rate_of_a_job_that_is_no_number_is_wrong_usage(words: str, number: str) -> None:
    result = CliRunner().invoke(command, [*words.split(), number])
    assert result.exit_code == 2, result.output
    assert f"'{number}' is not a number in the range x>0" in result.output
