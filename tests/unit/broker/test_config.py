"""Settings of a broker: Apache's names and defaults, and refused values."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import Sources, load


def loaded(**values: str) -> BrokerConfig:
    overrides = tuple(f"{key}={value}" for key, value in values.items())
    return load(Sources(overrides=overrides), [BrokerConfig]).get(BrokerConfig)


def test_config_defaults_equal_apache() -> None:
    config = BrokerConfig()
    assert (config.broker_cluster_name, config.broker_id) == ("DefaultCluster", 0)
    assert (config.listen_port, config.ha_listen_port) == (10_911, 0)
    assert (config.broker_permission, config.default_topic_queue_nums) == (6, 8)
    assert (config.transaction_time_out, config.transaction_check_max) == (6_000, 15)
    assert (config.revive_queue_num, config.pop_polling_size) == (8, 1_024)
    waits_ms = {
        "send": config.wait_time_mills_in_send_queue,
        "pull": config.wait_time_mills_in_pull_queue,
        "lite pull": config.wait_time_mills_in_lite_pull_queue,
        "heartbeat": config.wait_time_mills_in_heartbeat_queue,
        "admin": config.wait_time_mills_in_admin_broker_queue,
    }
    assert waits_ms == {
        "send": 200, "pull": 5_000, "lite pull": 5_000, "heartbeat": 31_000, "admin": 5_000,
    }  # fmt: skip
    assert config.broker_name, "the machine's name"


def test_config_broker_name_without_host_name_has_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "")
    assert BrokerConfig().broker_name == "DEFAULT_BROKER"


def test_config_keys_have_apache_spelling() -> None:
    config = loaded(brokerName="b", brokerIP1="10.0.0.1", brokerIP2="10.0.0.2", popPollingSize="7")
    assert (config.broker_ip1, config.broker_ip2) == ("10.0.0.1", "10.0.0.2")
    assert (config.broker_name, config.pop_polling_size) == ("b", 7)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"listen_port": -1}, "listenPort"),
        ({"listen_port": 65_536}, "listenPort"),
        ({"broker_permission": 8}, "brokerPermission"),
        ({"broker_permission": -1}, "brokerPermission"),
        ({"broker_id": -1}, "brokerId"),
        ({"default_topic_queue_nums": 0}, "defaultTopicQueueNums"),
        ({"broker_name": ""}, "brokerName"),
        ({"broker_name": "broker a"}, "brokerName"),
        ({"broker_name": "broker\0"}, "brokerName"),
        ({"broker_cluster_name": "c" * 301}, "brokerClusterName"),
        ({"namesrv_addr": "http://127.0.0.1:9876"}, "namesrvAddr"),
        ({"namesrv_addr": "127.0.0.1:0"}, "namesrvAddr"),
        ({"broker_cluster_name": ""}, "brokerClusterName"),
        ({"default_message_request_mode": "PUSH"}, "defaultMessageRequestMode"),
        ({"send_message_thread_pool_nums": -1}, "send_message_thread_pool_nums"),
        ({"reply_thread_pool_queue_capacity": -1}, "reply_thread_pool_queue_capacity"),
    ],
    ids=str,
)
def test_config_invalid_value_is_refused_and_named(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match="must be ") as caught:
        BrokerConfig(**values)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "field"),
    [("brokerName", "broker_name"), ("brokerClusterName", "broker_cluster_name")],
)
@pytest.mark.parametrize("name", ['"broker-a"', "'broker-a'", 'broker-a"'])
def test_config_name_with_quotes_is_refused(key: str, field: str, name: str) -> None:
    with pytest.raises(ConfigError, match="has quotes, which would be a part of") as raised:
        loaded(**{key: name})
    assert raised.value.key == key
    assert getattr(loaded(**{key: "o'neil"}), field) == "o'neil"


@pytest.mark.parametrize(
    "values",
    [
        {"listen_port": 0},
        {"listen_port": 65_535},
        {"broker_permission": 0},
        {"broker_permission": 7},
        {"default_topic_queue_nums": 1},
        {"default_message_request_mode": "POP"},
        {"query_message_thread_pool_nums": 0},
        {"ack_thread_pool_queue_capacity": 0},
    ],
    ids=str,
)
def test_config_range_limits_are_accepted(values: dict[str, Any]) -> None:
    [(name, value)] = values.items()
    assert getattr(BrokerConfig(**values), name) == value


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("reviveQueueNum", 1, None),
        ("popFromRetryProbability", 0, 100),
        ("maxErrorRateOfBloomFilter", 1, 99),
        ("transactionCheckMax", 1, None),
        ("popPollingSize", 0, None),
    ],
)
def test_config_number_out_of_range_is_refused(key: str, low: int, high: int | None) -> None:
    loaded(**{key: str(low)})
    with pytest.raises(ConfigError, match=str(low)):
        loaded(**{key: str(low - 1)})
    if high is not None:
        loaded(**{key: str(high)})
        with pytest.raises(ConfigError, match=str(high)):
            loaded(**{key: str(high + 1)})


def test_config_name_server_addresses_are_split() -> None:
    assert BrokerConfig().name_server_addresses == ()
    config = BrokerConfig(namesrv_addr=" b:9876; a:1 ;;b:9876;")
    assert config.name_server_addresses == ("b:9876", "a:1")


@pytest.mark.parametrize(
    ("configured", "used"),
    [(0, 10_000), (9_999, 10_000), (10_001, 10_001), (60_000, 60_000), (60_001, 60_000)],
)
def test_config_register_period_is_limited_to_10_to_60_seconds(configured: int, used: int) -> None:
    assert BrokerConfig(register_name_server_period=configured).register_period_ms == used


def test_config_paths_and_addresses_are_not_live() -> None:
    live = {one.name for one in fields(BrokerConfig) if one.metadata.get("live")}
    assert "trace_on" in live
    places = ("addr", "ip1", "ip2", "address", "_port", "_name", "_id")
    assert not [name for name in live if name.endswith(places)]


def test_config_is_immutable() -> None:
    config = BrokerConfig()
    with pytest.raises(AttributeError):
        config.trace_on = False  # type: ignore[misc]


@pytest.mark.parametrize("text", ["h", "a:1,b:2", "a:x", ":1", "a:0", "a:65536", "a b:1"])
@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("namesrvAddr", lambda text: BrokerConfig(namesrv_addr=f"{text};b:1")),
        ("controllerAddr", lambda text: FailoverConfig(controller_addr=f"b:1;{text}")),
        ("haMasterAddress", lambda text: ReplicationConfig(ha_master_address=text)),
    ],
)
def test_config_text_that_is_no_address_is_refused(
    key: str, make: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ConfigError, match=f"{key}: must be host:port, .*: '{text}'"):
        make(text)
    with pytest.raises(ConfigError, match=f"{key}: .*has a variable, which is not replaced here"):
        make("${HOST}:9876")
    make("[::1]:9876")


@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
@pytest.mark.parametrize("name", ["${HOSTNAME}", "$HOSTNAME", "broker-${N}", "b-$(hostname)"])
def test_config_name_with_a_variable_is_refused(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .*has a variable, which is not replaced here"):
        loaded(**{key: name})


@pytest.mark.parametrize("key", ["brokerIP1", "brokerIP2"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "0", "0:0:0:0:0:0:0:0"])
def test_config_address_that_other_machines_cannot_use_is_refused(key: str, host: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: .*write the address by which they reach"):
        loaded(**{key: host})
