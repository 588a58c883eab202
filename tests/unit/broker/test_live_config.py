"""Changes of live settings."""

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.errors import ConfigError
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.config.config import options_of
from rocketpy.store.config import MessageStoreConfig
from tests.unit.broker.fakes import FakeClock


def holder() -> LiveBrokerConfig:
    return LiveBrokerConfig(
        BrokerConfig(broker_name="b"), MessageStoreConfig(), RemotingServerConfig(), FakeClock()
    )


def test_live_config_changes_all_or_none() -> None:
    one = holder()
    heard: list[BrokerConfig] = []
    one.add_listener(heard.append)
    one.update({"brokerPermission": "4", "autoCreateTopicEnable": "false"})
    assert (one.broker.broker_permission, one.broker.auto_create_topic_enable) == (4, False)
    assert heard == [one.broker]
    assert one.data_version["counter"] == 1
    with pytest.raises(ConfigError):
        one.update({"brokerPermission": "6", "brokerName": "other"})
    with pytest.raises(ConfigError):
        one.update({"brokerPermission": "99"})
    assert one.broker.broker_permission == 4
    assert len(heard) == 1


@pytest.mark.parametrize("key", ["storePathRootDir", "brokerIP1", "namesrvAddr", "listenPort"])
def test_live_config_paths_and_addresses_cannot_change(key: str) -> None:
    with pytest.raises(ConfigError):
        holder().update({key: "/tmp/x"})


def test_live_config_keys_are_apache_keys() -> None:
    keys = {one.key for one in options_of(BrokerConfig)}
    assert {"brokerIP1", "brokerClusterName", "waitTimeMillsInSendQueue", "regionId"} <= keys


@pytest.mark.parametrize(
    "wrong", [{"broker_permission": 8}, {"listen_port": 70_000}, {"default_topic_queue_nums": 0},
              {"send_message_thread_pool_nums": -1}, {"broker_name": ""}]
)  # fmt: skip
def test_live_config_ranges_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig(**{"broker_name": "b", **wrong})  # type: ignore[arg-type]


def test_live_config_name_server_addresses_and_period() -> None:
    config = BrokerConfig(
        broker_name="b", namesrv_addr=" a:1; b:2;;a:1", register_name_server_period=1
    )
    assert config.name_server_addresses == ("a:1", "b:2")
    assert config.register_period_ms == 10_000
