"""Whole files go, oldest first, never the last; dependents follow the commit log's start."""

from dataclasses import dataclass, field

import pytest

from rocketpy.store.config import parse_delete_when
from rocketpy.store.retention import (
    CleanCommitLogService,
    CleanConsumeQueueService,
    DiskRatios,
    OldestFile,
    RetentionPolicy,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_000 * DAY_MS


@dataclass
class FakeLog:
    modified_ms: list[int]
    stuck: bool = False
    deleted: int = 0

    def file_count(self) -> int:
        return len(self.modified_ms)

    def oldest_modified_ms(self) -> int:
        return self.modified_ms[0]

    def oldest_file(self) -> OldestFile:
        first_ms = self.modified_ms[0] - HOUR_MS
        return OldestFile(f"/log/{self.deleted}", 100 * self.deleted, first_ms, self.modified_ms[0])

    def delete_oldest(self) -> bool:
        self.deleted += not self.stuck
        if not self.stuck:
            self.modified_ms.pop(0)
        return not self.stuck


@dataclass
class World:
    """A log, a disk and the hour, and the service that looks at them."""

    log: FakeLog
    ratios: DiskRatios = field(default_factory=lambda: DiskRatios(0.5, 0.5))
    hour: int = 12
    wall_ms: int = NOW_MS
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)
    full: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.service = CleanCommitLogService(
            self.log,
            self.policy,
            clock=self,
            disk_ratios=lambda: self.ratios,
            local_hour=lambda _: self.hour,
            on_disk_full=self.full.append,
        )
        self.now_ms = self.service.step(0)

    def time_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def run(self, steps: int = 1) -> list[int]:
        waits = []
        for _ in range(steps):
            due_ms = self.service.step(self.now_ms)
            waits.append(due_ms - self.now_ms)
            self.now_ms = due_ms
        return waits


def old_log(count: int) -> FakeLog:
    return FakeLog([NOW_MS - 4 * DAY_MS + number for number in range(count)])


def test_first_round_waits_a_minute() -> None:
    world = World(old_log(5), hour=4)
    assert world.now_ms == 60_000
    assert world.service.step(59_999) == 60_000
    assert world.log.file_count() == 5


def test_expired_files_go_at_the_hour_and_the_last_stays() -> None:
    world = World(old_log(5), hour=3)
    assert world.run(2) == [10_000, 10_000]
    assert world.log.file_count() == 5
    world.hour = 4
    assert world.run(5) == [100, 100, 100, 100, 10_000]
    assert world.log.file_count() == 1
    assert world.service.deleted_count == 4
    world.run(100)
    assert world.log.file_count() == 1


def test_round_deletes_at_most_a_batch() -> None:
    world = World(old_log(30), hour=4)
    assert world.run(10) == [100] * 9 + [10_000]
    assert world.log.file_count() == 20


def test_file_expires_72_hours_after_its_last_change_and_blocks_those_after_it() -> None:
    changed = [NOW_MS - 72 * HOUR_MS + 1, NOW_MS - 10 * DAY_MS, NOW_MS]
    world = World(FakeLog(changed), hour=4)
    world.run(3)
    assert world.log.file_count() == 3
    world.wall_ms += 1
    world.run(3)
    assert world.log.file_count() == 1


@pytest.mark.parametrize(
    ("used", "expired", "left", "full"),
    [
        (0.75, True, 5, False),
        (0.76, True, 1, False),
        (0.80, False, 5, False),
        (0.86, False, 1, False),
        (0.91, False, 1, True),
        (-1.0, True, 1, False),
    ],
)
@pytest.mark.parametrize("partition", ["commit_log", "consume_queue"])
def test_disk_ratios(used: float, expired: bool, left: int, full: bool, partition: str) -> None:
    log = old_log(5) if expired else FakeLog([NOW_MS] * 5)
    ratios = DiskRatios(used, 0.1) if partition == "commit_log" else DiskRatios(0.1, used)
    world = World(log, ratios=ratios)
    world.run(5)
    assert log.file_count() == left
    assert bool(world.full[0]) is full


def test_recovered_disk_space_is_reported() -> None:
    world = World(old_log(1), ratios=DiskRatios(0.95, 0.1))
    world.run()
    world.ratios = DiskRatios(0.2, 0.1)
    world.run()
    text = "the disk is nearly full: 95.0% used, messages are rejected above 90%"
    assert world.full == [text, None]


def test_fresh_files_stay_when_forcing_is_off() -> None:
    policy = RetentionPolicy(clean_forcibly=False)
    world = World(FakeLog([NOW_MS] * 5), ratios=DiskRatios(0.99, 0.1), policy=policy)
    world.run(5)
    assert world.log.file_count() == 5
    assert world.full[0]


def test_file_that_cannot_go_ends_the_round() -> None:
    world = World(old_log(5), hour=4)
    world.log.stuck = True
    assert world.run(2) == [10_000, 10_000]
    world.log.stuck = False
    world.run(5)
    assert world.log.file_count() == 1


def test_delete_now_lasts_twenty_rounds() -> None:
    world = World(FakeLog([NOW_MS] * 3))
    world.run()
    world.service.delete_now()
    world.run(19)
    world.log.modified_ms[0] = 0
    assert world.run() == [100]
    assert world.log.file_count() == 2
    world.log.modified_ms[:] = [0, 0, 0]
    world.run(30)
    assert world.log.file_count() == 1


def test_ratios_are_clamped() -> None:
    low = RetentionPolicy(max_used_ratio=0, clean_forcibly_ratio=0, warning_ratio=0)
    high = RetentionPolicy(max_used_ratio=1, clean_forcibly_ratio=1, warning_ratio=1)
    assert (low.max_used_ratio, low.clean_forcibly_ratio, low.warning_ratio) == (0.1, 0.3, 0.35)
    assert (high.max_used_ratio, high.clean_forcibly_ratio, high.warning_ratio) == (0.95, 0.85, 0.9)


def test_delete_when() -> None:
    assert parse_delete_when("04") == {4}
    assert parse_delete_when("4;16; ") == {4, 16}
    for wrong in ("24", "x", "-1"):
        with pytest.raises(ValueError, match=r"24|x|-1"):
            parse_delete_when(wrong)


def test_dependents_follow_in_order_and_only_when_the_start_moves() -> None:
    calls: list[tuple[str, int]] = []

    class Dependent:
        def __init__(self, name: str) -> None:
            self.name = name

        def delete_expired(self, min_phy_offset: int) -> int:
            calls.append((self.name, min_phy_offset))
            return 2

    start = 0
    service = CleanConsumeQueueService(lambda: start, [Dependent("queues"), Dependent("index")])
    assert service.step(5) == 10_005
    assert calls == []
    start = 4096
    service.step(10_005)
    service.step(20_005)
    assert calls == [("queues", 4096), ("index", 4096)]
    assert service.deleted_count == 4


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records]


def test_expired_files_are_logged_once_a_round_with_span_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    world = World(old_log(4), hour=4)
    world.run(4)
    assert messages(caplog) == [
        (
            "INFO",
            (
                "log files deleted: count=3 before_expiry=0 first=/log/0 last=/log/2 "
                "messages_from=1972-09-22T23:00:00+00:00 messages_to=1972-09-23T00:00:00+00:00 "
                "retention_hours=72 reason=hour of deleteWhen unread_by=none"
            ),
        )
    ]


def test_unread_or_unexpired_files_are_a_warning_that_names_the_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(FakeLog([NOW_MS] * 3), ratios=DiskRatios(0.876, 0.1, "/data/log", "/data"))
    world.service.unread_by = lambda end: [f"g{number}" for number in range(12)] if end else []
    world.run(3)
    [(level, text)] = [one for one in messages(caplog) if one[1].startswith("log files deleted")]
    assert level == "WARNING"
    assert "count=2 before_expiry=2 " in text
    assert "reason=disk /data/log is 87.6% full" in text
    assert "unread_by=g0,g1,g10,g11,g2,g3,g4,g5,g6,g7 and 2 more" in text


def test_each_disk_level_is_logged_when_it_is_crossed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World(FakeLog([NOW_MS]), ratios=DiskRatios(0.1, 0.5, "/log", "/store"))
    for used in (0.76, 0.77, 0.91, 0.92, 0.92, 0.92, 0.92, 0.92, 0.92, 0.1):
        world.ratios = DiskRatios(0.1, used, "/log", "/store")
        world.run()
    lines = [text for _, text in messages(caplog) if text.startswith("disk use")]
    assert lines[0] == (
        "disk use rose above a limit: path=/store used_percent=76.0 limit_percent=75 "
        "key=diskMaxUsedSpaceRatio "
        "consequence=expired log files are deleted at any hour"
    )
    assert [line.split("key=")[1].split()[0] for line in lines] == [
        "diskMaxUsedSpaceRatio",
        "diskSpaceCleanForciblyRatio",
        "diskSpaceWarningLevelRatio",
    ] * 2
    assert all("fell below a limit" in line for line in lines[3:])


def test_disk_use_around_a_level_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(FakeLog([NOW_MS]))
    for number in range(60):
        world.ratios = DiskRatios(0.76 if number % 2 else 0.74, 0.1, "/log", "/store")
        world.run()
    rises = [text for _, text in messages(caplog) if text.startswith("disk use rose")]
    assert 5 <= len(rises) <= 10


def test_disk_without_files_to_delete_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(FakeLog([NOW_MS]), ratios=DiskRatios(0.99, 0.1, "/log", "/store"))
    world.run(12)
    stuck = [text for _, text in messages(caplog) if text.startswith("no log file can")]
    assert stuck == ["no log file can be deleted: path=/log used_percent=99.0 log_files=1"] * 2
