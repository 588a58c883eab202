"""Text values of a store's configuration."""

import pytest

from rocketpy.runtime.config.config import Sources, load
from rocketpy.store.config import MessageStoreConfig, parse_delay_levels, parse_delete_when


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 2m 3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)
    levels = parse_delay_levels(MessageStoreConfig().message_delay_level)
    minutes = [*range(1, 11), 20, 30, 60, 120]
    assert levels == (1_000, 5_000, 10_000, 30_000, *(each * 60_000 for each in minutes))


def test_pool_of_buffers_that_is_not_needed_is_a_warning() -> None:
    sources = Sources(text="transientStorePoolEnable = true", name="broker.conf")
    [warning] = load(sources, [MessageStoreConfig]).warnings
    assert str(warning) == (
        "broker.conf:1: transientStorePoolEnable: has no effect: there is no off-heap buffer "
        "between a message and its file"
    )


@pytest.mark.parametrize("text", ["1x", "s", "-1s", "1.5s", "1s 2"])
def test_delay_levels_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="messageDelayLevel"):
        MessageStoreConfig(message_delay_level=text)


def test_hours_of_deleting() -> None:
    assert parse_delete_when("04") == {4}
    assert parse_delete_when("4; 16") == {4, 16}
    with pytest.raises(ValueError, match="deleteWhen"):
        parse_delete_when("24")


def test_disk_ratio_that_is_limited_is_a_warning() -> None:
    text = "diskSpaceWarningLevelRatio=95\ndiskMaxUsedSpaceRatio=5\n"
    warnings = load(Sources(text=text, name="b.conf"), [MessageStoreConfig]).warnings
    assert [str(each) for each in warnings] == [
        "b.conf:2: diskMaxUsedSpaceRatio: 5 is outside 10 to 95: 10 is used, as by Apache",
        "b.conf:1: diskSpaceWarningLevelRatio: 95 is outside 35 to 90: 90 is used, as by Apache",
    ]
