from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from rocketpy.runtime.log_level import LiveLogLevel
from tests.unit.runtime.test_log_limit import FakeClock


class Changed:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.path = path / "live.properties"
        self.settings = LiveConfig(NamesrvConfig(), live=LiveSettings(self.path))
        self.levels: list[str] = []
        self.service = LiveLogLevel(self.settings, self.levels.append, self.clock)

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
