"""Settings of a name server that change at run time, and their storage."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.notifier import MinBrokerNotifier
from rocketpy.namesrv.route_types import MinBrokerChange
from rocketpy.namesrv.server import NameServer
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from tests.unit.namesrv.conftest import VirtualClock


def test_every_live_key_is_known_here() -> None:
    """A new one needs a test that shows its effect: in test_<processor>.py or below."""
    assert LiveConfig(NamesrvConfig()).live_keys == {
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "supportActingMaster",
        "notifyMinBrokerIdChanged",
        "enableAllTopicList",
        "enableTopicList",
        "needWaitForService",
        "waitSecondsForService",
        "deleteTopicWithBrokerRegistration",
        "maxTopics",
        "maxBrokers",
        "maxKvEntries",
        "logLevel",  # with its expiry: tests/integration/cli/test_operation.py
        "logLevelExpiresSeconds",
        "slowRequestMillis",  # tests/unit/remoting/connection/test_slow_requests.py
    }


def test_limits_take_effect_and_are_kept_beside_the_values(tmp_path: Path) -> None:
    config = NamesrvConfig(kv_config_path=str(tmp_path / "kvConfig.json"))
    server = NameServer(config, clock=VirtualClock())
    server.settings.update({"maxTopics": "7", "maxBrokers": "3"})
    assert (server.routes.limits.max_topics, server.routes.limits.max_brokers) == (7, 3)
    assert LiveSettings(tmp_path / "live.properties").load() == {
        "maxTopics": "7",
        "maxBrokers": "3",
    }


def test_update_rejected_or_not_stored_changes_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    settings = LiveConfig(NamesrvConfig(), live=LiveSettings(blocked / "live.properties"))
    with pytest.raises(OSError, match="file"):
        settings.update({"maxTopics": "7"})
    with pytest.raises(ConfigError):
        settings.update({"maxTopics": "0"})
    assert settings.current.max_topics == NamesrvConfig().max_topics


async def test_notifier_sends_only_while_enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LiveConfig(NamesrvConfig())
    sent: list[MinBrokerChange] = []

    def no_client() -> RemotingClient:
        raise AssertionError("nothing is sent here")

    notifier = MinBrokerNotifier(settings, no_client)
    monkeypatch.setattr(notifier, "_start_sending", sent.append)
    notifier.start()
    change = MinBrokerChange("b", {0: "h0:1"})
    for wanted in ("false", "true"):
        settings.update({"notifyMinBrokerIdChanged": wanted})
        notifier.notify(change)
        await asyncio.sleep(0)
    assert sent == [change]
    await notifier.stop()


def test_register_full_list_deletes_missing_topics_only_if_enabled(world: Any) -> None:
    world.register("t1", "t2")
    world.register("t1", "t3", "t4")
    assert {"t1", "t2", "t3"} <= set(world.routes.topics())
    world.settings.update({"deleteTopicWithBrokerRegistration": "true"})
    world.register("t1", "t3", "t4", "t5")
    assert "t5" in world.routes.topics()
    assert "t2" not in world.routes.topics()
