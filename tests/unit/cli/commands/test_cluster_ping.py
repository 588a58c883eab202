"""`rocketpy cluster ping`: what it asks of controllers, and its exit code."""

import pytest

from rocketpy.cli.main import command
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.terminal.error_exit import run_command
from tests.unit.admin.fakes import BROKERS, FakeRemoting
from tests.unit.cli.commands.test_silent_servers import run

A = BROKERS["broker-a"]
CONTROLLER = "c1:9878"
LED = {"controllerLeaderId": "n1", "controllerLeaderAddress": "c2:9878", "isLeader": "false"}


@pytest.mark.parametrize(
    ("fields", "words", "reason", "code"),
    [
        (LED, "", None, 0),
        ({"isLeader": "false"}, "", None, 0),
        (LED, "--ready", "", 0),
        ({"isLeader": "false"}, "--ready", "no_leader: no controller leads", 1),
    ],
)
def test_ping_of_a_controller_asks_for_its_leader_if_it_must_be_ready(
    fields: dict[str, str],
    words: str,
    reason: str | None,
    code: int,
    remoting: FakeRemoting,
    capsys: pytest.CaptureFixture[str],
) -> None:
    remoting.response(RequestCode.CONTROLLER_GET_METADATA_INFO, at=CONTROLLER, ext=fields)
    [row], err, ended = run(capsys, "cluster", "ping", "--controller", CONTROLLER, *words.split())
    assert (row["role"], row["address"], row.get("not_ready")) == ("controller", CONTROLLER, reason)
    assert (err, ended) == ("", code)


def test_ping_of_a_silent_controller_fails_and_shows_the_broker(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.down = {CONTROLLER}
    [row], err, code = run(capsys, "cluster", "ping", "-b", A, "--controller", CONTROLLER)
    assert (row["role"], row["address"]) == ("broker", A)
    assert (err, code) == (f"rocketpy: {CONTROLLER}: cannot connect to {CONTROLLER}\n", 1)


def test_ping_of_all_and_of_a_controller_is_wrong_usage(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["cluster", "ping", "--all", "--controller", CONTROLLER])
    assert ended.value.code == 2
    assert "give --broker and --controller, or --all" in capsys.readouterr().err
    assert remoting.asked == []
