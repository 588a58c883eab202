import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rocketpy.errors import ConfigError, RocketPyError, StartError, StoreLockedError
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


def test_wrong_usage_shows_how(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = outcome(click.UsageError("what?"), capsys)
    assert code == 2
    assert "what?" in text


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
