"""Services of transactions that a slave or a returning master runs only at times."""

from typing import Any

from rocketpy.broker.feature import Feature
from rocketpy.broker.transaction.check_back import CheckBack
from rocketpy.broker.transaction.half_escape import HalfEscape
from rocketpy.runtime.service import Service
from tests.unit.broker.test_parts import build


def gated(**config: Any) -> list[Service]:
    """Return the services that a gate limits, at a broker with these settings."""
    parts = build(namesrv_addr="127.0.0.1:9876", **config)
    found: Feature = next(each for each in parts.features if each.name == "transactions")
    return list(found.acting)


def test_master_checks_transactions_once_it_is_online() -> None:
    (service,) = gated(enable_slave_acting_master=True)
    assert isinstance(service, CheckBack)


def test_acting_slave_sends_transactions_to_another_group() -> None:
    slave: dict[str, Any] = {
        "enable_slave_acting_master": True,
        "broker_id": 1,
        "broker_role": "SLAVE",
    }
    (service,) = gated(enable_remote_escape=True, **slave)
    assert isinstance(service, HalfEscape)
    (service,) = gated(**slave)
    assert isinstance(service, CheckBack), "without a gate it does not run at a slave"
