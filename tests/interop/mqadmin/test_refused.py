"""Commands for things that the broker does not have end in a response, never in silence."""

import pytest

from tests.interop.mqadmin.world import World


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("listUser", "-b", "{broker}"), 1),
        (("listAcl", "-b", "{broker}"), 1),
        (("createUser", "-b", "{broker}", "-u", "x", "-p", "y"), 1),
        (("getBrokerEpoch", "-b", "{name}"), 1),
        (("getSyncStateSet", "-a", "{broker}", "-b", "{name}"), 3),
        (("switchTimerEngine", "-b", "{broker}", "-e", "F"), 3),
        (("updateColdDataFlowCtrGroupConfig", "-b", "{broker}", "-g", "g", "-v", "1"), 1),
        (("removeColdDataFlowCtrGroupConfig", "-b", "{broker}", "-g", "g"), 1),
        (("setCommitLogReadAheadMode", "-b", "{broker}", "-m", "0"), 1),
        (("updateOrderConf", "-t", "AdmT", "-m", "get"), 22),
    ],
)
def test_refusals(world: World, command: tuple[str, ...], code: int) -> None:
    cluster = world.cluster
    words = [word.format(broker=cluster.broker, name=cluster.broker_name) for word in command]
    assert f"CODE: {code} " in world.run(*words)
