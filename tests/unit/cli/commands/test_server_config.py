"""`rocketpy broker-config set`: the error names the keys that the broker refuses."""

import pytest
from click.testing import CliRunner

from rocketpy.cli.main import command
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from tests.unit.admin.fakes import BROKERS, FakeRemoting

LIVE, FIXED, OTHER = "autoCreateTopicEnable=false", "listenPort=1", "brokerName=y"


@pytest.mark.parametrize(
    ("remark", "pairs", "named"),
    [
        ("Can not update config: listenPort", [FIXED, LIVE], "listenPort"),
        (
            "Can not update config: brokerName, listenPort",
            [FIXED, LIVE, OTHER],
            "listenPort, brokerName",
        ),
        (
            "Can not update config in black list.",  # Apache's brokers
            [FIXED, LIVE],
            "one of listenPort, autoCreateTopicEnable",
        ),
        ("Can not update config in black list.", [FIXED], "listenPort"),
    ],
)
def test_refused_change_names_the_keys_that_cannot_change(
    remark: str, pairs: list[str], named: str, remoting: FakeRemoting
) -> None:
    remoting.down = set()
    address = BROKERS["broker-a"]
    known = b"listenPort=10911\nautoCreateTopicEnable=true\nbrokerName=x\n"
    remoting.response(RequestCode.GET_BROKER_CONFIG, at=address, body=known)
    remoting.response(
        RequestCode.UPDATE_BROKER_CONFIG, ResponseCode.NO_PERMISSION, at=address, remark=remark
    )
    done = CliRunner().invoke(command, ["broker-config", "set", "-b", "broker-a", *pairs])
    assert done.exit_code == 1
    assert f"broker-a cannot change {named} while it runs: set it in" in done.output
