"""Retention: which files go, when, and how fast.

Only whole files are deleted, oldest first, never the last one, at most a batch a
round. The commit log leads; consume queues and index files follow, because an entry
is useful only while its message exists. Nothing here reads a clock, a disk or a
directory: time, disk ratios and files come in from outside.

    disk used        what happens
    <= max used      delete expired files in the hours of ``delete_when``
    > max used       delete expired files now
    > forcibly       delete the oldest files now, expired or not
    > warning        the same, and the store takes no more messages

A file goes only when the entries of its messages are on disk in the queues: it is what they would
be made again from, and a queue that has neither would begin at 0. Only when the disk leaves no
choice it goes before; the space it leaves takes the entries at once.

Source: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService, 5.4.0.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from rocketpy.lazy_dataclass import lazy_dataclass
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_MANUAL_ROUNDS: Final = 20


def _clamp(ratio: float, low: float, high: float) -> float:
    return min(max(ratio, low), high)


@lazy_dataclass(frozen=True)
class RetentionPolicy:
    """The numbers of retention; ratios are 0.0 to 1.0 and clamped as Apache clamps them.

    Attributes:
        file_reserved_ms: age (by last modification) at which a file has expired.
        delete_hours: local hours in which expired files are deleted.
        max_used_ratio: above it expired files go at any hour (clamped 0.10 to 0.95).
        clean_forcibly_ratio: above it the oldest go, expired or not (0.30 to 0.85).
        warning_ratio: above it the store also refuses messages (0.35 to 0.90).
        clean_forcibly: False never deletes a file that has not expired.
        delete_batch_max: files a round.
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


@lazy_dataclass(frozen=True)
class DiskRatios:
    """Used part (0.0 to 1.0) of the two partitions; below zero means unknown."""

    commit_log: float
    consume_queue: float


class CommitLogFiles(Protocol):
    """The commit log, as far as retention needs it."""

    def file_count(self) -> int:
        """Number of files, the one being written included."""
        ...

    def oldest_modified_ms(self) -> int:
        """Wall time of the oldest file's last modification, ms."""
        ...

    def delete_oldest(self) -> bool:
        """Delete the oldest file; False when it could not be deleted now."""
        ...


class DependentFiles(Protocol):
    """Files that are worth keeping only while the log they point into exists."""

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files wholly before this offset, never the last; return how many."""
        ...


class CleanCommitLogService:
    """Deletes commit-log files; one file a step, so that readers are never stalled long.

    Attributes:
        policy: the numbers; may be replaced while running.
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
        on_disk_full: Callable[[bool], None],
        secure: Callable[[], bool] = lambda: True,
    ) -> None:
        """Build the service.

        Args:
            files: the commit log.
            policy: the numbers.
            clock: wall time decides what has expired.
            disk_ratios: looks at the partitions.
            local_hour: local hour (0 to 23) of a wall time in ms.
            on_disk_full: told at each round whether the warning level is passed.
            secure: brings what depends on the oldest file to disk; False when that did not work.
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
        self.deleted_count: int = 0

    def delete_now(self) -> None:
        """Delete expired files in each of the next rounds, whatever the hour."""
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
            self._begin_round()
        if self._left_in_round > 0 and self._delete_one():
            self._left_in_round -= 1
        else:
            self._left_in_round = 0
        again = self._left_in_round > 0
        wait_ms = self.policy.delete_interval_ms if again else self.policy.round_interval_ms
        self._due_ms = now_ms + wait_ms
        return self._due_ms

    def _begin_round(self) -> None:
        urgent = self._is_space_short()
        manual = self._manual_rounds > 0
        if manual:
            self._manual_rounds -= 1
        timely = self._local_hour(self._clock.time_ms()) in self.policy.delete_hours
        self._left_in_round = self.policy.delete_batch_max if urgent or manual or timely else 0
        if urgent and not self._can_delete():
            logger.warning("disk space is short and no commit log file can be deleted")

    def _is_space_short(self) -> bool:
        policy, ratios = self.policy, self._disk_ratios()
        used = max(ratios.commit_log, ratios.consume_queue)
        self._on_disk_full(used > policy.warning_ratio)
        self._forced = policy.clean_forcibly and (
            used > min(policy.clean_forcibly_ratio, policy.warning_ratio)
        )
        unknown = min(ratios.commit_log, ratios.consume_queue) < 0
        over_any = min(policy.max_used_ratio, policy.clean_forcibly_ratio, policy.warning_ratio)
        return unknown or used > over_any

    def _can_delete(self) -> bool:
        if self._files.file_count() <= 1:
            return False
        if self._forced:
            return True
        expires_ms = self._files.oldest_modified_ms() + self.policy.file_reserved_ms
        return self._clock.time_ms() >= expires_ms

    def _delete_one(self) -> bool:
        if not self._can_delete():
            return False
        is_secure = self._secure()
        if not (is_secure or self._forced) or not self._files.delete_oldest():
            return False
        if not is_secure:
            self._secure()
        self.deleted_count += 1
        return True


class CleanConsumeQueueService:
    """Lets consume queues and index files follow the commit log's start."""

    name: Final = "CleanConsumeQueueService"

    def __init__(
        self,
        min_phy_offset: Callable[[], int],
        dependents: list[DependentFiles],
        *,
        interval_ms: int = 10_000,
    ) -> None:
        """Build the service; ``dependents`` are told in the order given."""
        self._min_phy_offset = min_phy_offset
        self._dependents = dependents
        self._interval_ms = interval_ms
        self._last_min_phy_offset = 0
        self.deleted_count: int = 0

    def step(self, now_ms: int) -> int:
        """Delete what points before the log's start, if the start moved."""
        min_phy_offset = self._min_phy_offset()
        if min_phy_offset > self._last_min_phy_offset:
            self._last_min_phy_offset = min_phy_offset
            for dependent in self._dependents:
                self.deleted_count += dependent.delete_expired(min_phy_offset)
        return now_ms + self._interval_ms
