"""Configuration of the message store; keys and defaults are Apache's.

Source: MessageStoreConfig (5.4.0).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.live_config import LIVE_FILE_NAME

_GIB = 1 << 30
_INT_MAX = (1 << 31) - 1
TIMER_WHEEL_SLOTS = 604_800 * 2
"""Slots of a timer wheel: twice as many as seven days have seconds."""
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStoreConfig:
    """Sizes, flush policy, retention and limits of one store directory.

    The file sizes are part of a directory's identity: a directory written with other sizes
    does not open.

    Attributes:
        store_path_root_dir: the store directory; must not be empty.
        store_path_commit_log: commit log directory; empty: `<root>/commitlog`.
        mapped_file_size_commit_log: bytes of a commit log file.
        mapped_file_size_consume_queue: bytes of a consume queue file, rounded up to 20.
        mapper_file_size_batch_consume_queue: bytes of a batch consume queue file.
        flush_disk_type: ASYNC_FLUSH answers when in memory, SYNC_FLUSH when on disk.
        sync_flush_timeout: how long a SYNC_FLUSH answer waits for the disk.
        flush_interval_commit_log: pause between checks of the commit log.
        flush_commit_log_least_pages: dirty 4 KiB pages that trigger a flush.
        flush_commit_log_thorough_interval: a flush happens at least so often.
        flush_interval_consume_queue: pause between checks of the consume queues.
        flush_consume_queue_least_pages: dirty pages that trigger a flush.
        flush_consume_queue_thorough_interval: everything is flushed at least so often.
        max_message_size: limit of a body in bytes; a record may have 64 KiB more.
        max_filter_message_size: consume-queue bytes one read scans at most.
        message_index_enable: whether messages are found by key.
        max_hash_slot_num: hash slots of an index file.
        max_index_num: entries of an index file.
        max_msgs_num_batch: messages one index query returns at most.
        check_crc_on_recover: whether recovery checks the body checksum.
        max_topic_length: limit of an ordinary topic name in bytes.
        os_page_cache_busy_time_out_mills: an append that holds the lock longer makes the
            store busy.
        message_delay_level: delays of level 1, 2, ... as `1s 5s ... 2h`.
        flush_delay_offset_interval: how often delayOffset.json is written.
        timer_wheel_enable: whether messages may have a delivery time (TIMER_*).
        timer_precision_ms: time of one slot of the timer wheel; part of a directory's identity.
            Messages are delivered with millisecond precision anyway.
        timer_max_delay_sec: largest delay of such a message.
        timer_roll_window_slot: a message that is due more slots later is rolled (put back).
        timer_flush_interval_ms: interval of flushes of the timer's files.
        mapped_file_size_timer_log: bytes of a timer log file.
        delete_when: hours of the day in which expired files are deleted, `04` or `04;16`.
        file_reserved_time: how long a commit log file is kept after its last change.
        disk_max_used_space_ratio: percentage used from which expired files are deleted at any hour.
        disk_space_clean_forcibly_ratio: percentage used from which the oldest file is deleted.
        disk_space_warning_level_ratio: percentage used from which puts are rejected.
        clean_file_forcibly_enable: whether files may be deleted before they expire.
        clean_resource_interval: pause between checks for files to delete.
        delete_commit_log_files_interval: pause between two deletions.
        delete_file_batch_max: files deleted in one round at most.
        max_transfer_bytes_on_message_in_memory: limit of one read, recent messages.
        max_transfer_count_on_message_in_memory: limit of one read, recent messages.
        max_transfer_bytes_on_message_in_disk: limit of one read, old messages.
        max_transfer_count_on_message_in_disk: limit of one read, old messages.
        access_message_in_memory_max_ratio: percentage of memory that counts as recent.
        default_query_max_num: messages an index query returns by default.
        broker_role: ASYNC_MASTER answers without waiting for slaves, SYNC_MASTER waits for as many
            as `inSyncReplicas` says, SLAVE copies a master's log and accepts no messages.
    """

    store_path_root_dir: str = option("store", path=True)
    store_path_commit_log: str = option("", path=True)
    mapped_file_size_commit_log: int = option(_GIB, unit="bytes", minimum=1024, maximum=_INT_MAX)
    mapped_file_size_consume_queue: int = option(
        6_000_000, unit="bytes", minimum=20, maximum=_INT_MAX
    )
    mapper_file_size_batch_consume_queue: int = option(
        13_800_000, unit="bytes", minimum=46, maximum=_INT_MAX
    )
    flush_disk_type: str = option("ASYNC_FLUSH", choices=("ASYNC_FLUSH", "SYNC_FLUSH"))
    sync_flush_timeout: int = option(5_000, unit="ms", minimum=1)
    flush_interval_commit_log: int = option(500, unit="ms", minimum=1)
    flush_commit_log_least_pages: int = option(4, unit="pages", minimum=0)
    flush_commit_log_thorough_interval: int = option(10_000, unit="ms", minimum=0)
    flush_interval_consume_queue: int = option(1_000, unit="ms", minimum=1)
    flush_consume_queue_least_pages: int = option(2, unit="pages", minimum=0)
    flush_consume_queue_thorough_interval: int = option(60_000, unit="ms", minimum=0)
    max_message_size: int = option(4 << 20, unit="bytes", minimum=1, maximum=_INT_MAX, live=True)
    max_filter_message_size: int = option(16_000, unit="bytes", minimum=20)
    message_index_enable: bool = option(True)
    max_hash_slot_num: int = option(5_000_000, minimum=1, maximum=_INT_MAX)
    max_index_num: int = option(20_000_000, minimum=2, maximum=_INT_MAX)
    max_msgs_num_batch: int = option(64, minimum=1)
    check_crc_on_recover: bool = option(True, key="checkCRCOnRecover")
    max_topic_length: int = option(127, unit="bytes", minimum=1, maximum=127)
    os_page_cache_busy_time_out_mills: int = option(1_000, unit="ms", minimum=1, live=True)
    message_delay_level: str = option("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    flush_delay_offset_interval: int = option(10_000, unit="ms", minimum=1)
    timer_wheel_enable: bool = option(True)
    timer_precision_ms: int = option(1_000, unit="ms", minimum=100, maximum=1_000)
    timer_max_delay_sec: int = option(259_200, unit="s", minimum=0)
    timer_roll_window_slot: int = option(172_800, unit="slots")
    timer_flush_interval_ms: int = option(1_000, unit="ms", minimum=1)
    mapped_file_size_timer_log: int = option(
        100 << 20, unit="bytes", minimum=1024, maximum=_INT_MAX
    )
    delete_when: str = option("04", live=True)
    file_reserved_time: int = option(72, unit="hours", minimum=0, live=True)
    disk_max_used_space_ratio: int = option(75, unit="%", minimum=0, maximum=100, live=True)
    disk_space_clean_forcibly_ratio: int = option(85, unit="%", minimum=0, maximum=100, live=True)
    disk_space_warning_level_ratio: int = option(90, unit="%", minimum=0, maximum=100, live=True)
    clean_file_forcibly_enable: bool = option(True, live=True)
    clean_resource_interval: int = option(10_000, unit="ms", minimum=1)
    delete_commit_log_files_interval: int = option(100, unit="ms", minimum=0)
    delete_file_batch_max: int = option(10, unit="files", minimum=1)
    max_transfer_bytes_on_message_in_memory: int = option(256 << 10, unit="bytes", minimum=1)
    max_transfer_count_on_message_in_memory: int = option(32, minimum=1)
    max_transfer_bytes_on_message_in_disk: int = option(64 << 10, unit="bytes", minimum=1)
    max_transfer_count_on_message_in_disk: int = option(8, minimum=1)
    access_message_in_memory_max_ratio: int = option(40, unit="%", minimum=0, maximum=100)
    default_query_max_num: int = option(32, minimum=1)
    broker_role: str = option("ASYNC_MASTER", choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))

    def __post_init__(self) -> None:
        """Check combinations of keys.

        Raises:
            ValueError: a delay level that is not a number and a unit, or an hour of
                `delete_when` that is none; no store directory.
        """
        if self.timer_precision_ms not in {100, 200, 500, 1_000}:
            raise ValueError("timerPrecisionMs: expected 100, 200, 500 or 1000")
        if not self.store_path_root_dir.strip():
            raise ValueError("storePathRootDir: must not be empty; expected a directory")
        parse_delay_levels(self.message_delay_level)
        parse_delete_when(self.delete_when)

    def config_warnings(self) -> Iterator[tuple[str, str]]:
        """Yield keys, and why their values do less than they seem to."""
        for key, percent, low, high in (
            ("diskMaxUsedSpaceRatio", self.disk_max_used_space_ratio, 10, 95),
            ("diskSpaceCleanForciblyRatio", self.disk_space_clean_forcibly_ratio, 30, 85),
            ("diskSpaceWarningLevelRatio", self.disk_space_warning_level_ratio, 35, 90),
        ):
            used = min(max(percent, low), high)
            if used != percent:
                yield key, f"{percent} is outside {low} to {high}: {used} is used, as by Apache"

    @property
    def is_sync_flush(self) -> bool:
        """Whether a response means "on disk"."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def is_slave(self) -> bool:
        """Whether the store takes messages from a master's log only."""
        return self.broker_role == "SLAVE"

    @property
    def answers_wait(self) -> bool:
        """Whether responses to sends may have to wait: for the disk, for replicas, or for both."""
        return self.is_sync_flush or self.broker_role == "SYNC_MASTER"

    @property
    def live_settings_file(self) -> Path:
        """Directory of settings that were changed while the broker ran."""
        return Path(self.store_path_root_dir) / "config" / LIVE_FILE_NAME

    @property
    def commit_log_directory(self) -> str:
        """Directory of the commit log files."""
        return self.store_path_commit_log or f"{self.store_path_root_dir}/commitlog"

    @property
    def timer_roll_window_slots(self) -> int:
        """Valid `timer_roll_window_slot`; an invalid value becomes the maximum, as with Apache."""
        longest = TIMER_WHEEL_SLOTS // 2 - 60
        return (
            self.timer_roll_window_slot if 2 <= self.timer_roll_window_slot <= longest else longest
        )

    @property
    def consume_queue_file_bytes(self) -> int:
        """Size of a consume queue file: a whole number of 20-byte entries."""
        return -(-self.mapped_file_size_consume_queue // 20) * 20

    @property
    def batch_consume_queue_file_bytes(self) -> int:
        """Size of a batch consume queue file: a whole number of 46-byte entries."""
        return -(-self.mapper_file_size_batch_consume_queue // 46) * 46


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays in ms; index 0 is level 1.

    Raises:
        ValueError: a word that is not digits and one of `s m h d`.
    """
    delays = []
    for word in text.split():
        if word[-1] not in _UNITS_MS or not word[:-1].isdigit():
            raise ValueError(f"messageDelayLevel: {word!r} is not a number and one of s, m, h, d")
        delays.append(int(word[:-1]) * _UNITS_MS[word[-1]])
    return tuple(delays)


def parse_delete_when(text: str) -> frozenset[int]:
    """Return the hours of a `deleteWhen` value such as `"04"` or `"4;16"`.

    Raises:
        ValueError: a piece is not an hour from 0 to 23.
    """
    pieces = [piece.strip() for piece in text.split(";") if piece.strip()]
    if not all(piece.isascii() and piece.isdigit() and int(piece) <= 23 for piece in pieces):
        raise ValueError(f"deleteWhen: {text!r} is not hours from 0 to 23 with ; between them")
    return frozenset(map(int, pieces))
