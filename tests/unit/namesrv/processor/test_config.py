from typing import Any

import pytest

from rocketpy.remoting.config_requests import ConfigProcessor


@pytest.fixture
def config(world: Any) -> ConfigProcessor:
    return ConfigProcessor(world.settings)


def test_update_config_changes_a_live_key(world: Any, config: ConfigProcessor) -> None:
    seen: list[Any] = []
    world.settings.add_listener(seen.append)
    assert world.ask(config.update, b"orderMessageEnable=true\nmaxTopics=5\n").code == 0
    assert world.settings.current.order_message_enable is True
    assert [each.max_topics for each in seen] == [5]
    lines = world.ask(config.get).body.decode().splitlines()
    assert "orderMessageEnable=true" in lines
    assert "listenPort=9876" in lines
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    "key",
    [
        "kvConfigPath",
        "dataDir",
        "configStorePath",
        "rocketmqHome",
        "configBlackList",
        "listenPort",
        "bindAddress",
        "tls.server.keyPath",
        "noSuchKey",
    ],
)
def test_update_config_of_other_keys_is_rejected(
    world: Any, config: ConfigProcessor, key: str, events: list[Any]
) -> None:
    before = world.settings.as_properties()
    response = world.ask(config.update, f"orderMessageEnable=true\n{key}=/tmp/x\n".encode())
    assert response.code == 16
    assert key in response.remark
    assert world.settings.as_properties() == before
    assert [each["event"] for each in events] == ["update rejected"]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"orderMessageEnable=perhaps", "orderMessageEnable: 'perhaps' is not allowed"),
        (b"waitSecondsForService=-1", "from 0 to 3600 s"),
        (b"maxTopics=0", "maxTopics"),
        (b"\xff", "utf-8"),
    ],
)
def test_update_config_invalid_value_names_its_key(
    world: Any, config: ConfigProcessor, body: bytes, complaint: str
) -> None:
    response = world.ask(config.update, body)
    assert response.code == 29
    assert complaint in response.remark
