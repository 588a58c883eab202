"""Small stores in real directories."""

from pathlib import Path

from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.testing.sim_clock import SimClock


def real_store(root: Path, **config: object) -> MessageStore:
    """Open a store in a directory."""
    store = MessageStore(
        MessageStoreConfig(
            **{
                "store_path_root_dir": str(root),
                "mapped_file_size_commit_log": 16384,
                "mapped_file_size_consume_queue": 2000,
                "max_hash_slot_num": 20,
                "max_index_num": 50,
                **config,
            }  # type: ignore[arg-type]
        ),
        clock=SimClock(),
    )
    store.open()
    return store


def step(store: MessageStore, name: str, now_ms: int = 0) -> None:
    """Run one service of a store."""
    next(each for each in store.services if each.name == name).step(now_ms)
