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
