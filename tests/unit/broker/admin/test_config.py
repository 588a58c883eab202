"""Reading and changing the configuration."""

from typing import Any

import pytest

from rocketpy.broker.admin.config import ConfigAdmin
from rocketpy.broker.config import BrokerConfig
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_config_live_keys_are_changed(kit: Kit) -> None:
    heard: list[BrokerConfig] = []
    kit.configs.add_listener(heard.append)
    admin = kit.admin(ConfigAdmin)
    before = kit.configs.data_version["counter"]
    response = ask(admin.update, body=b"brokerPermission=4\nautoCreateTopicEnable=false\n")
    assert response.code == 0
    assert kit.configs.broker.broker_permission == 4
    assert kit.configs.broker.auto_create_topic_enable is False
    assert len(heard) == 1
    assert kit.configs.data_version["counter"] == before + 1


@pytest.mark.parametrize(
    "key",
    [
        "storePathRootDir",
        "storePathCommitLog",
        "brokerConfigPath",
        "rocketmqHome",
        "configBlackList",
        "namesrvAddr",
        "brokerName",
        "listenPort",
        "noSuchKey",
        "../x",
    ],
)
def test_config_other_keys_are_refused_by_name(kit: Kit, key: str) -> None:
    body = f"brokerPermission=4\n{key}=/tmp/x\n".encode()
    response = ask(kit.admin(ConfigAdmin).update, body=body)
    assert response.code == 16
    assert response.remark is not None
    assert key in response.remark
    assert kit.configs.broker.broker_permission == 6


@pytest.mark.parametrize("value", ["much", "99", "", "-1"])
def test_config_invalid_values_are_refused(kit: Kit, value: str) -> None:
    body = f"brokerPermission={value}".encode()
    response = ask(kit.admin(ConfigAdmin).update, body=body)
    assert response.code == 29
    assert kit.configs.broker.broker_permission == 6


@pytest.mark.parametrize(("body", "code"), [(b"\xff=1", 1), (b"a=\\uZZZZ", 1), (b"#" * 70_000, 29)])
def test_config_invalid_body_is_refused(kit: Kit, body: bytes, code: int) -> None:
    assert ask(kit.admin(ConfigAdmin).update, body=body).code == code


def test_config_get_returns_all_settings(kit: Kit) -> None:
    response: Any = ask(kit.admin(ConfigAdmin).get)
    lines = response.body.decode().splitlines()
    assert "brokerName=b" in lines
    assert "flushDiskType=ASYNC_FLUSH" in lines
    assert lines == sorted(lines)
    assert set(loads(response.ext_fields["version"].encode())) == {
        "counter",
        "stateVersion",
        "timestamp",
    }
