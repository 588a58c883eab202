from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    limit: int = option(3, live=True, minimum=1)
    path: str = option("here")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    size: int = option(5, live=True)


def test_change_reaches_the_listeners_and_each_part() -> None:
    config = LiveConfig(Own(), Part())
    heard: list[Own] = []
    config.add_listener(heard.append)
    config.update({"limit": "4", "size": "6"})
    assert (config.current, config.get(Part)) == (Own(limit=4), Part(size=6))
    assert heard == [Own(limit=4)]
    assert config.live_keys == {"limit", "size"}
    assert config.as_properties() == "limit=4\npath=here\nsize=6\n"


@pytest.mark.parametrize(
    "changes", [{"limit": "9", "path": "there"}, {"limit": "0"}, {"limit": "4", "nothing": "1"}]
)
def test_update_with_an_invalid_change_changes_nothing(changes: dict[str, str]) -> None:
    config = LiveConfig(Own(), Part())
    heard: list[Own] = []
    config.add_listener(heard.append)
    with pytest.raises(ConfigError):
        config.update(changes)
    assert config.current == Own()
    assert heard == []


def test_update_that_cannot_be_stored_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = LiveConfig(Own(), live=LiveSettings(tmp_path / "file" / "live.properties"))
    with pytest.raises(OSError, match="file"):
        config.update({"limit": "4"})
    assert config.current == Own()


def test_changes_are_kept_for_the_next_start(tmp_path: Path) -> None:
    live = LiveSettings(tmp_path / "live.properties")
    LiveConfig(Own(), live=live).update({"limit": "4"})
    assert live.load() == {"limit": "4"}
