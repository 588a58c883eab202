"""Settings of roles that contradict each other are errors."""

from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.replication.config import (
    BrokerRole,
    ReplicationConfig,
    check_replication,
)
from rocketpy.errors import ConfigError
from rocketpy.store.config import MessageStoreConfig

SECRET = {"replication_secret_file": "/etc/secret"}


def checked(
    role: str, broker: dict[str, Any] | None = None, replication: dict[str, Any] | None = None
) -> BrokerRole:
    return check_replication(
        BrokerConfig(broker_name="b", **(broker or {})),
        MessageStoreConfig(broker_role=role),
        ReplicationConfig(**(replication or {})),
    )


def test_role_rules_valid_roles_are_returned() -> None:
    assert checked("ASYNC_MASTER") is BrokerRole.ASYNC_MASTER
    assert checked("SYNC_MASTER") is BrokerRole.SYNC_MASTER
    assert checked("SYNC_MASTER", None, {**SECRET, "in_sync_replicas": 2}).value == "SYNC_MASTER"
    assert (
        checked("SYNC_MASTER", None, {**SECRET, "min_in_sync_replicas": 2})
        is BrokerRole.SYNC_MASTER
    )
    assert checked("ASYNC_MASTER", None, {"min_in_sync_replicas": 2}) is BrokerRole.ASYNC_MASTER
    assert checked("SLAVE", {"broker_id": 1}, SECRET).is_slave
    assert checked("SLAVE", {"broker_id": 7}, {"ha_allowed_peers": "10.0.0.1"}).is_slave


@pytest.mark.parametrize(
    ("role", "broker", "replication", "key"),
    [
        ("SLAVE", {"broker_id": 0}, SECRET, "brokerId"),
        ("ASYNC_MASTER", {"broker_id": 1}, SECRET, "brokerId"),
        ("SYNC_MASTER", {"broker_id": 1}, SECRET, "brokerId"),
        ("SLAVE", {"broker_id": 1}, {}, "brokerRole"),
        ("SYNC_MASTER", {}, {"in_sync_replicas": 2}, "inSyncReplicas"),
        ("SYNC_MASTER", {"total_replicas": 2}, {**SECRET, "in_sync_replicas": 3}, "inSyncReplicas"),
        ("SYNC_MASTER", {}, {"min_in_sync_replicas": 2}, "minInSyncReplicas"),
        (
            "SYNC_MASTER",
            {"total_replicas": 2},
            {**SECRET, "min_in_sync_replicas": 3},
            "minInSyncReplicas",
        ),
    ],
)
def test_role_rules_contradiction_is_refused_by_key(
    role: str, broker: dict[str, Any], replication: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(role, broker, replication)
    assert caught.value.key == key


def test_role_rules_negative_id_is_refused() -> None:
    with pytest.raises(ConfigError, match="0, or more for a slave"):
        BrokerConfig(broker_name="b", broker_id=-1)
