from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.runtime.log_level import LiveLogLevel
from tests.unit.runtime.test_log_limit import FakeClock


class Changed:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.path = path / "live.properties"
        self.settings = LiveConfig(NamesrvConfig(), live=LiveSettings(self.path))
        self.levels: list[str] = []
        self.service = LiveLogLevel([self.settings], self.levels.append, self.clock)

    def step(self, at_ms: int) -> int:
        self.clock.now_ms = at_ms
        return self.service.step(at_ms)


def test_log_level_change_goes_back_by_itself(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "debug", "logLevelExpiresSeconds": "60"})
    assert changed.levels == ["debug"]
    assert changed.step(60_999) == 61_000
    changed.step(61_000)
    assert changed.levels == ["debug", "info"]
    assert changed.settings.current.operation.log_level == "info"


def test_log_level_change_is_not_stored_for_the_next_start(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "debug"})
    assert not changed.path.exists()
    changed.settings.update({"logLevel": "warning", "maxTopics": "5"})
    assert "maxTopics=5" in changed.path.read_text()
    assert "logLevel" not in changed.path.read_text()


def test_log_level_without_expiry_stays(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "error", "logLevelExpiresSeconds": "0"})
    changed.step(10**12)
    assert changed.levels == ["error"]


def test_log_level_set_back_by_hand_does_not_expire(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "debug"})
    changed.settings.update({"logLevel": "info"})
    changed.step(10**12)
    assert changed.levels == ["debug", "info"]


def test_log_level_other_changes_do_not_extend_it(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "debug"})
    changed.clock.now_ms = 500_000
    changed.settings.update({"maxTopics": "5"})
    changed.step(601_000)
    assert changed.levels == ["debug", "info"]


def test_log_level_set_again_begins_its_time_again(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "debug"})
    changed.clock.now_ms = 500_000
    changed.settings.update({"logLevel": "debug"})
    changed.step(601_000)
    assert changed.levels == ["debug"]
    changed.step(1_100_000)
    assert changed.levels == ["debug", "info"]


def test_log_level_longer_expiry_extends_it(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    changed.settings.update({"logLevel": "debug"})
    changed.clock.now_ms = 500_000
    changed.settings.update({"logLevelExpiresSeconds": "601"})
    changed.step(601_000)
    assert changed.levels == ["debug"]
    changed.step(1_101_000)
    assert changed.levels == ["debug", "info"]


def test_log_level_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    changed = Changed(tmp_path)
    with pytest.raises(ConfigError, match="logLevel"):
        changed.settings.update({"logLevel": "verbose"})
    assert changed.levels == []


class Both:
    """Name server and broker of one process."""

    def __init__(self, broker: str = "info", namesrv: str = "info") -> None:
        self.clock = FakeClock()
        self.broker = LiveConfig(BrokerConfig(operation=OperationConfig(log_level=broker)))
        self.namesrv = LiveConfig(NamesrvConfig(operation=OperationConfig(log_level=namesrv)))
        self.levels: list[str] = []
        self.service = LiveLogLevel([self.broker, self.namesrv], self.levels.append, self.clock)

    def reported(self) -> list[tuple[str, int]]:
        found = [self.broker.current.operation, self.namesrv.current.operation]
        return [(each.log_level, each.log_level_expires_seconds) for each in found]


def test_log_level_change_at_either_server_is_reported_by_both() -> None:
    both = Both()
    both.namesrv.update({"logLevel": "debug", "logLevelExpiresSeconds": "60"})
    assert both.reported() == [("debug", 60), ("debug", 60)]
    both.broker.update({"logLevel": "error"})
    assert both.reported() == [("error", 60), ("error", 60)]
    assert both.levels == ["debug", "error"]


def test_log_level_that_expires_goes_back_at_both_servers() -> None:
    both = Both()
    both.namesrv.update({"logLevel": "debug", "logLevelExpiresSeconds": "60"})
    both.service.step(61_000)
    assert both.reported() == [("info", 60), ("info", 60)]
    assert both.levels == ["debug", "info"]


def test_log_level_set_again_at_the_other_server_begins_its_time_again() -> None:
    both = Both()
    both.broker.update({"logLevel": "debug"})
    both.clock.now_ms = 500_000
    both.namesrv.update({"logLevel": "debug"})
    both.service.step(601_000)
    assert both.levels == ["debug"]
    both.service.step(1_100_000)
    assert both.levels == ["debug", "info"]


def test_log_levels_that_differ_at_start_warn_and_the_first_counts() -> None:
    with capture_logs() as logs:
        both = Both(broker="warning", namesrv="debug")
    assert both.reported() == [("warning", 600), ("warning", 600)]
    assert [(each["log_level"], each["ignored"]) for each in logs] == [("warning", "debug")]
    assert both.levels == []
