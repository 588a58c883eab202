"""Retention: decides which files are deleted, when, and how fast.

Files are deleted oldest first, never the last one, at most a batch a round. Consume queues and
index files follow the commit log, because an entry is useful only while its message exists. Time,
disk ratios and files are passed in; nothing here reads a clock, a disk or a directory.

    disk used        what happens
    <= max used      delete expired files in the hours of `delete_when`
    > max used       delete expired files now
    > forcibly       delete the oldest files now, expired or not
    > warning        the same, and the store rejects messages

Deletions are logged once a round, with the reason, the span of store times and the groups that had
not read the messages. A level of disk use is logged when it is crossed.

A file is deleted only when the queue entries of its messages are on disk, because they could not be
rebuilt afterwards, and a queue without entries and log would restart at 0. If the disk is too full
to write them, the file is deleted first; its space takes the entries at once.

Source: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService, 5.4.0.
"""

import datetime as dt
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_MANUAL_ROUNDS: Final = 20
_LEVEL_INTERVAL_MS: Final = 60_000
_SHOWN_GROUPS: Final = 10


def _clamp(ratio: float, low: float, high: float) -> float:
    return min(max(ratio, low), high)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Settings of retention; ratios are 0.0 to 1.0 and clamped like Apache's.

    Attributes:
        file_reserved_ms: age (by last modification) at which a file has expired.
        delete_hours: local hours in which expired files are deleted.
        max_used_ratio: above it expired files are deleted at any hour (clamped 0.10 to 0.95).
        clean_forcibly_ratio: above it the oldest are deleted, expired or not (0.30 to 0.85).
        warning_ratio: above it the store also rejects messages (0.35 to 0.90).
        clean_forcibly: False never deletes a file that has not expired.
        delete_batch_max: files per round.
        delete_interval_ms: pause between two files of a round.
        round_interval_ms: pause between two rounds.
        start_delay_ms: pause before the first round.
    """

    file_reserved_ms: int = 72 * _HOUR_MS
    delete_hours: frozenset[int] = frozenset({4})
    max_used_ratio: float = 0.75
    clean_forcibly_ratio: float = 0.85
    warning_ratio: float = 0.90
    clean_forcibly: bool = True
    delete_batch_max: int = 10
    delete_interval_ms: int = 100
    round_interval_ms: int = 10_000
    start_delay_ms: int = 60_000

    def __post_init__(self) -> None:
        """Clamp the ratios."""
        object.__setattr__(self, "max_used_ratio", _clamp(self.max_used_ratio, 0.10, 0.95))
        object.__setattr__(
            self, "clean_forcibly_ratio", _clamp(self.clean_forcibly_ratio, 0.30, 0.85)
        )
        object.__setattr__(self, "warning_ratio", _clamp(self.warning_ratio, 0.35, 0.90))


@dataclass(frozen=True, slots=True)
class DiskRatios:
    """Used part (0.0 to 1.0) of the two file systems, negative if unknown, and their paths."""

    commit_log: float
    consume_queue: float
    commit_log_path: str = ""
    consume_queue_path: str = ""

    @property
    def highest(self) -> tuple[float, str]:
        """Used part and path of the fuller file system."""
        if self.commit_log >= self.consume_queue:
            return self.commit_log, self.commit_log_path
        return self.consume_queue, self.consume_queue_path


class OldestFile(NamedTuple):
    """The oldest file of the commit log.

    Attributes:
        path: its path.
        end_offset: physical offset of its end.
        first_ms: store time of its first message; 0 if it has none.
        modified_ms: its last modification, ms since 1970.
    """

    path: str
    end_offset: int
    first_ms: int
    modified_ms: int


class CommitLogFiles(Protocol):
    """Interface of retention to the commit log."""

    def file_count(self) -> int:
        """Number of files, the one being written included."""
        ...

    def oldest_modified_ms(self) -> int:
        """Wall time of the oldest file's last modification, ms."""
        ...

    def oldest_file(self) -> OldestFile:
        """Describe the oldest file."""
        ...

    def delete_oldest(self) -> bool:
        """Delete the oldest file; return False if that is not possible now."""
        ...


class DependentFiles(Protocol):
    """Interface of retention to files that refer to the commit log."""

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files that end before an offset, except the last; return how many."""
        ...


class _DiskLevel(NamedTuple):
    """Level of disk use.

    Attributes:
        ratio: the level is exceeded above it.
        key: key of the configuration.
        consequence: what happens above it.
    """

    ratio: float
    key: str
    consequence: str


class DiskLevels:
    """Logs each level of disk use when it is crossed, at most once in some minutes."""

    def __init__(self) -> None:
        """Begin below every level."""
        self._exceeded: dict[str, bool] = {}
        self._logged_ms: dict[str, int] = {}

    def check(self, used: float, path: str, policy: RetentionPolicy, now_ms: int) -> None:
        """Compare the use with every level of a policy; use below 0 is unknown."""
        if used < 0:
            return
        for level in _disk_levels(policy):
            is_above = used > level.ratio
            if is_above == self._exceeded.get(level.key, False):
                continue
            last_ms = self._logged_ms.get(level.key)
            # Use that oscillates around a level must not fill the log; the end is logged at once.
            if is_above and last_ms is not None and now_ms - last_ms < _LEVEL_INTERVAL_MS:
                continue
            self._exceeded[level.key] = is_above
            if is_above:
                self._logged_ms[level.key] = now_ms
            used_percent, limit_percent = used * 100, level.ratio * 100
            if is_above:
                logger.warning(
                    "disk use rose above a limit: path=%s used_percent=%.1f limit_percent=%.0f "
                    "key=%s consequence=%s",
                    path,
                    used_percent,
                    limit_percent,
                    level.key,
                    level.consequence,
                )
            else:
                logger.warning(
                    "disk use fell below a limit: path=%s used_percent=%.1f limit_percent=%.0f "
                    "key=%s",
                    path,
                    used_percent,
                    limit_percent,
                    level.key,
                )


def _disk_levels(policy: RetentionPolicy) -> tuple[_DiskLevel, ...]:
    forced = (
        "the oldest log files are deleted, expired or not"
        if policy.clean_forcibly
        else "only expired log files are deleted, because cleanFileForciblyEnable is false"
    )
    return (
        _DiskLevel(
            policy.max_used_ratio,
            "diskMaxUsedSpaceRatio",
            "expired log files are deleted at any hour",
        ),
        _DiskLevel(policy.clean_forcibly_ratio, "diskSpaceCleanForciblyRatio", forced),
        _DiskLevel(policy.warning_ratio, "diskSpaceWarningLevelRatio", "messages are rejected"),
    )


class _Deletions:
    """Files deleted in one round, for one log line."""

    def __init__(self) -> None:
        self.count = self.early_count = 0
        self.first: OldestFile | None = None
        self.last: OldestFile | None = None
        self.groups: dict[str, None] = {}

    def add(self, file: OldestFile, groups: Iterable[str], *, is_early: bool) -> None:
        self.count += 1
        self.early_count += is_early
        self.first, self.last = self.first or file, file
        self.groups.update(dict.fromkeys(groups))

    def report(self, reason: str, policy: RetentionPolicy) -> None:
        """Log the deletions; a warning if files had not expired or messages were not read."""
        if self.first is None or self.last is None:
            return
        level = logging.WARNING if self.early_count or self.groups else logging.INFO
        logger.log(
            level,
            "log files deleted: count=%d before_expiry=%d first=%s last=%s messages_from=%s "
            "messages_to=%s retention_hours=%.0f reason=%s unread_by=%s",
            self.count,
            self.early_count,
            self.first.path,
            self.last.path,
            _utc(self.first.first_ms),
            _utc(self.last.modified_ms),
            policy.file_reserved_ms / _HOUR_MS,
            reason,
            _shown(self.groups),
        )


def _utc(time_ms: int) -> str:
    if time_ms <= 0:
        return "unknown"
    return dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC).isoformat(timespec="seconds")


def _shown(groups: Collection[str]) -> str:
    names = sorted(groups)
    more = f" and {len(names) - _SHOWN_GROUPS} more" if len(names) > _SHOWN_GROUPS else ""
    return ",".join(names[:_SHOWN_GROUPS]) + more or "none"


class CleanCommitLogService:
    """Deletes commit log files, one file per step, so that readers do not stall.

    Attributes:
        policy: settings; may be replaced while running.
        unread_by: returns the groups that have not read all messages before a physical offset.
    """

    name: Final = "CleanCommitLogService"

    def __init__(
        self,
        files: CommitLogFiles,
        policy: RetentionPolicy,
        *,
        clock: Clock,
        disk_ratios: Callable[[], DiskRatios],
        local_hour: Callable[[int], int],
        on_disk_full: Callable[[str | None], None],
        secure: Callable[[], bool] = lambda: True,
    ) -> None:
        """Build the service.

        Args:
            files: the commit log.
            policy: settings.
            clock: its wall time decides which files have expired.
            disk_ratios: returns the used part of the file systems.
            local_hour: local hour (0 to 23) of a wall time in ms.
            on_disk_full: called in each round with the reason for rejecting messages; None while
                the disk is below the warning level.
            secure: flushes the entries of the oldest file; returns False if that failed.
        """
        self._files = files
        self.policy = policy
        self._clock = clock
        self._disk_ratios = disk_ratios
        self._local_hour = local_hour
        self._on_disk_full = on_disk_full
        self._secure = secure
        self._due_ms: int | None = None
        self._left_in_round = 0
        self._forced = False
        self._manual_rounds = 0
        self._levels = DiskLevels()
        self._reason = ""
        self._deletions = _Deletions()
        self._cannot_logged_ms: int | None = None
        self.unread_by: Callable[[int], Collection[str]] = lambda _end: ()
        self.deleted_count: int = 0

    def delete_now(self) -> None:
        """Delete expired files in each of the next rounds, regardless of the hour."""
        self._manual_rounds = _MANUAL_ROUNDS
        if self._due_ms is not None:
            self._due_ms = 0

    def step(self, now_ms: int) -> int:
        """Delete at most one file; see `rocketpy.runtime.service.Service.step`."""
        if self._due_ms is None:
            self._due_ms = now_ms + self.policy.start_delay_ms
        if now_ms < self._due_ms:
            return self._due_ms
        if self._left_in_round == 0:
            self._begin_round(now_ms)
        if self._left_in_round > 0 and self._delete_one():
            self._left_in_round -= 1
        else:
            self._left_in_round = 0
        again = self._left_in_round > 0
        if not again:
            self._deletions.report(self._reason, self.policy)
            self._deletions = _Deletions()
        wait_ms = self.policy.delete_interval_ms if again else self.policy.round_interval_ms
        self._due_ms = now_ms + wait_ms
        return self._due_ms

    def _begin_round(self, now_ms: int) -> None:
        ratios = self._disk_ratios()
        used, path = ratios.highest
        urgent = self._is_space_short(ratios)
        self._levels.check(used, path, self.policy, now_ms)
        manual = self._manual_rounds > 0
        if manual:
            self._manual_rounds -= 1
        # Apache compares with the local hour as well.
        timely = self._local_hour(self._clock.time_ms()) in self.policy.delete_hours
        self._left_in_round = self.policy.delete_batch_max if urgent or manual or timely else 0
        self._reason = (
            f"disk {path} is {used:.1%} full"
            if urgent
            else "requested by an operator"
            if manual
            else "hour of deleteWhen"
        )
        if urgent and not self._can_delete():
            self._report_stuck(used, path, now_ms)

    def _report_stuck(self, used: float, path: str, now_ms: int) -> None:
        last_ms = self._cannot_logged_ms
        if last_ms is None or now_ms - last_ms >= _LEVEL_INTERVAL_MS:
            self._cannot_logged_ms = now_ms
            logger.warning(
                "no log file can be deleted: path=%s used_percent=%.1f log_files=%d",
                path,
                used * 100,
                self._files.file_count(),
            )

    def _is_space_short(self, ratios: DiskRatios) -> bool:
        policy = self.policy
        used = max(ratios.commit_log, ratios.consume_queue)
        # Without the path, because clients see it.
        full = (
            f"the disk is nearly full: {used:.1%} used, messages are rejected above "
            f"{policy.warning_ratio:.0%}"
        )
        self._on_disk_full(full if used > policy.warning_ratio else None)
        # Above this level free space is more important than the age of a file.
        self._forced = policy.clean_forcibly and (
            used > min(policy.clean_forcibly_ratio, policy.warning_ratio)
        )
        # If the usage is unknown, deleting expired files is the safe choice.
        unknown = min(ratios.commit_log, ratios.consume_queue) < 0
        over_any = min(policy.max_used_ratio, policy.clean_forcibly_ratio, policy.warning_ratio)
        return unknown or used > over_any

    def _can_delete(self) -> bool:
        # The last file is being written.
        if self._files.file_count() <= 1:
            return False
        return self._forced or self._has_expired()

    def _has_expired(self) -> bool:
        expires_ms = self._files.oldest_modified_ms() + self.policy.file_reserved_ms
        return self._clock.time_ms() >= expires_ms

    def _delete_one(self) -> bool:
        if not self._can_delete():
            return False
        is_secure = self._secure()
        file, is_early = self._files.oldest_file(), not self._has_expired()
        groups = self.unread_by(file.end_offset)
        # Without durable entries a deletion would make the queue restart at offset 0.
        if not (is_secure or self._forced) or not self._files.delete_oldest():
            return False
        if not is_secure:
            self._secure()
        self._deletions.add(file, groups, is_early=is_early)
        self.deleted_count += 1
        return True


class CleanConsumeQueueService:
    """Deletes consume queue and index files before the start of the commit log."""

    name: Final = "CleanConsumeQueueService"

    def __init__(
        self,
        min_phy_offset: Callable[[], int],
        dependents: list[DependentFiles],
        *,
        interval_ms: int = 10_000,
    ) -> None:
        """Build the service; `dependents` are called in the given order."""
        self._min_phy_offset = min_phy_offset
        self._dependents = dependents
        self._interval_ms = interval_ms
        self._last_min_phy_offset = 0
        self.deleted_count: int = 0

    def step(self, now_ms: int) -> int:
        """Delete files that refer to offsets before the log's start, if the start moved."""
        min_phy_offset = self._min_phy_offset()
        if min_phy_offset > self._last_min_phy_offset:
            self._last_min_phy_offset = min_phy_offset
            for dependent in self._dependents:
                self.deleted_count += dependent.delete_expired(min_phy_offset)
        return now_ms + self._interval_ms
