import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rocketpy.errors import (
    ConfigError,
    ExpressionError,
    IllegalMessageError,
    RocketPyError,
    ServersFailedError,
    StartError,
    StoreLockedError,
)
from rocketpy.terminal.error_exit import run_command


def outcome(fault: BaseException | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    @click.command()
    def command() -> int:
        if fault is not None:
            raise fault
        return 0

    with pytest.raises(SystemExit) as ended:
        run_command(command, "tool", [])
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [
        (None, 0, ""),
        (StartError("port 1 is taken:\n stop it"), 1, "tool: port 1 is taken: stop it\n"),
        (StoreLockedError("/data is in use"), 1, "tool: /data is in use\n"),
        (RocketPyError("no"), 1, "tool: no\n"),
        (ConfigError("bad", source="f", line=3, key="k"), 2, "tool: f:3: k: bad\n"),
        (PermissionError(13, "Permission denied", "/data"), 1, "tool: /data: Permission denied\n"),
        (click.Abort(), 1, "tool: stopped\n"),
    ],
)
def test_error_is_one_sentence_and_an_exit_code(
    fault: BaseException | None, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(fault, capsys) == (code, sentence)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (click.UsageError("what?"), 2),
        (click.ClickException("what?"), 1),
        (IllegalMessageError("what?"), 2),
        (ExpressionError("what?", 0), 2),
    ],
)
def test_every_error_begins_with_the_name_of_the_program(
    fault: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, text = outcome(fault, capsys)
    assert found == code
    assert text.splitlines()[-1].startswith("tool: ")
    assert text.endswith("what?\n")


def test_wrong_option_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None: ...

    with pytest.raises(SystemExit) as ended:
        run_command(command, "tool", ["--none"])
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: tool")
    assert lines[-1].startswith("tool: No such option")


def test_failures_of_servers_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    fault = ServersFailedError({}, {"a": RocketPyError("no"), "b": RocketPyError("late")})
    assert outcome(fault, capsys) == (1, "tool: a: no\ntool: b: late\n")


@pytest.mark.parametrize(("fault", "code"), [(BrokenPipeError(), 0), (OSError(28, "full"), 1)])
def test_reader_that_is_gone_is_success_and_a_full_disk_is_not(
    fault: OSError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(fault, capsys)[0] == code


def test_unexpected_exception_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        run_command(command, "tool", [])


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_closed_standard_descriptor_is_the_null_device(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    # A separate process, as descriptors are the process's.
    code = """
import os, socket, sys
import os
import subprocess
import sys
from pathlib import Path

import click
from rocketpy.terminal.error_exit import run_command

@click.command()
def command():
    first = socket.socket().fileno()
    click.echo("out")
    click.echo("err", err=True)
    print("flushed", flush=True)
    os.write(int(os.environ["RESULT"]), f"{first > 2} {sys.stdin.read()}".encode())
    return 3

run_command(command, "tool", [])
"""
    path = tmp_path / "result"
    with path.open("wb") as result:
        shell = " ".join(f"{number}>&-" for number in closed)
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -c "$1" {shell}', sys.executable, code],
            stdin=subprocess.DEVNULL,
            pass_fds=[result.fileno()],
            env={**os.environ, "RESULT": str(result.fileno())},
            timeout=60,
            check=False,
        )
    assert done.returncode == 3
    assert path.read_text() == "True "
