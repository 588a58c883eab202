"""Store directories of another kind, which would open as a store without most of its messages.

Apache keeps queues, topics and offsets in RocksDB with `storeType=defaultRocksDB`, the log of a
DLedger group in a separate directory, the epochs of a controller in a file beside the log, tags in
extensions of the queues with `enableConsumeQueueExt`, and the messages of compacted topics apart.
The names are checked before anything is written, so that the directory stays as it is.

Source: StorePathConfigHelper, ConfigRocksDBStorage, DLedgerConfig, AutoSwitchHAService,
ConsumeQueueExt, CompactionStore (5.4.0)
"""

from pathlib import Path
from typing import Final

from rocketpy.errors import StoreFormatError
from rocketpy.store.files.store_files import StoreFiles

_ROCKSDB_MARK: Final = "CURRENT"
_ROCKSDB_QUEUES: Final = ("consumequeue", "consumequeue_rocksdb", "consumequeue_r")
_ROCKSDB_TABLES: Final = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")
_DLEDGER: Final = "dledger-"
_EXTENSIONS: Final = "consumequeue_ext"
_COMPACTED: Final = "compactionLog"
_EPOCHS: Final = ("epochFileCheckpoint", "epochFileCheckpoint.bak")


def check_kind(root: Path, files: StoreFiles, *, has_controller: bool = False) -> None:
    """Reject a directory of a store of another kind; change nothing.

    Args:
        root: the store directory; may be missing.
        files: the file system.
        has_controller: whether a controller decides that this process may use the directory.

    Raises:
        StoreFormatError: it is such a directory.
    """
    if not files.exists(root):
        return
    for path in (
        *(root / name / _ROCKSDB_MARK for name in _ROCKSDB_QUEUES),
        *(root / "config" / name / _ROCKSDB_MARK for name in _ROCKSDB_TABLES),
    ):
        if files.exists(path):
            raise _rocksdb(path)
    tables = set(files.list_directories(root / "config")) & set(_ROCKSDB_TABLES)
    if tables:
        raise _rocksdb(root / "config" / min(tables))
    for name in files.list_directories(root):
        if name.startswith(_DLEDGER):
            raise StoreFormatError(
                f"{root / name} is the log of a DLedger group of Apache (enableDLegerCommitLog), "
                "which RocketPy cannot read: let Apache's brokers serve it until it is consumed, "
                "and use another storePathRootDir"
            )
    extensions = root / _EXTENSIONS
    if _has_queue_files(extensions, files):
        raise StoreFormatError(
            f"{extensions}: this store was written by Apache with enableConsumeQueueExt, and its "
            "queues name tags and times in these files, which RocketPy cannot read. To have the "
            f"queues rebuilt from the commit log, move {extensions}, {root / 'consumequeue'} and "
            f"{root / 'checkpoint'} out of the store; queues without messages in the log then "
            "begin at 0 again"
        )
    compacted = root / "compaction" / _COMPACTED
    if _has_queue_files(compacted, files):
        raise StoreFormatError(
            f"{compacted} has messages of compacted topics of Apache (cleanup.policy=COMPACTION), "
            "which RocketPy cannot read. Let Apache's brokers serve them until they are consumed; "
            f"to give up those that the commit log no longer has, move {compacted.parent} out of "
            "the store"
        )
    for name in () if has_controller else _EPOCHS:
        if files.exists(root / name) and files.size_bytes(root / name):
            raise StoreFormatError(
                f"{root / name}: a controller manages this store (enableControllerMode), "
                "and another replica may be its master with newer messages. To use it without "
                "copies: stop all replicas, take the directory of the last master, and move "
                f"{', '.join(_EPOCHS)} out of it"
            )


def _has_queue_files(directory: Path, files: StoreFiles) -> bool:
    """Return whether a directory has files of queues: `<topic>/<queue>/<file>`."""
    return any(
        files.list_files(directory / topic / queue)
        for topic in files.list_directories(directory)
        for queue in files.list_directories(directory / topic)
    )


def _rocksdb(path: Path) -> StoreFormatError:
    return StoreFormatError(
        f"{path} belongs to a store of Apache with storeType=defaultRocksDB or "
        "configManagerVersion=v2: its queues, topics and offsets are in RocksDB, which RocketPy "
        "cannot read. Migrate it with Apache's broker to storeType=default, or use another "
        "storePathRootDir"
    )
