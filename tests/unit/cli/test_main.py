import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rocketpy.cli.main import _WITHOUT_CLUSTER, COMMANDS, command
from rocketpy.errors import ConfigError


def run(*arguments: str, optimised: bool = False) -> "subprocess.CompletedProcess[str]":
    python = [sys.executable, *(["-O"] if optimised else [])]
    return subprocess.run(
        [*python, "-m", "rocketpy", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_lists_the_commands_without_importing_them() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from rocketpy.cli.main import command;"
        "print(CliRunner().invoke(command, ['--help']).output);"
        "heavy = ('asyncio', 'uvloop', 'structlog', 'rocketpy.broker', 'rocketpy.namesrv');"
        "print([each for each in heavy if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    *output, imported = done.stdout.strip().splitlines()
    assert imported == "[]"
    assert "standalone" in "\n".join(output)
    assert "Example:" in "\n".join(output)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(command, [name, "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Example: .*rocketpy {name}", result.output)


def test_one_line_help_of_each_command_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    context = click.Context(command)
    for name, (_, line) in COMMANDS.items():
        found = command.get_command(context, name)
        assert found is not None
        assert (found.help or "").split("\n")[0].startswith(line.rstrip("."))


def test_wrong_usage_is_exit_code_2_and_one_sentence() -> None:
    unknown = run("nonsense")
    assert unknown.returncode == 2
    assert "No such command 'nonsense'" in unknown.stderr
    for words, meant in ((["standalon"], "standalone"), (["spark", "archve"], "archive")):
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 2
        assert f"No such command {words[-1]!r}. Did you mean {meant!r}?" in done.output
    bad_value = run("namesrv", "-D", "listenPort=x")
    assert bad_value.returncode == 2
    assert bad_value.stderr == (
        "rocketpy: -D: listenPort: 'x' is not allowed here; "
        "expected a whole number from 0 to 65535\n"
    )
    missing = run("namesrv", "-c", "/none.conf")
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        *(
            (name, f"write rocketpy {name} -n HOST:PORT[;HOST:PORT...] ...")
            for name in ("broker", "run")
        ),
        *((name, "leave them out") for name in sorted(_WITHOUT_CLUSTER - {"broker", "run"})),
    ],
)
@pytest.mark.parametrize("option", ["-n", "--context"])
def test_cluster_before_a_command_without_one_is_refused_with_advice(
    name: str, advice: str, option: str
) -> None:
    done = CliRunner().invoke(command, [option, "h:1", name])
    assert done.exit_code == 2
    sentence = f"Error: {name} does not take the program's -n or --context: {advice}"
    assert sentence in done.output


def test_page_names_the_commands_without_a_cluster() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    section = page.partition("## Commands without a cluster\n")[2].partition("\n## ")[0]
    named = {words.split()[1] for words in re.findall(r"`(rocketpy [a-z]+)", section)}
    assert named == _WITHOUT_CLUSTER


def test_python_without_asserts_is_refused() -> None:
    refused = run("--help", optimised=True)
    assert refused.returncode == 2
    assert "does not run with python -O" in refused.stderr


def test_effective_configuration_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text("listenPort=1234\n")
    runner = CliRunner()
    result = runner.invoke(command, ["namesrv", "-c", str(path), "-p", "4", "--print-config"])
    assert result.exit_code == 0
    assert "listenPort=4\n" in result.output
    result = runner.invoke(
        command,
        ["broker", "-n", "h:1", "-D", "brokerName=x", "--print-config"],
        env={"NAMESRV_ADDR": "weak:1", "ROCKETPY_FILE_RESERVED_TIME": "3"},
    )
    assert result.exit_code == 0
    assert "namesrvAddr=h:1\n" in result.output
    assert "brokerName=x\n" in result.output
    assert "fileReservedTime=3\n" in result.output
    result = runner.invoke(command, ["broker", "--print-config"], env={"NAMESRV_ADDR": "weak:1"})
    assert "namesrvAddr=weak:1\n" in result.output


def test_wrong_name_server_of_the_environment_is_named_with_its_variable(tmp_path: Path) -> None:
    environ = {"NAMESRV_ADDR": "nowhere"}
    result = CliRunner().invoke(command, ["broker", "--print-config"], env=environ)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("environment NAMESRV_ADDR: namesrvAddr: must be ")
    path = tmp_path / "n.conf"
    path.write_text("namesrvAddr=h:1\n")
    words = ["broker", "-c", str(path), "--print-config"]
    assert "namesrvAddr=h:1\n" in CliRunner().invoke(command, words, env=environ).output


@pytest.mark.parametrize("server", ["broker", "controller", "namesrv"])
def test_server_with_two_files_is_wrong_usage(server: str, tmp_path: Path) -> None:
    (tmp_path / "a.conf").touch()
    one = ["--config", str(tmp_path / "a.conf"), "--check-config"]
    refused = CliRunner().invoke(command, [server, "-c", str(tmp_path / "b.conf"), *one])
    assert refused.exit_code == 2
    assert "is given twice: a server reads one file" in refused.output
    assert CliRunner().invoke(command, [server, *one], standalone_mode=False).return_value == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("brokerRole=MASTER", "n.conf:2: brokerRole: 'MASTER' is not allowed here"),
        ("brokerId=-1", "n.conf:2: brokerId: must be 0, or more for a slave"),
        ("storePathRootDir=", "n.conf:2: storePathRootDir: must not be empty"),
    ],
)
def test_value_that_no_broker_can_have_is_refused(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "n.conf"
    path.write_text(f"brokerName=b\n{line}\n")
    result = CliRunner().invoke(command, ["broker", "-c", str(path), "--print-config"])
    assert result.exit_code != 0
    assert words in str(result.exception)


def test_shipped_files_load_without_a_warning() -> None:
    from rocketpy.cli.servers import broker, namesrv  # noqa: PLC0415

    conf = Path(__file__).parents[3] / "conf"
    loaded = namesrv.load_config(conf / "namesrv.conf", [])
    assert (loaded.warnings, loaded.non_defaults()) == ((), {})
    loaded = broker.load_config(conf / "broker.conf", [], {})
    assert loaded.warnings == ()
    assert loaded.as_dict()["fileReservedTime"] == "48"
