from types import SimpleNamespace

import pytest

from rocketpy.broker.cluster.readiness import BrokerReadiness
from rocketpy.broker.config import BrokerConfig
from rocketpy.runtime.readiness import ServerState
from tests.unit.broker.fakes import FakeClock


class Kit:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.configs = SimpleNamespace(broker=BrokerConfig(), store=SimpleNamespace(is_slave=False))
        self.link = SimpleNamespace(
            addresses=("n1:1", "n2:2"), is_registered=True, name_conflict=None
        )
        self.offsets_failure: str | None = None
        self.store = SimpleNamespace(read_only_reason=None, log_refusal=None, shortage=None)
        self.readiness = BrokerReadiness(
            self.configs,  # type: ignore[arg-type]
            self.link,  # type: ignore[arg-type]
            self.store,
            self.clock,
        )
        self.readiness.offsets_failure = lambda: self.offsets_failure
        self.readiness.state = ServerState.SERVING

    def codes(self) -> list[str]:
        return [each.code for each in self.readiness.reasons()]


def test_broker_that_serves_has_no_reasons() -> None:
    kit = Kit()
    assert kit.codes() == []
    kit.link.addresses, kit.link.is_registered = (), False
    assert kit.codes() == []  # runs without name servers


@pytest.mark.parametrize("state", [ServerState.STARTING, ServerState.STOPPING])
def test_broker_that_starts_or_stops_names_that_alone(state: ServerState) -> None:
    kit = Kit()
    kit.readiness.state = state
    kit.store.read_only_reason = "the store is closed"
    assert kit.codes() == [state.value]


def test_broker_that_is_a_slave_is_ready_while_it_takes_the_log() -> None:
    kit = Kit()
    kit.configs.store.is_slave = True
    kit.store.read_only_reason = "the broker is a slave: send to its master"
    assert kit.codes() == []
    kit.store.log_refusal = "disk full"
    assert kit.codes() == ["puts_refused"]


def test_broker_that_takes_no_messages_says_why() -> None:
    kit = Kit()
    kit.store.read_only_reason = "flush of the log failed: no space"
    assert kit.readiness.reasons()[0].message == "flush of the log failed: no space"
    kit.configs.broker = BrokerConfig(
        broker_permission=4, start_accept_send_request_time_stamp=kit.clock.time_ms() + 1
    )
    kit.link.is_registered = False
    assert kit.codes() == [
        "puts_refused",
        "no_write_permission",
        "sends_not_accepted_yet",
        "not_registered",
    ]
    assert "n1:1;n2:2" in kit.readiness.reasons()[-1].message


def test_broker_without_a_resource_for_puts_is_not_ready() -> None:
    kit = Kit()
    kit.store.shortage = "no inode is left on the disk"
    assert kit.readiness.reasons() == [("puts_refused", "no inode is left on the disk")]
    kit.store.shortage = None
    assert kit.codes() == []


def test_broker_with_a_name_conflict_is_not_ready() -> None:
    kit = Kit()
    kit.link.name_conflict = "this broker has no routes until that one leaves"
    assert kit.codes() == ["name_conflict"]


def test_broker_whose_offsets_are_not_written_is_not_ready() -> None:
    kit = Kit()
    kit.offsets_failure = "Permission denied"
    assert kit.codes() == ["offsets_not_written"]
    assert "Permission denied" in kit.readiness.reasons()[0].message
