"""Headers of controllers have the names of Apache's fields."""

import pytest

from rocketpy.errors import HeaderFieldError
from rocketpy.proto.headers.controller import (
    AlterSyncStateSetRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ControllerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)


def test_flags_have_the_names_of_java_fields() -> None:
    clean = CleanControllerBrokerDataRequestHeader.from_ext(
        {"brokerName": "b", "isCleanLivingBroker": "true", "brokerControllerIdsToClean": "1;2"}
    )
    assert clean.clean_living_broker
    assert clean.broker_controller_ids_to_clean == "1;2"
    assert GetMetaDataResponseHeader(is_leader=True).to_ext() == {"isLeader": "true"}


def test_extensions_are_absent_unless_they_are_set() -> None:
    assert NotifyBrokerRoleChangedRequestHeader(master_broker_id=1).to_ext() == {
        "masterBrokerId": "1"
    }
    asked = ElectMasterRequestHeader(broker_name="b", rocketpy_hand_over=True).to_ext()
    assert asked["rocketpyHandOver"] == "true"
    assert ElectMasterRequestHeader.from_ext({"brokerName": "b"}).rocketpy_hand_over is None
    assert ControllerHeartbeatResponseHeader(lease_ms=5).to_ext() == {"leaseMs": "5"}


def test_request_without_a_master_is_refused() -> None:
    with pytest.raises(HeaderFieldError, match="masterBrokerId"):
        AlterSyncStateSetRequestHeader.from_ext({"brokerName": "b"})
