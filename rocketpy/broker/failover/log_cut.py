"""Cut of a replica's log where the log of its master continues differently.

Source: ours; Apache's truncation moves positions in memory alone.
"""

from contextlib import closing
from pathlib import Path

import structlog

from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.replication.resync import cut, finish_cut, local_log

_log = structlog.get_logger(__name__)


def finish_log_cut(config: MessageStoreConfig, files: StoreFiles) -> None:
    """Finish a cut that a crash has interrupted, before a broker starts.

    Args:
        config: settings of the store.
        files: the file system, for the lock of the directory.

    Raises:
        StoreError: another process uses the directory.
        OSError: the disk failed.
    """
    root = Path(config.store_path_root_dir)
    with closing(files.lock(root / "lock")):
        aside = finish_cut(root, config.store_path_commit_log, files)
    if aside is not None:
        _log.warning("interrupted cut finished", kept_in=str(aside))


def cut_log(config: MessageStoreConfig, files: StoreFiles, at: int) -> None:
    """Cut the log of a stopped broker; the bytes are kept below `cut/`.

    Every step can be repeated after a crash.

    Args:
        config: settings of the store.
        files: the file system, for the lock of the directory.
        at: end of the part that stays, the start of a record.

    Raises:
        StoreError: another process uses the directory, or no record starts there.
        OSError: a file cannot be read or written.
    """
    root = Path(config.store_path_root_dir)
    with closing(files.lock(root / "lock")):
        log = local_log(root, config.store_path_commit_log, disk=files)
        aside = cut(log, max(at, log.begin))
    _log.warning("log cut", at=at, end=log.end, cut_bytes=log.end - at, kept_in=str(aside))
